//! Tests that need a process of their own: what they count or change belongs to a whole process, which they would share with others
//! under `cargo test`.

use std::process::Command;

const MARK: &str = "PODPROBE_TEST_ALONE";

/// What makes libtest run one test: its arguments. `module` is the test's own `module_path!()`.
pub(crate) fn only(module: &str, test: &str) -> impl Iterator<Item = String> + use<> {
    let (_program, module) = module.split_once("::").expect("a module of a test program");
    let words = ["--exact", "--nocapture", "--include-ignored"].map(str::to_owned);
    std::iter::once(format!("{module}::{test}")).chain(words)
}

/// A command that runs one test of this program, and nothing else.
pub(crate) fn again(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the program of the test"));
    command.args(only(module, test));
    command
}

/// Whether the process is the test's own. If not, the test has been run in one, and has passed.
#[track_caller]
pub(crate) fn is_own_process(module: &str, test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let out = again(module, test).env(MARK, "1").output();
    let out = out.expect("the program of the test can be run");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    eprintln!("{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{test}, in a process of its own: {}",
        out.status
    );
    false
}
