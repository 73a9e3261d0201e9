//! Tests of the whole daemon on a fake runtime that only records the configurations of containers, and tests of the
//! daemon's end.

mod bodies;
mod prometheus;

use std::{fs, io};

use crossbeam_channel::{Receiver, bounded};
use serde_json::{Value, json};

use super::*;
use crate::api::PodPhase;
use crate::base::clock::Moment;
use crate::base::http_client::WebUrl;
use crate::engine::images::manager::ImageService;
use crate::engine::images::{Image, ImageConfig, ImageError};
use crate::engine::runtime::ExecOutcome;
use crate::face::views::{PodView, Snapshot};
use crate::fake_runtime::{FakeRuntime, end};
use crate::net::network::{NetworkChoice, Networks};
use crate::own_network::in_own_network;

/// Longest wait for things that happen within seconds unless something is broken.
const CEILING: Duration = Duration::from_secs(60);

/// An image service that has every image except one.
struct Images;

impl ImageService for Images {
    fn image(&self, reference: &str) -> Result<Image, ImageError> {
        if bodies::is_missing(reference) {
            let (reference, similar) = (reference.to_owned(), Vec::new());
            return Err(ImageError::NotFound { reference, similar });
        }
        Ok(Image {
            id: "sha256:1".into(),
            name: reference.into(),
            pulled: false,
            config: ImageConfig::default(),
            layers: Vec::new(),
        })
    }
}

struct Harness {
    dir: tempfile::TempDir,
    runtime: Arc<FakeRuntime>,
    daemon: Daemon,
}

impl Harness {
    fn on(runtime: FakeRuntime) -> Self {
        Self::with(runtime, Settings::default())
    }

    fn with(runtime: FakeRuntime, settings: Settings) -> Self {
        Self::connected(runtime, settings, NetworkChoice::None)
    }

    fn connected(runtime: FakeRuntime, settings: Settings, network: NetworkChoice) -> Self {
        Self::beside(&[], runtime, settings, network)
    }

    /// Starts a daemon with these files in the pods directory.
    fn beside(
        files: &[(&str, String)],
        runtime: FakeRuntime,
        settings: Settings,
        network: NetworkChoice,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        fs::create_dir_all(layout.pods_dir()).unwrap();
        for (name, text) in files {
            fs::write(layout.pods_dir().join(name), text).unwrap();
        }
        let settings = Settings {
            static_pod_path: layout.pods_dir(),
            node_name: "node".into(),
            network,
            healthz_bind_address: None,
            ..settings
        };
        let runtime = Arc::new(runtime);
        let engine = Engine {
            networks: Arc::new(Networks::new(settings.networks(&layout))),
            sandboxes: Vec::new(),
            runtime: runtime.clone(),
            logs: settings.log_bounds().into(),
            images: Arc::new(Images),
            store: ImageStore::open(layout.images()).unwrap(),
        };
        let lock = root::prepare(&layout).unwrap();
        let daemon = Daemon::wire(&settings, &layout, lock, engine).unwrap();
        Self {
            dir,
            runtime,
            daemon,
        }
    }

    fn pod_file(&self) -> std::path::PathBuf {
        Layout::new(self.dir.path()).pods_dir().join("web.json")
    }

    /// Follows the daemon as a client does, until the condition holds.
    #[track_caller]
    fn until(&self, what: &str, condition: impl Fn(&Snapshot) -> bool) {
        let backend = self.daemon.backend();
        let (deadline, mut now) = (Instant::now() + CEILING, backend.snapshot());
        while !condition(&now) {
            assert!(Instant::now() < deadline, "{what}: {now:#?}");
            let update = backend.watch(now.version, Duration::from_secs(1));
            now = Arc::new(now.updated(update));
        }
    }
}

