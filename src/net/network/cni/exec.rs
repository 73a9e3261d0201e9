//! Runs one plugin (cni-plugins 4). The plugin's time and output are limited. The plugin has its own process
//! group, so the processes that the plugin started end together with the plugin.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::error::Cause;
use super::{Slow, result};
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::sys::task::PidFd;

/// The greatest size of a plugin's standard output, in bytes.
pub(super) const MOST_OUTPUT: usize = 1 << 20;

/// The number of bytes that are kept from the end of a plugin's standard error.
const KEPT_STDERR: usize = 4096;

/// The number of further attempts to start a program that is busy, and the time between two attempts. A program is
/// busy while somebody writes its file.
const BUSY: (u32, Duration) = (5, Duration::from_secs(1));

/// A plugin that is to be run, and the limits of the run.
pub(super) struct Run<'a> {
    /// The path of the plugin's program.
    pub(super) program: &'a Path,
    /// The complete environment of the plugin. No variable is inherited.
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// The plugin's standard input. The plugin reads this file from its present position.
    pub(super) input: File,
    /// The longest time that the plugin may run.
    pub(super) limit: Duration,
    /// The message for a plugin that is slow.
    pub(super) slow: Slow<'a>,
    /// The signal that cancels the run when the daemon is ending.
    pub(super) cancel: &'a Cancel,
}

impl Run<'_> {
    /// Runs the plugin to its end and returns its standard output.
    ///
    /// # Errors
    /// Returns the [`Cause`] if the plugin failed, took too long, wrote too much, or could not be started, or
    /// if the daemon is ending.
    pub(super) fn output(self) -> Result<Vec<u8>, Cause> {
        let failed = |e| Cause::Run(self.program.to_owned(), e);
        if self.cancel.is_cancelled() {
            return Err(Cause::Stopped);
        }
        let pause = |time| _ = self.cancel.wait(time);
        let mut group = Group {
            child: self.start(pause).map_err(failed)?,
            ended: false,
        };
        let mut said = Said::default();
        let end = said.follow(&mut group.child, self.limit, self.slow, self.cancel);
        match end.map_err(failed)? {
            End::Exited => group.ended = true,
            End::TimedOut => return Err(Cause::TimedOut(self.limit)),
            End::Cancelled => return Err(Cause::Stopped),
            End::TooMuch => return Err(Cause::TooMuch(MOST_OUTPUT)),
        }
        let status = group.child.wait().map_err(failed)?;
        let name = self.program.file_name().unwrap_or_default();
        if !said.stderr.is_empty() {
            log::debug!("{}: {}", name.display(), result::tail(&said.stderr));
        }
        match status.success() {
            true => Ok(said.stdout),
            false => Err(result::failure(ended(status), &said.stdout, &said.stderr)),
        }
    }

    fn start(&self, pause: impl Fn(Duration)) -> io::Result<Child> {
        let (mut left, between) = BUSY;
        loop {
            let mut command = Command::new(self.program);
            let environment = self.environment.iter().map(|(name, value)| (name, value));
            command.env_clear().envs(environment).process_group(0);
            command.stdin(self.input.try_clone()?);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            match command.spawn() {
                Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && left > 0 => {
                    left -= 1;
                    pause(between);
                }
                started => return started,
            }
        }
    }
}

/// A plugin and its process group. Dropping the value kills the group, unless the plugin has ended by itself.
struct Group {
    child: Child,
    ended: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nobody has waited for the child yet, so no other process can have its pid or its group id.
        if !self.ended {
            let _ = killpg(
                Pid::from_raw(self.child.id().cast_signed()),
                Signal::SIGKILL,
            );
            let _ = self.child.wait();
        }
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

enum End {
    Exited,
    TimedOut,
    Cancelled,
    TooMuch,
}

/// The part of a plugin's output that has been read.
#[derive(Default)]
struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Said {
    /// Reads the output until the plugin has ended. Does not wait for other processes that still hold the pipes
    /// open.
    fn follow(
        &mut self,
        child: &mut Child,
        limit: Duration,
        slow: Slow<'_>,
        cancel: &Cancel,
    ) -> io::Result<End> {
        let process = PidFd::of(child.id().cast_signed())?;
        let mut out = nonblocking(child.stdout.take())?;
        let mut err = nonblocking(child.stderr.take())?;
        let began = Moment::now();
        let until = began + limit;
        let mut says = Some(began + slow.after);
        loop {
            let told = wait(&process, [&out, &err], until, says, cancel)?;
            self.read(&mut out, &mut err)?;
            if self.stdout.len() > MOST_OUTPUT {
                return Ok(End::TooMuch);
            }
            if let Some(end) = told {
                return Ok(end);
            }
            if says.take_if(|at| Moment::now() >= *at).is_some() {
                (slow.say)();
            }
        }
    }

    /// Reads what the plugin has written to standard output and standard error so far, without waiting.
    fn read(&mut self, out: &mut Option<File>, err: &mut Option<File>) -> io::Result<()> {
        drain(out, &mut self.stdout, |_| {})?;
        drain(err, &mut self.stderr, |kept| {
            let surplus = kept.len().saturating_sub(KEPT_STDERR);
            kept.drain(..surplus);
        })
    }
}

/// Makes podprobe's end of a pipe non-blocking.
fn nonblocking(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Option<File>> {
    let pipe = pipe.map(|pipe| File::from(pipe.into()));
    if let Some(pipe) = &pipe {
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    Ok(pipe)
}

/// Reads a pipe until it is empty or closed, or until eight buffers are read. Drops the pipe if it is closed.
fn drain(
    pipe: &mut Option<File>,
    into: &mut Vec<u8>,
    trim: impl Fn(&mut Vec<u8>),
) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    // A pipe holds 64 KiB. The loop is limited, because a plugin that writes faster than podprobe reads must not
    // delay the check of the time limit.
    for _ in 0..8 {
        let Some(file) = pipe else { return Ok(()) };
        match file.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(n) => into.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        trim(into);
    }
    Ok(())
}

/// Waits until the run ends, and returns how it ended. Returns None before the end if there is output to read, or
/// if the message about a slow plugin is due.
fn wait(
    process: &PidFd,
    pipes: [&Option<File>; 2],
    until: Moment,
    says: Option<Moment>,
    cancel: &Cancel,
) -> io::Result<Option<End>> {
    let cancelled = cancel.fd()?;
    let mut fds = vec![
        PollFd::new(process.as_fd(), PollFlags::POLLIN),
        PollFd::new(cancelled, PollFlags::POLLIN),
    ];
    let pipes = pipes.into_iter().flatten();
    fds.extend(pipes.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
    // The time is rounded up. With a time that is rounded down, the last wait would be a busy loop.
    let next = says.map_or(until, |at| at.min(until));
    let left = next.since(Moment::now()) + Duration::from_micros(999);
    let ready = poll(
        &mut fds,
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
    );
    match ready {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(e) => return Err(e.into()),
    }
    let has = |at: usize| fds[at].any() == Some(true);
    Ok(if ready.is_ok() && has(0) {
        Some(End::Exited)
    } else if ready.is_ok() && has(1) {
        Some(End::Cancelled)
    } else if Moment::now() >= until {
        Some(End::TimedOut)
    } else {
        None
    })
}

#[cfg(test)]
#[path = "exec/tests.rs"]
mod tests;
