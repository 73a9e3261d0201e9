//! The daemon's side of the spawners (see [`crate::base::sys::enter`]). Spawners are started when they are needed, and
//! started again when they have ended.
//!
//! A spawner is lent for one start of a command at a time, and waits for the end of this start. A container can delay
//! its spawner: the container's command cannot be stopped, its memory is full, or the command's file comes over a slow
//! network. Such a spawner delays other commands only for a moment: a start that finds no free spawner for [`PATIENCE`]
//! gets a new spawner.
//!
//! Invariants:
//! - A single thread starts all spawners of a program, and never ends. A command dies when its parent thread ends: the
//!   thread that started its spawner.
//! - Only a spawner that has answered is lent again. Any other spawner is killed and reaped.

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

/// Longest time for the start of a command, from the making of the first child to the command's execve.
pub(super) const START_LIMIT: Duration = Duration::from_secs(10);
/// Stack size in bytes of the thread that starts spawners.
const THREAD_STACK: usize = 128 << 10;

/// Number of idle spawners that are kept.
const KEPT: usize = 1;

/// Longest time that a start waits for a free spawner. After this time a new spawner is started. Most starts of a
/// command take about a millisecond.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pools of spawners. The key is the path of the program.
static POOLS: Mutex<BTreeMap<PathBuf, Arc<Pool>>> = Mutex::new(BTreeMap::new());

/// A request to the thread that starts spawners. The value is the channel for the thread's answer.
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
    /// Returns the pool of a program, and makes the pool if it does not exist.
    pub(super) fn of(program: &Path) -> Result<Arc<Self>, ExecError> {
        let mut all = lock(&POOLS);
        if let Some(found) = all.get(program) {
            return Ok(found.clone());
        }
        // A process that enters containers must not be traced or read by another process of the same uid.
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

    /// Lends a spawner for one start.
    pub(super) fn lend(&self) -> Result<Spawner<'_>, ExecError> {
        let process = self.idle().map_or_else(|| self.start(), Ok);
        // If no spawner could be started, this line lowers the number of lent spawners, because there is no `Spawner`
        // to do it.
        let process = process.inspect_err(|_| lock(&self.spawners).lent -= 1)?;
        Ok(Spawner {
            pool: self,
            process: Some(process),
        })
    }

    /// Counts one more spawner as lent. Returns an idle spawner, or None if a new spawner has to be started.
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

/// A spawner that is lent for one start. If this value is dropped before `give_back` is called, the spawner is killed.
pub(super) struct Spawner<'a> {
    pool: &'a Pool,
    process: Option<Process>,
}

/// The way in which the wait for an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The start is over: the command runs, or its start has failed.
    Over,
    /// The spawner has ended.
    Ended,
    /// The spawner did not answer in time.
    Late,
}

impl Spawner<'_> {
    /// Sends a message and descriptors. Returns false if the spawner has ended.
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

    /// Waits at most [`START_LIMIT`] for the spawner's answer, which comes at the end of the start.
    pub(super) fn answer(&self) -> Answer {
        self.process.as_ref().map_or(Answer::Ended, Process::answer)
    }

    /// Returns the spawner to its pool, for the next start.
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
        // This drop waits until the spawner has ended, so the spawner cannot start a command later.
        drop(self.process.take());
        lock(&self.pool.spawners).lent -= 1;
        self.pool.given_back.notify_one();
    }
}

/// The process of a spawner. The process is killed and reaped when this value is dropped.
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
                // A signal has interrupted the call, or the call's timeout was slightly too short.
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

/// Runs the thread that starts spawners. The thread starts one spawner for each request.
fn start_each(mut command: Command, asked: &Receiver<Asked>) {
    // A thread may be in another network namespace than its process. The spawners would be in that namespace too, so
    // this thread enters the namespace of the process.
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
    // `command` holds the child's end of the socket until it gets another standard input.
    command.stdin(Stdio::null());
    let child = child?;
    Ok(Process { child, socket })
}

/// Writes a message into a memory file that nobody can change.
fn long(message: &[u8]) -> Result<OwnedFd, ExecError> {
    let failed = |e| ExecError::os("cannot make a memory file", e);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = std::fs::File::from(memfd_create(c"nsexec-message", flags).map_err(failed)?);
    file.write_all(message)
        .map_err(|e| ExecError::io("cannot write a memory file", &e))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all())).map_err(failed)?;
    Ok(file.into())
}

/// Runs the role `podprobe nsexec`. The process serves the daemon, which is at the other end of its standard input. The
/// role takes no arguments.
pub fn helper_main(_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::base::sys::harden_process();
    // Signals that end the daemon's session, or that come from its terminal, must not reach the spawner.
    let _ = nix::unistd::setsid();
    // Commands do not inherit what the daemon was started with.
    crate::base::sys::process::usual_surroundings();
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

/// Returns the socket that the daemon has passed as standard input. The standard input itself is replaced, because the
/// children get another standard input.
fn own_socket() -> std::io::Result<OwnedFd> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(std::io::stdout())?;
    Ok(socket)
}

/// Sets the arguments of a spawner in unit tests, which run their own binary as spawner.
#[cfg(test)]
fn role(command: &mut Command) {
    command
        .args(["nsexec::tests::spawner_role", "--exact", "--test-threads=1"])
        .env("NSEXEC_ROLE", "1");
}
