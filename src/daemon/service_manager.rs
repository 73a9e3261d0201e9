//! What the daemon says to the service manager that has started it, in systemd's protocol (sd_notify(3)): that it is ready, that
//! it ends, and on the thread `watchdog` that it makes progress.
//!
//! Invariants: a manager that has not asked is told nothing. The watchdog is fed only while every liveness check passes, and
//! while the node can start a thread and a process for the daemon. So the manager restarts a daemon that only looks alive;
//! containers do not notice.

use std::io;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use sd_notify::NotifyState;
use thiserror::Error;

use super::backend::DaemonBackend;
use super::checks::{CheckError, new_thread};
use crate::base::threads::Roster;
use crate::face::server::Health as _;
use crate::face::server::health::Check;

/// Stack of the thread, which runs all checks.
const STACK: usize = 256 << 10;
/// Path of the program that this process runs, also when its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Number of times that the watchdog is fed within the time that the service manager gives.
const TIMES: u32 = 3;

/// The reasons for which the watchdog is not fed.
#[derive(Debug, Error)]
enum NoProgress {
    #[error("{name}: {why}")]
    Check { name: &'static str, why: String },
    #[error(transparent)]
    NoThread(#[from] CheckError),
    #[error("the daemon cannot start a process: {0}")]
    NoProcess(#[source] io::Error),
    #[error("a process that the daemon started ended with {0}")]
    Process(std::process::ExitStatus),
}

/// Tells the service manager that the daemon answers its clients and has found the containers of the last daemon.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Tells the service manager that the daemon ends because it was asked to.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        log::warn!("cannot tell the service manager (NOTIFY_SOCKET): {e}");
    }
}

/// Starts the thread `watchdog`, if the service manager wants to be told that the daemon makes progress. The thread ends when
/// the sender is dropped.
pub(super) fn start_watchdog(
    backend: Arc<DaemonBackend>,
    roster: &Roster,
) -> io::Result<Option<(JoinHandle<()>, Sender<()>)>> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(None);
    };
    let (stop, stopped) = bounded::<()>(0);
    let mut watchdog = Watchdog::default();
    let thread = roster.spawn("watchdog", STACK, move |pulse, _| {
        if watchdog.look(&|| backend.checks(), &|| new_process(OWN_PROGRAM)) {
            tell(&[NotifyState::Watchdog]);
        }
        match pulse.rest(|| stopped.recv_timeout(limit / TIMES)) {
            Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
        }
    })?;
    Ok(Some((thread, stop)))
}

/// The last look at the daemon.
#[derive(Default)]
struct Watchdog {
    /// True if the last look has found no progress. This is said once.
    is_stuck: bool,
}

impl Watchdog {
    /// Returns true if the daemon makes progress.
    fn look(
        &mut self,
        checks: &dyn Fn() -> Vec<Check>,
        new_process: &dyn Fn() -> Result<(), NoProgress>,
    ) -> bool {
        let found = progress(checks(), new_process);
        let was_stuck = std::mem::replace(&mut self.is_stuck, found.is_err());
        match found {
            Ok(()) if was_stuck => log::info!("the daemon makes progress again"),
            Err(e) if !was_stuck => log::error!(
                "{e}; if that stays, the service manager restarts the daemon, and containers go on running"
            ),
            Ok(()) | Err(_) => {}
        }
        !self.is_stuck
    }
}

fn progress(
    checks: Vec<Check>,
    new_process: &dyn Fn() -> Result<(), NoProgress>,
) -> Result<(), NoProgress> {
    for Check { name, failure, .. } in checks.into_iter().filter(|check| check.is_liveness) {
        if let Some(why) = failure {
            return Err(NoProgress::Check { name, why });
        }
    }
    new_thread()?;
    new_process()
}

/// Starts a program as a process that ends at once. Each probe of the type exec needs a process, and each container.
fn new_process(program: &str) -> Result<(), NoProgress> {
    let mut command = Command::new(program);
    command.arg("version").stdin(Stdio::null());
    let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let ended = ended.map_err(NoProgress::NoProcess)?;
    match ended.success() {
        true => Ok(()),
        false => Err(NoProgress::Process(ended)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, failure: Option<&str>, is_liveness: bool) -> Check {
        Check {
            name,
            failure: failure.map(str::to_owned),
            is_liveness,
        }
    }

    #[test]
    fn only_a_daemon_that_makes_progress_feeds_the_watchdog() {
        let well = || vec![check("syncloop", None, true)];
        let hangs = || {
            vec![
                check("ping", None, true),
                check("syncloop", Some("it hangs"), true),
            ]
        };
        let full = || vec![check("disk", Some("the file system is full"), false)];
        let no_process = || Err(NoProgress::NoProcess(io::ErrorKind::WouldBlock.into()));
        let mut watchdog = Watchdog::default();
        assert!(watchdog.look(&well, &|| Ok(())));
        assert!(!watchdog.look(&hangs, &|| Ok(())));
        assert!(watchdog.look(&full, &|| Ok(())), "a restart mends no disk");
        assert!(!watchdog.look(&well, &no_process));
        let said = progress(hangs(), &|| Ok(())).unwrap_err().to_string();
        assert_eq!(said, "syncloop: it hangs");
    }

    #[test]
    fn a_process_has_to_start_and_to_end_well() {
        assert!(new_process("true").is_ok());
        let failed = new_process("false").unwrap_err().to_string();
        assert_eq!(
            failed,
            "a process that the daemon started ended with exit status: 1"
        );
        let missing = new_process("/nowhere").unwrap_err().to_string();
        assert!(
            missing.starts_with("the daemon cannot start a process: "),
            "{missing}"
        );
    }
}
