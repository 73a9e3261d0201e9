//! Sessions: commands with streams for a client, and clients attached to containers.
//!
//! Invariants: a dropped session has ended, and leaves no process, cgroup or descriptor behind. A session has no
//! timeout. None of its descriptors blocks. [`Sessions`] ends all sessions at the end of the daemon.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, Weak};

use crate::base::locks::Locked;

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of columns.
    pub width: u16,
    /// Number of lines.
    pub height: u16,
}

/// A request to run a command with streams (CRI `ExecRequest`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// True if the client provides the command's standard input; otherwise it is the container's `/dev/null`.
    pub stdin: bool,
    /// True if the client reads the command's standard output; otherwise it is the container's `/dev/null`. A command
    /// with a terminal always sends its output to the client.
    pub stdout: bool,
    /// True if the client reads the command's standard error; otherwise it is the container's `/dev/null`. For a
    /// command with a terminal, standard error is part of standard output.
    pub stderr: bool,
    /// True if standard input, output and error are a terminal of the container.
    pub tty: bool,
    /// Initial size of the terminal, so that the program draws nothing for another size.
    pub size: Option<TerminalSize>,
}

/// The streams of a running container that a client requests (CRI `AttachRequest`). The container's configuration
/// decides whether the streams are a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// True if the client writes to the container's input. Ignored if the container has no `stdin`, as in containerd.
    pub stdin: bool,
    /// True if the client reads the container's output.
    pub stdout: bool,
    /// True if the client reads the container's standard error. For a container with a terminal, standard error is part
    /// of standard output.
    pub stderr: bool,
}

/// Result of the start of a command.
pub enum Started {
    /// The command runs.
    Running(Box<dyn Session>),
    /// The command's file does not exist (code 127) or cannot be executed (code 126).
    NotExecuted {
        /// Exit code that a shell gives for this failure.
        code: i32,
        /// Message in the form of runc: `exec: "x": executable file not found in $PATH`.
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

/// The way in which a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The command, or the container, has ended with this exit code; 128 + signal if a signal ended it.
    Exited(i32),
    /// The client did not read fast enough: unread output of the container has filled the pipe.
    TooSlow,
    /// The session was finished earlier, or the exit code is not known.
    Unknown,
}

/// A running session. Its owner polls the descriptors. With a terminal, stdin and stdout are both the terminal's
/// master.
pub trait Session: Send {
    /// Returns the descriptor to which the client's input is written; None if the session takes no input.
    fn stdin(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor from which the output is read. At the end of the output a pipe returns 0 bytes, and a
    /// terminal the error EIO. A background process may hold the pipe or terminal open forever. So read until
    /// [`Self::ended`] is readable, and after that only the data that can be read without waiting.
    fn stdout(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor from which the standard error is read, by the same rules as [`Self::stdout`]; None with a
    /// terminal.
    fn stderr(&self) -> Option<BorrowedFd<'_>>;

    /// Tells the session that the client's input has ended.
    ///
    /// A command without a terminal then reads an end of file. A command with a terminal notices nothing, because the
    /// input of a terminal has no end. An attached client is detached, unless the container has `stdinOnce` and no
    /// terminal. In that case the container reads an end of file, and the client still gets output. These rules are
    /// containerd's.
    fn close_stdin(&mut self);

    /// Returns a descriptor that becomes readable as soon as the command's process has ended, or the client is no
    /// longer attached. Poll it; do not read from it.
    fn ended(&self) -> BorrowedFd<'_>;

    /// Gives the terminal the new size of the client's terminal. Does nothing if the session has no terminal.
    fn resize(&self, size: TerminalSize);

    /// Ends the session, and returns how it has ended. A command is killed and reaped with all its children. The
    /// killing takes up to 5 s if the kernel does not let a process end. Dropping the session has the same effect.
    fn finish(self: Box<Self>) -> SessionEnd;
}

/// A session that the end of the daemon ends.
pub(crate) trait Endable: Send + Sync {
    /// Makes [`Session::ended`] readable. Never blocks.
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
    /// Adds a session. After [`Self::end_all`] the session is ended at once.
    pub(crate) fn add(&self, session: Weak<dyn Endable>) {
        let mut state = self.0.locked();
        if state.are_over {
            end(&session);
            return;
        }
        state.under_way.retain(|s| s.strong_count() > 0);
        state.under_way.push(session);
    }

    /// Ends all sessions, and every session that is added later.
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
