//! Runs a command and connects its streams to a client (exec-in-container 8; deviations: session-tree).
//!
//! Invariants: the invariants of the module `nsexec` hold. Only [`Command`] kills and reaps. The daemon's ends of the
//! streams do not block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, TryLockError, Weak};

use super::error::ExecError;
use super::facts::Facts;
use super::plan::Plan;
use super::reaper::{self, Reaped, Watch};
use super::run::{self, Procs};
use super::terminal::{self, Terminal};
use super::{Begun, Options, Target, begin, retried};
use crate::base::locks::Locked;
use crate::base::sys::enter::Stdio;
use crate::base::sys::terminal::set_size;
use crate::engine::runtime::{
    Endable, ExecRequest, Session, SessionEnd, Sessions, Started, TerminalSize,
};

/// Starts a command and returns the session for its client. Adds this session to `sessions`.
///
/// # Errors
/// Returns an [`ExecError`] if the command could not be run. Such an error is not a fault of the command.
pub(crate) fn stream(
    options: &Options<'_>,
    target: &Target<'_>,
    request: &ExecRequest,
    sessions: &Sessions,
) -> Result<Started, ExecError> {
    run::sweep();
    if options.interrupt.is_some_and(run::is_readable) {
        return Err(ExecError::Interrupted);
    }
    retried(target, &request.command, |facts, plan| {
        start(options, facts, plan, request, sessions)
    })
}

fn start(
    options: &Options<'_>,
    facts: Facts,
    mut plan: Plan,
    request: &ExecRequest,
    sessions: &Sessions,
) -> Result<Started, ExecError> {
    let (helper, command) = (&options.helper, &request.command);
    let (ends, begun) = if request.tty {
        plan.add_term();
        let Terminal { master, slave } = terminal::open(&facts.root, request.size)?;
        let ends = Ends::of_terminal(master, request.stdin);
        let begun = begin(facts, plan, helper, command, Stdio::Terminal, vec![slave])?;
        (ends, begun)
    } else {
        let (ends, stdio, theirs) = Ends::of_pipes(request)?;
        (ends, begin(facts, plan, helper, command, stdio, theirs)?)
    };
    match begun {
        Begun::Running(procs, _) => {
            let stream = Stream::new(procs, ends)?;
            let command: Weak<Command> = Arc::downgrade(&stream.command);
            sessions.add(command);
            Ok(Started::Running(Box::new(stream)))
        }
        Begun::NotExecuted(why) => Ok(Started::NotExecuted {
            code: why.code,
            message: why.message,
        }),
    }
}

/// The daemon's ends of the streams.
#[derive(Default)]
struct Ends {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Master of the command's terminal. If there is a terminal, it replaces the three other streams.
    master: Option<OwnedFd>,
    /// True if the client's input goes to the terminal.
    writes: bool,
}

impl Ends {
    fn of_terminal(master: OwnedFd, writes: bool) -> Self {
        Self {
            master: Some(master),
            writes,
            ..Self::default()
        }
    }

    /// Makes the pipes for the streams in the request. Returns the daemon's ends, the list of streams, and the command's
    /// ends.
    fn of_pipes(request: &ExecRequest) -> Result<(Self, Stdio, Vec<OwnedFd>), ExecError> {
        let given = [request.stdin, request.stdout, request.stderr];
        let (mut ends, mut theirs) = (Self::default(), Vec::new());
        if request.stdin {
            let (read, write) = run::input_pipe()?;
            ends.stdin = Some(write);
            theirs.push(read);
        }
        for (asked, ours) in [
            (request.stdout, &mut ends.stdout),
            (request.stderr, &mut ends.stderr),
        ] {
            if asked {
                let (read, write) = run::pipe()?;
                *ours = Some(read);
                theirs.push(write);
            }
        }
        Ok((ends, Stdio::Streams(given), theirs))
    }
}

/// The command of a session.
struct Command {
    /// The child processes of the command; None once the command is finished.
    procs: Mutex<Option<Procs>>,
    /// Descriptor (pidfd) of the command's process.
    process: OwnedFd,
}

impl Command {
    /// Kills the processes of the command that still run, and waits for their end. Returns the exit code of the
    /// command. Returns None if the code is not known, or if this function was called before.
    fn finish(&self) -> Option<i32> {
        let mut procs = self.procs.locked();
        procs.take()?.finish().code
    }

    /// Calls `act` on the processes of the command. Does nothing if another thread holds the processes, because that
    /// thread finishes or reaps them itself.
    fn unless_held(&self, act: impl Fn(&mut Procs)) {
        match self.procs.try_lock() {
            Ok(mut procs) => procs.iter_mut().for_each(act),
            Err(TryLockError::Poisoned(e)) => e.into_inner().iter_mut().for_each(act),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

impl Endable for Command {
    fn end(&self) {
        self.unless_held(Procs::kill);
    }
}

impl Reaped for Command {
    fn reap(&self) {
        self.unless_held(Procs::reap);
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.finish();
    }
}

struct Stream {
    command: Arc<Command>,
    ends: Ends,
    _watch: Watch,
}

impl Stream {
    fn new(mut procs: Procs, ends: Ends) -> Result<Self, ExecError> {
        procs.reap();
        let process = match procs.process() {
            Ok(process) => process,
            Err(e) => {
                procs.finish();
                return Err(ExecError::io("cannot follow a command", &e));
            }
        };
        let procs = Mutex::new(Some(procs));
        let command = Arc::new(Command { procs, process });
        let weak: Weak<Command> = Arc::downgrade(&command);
        Ok(Self {
            _watch: reaper::watch(command.process.as_fd(), weak)?,
            command,
            ends,
        })
    }
}

impl Session for Stream {
    fn stdin(&self) -> Option<BorrowedFd<'_>> {
        let master = self.ends.master.as_ref().filter(|_| self.ends.writes);
        master.or(self.ends.stdin.as_ref()).map(AsFd::as_fd)
    }

    fn stdout(&self) -> Option<BorrowedFd<'_>> {
        let ends = &self.ends;
        ends.master
            .as_ref()
            .or(ends.stdout.as_ref())
            .map(AsFd::as_fd)
    }

    fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.ends.stderr.as_ref().map(AsFd::as_fd)
    }

    fn close_stdin(&mut self) {
        self.ends.stdin = None;
        self.ends.writes = false;
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.command.process.as_fd()
    }

    fn resize(&self, size: TerminalSize) {
        if let Some(master) = &self.ends.master {
            // This fails only if the descriptor is not a terminal.
            let _ = set_size(master, (size.width, size.height));
        }
    }

    fn finish(self: Box<Self>) -> SessionEnd {
        let by_itself = run::is_readable(self.command.process.as_fd());
        match self.command.finish() {
            Some(code) if by_itself => SessionEnd::Exited(code),
            _ => SessionEnd::Unknown,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.command.finish();
    }
}
