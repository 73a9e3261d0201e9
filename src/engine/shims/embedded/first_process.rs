//! The container's first process, from a copy of `podprobe oci create` to the container's own program.
//!
//! Invariants:
//! - The process drops every privilege before another process of the container can see it. In a new process namespace
//!   the process is alone until then. It enters the shared process namespace of a pod last, as a copy that has no
//!   privilege left: another container of the pod may have CAP_SYS_PTRACE, and can do what it likes with every process
//!   there.
//! - The process's settings are applied by the same steps as those of commands ([`crate::base::sys::enter`]).
//! - The execve of the container's program closes every descriptor but the standard streams.
//! - The process reports once: `ready`, or an error. If the reader gets neither, the process was killed.

use std::convert::Infallible;
use std::ffi::CStr;
use std::fs::File;
use std::io::{IoSlice, PipeReader, PipeWriter, Read, Write, stderr, stdin, stdout};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::wait::waitpid;
use nix::unistd::{AccessFlags, Pid, access, dup2_stderr, dup2_stdin, dup2_stdout, execve, setsid};

use super::cgroups::{self, Hierarchy};
use super::error::{Error, LaunchError};
use super::limits;
use super::root::{Root, RootError, Sources, is_null};
use crate::base::sys::enter::{Orders, drop_to, take_on};
use crate::base::sys::process::{OneThread, Parent, apply_seccomp, copy, end_now, reset_signals};
use crate::base::sys::terminal::{become_controlling, set_size, slave_of, unlock};
use crate::engine::nsexec::{self, ExecError};
use crate::engine::oci::{Namespace, Spec};

/// Report of a first process that waits for its start.
const READY: &str = "ready";

/// The reason why the first process could not prepare for its start.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    /// A cgroup could not be joined, or a limit could not be set.
    #[error(transparent)]
    Limits(#[from] Error),
    /// A privilege could not be set or dropped.
    #[error(transparent)]
    Rights(#[from] ExecError),
    #[error("enter the namespace {}: {}", path.display(), errno.desc())]
    EnterNamespace { path: PathBuf, errno: Errno },
    #[error("make namespaces: {}", .0.desc())]
    MakeNamespaces(Errno),
    #[error("start a process in its process namespace (its seccomp profile must allow clone): {}", .0.desc())]
    Copy(Errno),
    /// The root file system could not be made.
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("cannot make a terminal: {0}")]
    Terminal(std::io::Error),
    #[error("place the standard streams: {}", .0.desc())]
    Streams(Errno),
    #[error("make a session: {}", .0.desc())]
    Session(Errno),
    #[error("take the terminal: {}", .0.desc())]
    TakeTerminal(Errno),
    /// The container's program was not found, or is not executable.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// The reason why the container's program cannot be used.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("exec: {name:?}: {}", errno.desc().to_lowercase())]
    NotExecutable { name: String, errno: Errno },
    #[error("exec: {name:?}: executable file not found in $PATH ({path})")]
    NotFound { name: String, path: String },
}

/// The reason why the container's program does not run.
#[derive(Debug, thiserror::Error)]
enum ExecuteError {
    #[error("wait for the start: {0}")]
    Wait(std::io::Error),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("cannot apply the seccomp profile: {0}")]
    Seccomp(std::io::Error),
    #[error("exec: {program:?}: {}", describe(*errno))]
    Execve { program: PathBuf, errno: Errno },
}

impl ExecuteError {
    /// Returns the exit code of the container, the same that a shell would give.
    fn code(&self) -> i32 {
        match self {
            Self::Program(_) => 127,
            Self::Execve { errno, .. } if *errno == Errno::ENOENT => 127,
            Self::Wait(_) | Self::Seccomp(_) | Self::Execve { .. } => 126,
        }
    }
}

