//! Helpers for unit tests in a network namespace of their own.

use nix::sched::{CloneFlags, unshare};

/// Runs `inside` on a thread in a network namespace of its own. Does nothing if the test does not run as root.
#[track_caller]
pub(crate) fn in_own_network(inside: impl FnOnce() + Send) {
    if !crate::skip::is_root() {
        return;
    }
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        inside();
    };
    std::thread::scope(|s| {
        if let Err(panic) = s.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}
