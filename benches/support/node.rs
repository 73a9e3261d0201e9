//! A daemon under a root of its own, with the probe target's image; everything of it goes with the value.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::mount::{MntFlags, umount2};
use podprobe::base::paths::Layout;
use podprobe::base::sys::cgroup::{self, Cgroups};
use podprobe::cli::client::Client;
use podprobe::engine::shims::state::{self, ContainerState, Process, STATE, SandboxState};
use podprobe::face::views::{PodView, Snapshot};
use serde_json::{Value, json};

use super::{CEILING, Guard, program, wait_until};

/// The image of every pod here.
pub(crate) const IMAGE: &str = "probe-target:latest";

/// Directory of a node for what lasts until the next boot.
pub(crate) const RUN: &str = "run";

pub(crate) struct Node {
    pub(crate) layout: Layout,
    pub(crate) daemon: Process,
    /// Written by the containers, seen by them as `/bench`.
    pub(crate) shared: PathBuf,
    root: PathBuf,
    start: Start,
    end: Option<End>,
    _guard: Guard,
}

type End = JoinHandle<std::io::Result<ExitStatus>>;

/// How the daemon is started, also again.
struct Start {
    program: PathBuf,
    runtime: String,
    env: Vec<(String, String)>,
}

/// The directory of the probe target, which `make` builds.
pub(crate) fn target_rootfs() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/demo/rootfs");
    assert!(
        dir.join("probe-target").exists(),
        "{} is not there: run `make bench`, which builds it",
        dir.display()
    );
    dir
}

impl Node {
    /// Starts a daemon on that runtime (`embedded` or a path).
    pub(crate) fn start(runtime: &str) -> Self {
        Self::start_with(runtime, &json!({}), &[])
    }

    /// The same with that configuration, and more in its environment.
    pub(crate) fn start_with(runtime: &str, config: &Value, env: &[(&str, &str)]) -> Self {
        let name = format!(
            "node-{}-{}",
            std::process::id(),
            runtime.trim_start_matches('/').replace('/', "-")
        );
        let root = super::nodes_dir().join(name);
        let layout = Layout::new(&root);
        let shared = root.join("shared");
        for dir in [&shared, &layout.pods_dir()] {
            fs::create_dir_all(dir).unwrap();
        }
        if super::RUN_IN_MEMORY.load(Ordering::Relaxed) {
            fs::create_dir_all(root.join(RUN)).unwrap();
            super::mount_memory(&root.join(RUN));
        }
        fs::write(layout.config_file(), beside_others(config).to_string()).unwrap();
        let guard = Guard::new({
            let root = root.clone();
            move || end(&root)
        });
        import(&root, &target_rootfs(), IMAGE);
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let start = Start {
            program: program(),
            runtime: runtime.to_owned(),
            env: env.iter().map(own).collect(),
        };
        let (daemon, end) = start.daemon(&root);
        let node = Self {
            layout,
            daemon,
            shared,
            root,
            start,
            end: Some(end),
            _guard: guard,
        };
        node.wait_for_an_answer();
        node
    }

    /// Waits until the daemon answers. A connection alone says less: a process that a killed daemon was just starting
    /// holds the old socket until it has become another program.
    fn wait_for_an_answer(&self) {
        wait_until("the daemon's first answer", || {
            self.assert_alive();
            Client::connect(self.layout.root())
                .and_then(|mut client| client.version())
                .is_ok()
        });
    }

    /// Kills the daemon alone, as the kernel does when memory is short, and starts the next one.
    pub(crate) fn crash(&mut self) {
        self.kill_daemon();
        self.start_daemon();
    }

    /// Kills the daemon alone. Until [`Self::start_daemon`] the node has none.
    pub(crate) fn kill_daemon(&mut self) {
        kill(self.daemon);
        let ended = self.end.take().expect("a daemon that runs").join();
        ended.unwrap().unwrap();
    }

    /// Starts the next daemon, and waits until it answers.
    pub(crate) fn start_daemon(&mut self) {
        let (daemon, end) = self.start.daemon(&self.root);
        (self.daemon, self.end) = (daemon, Some(end));
        self.wait_for_an_answer();
    }

    /// Daemons run this program from the next one on, as after an upgrade.
    pub(crate) fn set_program(&mut self, program: PathBuf) {
        self.start.program = program;
    }

    /// Makes an image of a directory.
    pub(crate) fn import(&self, rootfs: &Path, image: &str) {
        import(&self.root, rootfs, image);
    }

    #[track_caller]
    pub(crate) fn assert_alive(&self) -> bool {
        assert!(self.daemon.alive(), "the daemon has ended:\n{}", self.log());
        true
    }

