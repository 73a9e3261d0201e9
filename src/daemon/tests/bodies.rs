//! What Prometheus and the kubelet's clients read, of a whole daemon; promtool and a real Prometheus read it too.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::engine::runtime::{RuntimeError, RuntimeState};
use crate::face::server::{Health, Metrics, Registry, Resources};

/// A container that the image store of these tests does not have, of a registry that refuses connections.
const MISSING: &str = "127.0.0.1:1/missing:1";

/// Every image is there but [`MISSING`].
pub(super) fn is_missing(reference: &str) -> bool {
    reference == MISSING
}

/// A daemon to which everything has happened that it counts.
fn eventful() -> Harness {
    eventful_with(Settings::default())
}

fn eventful_with(settings: Settings) -> Harness {
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

/// Returns the restart count of the container `c` of the pod `web`, once the container is ready.
fn restarts(s: &Snapshot) -> Option<u32> {
    let web = s.pods.iter().find(|p| p.uid() == "u")?;
    let c = web.status.container("c").filter(|c| c.ready)?;
    Some(c.restart_count)
}

impl Harness {
    fn file(&self, name: &str) -> std::path::PathBuf {
        self.pod_file().with_file_name(name)
    }

    /// The init container runs and ends.
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
    fn bodies(&self) -> [(&'static str, String); 4] {
        let backend = &self.daemon.running.backend;
        [
            ("/metrics", backend.metrics()),
            ("/metrics/resource", backend.metrics_of(Registry::Resource)),
            ("/metrics/cadvisor", backend.metrics_of(Registry::Cadvisor)),
            ("/metrics/probes", backend.metrics_of(Registry::Probes)),
        ]
    }

    /// Waits for a line of `/metrics` that begins so.
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

    /// Everything that is counted late.
    fn until_all_is_counted(&self) {
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
            "podprobe_refused_files{source=\"file\"} 1",
        ] {
            self.until_line(start);
        }
    }
}

/// The names of samples, without the suffixes of histograms' families.
fn names(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|l| !l.starts_with('#'));
    samples.filter_map(|l| l.split(['{', ' ']).next()).collect()
}

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap()
}

/// Reads the name and the expression of each alert from the file of rules.
fn alerts() -> Vec<(String, String)> {
    let text = text_of("config/prometheus-alerts.yaml");
    let mut all: Vec<(String, String)> = Vec::new();
    let mut is_expression = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            all.push((name.to_owned(), String::new()));
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            is_expression = expression == ">-";
            all.last_mut().unwrap().1 = expression.trim_start_matches(">-").to_owned();
        } else if is_expression && (line.starts_with("for: ") || line.starts_with("labels: ")) {
            is_expression = false;
        } else if is_expression {
            let expression = &mut all.last_mut().unwrap().1;
            expression.push(' ');
            expression.push_str(line);
        }
    }
    all
}

/// Every expression of the dashboard, its variables filled in.
fn panels() -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let expression = map.get("expr").and_then(Value::as_str);
                found.extend(expression.map(str::to_owned));
                map.values().for_each(|v| walk(v, found));
            }
            Value::Array(all) => all.iter().for_each(|v| walk(v, found)),
            _ => {}
        }
    }
    let dashboard: Value = serde_json::from_str(&text_of("config/grafana-dashboard.json")).unwrap();
    let mut found = Vec::new();
    walk(&dashboard["panels"], &mut found);
    let filled = |e: String| {
        let e = e.replace("$instance", ".*").replace("$namespace", ".*");
        e.replace("$pod", ".*")
    };
    found.into_iter().map(filled).collect()
}

