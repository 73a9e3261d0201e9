//! Damage to the records of podprobe in /run and /var, of each kind in each way, while no daemon runs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crate::clients::Clients;
use crate::life::Life;
use crate::pods::STEADY;
use crate::record_damage::{DAMAGES, Damage, records};
use crate::support::figures::Report;
use crate::support::node::{IMAGE, Node, kill, target_rootfs};
use crate::support::random::Random;
use crate::victims;
use crate::witness::Witness;

/// All must be as the files ask this long after a damage.
const SETTLING: Duration = Duration::from_secs(30);
/// Records of images, which a person has imported.
const IMAGES: &str = "var/lib/podprobe/images/";

/// States of workloads. A CronJob that has lost its own counts from then on.
const WORKLOADS: &str = "var/lib/podprobe/workloads/";
const PODS_OF_WORKLOADS: &str = "var/lib/podprobe/workloads/pods/";

/// The newest statuses of pods.
const STATUSES: &str = "run/podprobe/statuses/";

/// Damages records for that time, and checks after each damage that it has cost nothing.
pub(crate) fn run(
    node: &mut Node,
    life: &mut Life,
    random: &mut Random,
    report: &mut Report,
    length: Duration,
) {
    let begun = Instant::now();
    let web: SocketAddr = crate::life::WEB.parse().unwrap();
    let clients = Clients::start_at_first_answer(web, crate::rate());
    crate::settle_at_first(node, life);
    let witness = Witness::start(node.root());
    let mut done: BTreeSet<(String, Damage)> = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut unmet = Vec::new();
    let mut rounds = 0;
    while begun.elapsed() < length {
        let records = records(node.root(), |_| false);
        let all = records
            .keys()
            .flat_map(|kind| DAMAGES.map(|damage| (kind.clone(), damage)));
        let mut left: Vec<_> = all.filter(|pair| !done.contains(pair)).collect();
        if left.is_empty() {
            done.clear();
            continue;
        }
        let (kind, damage) = left.swap_remove(random.below(left.len()));
        let file = random.one_of(&records[&kind]).clone();
        let what = format!(
            "{damage:?}: {}",
            file.strip_prefix(node.root()).unwrap().display()
        );
        println!("{:>7.2} s  {what}", begun.elapsed().as_secs_f64());
        witness.note(&what);
        life.daemon_is_killed();
        if kind.starts_with(STATUSES) {
            // The checkpoint has an older status, which may be that of a pod that is not ready yet.
            STEADY
                .iter()
                .for_each(|(pod, _)| witness.ledger(|ledger| ledger.will_restart(pod, &[])));
        }
        let from = SystemTime::now();
        node.kill_daemon();
        // The last daemon may have removed it since.
        let _ = damage.inflict(&file, &mut |end| random.below(end));
        node.start_daemon();
        if kind.starts_with(WORKLOADS) && !kind.starts_with(PODS_OF_WORKLOADS) {
            // The controllers look for the first time a moment after the first answer.
            life.state_is_damaged(from, SystemTime::now() + Duration::from_secs(2));
        }
        if kind.starts_with(IMAGES) {
            // Nobody but a person has this image. What runs needs it no more.
            node.import(&target_rootfs(), IMAGE);
        }
        kinds.insert(kind.clone());
        done.insert((kind, damage));
        rounds += 1;
        if random.below(2) == 0 {
            restart_something(node, random, &witness);
        }
        let found = crate::settle(node, life, &witness, SETTLING);
        if !found.is_empty() {
            witness.ledger(|ledger| ledger.accept(&node.snapshot()));
        }
        unmet.extend(found.iter().map(|found| format!("{what}: {found}")));
    }
    let kinds = kinds.len();
    let ledger = witness.ledger(|ledger| ledger.clone());
    life.rest(node);
    let wrong = life.wrong(node, &ledger);
    let [snapshots, questions] = witness.looks();
    let seen = witness.end();
    let answers = clients.end();
    let lost: Vec<String> = answers
        .lost
        .iter()
        .map(|(at, e)| format!("after {:.2} s: {e}", at.as_secs_f64()))
        .collect();
    let mut check = |what: &str, found: &[String], more: String| {
        let list = found.iter().take(8).cloned().collect::<Vec<_>>().join("; ");
        let found_all = format!(
            "{} ({more}){}{list}",
            found.len(),
            if found.is_empty() { "" } else { ": " }
        );
        report.check(
            &format!("damaged records: {what}"),
            found.is_empty(),
            found_all,
        );
    };
    check(
        "all is as the files ask after each",
        &unmet,
        format!("{rounds} damages, {kinds} kinds of records"),
    );
    check(
        "starts are as many as the schedule and the kills say",
        &wrong,
        format!("{} restarts by kills", ledger.total()),
    );
    check(
        "no pod that was left alone was unready",
        &seen.flips,
        format!("{snapshots} snapshots"),
    );
    check(
        "nobody was told that something is not there",
        &seen.lies,
        format!("{questions} questions"),
    );
    check(
        "clients lost nothing",
        &lost,
        format!("{} asked", answers.asked),
    );
    report.add("damaged records", "", None, f64::from(rounds));
}

/// Kills the first process of a steady pod, so that something starts on what is left of the records.
fn restart_something(node: &Node, random: &mut Random, witness: &Witness) {
    let of = |c: victims::Container| {
        let (pod, containers) = STEADY.iter().find(|(name, _)| *name == c.pod)?;
        let name = containers.iter().find(|name| **name == c.name)?;
        Some((*pod, *name, c.process))
    };
    let all: Vec<_> = victims::containers(node)
        .into_iter()
        .filter_map(of)
        .collect();
    if all.is_empty() {
        return;
    }
    let (pod, container, process) = *random.one_of(&all);
    witness.ledger(|ledger| ledger.will_restart(pod, &[container]));
    kill(process);
}
