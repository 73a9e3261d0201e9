//! The daemon's side of the spawner (see [`crate::sys::enter`]): started when it is first needed, started again when it
//! has ended.
//!
//! Invariant: one thread starts it and stays, for a command dies with the thread that is its parent, and that is the one
//! which started the spawner.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair,
    sockopt,
};
use nix::sys::time::TimeVal;

use super::error::ExecError;
use super::run::START_LIMIT;
use crate::sys::enter::{MESSAGE_LIMIT, serve};

/// What the thread that starts it needs.
const THREAD_STACK: usize = 128 << 10;

/// By program.
static SPAWNERS: Mutex<BTreeMap<PathBuf, Arc<Spawner>>> = Mutex::new(BTreeMap::new());

/// Asks for a spawner that has none of the requests made to the one before.
type Asked = SyncSender<std::io::Result<OwnedFd>>;

/// A spawner that runs, or will.
pub(super) struct Spawner {
    /// To its thread.
    ask: SyncSender<Asked>,
    /// To its process.
    socket: Mutex<Option<Arc<OwnedFd>>>,
}

impl Spawner {
    /// The one of that program.
    pub(super) fn of(program: &Path) -> Result<Arc<Self>, ExecError> {
        let mut all = lock(&SPAWNERS);
        if let Some(found) = all.get(program) {
            return Ok(found.clone());
        }
        // Whoever enters containers is not to be traced or read by one of the same uid.
        crate::sys::harden_process();
        let (ask, asked) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("exec-spawner".into())
            .stack_size(THREAD_STACK);
        let command = command(program);
        thread
            .spawn(move || keep(command, &asked))
            .map_err(|e| ExecError::io("cannot start the thread of the exec spawner", &e))?;
        let spawner = Arc::new(Self {
            ask,
            socket: Mutex::new(None),
        });
        all.insert(program.to_owned(), spawner.clone());
        Ok(spawner)
    }

    /// Sends a message and descriptors, to a new process where the old one has ended.
    pub(super) fn send(&self, message: &[u8], fds: [BorrowedFd<'_>; 6]) -> Result<(), ExecError> {
        let mut numbers = fds.map(|f| f.as_raw_fd()).to_vec();
        let long = (message.len() > MESSAGE_LIMIT)
            .then(|| long(message))
            .transpose()?;
        numbers.extend(long.as_ref().map(AsRawFd::as_raw_fd));
        let message = if long.is_some() { &[0] } else { message };
        let first = self.socket()?;
        let sent = send(&first, message, &numbers);
        let sent = match sent {
            Err(Errno::EPIPE | Errno::ECONNRESET) => {
                self.forget(&first);
                send(&*self.socket()?, message, &numbers)
            }
            sent => sent,
        };
        sent.map_err(|e| ExecError::Helper(format!("cannot ask it: {}", e.desc())))
    }

    fn socket(&self) -> Result<Arc<OwnedFd>, ExecError> {
        let mut socket = lock(&self.socket);
        if let Some(socket) = &*socket {
            return Ok(socket.clone());
        }
        Ok(socket.insert(self.start()?).clone())
    }

    fn start(&self) -> Result<Arc<OwnedFd>, ExecError> {
        let failed = |e: &_| ExecError::io("cannot start the exec helper", e);
        let (answer, answered) = sync_channel(1);
        let gone = || failed(&std::io::ErrorKind::BrokenPipe.into());
        self.ask.send(answer).map_err(|_| gone())?;
        let socket = answered.recv().map_err(|_| gone())?;
        socket.map(Arc::new).map_err(|e| failed(&e))
    }

    fn forget(&self, old: &Arc<OwnedFd>) {
        let mut socket = lock(&self.socket);
        if socket.as_ref().is_some_and(|s| Arc::ptr_eq(s, old)) {
            *socket = None;
        }
    }

    /// Ends the process: it has not answered, and what it was asked for must not happen later.
    pub(super) fn end(&self) {
        let mut socket = lock(&self.socket);
        *socket = self.start().ok();
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The thread: starts a process each time it is asked, and ends the one before.
fn keep(mut command: Command, asked: &Receiver<Asked>) {
    // A thread may stand in another network namespace than its process, and what it starts would too.
    if let Ok(own) = std::fs::File::open("/proc/self/ns/net") {
        let _ = nix::sched::setns(own, nix::sched::CloneFlags::CLONE_NEWNET);
    }
    let mut running: Option<Child> = None;
    for answer in asked {
        if let Some(mut old) = running.take() {
            let _ = old.kill();
            let _ = old.wait();
        }
        let started = start(&mut command).map(|(child, socket)| {
            running = Some(child);
            socket
        });
        let _ = answer.send(started);
    }
}

fn start(command: &mut Command) -> std::io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let limit = TimeVal::new(START_LIMIT.as_secs().cast_signed(), 0);
    setsockopt(&ours, sockopt::SendTimeout, &limit)?;
    let child = command.stdin(theirs).spawn();
    // The command holds the other end until it gets another.
    command.stdin(Stdio::null());
    Ok((child?, ours))
}

fn send(socket: &impl AsFd, message: &[u8], fds: &[i32]) -> nix::Result<()> {
    let slices = [IoSlice::new(message)];
    let rights = [ControlMessage::ScmRights(fds)];
    let socket = socket.as_fd().as_raw_fd();
    loop {
        match sendmsg::<()>(socket, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
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
    crate::sys::harden_process();
    // What ends the daemon's session or comes from its terminal is not for the spawner.
    let _ = nix::unistd::setsid();
    match serve(std::io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "podprobe nsexec is started by the daemon only, with a socket as its standard input: {e}"
            );
            ExitCode::from(2)
        }
    }
}

/// The unit tests are their own spawner.
#[cfg(test)]
fn role(command: &mut Command) {
    command
        .args(["nsexec::tests::spawner_role", "--exact", "--test-threads=1"])
        .env("NSEXEC_ROLE", "1");
}