/// Everything from which a container's first process is made.
pub(super) struct FirstProcess<'a> {
    pub config: &'a Spec,
    pub orders: Orders,
    pub hierarchies: &'a [Hierarchy],
    pub cgroups_path: &'a str,
    /// Mount point of the procfs of the process namespace that the container joins.
    pub pod_proc: Option<&'a Path>,
    /// True if devices are binds of the node's own files, because this process cannot make devices.
    pub bound_devices: bool,
    /// Fifo from which the process reads a byte when the container's program is to run.
    pub start: File,
    /// Fifo for the error text of a failed execve. The verb `start` reads from this fifo, and reads an end of file if
    /// the execve worked.
    pub report: File,
    /// Socket to which the terminal is sent.
    pub console: Option<UnixStream>,
}

/// The pipes on which the first process reports.
struct Voice {
    /// Pipe for [`READY`] or an error text.
    word: PipeWriter,
    /// Pipe for the pid of the copy, if the first process continues as a copy of itself.
    copy: PipeWriter,
}

/// The pipe ends from which the reports of the first process are read.
struct Ears {
    word: PipeReader,
    copy: PipeReader,
}

/// The namespaces of a configuration.
struct Namespaces {
    joined: Vec<(CloneFlags, File, PathBuf)>,
    made: CloneFlags,
}

impl Namespaces {
    fn read(listed: &[Namespace]) -> Result<Self, LaunchError> {
        let mut all = Self {
            joined: Vec::new(),
            made: CloneFlags::empty(),
        };
        for Namespace { kind, path } in listed {
            let flag = match kind.as_str() {
                "mount" => CloneFlags::CLONE_NEWNS,
                "pid" => CloneFlags::CLONE_NEWPID,
                "network" => CloneFlags::CLONE_NEWNET,
                "ipc" => CloneFlags::CLONE_NEWIPC,
                "uts" => CloneFlags::CLONE_NEWUTS,
                "cgroup" => CloneFlags::CLONE_NEWCGROUP,
                _ => return Err(LaunchError::NamespaceType(kind.clone())),
            };
            match path {
                Some(path) => {
                    let file = File::open(path).map_err(|source| LaunchError::Namespace {
                        path: path.clone(),
                        source,
                    })?;
                    all.joined.push((flag, file, path.clone()));
                }
                None => all.made |= flag,
            }
        }
        match all.made.contains(CloneFlags::CLONE_NEWNS) {
            true => Ok(all),
            false => Err(LaunchError::NoMountNamespace),
        }
    }

    /// Joins the namespaces that have a path, and makes the namespaces that have none. Only processes that are started
    /// after this call are in the process namespace.
    fn enter(&self) -> Result<(), PrepareError> {
        for (flag, file, path) in &self.joined {
            setns(file, *flag).map_err(|errno| PrepareError::EnterNamespace {
                path: path.clone(),
                errno,
            })?;
        }
        unshare(self.made).map_err(PrepareError::MakeNamespaces)
    }
}

