//! What clients lose while new versions of a Deployment's pods take over: rollouts of 3 replicas and of 1 behind a service,
//! with edits in the middle, ways back, scaling, and kills of the daemon; through the packet filter and through `podprobe
//! proxy`. And the gap that a hostPort costs, where no second pod can run beside the first.
//!
//! `ROLLOUTS` of each Deployment (default 20), `RATE` connections a second (default 200), `SEED` repeats the moments of
//! the kills. Ends with 1 if a connection to a service was lost.

#[path = "rollouts/clients.rs"]
mod clients;
#[path = "rollouts/deployment.rs"]
mod deployment;
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clients::Clients;
use deployment::Deployment;
use serde_json::json;
use support::figures::Report;
use support::node::Node;
use support::random::Random;
use support::{out_dir, setting, unix_ns};

const SERVICE: &str = "10.96.0.50:80";
const POD_CIDR: &str = "10.244.0.0/24";
/// The node's own address in that range, with the port of the pod on it.
const HOST: ([u8; 4], u16) = ([10, 244, 0, 1], 18087);
/// A kill comes within this time of an edit. A rollout of one pod takes about as long.
const KILL_WITHIN: Duration = Duration::from_millis(1500);

fn main() {
    support::begin();
    let rollouts = setting("ROLLOUTS", 20);
    let rate = setting("RATE", 200);
    let seed = setting("SEED", (unix_ns() / 1_000_000 % 1_000_000) as usize);
    let mut report = Report::new("rollouts");
    report.note(format!("SEED={seed}, {rate} connections a second"));
    let mut random = Random::new(seed as u64);
    for mode in ["nftables", "userspace"] {
        let config = json!({"proxyMode": mode, "podCIDR": POD_CIDR});
        let mut node = Node::start_with("embedded", &config, &[]);
        for replicas in [3, 1] {
            let run = Run {
                mode,
                replicas,
                rollouts,
                rate,
            };
            run.through_a_service(&mut node, &mut report, &mut random);
        }
        gap_of_a_host_port(&node, &mut report, mode, rollouts.div_ceil(4), rate);
        node.stop();
    }
    report.finish();
    std::process::exit(i32::from(!report.all_hold()));
}

/// Rollouts of one Deployment behind a service.
struct Run {
    mode: &'static str,
    replicas: u64,
    rollouts: usize,
    rate: usize,
}

impl Run {
    fn through_a_service(&self, node: &mut Node, report: &mut Report, random: &mut Random) {
        let mut web = Deployment::new("web", self.replicas, None);
        web.serve(node, SERVICE);
        web.put(node);
        web.wait_complete(node);
        let clients = Clients::start_at_first_answer(SERVICE.parse().unwrap(), self.rate);
        let what = format!("{} of {}", self.mode, self.replicas);
        let mut kills = 0;
        // What was done, with the seconds since the clients began: told if a connection is lost.
        let mut done = Vec::new();
        let began = Instant::now();
        let mut note =
            |what: &str| done.push(format!("{what} at {:.2} s", began.elapsed().as_secs_f64()));
        for rollout in 0..self.rollouts {
            let begun = Instant::now();
            web.next_version();
            web.put(node);
            note(&format!("rollout {rollout}"));
            if rollout % 2 == 1 {
                std::thread::sleep(random.within(KILL_WITHIN));
                note("kill");
                node.crash();
                kills += 1;
                note("back");
            }
            self.disturb(rollout, &mut web, node);
            web.wait_complete(node);
            let took = begun.elapsed().as_secs_f64();
            report.add(&format!("a rollout, {what}"), "s", None, took);
        }
        let answers = clients.end();
        let found = format!(
            "{} asked, {} lost, {kills} kills; the slowest answer took {} ms{}",
            answers.asked,
            answers.lost.len(),
            answers.slowest.as_millis(),
            answers.first_errors()
        );
        let holds = answers.lost.is_empty() && answers.asked > 0;
        report.check(&format!("{what}: no connection is lost"), holds, found);
        if !holds {
            let log = out_dir().join("rollouts-daemon.log");
            std::fs::write(&log, node.log()).unwrap();
            let (done, log) = (done.join(", "), log.display());
            report.note(format!("{what}: {done}; log of the daemon: {log}"));
        }
        web.remove(node);
    }

    /// What a person does in the middle of a rollout.
    fn disturb(&self, rollout: usize, web: &mut Deployment, node: &Node) {
        match rollout % 4 {
            1 => {
                web.wait_begun(node);
                web.next_version();
                web.put(node);
            }
            2 => {
                web.wait_begun(node);
                web.undo(node);
            }
            3 => {
                web.scale(node, self.replicas + 2);
                web.wait_begun(node);
                web.scale(node, self.replicas);
            }
            _ => {}
        }
    }
}

/// The longest time for which no client has an answer, when the new pod needs the port of the old one.
fn gap_of_a_host_port(node: &Node, report: &mut Report, mode: &str, rollouts: usize, rate: usize) {
    let mut web = Deployment::new("door", 1, Some(HOST.1));
    web.put(node);
    web.wait_complete(node);
    for _ in 0..rollouts {
        let clients = Clients::start_at_first_answer(SocketAddr::from(HOST), rate);
        web.next_version();
        web.put(node);
        web.wait_complete(node);
        let answers = clients.end();
        let gap = answers.longest_gap.as_secs_f64() * 1e3;
        report.add(&format!("gap of a hostPort, {mode}"), "ms", None, gap);
    }
    web.remove(node);
}
