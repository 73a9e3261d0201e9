//! Kills of podprobe's processes and of first processes of containers, at random moments of the life of a node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use podprobe::engine::shims::state::Process;

use crate::clients::{Answers, Clients};
use crate::life::Life;
use crate::pods::STEADY;
use crate::support::figures::Report;
use crate::support::node::{Node, kill};
use crate::support::random::Random;
use crate::victims::{self, Container};
use crate::witness::{Seen, Witness};

/// Longest time between two kills.
const BETWEEN: Duration = Duration::from_millis(2500);
/// Longest time without a daemon.
const WITHOUT_DAEMON: Duration = Duration::from_millis(600);
/// All must be as the files ask this long after the last kill.
const SETTLING: Duration = Duration::from_secs(90);
/// A client that asks this long before a kill may still wait for its answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Another `podprobe proxy` serves this long after a kill of it, also if the daemon was killed with it.
const WITHOUT_PROXY: Duration = Duration::from_secs(3);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Daemon,
    /// The daemon, and the next one is of another program.
    DaemonBeforeUpgrade,
    Shim,
    Holder,
    FirstProcess,
    Proxy,
    Spawner,
}

/// How often each is chosen.
const CHOICE: [Target; 16] = [
    Target::Daemon,
    Target::Daemon,
    Target::Daemon,
    Target::Daemon,
    Target::Daemon,
    Target::DaemonBeforeUpgrade,
    Target::DaemonBeforeUpgrade,
    Target::Shim,
    Target::Shim,
    Target::Holder,
    Target::Holder,
    Target::FirstProcess,
    Target::FirstProcess,
    Target::FirstProcess,
    Target::Proxy,
    Target::Spawner,
];

impl Target {
    fn is_daemon(self) -> bool {
        matches!(self, Self::Daemon | Self::DaemonBeforeUpgrade)
    }
}

/// A node whose processes are killed.
pub(crate) struct Kills<'a> {
    pub(crate) mode: &'static str,
    pub(crate) node: &'a mut Node,
    pub(crate) random: &'a mut Random,
    pub(crate) report: &'a mut Report,
    /// Two programs that differ: each upgrade goes to the other.
    pub(crate) programs: [PathBuf; 2],
    counts: BTreeMap<Target, usize>,
    /// When the process that has the clients' connections was killed, and when it was there again, since the clients began.
    without_proxy: Vec<(Duration, Duration)>,
}

impl<'a> Kills<'a> {
    pub(crate) fn new(
        mode: &'static str,
        node: &'a mut Node,
        random: &'a mut Random,
        report: &'a mut Report,
        programs: [PathBuf; 2],
    ) -> Self {
        Self {
            mode,
            node,
            random,
            report,
            programs,
            counts: BTreeMap::new(),
            without_proxy: Vec::new(),
        }
    }

    /// Kills for that time, and checks what must hold meanwhile and afterwards.
    pub(crate) fn run(mut self, life: &mut Life, length: Duration) {
        let web: SocketAddr = crate::life::WEB.parse().unwrap();
        let begun = Instant::now();
        let clients = Clients::start_at_first_answer(web, crate::rate());
        let of_clients = Instant::now();
        crate::settle_at_first(self.node, life);
        let witness = Witness::start(self.node.root());
        while begun.elapsed() < length {
            std::thread::sleep(self.random.within(BETWEEN));
            self.node.assert_alive();
            if self.random.below(2) == 0 {
                let done = life.step(self.node, self.random);
                self.say(begun, &witness, &done);
                std::thread::sleep(self.random.within(BETWEEN / 5));
            }
            self.strike(life, begun, of_clients, &witness);
        }
        life.rest(self.node);
        let unmet = crate::settle(self.node, life, &witness, SETTLING);
        let looks = witness.looks();
        let ledger = witness.ledger(|ledger| ledger.clone());
        let wrong = life.wrong(self.node, &ledger);
        let seen = witness.end();
        let answers = clients.end();
        self.check_all(&unmet, &wrong, &seen, looks, &answers, ledger.total());
    }

    /// Kills one thing, or several at once.
    fn strike(&mut self, life: &mut Life, begun: Instant, of_clients: Instant, witness: &Witness) {
        let count = [1, 1, 1, 2, 3][self.random.below(5)];
        let targets: Vec<Target> = (0..count).map(|_| *self.random.one_of(&CHOICE)).collect();
        let mut has_daemon = true;
        for target in targets {
            if target.is_daemon() {
                if has_daemon {
                    self.say(begun, witness, &format!("a kill of {target:?}"));
                    life.daemon_is_killed();
                    self.node.kill_daemon();
                    self.count(target);
                }
                has_daemon = false;
                if target == Target::DaemonBeforeUpgrade {
                    self.programs.reverse();
                    self.node.set_program(self.programs[0].clone());
                }
                continue;
            }
            let is_killed = self.strike_one(target, begun, of_clients, witness);
            if is_killed {
                self.count(target);
            }
        }
        if !has_daemon {
            std::thread::sleep(self.random.within(WITHOUT_DAEMON));
            self.node.start_daemon();
        }
    }

    fn count(&mut self, target: Target) {
        *self.counts.entry(target).or_default() += 1;
    }

    fn say(&self, begun: Instant, witness: &Witness, what: &str) {
        println!("{:>7.2} s  {what}", begun.elapsed().as_secs_f64());
        witness.note(what);
    }

