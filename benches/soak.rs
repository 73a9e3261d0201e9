//! `MINUTES` (default 60) of misbehaving targets: 25 pods of 4 containers with 3 probes each, of all kinds, against a real
//! daemon; and what must hold meanwhile and at the end (BENCHMARKS.md). `SEED` repeats the targets' part of a run.
//!
//! Chaos for a minute, calm, chaos for the rest, calm. In both calms everything must be as the targets say, and between
//! them threads, descriptors and memory must not have grown. Ends with 1 when a check fails.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use support::figures::Report;
use support::leftovers::{self, Zombies};
use support::node::{Node, ask_targets};
use support::promises::Moment;
use support::soak_pods::{
    CONTAINERS, LONGEST_PERIOD, PODS, PROBES, calm_file, container_name, pod, pod_name, port,
    stamps,
};
use support::usage::{Holdings, Memory, cpu, difference, memory, total, written};
use support::{CEILING, program, setting};

/// Between two looks.
const TICK: Duration = Duration::from_secs(10);
/// In calm every container must be ready within this.
const SETTLING: Duration = Duration::from_secs(60);
/// For a program that is not the static one: glibc has an arena for every few threads, and each keeps much of what it held.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");
/// What the daemon's memory may grow by between the two calms, in kilobytes: what is bounded and not yet full after a
/// minute (startup histories of 32 runs each, 1000 events), and a tenth for what an allocator keeps.
const MEMORY_TOLERANCE: u64 = 2048;

fn main() {
    support::begin_with_run_in_memory();
    let all_hold = soak();
    std::process::exit(i32::from(!all_hold));
}

fn soak() -> bool {
    let minutes = setting("MINUTES", 60).max(1) as u64;
    let seed = setting(
        "SEED",
        (support::unix_ns() / 1_000_000_000 % 1_000_000) as usize,
    );
    println!(
        "soak of {}: {minutes} min, {PODS} pods, {PROBES} probes, SEED={seed}",
        program().display()
    );
    let config = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}});
    let mut soak = Soak::new(Node::start_with("embedded", &config, &[ONE_ARENA]));
    for n in 0..PODS {
        soak.node.add(&pod_name(n), &pod(&soak.node, seed, n));
    }
    let first = Duration::from_secs(60.min(minutes * 30));
    soak.chaos(first);
    let before = soak.calm("after the first minute");
    soak.chaos(Duration::from_secs(minutes * 60) - first);
    let after = soak.calm("at the end");
    soak.compare(&before, &after);
    soak.report.note(format!(
        "{minutes} min, SEED={seed}, {PODS} pods × {CONTAINERS} containers × 3 probes; memory may grow by {MEMORY_TOLERANCE} kB"
    ));
    for text in std::mem::take(&mut soak.errors) {
        soak.report.note(format!("errored: {text}"));
    }
    soak.end()
}

struct Soak {
    node: Node,
    report: Report,
    begun: Instant,
    last: Option<Moment>,
    cpu: (Instant, u64),
    zombies: Zombies,
    broken: Vec<String>,
    stuck: Vec<String>,
    undead: Vec<String>,
    errors: BTreeSet<String>,
}

/// What the daemon holds when all is calm.
struct Level {
    holdings: Holdings,
    memory: Memory,
}

impl Soak {
    fn new(node: Node) -> Self {
        let cpu = (Instant::now(), 0);
        let lists = [const { Vec::new() }; 3];
        let [broken, stuck, undead] = lists;
        Self {
            node,
            report: Report::new("soak"),
            begun: cpu.0,
            last: None,
            cpu,
            zombies: Zombies::new(),
            broken,
            stuck,
            undead,
            errors: BTreeSet::new(),
        }
    }

