//! The signals that the daemon waits for: TERM and INT end it, and HUP lets it read its configuration again.

use std::fs;

use nix::sys::signal::{SigSet, Signal};

use crate::base::sys::process::status_mask;

/// Signals that mean nothing to the daemon, but would end a process that does not handle them. The daemon blocks these
/// signals. It does not ignore them, because processes that the daemon starts would then ignore them too.
const UNHEARD: [Signal; 4] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGALRM,
];

/// Blocks the signals. This function must run before the first thread starts, so that no thread receives a signal that
/// [`wait`] waits for.
pub(super) fn block() {
    let mut signals = handled();
    signals.extend(UNHEARD);
    if let Err(e) = signals.thread_block() {
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

/// Returns the signals that the daemon waits for. HUP is among them, unless the daemon was started with HUP ignored, as
/// nohup does.
fn handled() -> SigSet {
    let mut signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    if !ignores(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals
}

/// True if this process ignores the signal. The kernel delivers a blocked signal to a thread that waits for it, even
/// if the process ignores the signal.
fn ignores(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_mask(&status, "SigIgn:").is_some_and(|m| m & (1 << (signal as i32 - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_means_nothing_ends_nothing() {
        let thread = std::thread::spawn(|| {
            // The program that runs the tests may have blocked these signals.
            SigSet::from_iter(UNHEARD).thread_unblock().unwrap();
            block();
            // The test raises each signal in this thread. A signal that is not blocked would end the process of the
            // test.
            for signal in UNHEARD {
                nix::sys::signal::raise(signal).unwrap();
            }
        });
        thread.join().unwrap();
    }
}
