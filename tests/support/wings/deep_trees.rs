//! Directories that are nested more deeply than a walk with a frame for each could follow.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};

/// Makes `depth` cgroups below `top`, each inside the cgroup made before it, and returns the last cgroup.
pub(crate) fn nest(top: &Path, depth: usize) -> OwnedFd {
    let mut at = open(top, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&at, c"nested", Mode::S_IRWXU).unwrap();
        at = openat(
            &at,
            c"nested",
            OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
    }
    at
}

/// Runs `f` on a small stack of 64 KiB, and returns its result.
pub(crate) fn on_a_small_stack<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn_scoped(scope, f).unwrap().join().unwrap()
    })
}
