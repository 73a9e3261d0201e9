//! The daemon's side of the unix socket: answers clients from the snapshot.
//!
//! Invariants: at most [`MAX_CLIENTS`] connections at once, each on one small thread, the next one is told so and
//! closed; a client that neither reads nor writes is dropped after [`IDLE`]; nothing a client sends changes a pod but
//! the pauses of its probes; the accept thread and every connection thread end when the [`Server`] is stopped. Architecture Invariant: nothing here
//! sends to the sync loop or holds a lock across a write.

pub mod protocol;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::api::PodUid;
use crate::events::EventList;
use crate::views::ProbeReport;
use crate::views::Snapshot;
use crate::views::history::PodHistory;
use protocol::{Answer, MAX_REQUEST, PauseTarget, ProbeTarget, Request, WATCH_CEILING};

/// Most connections served at once.
pub const MAX_CLIENTS: usize = 32;

/// How long a client may take to send its next request or to read an answer.
pub const IDLE: Duration = Duration::from_secs(5);

/// How often a waiting `watch` looks whether its client has gone or the server is stopping.
const WATCH_SLICE: Duration = Duration::from_millis(500);

/// Stack of a connection thread in bytes; writing a snapshot as JSON needs the most of it.
const STACK: usize = 256 << 10;

/// Where the answers come from: the daemon, or a test.
pub trait Backend: Send + Sync {
    /// What is known now. Does not wait.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// The first snapshot with a version above `version`, or the present one after `ceiling`.
    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot>;

    /// The daemon's version.
    fn version(&self) -> String;

    /// Every event as soon as the version is above `after`, or as they are after `ceiling`.
    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList;

    /// What is kept of a pod's probes and restarts; empty for an unknown pod.
    fn history(&self, uid: &PodUid) -> PodHistory;

    /// Runs a probe now; returns when it has run, after three times its timeout at most.
    ///
    /// # Errors
    /// Why it cannot be run.
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String>;

    /// Pauses probes for so long; gives their names.
    ///
    /// # Errors
    /// There is no such probe, or the time is out of range.
    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String>;

    /// Lets paused probes go on; gives the names of those that were paused.
    ///
    /// # Errors
    /// There is no such probe.
    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, String>;

    /// Every metric, in the Prometheus text format.
    fn metrics(&self) -> String;
}

/// The socket could not be opened.
#[derive(Debug)]
pub struct ListenError {
    path: PathBuf,
    cause: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot listen on {}: {}",
            self.path.display(),
            self.cause
        )
    }
}

impl std::error::Error for ListenError {}

/// The running server. Dropping it stops it without waiting.
pub struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    wake: UnixStream,
    accept: Option<JoinHandle<()>>,
}

/// What the threads share.
struct Shared {
    backend: Arc<dyn Backend>,
    stopping: AtomicBool,
    clients: AtomicUsize,
}

/// Listens on `path` (mode 0600) and answers from `backend` until stopped. A file that is in the way is replaced: the
/// caller holds the daemon's lock, so it is what an earlier daemon left behind.
pub fn spawn(path: &Path, backend: Arc<dyn Backend>) -> Result<Server, ListenError> {
    open(path, backend).map_err(|cause| ListenError {
        path: path.to_owned(),
        cause,
    })
}

fn open(path: &Path, backend: Arc<dyn Backend>) -> io::Result<Server> {
    let listener = bind(path)?;
    let (wake, woken) = UnixStream::pair()?;
    let shared = Arc::new(Shared {
        backend,
        stopping: AtomicBool::new(false),
        clients: AtomicUsize::new(0),
    });
    let for_thread = Arc::clone(&shared);
    let accept = thread::Builder::new()
        .name("server".into())
        .stack_size(STACK)
        .spawn(move || accept_loop(&listener, &woken, &for_thread))?;
    Ok(Server {
        path: path.to_owned(),
        shared,
        wake,
        accept: Some(accept),
    })
}

/// Binds beside the final name and renames, so that no moment shows a socket with a wider mode and a client finds
/// either the old socket or a working one. The name beside is short: a socket's path has 107 bytes at most.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let fresh = path.with_extension("new");
    remove_if_there(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

impl Server {
    /// Ends the accept thread and every connection, and removes the socket. Does not wait; idempotent.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::SeqCst) {
            let _ = self.wake.shutdown(std::net::Shutdown::Both);
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Whether the accept thread and every connection thread have ended.
    pub fn is_finished(&self) -> bool {
        self.accept.as_ref().is_none_or(JoinHandle::is_finished) && self.clients() == 0
    }

    /// Connections served at the moment.
    pub fn clients(&self) -> usize {
        self.shared.clients.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_loop(listener: &UnixListener, woken: &UnixStream, shared: &Arc<Shared>) {
    while !shared.stopping.load(Ordering::SeqCst) {
        let mut fds = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return log::error!("cannot wait for clients: {e}"),
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, shared),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(e) => {
                // Out of descriptors or memory: the connection stays queued, so without a pause this would spin.
                log::warn!("cannot accept a client: {e}");
                thread::park_timeout(Duration::from_millis(200));
            }
        }
    }
}

/// Counts a client for as long as its thread lives.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let seat = |n: usize| (n < MAX_CLIENTS).then_some(n + 1);
        shared
            .clients
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, seat)
            .ok()?;
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