/// The metrics of an expression: names that are no function, no word of PromQL and no label.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut outside = String::new();
    let (mut quoted, mut depth) = (false, 0);
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ if !quoted && depth == 0 => outside.push(c),
            _ => {}
        }
    }
    // Lists of labels follow these words.
    for word in [
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
    ] {
        while let Some(at) = outside.find(&format!(" {word} (")) {
            let end = at + outside[at..].find(')').unwrap();
            outside.replace_range(at..=end, " ");
        }
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = BTreeSet::new();
    let mut rest = outside.as_str();
    while let Some(at) = rest.find(is_name) {
        rest = &rest[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let is_word = ["and", "or", "unless", "bool", "offset"].contains(&name);
        let is_number = name.starts_with(|c: char| c.is_ascii_digit());
        if !is_word && !is_number && !after.trim_start().starts_with('(') {
            found.insert(name.to_owned());
        }
        rest = after;
    }
    found
}

#[test]
fn the_metrics_of_an_expression_are_found() {
    let found = |e: &str| metrics_of(e).into_iter().collect::<Vec<_>>();
    assert_eq!(
        found(r#"sum by (a, le) (rate(x_total{a="y{z"}[5m])) / on (b) w_max > 0.5"#),
        ["w_max", "x_total"]
    );
    assert_eq!(
        found("time() - a:b == 1 and on (c) (d or vector(0))"),
        ["a:b", "d"]
    );
}

/// A rule or a panel of a metric that does not exist is silent for ever.
#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_the_daemon_emits() {
    let h = eventful();
    h.until_all_is_counted();
    let bodies = h.bodies();
    let mut emitted: BTreeSet<&str> = bodies.iter().flat_map(|(_, text)| names(text)).collect();
    // Prometheus makes it itself. No container of this runtime has a network or a cgroup; src/engine/stats/tests.rs has those series.
    let of_others = [
        "up",
        "container_network_receive_bytes_total",
        "container_network_transmit_bytes_total",
    ];
    emitted.extend(of_others);
    let alerts = alerts();
    let panels = panels();
    assert!(alerts.len() >= 17 && panels.len() >= 25, "they are read");
    let expressions = alerts.iter().map(|(_, e)| e).chain(&panels);
    for expression in expressions {
        let metrics = metrics_of(expression);
        assert!(!metrics.is_empty(), "{expression}");
        let unknown: Vec<_> = metrics
            .iter()
            .filter(|m| !emitted.contains(m.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?} in {expression}");
    }
}

/// Leaves out metrics whose names others have given: the documentation of those others tells of them.
#[test]
fn the_manual_tells_of_every_metric_that_is_podprobe_s_own() {
    let h = eventful();
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
}

#[test]
fn what_happened_is_counted_and_series_go_with_their_pod() {
    let h = eventful();
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
        &format!("kube_pod_container_status_last_terminated_reason{{{of},reason=\"OOMKilled\"}} 1"),
        &format!(
            "podprobe_build_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        ),
    ] {
        // The runtime is listed once a second.
        assert_eq!(h.until_line(line), line);
    }
    let value = |name: &str| -> f64 {
        let line = h.until_line(&format!("{name} "));
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert!(value("kubelet_pod_start_duration_seconds_count") >= 1.0);
    assert!(value("process_open_fds") > 3.0 && value("process_threads") > 5.0);
    assert!(
        value("process_cpu_seconds_total") > 0.0 && value("process_resident_memory_bytes") > 1e6
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
}

#[test]
fn probes_alone_have_the_kubelet_s_three_families() {
    let h = eventful();
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
}

#[test]
fn the_summary_has_the_pods_that_run() {
    let h = eventful();
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
}

/// Names that the kubelet and kube-proxy have given, against the advice for names.
const NAMES_OF_OTHERS: [&str; 3] = [
    "kubelet_evictions",
    "kubelet_pleg_discard_events",
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
];

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        crate::skip::skip(&format!(
            "needs {program} (Debian packages prometheus, openssl)"
        ));
    }
    found
}

fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn promtool_finds_nothing_wrong_with_any_body_but_the_names_of_others() {
    if !has("promtool") {
        return;
    }
    let h = eventful();
    h.until_all_is_counted();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (path, text) in h.bodies() {
        let (_, said) = promtool(&["check", "metrics"], &text);
        for line in said.lines() {
            let name = NAMES_OF_OTHERS.iter().find(|n| line.starts_with(*n));
            assert!(name.is_some() && !line.contains("error"), "{path}: {line}");
            seen.extend(name);
        }
    }
    assert_eq!(
        seen.len(),
        NAMES_OF_OTHERS.len(),
        "of these only {seen:?} occur"
    );
    let (_, said) = promtool(&["check", "metrics"], "a_total 1\na_total 1\n");
    assert!(!said.is_empty(), "promtool does look");
}

#[test]
fn promtool_agrees_with_the_rules_and_each_alert_has_its_test() {
    if !has("promtool") {
        return;
    }
    let rules = repository("config/prometheus-alerts.yaml");
    let (good, said) = promtool(&["check", "rules", rules.to_str().unwrap()], "");
    assert!(good, "{said}");
    let tests = "tests/data/prometheus-alerts-test.yaml";
    let (good, said) = promtool(&["test", "rules", repository(tests).to_str().unwrap()], "");
    assert!(good, "{said}");
    let tests = text_of(tests);
    for (alert, _) in alerts() {
        let fires = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\",");
        assert!(tests.contains(&fires), "{tests} has no test of {alert}");
    }
    // The secrets that the example names are not there, and need not be.
    let config = repository("config/prometheus.yaml");
    let syntax = ["check", "config", "--syntax-only", config.to_str().unwrap()];
    let (good, said) = promtool(&syntax, "");
    assert!(good, "{said}");
}

/// The port of the example configuration.
const PORT: u16 = 10250;
const TOKEN: &str = "token-of-the-scraper";

/// Writes a key, a certificate for 127.0.0.1 and a token into that directory. Returns settings that open `port` with them.
fn with_port(dir: &Path) -> Settings {
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=node"
                .split(' '),
        )
        .args("-keyout key.pem -out ca.pem -addext subjectAltName=IP:127.0.0.1".split(' '))
        .current_dir(dir)
        .output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    fs::write(dir.join("token"), TOKEN).unwrap();
    for secret in ["key.pem", "token"] {
        fs::set_permissions(dir.join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
    Settings {
        address: Ipv4Addr::LOCALHOST.into(),
        port: Some(PORT),
        tls_cert_file: Some(dir.join("ca.pem")),
        tls_private_key_file: Some(dir.join("key.pem")),
        bearer_token_file: Some(dir.join("token")),
        ..Settings::default()
    }
}

/// Ends with its value.
struct Prometheus(Child);

const PROMETHEUS: u16 = 9090;

impl Prometheus {
    /// With the configuration of config/, of which only the places are changed and how often it scrapes, and a job for each
    /// body that it leaves out. The secrets are in `dir`.
    fn start(dir: &Path) -> Self {
        let mut config = text_of("config/prometheus.yaml");
        let last = config.find("  - job_name: podprobe-cadvisor\n").unwrap();
        let job = config[last..].to_owned();
        for body in ["resource", "probes"] {
            config += &job.replace("cadvisor", body);
        }
        for (theirs, ours) in [
            ("edge-1.example:10250", format!("127.0.0.1:{PORT}")),
            ("/etc/prometheus/podprobe.token", "token".into()),
            ("/etc/prometheus/podprobe-ca.crt", "ca.pem".into()),
            (
                "scrape_interval: 30s",
                "scrape_interval: 1s\n  evaluation_interval: 1s".into(),
            ),
        ] {
            assert!(config.contains(theirs), "{theirs} in {config}");
            config = config.replace(theirs, &ours);
        }
        fs::write(dir.join("prometheus.yaml"), config).unwrap();
        let rules = "prometheus-alerts.yaml";
        fs::copy(repository("config").join(rules), dir.join(rules)).unwrap();
        let log = fs::File::create(dir.join("log")).unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address=127.0.0.1:{PROMETHEUS}"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The answer of its API; None while it starts.
    fn ask(path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PROMETHEUS)).ok()?;
        stream.set_read_timeout(Some(CEILING)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns how many series an instant query gives, or the answer that says why the query failed.
    fn query(expression: &str) -> Result<usize, String> {
        let encoded: String = expression.bytes().map(|b| format!("%{b:02X}")).collect();
        let answer = Self::ask(&format!("/api/v1/query?query={encoded}")).ok_or("no answer")?;
        let series = answer["data"]["result"].as_array().map(Vec::len);
        series.ok_or_else(|| answer.to_string())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// At `port`, as on a node of people's. In a network of its own, so that no port is taken.
#[test]
fn a_real_prometheus_scrapes_every_body_and_evaluates_every_expression() {
    if !has("prometheus") || !has("openssl") {
        return;
    }
    in_own_network(|| {
        crate::base::sys::socket::loopback_up().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let h = eventful_with(with_port(dir.path()));
        h.until_all_is_counted();
        let _prometheus = Prometheus::start(dir.path());
        scrapes_and_evaluates();
    });
}

fn scrapes_and_evaluates() {
    let deadline = Instant::now() + CEILING;
    let mut all_up = Err("not asked".to_owned());
    while all_up != Ok(4) {
        let targets = || Prometheus::ask("/api/v1/targets");
        assert!(
            Instant::now() < deadline,
            "{all_up:?}: {:#}",
            targets().unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(100));
        all_up = Prometheus::query("up == 1");
    }
    for expression in alerts().into_iter().map(|(_, e)| e).chain(panels()) {
        let answer = Prometheus::query(&expression);
        assert!(answer.is_ok(), "{expression}: {answer:?}");
    }
    for (expression, n) in [
        ("kube_pod_info", 3),
        ("count(kube_pod_status_ready{condition=\"false\"} == 1)", 1),
        (
            "kube_pod_container_status_last_terminated_reason{reason=\"OOMKilled\"}",
            1,
        ),
        ("podprobe_refused_files == 1", 1),
        (
            "prober_probe_duration_seconds_count{job=\"podprobe-probes\"} > 0",
            1,
        ),
        ("container_memory_working_set_bytes{id=\"/\"} > 0", 1),
        ("node_memory_working_set_bytes > 0", 1),
    ] {
        assert_eq!(Prometheus::query(expression), Ok(n), "{expression}");
    }
    let rules = Prometheus::ask("/api/v1/rules").unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap().iter();
    let all: Vec<&Value> = groups
        .flat_map(|g| g["rules"].as_array().unwrap())
        .collect();
    assert_eq!(all.len(), alerts().len());
    for rule in all {
        assert_ne!(rule["health"], "err", "{rule:#}");
    }
}
