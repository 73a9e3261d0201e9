//! Runs a command inside a running container without an OCI runtime (exec-in-container 1 to 5).
//!
//! [`plan`] decides everything from config.json and `/proc`. [`spawner`] lends a spawner, a small process that starts
//! the two processes of a command ([`crate::base::sys::enter`]). [`run`] waits, reads and kills. [`cgroup`] makes the
//! leaf cgroup by which all processes of a command are killed. [`stream()`] starts a command for a client and hands
//! over its streams. [`terminal`] opens a terminal of the container for such a command.
//!
//! Invariants:
//! - A container is entered by pid *and* start time. Nothing is entered if the pid belongs to another process now.
//! - A command has the settings that the container's first process was given, and nothing of the daemon.
//! - Privileges are dropped before the process is visible in the container. This is stricter than exec-in-container 3,
//!   which drops the privileges in the second child: a container with CAP_SYS_PTRACE could trace the child before.
//! - When `exec` returns, no process, cgroup or descriptor of the command is left, not even a background process of the
//!   command. A process that does not die within 5 s (hung in the kernel) is reaped by a later exec, with a warning.
//! - Needs Linux 5.11 (setns through a pidfd, close_range). SIGCHLD must not be ignored in the daemon
//!   ([`crate::base::sys::process::keep_exit_codes`]).

mod cgroup;
mod error;
mod facts;
mod plan;
mod reaper;
mod run;
mod spawner;
#[cfg(test)]
mod stages;
mod stream;
mod terminal;
#[cfg(test)]
mod tests;
mod tracer;

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use crate::base::sys::enter::{Board, Orders, Report, Stdio, Step};
use crate::engine::oci::{Process, Seccomp};
use crate::engine::runtime::ExecOutcome;

pub use error::ExecError;
pub use plan::{Config, Filtered};
pub use spawner::helper_main;
pub(crate) use stream::stream;

use cgroup::Cgroups;
use facts::{Facts, Seen};
use plan::Plan;
use run::{End, Finished, Procs, Started};
use spawner::Pool;

/// The container to enter.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Host pid of the container's first process.
    pub pid: i32,
    /// Start time of the first process (see [`crate::base::sys::task::start_time`]).
    pub start_time: u64,
    /// Content of the container's OCI config.json.
    pub config: &'a Config,
    /// The container's cgroup below each hierarchy. It is only a hint for messages: the cgroups to join are those of
    /// `/proc/PID/cgroup`.
    pub cgroup: &'a str,
}

/// Settings for running a command.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Path of the podprobe binary. The binary is started once more, as `podprobe nsexec`, and makes the processes of
    /// all commands.
    pub helper: PathBuf,
    /// A descriptor that becomes readable or is closed when the daemon stops. Every command is killed at that time, and
    /// no further command is started.
    pub interrupt: Option<BorrowedFd<'a>>,
    /// A descriptor that becomes readable or is closed when the caller cancels this command. This command is killed at
    /// that time, or is not started any more. Other commands go on.
    pub cancel: Option<BorrowedFd<'a>>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            helper: "/proc/self/exe".into(),
            interrupt: None,
            cancel: None,
        }
    }
}

/// The bounds of a command: its time, the number of bytes of its output that are kept, and the descriptors that end it
/// early.
#[derive(Clone, Copy)]
struct Limits<'a> {
    timeout: Duration,
    output: usize,
    interrupt: Option<BorrowedFd<'a>>,
    cancel: Option<BorrowedFd<'a>>,
}

impl Limits<'_> {
    /// Returns the reason why the command must end at once. Returns None if it may go on.
    fn told(&self) -> Option<ExecError> {
        let is_set = |fd: Option<BorrowedFd<'_>>| fd.is_some_and(run::is_readable);
        if is_set(self.interrupt) {
            return Some(ExecError::Interrupted);
        }
        is_set(self.cancel).then_some(ExecError::Cancelled)
    }
}

/// Number of times that a command is started again if its spawner was killed before the command was executed. Until the
/// command is executed, the spawner shares memory with a process in the container. So a container that is out of memory
/// may kill the spawner each time.
const RETRIES: usize = 3;

/// Runs `command` in the container and waits for its end. Calls [`exec_with`] with the running binary as helper.
///
/// # Errors
/// Returns the error of [`exec_with`].
pub fn exec(
    target: &Target<'_>,
    command: &[String],
    timeout: Duration,
    limit: usize,
) -> Result<ExecOutcome, ExecError> {
    exec_with(&Options::default(), target, command, timeout, limit)
}

/// Runs `command` in the container and waits for its end. `timeout` counts from the command's execve; the start before
/// it has a limit of its own, 10 s. `limit` is the number of bytes of stdout and stderr together that are kept. A file
/// that is missing or not executable counts as an exit with code 127 or 126, with the reason as output.
///
/// # Errors
/// Returns an [`ExecError`] if the command could not be run. This error says nothing about the container's health.
pub fn exec_with(
    options: &Options<'_>,
    target: &Target<'_>,
    command: &[String],
    timeout: Duration,
    limit: usize,
) -> Result<ExecOutcome, ExecError> {
    run::sweep();
    let limits = Limits {
        timeout,
        output: limit,
        interrupt: options.interrupt,
        cancel: options.cancel,
    };
    if let Some(why) = limits.told() {
        return Err(why);
    }
    retried(target, command, |facts, plan| {
        execute(facts, plan, &options.helper, command, limits)
    })
}