    /// What the daemon has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.root.join("daemon.log")).unwrap_or_default()
    }

    /// Everything of the node lies below it.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Tells the daemon to end and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.daemon
            .open()
            .unwrap()
            .expect("the daemon has not ended before")
            .send(15)
            .unwrap();
        self.end
            .take()
            .expect("it is stopped once")
            .join()
            .unwrap()
            .unwrap()
    }

    /// A connection to the daemon.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.layout.root()).unwrap()
    }

    /// What the daemon shows now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.client().snapshot().unwrap_or_else(|e| {
            let alive = self.daemon.alive();
            panic!(
                "{e}; the daemon is alive: {alive}; it wrote:\n{}",
                self.log()
            )
        })
    }

    /// Renames a pod file into place; the wall clock before the rename.
    pub(crate) fn add(&self, name: &str, pod: &Value) -> u128 {
        let new = self.root.join(format!("{name}.json"));
        fs::write(&new, serde_json::to_vec(pod).unwrap()).unwrap();
        let to = self.layout.pods_dir().join(format!("{name}.json"));
        let begun = super::unix_ns();
        fs::rename(new, to).unwrap();
        begun
    }

    /// Takes a pod file away and waits until nothing of the pod is shown or runs.
    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.layout.pods_dir().join(format!("{name}.json"))).unwrap();
        self.watch().until("the pod to go", |s| {
            s.pods.is_empty() || view(s, name).is_none()
        });
    }

    /// A watcher of the daemon's snapshots.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            client: self.client(),
            known: Arc::default(),
        }
    }

    /// The record of a pod's newest container, and its directory.
    pub(crate) fn container(&self, view: &PodView) -> (PathBuf, ContainerState) {
        self.container_if_any(view)
            .expect("a state of the container")
    }

    /// The same of a pod that may have none.
    pub(crate) fn container_if_any(&self, view: &PodView) -> Option<(PathBuf, ContainerState)> {
        let id = view
            .status
            .container_statuses
            .first()?
            .container_id
            .trim_start_matches("podprobe://")
            .to_owned();
        let dir = self.layout.containers().join(id);
        let state = state::read(&dir, STATE)?;
        Some((dir, state))
    }

    /// Every shim, every first process of a container, and every sandbox holder, of instances that have ended too.
    pub(crate) fn processes(&self) -> [Vec<Process>; 3] {
        let containers: Vec<ContainerState> = dirs(&self.layout.containers())
            .filter_map(|d| state::read(&d, STATE))
            .collect();
        let sandboxes =
            dirs(&self.layout.sandboxes()).filter_map(|d| state::read::<SandboxState>(&d, STATE));
        [
            containers.iter().map(|c| c.shim).collect(),
            containers.iter().filter_map(|c| c.process).collect(),
            sandboxes.map(|s| s.process).collect(),
        ]
    }

    /// The lines `<what> <wall clock in ns>` that the target wrote for that pod.
    pub(crate) fn stamps(&self, name: &str, what: &str) -> Vec<u128> {
        let text = fs::read_to_string(self.shared.join(name)).unwrap_or_default();
        let of = |l: &str| {
            l.split_once(' ')
                .filter(|(w, _)| *w == what)
                .map(|(_, ns)| ns.parse().unwrap())
        };
        text.lines().filter_map(of).collect()
    }
}

impl Start {
    /// Starts a daemon below this root. Its process is written down for the end.
    fn daemon(&self, root: &Path) -> (Process, End) {
        let path = root.join("daemon.log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        let mut command = Command::new(&self.program);
        let mut child = command
            .args(["run", "--node-name", "node", "--runtime", &self.runtime])
            .arg("--root")
            .arg(root)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Process::of(child.id() as i32).unwrap();
        // Somebody must wait for it, or it would stay a zombie.
        let end = std::thread::spawn(move || child.wait());
        let text = serde_json::to_vec(&daemon).unwrap();
        fs::write(root.join("daemon.pid"), text).unwrap();
        (daemon, end)
    }
}

fn import(root: &Path, rootfs: &Path, image: &str) {
    let mut command = Command::new(program());
    command.args(["image", "import", "--root"]).arg(root);
    let imported = command.arg(rootfs).arg(image).output().unwrap();
    assert!(
        imported.status.success(),
        "{}",
        String::from_utf8_lossy(&imported.stderr)
    );
}

/// Nodes of one machine have ranges of their own, and its port for health is nobody's.
fn beside_others(config: &Value) -> Value {
    static NODES: AtomicU8 = AtomicU8::new(0);
    let number = NODES.fetch_add(1, Ordering::Relaxed);
    let range = format!("10.244.{number}.0/24");
    let mut all = json!({"podCIDR": range, "healthzBindAddress": "", "healthzPort": 0});
    let given = config.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(given);
    all
}

/// A container of the probe target that stamps the times of what it does into a file named after the pod.
pub(crate) fn pod(node: &Node, name: &str, args: &[&str], probes: Value) -> Value {
    let mut container = json!({"name": "target", "image": IMAGE, "imagePullPolicy": "Never",
        "command": ["/probe-target", "--stamp", format!("/bench/{name}")], "args": args,
        "volumeMounts": [{"name": "bench", "mountPath": "/bench"}]});
    container
        .as_object_mut()
        .unwrap()
        .extend(probes.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 2,
        "volumes": [{"name": "bench", "hostPath": {"path": node.shared}}], "containers": [container]}})
}