fn pod(spec: Value) -> String {
    let metadata = json!({"name": "web", "uid": "u"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
}

/// A pod runs, restarts and is removed on a runtime that only records configurations, because no part above the trait
/// `Runtime` needs podprobe's own shims.
#[test]
fn a_pod_runs_restarts_and_goes_on_a_runtime_that_sees_configurations_only() {
    let h = Harness::on(FakeRuntime::with_exec(|_, _| {
        Ok(ExecOutcome::Exited {
            code: 0,
            output: Vec::new(),
        })
    }));
    let probe = json!({"exec": {"command": ["check"]}, "periodSeconds": 1});
    let container =
        json!({"name": "c", "image": "i", "command": ["serve"], "readinessProbe": probe});
    fs::write(h.pod_file(), pod(json!({"containers": [container]}))).unwrap();
    let ready_after = |s: &Snapshot, restarts: u32| {
        let is = |p: &Arc<PodView>| {
            let container = p.status.container_statuses.first();
            let is_of_instance = container.is_some_and(|c| {
                c.restart_count == restarts && c.container_id.starts_with("fake://")
            });
            p.status.phase == PodPhase::Running && p.status.is_ready() && is_of_instance
        };
        s.pods.iter().any(is)
    };
    h.until("the pod is ready", |s| ready_after(s, 0));
    let (asked, sandbox) = {
        let state = h.runtime.state();
        (state.configs.clone(), state.sandbox_configs.clone())
    };
    assert_eq!((asked.len(), sandbox.len()), (1, 1));
    assert_eq!(asked[0].command, ["serve"]);
    assert!(h.runtime.state().calls.contains(&"exec c check".to_owned()));

    end(&mut h.runtime.state().containers[0], 1);
    h.until("the pod is ready again", |s| ready_after(s, 1));

    fs::remove_file(h.pod_file()).unwrap();
    h.until("the pod is gone", |s| s.pods.is_empty());
    let state = h.runtime.state();
    assert!(state.containers.is_empty() && state.sandboxes.is_empty());
    drop(state);
    h.daemon.shutdown(CEILING).unwrap();
}

/// Simulates a kernel without bridges: the daemon lacks `CAP_NET_ADMIN`.
#[test]
fn what_the_kernel_lacks_for_the_network_is_shown_with_the_pod_and_counted() {
    in_own_network(|| {
        const CAP_NET_ADMIN: u64 = 1 << 12;
        crate::base::sys::process::drop_capabilities(CAP_NET_ADMIN).unwrap();
        let (runtime, settings) = (FakeRuntime::default(), Settings::default());
        let h = Harness::connected(runtime, settings, NetworkChoice::Auto);
        let container = json!({"name": "c", "image": "i"});
        fs::write(h.pod_file(), pod(json!({"containers": [container]}))).unwrap();
        h.until("the pod says so", |s| {
            let lacks = s.pods.iter().flat_map(|p| &p.network_lacks);
            let loopback = "pods have only a loopback interface: ";
            lacks.filter(|text| text.starts_with(loopback)).count() == 1
        });
        let metrics = h.daemon.backend().metrics();
        let gauge = "podprobe_network_missing{what=\"bridge\"} 1\n";
        assert!(metrics.contains(gauge), "{metrics}");
        h.daemon.shutdown(CEILING).unwrap();
    });
}

/// A client that asks for services right after the start waits for the first table of services. This takes a moment,
/// because services wait for the first sync of a pod that has no earlier status.
#[test]
fn a_client_that_asks_for_services_at_once_waits_for_the_first_table() {
    in_own_network(|| {
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        let metadata = json!({"name": "web"});
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        let container = json!({"name": "c", "image": "i"});
        let files = [
            ("service.json", service.to_string()),
            ("web.json", pod(json!({"containers": [container]}))),
        ];
        let settings = Settings {
            proxy_mode: crate::net::proxy::auto::ProxyMode::Nftables,
            ..Settings::default()
        };
        let h = Harness::beside(
            &files,
            FakeRuntime::default(),
            settings,
            NetworkChoice::None,
        );
        let names = |services: Vec<crate::net::services::view::ServiceView>| {
            services.into_iter().map(|s| s.name).collect::<Vec<_>>()
        };
        assert_eq!(h.daemon.backend().services().map(names).unwrap(), ["web"]);
        h.daemon.shutdown(CEILING).unwrap();
    });
}

#[test]
fn all_pods_are_removed_whatever_source_they_come_from() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let container = json!({"name": "c", "image": "i", "command": ["serve"]});
    let body = pod(json!({"containers": [container]}));
    let file = body
        .replace("\"web\"", "\"file\"")
        .replace("\"u\"", "\"f\"");
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let _ = io::Read::read(&mut peer, &mut [0; 4096]).unwrap();
        io::Write::write_all(&mut peer, answer.as_bytes()).unwrap();
    });
    let settings = Settings {
        static_pod_url: Some(WebUrl::parse(&url).unwrap()),
        ..Settings::default()
    };
    let h = Harness::with(FakeRuntime::default(), settings);
    fs::write(h.pod_file(), file).unwrap();
    h.until("both pods run", |s| {
        let running = |p: &&Arc<PodView>| p.status.phase == PodPhase::Running;
        s.pods.iter().filter(running).count() == 2
    });
    server.join().unwrap();
    h.daemon.remove_all_pods(CEILING).unwrap();
    assert!(h.runtime.state().containers.is_empty());
    h.daemon.shutdown(CEILING).unwrap();
}

