//! What a test does where the machine lacks what it needs. The unit tests of `src` use this file too.
#![allow(dead_code, reason = "each test program takes what it needs")]

/// Says why a test does not run; on CI (`CI=true`) that is an error.
#[track_caller]
pub(crate) fn skip(why: &str) {
    let on_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!on_ci, "cannot skip on CI: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Whether we are root; a test that needs it ends where we are not.
#[track_caller]
pub(crate) fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}
