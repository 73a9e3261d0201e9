//! What a test does where the machine lacks what it needs. The unit tests of `src` use this file too.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::io::Write;

/// Says why a test does not run; on CI (`CI=true`) that is an error.
#[track_caller]
pub(crate) fn skip(why: &str) {
    let on_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!on_ci, "cannot skip on CI: {why}");
    note(why);
}

/// Says why a test does not run where it need not on CI either: for what the kernel is, not for what could be installed.
///
/// The runner hides what passing tests print, so `make test` names a file (`PODPROBE_SKIPPED`) that it sums up at its end: the test
/// and the reason in a line.
pub(crate) fn note(why: &str) {
    eprintln!("SKIPPED: {why}");
    let Some(file) = std::env::var_os("PODPROBE_SKIPPED") else {
        return;
    };
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy();
    let thread = std::thread::current();
    let test = std::env::var("NEXTEST_TEST_NAME").unwrap_or_else(|_| match thread.name() {
        Some(name) => name.to_owned(),
        None => format!("{:?}", thread.id()),
    });
    let line = format!("{program} {test}\t{why}\n");
    // One write, so that the lines of tests that run at once stay whole.
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the file that PODPROBE_SKIPPED names can be written");
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

/// Whether there is a program of one of Debian's packages; a test that needs it ends where there is none.
#[track_caller]
pub(crate) fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    if !found {
        skip(&format!("needs {program} of Debian's {package}"));
    }
    found
}
