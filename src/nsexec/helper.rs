//! The same in a process of its own (exec-in-container 4), for a container with CAP_SYS_PTRACE in our user namespace.
//!
//! Such a container may trace the command's process as soon as it sees it. So the daemon's memory must not be there: a
//! fresh, single-threaded `podprobe nsexec` does the work, and its second child has a *copy* of that small memory, no
//! descriptor and no privilege beyond the container's own. The request comes as JSON on stdin, the answer goes to
//! stdout; the daemon waits for it with a limit and cleans up the leaf, whose name it chose, when there is none.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::error::ExecError;
use super::facts::Facts;
use super::{Limits, Target, cgroup, execute, plan, prepare, run};
use crate::runtime::ExecOutcome;

/// Added to the command's timeout and the limit of the start before the helper is given up.
const GRACE: Duration = Duration::from_secs(10);

/// What the helper is to do.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    daemon: i32,
    pid: i32,
    start_time: u64,
    config: serde_json::Value,
    cgroup: String,
    leaf: String,
    command: Vec<String>,
    timeout: Duration,
    limit: usize,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Exited { code: i32, output: Vec<u8> },
    TimedOut { output: Vec<u8> },
    Error(ExecError),
}

impl From<Result<ExecOutcome, ExecError>> for Answer {
    fn from(r: Result<ExecOutcome, ExecError>) -> Self {
        match r {
            Ok(ExecOutcome::Exited { code, output }) => Self::Exited { code, output },
            Ok(ExecOutcome::TimedOut { output }) => Self::TimedOut { output },
            Err(e) => Self::Error(e),
        }
    }
}

impl From<Answer> for Result<ExecOutcome, ExecError> {
    fn from(a: Answer) -> Self {
        match a {
            Answer::Exited { code, output } => Ok(ExecOutcome::Exited { code, output }),
            Answer::TimedOut { output } => Ok(ExecOutcome::TimedOut { output }),
            Answer::Error(e) => Err(e),
        }
    }
}

impl Request {
    pub(super) fn new(
        target: &Target<'_>,
        command: &[String],
        timeout: Duration,
        limit: usize,
    ) -> Self {
        // Of the config only what the plan reads: it lies in memory that the container may see.
        let config = plan::needed(target.config);
        let (pid, start_time, cgroup) = (target.pid, target.start_time, target.cgroup.to_owned());
        let daemon = std::process::id() as i32;
        Self {
            daemon,
            pid,
            start_time,
            config,
            cgroup,
            leaf: cgroup::unique(),
            command: command.to_vec(),
            timeout,
            limit,
        }
    }
}

/// Starts the helper and waits for its answer.
pub(super) fn run(
    helper: &Path,
    request: &Request,
    facts: &Facts,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<ExecOutcome, ExecError> {
    let stdin = request_file(request)?;
    let (answer, end) = run::pipe()?;
    let mut command = Command::new(helper);
    command
        .arg("nsexec")
        .env_clear()
        .stdin(stdin)
        .stdout(end)
        .stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|e| ExecError::io("cannot start the exec helper", &e))?;
    // The command holds the other end of the pipe until it is dropped.
    drop(command);
    let limit = run::START_LIMIT + GRACE;
    let until = Instant::now()
        + request
            .timeout
            .saturating_add(limit)
            .min(Duration::from_secs(86400 * 365));
    let text = read_all(&answer, until, interrupt);
    end_child(&mut child);
    let answer = text
        .ok()
        .and_then(|t| serde_json::from_slice::<Answer>(&t).ok());
    match answer {
        Some(answer) => answer.into(),
        None => {
            cgroup::clean(&facts.seen.places, &request.leaf);
            if interrupt.is_some_and(run::interrupted) {
                return Err(ExecError::Interrupted);
            }
            Err(ExecError::Helper(format!(
                "{} gave no answer",
                helper.display()
            )))
        }
    }
}

fn request_file(request: &Request) -> Result<File, ExecError> {
    let fd = memfd_create(c"nsexec-request", MFdFlags::MFD_CLOEXEC)
        .map_err(|e| ExecError::os("cannot make a memory file", e))?;
    let mut file = File::from(fd);
    let text = serde_json::to_vec(request).map_err(|e| ExecError::Invalid(e.to_string()))?;
    let written = file.write_all(&text).and_then(|()| file.rewind());
    written.map_err(|e| ExecError::io("cannot write a memory file", &e))?;
    Ok(file)
}

/// Kills it unless it has ended, and reaps it.
fn end_child(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn read_all(
    fd: &OwnedFd,
    until: Instant,
    interrupt: Option<BorrowedFd<'_>>,
) -> Result<Vec<u8>, Errno> {
    let (mut all, mut buffer) = (Vec::new(), vec![0u8; 16 << 10]);
    loop {
        let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now()))
            .unwrap_or(PollTimeout::MAX);
        let mut fds = vec![PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        fds.extend(interrupt.map(|i| PollFd::new(i, PollFlags::POLLIN)));
        match nix::poll::poll(&mut fds, left) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Ok(_) if fds[0].any() == Some(false) => return Err(Errno::ECANCELED),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(e),
        }
        match nix::unistd::read(fd, &mut buffer) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(&buffer[..n]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The role `podprobe nsexec`: one request on stdin, one answer on stdout. Takes no arguments.
pub fn helper_main(_args: impl IntoIterator<Item = OsString>) -> ExitCode {
    crate::sys::harden_process();
    let mut text = Vec::new();
    let request = std::io::stdin()
        .lock()
        .read_to_end(&mut text)
        .ok()
        .and_then(|_| serde_json::from_slice::<Request>(&text).ok());
    let Some(request) = request else {
        eprintln!(
            "podprobe nsexec is started by the daemon only, with a request on its standard input"
        );
        return ExitCode::from(2);
    };
    if !crate::sys::die_with_parent(request.daemon) {
        return ExitCode::FAILURE;
    }
    let answer = serde_json::to_vec(&Answer::from(serve(&request)));
    let written = answer.is_ok_and(|a| std::io::stdout().lock().write_all(&a).is_ok());
    if written {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn serve(r: &Request) -> Result<ExecOutcome, ExecError> {
    let target = Target {
        pid: r.pid,
        start_time: r.start_time,
        config: &r.config,
        cgroup: &r.cgroup,
    };
    let (facts, plan) = prepare(&target, &r.command)?;
    let limits = Limits {
        timeout: r.timeout,
        output: r.limit,
        interrupt: None,
    };
    execute(facts, plan, &r.leaf, &r.command, limits, true)
}
