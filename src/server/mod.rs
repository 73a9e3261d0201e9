//! The daemon's side of the unix socket: answers clients from the snapshot.
//!
//! Invariants: at most [`MAX_CLIENTS`] clients are connected at once, each served by one small thread; the next one is
//! told so and closed. A client that has not sent a whole request or not read a whole answer within [`IDLE`] is dropped.
//! A client can change nothing but the pauses of probes and the conditions that podprobe does not set itself. Every thread ends when the [`Server`] is stopped. Architecture
//! Invariant: nothing here sends to the sync loop or holds a lock across a write.

pub mod protocol;

use std::fmt;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;

use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::clock::Moment;
use crate::directory_watch::DirectoryWatch;
use crate::events::EventList;
use crate::services::view::ServiceView;
use crate::views::ProbeReport;
use crate::views::history::PodHistory;
use crate::views::{Snapshot, SnapshotUpdate};
use protocol::{
    Answer, ConditionSet, MAX_REQUEST, PauseTarget, ProbeTarget, Request, WATCH_CEILING,
};

/// Most connections served at once.
pub const MAX_CLIENTS: usize = 32;

/// How long a client may take to send its next request or to read an answer.
pub const IDLE: Duration = Duration::from_secs(5);

/// How often a thread that waits for a change or for its client looks whether the client has gone or the server stops.
const SLICE: Duration = Duration::from_millis(500);

/// How long a socket that was removed stays away.
const REBIND_PAUSE: Duration = Duration::from_millis(100);

/// Stack of a connection thread in bytes; writing a snapshot as JSON needs the most of it.
const STACK: usize = 256 << 10;

/// Where the answers come from: the daemon, or a test.
pub trait Backend: Send + Sync {
    /// What is known now. Waits only right after the daemon's start, until the pod files have been read.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// What has changed after `version`, as soon as something has; nothing after `ceiling`. Complete for a reader that is
    /// too far behind.
    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate;

    /// The daemon's version.
    fn version(&self) -> String;

    /// The events after that version as soon as there is one, or none after `ceiling`. Without a version all, at once.
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

    /// Sets or removes a condition of a pod; returns when it is on disk, or cannot be.
    ///
    /// # Errors
    /// There is no such pod, or it cannot have this condition.
    fn set_condition(&self, uid: &PodUid, change: &ConditionChange)
    -> Result<ConditionSet, String>;

    /// Every metric, in the Prometheus text format.
    fn metrics(&self) -> String;

    /// Every service, in the order of namespace and name.
    fn services(&self) -> Vec<ServiceView>;

    /// Every object of a kind that pods refer to, as an API server has it, in the same order. Those of Secrets hold their
    /// values.
    fn objects(&self, kind: ObjectKind) -> Vec<Value>;
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
    connections: Arc<Connections>,
    wake: UnixStream,
    accept: JoinHandle<()>,
}

/// Who is served, and from what.
struct Connections {
    backend: Arc<dyn Backend>,
    stopping: AtomicBool,
    clients: Mutex<Vec<Arc<UnixStream>>>,
}

