//! Kills of podprobe's processes and of first processes of containers, at random moments: a short form of `make crash` for
//! machines on which that does not run.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::boot::say;
use crate::case::{Verdict, until, within};
use crate::node::{ADDRESS, Node, Process, processes, read};
use crate::pods::{Files, TOOLS, container};
use crate::sys;
use crate::tools::get;

const STRIKES: usize = 40;
/// The choices of a run. Another number makes another run.
const SEED: u64 = 25;
const KILL: i32 = 9;
/// The longest time between two kills, in ms.
const BETWEEN: u64 = 1500;
/// The longest time without a daemon, in ms.
const WITHOUT_DAEMON: u64 = 600;
/// A pod that was killed is ready again within this time.
const RECOVERY: Duration = Duration::from_secs(60);

/// The pods that are killed: name, the port of its container, and its probes.
const STEADY: [(&str, &str, &str); 3] = [
    (
        "http",
        "8001",
        "    readinessProbe: {httpGet: {port: 8001}, periodSeconds: 1}\n    livenessProbe: {httpGet: {port: 8001}, periodSeconds: 1, timeoutSeconds: 10}",
    ),
    (
        "tcp",
        "8002",
        "    startupProbe: {tcpSocket: {port: 8002}, periodSeconds: 1, failureThreshold: 60}\n    readinessProbe: {tcpSocket: {port: 8002}, periodSeconds: 1}",
    ),
    (
        "exec",
        "8003",
        "    readinessProbe: {exec: {command: [/guest, get, localhost, '8003']}, periodSeconds: 2, timeoutSeconds: 10}",
    ),
];

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

/// Numbers that look random (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What must hold of the pods, and what did not.
#[derive(Default)]
struct Ledger {
    /// The restarts of each steady pod that the kills have caused.
    restarts: BTreeMap<&'static str, usize>,
    /// The pod that recovers from a kill.
    recovers: Option<&'static str>,
    looks: usize,
    wrong: Vec<String>,
}

/// A service of two pods that nobody kills, a pod for each type of probe, and a sidecar.
fn life(files: &mut Files<'_>) -> Result<(), String> {
    let web = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: 2\n  selector: {{matchLabels: {{app: web}}}}\n\
         \x20 template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      containers:\n\
         \x20     - name: c\n        image: {TOOLS}\n        imagePullPolicy: Never\n        command: [/guest, serve, '8080', web]\n\
         \x20       readinessProbe: {{httpGet: {{port: 8080}}, periodSeconds: 1}}\n\
         ---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
         spec: {{type: NodePort, clusterIP: 10.96.0.88, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080, nodePort: 30089}}]}}\n"
    );
    files.put("web", &web)?;
    for (name, port, probes) in STEADY {
        files.tool(name, &["serve", port, name], probes)?;
    }
    let sidecar = container("log", &["idle"], "    restartPolicy: Always");
    let main = container("c", &["serve", "8004", "both"], "");
    files.pod(
        "sidecar",
        &format!("  initContainers:\n{sidecar}  containers:\n{main}"),
    )
}

/// Nothing is started again but what was killed, no other pod is unready or missing for a moment, and no client loses anything.
pub fn kills(node: &Node) -> Verdict {
    let usual = read("/etc/podprobe/config.json")?;
    let short = "{\"crashLoopBackOff\": {\"maxContainerRestartPeriod\": \"2s\"}, ";
    node.stop()?;
    node.start(&usual.replacen('{', short, 1))?;
    let verdict = with_short_waits(node);
    node.stop()?;
    node.start(&usual)?;
    verdict
}

fn with_short_waits(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    life(&mut files)?;
    until("the service", || get(ADDRESS, "30089"))?;
    node.wait_ready(&["http", "tcp", "exec", "sidecar"])?;
    until("both pods of web", || {
        let listed = node.ask(&["get", "pods"])?;
        match listed
            .lines()
            .filter(|l| l.contains("web-") && l.contains("1/1"))
            .count()
        {
            2 => Ok(()),
            _ => Err(listed),
        }
    })?;
    let ledger = Mutex::new(Ledger::default());
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lost = Mutex::new(Vec::new());
    let mut counts = BTreeMap::new();
    let struck = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (address, port) in [("10.96.0.88", "80"), (ADDRESS, "30089")] {
                    asked.fetch_add(1, Ordering::Relaxed);
                    if let Err(e) = get(address, port) {
                        lost.lock().unwrap().push(e);
                    }
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                look(node, &ledger);
                thread::sleep(Duration::from_millis(200));
            }
        });
        let struck = strike_all(node, &ledger, &mut counts);
        is_over.store(true, Ordering::Relaxed);
        struck
    });
    struck?;
    let ledger = ledger.into_inner().unwrap();
    let lost = lost.into_inner().unwrap();
    let restarts: usize = ledger.restarts.values().sum();
    say(&format!(
        "note kills: {counts:?}, {restarts} restarts by them; {} looks; clients lost {} of {}",
        ledger.looks,
        lost.len(),
        asked.load(Ordering::Relaxed)
    ));
    let wrong: Vec<_> = ledger.wrong.iter().chain(&lost).take(5).collect();
    if !wrong.is_empty() {
        return Err(format!("{wrong:?}").into());
    }
    files.end()?;
    Ok(nothing_left()?)
}