    /// Kills one process. False if there is none that may be killed now.
    fn strike_one(
        &mut self,
        target: Target,
        begun: Instant,
        of_clients: Instant,
        witness: &Witness,
    ) -> bool {
        match target {
            Target::Shim => {
                let all = victims::containers(self.node);
                // How a Job's container ends is known to its shim alone.
                let all: Vec<Container> = all.into_iter().filter(|c| !is_of_job(&c.pod)).collect();
                let Some(victim) = self.one_of(all) else {
                    return false;
                };
                self.say(
                    begun,
                    witness,
                    &format!("a kill of the shim of {}/{}", victim.pod, victim.name),
                );
                kill(victim.shim);
            }
            Target::Holder => {
                let of =
                    |(pod, process): (String, Process)| Some((steady(&pod, witness)?, process));
                let all = victims::holders(self.node)
                    .into_iter()
                    .filter_map(of)
                    .collect();
                let Some(((pod, containers), process)) = self.one_of(all) else {
                    return false;
                };
                self.say(begun, witness, &format!("a kill of the sandbox of {pod}"));
                witness.ledger(|ledger| ledger.will_restart(pod, containers));
                kill(process);
            }
            Target::FirstProcess => {
                let of = |c: Container| {
                    let (pod, containers) = steady(&c.pod, witness)?;
                    let name = containers.iter().find(|name| **name == c.name)?;
                    Some((pod, *name, c.process))
                };
                let all = victims::containers(self.node)
                    .into_iter()
                    .filter_map(of)
                    .collect();
                let Some((pod, container, process)) = self.one_of(all) else {
                    return false;
                };
                self.say(begun, witness, &format!("a kill of {pod}/{container}"));
                witness.ledger(|ledger| ledger.will_restart(pod, &[container]));
                kill(process);
            }
            Target::Proxy => {
                let Some(process) = victims::proxy(self.node) else {
                    return false;
                };
                self.say(begun, witness, "a kill of podprobe proxy");
                let from = of_clients.elapsed();
                kill(process);
                self.without_proxy.push((from, from + WITHOUT_PROXY));
            }
            Target::Spawner => {
                let all = victims::spawners(self.node);
                let Some(process) = self.one_of(all) else {
                    return false;
                };
                self.say(begun, witness, "a kill of a spawner");
                kill(process);
            }
            Target::Daemon | Target::DaemonBeforeUpgrade => unreachable!("its caller kills it"),
        }
        true
    }

    fn one_of<T>(&mut self, mut all: Vec<T>) -> Option<T> {
        let place = (!all.is_empty()).then(|| self.random.below(all.len()))?;
        Some(all.swap_remove(place))
    }

    fn check_all(
        &mut self,
        unmet: &[String],
        wrong: &[String],
        seen: &Seen,
        looks: [u64; 2],
        answers: &Answers,
        restarts: u32,
    ) {
        let mode = self.mode;
        let kills: usize = self.counts.values().sum();
        let kinds: Vec<String> = self
            .counts
            .iter()
            .map(|(target, n)| format!("{n} {target:?}"))
            .collect();
        let [snapshots, questions] = looks;
        let mut check = |what: &str, found: &[String], more: String| {
            let list = found.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
            let found_all = format!(
                "{} ({more}){}{list}",
                found.len(),
                if found.is_empty() { "" } else { ": " }
            );
            self.report
                .check(&format!("{mode}: {what}"), found.is_empty(), found_all);
        };
        check(
            "all is as the files ask",
            unmet,
            format!("{kills} kills: {}", kinds.join(", ")),
        );
        check(
            "starts are as many as the schedule and the kills say",
            wrong,
            format!("{restarts} restarts by kills"),
        );
        check(
            "no pod that was left alone was unready",
            &seen.flips,
            format!(
                "{snapshots} snapshots; slowest recovery {:.1} s",
                seen.slowest_recovery
            ),
        );
        check(
            "nobody was told that something is not there",
            &seen.lies,
            format!("{questions} questions"),
        );
        let is_excused = |at: Duration| {
            let within = |(from, to): &(Duration, Duration)| at + ANSWER >= *from && at <= *to;
            mode == "userspace" && self.without_proxy.iter().any(within)
        };
        let (excused, lost): (Vec<_>, Vec<_>) =
            answers.lost.iter().partition(|(at, _)| is_excused(*at));
        let lost: Vec<String> = lost
            .iter()
            .map(|(at, e)| format!("after {:.2} s: {e}", at.as_secs_f64()))
            .collect();
        let of_proxy = match mode {
            "userspace" => format!(", {} while their proxy was killed", excused.len()),
            _ => String::new(),
        };
        check(
            "clients lost nothing",
            &lost,
            format!(
                "{} asked{of_proxy}; the slowest answer took {} ms",
                answers.asked,
                answers.slowest.as_millis()
            ),
        );
        for (target, count) in &self.counts {
            self.report.add(
                &format!("kills, {mode}: {target:?}"),
                "",
                None,
                *count as f64,
            );
        }
        self.report.add(
            &format!("clients, {mode}: asked"),
            "",
            None,
            answers.asked as f64,
        );
        self.report.add(
            &format!("slowest recovery of a pod, {mode}"),
            "s",
            None,
            seen.slowest_recovery,
        );
        let log = self.node.log();
        let panics: Vec<String> = log
            .lines()
            .filter(|l| l.contains("panicked"))
            .map(str::to_owned)
            .collect();
        self.report.check(
            &format!("{mode}: nothing panicked"),
            panics.is_empty(),
            format!("{panics:?}"),
        );
    }
}

/// The steady pod of that name with its containers, if nothing has happened to it that it still recovers from.
fn steady(pod: &str, witness: &Witness) -> Option<(&'static str, &'static [&'static str])> {
    let (name, containers) = STEADY.iter().find(|(name, _)| *name == pod)?;
    let is_recovering = witness.ledger(|ledger| ledger.is_recovering(name));
    (!is_recovering).then_some((name, containers))
}

fn is_of_job(pod: &str) -> bool {
    pod.starts_with("job-") || pod.starts_with("tick-")
}
