//! Sessions: commands with streams of a client, and clients attached to containers.
//!
//! Invariants: a session that is dropped has ended, and leaves no process, cgroup or descriptor. It has no timeout. No
//! descriptor of a session blocks. [`Sessions`] ends all at the end of the daemon.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, Weak};

use crate::base::locks::Locked;

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

/// A command with streams (CRI `ExecRequest`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// True if the command's standard input comes from the client; otherwise it is the container's `/dev/null`.
    pub stdin: bool,
    /// True if the client gets the command's standard output; otherwise the output goes to the container's `/dev/null`.
    /// With a terminal the client always gets it.
    pub stdout: bool,
    /// True if the client gets the command's standard error; otherwise it goes to the container's `/dev/null`. With a
    /// terminal there is no standard error: it is part of the output.
    pub stderr: bool,
    /// True if a terminal of the container is standard input, output and error.
    pub tty: bool,
    /// Initial size of the terminal, so that nothing is drawn for a different size.
    pub size: Option<TerminalSize>,
}

/// The streams that a client wants of a running container (CRI `AttachRequest`). The container decides whether there is
/// a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// True if the client writes to the container's input. If the container has no `stdin`, this is ignored, as by
    /// containerd.
    pub stdin: bool,
    /// True if the client reads the container's output.
    pub stdout: bool,
    /// True if the client reads the container's errors. With a terminal there are none: they are part of the output.
    pub stderr: bool,
}

/// Result of the start of a command.
pub enum Started {
    /// The command runs.
    Running(Box<dyn Session>),
    /// The command's file is not there (127) or cannot be executed (126).
    NotExecuted {
        /// Exit code that a shell gives for this failure.
        code: i32,
        /// Message in the words of runc: `exec: "x": executable file not found in $PATH`.
        message: String,
    },
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(_) => f.write_str("Running"),
            Self::NotExecuted { code, message } => write!(f, "NotExecuted({code}, {message:?})"),
        }
    }
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The command, or the container, has ended with this code; 128 + signal when a signal ended it.
    Exited(i32),
    /// The container's output came faster than the client read it: what it has not read by now fills the pipe.
    TooSlow,
    /// The session was finished before, or the code is not known.
    Unknown,
}

/// A session under way. Its owner polls the descriptors; with a terminal all three lead to its master.
pub trait Session: Send {
    /// Returns the descriptor to which the client's input is written; None if no input is taken.
    fn stdin(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor from which the output is read. At its end a pipe gives 0 bytes, a terminal the error EIO.
    /// A background process may hold it open for ever: read it until [`Self::ended`] is readable, and then as far as it
    /// gives something at once.
    fn stdout(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor from which the standard error is read, in the same way as the output; None with a
    /// terminal.
    fn stderr(&self) -> Option<BorrowedFd<'_>>;

    /// Tells the session that the client's input has ended.
    ///
    /// A command reads an end of file then; a command with a terminal does not notice, for a terminal has no such end.
    /// An attached client leaves, unless the container has `stdinOnce` and no terminal: then the container reads an end
    /// of file, and the client gets output as before. The rules are containerd's.
    fn close_stdin(&mut self);

    /// Returns a descriptor that is readable as soon as the command's process has ended, or the client is no longer
    /// attached. Poll it; do not read it.
    fn ended(&self) -> BorrowedFd<'_>;

    /// Gives the terminal the new size of the client's terminal. Does nothing if the session has no terminal.
    fn resize(&self, size: TerminalSize);

    /// Ends the session, and says how it has ended. A command is killed with all its children, and reaped; that takes 5
    /// s when the kernel does not let one end. A drop does the same.
    fn finish(self: Box<Self>) -> SessionEnd;
}

/// A session that ends when the daemon ends.
pub(crate) trait Endable: Send + Sync {
    /// Makes [`Session::ended`] readable. Never waits.
    fn end(&self);
}

/// The sessions of one runtime.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<State>);

#[derive(Default)]
struct State {
    under_way: Vec<Weak<dyn Endable>>,
    are_over: bool,
}

impl Sessions {
    /// Takes one more; one that comes too late is ended at once.
    pub(crate) fn add(&self, session: Weak<dyn Endable>) {
        let mut state = self.0.locked();
        if state.are_over {
            end(&session);
            return;
        }
        state.under_way.retain(|s| s.strong_count() > 0);
        state.under_way.push(session);
    }

    /// Ends all, also later ones.
    pub(crate) fn end_all(&self) {
        let mut state = self.0.locked();
        state.are_over = true;
        std::mem::take(&mut state.under_way).iter().for_each(end);
    }
}

fn end(session: &Weak<dyn Endable>) {
    if let Some(session) = session.upgrade() {
        session.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Endable for Counted {
        fn end(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add(sessions: &Sessions) -> Arc<Counted> {
        let session = Arc::new(Counted::default());
        let weak: Weak<dyn Endable> = Arc::downgrade(&session) as _;
        sessions.add(weak);
        session
    }

    #[test]
    fn the_end_of_the_daemon_ends_each_session_once_also_one_that_comes_late() {
        let sessions = Sessions::default();
        let early = [add(&sessions), add(&sessions)];
        sessions.end_all();
        let late = add(&sessions);
        sessions.end_all();
        for session in early.iter().chain([&late]) {
            assert_eq!(session.0.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn sessions_that_are_gone_take_no_room() {
        let sessions = Sessions::default();
        for _ in 0..100 {
            drop(add(&sessions));
        }
        let kept = sessions.0.lock().unwrap().under_way.len();
        assert_eq!(kept, 1, "the last one is looked at with the next");
    }
}
