//! What the node's shutdown ends, and the daemon's end does not: shims with their containers, holders, the proxy.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{EXIT, Process, STATE, SandboxState, read};
use serde_json::{Map, Value, json};

use crate::support;
use crate::support::daemon::{Day, POLITE};
use crate::support::on;

fn term(process: Process) {
    kill(Pid::from_raw(process.pid), Signal::SIGTERM).unwrap();
}

/// As an init system does: TERM to every process, when the daemon has ended before.
#[test]
fn a_shutdown_ends_containers_by_their_stop_signal_and_the_end_of_the_daemon_does_not() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", day.pod("subject", POLITE, json!({})));
        day.wait_ready("subject");
        let (process, shim) = (day.process("subject"), day.shim("subject"));
        let sandbox = fs::read_dir(node.layout.sandboxes()).unwrap().flatten();
        let sandbox = sandbox.map(|e| e.path()).next().unwrap();
        let holder: SandboxState = read(&sandbox, STATE).unwrap();
        let container = fs::read_dir(node.layout.containers()).unwrap().flatten();
        let container = container.map(|e| e.path()).next().unwrap();

        let (status, _) = day.terminate();
        assert!(status.success());
        assert!(process.alive() && shim.alive() && holder.process.alive());
        assert!(!container.join(EXIT).exists());

        for each in [shim, holder.process] {
            term(each);
        }
        for each in [process, shim, holder.process] {
            let ended = each
                .open()
                .unwrap()
                .is_none_or(|p| p.wait(Duration::from_secs(20)).unwrap());
            assert!(ended, "{each:?}");
        }
        assert_eq!(day.starts("bye").len(), 1);
        let exit: Map<String, Value> = read(&container, EXIT).unwrap();
        assert_eq!(exit["code"], 0);
        // The next daemon goes on as after any end.
        day.start();
        support::wait_until("the next instance", || day.starts("subject").len() == 2);
        day.wait_ready("subject");
        day.end();
    });
}

/// Its grace period is 30 seconds; the kernel tells their end by ALRM.
#[test]
fn a_shutdown_kills_what_does_not_heed_its_stop_signal() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let stubborn = "trap 'echo no >>/starts/no' TERM\nwhile :; do sleep 0.05; done";
        day.put("subject", day.pod("subject", stubborn, json!({})));
        day.wait_ready("subject");
        let (process, shim) = (day.process("subject"), day.shim("subject"));
        let container = fs::read_dir(node.layout.containers()).unwrap().flatten();
        let container = container.map(|e| e.path()).next().unwrap();
        assert!(day.terminate().0.success());

        term(shim);
        support::wait_until("the container to refuse", || day.starts("no").len() == 1);
        assert!(process.alive() && shim.alive());
        kill(Pid::from_raw(shim.pid), Signal::SIGALRM).unwrap();
        for each in [process, shim] {
            let ended = each
                .open()
                .unwrap()
                .is_none_or(|p| p.wait(Duration::from_secs(20)).unwrap());
            assert!(ended, "{each:?}");
        }
        let exit: Map<String, Value> = read(&container, EXIT).unwrap();
        assert_eq!(exit["signal"], 9);
        day.start();
        support::wait_until("the next instance", || day.starts("subject").len() == 2);
        day.wait_ready("subject");
        day.kill_what_ends();
        day.end();
    });
}

/// A hang-up, an interrupt, or a signal that is for nobody.
#[test]
fn other_signals_end_neither_shim_nor_container() {
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        day.put("subject", day.pod("subject", POLITE, json!({})));
        day.wait_ready("subject");
        let (process, shim) = (day.process("subject"), day.shim("subject"));
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1] {
            kill(Pid::from_raw(shim.pid), signal).unwrap();
            kill(Pid::from_raw(day.pid()), Signal::SIGUSR1).unwrap();
        }
        day.crash();
        day.wait_ready("subject");
        assert_eq!(
            (day.process("subject"), day.shim("subject")),
            (process, shim)
        );
        day.end();
    });
}
