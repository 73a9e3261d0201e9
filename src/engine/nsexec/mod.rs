//! Runs a command inside a running container without an OCI runtime (exec-in-container 1 to 5).
//!
//! [`plan`] decides everything from config.json and `/proc`; [`spawner`] lends a small process that starts the two
//! children that do it ([`crate::base::sys::enter`]); [`run`] waits, reads and kills; [`cgroup`] has the leaf by which a whole tree dies.
//! [`stream()`] hands the streams of a command to a client instead; [`terminal`] opens a terminal of the container for it.
//!
//! Invariants:
//! - A container is entered by pid *and* start time; nothing is entered when the pid belongs to another by now.
//! - A command has what the container's first process was given, and nothing of the daemon.
//! - Privileges are dropped before the process is visible in the container: stricter than exec-in-container 3, which
//!   drops them in the second child, because a container with CAP_SYS_PTRACE could use that window.
//! - When `exec` returns, no process, cgroup or descriptor of it is left, background processes of the command included.
//!   One that does not die within 5 s (hung in the kernel) is collected by a later exec, with a warning.
//! - Needs Linux 5.11 (setns through a pidfd, close_range). SIGCHLD must not be ignored in the daemon.

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
    /// Start time of that process (see [`crate::base::sys::task::start_time`]).
    pub start_time: u64,
    /// The container's OCI config.json.
    pub config: &'a Config,
    /// The container's cgroup below each hierarchy, a hint for messages; `/proc/PID/cgroup` is the truth.
    pub cgroup: &'a str,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The podprobe binary, which is started once more as `podprobe nsexec` and makes the processes of all commands.
    pub helper: PathBuf,
    /// A descriptor that is readable or closed when the daemon ends: then every command is killed and none is started
    /// any more.
    pub interrupt: Option<BorrowedFd<'a>>,
    /// A descriptor that is readable or closed when the caller gives this command up: then this command alone is killed,
    /// or not started any more.
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

/// How long a command may run, and how much of its output is kept, in bytes.
#[derive(Clone, Copy)]
struct Limits<'a> {
    timeout: Duration,
    output: usize,
    interrupt: Option<BorrowedFd<'a>>,
    cancel: Option<BorrowedFd<'a>>,
}

impl Limits<'_> {
    /// Why the command must end at once.
    fn told(&self) -> Option<ExecError> {
        let is_set = |fd: Option<BorrowedFd<'_>>| fd.is_some_and(run::is_readable);
        if is_set(self.interrupt) {
            return Some(ExecError::Interrupted);
        }
        is_set(self.cancel).then_some(ExecError::Cancelled)
    }
}

/// How often a command is asked for again whose spawner was killed before the command was executed. The spawner shares
/// memory with what is in the container by then, so a container out of memory may kill it each time.
const RETRIES: usize = 3;

/// Runs `command` in the container and waits for it; [`exec_with`] the running binary as helper.
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

/// Runs `command` in the container and waits for it. `timeout` counts from the command's execve; the start has 10 s of
/// its own. `limit` is in bytes, of stdout and stderr together. A missing or not executable file is an exit with 127 or
/// 126 and the reason as output.
///
/// # Errors
/// Returns an error that says nothing of the container's health: see [`ExecError`].
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

/// Asks again when a spawner was lost.
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

/// Starts, waits, cleans up.
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
    // Where the first child was killed before the second had executed its file.
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

/// The outcome of the start of a command.
enum Begun {
    Running(Procs, Objects),
    NotExecuted(NotExecuted),
}

/// The command's file cannot be executed, with the words of runc.
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

/// Starts a command with `ends` as its descriptors, which are closed here afterwards.
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
    // Until both have ended, one that was to be lost may still come as far as execve.
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

/// Returns the orders for the first process of a container. They follow the rules for a command in it, so that neither has
/// what the other lacks. `root` is the container's root directory; `traceable` says whether another process may trace this
/// one before it has become its program.
///
/// # Errors
/// Returns an error that says what cannot be given exactly.
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

/// Turns the report of a step that failed in a container's first process into an error.
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

/// The objects that the steps of a start work on, for error texts.
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

/// A file that cannot be executed is the probe's failure, with the words of runc; a lack of ours is not.
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
