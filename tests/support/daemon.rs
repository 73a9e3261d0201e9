//! The real daemon on a node: started, killed, and asked as its clients ask it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use podprobe::base::paths::Layout;
use podprobe::base::sys::cgroup::{self, Cgroups};
use podprobe::cli::client::Client;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, Process, STATE,
};
use podprobe::face::views::{PodView, Snapshot};
use podprobe::net::network::NetworkChoice;
use podprobe::pods::history::PodHistory;
use serde_json::{Value, json};

use super::{CEILING, Node, PROGRAM};

/// End of every pod's name.
pub(crate) const NODE: &str = "edge";

/// A node with a daemon; the daemon ends with this value.
pub(crate) struct Day<'a> {
    pub(crate) node: &'a Node,
    child: Option<Child>,
    /// Words of a shell's script that end in a command which runs the daemon in the same process; none: no shell.
    before: String,
}

impl<'a> Day<'a> {
    pub(crate) fn begin(node: &'a Node) -> Self {
        Self::begin_after(node, "")
    }

    /// The same with a daemon that is started by a shell's script: `before`, and the daemon's command after it.
    pub(crate) fn begin_after(node: &'a Node, before: &str) -> Self {
        fs::create_dir_all(node.layout.pods_dir()).unwrap();
        fs::create_dir_all(node.dir.path().join("starts")).unwrap();
        let mut day = Self {
            node,
            child: None,
            before: before.to_owned(),
        };
        day.start();
        day
    }

    /// The same with a daemon in cgroups of its own, which the caller has made and removes.
    pub(crate) fn begin_in(node: &'a Node, cgroups: &[PathBuf]) -> Self {
        let join = cgroups.iter().map(|dir| {
            let procs = dir.join("cgroup.procs");
            format!("echo 0 >'{}' && ", procs.display())
        });
        Self::begin_after(node, &(join.collect::<String>() + "exec"))
    }

