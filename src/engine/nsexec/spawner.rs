//! The daemon's side of the spawners (see [`crate::base::sys::enter`]): started when they are needed, started again when they
//! have ended.
//!
//! A spawner is lent for one start at a time and waits for the end of that start. What a container does to it (its
//! command cannot be stopped, its memory is full, its file comes over a slow network) is no other command's trouble but
//! for a moment: whoever finds none free for [`PATIENCE`] gets another.
//!
//! Invariants:
//! - One thread starts them all and stays, for a command dies with the thread that is its parent, and that is the one
//!   which started the spawner.
//! - Only a spawner that has answered is lent again; any other is killed and reaped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, setsockopt,
    socketpair, sockopt,
};
use nix::sys::time::TimeVal;

use super::error::ExecError;
use crate::base::locks::Locked;
use crate::base::sys::enter::{LONG, MESSAGE_LIMIT, serve};

/// How long the start may take, from the first child to execve.
pub(super) const START_LIMIT: Duration = Duration::from_secs(10);
/// Stack of the thread that starts spawners, in bytes.
const THREAD_STACK: usize = 128 << 10;

/// Spawners that are kept while nobody needs them.
const KEPT: usize = 1;

/// How long a start waits for another before it has one more spawner started. Most starts take about a millisecond.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pools of spawners, by program.
static POOLS: Mutex<BTreeMap<PathBuf, Arc<Pool>>> = Mutex::new(BTreeMap::new());

/// Asks the thread for a spawner.
type Asked = SyncSender<std::io::Result<Process>>;

/// The spawners of one program.
pub(super) struct Pool {
    /// Channel to the thread that starts the spawners.
    ask: SyncSender<Asked>,
    spawners: Mutex<Spawners>,
    given_back: Condvar,
}

#[derive(Default)]
struct Spawners {
    idle: Vec<Process>,
    lent: usize,
}

impl Pool {
    /// The one of that program.
    pub(super) fn of(program: &Path) -> Result<Arc<Self>, ExecError> {
        let mut all = lock(&POOLS);
        if let Some(found) = all.get(program) {
            return Ok(found.clone());
        }
        // Whoever enters containers is not to be traced or read by one of the same uid.
        crate::base::sys::harden_process();
        let (ask, asked) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("exec-spawner".into())
            .stack_size(THREAD_STACK);
        let command = command(program);
        thread
            .spawn(move || start_each(command, &asked))
            .map_err(|e| ExecError::io("cannot start the thread of the exec spawners", &e))?;
        let pool = Arc::new(Self {
            ask,
            spawners: Mutex::default(),
            given_back: Condvar::new(),
        });
        all.insert(program.to_owned(), pool.clone());
        Ok(pool)
    }

    /// A spawner for one start.
    pub(super) fn lend(&self) -> Result<Spawner<'_>, ExecError> {
        let process = self.idle().map_or_else(|| self.start(), Ok);
        // Nobody else counts this one out when it could not be started.
        let process = process.inspect_err(|_| lock(&self.spawners).lent -= 1)?;
        Ok(Spawner {
            pool: self,
            process: Some(process),
        })
    }

    /// Counts one more as lent; None when that one has to be started.
    fn idle(&self) -> Option<Process> {
        let busy = |s: &mut Spawners| s.idle.is_empty() && s.lent >= KEPT;
        let spawners = lock(&self.spawners);
        let waited = self.given_back.wait_timeout_while(spawners, PATIENCE, busy);
        let (mut spawners, _) = waited.unwrap_or_else(PoisonError::into_inner);
        spawners.lent += 1;
        spawners.idle.pop()
    }

    fn start(&self) -> Result<Process, ExecError> {
        let failed = |e: &_| ExecError::io("cannot start the exec helper", e);
        let (answer, answered) = sync_channel(1);
        let gone = || failed(&std::io::ErrorKind::BrokenPipe.into());
        self.ask.send(answer).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?.map_err(|e| failed(&e))
    }
}

/// A spawner that is lent. It is killed when it is not given back.
pub(super) struct Spawner<'a> {
    pool: &'a Pool,
    process: Option<Process>,
}

/// How the wait for an answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The start is over: the command runs, or there is none.
    Over,
    /// The spawner has ended.
    Ended,
    /// No answer came in time.
    Late,
}

