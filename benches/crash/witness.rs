//! Those who watch the node while it is disturbed: whether a pod that nothing has happened to is ready all the time, and
//! whether anybody is told that something is not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use podprobe::cli::client::Client;
use podprobe::face::views::{PodView, Snapshot};

use crate::pods::{CONFIG, STEADY};
use crate::support::node::view;
use crate::support::program;

/// Between two attempts to reach the daemon.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two questions of a person.
const THOUGHT: Duration = Duration::from_millis(150);
/// The daemon answers nothing when no snapshot changes for so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// Restarts that each container of a steady pod must have had, by pod and container, and whether the pod has recovered.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    restarts: BTreeMap<(&'static str, &'static str), u32>,
    recovering: BTreeMap<&'static str, Instant>,
}

impl Ledger {
    /// Notes what follows from a kill that is to come: these containers of the pod start again.
    pub(crate) fn will_restart(&mut self, pod: &'static str, containers: &[&'static str]) {
        for container in containers {
            *self.restarts.entry((pod, container)).or_default() += 1;
        }
        self.recovering.insert(pod, Instant::now());
    }

    /// Takes the restarts of a snapshot for those that must have been, so that what is wrong is told once.
    pub(crate) fn accept(&mut self, snapshot: &Snapshot) {
        for (pod, containers) in STEADY {
            let view = view(snapshot, pod);
            for container in containers {
                if let Some(count) = view.and_then(|view| restarts(view, container)) {
                    self.restarts.insert((pod, container), count);
                }
            }
        }
    }

    pub(crate) fn is_recovering(&self, pod: &str) -> bool {
        self.recovering.contains_key(pod)
    }

    pub(crate) fn restarts(&self, pod: &'static str, container: &'static str) -> u32 {
        self.restarts.get(&(pod, container)).copied().unwrap_or(0)
    }

    /// All restarts that are to be.
    pub(crate) fn total(&self) -> u32 {
        self.restarts.values().sum()
    }
}

/// What the watchers have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Snapshots in which a pod that should be ready is not, or is not there.
    pub(crate) flips: Vec<String>,
    /// Answers that something is not there.
    pub(crate) lies: Vec<String>,
    /// Longest time in seconds from a kill of a pod's process until the pod was ready.
    pub(crate) slowest_recovery: f64,
}

struct Shared {
    root: PathBuf,
    is_over: AtomicBool,
    ledger: Mutex<Ledger>,
    seen: Mutex<Seen>,
    snapshots: AtomicU64,
    questions: AtomicU64,
    /// What was done last, for those who find something.
    last: Mutex<String>,
}

/// The watchers, from [`Witness::start`] to [`Witness::end`].
pub(crate) struct Witness {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Starts to watch. Every steady pod is ready now.
    pub(crate) fn start(root: &Path) -> Self {
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            is_over: AtomicBool::new(false),
            ledger: Mutex::default(),
            seen: Mutex::default(),
            snapshots: AtomicU64::new(0),
            questions: AtomicU64::new(0),
            last: Mutex::default(),
        });
        let threads = [watch as fn(&Shared), ask].map(|thread| {
            let shared = shared.clone();
            std::thread::spawn(move || thread(&shared))
        });
        Self {
            shared,
            threads: threads.into(),
        }
    }

    /// Changes or reads what is to be.
    pub(crate) fn ledger<T>(&self, of: impl FnOnce(&mut Ledger) -> T) -> T {
        of(&mut self.shared.ledger.lock().unwrap())
    }

    /// Notes what is done now.
    pub(crate) fn note(&self, what: &str) {
        *self.shared.last.lock().unwrap() = what.to_owned();
    }

    /// Numbers of snapshots and of questions so far.
    pub(crate) fn looks(&self) -> [u64; 2] {
        [&self.shared.snapshots, &self.shared.questions].map(|n| n.load(Ordering::Relaxed))
    }

    /// Ends the watchers, and returns what they have seen.
    pub(crate) fn end(mut self) -> Seen {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn last(&self) -> String {
        self.last.lock().unwrap().clone()
    }
}