fn admit(mut stream: UnixStream, shared: &Arc<Shared>) {
    let Some(seat) = Seat::take(shared) else {
        // Fits into the socket's buffer, so the accept thread does not wait for the client.
        let _ = stream.set_nonblocking(true);
        let _ = write_line(
            &mut stream,
            &Answer::Error(format!(
                "{MAX_CLIENTS} clients are connected already; try again later"
            )),
        );
        return;
    };
    let spawned = thread::Builder::new()
        .name("server-client".into())
        .stack_size(STACK)
        .spawn(move || {
            // A client that hangs up or is too slow is its own affair: nothing to report.
            let _ = serve(stream, &seat.0);
        });
    if let Err(e) = spawned {
        log::warn!("cannot serve a client: {e}");
    }
}

fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut reader = BufReader::with_capacity(MAX_REQUEST, stream.try_clone()?);
    let mut writer = stream;
    while !shared.stopping.load(Ordering::SeqCst) {
        let mut line = Vec::new();
        reader
            .by_ref()
            .take(MAX_REQUEST as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let answer = match parse(&line) {
            Ok(request) => answer(request, &writer, shared),
            Err(text) => Answer::Error(text),
        };
        let fatal = !line.ends_with(b"\n");
        write_line(&mut writer, &answer)?;
        if fatal {
            return Ok(());
        }
    }
    Ok(())
}

fn parse(line: &[u8]) -> Result<Request, String> {
    if !line.ends_with(b"\n") && line.len() >= MAX_REQUEST {
        return Err(format!(
            "cannot read the request: longer than {MAX_REQUEST} bytes"
        ));
    }
    serde_json::from_slice(line).map_err(|e| format!("cannot read the request: {e}"))
}

fn answer(request: Request, client: &UnixStream, shared: &Shared) -> Answer {
    match request {
        Request::Snapshot => Answer::Snapshot(shared.backend.snapshot()),
        Request::Version => Answer::Version(shared.backend.version()),
        Request::Watch { after } => Answer::Snapshot(in_slices(
            |slice| shared.backend.wait_newer(after, slice),
            |s| s.version > after,
            client,
            shared,
        )),
        Request::Events { after } => {
            let newer = |list: &EventList| after.is_none_or(|after| list.version > after);
            Answer::Events(in_slices(
                |slice| shared.backend.events(after, slice),
                newer,
                client,
                shared,
            ))
        }
        Request::History { uid } => Answer::History(shared.backend.history(&uid)),
        Request::Probe(target) => shared
            .backend
            .probe(&target)
            .map_or_else(Answer::Error, Answer::Probed),
        Request::Pause { target, seconds } => shared
            .backend
            .pause(&target, Duration::from_secs(seconds))
            .map_or_else(Answer::Error, Answer::Changed),
        Request::Resume(target) => shared
            .backend
            .resume(&target)
            .map_or_else(Answer::Error, Answer::Changed),
        Request::Metrics => Answer::Metrics(shared.backend.metrics()),
    }
}

/// Waits in slices, so that a client that has gone gives its seat back and a stop is heeded.
fn in_slices<T>(
    wait: impl Fn(Duration) -> T,
    is_news: impl Fn(&T) -> bool,
    client: &UnixStream,
    shared: &Shared,
) -> T {
    let begun = Instant::now();
    loop {
        let state = wait(WATCH_SLICE);
        let over = is_news(&state) || begun.elapsed() >= WATCH_CEILING;
        if over || shared.stopping.load(Ordering::SeqCst) || has_hung_up(client) {
            return state;
        }
    }
}

/// The kernel reports POLLHUP unasked, once the client has closed its end.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut fds = [PollFd::new(client.as_fd(), PollFlags::empty())];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

fn write_line(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    Deadline {
        stream,
        end: Instant::now() + IDLE,
    }
    .write_all(&line)
}

/// The socket's own timeout bounds each write, not their sum: a client that reads a byte a second would hold its
/// thread for hours.
struct Deadline<'a> {
    stream: &'a mut UnixStream,
    end: Instant,
}

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if Instant::now() >= self.end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests;
