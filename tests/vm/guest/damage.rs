//! Damage to the records of podprobe, of each kind, while no daemon runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::case::Verdict;
use crate::node::{Node, Process, read};
use crate::record_damage::{DAMAGES, records};
use crate::sys;
use crate::watched::{Ledger, Random, STEADY, recover, wait_for_looks, watched};

const ROUNDS: usize = 20;
/// The choices of a run. Another number makes another run.
const SEED: u64 = 45;
const KILL: i32 = 9;
/// Directories of records whose loss costs something (ARCHITECTURE.md, State): the readiness of the last moments, an image, and
/// a pod that a controller has made.
const COSTLY: [&str; 3] = [
    "run/podprobe/statuses",
    "var/lib/podprobe/images",
    "var/lib/podprobe/workloads/pods",
];

/// Damages kinds of records in an order and in ways that look random. A damage costs nothing, and in half of the rounds a
/// container starts on what is left.
pub fn damage(node: &Node) -> Verdict {
    watched(node, "damaged records", |ledger| damage_all(node, ledger))
}

fn damage_all(node: &Node, ledger: &Mutex<Ledger>) -> Result<String, String> {
    let mut random = Random(SEED);
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let records = records(Path::new("/"), |dir| COSTLY.contains(&dir));
        let times = |kind: &String| done.get(kind).copied().unwrap_or(0);
        let fewest = records.keys().map(times).min().ok_or("no records")?;
        let least: Vec<_> = records
            .keys()
            .filter(|kind| times(kind) == fewest)
            .collect();
        let kind = least[random.below(least.len() as u64) as usize];
        let files = &records[kind];
        let file = &files[random.below(files.len() as u64) as usize];
        let damage = DAMAGES[random.below(DAMAGES.len() as u64) as usize];
        {
            let mut ledger = ledger.lock().unwrap();
            ledger.doing = format!("{damage:?} {}:", file.display());
            ledger.may_set_aside(file);
        }
        node.kill()?;
        // The last daemon may have removed it since.
        let _ = damage.inflict(file, &mut |end| random.below(end as u64) as usize);
        node.start(&read("/etc/podprobe/config.json")?)?;
        wait_for_looks(ledger, 3)?;
        if random.below(2) == 0 {
            // Something starts on what is left of the records.
            let (pod, port, _) = STEADY[random.below(STEADY.len() as u64) as usize];
            ledger.lock().unwrap().will_restart(pod);
            let victim = Process::of(&["serve", port, pod])?;
            sys::signal(victim.0, KILL).map_err(|e| format!("kill of {pod}: {e}"))?;
            recover(node, ledger, pod)?;
        }
        *done.entry(kind.clone()).or_default() += 1;
    }
    Ok(format!("{ROUNDS} of {} kinds", done.len()))
}
