//! Waits for a started command: for its report, its output, its end or its timeout.
//!
//! Invariants: every wait has a limit. Only unreaped children of this process are killed or waited for. A child that
//! does not die in time (because it is frozen or hung) is parked: its memory is kept, and a later exec reaps it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::Limits;
use super::cgroup::Leaf;
use super::error::ExecError;
use super::spawner::{Answer, Spawner};
use super::tracer;
use crate::base::locks::Locked;
use crate::base::sys::enter::{Board, Report};
use crate::base::sys::task::{PidFd, reap_pid};

/// Longest time that a killed process may take to end.
const DEATH_LIMIT: Duration = Duration::from_secs(5);
/// Longest time that an ended process may wait for its tracer to take the report of its end. After this time the tracer
/// is killed.
const TRACER_LIMIT: Duration = Duration::from_secs(1);
/// Pause between two attempts to reap a traced process that has ended. The descriptor of such a process shows that it
/// has ended, but not when it can be reaped.
const TRACER_PAUSE: Duration = Duration::from_millis(10);
/// Number of bytes of output after which the daemon closes the pipe. The command gets EPIPE from then on. Of these
/// bytes, those beyond the limit of the caller are read and dropped.
const DRAIN_LIMIT: usize = 64 << 20;

fn remaining(until: Instant) -> PollTimeout {
    // The time is rounded up: poll counts in milliseconds, and a timeout that ends early would make the caller's loop
    // spin.
    let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// The children of earlier execs that did not die in time.
static PARKED: Mutex<Vec<Procs>> = Mutex::new(Vec::new());

/// Reaps the processes that earlier execs had to leave running. Called before each exec.
pub(super) fn sweep() {
    let parked = std::mem::take(&mut *PARKED.locked());
    for mut p in parked {
        if !p.try_reap() {
            PARKED.locked().push(p);
        }
    }
}

/// The two child processes of one exec, and the memory in which they write their reports.
pub(super) struct Procs {
    /// Board in which the children write their reports; `None` once both children have ended.
    board: Option<Board>,
    first_reaped: bool,
    second: Option<PidFd>,
    second_code: Option<i32>,
    leaf: Option<Leaf>,
    /// True if a process of the container may still hold the memory of the board.
    traceable: bool,
    /// True if the second child has reached its execve. Set when both children have ended.
    executed: bool,
}

impl Procs {
    pub(super) fn new(board: Board, leaf: Option<Leaf>, traceable: bool) -> Self {
        Self {
            board: Some(board),
            first_reaped: false,
            second: None,
            second_code: None,
            leaf,
            traceable,
            executed: false,
        }
    }

    fn first(&self) -> Option<i32> {
        self.board.as_ref().and_then(Board::first)
    }

    /// Opens the pidfd of the second child if this child exists. The pid is that of the right process: the second child
    /// is a child of this process, and its pid is not given to another process before the child is reaped.
    fn find_second(&mut self) {
        if let (None, Some(pid)) = (&self.second, self.board.as_ref().and_then(Board::second)) {
            self.second = PidFd::of(pid).ok();
        }
    }

    /// Returns the report of the child that failed. Returns None if no child has reported a failure.
    pub(super) fn failed(&self) -> Option<Report> {
        self.board.as_ref().and_then(Board::report)
    }

    /// Returns a new descriptor of the command's process.
    pub(super) fn process(&self) -> std::io::Result<OwnedFd> {
        let second = self.second.as_ref().map(|s| s.as_fd().try_clone_to_owned());
        second.unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()))
    }

    pub(super) fn kill(&mut self) {
        if let Some(leaf) = &self.leaf {
            leaf.kill();
        }
        if let (false, Some(first)) = (self.first_reaped, self.first()) {
            kill_child(first);
        }
        self.find_second();
        if let (None, Some(second)) = (self.second_code, &self.second) {
            let _ = second.send(libc::SIGKILL);
            if self.leaf.is_none() {
                kill_group(self.board.as_ref().and_then(Board::second));
            }
        }
    }

    /// Reaps those of the two children that have ended.
    pub(super) fn reap(&mut self) {
        // If the kernel itself reaped the child (SIGCHLD ignored), the child has ended too, but its exit code is lost.
        let code = |reaped: nix::Result<Option<i32>>| reaped.unwrap_or(Some(255));
        if !self.first_reaped {
            self.first_reaped = self
                .first()
                .is_none_or(|first| code(reap_pid(first)).is_some());
        }
        // The first child makes the second. So only after the end of the first child it is certain whether there is a
        // second child.
        self.find_second();
        if let (None, Some(second)) = (self.second_code, &self.second) {
            self.second_code = code(second.reap());
        }
    }

    /// Reaps those of the two children that have ended, and frees everything if both have ended. Returns true if
    /// nothing is left.
    fn try_reap(&mut self) -> bool {
        self.reap();
        let known = self.board.as_ref().and_then(Board::second);
        let unknown = self.second.is_none() && known.is_some();
        let done =
            self.first_reaped && !unknown && (self.second.is_none() || self.second_code.is_some());
        if done {
            if let Some(board) = self.board.take() {
                self.executed = board.ready();
                if !self.traceable {
                    board.give_back();
                }
            }
            if self.leaf.as_ref().is_some_and(|l| !l.remove()) {
                return false;
            }
            self.leaf = None;
        }
        done
    }

    /// Waits until both children have ended, at most for `limit`. Returns true if both have ended.
    fn wait(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut held_since = None;
        loop {
            if self.try_reap() {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            if let Some(since) = held_since {
                if now >= since + TRACER_LIMIT {
                    self.end_tracer();
                }
                std::thread::sleep(TRACER_PAUSE);
            }
            let left = until.saturating_duration_since(now);
            let ended = match (self.first_reaped, self.first(), &self.second) {
                (false, Some(first), _) => PidFd::of(first).and_then(|first| first.wait(left)),
                (true, _, Some(second)) => second.wait(left),
                _ => return false,
            };
            if !ended.unwrap_or(false) {
                return false;
            }
            held_since = held_since.or(Some(now));
        }
    }

    /// Ends the tracer that keeps an ended child from being reaped.
    fn end_tracer(&self) {
        let second = self.board.as_ref().and_then(Board::second);
        let held = if self.first_reaped {
            second
        } else {
            self.first()
        };
        let container = self.leaf.as_ref().and_then(Leaf::container);
        if let Some(held) = held {
            tracer::end(held, container);
        }
    }

    /// Ends a command: kills its processes, reaps the children, and removes the leaf. Processes that do not die in time
    /// are parked.
    pub(super) fn finish(mut self) -> Finished {
        if !self.try_reap() {
            self.kill();
        }
        if self.wait(DEATH_LIMIT) {
            return Finished {
                code: self.second_code,
                executed: self.executed,
            };
        }
        log::warn!(
            "cannot end a command in a container: it does not die within {} s, its remains are collected later",
            DEATH_LIMIT.as_secs()
        );
        let code = self.second_code;
        PARKED.locked().push(self);
        Finished {
            code,
            executed: true,
        }
    }
}

