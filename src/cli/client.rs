//! The client for the daemon's unix socket: HTTP on one connection (crate::face::server).

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::starting;
use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::base::json;
use crate::base::paths::Layout;
use crate::base::wire::http1::{Framing, Head, HeadReader};
use crate::face::server::protocol::{
    API, Condition, ConditionSet, DeleteTarget, Deleted, DrainRequest, NodeOrders, Pause,
    PauseTarget, ProbeTarget, RestartTarget, UncordonRequest, Version, WATCH_CEILING,
};
use crate::face::server::request::encoded;
use crate::face::server::transport::Transport;
use crate::face::server::web_socket::Socket;
use crate::face::views::ProbeReport;
use crate::face::views::{Snapshot, SnapshotUpdate};
use crate::net::services::view::ServiceView;
use crate::pods::events::EventList;
use crate::pods::history::PodHistory;
use crate::workloads::view::{ChangeRequest, Changed, WorkloadList};

/// The longest wait for an answer to a request that the daemon can answer at once.
const ANSWER: Duration = Duration::from_secs(10);

/// The longest wait for a stream to begin. A command in a container may take this long to start.
const START: Duration = Duration::from_secs(30);

/// An error of a request to the daemon.
#[derive(Debug)]
pub enum ClientError {
    /// No daemon listens on the socket.
    NotRunning {
        /// Path of the socket.
        socket: PathBuf,
        /// The root directory of the daemon.
        root: PathBuf,
    },
    /// The socket exists, but connecting to it fails.
    Unreachable {
        /// Path of the socket.
        socket: PathBuf,
        /// The error of the connection.
        cause: io::Error,
    },
    /// The daemon has closed the connection, or has ended.
    Gone,
    /// The daemon has not answered within this time limit.
    Silent(Duration),
    /// The daemon refused the request, or this client does not understand the answer.
    Refused(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning { socket, root } => {
                write!(
                    f,
                    "cannot reach podprobe at {}: no daemon runs there; start it with 'podprobe run",
                    socket.display()
                )?;
                match root.to_str() {
                    Some("/") => write!(f, "'"),
                    _ => write!(f, " --root {}'", root.display()),
                }
            }
            Self::Unreachable { socket, cause }
                if cause.kind() == io::ErrorKind::PermissionDenied =>
            {
                write!(
                    f,
                    "cannot reach podprobe at {}: only its own user may; try again with sudo",
                    socket.display()
                )
            }
            Self::Unreachable { socket, cause } => {
                write!(f, "cannot reach podprobe at {}: {cause}", socket.display())
            }
            Self::Gone => write!(
                f,
                "podprobe has closed the connection; it has stopped or is being restarted"
            ),
            Self::Silent(limit) => write!(
                f,
                "podprobe has not answered within {} s: it is overloaded or hangs; its log may say why",
                limit.as_secs()
            ),
            Self::Refused(text) => write!(f, "podprobe refused the request: {text}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A connection to the daemon.
pub struct Client {
    stream: UnixStream,
}

/// A request to the daemon, and the time limit for its answer.
struct Call<'a> {
    method: &'a str,
    target: String,
    body: Vec<u8>,
    limit: Duration,
}

impl Call<'_> {
    fn get(target: impl Into<String>) -> Self {
        Self {
            method: "GET",
            target: target.into(),
            body: Vec::new(),
            limit: ANSWER,
        }
    }

    fn post(path: &str, body: &impl Serialize) -> Self {
        Self {
            method: "POST",
            target: format!("{API}/{path}"),
            body: serde_json::to_vec(body).unwrap_or_default(),
            limit: ANSWER,
        }
    }

    fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

fn workloads_after(version: u64) -> String {
    format!("{API}/workloads?after={version}")
}

impl Client {
    /// Connects to the daemon with this root. Waits for a daemon that is starting.
    pub fn connect(root: &Path) -> Result<Self, ClientError> {
        let socket = Layout::new(root).socket();
        let stream = starting::connect(&socket, root).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning {
                socket,
                root: root.into(),
            },
            _ => ClientError::Unreachable { socket, cause },
        })?;
        Ok(Self { stream })
    }