/// Calls `run`. If the spawner was lost, calls `run` again, at most [`RETRIES`] times.
fn retried<T>(
    target: &Target<'_>,
    command: &[String],
    run: impl Fn(Facts, Plan) -> Result<T, ExecError>,
) -> Result<T, ExecError> {
    let mut retries = RETRIES;
    loop {
        let (facts, plan) = prepare(target, command)?;
        match run(facts, plan) {
            Err(ExecError::SpawnerLost) if retries > 0 => retries -= 1,
            outcome => return outcome,
        }
    }
}

fn prepare(target: &Target<'_>, command: &[String]) -> Result<(Facts, Plan), ExecError> {
    let mut facts = Facts::read(target)?;
    let Config { process, linux } = target.config;
    if plan::needs_passwd(process) {
        facts.known.passwd = facts::passwd_below(&facts.root);
    }
    let plan = Plan::new(process, linux.seccomp.as_ref(), command, &facts.known)?;
    if !facts.still_running() {
        return Err(ExecError::NotRunning { pid: target.pid });
    }
    Ok((facts, plan))
}

/// Starts a command, waits for its end, and removes everything that the command leaves.
fn execute(
    facts: Facts,
    plan: Plan,
    helper: &Path,
    command: &[String],
    limits: Limits<'_>,
) -> Result<ExecOutcome, ExecError> {
    let (out, out_end) = run::pipe()?;
    let (err, err_end) = run::pipe()?;
    let stdio = Stdio::Streams([false, true, true]);
    let begun = begin(facts, plan, helper, command, stdio, vec![out_end, err_end])?;
    let (procs, objects) = match begun {
        Begun::Running(procs, objects) => (procs, objects),
        Begun::NotExecuted(why) => return Ok(why.into()),
    };
    let (end, output) = run::wait(&procs, [out, err], limits);
    // A report may come after the start. This happens if the first child was killed before the second child had
    // executed its file.
    let late = procs.failed();
    let Finished { code, .. } = procs.finish();
    if let (End::Exited, Some(r)) = (&end, late) {
        return not_started(Started::Failed(r), command, &objects).map(Into::into);
    }
    match end {
        End::Exited => Ok(ExecOutcome::Exited {
            code: code.unwrap_or(255),
            output,
        }),
        End::TimedOut => Ok(ExecOutcome::TimedOut { output }),
        End::Told(why) => Err(why),
    }
}

/// The result of starting a command.
enum Begun {
    Running(Procs, Objects),
    NotExecuted(NotExecuted),
}

/// The command's file could not be executed. The message is the one of runc.
struct NotExecuted {
    code: i32,
    message: String,
}

impl From<NotExecuted> for ExecOutcome {
    fn from(why: NotExecuted) -> Self {
        Self::Exited {
            code: why.code,
            output: why.message.into_bytes(),
        }
    }
}

/// Starts a command with `ends` as the command's descriptors. Closes these descriptors in this process afterwards.
fn begin(
    facts: Facts,
    mut plan: Plan,
    helper: &Path,
    command: &[String],
    stdio: Stdio,
    ends: Vec<OwnedFd>,
) -> Result<Begun, ExecError> {
    let pool = Pool::of(helper)?;
    let board = Board::take().map_err(|e| ExecError::os("cannot make a memory file", e))?;
    let cgroups = Cgroups::prepare(&facts.seen.places, &cgroup::unique())?;
    let objects = Objects {
        seen: facts.seen.clone(),
        limits: std::mem::take(&mut plan.limit_names),
        cwd: plan.cwd.clone(),
    };
    let traceable = plan.traceable;
    let path = |p: &PathBuf| {
        CString::new(p.as_os_str().as_bytes())
            .map_err(|_| ExecError::Invalid(format!("{} contains a NUL character", p.display())))
    };
    let orders = Orders {
        cgroups: cgroups.join.iter().map(path).collect::<Result<_, _>>()?,
        born: cgroups.born.as_ref().map(path).transpose()?,
        stdio,
        ..orders(plan)
    };
    let message = orders.encode();
    let mut fds = vec![facts.pidfd.as_fd(), facts.root.as_fd(), board.as_fd()];
    fds.extend(ends.iter().map(AsFd::as_fd));
    let asked = pool.lend().and_then(|spawner| {
        let heard = spawner.send(&message, &fds)?;
        Ok((spawner, heard))
    });
    drop(ends);
    let mut procs = Procs::new(board, cgroups.leaf, traceable);
    let started = match asked {
        Ok((spawner, true)) => run::started(&mut procs, spawner),
        Ok((_, false)) => Err(Started::Lost),
        Err(e) => Err(Started::Unasked(e)),
    };
    let Err(why) = started else {
        return Ok(Begun::Running(procs, objects));
    };
    // A command whose spawner was lost may still reach its execve. Whether it did is certain only when both children
    // have ended.
    let Finished { executed, .. } = procs.finish();
    let why = match why {
        Started::Lost if executed => Started::Killed,
        why => why,
    };
    not_started(why, command, &objects).map(Begun::NotExecuted)
}

