//! Without a free descriptor no container counts as ended.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use podprobe::engine::shims::state::{Process, STATE, try_read, write};

use crate::support::own_process::is_own_process;

#[test]
fn without_descriptors_a_process_is_not_taken_for_ended_nor_a_record_for_missing() {
    let test = "without_descriptors_a_process_is_not_taken_for_ended_nor_a_record_for_missing";
    if !is_own_process(module_path!(), test) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("/bin/sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let process = Process::of(child.id().cast_signed()).unwrap();
    write(dir.path(), STATE, &process, false).unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
    let (alive, opened, read) = (
        process.alive(),
        process.open(),
        try_read::<Process>(dir.path(), STATE),
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(alive, "it runs");
    assert!(opened.is_err() && read.is_err(), "{opened:?} {read:?}");
    assert!(!process.alive() && process.open().unwrap().is_none());
}
