//! Tests of what Prometheus and the kubelet's clients read from a whole daemon.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::engine::runtime::{RuntimeError, RuntimeState};
use crate::face::server::{Health, Metrics, Registry, Resources};

/// Image that the image store of these tests does not have, from a registry that refuses connections.
const MISSING: &str = "127.0.0.1:1/missing:1";

/// True if the image store does not have the image. The store has every image except [`MISSING`].
pub(super) fn is_missing(reference: &str) -> bool {
    reference == MISSING
}

/// Runs a test on a daemon after every kind of event that its metrics count. The daemon has a network of its own, because its
/// service leaves a route.
pub(super) fn with_eventful(test: impl FnOnce(Harness) + Send) {
    in_own_network(|| test(eventful_with(Settings::default())));
}

/// Returns a daemon after every kind of event that its metrics count.
pub(super) fn eventful_with(settings: Settings) -> Harness {
    let failing = |_: &str, command: &[String]| match command.first().map(String::as_str) {
        Some("error") => Err(RuntimeError::failed("no")),
        Some("fail") => Ok(ExecOutcome::Exited {
            code: 1,
            output: b"no".to_vec(),
        }),
        _ => Ok(ExecOutcome::Exited {
            code: 0,
            output: Vec::new(),
        }),
    };
    let h = Harness::with(FakeRuntime::with_exec(failing), settings);
    let file = |name: &str, text: String| fs::write(h.file(name), text).unwrap();
    let probe = |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1});
    let web = json!({
        "initContainers": [{"name": "init", "image": "i"}],
        "containers": [
            {"name": "c", "image": "i", "readinessProbe": probe("check"), "resources": {"limits": {"memory": "64Mi"}}},
            {"name": "failing", "image": "i", "readinessProbe": probe("fail")},
            {"name": "erring", "image": "i", "readinessProbe": probe("error")}]});
    file("web.json", pod(web));
    let other = |name: &str, spec: Value| {
        let metadata = json!({"name": name, "uid": name, "labels": {"app": "web"}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
    };
    let missing = json!({"containers": [{"name": "c", "image": MISSING}]});
    file("missing.json", other("missing", missing));
    let elsewhere =
        json!({"nodeSelector": {"disk": "none"}, "containers": [{"name": "c", "image": "i"}]});
    file("elsewhere.json", other("elsewhere", elsewhere));
    file("bad.json", "{".into());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "web"}, "ports": [{"port": 80}]}});
    file("service.json", service.to_string());
    let metadata = json!({"labels": {"app": "idle"}});
    let template =
        json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec =
        json!({"replicas": 0, "selector": {"matchLabels": {"app": "idle"}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "idle"}, "spec": spec});
    file("deployment.json", deployment.to_string());
    h.end_init();
    h.until("the pod runs", |s| restarts(s) == Some(0));
    {
        let mut state = h.runtime.state();
        let mut all = state.containers.iter_mut();
        let c = all.find(|c| c.metadata.name == "c").unwrap();
        end(c, 137);
        c.reason = "OOMKilled".into();
    }
    h.until("it runs again", |s| restarts(s) == Some(1));
    h
}

/// Returns the restart count of the container `c` of the pod `web`; None until the container is ready.
fn restarts(s: &Snapshot) -> Option<u32> {
    let web = s.pods.iter().find(|p| p.uid() == "u")?;
    let c = web.status.container("c").filter(|c| c.ready)?;
    Some(c.restart_count)
}

impl Harness {
    fn file(&self, name: &str) -> std::path::PathBuf {
        self.pod_file().with_file_name(name)
    }

    /// Waits until the init container runs, and ends the container.
    fn end_init(&self) {
        let deadline = Instant::now() + CEILING;
        let ended = || {
            let mut state = self.runtime.state();
            let mut all = state.containers.iter_mut();
            let runs =
                |c: &&mut crate::engine::runtime::ContainerStatus| c.state == RuntimeState::Running;
            let init = all.find(|c| c.metadata.name == "init").filter(runs);
            init.map(|c| end(c, 0)).is_some()
        };
        while !ended() {
            assert!(Instant::now() < deadline, "no init container runs");
            std::thread::yield_now();
        }
    }