    fn chaos(&mut self, length: Duration) {
        let _ = fs::remove_file(calm_file(&self.node));
        let begun = Instant::now();
        let end = begun + length;
        let bytes = |soak: &Self| {
            let disk = written(soak.node.daemon.pid);
            [soak.node.log().len() as u64, disk]
        };
        let before = bytes(self);
        self.last = None;
        while let left = end.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            std::thread::sleep(left.min(TICK));
            if left >= TICK {
                self.look();
            }
        }
        let days = begun.elapsed().as_secs_f64() / 86_400.0;
        let after = bytes(self);
        for (n, what) in ["its log", "written to the disk, with the log"]
            .iter()
            .enumerate()
        {
            let megabytes = after[n].saturating_sub(before[n]) as f64 / 1e6;
            let row = format!("daemon in chaos: {what}");
            self.report.add(&row, "MB a day", None, megabytes / days);
        }
    }

    /// One look at everything while the targets misbehave, and a line about it.
    fn look(&mut self) {
        self.node.assert_alive();
        let now = Moment::now(&self.node);
        let broken = now.broken();
        let stuck = self
            .last
            .as_ref()
            .map(|last| now.stuck(last, 1))
            .unwrap_or_default();
        let zombies = leftovers::zombies(&self.node);
        let undead: Vec<String> = zombies
            .intersection(&self.zombies)
            .map(|z| format!("{z:?}"))
            .collect();
        let pid = self.node.daemon.pid;
        let (held, pss) = (Holdings::now(pid), memory(pid).pss);
        let (read, ns) = (Instant::now(), cpu(pid).0);
        let cores = ns.saturating_sub(self.cpu.1) as f64
            / read.duration_since(self.cpu.0).as_nanos() as f64;
        let (threads, descriptors) = (total(&held.threads), total(&held.descriptors));
        println!(
            "{:>5} s  ready {:>3}/{}  restarts {:>5}  runs {:>7}  threads {threads}  descriptors {descriptors}  PSS {pss} kB  cores {cores:.2}",
            self.begun.elapsed().as_secs(),
            now.count(|c| u64::from(c.ready)),
            PODS * CONTAINERS,
            now.count(|c| u64::from(c.restart_count)),
            now.runs.values().sum::<u64>(),
        );
        for text in broken.iter().chain(&stuck).chain(&undead) {
            println!("         NOT AS IT SHOULD BE: {text}");
        }
        for (name, unit, value) in [
            ("threads", "", threads as f64),
            ("descriptors", "", descriptors as f64),
            ("PSS", "kB", pss as f64),
            ("processor", "cores", cores),
        ] {
            self.report
                .add(&format!("daemon in chaos: {name}"), unit, None, value);
        }
        self.broken.extend(broken);
        self.stuck.extend(stuck);
        self.undead.extend(undead);
        self.errors.extend(now.errors());
        (self.last, self.cpu, self.zombies) = (Some(now), (read, ns), zombies);
    }

    /// Makes the targets behave, checks that everything is as they say, and measures.
    fn calm(&mut self, when: &str) -> Level {
        fs::write(calm_file(&self.node), "").unwrap();
        println!("\ncalm, {when}");
        let begun = Instant::now();
        let all = (PODS * CONTAINERS) as u64;
        let ready = |node: &Node| {
            Moment::now(node).count(|c| u64::from(c.ready && c.started == Some(true)))
        };
        while ready(&self.node) < all && begun.elapsed() < SETTLING {
            self.node.assert_alive();
            std::thread::sleep(Duration::from_millis(500));
        }
        let took = begun.elapsed().as_secs_f64();
        // Workers of instances that have just gone end, events are written.
        std::thread::sleep(Duration::from_secs(5));
        let first = Moment::now(&self.node);
        let holdings = Holdings::at_rest(self.node.daemon.pid);
        let memory = memory(self.node.daemon.pid);
        let zombies = leftovers::zombies(&self.node);
        std::thread::sleep(Duration::from_secs(3 * LONGEST_PERIOD));
        let second = Moment::now(&self.node);
        let undead: Zombies = zombies
            .intersection(&leftovers::zombies(&self.node))
            .copied()
            .collect();
        let says = |what: &str| format!("{when}: {what}");
        let list = |found: &[String]| {
            if found.is_empty() {
                "none".into()
            } else {
                found.join("; ")
            }
        };
        let n = second.count(|c| u64::from(c.ready && c.started == Some(true)));
        self.report.check(
            &says("every container is ready"),
            n == all,
            format!("{n} of {all}, {took:.1} s after calm came"),
        );
        let (good, bad) = self.ask_targets();
        self.report.check(
            &says("and its target says so"),
            good == n as usize && n == all,
            format!("{good} say so; {}", list(&bad)),
        );
        self.check_client(&says("so does `podprobe get pods`"), &second);
        self.report.check(
            &says("every status says what its probes found"),
            second.broken().is_empty(),
            list(&second.broken()),
        );
        self.check_restarts(
            &says("restart counts are the starts that the targets recorded"),
            &second,
        );
        let calm = second.count(|c| u64::from(c.restart_count))
            - first.count(|c| u64::from(c.restart_count));
        self.report.check(
            &says("nothing restarts in calm"),
            calm == 0,
            format!("{calm} restarts"),
        );
        let stuck = second.stuck(&first, 2);
        self.report
            .check(&says("every probe goes on"), stuck.is_empty(), list(&stuck));
        let workers = second.gauge("podprobe_prober_workers");
        self.report.check(
            &says("one worker a probe"),
            workers == PROBES as f64,
            format!("{workers} of {PROBES}"),
        );
        self.report.check(
            &says("no zombie stays"),
            undead.is_empty(),
            format!("{undead:?}"),
        );
        let [shims, containers, holders] = self
            .node
            .processes()
            .map(|p| p.into_iter().filter(|p| p.alive()).count());
        let expected = (PODS * CONTAINERS, PODS * CONTAINERS, PODS);
        self.report.check(
            &says("one shim a container, one holder a pod"),
            (shims, containers, holders) == expected,
            format!("{shims}, {containers}, {holders}"),
        );
        println!();
        Level { holdings, memory }
    }

    /// How many targets say that they are well, and who does not.
    fn ask_targets(&self) -> (usize, Vec<String>) {
        let ports: Vec<u16> = (0..CONTAINERS).map(port).collect();
        let snapshot = self.node.snapshot();
        let (mut good, mut bad) = (0, Vec::new());
        for pod in &snapshot.pods {
            let Some((_, state)) = self.node.container_if_any(pod) else {
                continue;
            };
            let Some(process) = state.process else {
                continue;
            };
            let answers =
                ["/startz", "/readyz", "/healthz"].map(|path| ask_targets(process, &ports, path));
            for n in 0..CONTAINERS {
                match answers.iter().find(|of| !of[n].contains(" 200 ")) {
                    None => good += 1,
                    Some(of) => bad.push(format!(
                        "{} {}: {}",
                        pod.object["metadata"]["name"],
                        container_name(n),
                        of[n]
                    )),
                }
            }
        }
        (good, bad)
    }

    /// What a person sees: each line 4/4 Running, with the restarts of the status.
    fn check_client(&mut self, name: &str, now: &Moment) {
        let out = Command::new(program())
            .args(["get", "pods", "--root"])
            .arg(self.node.root())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|l| l.split_whitespace().collect())
            .collect();
        let good = lines
            .iter()
            .filter(|l| l[1..3] == ["4/4", "Running"])
            .count();
        let restarts: u64 = lines.iter().map(|l| l[3].parse::<u64>().unwrap_or(0)).sum();
        let expected = now.count(|c| u64::from(c.restart_count));
        self.report.check(
            name,
            good == PODS && restarts == expected,
            format!("{good} of {PODS} lines, {restarts} of {expected} restarts"),
        );
    }

    fn check_restarts(&mut self, name: &str, now: &Moment) {
        let (mut bad, mut ends) = (Vec::new(), 0);
        for n in 0..PODS {
            let full = format!("{}-node", pod_name(n));
            let status = now
                .snapshot
                .pods
                .iter()
                .find(|p| p.object["metadata"]["name"] == full.as_str())
                .map(|p| &p.status);
            for c in 0..CONTAINERS {
                let starts = self.node.stamps(&stamps(n, c), "start").len();
                ends += self.node.stamps(&stamps(n, c), "exit").len();
                let count = status
                    .and_then(|s| s.container(&container_name(c)))
                    .map(|s| s.restart_count);
                if count.map(|n| n as usize + 1) != Some(starts) {
                    bad.push(format!(
                        "{full}/{}: {starts} starts, restart count {count:?}",
                        container_name(c)
                    ));
                }
            }
        }
        let restarts = now.count(|c| u64::from(c.restart_count));
        let found = format!(
            "{restarts} restarts, {ends} of them because the target ended by itself; {}",
            bad.join("; ")
        );
        self.report
            .check(name, bad.is_empty() && restarts > 0, found);
    }

    fn compare(&mut self, before: &Level, after: &Level) {
        let (b, a) = (&before.holdings, &after.holdings);
        for (what, b, a) in [
            ("threads", &b.threads, &a.threads),
            ("descriptors", &b.descriptors, &a.descriptors),
        ] {
            let found = format!("{} -> {} {}", total(b), total(a), difference(b, a));
            self.report.check(
                &format!("as many {what} at the end as after the first minute"),
                total(b) == total(a),
                found,
            );
        }
        // The PSS would also tell of other processes of the same program, which come and go.
        let [first, last] = [before.memory, after.memory];
        let limit = first.anonymous + first.anonymous / 10 + MEMORY_TOLERANCE;
        let found = format!(
            "{} -> {} kB of no file, limit {limit} kB; PSS {} -> {} kB",
            first.anonymous, last.anonymous, first.pss, last.pss
        );
        let is_level = last.anonymous <= limit;
        self.report.check("memory is level", is_level, found);
        let found = |found: &[String]| {
            format!(
                "{}{}",
                found.len(),
                found.first().map(|f| format!(": {f}")).unwrap_or_default()
            )
        };
        self.report.check(
            "no update was lost or late in the chaos",
            self.broken.is_empty(),
            found(&self.broken),
        );
        self.report.check(
            "no worker was stuck in the chaos",
            self.stuck.is_empty(),
            found(&self.stuck),
        );
        self.report.check(
            "no zombie stayed in the chaos",
            self.undead.is_empty(),
            found(&self.undead),
        );
        let now = Moment::now(&self.node);
        let panics = now.sum("podprobe_panics_total", "part");
        self.report
            .check("nothing panicked", panics == 0, panics.to_string());
        for (row, name, label) in [
            (
                "runs that succeeded",
                "prober_probe_total",
                "result=\"successful\"",
            ),
            (
                "runs that failed",
                "prober_probe_total",
                "result=\"failed\"",
            ),
            (
                "runs that errored",
                "podprobe_prober_probe_errors_total",
                "",
            ),
        ] {
            self.report.add(row, "", None, now.sum(name, label) as f64);
        }
        self.report.add(
            "restarts",
            "",
            None,
            now.count(|c| u64::from(c.restart_count)) as f64,
        );
        for (row, level) in [
            ("daemon in calm, first", before),
            ("daemon in calm, last", after),
        ] {
            self.report.add(
                &format!("{row}: threads"),
                "",
                None,
                total(&level.holdings.threads) as f64,
            );
            self.report.add(
                &format!("{row}: descriptors"),
                "",
                None,
                total(&level.holdings.descriptors) as f64,
            );
            self.report
                .add(&format!("{row}: PSS"), "kB", None, level.memory.pss as f64);
        }
    }

    /// Removes the pods, ends the daemon, and looks for what is left.
    fn end(mut self) -> bool {
        for n in 0..PODS {
            fs::remove_file(
                self.node
                    .layout
                    .pods_dir()
                    .join(format!("{}.json", pod_name(n))),
            )
            .unwrap();
        }
        let begun = Instant::now();
        let left = |node: &Node| {
            (
                node.snapshot().pods.len(),
                node.processes().iter().map(Vec::len).sum::<usize>(),
            )
        };
        // The last cgroup goes with the listing after the last process, up to a second later.
        let root = self.node.root().to_owned();
        let cleared = |node: &Node| left(node) == (0, 0) && leftovers::cgroups(&root).is_empty();
        while !cleared(&self.node) && begun.elapsed() < CEILING {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (pods, records) = left(&self.node);
        let found = format!(
            "{pods} pods, {records} processes on record after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        self.report
            .check("removed pods go", (pods, records) == (0, 0), found);
        let status = self.node.stop();
        self.report.check(
            "the daemon ends when told",
            status.success(),
            status.to_string(),
        );
        for (what, left) in [
            ("process", leftovers::processes(&root)),
            ("cgroup", leftovers::cgroups(&root)),
            ("mount", leftovers::mounts(&root)),
        ] {
            self.report.check(
                &format!("no {what} is left"),
                left.is_empty(),
                if left.is_empty() {
                    "none".into()
                } else {
                    left.join("; ")
                },
            );
        }
        self.report.finish();
        self.report.all_hold()
    }
}