impl Spawner<'_> {
    /// Sends a message and descriptors; false when the spawner has ended.
    pub(super) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, ExecError> {
        let mut numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let long = (message.len() > MESSAGE_LIMIT)
            .then(|| long(message))
            .transpose()?;
        numbers.extend(long.as_ref().map(AsRawFd::as_raw_fd));
        let message = if long.is_some() { &LONG } else { message };
        match self.process.as_ref().map(|p| p.send(message, &numbers)) {
            Some(Ok(())) => Ok(true),
            None | Some(Err(Errno::EPIPE | Errno::ECONNRESET)) => Ok(false),
            Some(Err(e)) => Err(ExecError::Helper(format!("cannot ask it: {}", e.desc()))),
        }
    }

    /// Waits at most [`START_LIMIT`] for what it says at the end of the start.
    pub(super) fn answer(&self) -> Answer {
        self.process.as_ref().map_or(Answer::Ended, Process::answer)
    }

    /// Gives the spawner back to its pool, for the next start.
    pub(super) fn give_back(mut self) {
        let process = self.process.take();
        let mut spawners = lock(&self.pool.spawners);
        let kept = spawners.idle.len() < KEPT;
        let more = if kept {
            spawners.idle.extend(process);
            None
        } else {
            process
        };
        drop(spawners);
        drop(more);
    }
}

impl Drop for Spawner<'_> {
    fn drop(&mut self) {
        // It has ended when this returns: it starts nothing that nobody waits for.
        drop(self.process.take());
        lock(&self.pool.spawners).lent -= 1;
        self.pool.given_back.notify_one();
    }
}

/// Killed and reaped when it is dropped.
struct Process {
    child: Child,
    socket: OwnedFd,
}

impl Process {
    fn send(&self, message: &[u8], fds: &[i32]) -> nix::Result<()> {
        let slices = [IoSlice::new(message)];
        let rights = [ControlMessage::ScmRights(fds)];
        let socket = self.socket.as_raw_fd();
        loop {
            match sendmsg::<()>(socket, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None) {
                Err(Errno::EINTR) => {}
                other => return other.map(drop),
            }
        }
    }

    fn answer(&self) -> Answer {
        let until = Instant::now() + START_LIMIT;
        loop {
            match recv(self.socket.as_raw_fd(), &mut [0], MsgFlags::empty()) {
                Ok(n) if n > 0 => return Answer::Over,
                // A signal, or a clock that is coarser than ours.
                Err(Errno::EINTR | Errno::EAGAIN) if Instant::now() < until => {}
                Err(Errno::EINTR | Errno::EAGAIN) => return Answer::Late,
                _ => return Answer::Ended,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.locked()
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    role(&mut command);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(not(test))]
fn role(command: &mut Command) {
    command.arg("nsexec");
}

/// The thread: starts a process each time it is asked.
fn start_each(mut command: Command, asked: &Receiver<Asked>) {
    // A thread may stand in another network namespace than its process, and what it starts would too.
    if let Ok(own) = std::fs::File::open("/proc/self/ns/net") {
        let _ = nix::sched::setns(own, nix::sched::CloneFlags::CLONE_NEWNET);
    }
    for answer in asked {
        let _ = answer.send(start(&mut command));
    }
}

fn start(command: &mut Command) -> std::io::Result<Process> {
    let (socket, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let limit = TimeVal::new(START_LIMIT.as_secs().cast_signed(), 0);
    setsockopt(&socket, sockopt::SendTimeout, &limit)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
    let child = command.stdin(theirs).spawn();
    // The command holds the other end until it gets another.
    command.stdin(Stdio::null());
    let child = child?;
    Ok(Process { child, socket })
}

/// A message in a file that nobody can change.
fn long(message: &[u8]) -> Result<OwnedFd, ExecError> {
    let failed = |e| ExecError::os("cannot make a memory file", e);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = std::fs::File::from(memfd_create(c"nsexec-message", flags).map_err(failed)?);
    file.write_all(message)
        .map_err(|e| ExecError::io("cannot write a memory file", &e))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all())).map_err(failed)?;
    Ok(file.into())
}

/// The role `podprobe nsexec`: serves the daemon that is at the other end of its standard input. Takes no arguments.
pub fn helper_main(_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::base::sys::harden_process();
    // What ends the daemon's session or comes from its terminal is not for the spawner.
    let _ = nix::unistd::setsid();
    // Commands have the priority of the container's first process, not the daemon's.
    crate::base::sys::process::usual_priority();
    match own_socket().and_then(|socket| serve(socket.as_fd())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "podprobe nsexec is started by the daemon only, with a socket as its standard input: {e}"
            );
            ExitCode::from(2)
        }
    }
}

/// The standard input, moved away from there: the children have another.
fn own_socket() -> std::io::Result<OwnedFd> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(std::io::stdout())?;
    Ok(socket)
}

/// The unit tests are their own spawner.
#[cfg(test)]
fn role(command: &mut Command) {
    command
        .args([
            "engine::nsexec::tests::spawner_role",
            "--exact",
            "--test-threads=1",
        ])
        .env("NSEXEC_ROLE", "1");
}
