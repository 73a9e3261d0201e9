//! A machine with a network of its own for a test, and a host outside of it. Both end with the test.

use std::fs::File;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

use super::skip::{has, is_root};

/// The machine's address on its uplink.
pub(crate) const MACHINE: &str = "192.0.2.1";
/// The host outside.
pub(crate) const OUTSIDE: &str = "192.0.2.2";
/// The same with IPv6.
pub(crate) const OUTSIDE_V6: &str = "2001:db8::2";

/// A network namespace.
pub(crate) struct Netns(File);

impl Netns {
    /// That of the calling thread.
    pub(crate) fn here() -> Self {
        Self(File::open("/proc/thread-self/ns/net").unwrap())
    }

    /// That of a process.
    pub(crate) fn of(pid: i32) -> Self {
        Self(File::open(format!("/proc/{pid}/ns/net")).unwrap())
    }

    /// Runs `f` on a thread in it.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            f()
        })
    }
}

fn on_a_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| match s.spawn(f).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Runs `test` on a thread whose children are on a machine of their own, with the host outside. Not where it cannot be made.
#[track_caller]
pub(crate) fn on_a_machine(test: impl FnOnce(&Netns) + Send) {
    if !is_root() || !has("ip", "iproute2") {
        return;
    }
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let outside = Netns::here();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let machine = Netns::here();
        ip("link set lo up");
        outside.run(|| {
            ip("link set lo up");
            ip("link add up1 type veth peer name up0");
            ip(&format!("addr add {OUTSIDE}/24 dev up1"));
            ip(&format!("addr add {OUTSIDE_V6}/64 dev up1 nodad"));
            ip("link set up1 up");
            move_link("up0", &machine);
        });
        ip(&format!("addr add {MACHINE}/24 dev up0"));
        ip("addr add 2001:db8::1/64 dev up0 nodad");
        ip("link set up0 up");
        ip(&format!("route add default via {OUTSIDE}"));
        ip(&format!("-6 route add default via {OUTSIDE_V6}"));
        test(&outside);
    });
}

fn move_link(name: &str, to: &Netns) {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/{}/fd/{}", std::process::id(), to.0.as_raw_fd());
    ip(&format!("link set {name} netns {path}"));
}

/// The command `ip`, in the namespace of the calling thread.
pub(crate) fn ip(line: &str) {
    let done = try_ip(line);
    assert!(done.0, "ip {line}: {}", done.1);
}

/// Whether it succeeded, and what it said.
pub(crate) fn try_ip(line: &str) -> (bool, String) {
    let output = Command::new("ip").args(line.split(' ')).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), text)
}
