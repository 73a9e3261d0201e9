//! Damage to the records of podprobe in /run and /var, of each kind in each way, while no daemon runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::life::Life;
use crate::pods::STEADY;
use crate::support::figures::Report;
use crate::support::node::{IMAGE, Node, kill, target_rootfs};
use crate::support::random::Random;
use crate::support::usage::entries;
use crate::victims;
use crate::witness::Witness;

/// All must be as the files ask this long after a damage.
const SETTLING: Duration = Duration::from_secs(30);
/// Directories of what is no record: content of images, of volumes and of containers.
const CONTENT: [&str; 7] = [
    "layers", "blobs", "rootfs", "upper", "work", "volumes", "claims",
];

/// Records of images, which a person has imported.
const IMAGES: &str = "var/lib/podprobe/images/";

/// The newest statuses of pods.
const STATUSES: &str = "run/podprobe/statuses/";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    /// A part from the beginning is left.
    Cut,
    Emptied,
    /// One bit is another.
    Flipped,
    Removed,
    /// A directory has its name.
    Directory,
    /// Beside it is what a process leaves that is killed while it writes.
    HalfWritten,
}

const DAMAGES: [Damage; 6] = [
    Damage::Cut,
    Damage::Emptied,
    Damage::Flipped,
    Damage::Removed,
    Damage::Directory,
    Damage::HalfWritten,
];

impl Damage {
    fn inflict(self, file: &Path, random: &mut Random) -> std::io::Result<()> {
        let mut bytes = fs::read(file)?;
        let part = bytes.len().saturating_sub(1).max(1);
        match self {
            Self::Cut => {
                bytes.truncate(random.below(part));
                fs::write(file, bytes)
            }
            Self::Emptied => fs::write(file, ""),
            Self::Flipped if bytes.is_empty() => fs::write(file, "x"),
            Self::Flipped => {
                let place = random.below(bytes.len());
                bytes[place] ^= 1 << random.below(8);
                fs::write(file, bytes)
            }
            Self::Removed => fs::remove_file(file),
            Self::Directory => {
                fs::remove_file(file)?;
                fs::create_dir(file)?;
                fs::write(file.join("inside"), "x")
            }
            Self::HalfWritten => {
                bytes.truncate(random.below(part));
                let name = file.file_name().unwrap().to_string_lossy();
                fs::write(file.with_file_name(format!("{name}.tmp")), &bytes)?;
                fs::write(file.with_file_name(format!("{name}.4711.tmp")), &bytes)
            }
        }
    }
}

/// A kind of record: its path below the root, with `*` for each id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind(String);

impl Kind {
    fn of(file: &Path, root: &Path) -> Self {
        let path = file.strip_prefix(root).unwrap();
        let parts = path.iter().map(|part| {
            let part = part.to_string_lossy().into_owned();
            let is_id = |text: &str| {
                text.len() >= 32 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
            };
            match part.split_once('.') {
                Some((id, rest)) if is_id(id) => format!("*.{rest}"),
                _ if is_id(&part) => "*".to_owned(),
                _ => part,
            }
        });
        let parts: Vec<String> = parts.collect();
        Self(match parts.iter().position(|part| part == "log-links") {
            Some(place) => format!("{}/*", parts[..=place].join("/")),
            None => parts.join("/"),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
    let mut done: BTreeSet<(Kind, Damage)> = BTreeSet::new();
    let mut unmet = Vec::new();
    let mut rounds = 0;
    while begun.elapsed() < length {
        let records = records(node);
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
        if kind.0.starts_with(STATUSES) {
            // The checkpoint has an older status, which may be that of a pod that is not ready yet.
            STEADY
                .iter()
                .for_each(|(pod, _)| witness.ledger(|ledger| ledger.will_restart(pod, &[])));
        }
        node.kill_daemon();
        // The last daemon may have removed it since.
        let _ = damage.inflict(&file, random);
        node.start_daemon();
        if kind.0.starts_with(IMAGES) {
            // Nobody but a person has this image. What runs needs it no more.
            node.import(&target_rootfs(), IMAGE);
        }
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
    let kinds = done
        .iter()
        .map(|(kind, _)| kind)
        .collect::<BTreeSet<_>>()
        .len();
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

/// All records of the node, by their kinds.
fn records(node: &Node) -> BTreeMap<Kind, Vec<PathBuf>> {
    let mut records: BTreeMap<Kind, Vec<PathBuf>> = BTreeMap::new();
    let mut dirs = vec![node.layout.run_dir(), node.layout.lib_dir()];
    while let Some(dir) = dirs.pop() {
        for entry in entries(&dir.display().to_string()) {
            let Ok(kind) = entry.symlink_metadata() else {
                continue;
            };
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            if is_no_record(&name) {
                continue;
            }
            if kind.is_dir() && !CONTENT.contains(&name.as_str()) {
                dirs.push(entry);
            } else if kind.is_file() {
                records
                    .entry(Kind::of(&entry, node.root()))
                    .or_default()
                    .push(entry);
            }
        }
    }
    records
}

/// What a process has said, and what was set aside or left half written.
fn is_no_record(name: &str) -> bool {
    name == "stderr"
        || [".corrupt", ".damaged", ".tmp"]
            .iter()
            .any(|end| name.contains(end))
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
