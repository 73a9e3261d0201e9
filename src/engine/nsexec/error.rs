//! Reasons why a command could not be run. The cause lies in podprobe or in the state of the container, and is never a
//! failure of the command.

use std::fmt;

use nix::errno::Errno;

use crate::base::sys::enter::{Report, Step};

/// Reason why a command could not be run. This error says nothing about the health of the container: the probe's result
/// is *unknown*, not *failure* (kubelet-probes 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// The container's first process has ended. The pid of this process may belong to another process now.
    NotRunning {
        /// The pid of the container's first process.
        pid: i32,
    },
    /// The container is frozen. No command can run in the container until it is thawed.
    Paused,
    /// The request or the container's config.json has an error.
    Invalid(String),
    /// The container has no file system of its own for terminals, or this file system gives no terminal.
    Terminal(String),
    /// A step in the new process failed before the command was executed.
    Step {
        /// The step that failed.
        step: Step,
        /// The object of the step: a limit, a cgroup file, a directory.
        object: String,
        /// The error number (errno).
        errno: i32,
    },
    /// A system call of the daemon failed. For example, descriptors, processes or memory are used up.
    Os {
        /// The failed operation: `cannot <verb> <object>`.
        what: String,
        /// The error number (errno).
        errno: i32,
    },
    /// The command did not start within this number of seconds.
    StartTimeout(u64),
    /// The process was killed before it executed the command.
    Killed,
    /// The daemon is stopping, and ends all its commands.
    Interrupted,
    /// The caller cancelled the command.
    Cancelled,
    /// The exec helper, which makes the processes of commands, ended before the command was executed, at every attempt.
    SpawnerLost,
    /// The exec helper, which makes the processes of commands, cannot be started or does not answer.
    Helper(String),
}

impl ExecError {
    pub(super) fn os(what: impl Into<String>, errno: Errno) -> Self {
        Self::Os {
            what: what.into(),
            errno: errno as i32,
        }
    }

    pub(super) fn io(what: impl Into<String>, e: &std::io::Error) -> Self {
        Self::Os {
            what: what.into(),
            errno: e.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    pub(super) fn step(r: Report, object: String) -> Self {
        Self::Step {
            step: r.step,
            object,
            errno: r.errno as i32,
        }
    }
}

fn verb(step: Step) -> &'static str {
    match step {
        Step::Cgroup => "join cgroup",
        Step::Rlimit => "set limit",
        Step::Keyring => "leave our session keyring for that of",
        Step::Label => "set security label",
        Step::Setns => "enter namespaces of",
        Step::Root => "enter root directory of",
        Step::Stdio => "open standard streams in",
        Step::Bounding => "drop bounding capability",
        Step::Groups => "set groups",
        Step::Gid => "set group id",
        Step::Uid => "set user id",
        Step::Capabilities => "set capabilities",
        Step::Cwd => "change to working directory",
        Step::NoNewPrivs => "set no_new_privs in",
        Step::Seccomp => "apply the seccomp profile of",
        Step::Close => "close descriptors in",
        Step::Clone => "start process in",
        Step::Session => "start session in",
        Step::Exec => "execute",
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning { pid } => write!(f, "cannot enter container: its process {pid} has ended"),
            Self::Paused => f.write_str("cannot enter container: it is paused"),
            Self::Invalid(why) => write!(f, "cannot enter container: {why}"),
            Self::Terminal(why) => write!(f, "cannot make a terminal in container: {why}; without a terminal (tty) the command can run"),
            Self::Step { step: Step::Clone, object, errno: libc::EAGAIN } => {
                write!(f, "cannot start process in {object}: no process is left; pids.max of the container's or the daemon's cgroup or the kernel's threads-max is reached")
            }
            Self::Step { step, object, errno } => write!(f, "cannot {} {object}: {}", verb(*step), Errno::from_raw(*errno).desc()),
            Self::Os { what, errno } => write!(f, "{what}: {}", Errno::from_raw(*errno).desc()),
            Self::StartTimeout(s) => write!(f, "cannot enter container: the command did not start within {s} s"),
            Self::Killed => f.write_str("cannot enter container: killed while entering, the container is ending or out of memory"),
            Self::SpawnerLost => f.write_str("cannot enter container: the exec helper ended while entering it, each time: the container or the node may be out of memory"),
            Self::Interrupted => f.write_str("cannot run command to its end: podprobe is stopping"),
            Self::Cancelled => f.write_str("cannot run command to its end: it is cancelled"),
            Self::Helper(why) => write!(f, "cannot run exec helper: {why}"),
        }
    }
}

impl std::error::Error for ExecError {}
