//! The paths that reach into containers: `/exec`, `/run`, `/attach` and `/portForward` (11.2).
//!
//! Invariants: each use is logged with the client, the container, the command and the end. access.rs has already
//! decided that the request is allowed.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::Backend;
use super::channels::{Protocol, StreamEnd, SubprotocolError};
use super::error::Unreachable;
use super::exchange::Exchange;
use super::request::Request;
use super::response::TEXT;
use super::stream::{self, Forward, Pipe, Plain, SpdyForward};
use super::web_socket::{HandshakeError, Socket, handshake};
use crate::base::cancel::Cancel;
use crate::engine::runtime::{AttachRequest, ExecOutcome, ExecRequest, Started};

/// Largest number of ports that one connection may forward.
const MAX_PORTS: usize = 8;
/// The subprotocol of a WebSocket that carries SPDY, as kubectl names it.
const SPDY_IN_WEB_SOCKET: &str = "SPDY/3.1+portforward.k8s.io";
/// The head that answers `Upgrade: SPDY/3.1`, as a kubelet's.
const SPDY_HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n";
/// The longest time that a command of `/run` may take. The request is answered when the command has ended.
/// [`MAX_OUTPUT`] is the number of bytes that are kept of the command's output.
const RUN_LIMIT: Duration = Duration::from_secs(240);
const MAX_OUTPUT: usize = 1 << 20;
/// Stack size in bytes of the thread that waits for a client to leave.
const WATCH_STACK: usize = 64 << 10;
/// Length in bytes to which a command is cut in the log.
const MAX_LOGGED: usize = 300;

/// The name of a container, as a path has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// `metadata.namespace` of the container's pod.
    pub namespace: String,
    /// `metadata.name` of the container's pod.
    pub pod: String,
    /// `metadata.uid` of the container's pod; None if the path has no uid.
    pub uid: Option<String>,
    /// The container's name; empty if the path names the pod as a whole.
    pub container: String,
}

impl ContainerName {
    /// Reads `NAMESPACE/POD[/UID]/CONTAINER`; None if the number of parts is wrong.
    pub fn of_container(parts: &[&str]) -> Option<Self> {
        match *parts {
            [namespace, pod, container] => Some(Self::new(namespace, pod, None, container)),
            [namespace, pod, uid, container] => {
                Some(Self::new(namespace, pod, Some(uid), container))
            }
            _ => None,
        }
    }

    /// Reads `NAMESPACE/POD[/UID]`; None if the number of parts is wrong.
    pub fn of_pod(parts: &[&str]) -> Option<Self> {
        match *parts {
            [namespace, pod] => Some(Self::new(namespace, pod, None, "")),
            [namespace, pod, uid] => Some(Self::new(namespace, pod, Some(uid), "")),
            _ => None,
        }
    }

    fn new(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> Self {
        Self {
            namespace: namespace.into(),
            pod: pod.into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        }
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.pod)?;
        match self.container.is_empty() {
            true => Ok(()),
            false => write!(f, "/{}", self.container),
        }
    }
}

/// A query asks for no stream at all.
#[derive(Debug, Error)]
#[error("you must specify at least 1 of stdin, stdout, stderr")]
struct NoStream;

/// The reasons why a request cannot become a WebSocket.
#[derive(Debug, Error)]
enum NoUpgrade {
    #[error(transparent)]
    Subprotocol(#[from] SubprotocolError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl NoUpgrade {
    fn status(&self) -> u16 {
        match self {
            Self::Subprotocol(_) => 400,
            Self::Handshake(e) => e.status(),
        }
    }
}

/// The streams that a client asks for in its query.
struct Wanted {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Wanted {
    /// Reads the streams from the query. With a terminal the error output is part of the output, as in a kubelet.
    fn of(exchange: &Exchange<'_>) -> Result<Self, NoStream> {
        let flag = |name: &str| exchange.request.flag(name);
        let tty = flag("tty");
        let wanted = Self {
            stdin: flag("input") || flag("stdin"),
            stdout: flag("output") || flag("stdout"),
            stderr: (flag("error") || flag("stderr")) && !tty,
            tty,
        };
        match wanted.stdin || wanted.stdout || wanted.stderr {
            true => Ok(wanted),
            false => Err(NoStream),
        }
    }
}

/// The audit of a use of a container: a line in the log when the use begins, and a line when the use ends.
pub(super) struct Audit {
    what: String,
    begun: Instant,
    is_over: Cell<bool>,
}

impl Audit {
    pub(super) fn begin(
        verb: &str,
        name: &ContainerName,
        command: &[String],
        client: &str,
    ) -> Self {
        let mut text = match command {
            [] => String::new(),
            command => format!(" {command:?}"),
        };
        if text.len() > MAX_LOGGED {
            text.truncate(text.floor_char_boundary(MAX_LOGGED));
            text.push('…');
        }
        let what = format!("audit: {verb} {name}{text} by {client}");
        log::info!("{what}");
        Self {
            what,
            begun: Instant::now(),
            is_over: Cell::new(false),
        }
    }

