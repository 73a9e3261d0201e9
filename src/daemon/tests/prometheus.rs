//! Compares the files for Prometheus and Grafana in config/ with the metrics of a whole daemon. promtool and a real
//! Prometheus read both.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::bodies::{eventful_with, repository, text_of, with_eventful};
use super::*;
use crate::every_workload::every_workload;
use crate::face::views::kube_workloads::write_workloads;

/// Returns the metrics of a workload of each kind.
fn of_workloads() -> String {
    let mut out = String::new();
    write_workloads(&every_workload(), &mut out);
    out
}

/// Returns the names of the samples in a text of metrics, without the suffixes of histograms.
fn names(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|l| !l.starts_with('#'));
    samples.filter_map(|l| l.split(['{', ' ']).next()).collect()
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

/// Returns every expression of the dashboard with its variables filled in.
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

/// Returns the metrics of an expression: the names that are neither functions nor labels nor words of PromQL.
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
    // These words are followed by lists of labels.
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

/// The daemon emits every metric that the dashboard and the alerts use. A rule or a panel with a metric that does not
/// exist stays silent forever.
#[test]
fn the_dashboard_and_the_alerts_use_metrics_that_the_daemon_emits() {
    with_eventful(|h| {
        h.until_all_is_counted();
        let bodies = h.bodies();
        let mut emitted: BTreeSet<&str> = bodies.iter().flat_map(|(_, text)| names(text)).collect();
        // Prometheus itself makes the metric `up`. The containers of this runtime have no network and no cgroup, so the
        // series of the network are tested in src/engine/stats/tests.rs.
        let of_others = [
            "up",
            "container_network_receive_bytes_total",
            "container_network_transmit_bytes_total",
        ];
        emitted.extend(of_others);
        // Most families of workloads need a Job that has failed, or a rollout.
        let of_workloads = of_workloads();
        emitted.extend(names(&of_workloads));
        let alerts = alerts();
        let panels = panels();
        assert!(alerts.len() >= 27 && panels.len() >= 25, "they are read");
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
    });
}

/// Names of metrics that the kubelet and kube-proxy have chosen against Prometheus' advice for names.
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
    with_eventful(|h| {
        h.until_all_is_counted();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let of_workloads = ("workloads", of_workloads());
        for (path, text) in h.bodies().into_iter().chain([of_workloads]) {
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
    });
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
    // The files with the secrets that the example names do not exist. The check of the syntax does not need these
    // files.
    let config = repository("config/prometheus.yaml");
    let syntax = ["check", "config", "--syntax-only", config.to_str().unwrap()];
    let (good, said) = promtool(&syntax, "");
    assert!(good, "{said}");
}

/// Port of the example configuration.
const PORT: u16 = 10250;
const TOKEN: &str = "token-of-the-scraper";

/// Writes a key, a certificate for 127.0.0.1 and a token into the directory. Returns settings that open `port` with
/// these three files.
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

/// A Prometheus process, which ends when the value is dropped.
struct Prometheus(Child);

const PROMETHEUS: u16 = 9090;

impl Prometheus {
    /// Starts Prometheus with the configuration in config/. Only the paths, the addresses and the scrape interval are
    /// changed, and a job is added for each body that the configuration leaves out. The secrets are in `dir`.
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

    /// Returns the response of Prometheus' API; None while Prometheus starts.
    fn ask(path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PROMETHEUS)).ok()?;
        stream.set_read_timeout(Some(CEILING)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the number of series in the result of an instant query. If the query failed, returns the response with
    /// the reason.
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

/// A real Prometheus scrapes a daemon that listens at `port`, as on a real node. The test has its own network, so that
/// no port is in use.
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
