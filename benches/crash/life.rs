//! The scripted life of the node: what people do with it while its processes are killed, and what must be so in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use podprobe::api::PodPhase;
use podprobe::face::views::{PodView, Snapshot};

use crate::deployment::Deployment;
use crate::pods::{self, CONFIG, ENDING, FAILING, STEADY, stamps};
use crate::support::node::{Node, view};
use crate::support::program;
use crate::support::random::Random;
use crate::victims;
use crate::witness::{Ledger, restarts};

/// Address of the service of the Deployment `web`, which has clients all the time.
pub(crate) const WEB: &str = "10.96.0.50:80";
const ONE: &str = "10.96.0.51:80";
/// A visitor has ended this long after its file has gone.
const GOODBYE: Duration = Duration::from_secs(4);
/// Most Jobs that are there at a time.
const JOBS: usize = 4;

pub(crate) struct Life {
    web: Deployment,
    one: Deployment,
    config: u64,
    image: String,
    has_pulled: bool,
    /// Number of the newest visitor, and whether it is there.
    visitors: (usize, bool),
    /// Visitors that were ready before they were sent away, and when: each has been told to end.
    told: Vec<(String, Instant)>,
    /// Number of Jobs so far. The newest of them are there.
    jobs: usize,
    /// Minutes that began while the state of a CronJob was damaged. A run that nobody knows of is not made up.
    unknown_minutes: BTreeSet<u128>,
}

impl Life {
    /// Puts everything that stays.
    pub(crate) fn begin(node: &Node, image: &str) -> Self {
        let mut life = Self {
            web: Deployment::new("web", 2, None),
            one: Deployment::new("one", 1, None),
            config: 0,
            image: image.to_owned(),
            has_pulled: false,
            visitors: (0, false),
            told: Vec::new(),
            jobs: 0,
            unknown_minutes: BTreeSet::new(),
        };
        life.web.serve(node, WEB);
        life.one.serve(node, ONE);
        life.web.put(node);
        life.one.put(node);
        pods::put_all(node);
        node.add("tick", &pods::cron_job(node, "tick"));
        life
    }

    /// Does one thing, and says what.
    pub(crate) fn step(&mut self, node: &Node, random: &mut Random) -> String {
        match random.below(7) {
            0 => {
                self.web.next_version();
                self.web.put(node);
                "a new version of web".into()
            }
            1 => {
                self.one.next_version();
                self.one.put(node);
                "a new version of one".into()
            }
            2 => {
                self.config += 1;
                pods::put_config(node, self.config);
                format!("the ConfigMap with {}", self.config)
            }
            3 => self.visit(node),
            4 => self.pull(node),
            5 => self.work(node),
            _ => {
                let replicas = 2 + random.below(3) as u64;
                self.web.set_replicas(replicas);
                self.web.put(node);
                format!("web with {replicas} replicas")
            }
        }
    }

    /// Notes that the daemon is killed. A pod whose file is gone ends without its hook then, as with a kubelet.
    pub(crate) fn daemon_is_killed(&mut self) {
        self.told.retain(|(_, since)| since.elapsed() > GOODBYE);
    }

    fn visit(&mut self, node: &Node) -> String {
        let name = format!("visitor-{}", self.visitors.0);
        if self.visitors.1 {
            let client = podprobe::cli::client::Client::connect(node.root());
            let snapshot = client.and_then(|mut client| client.snapshot());
            let is_ready = |s: &Snapshot| view(s, &name).is_some_and(|p| p.status.is_ready());
            if snapshot.is_ok_and(|s| is_ready(&s)) {
                self.told.push((name.clone(), Instant::now()));
            }
            remove(node, &name);
            self.visitors = (self.visitors.0 + 1, false);
            format!("the end of {name}")
        } else {
            node.add(&name, &pods::visitor(node, &name));
            self.visitors.1 = true;
            format!("{name} comes")
        }
    }

    fn pull(&mut self, node: &Node) -> String {
        self.has_pulled = !self.has_pulled;
        if self.has_pulled {
            node.add("pulled", &pods::pulled(node, "pulled", &self.image));
            return "a pod whose image is pulled".into();
        }
        remove(node, "pulled");
        // Its container may use it still, and then it stays.
        let mut command = Command::new(program());
        command.args(["image", "rm", &self.image, "--root"]);
        let _ = command.arg(node.root()).output().unwrap();
        "the end of the pod whose image was pulled".into()
    }

    fn work(&mut self, node: &Node) -> String {
        if self.jobs >= JOBS {
            remove(node, &format!("job-{}", self.jobs - JOBS));
        }
        let name = format!("job-{}", self.jobs);
        node.add(&name, &pods::job(node, &name));
        self.jobs += 1;
        name
    }

    /// Makes what comes and goes be there, so that the end is known.
    pub(crate) fn rest(&mut self, node: &Node) {
        if self.visitors.1 {
            self.visit(node);
        }
        if !self.has_pulled {
            self.pull(node);
        }
    }

    /// What is not yet as the files ask.
    pub(crate) fn unmet(&self, node: &Node, ledger: &Ledger) -> Vec<String> {
        let snapshot = node.snapshot();
        let mut unmet = Vec::new();
        for (name, containers) in STEADY {
            let Some(pod) = view(&snapshot, name).filter(|pod| pod.status.is_ready()) else {
                unmet.push(format!("{name} is not ready"));
                continue;
            };
            for container in containers {
                let (is, wanted) = (restarts(pod, container), ledger.restarts(name, container));
                if is != Some(wanted) {
                    unmet.push(format!("{name}/{container}: restarts {is:?}, not {wanted}"));
                }
            }
        }
        for deployment in [&self.web, &self.one] {
            if !deployment.is_complete(&snapshot) {
                unmet.push(format!("{} is not complete", deployment.name()));
            }
        }
        if !view(&snapshot, "pulled").is_some_and(|pod| pod.status.is_ready()) {
            unmet.push("pulled is not ready".into());
        }
        let there = snapshot.pods.iter().map(|pod| name_of(pod));
        unmet.extend(
            there
                .filter(|name| name.starts_with("visitor"))
                .map(|name| format!("{name} is there")),
        );
        unmet.extend(self.jobs_that_run(&snapshot));
        unmet.extend(self.other_config(node));
        unmet
    }