    pub(crate) fn command(&self) -> Command {
        let script = format!("{} \"$0\" \"$@\"", self.before);
        let mut command = match self.before.is_empty() {
            true => Command::new(PROGRAM),
            false => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &script, PROGRAM]);
                shell
            }
        };
        command
            .args(["run", "--node-name", NODE, "--root"])
            .arg(self.node.layout.root())
            .arg("--runtime");
        match &self.node.settings.runtime {
            RuntimeChoice::Embedded => command.arg("embedded"),
            RuntimeChoice::Path(path) => command.arg(path),
        };
        let network = match self.node.settings.network {
            NetworkChoice::None => "none",
            NetworkChoice::Bridge => "bridge",
            NetworkChoice::Cni => "cni",
            NetworkChoice::Auto => "auto",
        };
        command.args(["--network", network]).stdin(Stdio::null());
        command
    }

    /// Starts a daemon, and does not wait until it answers.
    pub(crate) fn spawn(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        self.child = Some(
            self.command()
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap(),
        );
    }

    pub(crate) fn start(&mut self) {
        self.spawn();
        let deadline = Instant::now() + CEILING;
        while self.snapshot().is_none() {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the daemon does not answer ({ended:?}): {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.as_ref().unwrap().id().cast_signed()
    }

    pub(crate) fn kill9(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        assert_eq!(
            child.wait().unwrap().signal(),
            Some(9),
            "the daemon had ended by itself: {}",
            self.log()
        );
    }

    /// A signal to each process, as systemd sends it: `cgroup.kill` would also kill what a later daemon in the same cgroup
    /// starts in another one (a fault of recent kernels with CLONE_INTO_CGROUP).
    pub(crate) fn kill_all_in(&mut self, cgroups: &[PathBuf]) {
        let pids = || {
            cgroups
                .iter()
                .flat_map(|d| podprobe::base::sys::cgroup_tree::processes(d))
        };
        super::wait_until("the cgroups to be empty", || {
            for pid in pids() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = self.child.as_mut().unwrap().try_wait();
            pids().next().is_none()
        });
        assert_eq!(
            self.child.take().unwrap().wait().unwrap().signal(),
            Some(9),
            "the daemon had ended by itself: {}",
            self.log()
        );
    }

    /// The power button for the daemon alone: killed and started again at once.
    pub(crate) fn crash(&mut self) {
        self.kill9();
        self.start();
    }

    /// A power cut: everything is killed at once, /run is empty, and the boot has another id. The next daemon is started
    /// by [`Self::start`].
    pub(crate) fn cut_power(&mut self) {
        self.kill9();
        self.node.kill_everything();
        fs::remove_dir_all(self.node.layout.run_dir()).unwrap();
        let boot = podprobe::base::clock::boot_id();
        let checkpoint = fs::read_to_string(self.node.layout.checkpoint()).unwrap();
        assert!(checkpoint.contains(&boot), "{checkpoint}");
        let of_another_boot = checkpoint.replace(&boot, "another-boot");
        fs::write(self.node.layout.checkpoint(), of_another_boot).unwrap();
        let pods = fs::read_dir(self.node.layout.lib_dir().join("pods"));
        for pod in pods.into_iter().flatten().flatten() {
            let mark = pod.path().join("evicted.json");
            if let Ok(text) = fs::read_to_string(&mark) {
                // Its checksum would be that of the boot before.
                let (text, _) = text.rsplit_once(",\"crc32\"").unwrap();
                fs::write(mark, text.replace(&boot, "another-boot") + "}").unwrap();
            }
        }
    }

    /// SIGTERM; how it ended and after how long.
    pub(crate) fn terminate(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        let mut child = self.child.take().unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        (child.wait().unwrap(), began.elapsed())
    }

    /// A client verb.
    pub(crate) fn client(&self, words: &[&str]) -> Output {
        Command::new(PROGRAM)
            .arg("--root")
            .arg(self.node.layout.root())
            .args(words)
            .output()
            .unwrap()
    }

    /// What a client verb prints.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let output = self.client(words);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.node.dir.path().join("daemon.log")
    }

    /// The log, with these texts in it: a thread of its own writes it, a moment after what it tells of.
    #[track_caller]
    pub(crate) fn log_with(&self, texts: &[&str]) -> String {
        let end = Instant::now() + CEILING;
        loop {
            let log = self.log();
            let missing = texts.iter().find(|text| !log.contains(**text));
            match missing {
                None => return log,
                Some(text) => assert!(Instant::now() < end, "{text} is not in the log:\n{log}"),
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.node.layout.pods_dir().join(format!("{name}.json"))
    }

    /// Puts a file into the pods directory as an editor or `mv` does: by rename.
    pub(crate) fn put(&self, name: &str, content: impl ToString) {
        let temporary = self.node.dir.path().join("being-written");
        fs::write(&temporary, content.to_string()).unwrap();
        fs::rename(temporary, self.file(name)).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        fs::remove_file(self.file(name)).unwrap();
    }

    /// None while no daemon answers.
    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        ask(&self.node.layout)
    }

    /// What the daemon has kept of a pod's probes and restarts.
    pub(crate) fn history(&self, uid: &str) -> PodHistory {
        let client = Client::connect(self.node.layout.root());
        let history = client.and_then(|mut client| client.history(uid.into()));
        history.unwrap_or_else(|e| panic!("{e}: {}", self.log()))
    }

    /// The first snapshot for which `found` gives something. It follows the daemon's own notices of change, as `get -w` does.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, found: impl Fn(&Snapshot) -> Option<T>) -> T {
        let deadline = Instant::now() + CEILING;
        let mut last = self
            .snapshot()
            .unwrap_or_else(|| panic!("{what}: the daemon does not answer: {}", self.log()));
        loop {
            if let Some(found) = found(&last) {
                return found;
            }
            let pods: Vec<_> = last
                .pods
                .iter()
                .map(|p| json!({"status": p.status, "events": p.events}))
                .collect();
            assert!(
                Instant::now() < deadline,
                "waited for {what}, last seen: {pods:#?} {:?}\n{}",
                last.problems,
                self.log()
            );
            // the daemon may be another one by now, so what changed is asked for as a whole
            if let Ok(mut client) = Client::connect(self.node.layout.root()) {
                let _ = client.watch(last.version);
            }
            last = self.snapshot().unwrap_or(last);
        }
    }

    #[track_caller]
    pub(crate) fn wait_ready(&self, name: &str) {
        self.wait(&format!("{name} to be ready"), |s| {
            find(s, name).filter(|p| p.status.is_ready()).map(drop)
        });
    }

    #[track_caller]
    pub(crate) fn wait_gone(&self, name: &str) {
        self.wait(&format!("{name} to be gone"), |s| {
            find(s, name).is_none().then_some(())
        });
    }

    #[track_caller]
    pub(crate) fn wait_event(&self, name: &str, reason: &str) -> String {
        self.wait(&format!("the event {reason} of {name}"), |s| {
            find(s, name)?
                .events
                .iter()
                .find(|e| e.reason == reason)
                .map(|e| e.message.clone())
        })
    }

    /// What the containers of a pod wrote at each of their starts, oldest first.
    pub(crate) fn starts(&self, name: &str) -> Vec<String> {
        let text =
            fs::read_to_string(self.node.dir.path().join("starts").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A container that shows Running notes its start a moment later.
    #[track_caller]
    pub(crate) fn check_starts(&self, name: &str, times: usize) {
        super::wait_until("the program to note its start", || {
            self.starts(name).len() >= times
        });
        assert_eq!(self.starts(name).len(), times, "{}", self.log());
    }

    /// The first process, with its start time, of every container that runs, by the pod's name in its file.
    pub(crate) fn processes(&self) -> BTreeMap<String, Process> {
        let all = fs::read_dir(self.node.layout.containers())
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path());
        let running = all.filter_map(|dir| {
            let record: ContainerRecord = state::read(&dir, CONTAINER)?;
            let process = state::read::<ContainerState>(&dir, STATE)?
                .process
                .filter(|p| p.alive())?;
            Some((
                record
                    .pod
                    .name
                    .trim_end_matches(&format!("-{NODE}"))
                    .to_owned(),
                process,
            ))
        });
        running.collect()
    }

    #[track_caller]
    pub(crate) fn process(&self, name: &str) -> Process {
        *self
            .processes()
            .get(name)
            .unwrap_or_else(|| panic!("no process of {name}: {}", self.log()))
    }

    /// The shim of the container of a pod that runs.
    pub(crate) fn shim(&self, name: &str) -> Process {
        let process = self.process(name);
        let all = fs::read_dir(self.node.layout.containers())
            .unwrap()
            .flatten();
        let states = all.filter_map(|e| state::read::<ContainerState>(&e.path(), STATE));
        states
            .into_iter()
            .find(|s| s.process == Some(process))
            .unwrap()
            .shim
    }

    /// A pod of one container that notes each of its starts, then runs `script`; `more` goes over the container.
    pub(crate) fn pod(&self, name: &str, script: &str, more: Value) -> Value {
        let script =
            format!("echo \"$(cat /proc/uptime)\" >>/starts/{name}\n: >/tmp/noted\n{script}");
        let mut container = json!({
            "name": "c", "image": "busybox:test", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script], "volumeMounts": [{"name": "starts", "mountPath": "/starts"}],
        });
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [{"name": "starts", "hostPath": {"path": self.node.dir.path().join("starts"), "type": "Directory"}}],
            },
        })
    }

    /// Kills the processes of pods that are to end: those that do not heed TERM, as in the field, would keep the test for
    /// their grace period.
    pub(crate) fn kill_what_ends(&self) {
        let snapshot = self.snapshot().expect("the daemon answers");
        let is_to_end = |uid: &str| {
            snapshot
                .pods
                .iter()
                .any(|p| p.terminating && p.uid() == uid)
        };
        let dirs = fs::read_dir(self.node.layout.containers());
        for dir in dirs.into_iter().flatten().flatten().map(|e| e.path()) {
            let record: Option<ContainerRecord> = state::read(&dir, CONTAINER);
            let state: Option<ContainerState> = state::read(&dir, STATE);
            if record.is_some_and(|r| is_to_end(r.pod.uid.as_str())) {
                state
                    .and_then(|s| s.process)
                    .into_iter()
                    .for_each(super::kill9);
            }
        }
    }

    /// Every file goes, every pod with it, and SIGTERM ends the daemon well.
    pub(crate) fn end(mut self) {
        for entry in fs::read_dir(self.node.layout.pods_dir()).unwrap().flatten() {
            fs::remove_file(entry.path()).unwrap();
        }
        self.wait("every pod to be gone", |s| s.pods.is_empty().then_some(()));
        // what nobody wants any more is no pod of the list: it ends at the next housekeeping
        let layout = &self.node.layout;
        let (lib, top) = (layout.lib_dir(), layout.cgroup());
        let left = || {
            let dirs = [
                layout.containers(),
                layout.sandboxes(),
                layout.oci_state(),
                layout.logs_dir(),
                lib.join("pods"),
            ];
            let entries = dirs
                .into_iter()
                .flat_map(|d| fs::read_dir(d).into_iter().flatten().flatten());
            entries
                .map(|e| e.path())
                .chain(Cgroups::detect().unwrap().dirs(&top))
                .collect::<Vec<_>>()
        };
        let deadline = Instant::now() + CEILING;
        while !left().is_empty() {
            assert!(
                Instant::now() < deadline,
                "what the pods have left is not removed: {:#?}\n{}",
                left(),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let (status, took) = self.terminate();
        assert!(
            status.success() && took < Duration::from_secs(5),
            "{status} after {took:?}: {}",
            self.log()
        );
    }
}

impl Drop for Day<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The view of a pod, by its name without the node's.
pub(crate) fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Option<&'s PodView> {
    let full = format!("{name}-{NODE}");
    snapshot
        .pods
        .iter()
        .find(|p| p.object["metadata"]["name"] == full)
        .map(AsRef::as_ref)
}

/// Runs until TERM, which ends it at once.
pub(crate) const FOREVER: &str = "trap 'exit 0' TERM\nsleep 100000 & wait";

/// The same, and says so where it notes its starts.
pub(crate) const POLITE: &str = "trap 'echo bye >>/starts/bye; exit 0' TERM\nsleep 100000 & wait";

/// None while no daemon answers.
fn ask(layout: &Layout) -> Option<Arc<Snapshot>> {
    Client::connect(layout.root()).ok()?.snapshot().ok()
}

/// Looks at every snapshot it can get, also while the daemon comes and goes.
pub(crate) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Vec<Arc<Snapshot>>>>,
}

impl Watcher {
    pub(crate) fn spawn(day: &Day) -> Self {
        let (layout, stop, seen) = (
            day.node.layout.clone(),
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<Arc<Snapshot>>>>::default(),
        );
        let (stopped, into) = (stop.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                into.lock().unwrap().extend(ask(&layout));
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        Self {
            stop,
            thread: Some(thread),
            seen,
        }
    }

    /// Every snapshot so far.
    pub(crate) fn seen(&self) -> Vec<Arc<Snapshot>> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}