/// Follows the daemon's snapshots, of one daemon after the other.
fn watch(shared: &Shared) {
    let mut known: Option<(Client, Arc<Snapshot>)> = None;
    while !shared.is_over() {
        let next = match known.take() {
            None => first_of(&shared.root),
            Some((mut client, snapshot)) => client
                .watch_for(snapshot.version, PATIENCE)
                .ok()
                .flatten()
                .map(|update| (client, Arc::new(snapshot.updated(update)))),
        };
        match &next {
            Some((_, snapshot)) => shared.look(snapshot),
            None => std::thread::sleep(PAUSE),
        }
        known = next;
    }
}

fn first_of(root: &Path) -> Option<(Client, Arc<Snapshot>)> {
    let mut client = Client::connect(root).ok()?;
    let snapshot = client.snapshot().ok()?;
    Some((client, snapshot))
}

impl Shared {
    fn look(&self, snapshot: &Snapshot) {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        let mut ledger = self.ledger.lock().unwrap();
        for (name, containers) in STEADY {
            let pod = view(snapshot, name);
            let is_ready = pod.is_some_and(|pod| pod.status.is_ready());
            let restarts = |container: &&&'static str| {
                pod.and_then(|pod| restarts(pod, container))
                    >= Some(ledger.restarts(name, container))
            };
            let has_restarted = containers.iter().all(|c| restarts(&c));
            match ledger.recovering.get(name) {
                Some(since) if is_ready && has_restarted => {
                    let took = since.elapsed().as_secs_f64();
                    let mut seen = self.seen.lock().unwrap();
                    seen.slowest_recovery = seen.slowest_recovery.max(took);
                    ledger.recovering.remove(name);
                }
                Some(_) => {}
                None if is_ready => {}
                None => {
                    let what = pod.map_or("is not there".to_owned(), state);
                    let flip = format!("{name} {what}, after {}", self.last());
                    self.seen.lock().unwrap().flips.push(flip);
                }
            }
        }
    }
}

pub(crate) fn restarts(pod: &PodView, container: &str) -> Option<u32> {
    let all = pod.status.init_container_statuses.iter();
    let mut all = all.chain(&pod.status.container_statuses);
    all.find(|c| c.name == container).map(|c| c.restart_count)
}

fn state(pod: &PodView) -> String {
    let of =
        |c: &podprobe::api::ContainerStatus| format!("{} ready={} {:?}", c.name, c.ready, c.state);
    let containers: Vec<String> = pod.status.container_statuses.iter().map(of).collect();
    format!("is not ready: {}", containers.join("; "))
}

/// A person who asks for things that are there.
fn ask(shared: &Shared) {
    let config = ["get", "configmap", CONFIG];
    let questions: [&[&str]; 9] = [
        &["get", "pod", "http"],
        &["get", "service", "web"],
        &["get", "endpoints", "web"],
        &["get", "deployment", "web"],
        &config,
        &["get", "cronjob", "tick"],
        &["describe", "pod", "init"],
        &["logs", "http"],
        &["get", "persistentvolumeclaim", "data"],
    ];
    for question in questions.iter().cycle() {
        if shared.is_over() {
            return;
        }
        let mut command = Command::new(program());
        command.args(*question).arg("--root").arg(&shared.root);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        shared.questions.fetch_add(1, Ordering::Relaxed);
        if ["not found", "no resources", "is not there"]
            .iter()
            .any(|no| said.contains(no))
        {
            let lie = format!(
                "{}: {}, after {}",
                question.join(" "),
                said.trim(),
                shared.last()
            );
            shared.seen.lock().unwrap().lies.push(lie);
        }
        std::thread::sleep(THOUGHT);
    }
}