/// The pod of a file's name.
pub(crate) fn view<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a PodView> {
    let full = format!("{name}-node");
    snapshot
        .pods
        .iter()
        .find(|p| p.object["metadata"]["name"] == full.as_str())
        .map(AsRef::as_ref)
}

/// Asks the target in that process's network to set a state.
pub(crate) fn set_target(of: Process, query: &str) {
    let line = ask_targets(of, &[8080], &format!("/set?{query}")).remove(0);
    assert!(line.contains("200"), "{line}");
}

/// The status lines of the targets at these ports in that process's network.
pub(crate) fn ask_targets(of: Process, ports: &[u16], path: &str) -> Vec<String> {
    let ask = |port: &u16| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", *port))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    };
    std::thread::scope(|s| {
        let all = || {
            let namespace = File::open(format!("/proc/{}/ns/net", of.pid)).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ports
                .iter()
                .map(|p| ask(p).unwrap_or_else(|e| e.to_string()))
                .collect()
        };
        s.spawn(all).join().unwrap()
    })
}

pub(crate) struct Watch {
    client: Client,
    known: Arc<Snapshot>,
}

impl Watch {
    /// The next snapshot that is as it should be, and the wall clock when it was there.
    pub(crate) fn until(
        &mut self,
        what: &str,
        good: impl Fn(&Snapshot) -> bool,
    ) -> (Arc<Snapshot>, u128) {
        let end = Instant::now() + CEILING;
        loop {
            let snapshot = match self.known.version {
                0 => self.client.snapshot().unwrap(),
                after => Arc::new(self.known.updated(self.client.watch(after).unwrap())),
            };
            let at = super::unix_ns();
            self.known = snapshot.clone();
            if good(&snapshot) {
                return (snapshot, at);
            }
            assert!(
                Instant::now() < end,
                "waited too long for {what}: {snapshot:?}"
            );
        }
    }
}

fn dirs(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
}

/// Ends a node by its records, then by its cgroup, and removes its root.
fn end(root: &Path) {
    let layout = Layout::new(root);
    let daemon = fs::read(root.join("daemon.pid"))
        .ok()
        .and_then(|b| serde_json::from_slice(&b).ok());
    daemon.into_iter().for_each(kill);
    for dir in dirs(&layout.containers()) {
        if let Some(s) = state::read::<ContainerState>(&dir, STATE) {
            [Some(s.shim), s.process]
                .into_iter()
                .flatten()
                .for_each(kill);
            s.cgroups.iter().for_each(|c| drop(cgroup::remove_tree(c)));
        }
    }
    for dir in dirs(&layout.sandboxes()) {
        state::read::<SandboxState>(&dir, STATE)
            .into_iter()
            .for_each(|s| kill(s.process));
    }
    let top = layout.cgroup();
    if let Ok(c) = Cgroups::detect() {
        cgroup::kill_until_empty(&c.dirs(&top));
        let _ = c.remove(&top);
    }
    remove_network(&layout.id());
    if std::env::var_os("KEEP").is_some() {
        let _ = fs::rename(
            root.join("daemon.log"),
            super::out_dir().join("last-daemon.log"),
        );
    }
    let _ = umount2(&root.join(RUN), MntFlags::MNT_DETACH);
    if let Err(e) = fs::remove_dir_all(root) {
        eprintln!("cannot remove {}: {e}", root.display());
    }
}

/// The bridge and the packet filter's tables, which a daemon that is killed leaves to the next one of its root; a node of
/// another root would find its range in use.
fn remove_network(id: &str) {
    let run = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = command.args(words).output();
        let text = |o: std::process::Output| String::from_utf8_lossy(&o.stdout).into_owned();
        output.map_or_else(|_| String::new(), text)
    };
    run(&format!("ip link del {}", id.replace("podprobe", "pp")));
    let tables = run("nft list tables");
    let own = tables.lines().filter(|table| table.contains(id));
    own.for_each(|table| drop(run(&format!("nft delete {table}"))));
}

/// Kills a process and waits until it has ended.
pub(crate) fn kill(p: Process) {
    if let Ok(Some(fd)) = p.open() {
        let _ = fd.send(9);
        let _ = fd.wait(CEILING);
    }
}