/// The end of a command.
pub(super) struct Finished {
    /// Exit code of the command; None if it is not known.
    pub(super) code: Option<i32>,
    /// True if the command reached its execve, or if this is not known.
    pub(super) executed: bool,
}

/// Kills a child of this process that has not been reaped yet.
fn kill_child(pid: i32) {
    let _ = PidFd::of(pid).and_then(|fd| fd.send(libc::SIGKILL));
}

/// Kills the process group of the command. Called if there is no leaf: without a leaf, the command's processes outside
/// of the group cannot be found.
fn kill_group(pid: Option<i32>) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| log::warn!("no cgroup v2 or freezer hierarchy can be used: a probe's background processes outlive its timeout"));
    if let Some(pid) = pid {
        let _ = nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
}

/// Waits until the command runs. The spawner waits for the end of the first child. The first child waits until the
/// second child has executed its file or ended.
pub(super) fn started(procs: &mut Procs, spawner: Spawner<'_>) -> Result<(), Started> {
    let answer = spawner.answer();
    if answer == Answer::Over {
        spawner.give_back();
    } else {
        drop(spawner);
    }
    let Some(board) = &procs.board else {
        return Err(Started::Killed);
    };
    if let Some(report) = board.report() {
        return Err(Started::Failed(report));
    }
    match (answer, board.ready()) {
        (Answer::Late, _) => return Err(Started::Late),
        (Answer::Over, false) => return Err(Started::Killed),
        (Answer::Ended, false) => return Err(Started::Lost),
        (_, true) => {}
    }
    procs.find_second();
    if procs.second.is_some() {
        Ok(())
    } else {
        Err(Started::Os(Errno::EMFILE))
    }
}