    pub(super) fn end(&self, how: &str) {
        self.is_over.set(true);
        let seconds = self.begun.elapsed().as_secs_f64();
        log::info!("{}: {how} after {seconds:.1} s", self.what);
    }

    fn end_of(&self, end: &StreamEnd, has_left: bool) {
        let how = match end {
            StreamEnd::Exited { code, .. } => format!("exit code {code}"),
            StreamEnd::Failed(why) => why.clone(),
        };
        match has_left {
            true => self.end(&format!("the client left; {how}")),
            false => self.end(&how),
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.end("broken off");
        }
    }
}

/// Answers `/exec/NAMESPACE/POD[/UID]/CONTAINER`.
pub(super) fn exec(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let command: Vec<String> = exchange
        .request
        .values("command")
        .map(str::to_owned)
        .collect();
    let wanted = match Wanted::of(&exchange) {
        Ok(wanted) if !command.is_empty() => wanted,
        Ok(_) => return exchange.error(400, "the query needs a command"),
        Err(why) => return exchange.error(400, &why.to_string()),
    };
    let (protocol, head) = match upgrade(&exchange) {
        Ok(found) => found,
        Err(why) => return exchange.error(why.status(), &why.to_string()),
    };
    let audit = Audit::begin("exec", name, &command, &exchange.client());
    let request = ExecRequest {
        command: command.clone(),
        stdin: wanted.stdin,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
        tty: wanted.tty,
        size: None,
    };
    // The command is started before the upgrade, so that an unknown container gets an HTTP status, as from a kubelet.
    let started = match backend.exec(name, &request) {
        Ok(started) => started,
        Err(why) => {
            audit.end(&why.to_string());
            return exchange.error(why.status(), &why.to_string());
        }
    };
    let stop = exchange.stop();
    let (transport, begun) = exchange.upgrade(&head)?;
    let socket = Socket::of_client(transport, begun);
    match started {
        Started::Running(session) => {
            let outcome = stream::serve(socket, protocol, session, &command, stop);
            audit.end_of(&outcome.end, outcome.has_left);
        }
        Started::NotExecuted { code, message } => {
            let end = StreamEnd::Exited { code, command };
            stream::not_executed(socket, protocol, &message, &end, stop);
            audit.end(&message);
        }
    }
    Ok(())
}

/// Answers `/attach/NAMESPACE/POD[/UID]/CONTAINER`.
pub(super) fn attach(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let wanted = match Wanted::of(&exchange) {
        Ok(wanted) => wanted,
        Err(why) => return exchange.error(400, &why.to_string()),
    };
    let (protocol, head) = match upgrade(&exchange) {
        Ok(found) => found,
        Err(why) => return exchange.error(why.status(), &why.to_string()),
    };
    let audit = Audit::begin("attach", name, &[], &exchange.client());
    let request = AttachRequest {
        stdin: wanted.stdin,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
    };
    let session = match backend.attach(name, request) {
        Ok(session) => session,
        Err(why) => {
            audit.end(&why.to_string());
            return exchange.error(why.status(), &why.to_string());
        }
    };
    let stop = exchange.stop();
    let (transport, begun) = exchange.upgrade(&head)?;
    let outcome = stream::serve(
        Socket::of_client(transport, begun),
        protocol,
        session,
        &[],
        stop,
    );
    audit.end_of(&outcome.end, outcome.has_left);
    Ok(())
}

/// Answers `/portForward/NAMESPACE/POD[/UID]`. The ports come in the streams of SPDY, or else in the query.
pub(super) fn forward(
    exchange: Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    match SpdyUpgrade::of(&exchange.request) {
        Some(form) => forward_spdy(exchange, backend, name, form),
        None => forward_query(exchange, backend, name),
    }
}

/// The two ways in which a client carries SPDY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpdyUpgrade {
    WebSocket,
    Plain,
}

impl SpdyUpgrade {
    fn of(request: &Request) -> Option<Self> {
        let mut offered = request.websocket_protocols.iter();
        match request.upgrade.as_deref() {
            Some("spdy/3.1") => Some(Self::Plain),
            Some(_) if offered.any(|name| name == SPDY_IN_WEB_SOCKET) => Some(Self::WebSocket),
            _ => None,
        }
    }