fn orders(plan: Plan) -> Orders {
    Orders {
        cgroups: Vec::new(),
        born: None,
        oom_score_adj: plan.oom_score_adj,
        rlimits: plan.rlimits,
        label: plan.label,
        namespaces: plan.namespaces,
        stdio: Stdio::default(),
        umask: plan.umask,
        caps: plan.caps,
        uid: plan.uid,
        gid: plan.gid,
        groups: plan.groups,
        cwd: plan.cwd,
        no_new_privs: plan.no_new_privs,
        seccomp: plan.seccomp.map(|f| (f.program, f.flags)),
        traceable: plan.traceable,
        files: plan.files,
        argv: plan.argv,
        envp: plan.envp,
    }
}

/// Returns the orders for the first process of a container. They follow the rules for commands in the container, so
/// that both kinds of processes get the same settings. `root` is the container's root directory. `traceable` is true if
/// another process may trace the first process before this process executes its program.
///
/// # Errors
/// Returns an [`ExecError`] that names the setting that cannot be applied exactly.
pub(crate) fn orders_of_first_process(
    process: &Process,
    seccomp: Option<&Seccomp>,
    root: &OwnedFd,
    traceable: bool,
) -> Result<Orders, ExecError> {
    let known = facts::Known {
        namespaces: 0,
        permitted: crate::base::sys::permitted_capabilities()
            .map_err(|e| ExecError::os("cannot read our capabilities", e))?,
        passwd: match plan::needs_passwd(process) {
            true => facts::passwd_below(root),
            false => String::new(),
        },
    };
    let plan = Plan::new(process, seccomp, &process.args, &known)?;
    Ok(Orders {
        traceable,
        ..orders(plan)
    })
}

/// Returns the error for a step that has failed in the first process of a container.
pub(crate) fn failed_step(r: Report, orders: &Orders) -> ExecError {
    let object = match r.step {
        Step::Cwd => cwd_object(&orders.cwd, r.index),
        Step::Label => orders.label.as_ref().map_or_else(String::new, |(_, text)| {
            format!("{:?}", String::from_utf8_lossy(text))
        }),
        _ => "container".into(),
    };
    ExecError::step(r, object)
}

fn cwd_object(cwd: &CString, index: usize) -> String {
    let cwd = cwd.to_string_lossy();
    match index {
        2 => format!("{cwd}, which lies outside the container's root"),
        _ => cwd.into_owned(),
    }
}

/// The names of the objects that the steps of a start work on, for error texts.
struct Objects {
    seen: Arc<Seen>,
    limits: Vec<String>,
    cwd: CString,
}

fn not_started(
    why: Started,
    command: &[String],
    objects: &Objects,
) -> Result<NotExecuted, ExecError> {
    match why {
        Started::Failed(r) if r.step == Step::Exec => not_executable(r.errno, command),
        Started::Failed(r) => Err(ExecError::step(r, object(r, objects))),
        Started::Killed => Err(ExecError::Killed),
        Started::Lost => Err(ExecError::SpawnerLost),
        Started::Unasked(e) => Err(e),
        Started::Late => Err(ExecError::StartTimeout(spawner::START_LIMIT.as_secs())),
        Started::Os(e) => Err(ExecError::os("cannot follow the start of a command", e)),
    }
}

fn object(r: Report, objects: &Objects) -> String {
    let named = match r.step {
        Step::Cgroup => cgroup::name(&objects.seen.places, r.index),
        Step::Rlimit => objects.limits.get(r.index).cloned(),
        Step::Cwd => Some(cwd_object(&objects.cwd, r.index)),
        Step::Bounding => Some(r.index.to_string()),
        _ => None,
    };
    named.unwrap_or_else(|| "container".into())
}

/// Returns the outcome for a command's file that cannot be executed. The outcome is a failure of the probe, with the
/// words of runc. If resources of the node are used up, returns an error instead.
fn not_executable(errno: Errno, command: &[String]) -> Result<NotExecuted, ExecError> {
    let name = command.first().map_or("", String::as_str);
    let lower = |e: Errno| e.desc().to_lowercase();
    let (code, text) = match errno {
        Errno::EAGAIN | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE | Errno::E2BIG => {
            return Err(ExecError::Step {
                step: Step::Exec,
                object: name.into(),
                errno: errno as i32,
            });
        }
        Errno::ENOENT if !name.contains('/') => (127, "executable file not found in $PATH".into()),
        Errno::ENOENT => (127, format!("stat {name}: no such file or directory")),
        e => (126, lower(e)),
    };
    let message = format!("exec: \"{name}\": {text}");
    Ok(NotExecuted { code, message })
}
