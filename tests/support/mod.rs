//! A node of its own for each test: a root directory, an image, and a guard that ends whatever the test leaves.
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test program takes what it needs"
)]

pub(crate) mod api_server;
pub(crate) mod authority;
pub(crate) mod bridged;
pub(crate) mod cni;
pub(crate) mod curl;
pub(crate) mod daemon;
pub(crate) mod debian;
pub(crate) mod dns_message;
pub(crate) mod fake_registry;
pub(crate) mod forbidding;
pub(crate) mod http_server;
pub(crate) mod machine;
pub(crate) mod manifests;
pub(crate) mod netns;
pub(crate) mod networks;
pub(crate) mod oom_score;
pub(crate) mod own_process;
pub(crate) mod probed;
pub(crate) mod proxied;
pub(crate) mod raw_h2;
pub(crate) mod real_registry;
pub(crate) mod running;
pub(crate) mod session;
pub(crate) mod skip;
pub(crate) mod stack;
pub(crate) mod uninterrupted;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use podprobe::api::pod::ObjectMeta;
use podprobe::api::{Container, Pod, PodUid};
use podprobe::base::cancel::Cancel;
use podprobe::base::paths::Layout;
use podprobe::base::sys::cgroup::{self, Cgroups};
use podprobe::base::sys::cgroup_mounts;
use podprobe::daemon::settings::Settings;
use podprobe::engine::images::manager::{ImageManager, NoRegistry};
use podprobe::engine::images::{ImageConfig, ImageStore};
use podprobe::engine::runtime::{
    ContainerId, Runtime, RuntimeContainerStatus, RuntimeError, RuntimeState,
};
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::shim_runtime::ShimRuntime;
use podprobe::engine::shims::state::{ContainerState, Process, STATE, SandboxState};
use podprobe::net::network::NetworkChoice;
use podprobe::pods::container_config::{ImageVolumes, NodeFacts, ResourcePolicy};
use podprobe::pods::kuberuntime::{KubeRuntime, StartError};
use podprobe::pods::volumes::Volumes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skip::{is_root, skip};

const BUSYBOX: &str = "/usr/bin/busybox";
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_podprobe");
/// A ceiling, never waited out by a test that passes.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// Runs a test on a node, and checks that it has left nothing.
pub(crate) fn on(choice: RuntimeChoice, test: impl FnOnce(&Node)) {
    if !is_root() {
        return;
    }
    if !Path::new(BUSYBOX).exists() {
        return skip("needs /usr/bin/busybox (static)");
    }
    let node = Node::at(tempfile::tempdir().unwrap(), choice);
    node.import_image();
    test(&node);
    assert_nothing_left(&node.layout);
}

