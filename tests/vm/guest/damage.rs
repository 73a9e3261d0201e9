//! Damage to the records of podprobe, of each kind, while no daemon runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::case::Verdict;
use crate::node::{Node, Process, read};
use crate::sys;
use crate::watched::{Ledger, Random, STEADY, recover, wait_for_looks, watched};

const ROUNDS: usize = 20;
/// The choices of a run. Another number makes another run.
const SEED: u64 = 45;
const KILL: i32 = 9;
/// Directories that have no records: the contents of volumes and containers.
const CONTENT: [&str; 6] = ["layers", "rootfs", "upper", "work", "volumes", "claims"];
/// Directories of records whose loss costs something (ARCHITECTURE.md, State): the readiness of the last moments, an image, and
/// a pod that a controller has made.
const COSTLY: [&str; 3] = [
    "/run/podprobe/statuses",
    "/var/lib/podprobe/images",
    "/var/lib/podprobe/workloads/pods",
];

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A part from the beginning is left.
    Cut,
    Emptied,
    /// One bit is another.
    Flipped,
    Removed,
    /// A directory has its name.
    Directory,
}

const DAMAGES: [Damage; 5] = [
    Damage::Cut,
    Damage::Emptied,
    Damage::Flipped,
    Damage::Removed,
    Damage::Directory,
];

impl Damage {
    fn inflict(self, file: &Path, random: &mut Random) -> std::io::Result<()> {
        let mut bytes = fs::read(file)?;
        match self {
            Self::Cut => {
                bytes.truncate(random.below(bytes.len().max(1) as u64) as usize);
                fs::write(file, bytes)
            }
            Self::Emptied => fs::write(file, ""),
            Self::Flipped if bytes.is_empty() => fs::write(file, "x"),
            Self::Flipped => {
                let place = random.below(bytes.len() as u64) as usize;
                bytes[place] ^= 1 << random.below(8);
                fs::write(file, bytes)
            }
            Self::Removed => fs::remove_file(file),
            Self::Directory => {
                fs::remove_file(file)?;
                fs::create_dir(file)?;
                fs::write(file.join("inside"), "x")
            }
        }
    }
}

/// Damages kinds of records in an order and in ways that look random. A damage costs nothing, and in half of the rounds a
/// container starts on what is left.
pub fn damage(node: &Node) -> Verdict {
    watched(node, "damaged records", |ledger| damage_all(node, ledger))
}

fn damage_all(node: &Node, ledger: &Mutex<Ledger>) -> Result<String, String> {
    let mut random = Random(SEED);
    let mut done: BTreeMap<String, Vec<Damage>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let records = records();
        let times = |kind: &String| done.get(kind).map_or(0, Vec::len);
        let fewest = records.keys().map(times).min().ok_or("no records")?;
        let least: Vec<_> = records
            .keys()
            .filter(|kind| times(kind) == fewest)
            .collect();
        let kind = least[random.below(least.len() as u64) as usize];
        let files = &records[kind];
        let file = &files[random.below(files.len() as u64) as usize];
        let damage = DAMAGES[random.below(DAMAGES.len() as u64) as usize];
        ledger.lock().unwrap().doing = format!("{damage:?} {}:", file.display());
        node.kill()?;
        // The last daemon may have removed it since.
        let _ = damage.inflict(file, &mut random);
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
        done.entry(kind.clone()).or_default().push(damage);
    }
    let all: usize = done.values().map(Vec::len).sum();
    Ok(format!("{all} of {} kinds", done.len()))
}

/// All records of the node, by their kinds: the path with `*` for each id.
fn records() -> BTreeMap<String, Vec<PathBuf>> {
    let mut records: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut dirs: Vec<PathBuf> = vec!["/run/podprobe".into(), "/var/lib/podprobe".into()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let path = entry.path();
            let is_other =
                CONTENT.contains(&name.as_str()) || COSTLY.iter().any(|dir| path == Path::new(dir));
            if kind.is_dir() && !is_other {
                dirs.push(path);
            } else if kind.is_file() && is_record(&name) {
                records
                    .entry(kind_of(&entry.path()))
                    .or_default()
                    .push(entry.path());
            }
        }
    }
    records
}

/// True if it is not what a process has said, and was not set aside or left half written.
fn is_record(name: &str) -> bool {
    let others = ["stderr", ".corrupt", ".damaged", ".tmp"];
    !others.iter().any(|end| name.contains(end))
}

fn kind_of(file: &Path) -> String {
    let is_id =
        |text: &str| text.len() >= 32 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let parts = file.iter().map(|part| {
        let part = part.to_string_lossy();
        match part.split_once('.') {
            Some((id, rest)) if is_id(id) => format!("*.{rest}"),
            _ if is_id(&part) => "*".to_owned(),
            _ => part.into_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}