    /// Returns the connection, for a request with a stream as its body or answer.
    pub(super) fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Asks for the present snapshot.
    pub fn snapshot(&mut self) -> Result<Arc<Snapshot>, ClientError> {
        self.json(&Call::get(format!("{API}/snapshot")))
            .map(Arc::new)
    }

    /// Waits for changes after a version, for at most [`WATCH_CEILING`], and returns the changes.
    pub fn watch(&mut self, after: u64) -> Result<SnapshotUpdate, ClientError> {
        let call = Call::get(format!("{API}/watch?after={after}"));
        self.json(&call.within(WATCH_CEILING + ANSWER))
    }

    /// Waits for a change as [`Self::watch`] does. Returns None if nothing has changed within `limit`. After
    /// None, the connection cannot be used any more.
    pub fn watch_for(
        &mut self,
        after: u64,
        limit: Duration,
    ) -> Result<Option<SnapshotUpdate>, ClientError> {
        self.json_for(format!("{API}/watch?after={after}"), limit)
    }

    /// Asks for a change. Returns None if there is no answer within `limit`.
    fn json_for<T: DeserializeOwned>(
        &mut self,
        target: String,
        limit: Duration,
    ) -> Result<Option<T>, ClientError> {
        let patience = WATCH_CEILING + ANSWER;
        match self.json(&Call::get(target).within(limit.min(patience))) {
            Err(ClientError::Silent(_)) if limit < patience => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Asks for all workloads. If `after` is a version, the daemon answers when the list has a newer version, or after
    /// [`WATCH_CEILING`].
    pub fn workloads(&mut self, after: Option<u64>) -> Result<WorkloadList, ClientError> {
        self.json(&match after {
            Some(after) => Call::get(workloads_after(after)).within(WATCH_CEILING + ANSWER),
            None => Call::get(format!("{API}/workloads")),
        })
    }

    /// Waits for a newer list as [`Self::workloads`] does. Returns None if the list has not changed within `limit`.
    /// After None, the connection cannot be used any more.
    pub fn workloads_for(
        &mut self,
        after: u64,
        limit: Duration,
    ) -> Result<Option<WorkloadList>, ClientError> {
        self.json_for(workloads_after(after), limit)
    }

    /// Changes a workload.
    pub fn change(&mut self, request: &ChangeRequest) -> Result<Changed, ClientError> {
        self.json(&Call::post("workload", request))
    }

    /// Asks for all services.
    pub fn services(&mut self) -> Result<Vec<ServiceView>, ClientError> {
        self.json(&Call::get(format!("{API}/services")))
    }

    /// Asks for all objects of a kind, such as ConfigMaps.
    pub fn objects(&mut self, kind: ObjectKind) -> Result<Vec<Value>, ClientError> {
        self.json(&Call::get(format!("{API}/objects/{}", kind.as_str())))
    }

    /// Asks for the daemon's version.
    pub fn version(&mut self) -> Result<String, ClientError> {
        let version: Version = self.json(&Call::get("/version"))?;
        Ok(version.version)
    }

    /// Asks for all events. If `after` is a version, the daemon answers when the events have a newer version, or
    /// after [`WATCH_CEILING`].
    pub fn events(&mut self, after: Option<u64>) -> Result<EventList, ClientError> {
        self.json(&match after {
            Some(after) => {
                Call::get(format!("/events?after={after}")).within(WATCH_CEILING + ANSWER)
            }
            None => Call::get("/events"),
        })
    }

    /// Asks for the history of a pod's probes and restarts.
    pub fn history(&mut self, uid: PodUid) -> Result<PodHistory, ClientError> {
        let uid = encoded(uid.as_str());
        self.json(&Call::get(format!("{API}/history/{uid}")))
    }

    /// Runs a probe now. The probe takes at most `limit`.
    pub fn probe(
        &mut self,
        target: ProbeTarget,
        limit: Duration,
    ) -> Result<ProbeReport, ClientError> {
        let call = Call::post("probe", &target);
        self.json(&call.within(limit.saturating_add(ANSWER)))
    }

    /// Pauses probes, and returns their names.
    pub fn pause(
        &mut self,
        target: PauseTarget,
        length: Duration,
    ) -> Result<Vec<String>, ClientError> {
        let seconds = length.as_secs();
        self.json(&Call::post("pause", &Pause { target, seconds }))
    }

    /// Resumes probes, and returns the names of the probes that were paused.
    pub fn resume(&mut self, target: PauseTarget) -> Result<Vec<String>, ClientError> {
        self.json(&Call::post("resume", &target))
    }

    /// Restarts containers, and returns their names.
    pub fn restart(&mut self, target: RestartTarget) -> Result<Vec<String>, ClientError> {
        self.json(&Call::post("restart", &target))
    }

    /// Deletes a pod. The pod stays deleted until its file changes.
    pub fn delete(&mut self, target: DeleteTarget) -> Result<Deleted, ClientError> {
        self.json(&Call::post("delete", &target))
    }

    /// Sets or removes a condition of a pod.
    pub fn set_condition(
        &mut self,
        uid: PodUid,
        change: ConditionChange,
    ) -> Result<ConditionSet, ClientError> {
        self.json(&Call::post("condition", &Condition { uid, change }))
    }

    /// Asks for the orders that hold for all pods of the node.
    pub fn node_orders(&mut self) -> Result<NodeOrders, ClientError> {
        self.json(&Call::get(format!("{API}/node")))
    }

    /// Lets no new pod start on the node.
    pub fn cordon(&mut self) -> Result<NodeOrders, ClientError> {
        self.json(&Call::post("cordon", &Value::Null))
    }

    /// Lets pods start again on the node.
    pub fn uncordon(&mut self, request: &UncordonRequest) -> Result<NodeOrders, ClientError> {
        self.json(&Call::post("uncordon", request))
    }

    /// Ends all pods of the node.
    pub fn drain(&mut self, request: &DrainRequest) -> Result<NodeOrders, ClientError> {
        self.json(&Call::post("drain", request))
    }

    /// Lets the daemon read its configuration again. Returns lines about what has changed.
    pub fn reload(&mut self) -> Result<Vec<String>, ClientError> {
        self.json(&Call::post("reload", &Value::Null))
    }

    /// Asks for the configuration that the daemon uses.
    pub fn config(&mut self) -> Result<Value, ClientError> {
        let mut answer: Value = self.json(&Call::get("/configz"))?;
        Ok(answer["kubeletconfig"].take())
    }

    /// Asks for the processor and memory use of the node and its pods, in the kubelet's format.
    pub fn usage(&mut self) -> Result<Value, ClientError> {
        self.json(&Call::get("/stats/summary?only_cpu_and_memory=true"))
    }

    /// Asks for all metrics, in the Prometheus text format.
    pub fn metrics(&mut self) -> Result<String, ClientError> {
        let text = self.ask(&Call::get("/metrics"))?;
        String::from_utf8(text).map_err(|e| unreadable(&e))
    }

    /// Opens a WebSocket with this path and query, and with `subprotocol`.
    ///
    /// # Errors
    /// Returns a [`ClientError`] if the daemon cannot be asked. If the daemon refuses the request, the error has
    /// the daemon's sentence.
    pub fn web_socket(mut self, target: &str, subprotocol: &str) -> Result<Socket, ClientError> {
        let mut key = [0; 16];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut key).map_err(|_| ClientError::Gone)?;
        let key = BASE64_STANDARD.encode(key);
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: podprobe\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
        );
        let answered = self.upgraded(&request).map_err(|e| failure(&e, START));
        match answered? {
            (101, begun) => {
                let transport = Transport::unix(self.stream).map_err(|_| ClientError::Gone)?;
                Ok(Socket::of_server(transport, begun))
            }
            (_, why) => Err(ClientError::Refused(
                String::from_utf8_lossy(&why).trim_end().to_owned(),
            )),
        }
    }