pub(crate) fn on_runc(test: impl FnOnce(&Node)) {
    let found = ["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.exists());
    match found {
        Some(path) => on(RuntimeChoice::Path(path), test),
        None => skip("needs runc"),
    }
}

/// Runs `inside` on a thread, with what that changes for itself and its children.
pub(crate) fn on_own_thread(inside: impl FnOnce() + Send) {
    std::thread::scope(|s| {
        if let Err(panic) = s.spawn(inside).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `inside` on a thread whose children, the daemon among them, have cgroups of version 2 alone.
pub(crate) fn with_v2_alone(inside: impl FnOnce() + Send) {
    on_own_thread(|| {
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        let at = cgroup_mounts::ROOT;
        umount2(at, MntFlags::MNT_DETACH).unwrap();
        mount(Some("cgroup2"), at, Some("cgroup2"), MsFlags::empty(), none).unwrap();
        inside();
    });
}

/// Makes each of these functions a test on the embedded runtime, and another on runc. What stands after `alone:` runs in a
/// process of its own.
macro_rules! on_both {
    ($($name:ident),* $(,)? $(; alone: $($alone:ident),* $(,)?)?) => {
        mod embedded {
            $(#[test] fn $name() { crate::support::on(podprobe::engine::shims::RuntimeChoice::Embedded, super::$name) })*
            $($(#[test] fn $alone() {
                if crate::support::own_process::is_own_process(module_path!(), stringify!($alone)) {
                    crate::support::on(podprobe::engine::shims::RuntimeChoice::Embedded, super::$alone)
                }
            })*)?
        }
        mod runc {
            $(#[test] fn $name() { crate::support::on_runc(super::$name) })*
            $($(#[test] fn $alone() {
                if crate::support::own_process::is_own_process(module_path!(), stringify!($alone)) {
                    crate::support::on_runc(super::$alone)
                }
            })*)?
        }
    };
}
pub(crate) use on_both;

pub(crate) struct Node {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) layout: Layout,
    pub(crate) settings: Settings,
}

impl Node {
    pub(crate) fn at(dir: tempfile::TempDir, runtime: RuntimeChoice) -> Self {
        let layout = Layout::new(dir.path().join("root"));
        // Tests share the machine's ports, too.
        let config = layout.config_file();
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(config, r#"{"healthzBindAddress": "", "healthzPort": 0}"#).unwrap();
        Self {
            dir: Arc::new(dir),
            layout,
            settings: Settings {
                runtime,
                // Tests share the machine's network.
                network: NetworkChoice::None,
                ..Settings::default()
            },
        }
    }

    /// A daemon's runtime; another call is the daemon started again.
    pub(crate) fn runtime(&self) -> NodeRuntime {
        let images = ImageStore::open(self.layout.images()).unwrap();
        let layout = self.layout.absolute().unwrap();
        let options = self.settings.shims(&layout);
        let shims = ShimRuntime::new(layout.clone(), options, images.clone())
            .unwrap()
            .with_program(PROGRAM);
        NodeRuntime {
            kuberuntime: KubeRuntime::new(
                Arc::new(shims),
                ImageManager::new(Arc::new(images), Box::new(NoRegistry)),
                Volumes::new(),
                Arc::default(),
                NodeFacts::read(self.settings.node_ip, self.dir.path()),
                layout,
            )
            .with_dns(self.settings.node_dns())
            .with_resource_policy(self.settings.resource_policy().into()),
        }
    }

    /// The same node with another size and number of log files.
    pub(crate) fn with_logs(&self, size: u64, files: u32) -> Self {
        let settings = Settings {
            container_log_max_size: size,
            container_log_max_files: files,
            ..self.settings.clone()
        };
        Self {
            dir: self.dir.clone(),
            layout: self.layout.clone(),
            settings,
        }
    }

    fn import_image(&self) {
        let root = self.dir.path().join("image");
        for dir in ["bin", "tmp", "etc"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
        for name in [
            "sh", "sleep", "cat", "ls", "touch", "hostname", "readlink", "grep", "stat", "cp",
            "setsid", "head", "tr", "wc",
        ] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        let store = ImageStore::open(self.layout.images()).unwrap();
        store
            .import(
                &root,
                "busybox:test",
                ImageConfig {
                    env: vec!["PATH=/bin".into()],
                    ..Default::default()
                },
            )
            .unwrap();
    }

    pub(crate) fn record<T: DeserializeOwned>(&self, id: &ContainerId, name: &str) -> T {
        podprobe::engine::shims::state::read(&self.layout.containers().join(id.as_str()), name)
            .expect(name)
    }

    pub(crate) fn wait_exit(
        &self,
        rt: &NodeRuntime,
        pod: &Pod,
        id: &ContainerId,
    ) -> RuntimeContainerStatus {
        let mut found = None;
        wait_until("the container to end", || {
            let status = rt.pod_status(pod.uid()).unwrap();
            found = status
                .containers
                .into_iter()
                .find(|c| c.id == *id && c.state == RuntimeState::Exited);
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn wait_log(&self, rt: &NodeRuntime, pod: &Pod, id: &ContainerId, text: &str) {
        let status = rt.pod_status(pod.uid()).unwrap();
        let log = &status
            .containers
            .iter()
            .find(|c| c.id == *id)
            .unwrap()
            .log_path;
        wait_until("the log", || {
            fs::read_to_string(log).is_ok_and(|l| l.contains(text))
        });
    }

    /// As the pod worker does when a pod has gone.
    pub(crate) fn remove_pod(&self, rt: &NodeRuntime, pod: &Pod) {
        let status = rt.pod_status(pod.uid()).unwrap();
        for c in &status.containers {
            rt.stop_container(&c.id, Duration::ZERO, &Cancel::default())
                .unwrap();
            rt.kuberuntime
                .remove_container(&status, &c.name, &c.id)
                .unwrap();
            rt.kuberuntime
                .remove_container(&status, &c.name, &c.id)
                .unwrap();
        }
        for s in &status.sandboxes {
            rt.stop_sandbox(&s.id).unwrap();
            rt.remove_sandbox(&s.id).unwrap();
        }
        rt.kuberuntime.remove_pod_data(pod).unwrap();
        // A process that has been waited for may be in its cgroup for a moment still; each listing tries again.
        let cgroup = self.layout.pod_cgroup(pod.uid());
        wait_until("the pod's cgroups to go", || {
            rt.list_pods().unwrap();
            Cgroups::detect().unwrap().dirs(&cgroup).is_empty()
        });
        rt.kuberuntime.remove_pod_data(pod).unwrap();
    }
}

/// The runtime of a node, and the steps by which a pod worker uses it. Everything else is the runtime's own.
pub(crate) struct NodeRuntime {
    pub(crate) kuberuntime: KubeRuntime,
}

impl std::ops::Deref for NodeRuntime {
    type Target = dyn Runtime;

    fn deref(&self) -> &Self::Target {
        &**self.kuberuntime.runtime()
    }
}

impl NodeRuntime {
    pub(crate) fn run_pod_sandbox(
        &self,
        pod: &Pod,
        attempt: u32,
    ) -> Result<ContainerId, RuntimeError> {
        self.kuberuntime.make_pod_dir(pod).unwrap();
        let volumes = self.kuberuntime.set_up_volumes(pod).unwrap();
        self.kuberuntime
            .run_sandbox(pod, attempt, &volumes, &mut |_| ())
    }

    /// Volumes, image, configuration, create, start.
    pub(crate) fn start_container(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        container: &Container,
        attempt: u32,
    ) -> Result<ContainerId, StartError> {
        let k = &self.kuberuntime;
        let volumes = k.set_up_volumes(pod).unwrap();
        let image = k.image(pod, container, &Cancel::default(), &mut |_| ())?;
        let none = ImageVolumes::new();
        let config = k.container_config(pod, container, attempt, &image, &volumes, &none)?;
        let id = k.create_container(pod, sandbox, &config, &volumes)?;
        k.start_container(pod, &config, &id)?;
        Ok(id)
    }
}

impl Drop for Node {
    /// Ends what a failed test has left.
    fn drop(&mut self) {
        self.kill_everything();
    }
}

impl Node {
    /// Ends every process by record, then by cgroup, as a power cut does.
    pub(crate) fn kill_everything(&self) {
        let dirs = |d: PathBuf| {
            fs::read_dir(d)
                .into_iter()
                .flatten()
                .flatten()
                .map(|e| e.path())
        };
        for dir in dirs(self.layout.containers()) {
            if let Some(s) = podprobe::engine::shims::state::read::<ContainerState>(&dir, STATE) {
                kill9(s.shim);
                s.process.into_iter().for_each(kill9);
                s.cgroups.iter().for_each(|c| drop(cgroup::remove_tree(c)));
            }
        }
        for dir in dirs(self.layout.sandboxes()) {
            if let Some(s) = podprobe::engine::shims::state::read::<SandboxState>(&dir, STATE) {
                kill9(s.process);
            }
        }
        let top = self.layout.cgroup();
        if let Ok(c) = Cgroups::detect() {
            cgroup::kill_until_empty(&c.dirs(&top));
            let _ = c.remove(&top);
        }
    }
}

/// For `sleep`: a number that no other test has as an argument, so that the process can be found by it.
pub(crate) fn own_seconds() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(10);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{next}", std::process::id())
}

/// Kills a process and waits until it has ended.
pub(crate) fn kill9(p: Process) {
    if let Ok(Some(fd)) = p.open() {
        let _ = fd.send(9);
        let _ = fd.wait(CEILING);
    }
}

/// No process, mount, cgroup, record or layer of this root.
pub(crate) fn assert_nothing_left(layout: &Layout) {
    let root = layout.root().to_str().unwrap();
    wait_until("every process to end", || processes_naming(root).is_empty());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(root), "{mounts}");
    assert_eq!(
        Cgroups::detect().unwrap().dirs(&layout.cgroup()),
        [] as [PathBuf; 0]
    );
    for dir in [
        layout.sandboxes(),
        layout.oci_state(),
        layout.lib_dir().join("containers"),
        layout.lib_dir().join("pods"),
        layout.logs_dir(),
        layout.container_log_links(),
    ] {
        assert_eq!(
            fs::read_dir(&dir).map_or(0, Iterator::count),
            0,
            "{} is not empty",
            dir.display()
        );
    }
    let records = fs::read_dir(layout.containers())
        .unwrap()
        .flatten()
        .filter(|e| !e.path().to_string_lossy().ends_with(".corrupt"));
    assert_eq!(records.count(), 0);
}

pub(crate) fn processes_naming(root: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all
        .filter_map(|e| fs::read(e.path().join("cmdline")).ok())
        .map(|l| String::from_utf8_lossy(&l).replace('\0', " "));
    lines.filter(|l| l.contains(root)).collect()
}

/// A condition with a ceiling.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + CEILING;
    while !condition() {
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A container that runs a shell script.
pub(crate) fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "busybox:test", "command": ["/bin/sh", "-c", script]})
}

pub(crate) fn pod(name: &str, spec: Value) -> Pod {
    let uid = PodUid::from(format!("uid-{name}").as_str());
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid,
        ..Default::default()
    };
    Pod {
        metadata,
        spec: serde_json::from_value(spec).unwrap(),
        raw: Default::default(),
    }
}

/// Runs a shim whose daemon is gone from the start, to its end.
pub(crate) fn shim_without_daemon(dir: &Path) {
    let mut child = Command::new(PROGRAM)
        .arg("shim")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut ended = || child.try_wait().unwrap().is_some();
    wait_until("the shim without a daemon to end", &mut ended);
}