    fn head(self, request: &Request) -> Result<String, HandshakeError> {
        match self {
            Self::WebSocket => handshake(request, Some(SPDY_IN_WEB_SOCKET)),
            Self::Plain => Ok(SPDY_HEAD.to_owned()),
        }
    }
}

/// Forwards the ports that a client of an API server names in the streams of SPDY.
fn forward_spdy(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
    form: SpdyUpgrade,
) -> io::Result<()> {
    let head = match form.head(&exchange.request) {
        Ok(head) => head,
        Err(why) => return exchange.error(why.status(), &why.to_string()),
    };
    if backend.pod(name).is_none() {
        let why = Unreachable::NoPod;
        return exchange.error(why.status(), &why.to_string());
    }
    let audit = Audit::begin("port-forward", name, &[], &exchange.client());
    let stop = exchange.stop();
    let (transport, begun) = exchange.upgrade(&head)?;
    let pipe = match form {
        SpdyUpgrade::WebSocket => Pipe::WebSocket(Box::new(Socket::of_client(transport, begun))),
        SpdyUpgrade::Plain => Pipe::Plain(Plain::new(transport, begun)),
    };
    let pod = (&*name.pod, name.uid.as_deref().unwrap_or_default());
    let dial = |port| backend.dial(name, port);
    match SpdyForward::new(pipe, pod, &dial, stop).run() {
        Ok(()) => audit.end("over"),
        Err(why) => audit.end(&why.to_string()),
    }
    Ok(())
}

/// Answers `/portForward/NAMESPACE/POD[/UID]?port=N`, the form of podprobe's own verb.
fn forward_query(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let ports: Result<Vec<u16>, _> = exchange.request.values("port").map(str::parse).collect();
    let ports = match ports {
        Ok(ports) if (1..=MAX_PORTS).contains(&ports.len()) && !ports.contains(&0) => ports,
        _ => return exchange.error(400, "the query needs 1 to 8 ports, each 1 to 65535"),
    };
    let (_, head) = match upgrade(&exchange) {
        Ok(found) => found,
        Err(why) => return exchange.error(why.status(), &why.to_string()),
    };
    let audit = Audit::begin("port-forward", name, &[], &exchange.client());
    let mut streams = Vec::with_capacity(ports.len());
    for port in ports {
        match backend.dial(name, port) {
            Ok(stream) => streams.push((port, Ok(stream))),
            Err(why) if why.status() == 404 => {
                audit.end(&why.to_string());
                return exchange.error(404, &why.to_string());
            }
            Err(why) => streams.push((port, Err(why))),
        }
    }
    let stop = exchange.stop();
    let (transport, begun) = exchange.upgrade(&head)?;
    Forward::new(Socket::of_client(transport, begun), streams, stop)?.run();
    audit.end("over");
    Ok(())
}

fn upgrade(exchange: &Exchange<'_>) -> Result<(Protocol, String), NoUpgrade> {
    let request = &exchange.request;
    let (protocol, name) = Protocol::choose(&request.websocket_protocols)?;
    Ok((protocol, handshake(request, name)?))
}

/// Runs a command to its end. Kills the command when the client leaves.
fn run_while_asked(
    exchange: &Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
    command: &[String],
) -> Result<ExecOutcome, Unreachable> {
    let cancel = Cancel::default();
    let over = cancel.fd().map_err(Unreachable::ClientNotFollowed)?;
    thread::scope(|scope| {
        let watches = thread::Builder::new().name("run-client".into());
        let watches = watches.stack_size(WATCH_STACK).spawn_scoped(scope, || {
            exchange.until_gone(over);
            cancel.cancel();
        });
        watches.map_err(Unreachable::ClientNotFollowed)?;
        let outcome = backend.run(name, command, (RUN_LIMIT, MAX_OUTPUT), &cancel);
        cancel.cancel();
        outcome
    })
}

/// Answers `POST /run/NAMESPACE/POD[/UID]/CONTAINER?cmd=…`. The body of the answer is the command's output, at most
/// [`MAX_OUTPUT`] bytes of it.
pub(super) fn run(
    exchange: &mut Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let words = exchange.request.value("cmd").unwrap_or_default();
    let words = words.split(' ').filter(|word| !word.is_empty());
    let command: Vec<String> = words.map(str::to_owned).collect();
    if command.is_empty() {
        return exchange.error(400, "the query needs cmd: a command, split at spaces");
    }
    let audit = Audit::begin("run", name, &command, &exchange.client());
    match run_while_asked(exchange, backend, name, &command) {
        Ok(ExecOutcome::Exited { code: 0, output }) => {
            audit.end("exit code 0");
            exchange.reply(200, TEXT, &output)
        }
        Ok(ExecOutcome::Exited { code, mut output }) => {
            audit.end(&format!("exit code {code}"));
            output.extend_from_slice(
                format!("\ncommand terminated with exit code {code}\n").as_bytes(),
            );
            exchange.reply(500, TEXT, &output)
        }
        Ok(ExecOutcome::TimedOut { mut output }) => {
            audit.end("timed out");
            let limit = RUN_LIMIT.as_secs();
            output.extend_from_slice(format!("\ncommand was killed after {limit} s\n").as_bytes());
            exchange.reply(500, TEXT, &output)
        }
        Err(why) => {
            audit.end(&why.to_string());
            exchange.error(why.status(), &why.to_string())
        }
    }
}