impl Connections {
    fn clients(&self) -> MutexGuard<'_, Vec<Arc<UnixStream>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
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
    let door = Door::open(path)?;
    let (wake, woken) = UnixStream::pair()?;
    let connections = Arc::new(Connections {
        backend,
        stopping: AtomicBool::new(false),
        clients: Mutex::default(),
    });
    let for_thread = Arc::clone(&connections);
    let accept = thread::Builder::new()
        .name("server".into())
        .stack_size(STACK)
        .spawn(move || accept_loop(door, &woken, &for_thread))?;
    Ok(Server {
        path: path.to_owned(),
        connections,
        wake,
        accept,
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
    /// Ends the accept thread and every connection, and removes the socket. Does not wait; idempotent. A client gets the
    /// answer that is being made for it, and no other.
    pub fn stop(&self) {
        if !self.connections.stopping.swap(true, Ordering::SeqCst) {
            let _ = self.wake.shutdown(Shutdown::Both);
            for client in self.connections.clients().iter() {
                let _ = client.shutdown(Shutdown::Read);
            }
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Whether the accept thread and every connection thread have ended.
    pub fn is_finished(&self) -> bool {
        self.accept.is_finished() && self.connections.clients().is_empty()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The socket, made again when its file is removed: whoever clears /run would lock every client out.
struct Door {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    /// Without room in inotify the file is looked for now and then.
    watch: DirectoryWatch,
    /// Why the socket could not be made again, as last logged.
    problem: String,
}

impl Door {
    fn open(path: &Path) -> io::Result<Self> {
        let listener = bind(path)?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            file: inode(path)?,
            watch: DirectoryWatch::new(path.to_owned(), |_| false),
            problem: String::new(),
        })
    }

    /// Watched before it is looked for, so that a removal at any moment is seen. True when it must be looked for again.
    fn keep(&mut self) -> bool {
        let watched = self.watch.ensure(Moment::now());
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            return false;
        }
        // Whoever removes the directory is let finish: a new file would be in its way.
        thread::park_timeout(REBIND_PAUSE);
        let bound = bind(&self.path).and_then(|listener| {
            self.file = inode(&self.path)?;
            self.listener = listener;
            Ok(())
        });
        match bound {
            Ok(()) => {
                self.problem.clear();
                log::warn!("{} was removed; it is made again", self.path.display());
            }
            Err(e) => {
                let problem = format!("cannot listen on {}: {e}", self.path.display());
                if self.problem != problem {
                    log::error!("{problem}; clients cannot reach the daemon until this works");
                }
                self.problem = problem;
            }
        }
        watched.is_ok()
    }

    /// How long to wait for a client before the socket's file is looked for again.
    fn patience(&self) -> PollTimeout {
        let retry = self.watch.retry_at().map(|at| at.since(Moment::now()));
        // Rounded up: waking a little early would spin.
        retry.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        })
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn accept_loop(mut door: Door, woken: &UnixStream, connections: &Arc<Connections>) {
    while !connections.is_stopping() {
        if door.keep() {
            continue;
        }
        let mut fds = vec![
            PollFd::new(door.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(door.watch.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, door.patience()) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return log::error!("cannot wait for clients: {e}"),
        }
        door.watch.drain();
        match door.listener.accept() {
            Ok((stream, _)) => admit(stream, connections),
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
    // It may have been made again after the stop had removed it.
    if inode(&door.path).is_ok_and(|file| file == door.file) {
        let _ = std::fs::remove_file(&door.path);
    }
}

/// A client that is served, for as long as its thread lives.
struct Seat {
    client: Arc<UnixStream>,
    connections: Arc<Connections>,
}

impl Seat {
    /// None when all seats are taken, or when the server is stopping.
    fn take(client: &Arc<UnixStream>, connections: &Arc<Connections>) -> Option<Self> {
        let mut clients = connections.clients();
        // under the lock: `stop` sees this client, or this client sees the stop
        if connections.is_stopping() || clients.len() >= MAX_CLIENTS {
            return None;
        }
        clients.push(client.clone());
        Some(Self {
            client: client.clone(),
            connections: connections.clone(),
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut clients = self.connections.clients();
        clients.retain(|other| !Arc::ptr_eq(other, &self.client));
    }
}

fn admit(stream: UnixStream, connections: &Arc<Connections>) {
    let client = Arc::new(stream);
    let Some(seat) = Seat::take(&client, connections) else {
        return refuse(&client);
    };
    let spawned = thread::Builder::new()
        .name("server-client".into())
        .stack_size(STACK)
        .spawn(move || {
            // A client that hangs up or is too slow is no error of the daemon.
            let _ = serve(&seat.client, &seat.connections);
        });
    if let Err(e) = spawned {
        log::warn!("cannot serve a client: {e}");
    }
}

/// The line fits into the socket's buffer, so the accept thread does not wait for the client.
fn refuse(mut client: &UnixStream) {
    let text = format!("{MAX_CLIENTS} clients are connected already; try again later");
    let mut line = serde_json::to_vec(&Answer::Error(text)).unwrap_or_default();
    line.push(b'\n');
    let _ = client.set_nonblocking(true);
    let _ = client.write_all(&line);
}

fn serve(client: &UnixStream, connections: &Connections) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(SLICE))?;
    let whole = Deadline::new(client, connections);
    let mut reader = BufReader::with_capacity(MAX_REQUEST, whole);
    while !connections.is_stopping() {
        let mut line = Vec::new();
        reader.get_mut().renew();
        reader
            .by_ref()
            .take(MAX_REQUEST as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let answer = match parse(&line) {
            Ok(request) => answer(request, client, connections),
            Err(text) => Answer::Error(text),
        };
        let fatal = !line.ends_with(b"\n");
        write_line(client, &answer, connections)?;
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

fn answer(request: Request, client: &UnixStream, connections: &Connections) -> Answer {
    match request {
        Request::Snapshot => Answer::Snapshot(connections.backend.snapshot()),
        Request::Version => Answer::Version(connections.backend.version()),
        Request::Watch { after } => Answer::Update(in_slices(
            |slice| connections.backend.watch(after, slice),
            |update| update.version != after,
            client,
            connections,
        )),
        Request::Events { after } => {
            let newer = |list: &EventList| after.is_none_or(|after| list.version > after);
            Answer::Events(in_slices(
                |slice| connections.backend.events(after, slice),
                newer,
                client,
                connections,
            ))
        }
        Request::Services => Answer::Services(connections.backend.services()),
        Request::Objects { kind } => Answer::Objects(connections.backend.objects(kind)),
        Request::History { uid } => Answer::History(connections.backend.history(&uid)),
        Request::Probe(target) => connections
            .backend
            .probe(&target)
            .map_or_else(Answer::Error, Answer::Probed),
        Request::Pause { target, seconds } => connections
            .backend
            .pause(&target, Duration::from_secs(seconds))
            .map_or_else(Answer::Error, Answer::Changed),
        Request::Resume(target) => connections
            .backend
            .resume(&target)
            .map_or_else(Answer::Error, Answer::Changed),
        Request::Condition { uid, change } => connections
            .backend
            .set_condition(&uid, &change)
            .map_or_else(Answer::Error, Answer::Condition),
        Request::Metrics => Answer::Metrics(connections.backend.metrics()),
    }
}

/// Waits in slices, so that a client that has gone gives its seat back and a stop is heeded.
fn in_slices<T>(
    wait: impl Fn(Duration) -> T,
    is_news: impl Fn(&T) -> bool,
    client: &UnixStream,
    connections: &Connections,
) -> T {
    let begun = Instant::now();
    loop {
        let state = wait(SLICE);
        let over = is_news(&state) || begun.elapsed() >= WATCH_CEILING;
        if over || connections.is_stopping() || has_hung_up(client) {
            return state;
        }
    }
}

/// The kernel reports POLLHUP unasked, once the client has closed its end.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut fds = [PollFd::new(client.as_fd(), PollFlags::empty())];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
}

/// Writes an answer piece by piece, so that a list of all pods never lies in memory as a whole.
fn write_line(client: &UnixStream, answer: &Answer, connections: &Connections) -> io::Result<()> {
    let mut out = BufWriter::new(Deadline::new(client, connections));
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A socket whose whole request must come, and whose whole answer must go, within [`IDLE`]. Its own timeouts bound each
/// read and each write, not their sum: a client that moves a byte at a time would hold its thread for hours.
struct Deadline<'a> {
    client: &'a UnixStream,
    connections: &'a Connections,
    end: Instant,
}

impl<'a> Deadline<'a> {
    fn new(client: &'a UnixStream, connections: &'a Connections) -> Self {
        Self {
            client,
            connections,
            end: Instant::now() + IDLE,
        }
    }

    /// The next request or answer begins.
    fn renew(&mut self) {
        self.end = Instant::now() + IDLE;
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left)
        }
    }
}

impl Read for Deadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.client.set_read_timeout(Some(self.left()?))?;
        (&*self.client).read(buffer)
    }
}

impl Write for Deadline<'_> {
    /// A client that does not read is waited for in slices, and given up when the server stops.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.left()?;
            match (&*self.client).write(bytes) {
                Err(e)
                    if e.kind() == io::ErrorKind::WouldBlock && !self.connections.is_stopping() => {
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.client).flush()
    }
}

#[cfg(test)]
mod tests;
