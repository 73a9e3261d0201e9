//! `podprobe cp` of one large file, in turns with `cat` through a pipe. All files are in memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ring::digest;

use super::support::Guard;
use super::support::figures::Report;
use super::support::node::{Node, view};
use super::{DATA, POD, verb};

/// The copy may take so many times what `cat` takes: half of its throughput.
const LIMIT: f64 = 2.0;
const WAYS: [&str; 4] = ["cp, in", "cat, in", "cp, out", "cat, out"];

pub(super) fn measure(report: &mut Report, node: &Node, bytes: usize, rounds: usize) {
    let files = Files::new(node);
    let digest = noise(&files.here("source"), bytes);
    // The first of each finds nothing warm and does not count.
    for way in WAYS {
        files.copy(way);
    }
    for round in 0..rounds {
        let order = WAYS.iter().cycle().skip(round % WAYS.len());
        for way in order.take(WAYS.len()) {
            let ms = files.copy(way);
            report.add(&format!("{way}: time"), "ms", None, ms);
        }
        for file in ["cp", "cat"] {
            for copy in [files.inside(file), files.here(file)] {
                assert!(sha256(&copy) == digest, "{} differs", copy.display());
            }
        }
    }
    for way in ["in", "out"] {
        let [cp, cat] = ["cp", "cat"].map(|what| format!("{what}, {way}: time"));
        let name = format!("cp / cat, {way}: time");
        report.ratio(&name, &cp, &cat, Some(LIMIT));
        let rate = |row: &str| bytes as f64 / 1e3 / report.median(row);
        report.note(format!(
            "cp {way} copies {:.0} MB a second, cat {:.0}; cp has {:.2} × the throughput of cat",
            rate(&cp),
            rate(&cat),
            rate(&cp) / rate(&cat)
        ));
    }
}

/// Writes so many bytes that do not repeat; their digest.
fn noise(path: &Path, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..bytes / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    fs::write(path, words.collect::<Vec<u8>>()).unwrap();
    sha256(path)
}

fn sha256(path: &Path) -> Vec<u8> {
    let content = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    digest::digest(&digest::SHA256, &content).as_ref().to_vec()
}

/// Where the files lie; those of this side go with this.
struct Files<'n> {
    node: &'n Node,
    here: PathBuf,
    inside: PathBuf,
    _guard: Guard,
}

impl<'n> Files<'n> {
    fn new(node: &'n Node) -> Self {
        let here = PathBuf::from(format!("/dev/shm/bench-server-{}", std::process::id()));
        fs::create_dir(&here).unwrap();
        let snapshot = node.snapshot();
        let (_, state) = node.container(view(&snapshot, POD).unwrap());
        let root = format!("/proc/{}/root{DATA}", state.process.unwrap().pid);
        let _guard = Guard::new({
            let here = here.clone();
            move || drop(fs::remove_dir_all(here))
        });
        Self {
            node,
            here,
            inside: root.into(),
            _guard,
        }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.here.join(name)
    }

    /// As this side sees a file of the container.
    fn inside(&self, name: &str) -> PathBuf {
        self.inside.join(name)
    }

    /// Milliseconds. What was copied before is away.
    fn copy(&self, way: &str) -> f64 {
        let (what, direction) = way.split_once(", ").unwrap();
        let to = match direction {
            "in" => self.inside(what),
            _ => self.here(what),
        };
        let _ = fs::remove_file(to);
        let begun = Instant::now();
        match (what, direction) {
            ("cp", "in") => self.cp(&self.of_here("source"), &of_pod("cp")),
            ("cp", _) => self.cp(&of_pod("cp"), &self.of_here("cp")),
            (_, "in") => self.cat_in(),
            _ => self.cat_out(),
        }
        begun.elapsed().as_secs_f64() * 1e3
    }

    fn of_here(&self, name: &str) -> String {
        self.here(name).display().to_string()
    }

    fn cp(&self, from: &str, to: &str) {
        let output = verb(self.node, &["cp", from, to]).output().unwrap();
        assert!(output.status.success(), "cp {from} {to}: {output:?}");
    }

    /// `cat FILE | podprobe exec -i POD -- sh -c 'cat >FILE'`
    fn cat_in(&self) {
        let source = self.here("source");
        let mut cat = Command::new("cat");
        let mut cat = cat.arg(source).stdout(Stdio::piped()).spawn().unwrap();
        let script = format!("cat >{DATA}/cat");
        let status = verb(self.node, &["exec", "-i", POD, "--", "sh", "-c", &script])
            .stdin(cat.stdout.take().unwrap())
            .status();
        assert!(status.unwrap().success() && cat.wait().unwrap().success());
    }

    /// `podprobe exec POD -- cat FILE >FILE`
    fn cat_out(&self) {
        let to = File::create(self.here("cat")).unwrap();
        let from = format!("{DATA}/cat");
        let status = verb(self.node, &["exec", POD, "--", "cat", &from])
            .stdout(to)
            .status();
        assert!(status.unwrap().success());
    }
}

fn of_pod(name: &str) -> String {
    format!("{POD}:{DATA}/{name}")
}
