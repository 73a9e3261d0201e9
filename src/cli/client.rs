//! The client's side of the unix socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::events::EventList;
use crate::layout::Layout;
use crate::server::protocol::{
    Answer, ConditionSet, PauseTarget, ProbeTarget, Request, WATCH_CEILING,
};
use crate::services::view::ServiceView;
use crate::views::ProbeReport;
use crate::views::history::PodHistory;
use crate::views::{Snapshot, SnapshotUpdate};

/// Longest wait for an answer that the daemon can give at once.
const ANSWER: Duration = Duration::from_secs(10);

/// The daemon could not be asked.
#[derive(Debug)]
pub enum ClientError {
    /// No daemon listens there.
    NotRunning {
        /// The socket that it would listen on.
        socket: PathBuf,
        /// Its root.
        root: PathBuf,
    },
    /// The socket is there and cannot be connected to.
    Unreachable {
        /// Where.
        socket: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The daemon has closed the connection, or stopped.
    Gone,
    /// The daemon has not answered within this time.
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
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of that root.
    pub fn connect(root: &Path) -> Result<Self, ClientError> {
        let socket = Layout::new(root).socket();
        let stream = UnixStream::connect(&socket).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning {
                socket,
                root: root.into(),
            },
            _ => ClientError::Unreachable { socket, cause },
        })?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// The present snapshot.
    pub fn snapshot(&mut self) -> Result<Arc<Snapshot>, ClientError> {
        match self.ask(&Request::Snapshot, ANSWER)? {
            Answer::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(other)),
        }
    }

    /// The changes after a version; waits for one, at most [`WATCH_CEILING`].
    pub fn watch(&mut self, after: u64) -> Result<SnapshotUpdate, ClientError> {
        match self.ask(&Request::Watch { after }, WATCH_CEILING + ANSWER)? {
            Answer::Update(update) => Ok(update),
            other => Err(unexpected(other)),
        }
    }

    /// As [`Self::watch`], but None when nothing has changed within `limit`. The connection is of no use afterwards.
    pub fn watch_for(
        &mut self,
        after: u64,
        limit: Duration,
    ) -> Result<Option<SnapshotUpdate>, ClientError> {
        let patience = WATCH_CEILING + ANSWER;
        match self.ask(&Request::Watch { after }, limit.min(patience)) {
            Ok(Answer::Update(update)) => Ok(Some(update)),
            Ok(other) => Err(unexpected(other)),
            Err(ClientError::Silent(_)) if limit < patience => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Every service.
    pub fn services(&mut self) -> Result<Vec<ServiceView>, ClientError> {
        match self.ask(&Request::Services, ANSWER)? {
            Answer::Services(services) => Ok(services),
            other => Err(unexpected(other)),
        }
    }

    /// Every object of a kind that pods refer to.
    pub fn objects(&mut self, kind: ObjectKind) -> Result<Vec<Value>, ClientError> {
        match self.ask(&Request::Objects { kind }, ANSWER)? {
            Answer::Objects(objects) => Ok(objects),
            other => Err(unexpected(other)),
        }
    }

    /// The daemon's version.
    pub fn version(&mut self) -> Result<String, ClientError> {
        match self.ask(&Request::Version, ANSWER)? {
            Answer::Version(version) => Ok(version),
            other => Err(unexpected(other)),
        }
    }

    /// All events; with a version, the call waits until there is a newer one.
    pub fn events(&mut self, after: Option<u64>) -> Result<EventList, ClientError> {
        let limit = if after.is_some() {
            WATCH_CEILING + ANSWER
        } else {
            ANSWER
        };
        match self.ask(&Request::Events { after }, limit)? {
            Answer::Events(list) => Ok(list),
            other => Err(unexpected(other)),
        }
    }

    /// The history of a pod's probes and restarts.
    pub fn history(&mut self, uid: PodUid) -> Result<PodHistory, ClientError> {
        match self.ask(&Request::History { uid }, ANSWER)? {
            Answer::History(history) => Ok(history),
            other => Err(unexpected(other)),
        }
    }

    /// Runs a probe now; it takes at most `limit`.
    pub fn probe(
        &mut self,
        target: ProbeTarget,
        limit: Duration,
    ) -> Result<ProbeReport, ClientError> {
        match self.ask(&Request::Probe(target), limit.saturating_add(ANSWER))? {
            Answer::Probed(report) => Ok(report),
            other => Err(unexpected(other)),
        }
    }

    /// Pauses probes; returns their names.
    pub fn pause(
        &mut self,
        target: PauseTarget,
        length: Duration,
    ) -> Result<Vec<String>, ClientError> {
        self.change(&Request::Pause {
            target,
            seconds: length.as_secs(),
        })
    }

    /// Resumes probes; returns the names of the paused ones.
    pub fn resume(&mut self, target: PauseTarget) -> Result<Vec<String>, ClientError> {
        self.change(&Request::Resume(target))
    }

    fn change(&mut self, request: &Request) -> Result<Vec<String>, ClientError> {
        match self.ask(request, ANSWER)? {
            Answer::Changed(names) => Ok(names),
            other => Err(unexpected(other)),
        }
    }

    /// Sets or removes a condition of a pod.
    pub fn set_condition(
        &mut self,
        uid: PodUid,
        change: ConditionChange,
    ) -> Result<ConditionSet, ClientError> {
        match self.ask(&Request::Condition { uid, change }, ANSWER)? {
            Answer::Condition(set) => Ok(set),
            other => Err(unexpected(other)),
        }
    }

    /// Every metric, in the Prometheus text format.
    pub fn metrics(&mut self) -> Result<String, ClientError> {
        match self.ask(&Request::Metrics, ANSWER)? {
            Answer::Metrics(text) => Ok(text),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Answer, ClientError> {
        let line = self.exchange(request, limit).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent(limit),
            _ => ClientError::Gone,
        })?;
        serde_json::from_slice(&line).map_err(|e| {
            ClientError::Refused(format!("cannot read the answer: {e}; client and daemon may be of different versions (podprobe version)"))
        })
    }

    fn exchange(&mut self, request: &Request, limit: Duration) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let stream = self.reader.get_mut();
        stream.set_read_timeout(Some(limit))?;
        // A daemon with too many clients answers with an error and hangs up before it reads. The write then fails, and the
        // answer is the better error.
        let written = stream.write_all(&line);
        let mut answer = Vec::new();
        self.reader.read_until(b'\n', &mut answer)?;
        match answer.ends_with(b"\n") {
            true => Ok(answer),
            false => Err(written
                .err()
                .unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Error(text) => ClientError::Refused(text),
        _ => ClientError::Refused("the answer belongs to another request".into()),
    }
}