/// Reason why a command did not start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Started {
    Failed(Report),
    /// The spawner ended before the command was executed.
    Lost,
    Killed,
    Late,
    Os(Errno),
    /// The request to start the command could not be sent to a spawner.
    Unasked(ExecError),
}

/// The daemon's end of a command's stdout or stderr, and the bytes that were read.
struct Stream {
    fd: Option<OwnedFd>,
    kept: Vec<u8>,
    read: usize,
}

impl Stream {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            kept: Vec::new(),
            read: 0,
        }
    }

    /// Reads at most one buffer from the pipe. Closes the descriptor at the end of the pipe or at the drain limit.
    /// Returns false if there is nothing to read at present.
    fn read_some(&mut self, limit: usize, buffer: &mut [u8]) -> bool {
        let Some(fd) = &self.fd else { return false };
        match nix::unistd::read(fd, buffer) {
            Ok(n) if n > 0 && self.read < DRAIN_LIMIT => {
                self.read += n;
                let room = limit.saturating_sub(self.kept.len()).min(n);
                self.kept.extend_from_slice(&buffer[..room]);
                true
            }
            Err(Errno::EAGAIN) => false,
            Err(Errno::EINTR) => true,
            _ => {
                self.fd = None;
                false
            }
        }
    }
}

/// Reason why the wait for a command ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Exited,
    TimedOut,
    /// The command must end at once, for the reason that [`Limits::told`] gives.
    Told(ExecError),
}

/// Tells whether a descriptor has something to read, or its other end is closed.
pub(super) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// Reads both pipes until the command's process ends or its time is over. The function does not wait for other
/// processes that hold a pipe open. Returns the output, first stdout and after it stderr, cut at the limit.
pub(super) fn wait(procs: &Procs, [out, err]: [OwnedFd; 2], limits: Limits<'_>) -> (End, Vec<u8>) {
    let limit = limits.output;
    let until = Instant::now()
        .checked_add(limits.timeout)
        .unwrap_or_else(|| Instant::now() + Duration::from_secs(86400 * 365));
    let mut streams = [Stream::new(out), Stream::new(err)];
    let mut buffer = vec![0u8; 16 << 10];
    let Some(second) = &procs.second else {
        return (End::Exited, Vec::new());
    };
    let end = loop {
        let watched = streams
            .iter()
            .filter_map(|s| s.fd.as_ref())
            .map(AsFd::as_fd)
            .chain(limits.interrupt)
            .chain(limits.cancel)
            .chain([second.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = watched.map(|f| PollFd::new(f, PollFlags::POLLIN)).collect();
        // poll cannot count waits of many days. After such a poll the loop waits again.
        let _ = nix::poll::poll(&mut fds, remaining(until));
        let ended = fds.last().is_some_and(|f| f.any().unwrap_or(false));
        if ended {
            break End::Exited;
        }
        if Instant::now() >= until {
            break End::TimedOut;
        }
        if let Some(why) = limits.told() {
            break End::Told(why);
        }
        for s in &mut streams {
            s.read_some(limit, &mut buffer);
        }
    };
    for s in &mut streams {
        // Reads at most as much as a pipe can hold: a process that writes forever may still hold the pipe.
        for _ in 0..(1 << 20) / buffer.len() {
            if !s.read_some(limit, &mut buffer) {
                break;
            }
        }
    }
    let [out, err] = streams.map(|s| s.kept);
    let mut output = out;
    output.extend_from_slice(&err);
    output.truncate(limit);
    (end, output)
}

/// Returns the two ends of a pipe, the read end first. The read end does not block.
pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), ExecError> {
    pipe_with(|[read, _]| read)
}

/// Returns the two ends of a pipe, the read end first. The write end does not block.
pub(super) fn input_pipe() -> Result<(OwnedFd, OwnedFd), ExecError> {
    pipe_with(|[_, write]| write)
}

fn pipe_with(ours: fn([&OwnedFd; 2]) -> &OwnedFd) -> Result<(OwnedFd, OwnedFd), ExecError> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let failed = |e| ExecError::os("cannot make a pipe", e);
    let (r, w) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    fcntl(ours([&r, &w]), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
    debug_assert!(r.as_raw_fd() > 2, "the Rust runtime opens 0 to 2");
    Ok((r, w))
}
