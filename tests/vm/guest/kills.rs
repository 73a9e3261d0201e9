//! Kills of podprobe's processes and of first processes of containers, at random moments.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::case::Verdict;
use crate::node::{Node, Process, read};
use crate::sys;
use crate::watched::{Ledger, Random, STEADY, by_words, recover, watched};

const STRIKES: usize = 40;
/// The choices of a run. Another number makes another run.
const SEED: u64 = 25;
const KILL: i32 = 9;
/// The longest time between two kills, in ms.
const BETWEEN: u64 = 1500;
/// The longest time without a daemon, in ms.
const WITHOUT_DAEMON: u64 = 600;
/// What is killed, and how often each is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Daemon,
    Shim,
    Holder,
    FirstProcess,
    Proxy,
    Spawner,
}

const CHOICE: [Target; 12] = [
    Target::Daemon,
    Target::Daemon,
    Target::Daemon,
    Target::Daemon,
    Target::Shim,
    Target::Shim,
    Target::Holder,
    Target::FirstProcess,
    Target::FirstProcess,
    Target::FirstProcess,
    Target::Proxy,
    Target::Spawner,
];

pub fn kills(node: &Node) -> Verdict {
    watched(node, "kills", |ledger| strike_all(node, ledger))
}

fn strike_all(node: &Node, ledger: &Mutex<Ledger>) -> Result<String, String> {
    let mut random = Random(SEED);
    let mut counts: BTreeMap<Target, usize> = BTreeMap::new();
    for _ in 0..STRIKES {
        thread::sleep(Duration::from_millis(random.below(BETWEEN)));
        let target = CHOICE[random.below(CHOICE.len() as u64) as usize];
        if strike(node, ledger, target, &mut random)? {
            *counts.entry(target).or_default() += 1;
        }
    }
    // The last kill may have been of something that costs a moment later.
    thread::sleep(Duration::from_secs(5));
    Ok(format!("{counts:?}"))
}

/// Kills one process, and the daemon with it now and then. Returns false if there is none.
fn strike(
    node: &Node,
    ledger: &Mutex<Ledger>,
    target: Target,
    random: &mut Random,
) -> Result<bool, String> {
    let (pod, port, _) = STEADY[random.below(STEADY.len() as u64) as usize];
    let victim = match target {
        Target::Daemon => None,
        Target::Shim => one_of(random, by_words(|w| w.get(1) == Some(&"shim"))),
        Target::Spawner => one_of(random, by_words(|w| w.get(1) == Some(&"nsexec"))),
        Target::Proxy => one_of(random, by_words(|w| w.get(1) == Some(&"proxy"))),
        Target::Holder => by_words(|w| w.get(1) == Some(&"sandbox") && is_of(w, pod)).pop(),
        Target::FirstProcess => Some(Process::of(&["serve", port, pod])?),
    };
    let with_daemon = target == Target::Daemon || random.below(4) == 0;
    if victim.is_none() && target != Target::Daemon {
        return Ok(false);
    }
    let costs = matches!(target, Target::Holder | Target::FirstProcess);
    if costs {
        ledger.lock().unwrap().will_restart(pod);
    }
    if let Some(victim) = victim {
        sys::signal(victim.0, KILL).map_err(|e| format!("kill of {target:?}: {e}"))?;
    }
    if with_daemon {
        node.kill()?;
        thread::sleep(Duration::from_millis(random.below(WITHOUT_DAEMON)));
        node.start(&read("/etc/podprobe/config.json")?)?;
    }
    if costs {
        recover(node, ledger, pod)?;
    }
    Ok(true)
}

fn one_of(random: &mut Random, mut all: Vec<Process>) -> Option<Process> {
    all.sort_by_key(|process| process.0);
    let place = (!all.is_empty()).then(|| random.below(all.len() as u64))?;
    Some(all.swap_remove(place as usize))
}

/// True if this holder is that of the pod.
fn is_of(words: &[&str], pod: &str) -> bool {
    let record = words.get(2).map(|dir| format!("{dir}/sandbox.json"));
    let record = record.and_then(|file| fs::read_to_string(file).ok());
    record.is_some_and(|text| text.contains(&format!("\"name\":\"{pod}-vm\"")))
}
