//! A small life of a node, whose pods and clients are watched while a case does something to podprobe: kills of its processes, or
//! damage to its records. Short forms of `make crash` for machines on which that does not run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::boot::say;
use crate::case::{Verdict, until, within};
use crate::node::{ADDRESS, Node, Process, processes, read};
use crate::pods::{Files, TOOLS, container};
use crate::tools::get;

/// Pods with a type of probe each: name, the port of its container, and its probes.
pub const STEADY: [(&str, &str, &str); 3] = [
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

/// A pod that was killed is ready again within this time.
const RECOVERY: Duration = Duration::from_secs(60);

/// Numbers that look random (xorshift64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What must hold of the pods, and what did not.
#[derive(Default)]
pub struct Ledger {
    /// The restarts of each steady pod that the kills have caused.
    restarts: BTreeMap<&'static str, usize>,
    /// The pod that recovers from a kill.
    recovers: Option<&'static str>,
    /// What is done at the moment, for messages.
    pub doing: String,
    /// Directories of records with damage that nobody can repair: kept for a person to look at.
    set_aside: Vec<PathBuf>,
    looks: usize,
    wrong: Vec<String>,
}

impl Ledger {
    /// Notes a kill that starts this pod's container again. The pod is not judged until it has recovered.
    pub fn will_restart(&mut self, pod: &'static str) {
        self.recovers = Some(pod);
        *self.restarts.entry(pod).or_default() += 1;
    }

    /// Notes damage to a file. What nobody can repair, such as the record of a container that has ended, podprobe keeps under
    /// another name.
    pub fn may_set_aside(&mut self, file: &Path) {
        let dir = file.parent().unwrap_or(file).display();
        self.set_aside.push(format!("{dir}.corrupt").into());
    }

    fn is_wrong(&mut self, what: &str) {
        let doing = &self.doing;
        self.wrong.push(format!("{doing} {what}"));
    }
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

/// Does something to podprobe while the life goes on. Nothing is started again but what `deed` has in its ledger, no other pod is unready or
/// missing for a moment, no client loses anything, and in the end nothing is left.
pub fn watched(
    node: &Node,
    what: &str,
    deed: impl FnOnce(&Mutex<Ledger>) -> Result<String, String>,
) -> Verdict {
    let usual = read("/etc/podprobe/config.json")?;
    let short = "{\"crashLoopBackOff\": {\"maxContainerRestartPeriod\": \"2s\"}, ";
    node.stop()?;
    node.start(&usual.replacen('{', short, 1))?;
    let verdict = with_short_waits(node, what, deed);
    node.stop()?;
    node.start(&usual)?;
    verdict
}

fn with_short_waits(
    node: &Node,
    what: &str,
    deed: impl FnOnce(&Mutex<Ledger>) -> Result<String, String>,
) -> Verdict {
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
    let done = thread::scope(|scope| {
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
        let done = deed(&ledger);
        is_over.store(true, Ordering::Relaxed);
        done
    });
    let done = done?;
    let ledger = ledger.into_inner().unwrap();
    let lost = lost.into_inner().unwrap();
    let restarts: usize = ledger.restarts.values().sum();
    say(&format!(
        "note {what}: {done}, {restarts} restarts by them; {} looks; clients lost {} of {}",
        ledger.looks,
        lost.len(),
        asked.load(Ordering::Relaxed)
    ));
    let wrong: Vec<_> = ledger.wrong.iter().chain(&lost).take(5).collect();
    if !wrong.is_empty() {
        return Err(format!("{wrong:?}").into());
    }
    files.end()?;
    Ok(nothing_left(&ledger.set_aside)?)
}

/// Waits until the pod has started again as often as it was killed, and is ready.
pub fn recover(node: &Node, ledger: &Mutex<Ledger>, pod: &'static str) -> Result<(), String> {
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

/// Waits until all pods were looked at so many times more.
pub fn wait_for_looks(ledger: &Mutex<Ledger>, more: usize) -> Result<(), String> {
    let wanted = ledger.lock().unwrap().looks + more;
    until("looks at the pods", || match ledger.lock().unwrap().looks {
        looks if looks >= wanted => Ok(()),
        looks => Err(format!("{looks} of {wanted}")),
    })
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
        ledger.is_wrong(&format!("{web} pods of web: {}", said.out));
    }
    for name in ["http", "tcp", "exec", "sidecar"] {
        if !all.contains_key(name) {
            ledger.is_wrong(&format!("no pod {name}: {}", said.out));
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
            ledger.is_wrong(&now);
        }
    }
}

/// The processes of podprobe whose command line fits.
pub fn by_words(fits: impl Fn(&[&str]) -> bool) -> Vec<Process> {
    let is_one = |process: &Process| {
        let line = process.file("cmdline");
        let words: Vec<_> = line.split('\0').collect();
        let is_ours = words[0].ends_with("podprobe") || words[0] == "/proc/self/exe";
        is_ours && fits(&words)
    };
    processes().into_iter().filter(is_one).collect()
}

/// Of a node without pods no process of a pod remains, no record but those that were set aside, and no interface.
fn nothing_left(set_aside: &[PathBuf]) -> Result<(), String> {
    let begun = Instant::now();
    until("nothing of the pods to be left", || {
        let roles = ["shim", "sandbox"];
        let left = by_words(|w| w.get(1).is_some_and(|role| roles.contains(role)));
        let mut left: Vec<String> = left.iter().map(|p| p.file("cmdline")).collect();
        for dir in ["containers", "sandboxes"] {
            let entries = fs::read_dir(format!("/run/podprobe/{dir}"));
            let paths = entries.into_iter().flatten().flatten().map(|e| e.path());
            let left_there = paths.filter(|path| !set_aside.contains(path));
            left.extend(left_there.map(|path| path.display().to_string()));
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