impl FirstProcess<'_> {
    /// Makes the first process, which then waits for its start. Returns its pid.
    ///
    /// # Errors
    /// Returns [`LaunchError`] if the process cannot be made. After an error no process of the container runs.
    pub(super) fn launch(self) -> Result<i32, LaunchError> {
        let namespaces = Namespaces::read(&self.config.linux.namespaces)?;
        if self.joins_processes() && self.pod_proc.is_none() {
            return Err(LaunchError::NoPodProc);
        }
        let pipe = || std::io::pipe().map_err(LaunchError::Pipe);
        let ((word_end, word), (copy_end, copy_pid)) = (pipe()?, pipe()?);
        let (ears, voice) = (
            Ears {
                word: word_end,
                copy: copy_end,
            },
            Voice {
                word,
                copy: copy_pid,
            },
        );
        let one = OneThread::check().map_err(LaunchError::Threads)?;
        let limit = limits::memory_limit(&self.config.linux.resources);
        match copy(&one, Parent::This).map_err(LaunchError::Process)? {
            Some(pid) => {
                drop(voice);
                ears.hear(pid, limit)
            }
            None => {
                drop(ears);
                self.run(&one, &namespaces, voice)
            }
        }
    }

    /// Returns true if the container joins an existing process namespace.
    fn joins_processes(&self) -> bool {
        Namespace::joins_processes(&self.config.linux.namespaces)
    }

    fn run(mut self, one: &OneThread, namespaces: &Namespaces, mut voice: Voice) -> ! {
        if let Err(e) = self.prepare(one, namespaces, &mut voice) {
            let _ = voice.word.write_all(e.to_string().as_bytes());
            end_now(1);
        }
        // If the write fails, the reader is gone and has not recorded the container, so this process must not stay.
        if voice.word.write_all(READY.as_bytes()).is_err() {
            end_now(1);
        }
        drop(voice);
        let failed = match self.wait_and_execute() {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        let _ = self.report.write_all(failed.to_string().as_bytes());
        end_now(failed.code())
    }

    /// Prepares everything for the execve of the container's own program.
    fn prepare(
        &mut self,
        one: &OneThread,
        namespaces: &Namespaces,
        voice: &mut Voice,
    ) -> Result<(), PrepareError> {
        cgroups::join(self.hierarchies, self.cgroups_path)?;
        limits::apply(&self.config.linux.resources, self.cgroups_path)?;
        take_on(&self.orders).map_err(|r| nsexec::failed_step(r, &self.orders))?;
        namespaces.enter()?;
        let sources = Sources::open(self.config, self.pod_proc, self.bound_devices)?;
        // Only a process inside a process namespace can mount the procfs of that namespace. A new namespace has no
        // other process yet.
        if namespaces.made.contains(CloneFlags::CLONE_NEWPID) {
            go_on_as_copy(one, voice)?;
        }
        let root = sources.enter(self.config)?;
        let terminal = match self.console.take() {
            Some(socket) => {
                let made = self.make_terminal(&root, &socket);
                Some(made.map_err(PrepareError::Terminal)?)
            }
            None => None,
        };
        place_streams(&root, terminal).map_err(PrepareError::Streams)?;
        root.finish(self.config)?;
        drop(root);
        drop_to(&self.orders).map_err(|r| nsexec::failed_step(r, &self.orders))?;
        if self.joins_processes() {
            go_on_as_copy(one, voice)?;
        }
        setsid().map_err(PrepareError::Session)?;
        if self.config.process.terminal {
            become_controlling(0).map_err(PrepareError::TakeTerminal)?;
        }
        self.program()?;
        Ok(())
    }

    /// Makes a terminal in the container's own devpts, makes it the container's console, and sends its master to the
    /// socket.
    fn make_terminal(&self, root: &Root, socket: &UnixStream) -> std::io::Result<OwnedFd> {
        let master = root.terminals()?;
        unlock(&master)?;
        let slave = slave_of(&master)?;
        let size = self.config.process.console_size.as_ref();
        let size = size.map(|s| (u16::try_from(s.width), u16::try_from(s.height)));
        if let Some((Ok(width), Ok(height))) = size {
            set_size(&master, (width, height))?;
        }
        root.mount_console(&slave)?;
        let name = [IoSlice::new(b"/dev/ptmx")];
        let fds = [master.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        sendmsg::<()>(
            socket.as_raw_fd(),
            &name,
            &rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(slave.into())
    }

    fn program(&self) -> Result<PathBuf, ProgramError> {
        let name = self
            .orders
            .argv
            .first()
            .map_or("".into(), |w| w.to_string_lossy());
        let mut tried = self.orders.files.iter().map(|f| executable(f));
        if name.contains('/') {
            let found = tried.next().unwrap_or(Err(Errno::ENOENT));
            return found.map_err(|errno| ProgramError::NotExecutable {
                name: name.into_owned(),
                errno,
            });
        }
        tried.find_map(Result::ok).ok_or_else(|| {
            let mut variables = self.orders.envp.iter().rev().map(|v| v.to_string_lossy());
            let path = variables.find_map(|v| v.strip_prefix("PATH=").map(str::to_owned));
            ProgramError::NotFound {
                name: name.into_owned(),
                path: path.unwrap_or_default(),
            }
        })
    }

    fn wait_and_execute(&mut self) -> Result<Infallible, ExecuteError> {
        let mut byte = [0];
        let woken = self.start.read_exact(&mut byte);
        woken.map_err(ExecuteError::Wait)?;
        let program = self.program()?;
        let path = self.orders.files.iter().find(|f| as_path(f) == program);
        let path = path.map_or(c"", |f| f.as_c_str());
        let late = self.orders.no_new_privs && !self.orders.traceable;
        reset_signals();
        if let (true, Some((filter, flags))) = (late, &self.orders.seccomp) {
            apply_seccomp(filter, *flags).map_err(ExecuteError::Seccomp)?;
        }
        execve(path, &self.orders.argv, &self.orders.envp)
            .map_err(|errno| ExecuteError::Execve { program, errno })
    }
}

/// Continues in a copy of this process that has the same parent. This process reports the copy's pid in the node's
/// process namespace, and ends.
fn go_on_as_copy(one: &OneThread, voice: &mut Voice) -> Result<(), PrepareError> {
    match copy(one, Parent::Same) {
        Ok(None) => Ok(()),
        Ok(Some(pid)) => {
            let _ = voice.copy.write_all(pid.to_string().as_bytes());
            end_now(0)
        }
        Err(e) => Err(PrepareError::Copy(e)),
    }
}

impl Ears {
    /// Waits for the reports of the first process. Returns the pid of the process that waits for its start.
    fn hear(mut self, first: i32, memory_limit: Option<u64>) -> Result<i32, LaunchError> {
        let (mut word, mut copy) = (String::new(), String::new());
        self.word
            .read_to_string(&mut word)
            .and_then(|_| self.copy.read_to_string(&mut copy))
            .map_err(LaunchError::Hear)?;
        let pid = copy.parse().unwrap_or(first);
        if pid != first {
            let _ = waitpid(Pid::from_raw(first), None);
        }
        if word == READY {
            return Ok(pid);
        }
        let _ = waitpid(Pid::from_raw(pid), None);
        match memory_limit {
            _ if !word.is_empty() => Err(LaunchError::Said(word)),
            Some(limit) => Err(LaunchError::KilledByLimit(limit)),
            None => Err(LaunchError::Killed),
        }
    }
}

/// Puts the terminal in the place of the standard streams. Without a terminal, streams that are the node's null device
/// become the container's null device, because the container may change its owner and mode.
fn place_streams(root: &Root, terminal: Option<OwnedFd>) -> nix::Result<()> {
    if let Some(slave) = terminal {
        let placed = dup2_stdin(&slave).and_then(|()| dup2_stdout(&slave));
        return placed.and_then(|()| dup2_stderr(&slave));
    }
    // If the container has no null device of its own, the streams keep the node's.
    let Ok(null) = root.null(OFlag::O_RDWR | OFlag::O_NOCTTY) else {
        return Ok(());
    };
    let placed = [
        is_null(&stdin()).then(|| dup2_stdin(&null)),
        is_null(&stdout()).then(|| dup2_stdout(&null)),
        is_null(&stderr()).then(|| dup2_stderr(&null)),
    ];
    placed.into_iter().flatten().collect()
}

fn as_path(file: &CStr) -> PathBuf {
    std::ffi::OsStr::from_bytes(file.to_bytes()).into()
}

/// Describes the error of a failed execve. The kernel returns ENOENT for an existing file if its interpreter or dynamic
/// loader is missing.
fn describe(e: Errno) -> String {
    match e {
        Errno::ENOENT => {
            "no such file or directory (its interpreter or dynamic loader is not in the image)"
                .into()
        }
        e => e.desc().to_lowercase(),
    }
}

fn executable(file: &CStr) -> Result<PathBuf, Errno> {
    let path = as_path(file);
    let found = std::fs::metadata(&path)
        .map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    if found.is_dir() {
        return Err(Errno::EISDIR);
    }
    access(&path, AccessFlags::X_OK).map(|()| path)
}