fn strike_all(
    node: &Node,
    ledger: &Mutex<Ledger>,
    counts: &mut BTreeMap<Target, usize>,
) -> Result<(), String> {
    let mut random = Random(SEED);
    for _ in 0..STRIKES {
        thread::sleep(Duration::from_millis(random.below(BETWEEN)));
        let target = CHOICE[random.below(CHOICE.len() as u64) as usize];
        if strike(node, ledger, target, &mut random)? {
            *counts.entry(target).or_default() += 1;
        }
    }
    // The last kill may have been of something that costs a moment later.
    thread::sleep(Duration::from_secs(5));
    Ok(())
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
        let mut ledger = ledger.lock().unwrap();
        ledger.recovers = Some(pod);
        *ledger.restarts.entry(pod).or_default() += 1;
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

/// Waits until the pod has started again as often as it was killed, and is ready.
fn recover(node: &Node, ledger: &Mutex<Ledger>, pod: &'static str) -> Result<(), String> {
    let wanted = ledger.lock().unwrap().restarts[pod];
    within(RECOVERY, &format!("{pod} to be ready again"), || {
        let restarts = node.field(pod, ".status.containerStatuses[0].restartCount")?;
        let ready = node.field(pod, ".status.containerStatuses[0].ready")?;
        match (restarts.trim().parse::<usize>(), ready.trim()) {
            (Ok(n), "true") if n == wanted => Ok(()),
            _ => Err(format!("{restarts} restarts of {wanted}, ready: {ready}")),
        }
    })?;
    ledger.lock().unwrap().recovers = None;
    Ok(())
}

/// Looks once at all pods. What is asked while a pod recovers, or before it did, is not judged for it.
fn look(node: &Node, ledger: &Mutex<Ledger>) {
    let before = ledger.lock().unwrap().recovers;
    let said = node.run(&["get", "pods", "--no-headers"]);
    // No daemon answers at the moment.
    if said.code != 0 {
        return;
    }
    let mut ledger = ledger.lock().unwrap();
    ledger.looks += 1;
    let excused = [before, ledger.recovers];
    let mut all = BTreeMap::new();
    for line in said.out.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [name, ready, status, restarts, ..] = words[..] {
            all.insert(
                name.trim_end_matches("-vm").to_owned(),
                (ready, status, restarts),
            );
        }
    }
    let web = all.keys().filter(|name| name.starts_with("web-")).count();
    if web != 2 {
        ledger
            .wrong
            .push(format!("{web} pods of web: {}", said.out));
    }
    for name in ["http", "tcp", "exec", "sidecar"] {
        if !all.contains_key(name) {
            ledger.wrong.push(format!("no pod {name}: {}", said.out));
        }
    }
    for (name, (ready, status, restarts)) in &all {
        if excused.iter().flatten().any(|pod| pod == name) {
            continue;
        }
        let wanted = ledger.restarts.get(name.as_str()).copied().unwrap_or(0);
        let is_whole = ready.split_once('/').is_some_and(|(a, b)| a == b);
        if !is_whole || *status != "Running" || restarts.parse() != Ok(wanted) {
            let now = format!("{name} {ready} {status}, {restarts} restarts of {wanted}");
            ledger.wrong.push(now);
        }
    }
}

fn one_of(random: &mut Random, mut all: Vec<Process>) -> Option<Process> {
    all.sort_by_key(|process| process.0);
    let place = (!all.is_empty()).then(|| random.below(all.len() as u64))?;
    Some(all.swap_remove(place as usize))
}

/// The processes of podprobe whose command line fits.
fn by_words(fits: impl Fn(&[&str]) -> bool) -> Vec<Process> {
    let is_one = |process: &Process| {
        let line = process.file("cmdline");
        let words: Vec<_> = line.split('\0').collect();
        let is_ours = words[0].ends_with("podprobe") || words[0] == "/proc/self/exe";
        is_ours && fits(&words)
    };
    processes().into_iter().filter(is_one).collect()
}

/// True if this holder is that of the pod.
fn is_of(words: &[&str], pod: &str) -> bool {
    let record = words.get(2).map(|dir| format!("{dir}/sandbox.json"));
    let record = record.and_then(|file| fs::read_to_string(file).ok());
    record.is_some_and(|text| text.contains(&format!("\"name\":\"{pod}-vm\"")))
}

/// Of a node without pods no process of a pod remains, no record, no cgroup and no interface.
fn nothing_left() -> Result<(), String> {
    let begun = Instant::now();
    until("nothing of the pods to be left", || {
        let roles = ["shim", "sandbox"];
        let left = by_words(|w| w.get(1).is_some_and(|role| roles.contains(role)));
        let mut left: Vec<String> = left.iter().map(|p| p.file("cmdline")).collect();
        for dir in ["containers", "sandboxes"] {
            let entries = fs::read_dir(format!("/run/podprobe/{dir}"));
            let entries = entries.into_iter().flatten().flatten();
            left.extend(entries.map(|e| e.path().display().to_string()));
        }
        let ports = fs::read_dir("/sys/class/net/podprobe0/brif");
        left.extend(
            ports
                .into_iter()
                .flatten()
                .flatten()
                .map(|e| e.path().display().to_string()),
        );
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("after {:?}: {left:?}", begun.elapsed())),
        }
    })
}
