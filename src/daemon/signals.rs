//! The signals that end the daemon.

use std::fs;

use nix::sys::signal::{SigSet, Signal};

/// Before the first thread, so that no thread takes a signal meant for [`wait`].
pub(super) fn block() {
    if let Err(e) = handled().thread_block() {
        log::warn!("cannot block signals: {e}; a signal ends the daemon at once");
    }
}

/// Waits for TERM, INT or HUP.
pub(super) fn wait() -> Signal {
    loop {
        if let Ok(signal) = handled().wait() {
            return signal;
        }
    }
}

/// HUP only where whoever started the daemon has not ignored it, as nohup does.
fn handled() -> SigSet {
    let mut signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    if !ignores(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals
}

/// Whether the signal is ignored. A blocked signal is delivered to a thread that waits for it even when it is ignored.
fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .is_some_and(|m| m & (1 << (signal as i32 - 1)) != 0)
}