    fn jobs_that_run(&self, snapshot: &Snapshot) -> Vec<String> {
        let newest = self.jobs.saturating_sub(JOBS)..self.jobs;
        let is_done = |name: &str| {
            let mut own = snapshot
                .pods
                .iter()
                .filter(|pod| name_of(pod).starts_with(&format!("{name}-")));
            own.any(|pod| pod.status.phase == PodPhase::Succeeded)
        };
        let names = newest.map(|n| format!("job-{n}"));
        names
            .filter(|name| !is_done(name))
            .map(|name| format!("{name} is not done"))
            .collect()
    }

    /// The file in the volume of the ConfigMap, as its container sees it.
    fn other_config(&self, node: &Node) -> Option<String> {
        let containers = victims::containers(node);
        let of = containers.iter().find(|c| c.pod == "files")?;
        let file = format!("/proc/{}/root/{CONFIG}/number", of.process.pid);
        let is = fs::read_to_string(file).unwrap_or_default();
        (is != self.config.to_string())
            .then(|| format!("the ConfigMap's file has {is:?}, not {}", self.config))
    }

    /// Notes that the state of a CronJob was damaged between these two times.
    pub(crate) fn state_is_damaged(&mut self, from: SystemTime, to: SystemTime) {
        self.unknown_minutes
            .extend(minute_of(from) + 1..=minute_of(to));
    }

    /// What has happened that should not have.
    pub(crate) fn wrong(&self, node: &Node, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, containers) in STEADY {
            for container in containers {
                let starts = node.stamps(&stamps(name, container), "start").len();
                let wanted = ledger.restarts(name, container) as usize + 1;
                if starts != wanted {
                    wrong.push(format!("{name}/{container}: {starts} starts, not {wanted}"));
                }
            }
        }
        for (name, shortest) in [ENDING, FAILING] {
            // A status follows a start a moment later, so an equal pair is waited for.
            let look = || {
                let starts = node.stamps(&stamps(name, "main"), "start");
                let count = view(&node.snapshot(), name).and_then(|pod| restarts(pod, "main"));
                (
                    count.map(|n| n as usize + 1) == Some(starts.len()),
                    starts,
                    count,
                )
            };
            let end = Instant::now() + GOODBYE;
            let mut found = look();
            while !found.0 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(50));
                found = look();
            }
            let (is_equal, starts, count) = found;
            if !is_equal {
                wrong.push(format!(
                    "{name}: {} starts, restart count {count:?}",
                    starts.len()
                ));
            }
            let early = starts
                .windows(2)
                .filter(|of| ((of[1] - of[0]) as f64) < shortest * 1e9);
            wrong.extend(early.map(|of| {
                format!(
                    "{name}: {} ms between two starts",
                    (of[1] - of[0]) / 1_000_000
                )
            }));
        }
        for job in (0..self.jobs).map(|n| format!("job-{n}")) {
            let starts = node.stamps(&stamps(&job, "main"), "start").len();
            // One that was taken away at once may not have begun.
            let is_there = self.jobs.saturating_sub(JOBS) <= job["job-".len()..].parse().unwrap();
            if starts > 1 || (is_there && starts == 0) {
                wrong.push(format!("{job}: {starts} starts"));
            }
        }
        let ticks = node.stamps(&stamps("tick", "main"), "start");
        wrong.extend(other_minutes(&ticks, &self.unknown_minutes));
        for (visitor, _) in &self.told {
            if node.stamps(&stamps(visitor, "bye"), "start").is_empty() {
                wrong.push(format!("{visitor}: its preStop hook was not called"));
            }
        }
        wrong
    }

    /// Takes everything away.
    pub(crate) fn end(&self, node: &Node) {
        for entry in fs::read_dir(node.layout.pods_dir()).unwrap().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn minute_of(time: SystemTime) -> u128 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u128::from(since.expect("the clock is set").as_secs()) / 60
}

/// Minutes in which the CronJob has begun not once but twice, or never although its state was known.
fn other_minutes(starts: &[u128], unknown: &BTreeSet<u128>) -> Vec<String> {
    let mut minutes: BTreeMap<u128, usize> = BTreeMap::new();
    for start in starts {
        *minutes.entry(start / 60_000_000_000).or_default() += 1;
    }
    let (Some(first), Some(last)) = (minutes.keys().next(), minutes.keys().next_back()) else {
        return Vec::new();
    };
    let count = |minute| minutes.get(&minute).copied().unwrap_or(0);
    let is_right = |minute: &u128| match count(*minute) {
        0 => unknown.contains(minute),
        starts => starts == 1,
    };
    let other = (*first..=*last).filter(|minute| !is_right(minute));
    other
        .map(|minute| format!("tick: {} starts in the minute {minute}", count(minute)))
        .collect()
}

fn remove(node: &Node, name: &str) {
    let file = node.layout.pods_dir().join(format!("{name}.json"));
    fs::remove_file(file).unwrap();
}

fn name_of(pod: &PodView) -> &str {
    pod.object["metadata"]["name"].as_str().unwrap_or_default()
}