    /// Sends the upgrade request. Returns the status, and either the first bytes of the WebSocket or the body
    /// of the refusal.
    fn upgraded(&mut self, request: &str) -> io::Result<(u16, Vec<u8>)> {
        self.stream.set_read_timeout(Some(START))?;
        self.stream.write_all(request.as_bytes())?;
        let (head, begun) = self.read_head()?;
        match head.status {
            101 => Ok((101, begun)),
            status => Ok((status, self.read_body(head.framing, &begun)?)),
        }
    }

    fn json<T: DeserializeOwned>(&mut self, call: &Call<'_>) -> Result<T, ClientError> {
        let answer = self.ask(call)?;
        json::from_slice(&answer).map_err(|e| unreadable(&e))
    }

    /// Sends a request and returns the body of the answer. An answer with an error status is an error.
    fn ask(&mut self, call: &Call<'_>) -> Result<Vec<u8>, ClientError> {
        let answered = self.exchange(call).map_err(|e| failure(&e, call.limit));
        match answered? {
            (200, body) => Ok(body),
            (_, body) => {
                let text = String::from_utf8_lossy(&body);
                Err(ClientError::Refused(text.trim_end().to_owned()))
            }
        }
    }

    fn exchange(&mut self, call: &Call<'_>) -> io::Result<(u16, Vec<u8>)> {
        let (method, target, length) = (call.method, &call.target, call.body.len());
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: podprobe\r\nContent-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(&call.body);
        self.stream.set_read_timeout(Some(call.limit))?;
        // A daemon with too many clients answers with an error and closes the connection before it reads. The
        // client's write fails in this case, but the error in the daemon's answer says more.
        let written = self.stream.write_all(&request);
        let answer = self.read();
        match (written, answer) {
            (Err(e), Err(_)) => Err(e),
            (_, answer) => answer,
        }
    }