    /// Returns the bodies of metrics, by path.
    pub(super) fn bodies(&self) -> [(&'static str, String); 4] {
        let backend = &self.daemon.running.backend;
        [
            ("/metrics", backend.metrics()),
            ("/metrics/resource", backend.metrics_of(Registry::Resource)),
            ("/metrics/cadvisor", backend.metrics_of(Registry::Cadvisor)),
            ("/metrics/probes", backend.metrics_of(Registry::Probes)),
        ]
    }

    /// Waits for a line of `/metrics` that begins with `start`.
    #[track_caller]
    fn until_line(&self, start: &str) -> String {
        let deadline = Instant::now() + CEILING;
        loop {
            let text = self.daemon.running.backend.metrics();
            if let Some(line) = text.lines().find(|l| l.starts_with(start)) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "{start} in\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the metrics that are counted only some time after their event.
    pub(super) fn until_all_is_counted(&self) {
        for start in [
            "prober_probe_total{",
            "prober_probe_duration_seconds_count{",
            "podprobe_prober_probe_lateness_seconds_count ",
            "kube_pod_container_status_waiting_reason{",
            "podprobe_prober_probe_errors_total{",
            "podprobe_prober_probe_failure_duration_seconds_count",
            "podprobe_registry_errors_total{reason=\"unavailable\",registry=\"127.0.0.1:1\"}",
            "kubelet_started_containers_errors_total{code=\"RegistryUnavailable\"",
            "kubelet_terminated_containers_total{container_type=\"init_container\"",
            "podprobe_service_endpoints{",
            "kube_deployment_spec_replicas{deployment=\"idle\",namespace=\"default\"} 0",
            "podprobe_refused_files{source=\"file\"} 1",
        ] {
            self.until_line(start);
        }
    }
}

pub(super) fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(super) fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// The manual describes every metric whose name begins with `podprobe_`. Metrics with names from other projects are
/// left out, because the documentation of those projects describes them.
#[test]
fn the_manual_tells_of_every_metric_that_is_podprobe_s_own() {
    with_eventful(|h| {
        h.until_all_is_counted();
        let bodies = h.bodies();
        let emitted = bodies.iter().flat_map(|(_, text)| text.lines());
        let families = emitted.filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next());
        let own: BTreeSet<&str> = families.filter(|n| n.starts_with("podprobe_")).collect();
        assert!(own.len() >= 20, "{own:?}");
        let page = text_of("docs/manual/metrics.md");
        let is_there = |name: &str| {
            ['`', '{']
                .iter()
                .any(|end| page.contains(&format!("`{name}{end}")))
        };
        let missing: Vec<_> = own.into_iter().filter(|name| !is_there(name)).collect();
        assert_eq!(missing, [""; 0]);
    });
}

#[test]
fn what_happened_is_counted_and_series_go_with_their_pod() {
    with_eventful(|h| {
        Health::panicked(&*h.daemon.running.backend);
        h.until_all_is_counted();
        let of = r#"container="c",namespace="default",pod="web-node",uid="u""#;
        for line in [
            "kubelet_started_containers_total{container_type=\"init_container\"} 1",
            "kubelet_terminated_containers_total{container_type=\"container\",exit_code=\"137\",reason=\"OOMKilled\"} 1",
            "kubelet_admission_rejections_total{reason=\"NodeAffinity\"} 1",
            "kubelet_desired_pods{static=\"true\"} 3",
            "kubelet_active_pods{static=\"true\"} 2",
            "kubelet_running_pods 2",
            "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 0",
            "podprobe_refused_files{source=\"http\"} 0",
            "podprobe_panics_total{part=\"pleg\"} 0",
            "podprobe_panics_total{part=\"server\"} 1",
            "podprobe_panics_total{part=\"proxy\"} 0",
            "podprobe_metrics_left_out_total{part=\"pods\"} 0",
            "podprobe_sync_loop_channel_capacity{channel=\"config\"} 50",
            &format!("kube_pod_container_status_restarts_total{{{of}}} 1"),
            &format!(
                "kube_pod_container_status_last_terminated_reason{{{of},reason=\"OOMKilled\"}} 1"
            ),
            &format!(
                "podprobe_build_info{{version=\"{}\"}} 1",
                env!("CARGO_PKG_VERSION")
            ),
        ] {
            // PLEG lists the runtime once a second, so the line may come late.
            assert_eq!(h.until_line(line), line);
        }
        let value = |name: &str| -> f64 {
            let line = h.until_line(&format!("{name} "));
            line.split(' ').nth(1).unwrap().parse().unwrap()
        };
        assert!(value("kubelet_pod_start_duration_seconds_count") >= 1.0);
        assert!(value("process_open_fds") > 3.0 && value("process_threads") > 5.0);
        assert!(
            value("process_cpu_seconds_total") > 0.0
                && value("process_resident_memory_bytes") > 1e6
        );
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        for name in [
            "process_start_time_seconds",
            "kubelet_pleg_last_seen_seconds",
        ] {
            assert!((now - value(name)).abs() < 600.0, "{name} {}", value(name));
        }
        assert!(
            h.until_line("podprobe_disk_free_bytes{directory=\"lib\"}")
                .ends_with(char::is_numeric)
        );
        fs::remove_file(h.pod_file()).unwrap();
        h.until("the pod is gone", |s| s.pods.iter().all(|p| p.uid() != "u"));
        for (path, text) in h.bodies() {
            assert!(!text.contains("web-node"), "{path}:\n{text}");
        }
    });
}

#[test]
fn probes_alone_have_the_kubelet_s_three_families() {
    with_eventful(|h| {
        h.until_all_is_counted();
        let text = h.daemon.running.backend.metrics_of(Registry::Probes);
        let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE "));
        let families: Vec<_> = types.filter_map(|l| l.split(' ').next()).collect();
        let expected = [
            "prober_probe_total",
            "prober_probe_duration_seconds",
            "process_start_time_seconds",
        ];
        assert_eq!(families, expected);
    });
}

#[test]
fn the_summary_has_the_pods_that_run() {
    with_eventful(|h| {
        let backend = &h.daemon.running.backend;
        for only_cpu_and_memory in [true, false] {
            let text = backend.stats_summary(only_cpu_and_memory).unwrap();
            let summary: Value = serde_json::from_str(&text).unwrap();
            let node = &summary["node"];
            assert_eq!(node["nodeName"], "node");
            assert!(node["memory"]["workingSetBytes"].as_u64().unwrap() > 0);
            assert_eq!(node["fs"]["capacityBytes"].is_u64(), !only_cpu_and_memory);
            let pods = summary["pods"].as_array().unwrap();
            let web = pods
                .iter()
                .find(|p| p["podRef"]["name"] == "web-node")
                .unwrap();
            assert_eq!(web["podRef"]["uid"], "u");
            let containers = web["containers"].as_array().unwrap().iter();
            let names: BTreeSet<&str> = containers.filter_map(|c| c["name"].as_str()).collect();
            assert!(names.contains("c") && !names.contains("init"), "{names:?}");
        }
    });
}