/// Returns a fake runtime with a listing of pods that blocks. The first listing that finds the test waiting for
/// `entered` blocks until the sender of `blocked` is dropped.
fn blocking_list(blocked: Receiver<()>, entered: crossbeam_channel::Sender<()>) -> FakeRuntime {
    FakeRuntime::with_list(move |_, _| {
        if entered.try_send(()).is_ok() {
            let _ = blocked.recv();
        }
        Ok(())
    })
}

#[test]
fn shutdown_waits_for_every_thread_and_names_those_that_are_late() {
    let (open, blocked) = bounded(0);
    let (entered, listing) = bounded(0);
    let h = Harness::on(blocking_list(blocked, entered));
    // From now on PLEG waits in the runtime.
    listing.recv_timeout(CEILING).unwrap();
    // This limit is long enough for the checkpoint's last write on a busy disk.
    let late = h.daemon.shutdown(Duration::from_secs(5)).unwrap_err();
    assert_eq!(late.to_string(), "PLEG did not end within 5s");
    drop(open);
}

/// A pod that has started anew after an eviction is not evicted again because of the checkpoint. If a daemon is killed
/// right after the new start, the checkpoint still has the status of the eviction.
#[test]
fn a_pod_that_has_started_anew_is_not_evicted_again_by_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let open = || {
        let pods = ["waits".into(), "runs".into()];
        crate::pods::eviction::Evictions::open(&layout, &pods, CEILING, bounded(1).0)
    };
    fs::create_dir_all(layout.pod_data(&"waits".into())).unwrap();
    open().evict(&"waits".into(), "full. ");
    let status = |reason: &str| json!({"phase": "Failed", "reason": reason});
    let mut gated = status("Evicted");
    gated["conditions"] =
        json!([{"type": "Ready", "status": "False"}, {"type": "lan/joined", "status": "True"}]);
    let statuses = json!({"waits": status("Evicted"), "runs": status("Evicted"), "gated": gated,
        "rejected": status("NodePorts")});
    let mut restored = crate::pods::checkpoint::Restored {
        statuses: serde_json::from_value(statuses).unwrap(),
        ..Default::default()
    };
    parts::forget_those_that_began_anew(&mut restored, &open());
    let mut left: Vec<_> = restored.statuses.keys().map(|uid| uid.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["gated", "rejected", "waits"]);
    let gated = &restored.statuses[&"gated".into()];
    let types: Vec<_> = gated.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!((types, gated.reason.as_str()), (vec!["lan/joined"], ""));
}

/// Lessons F3: a snapshot shows that the sync loop does not move.
#[test]
fn f3_a_snapshot_says_that_the_sync_loop_stands_still() {
    if !crate::skip::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let settings = Settings {
        static_pod_path: layout.pods_dir(),
        healthz_bind_address: None,
        ..Settings::default()
    };
    let daemon = Daemon::start(settings, layout).unwrap();
    let stalled = || daemon.backend().snapshot().stalled.clone();
    assert_eq!(stalled(), None);
    daemon.shutdown(CEILING).unwrap();
    // The moment `at` is long ago, unless the machine has only just been booted.
    let at = Moment::from_boot(Duration::from_nanos(1));
    daemon.running.backend.heartbeat.turned(at);
    assert_eq!(
        stalled().is_some(),
        Moment::now().since(at) > Duration::from_secs(120)
    );
}

/// The entry of a link among the data of its pod can be lost, and then nothing else finds the link.
#[test]
fn a_daemon_that_starts_or_ends_removes_links_to_logs_that_are_gone() {
    if !crate::skip::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    let links = layout.container_log_links();
    std::fs::create_dir_all(&links).unwrap();
    let link = |name: &str| {
        let link = links.join(name);
        std::os::unix::fs::symlink("../pods/default_gone_1/c/0.log", &link).unwrap();
        link
    };
    let is_there = |link: &std::path::Path| std::fs::symlink_metadata(link).is_ok();
    let settings = Settings {
        static_pod_path: layout.pods_dir(),
        healthz_bind_address: None,
        ..Settings::default()
    };
    let before = link("gone_default_c-1.log");
    let daemon = Daemon::start(settings, layout).unwrap();
    assert!(!is_there(&before));
    let later = link("gone_default_c-2.log");
    daemon.shutdown(CEILING).unwrap();
    assert!(!is_there(&later));
}