    fn read(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let (head, begun) = self.read_head()?;
        Ok((head.status, self.read_body(head.framing, &begun)?))
    }

    /// Reads the head of an answer. Also returns the bytes that were read after the head.
    fn read_head(&mut self) -> io::Result<(Head, Vec<u8>)> {
        let mut head = HeadReader::default();
        let mut bytes = vec![0; READ];
        loop {
            let mut piece = self.read_piece(&mut bytes)?;
            if head.is_untouched() {
                // The empty line after the last chunk of the previous answer may arrive late.
                piece = piece.trim_ascii_start();
            }
            if let Some((head, rest)) = head.push(piece).map_err(invalid)? {
                return Ok((head, rest.to_vec()));
            }
        }
    }

    fn read_body(&mut self, mut framing: Framing, begun: &[u8]) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut bytes = vec![0; READ];
        let mut ended = framing
            .push(begun, &mut body, usize::MAX)
            .map_err(invalid)?;
        while !ended {
            let piece = self.read_piece(&mut bytes)?;
            ended = framing
                .push(piece, &mut body, usize::MAX)
                .map_err(invalid)?;
        }
        Ok(body)
    }

    fn read_piece<'a>(&mut self, bytes: &'a mut [u8]) -> io::Result<&'a [u8]> {
        match read_on(&mut self.stream, bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Ok(&bytes[..n]),
        }
    }
}

/// Reads from the daemon. A read with a time limit fails when the client goes on after it was stopped, as by Ctrl-Z. Such
/// a read is made again.
pub fn read_on(stream: &mut UnixStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn invalid(e: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

/// The number of bytes of an answer that are read at once.
const READ: usize = 64 << 10;

fn failure(e: &io::Error, limit: Duration) -> ClientError {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent(limit),
        io::ErrorKind::InvalidData => unreadable(e),
        _ => ClientError::Gone,
    }
}

fn unreadable(e: &dyn fmt::Display) -> ClientError {
    ClientError::Refused(format!(
        "cannot read the answer: {e}; client and daemon may be of different versions (podprobe version)"
    ))
}
