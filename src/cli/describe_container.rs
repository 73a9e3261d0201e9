//! The containers in `describe pod`, line by line as kubectl prints them.

use serde_json::Value;

use super::describe::{put, scalar};
use super::human;
use crate::api::pod::{Handler, IntOrString};
use crate::api::status::ContainerState;
use crate::api::{ContainerStatus, Probe};
use crate::clock::Time;

/// Writes the section of a list of containers; an absent list of init containers has none.
pub(super) fn all(w: &mut String, title: &str, containers: &Value, statuses: &[ContainerStatus]) {
    let list = containers.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return;
    }
    put!(w, "{title}:");
    for c in list {
        let name = c["name"].as_str().unwrap_or_default();
        put!(w, "  {name}:");
        let status = statuses.iter().find(|s| s.name == name);
        basics(w, c, status);
        if let Some(status) = status {
            states(w, status);
        }
        amounts(w, "Limits", &c["resources"]["limits"]);
        amounts(w, "Requests", &c["resources"]["requests"]);
        probes(w, c);
        environment(w, &c["env"]);
        mounts(w, &c["volumeMounts"]);
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn basics(w: &mut String, c: &Value, status: Option<&ContainerStatus>) {
    if let Some(s) = status {
        put!(w, "    Container ID:\t{}", s.container_id);
    }
    put!(w, "    Image:\t{}", c["image"].as_str().unwrap_or_default());
    if let Some(s) = status {
        put!(w, "    Image ID:\t{}", s.image_id);
    }
    let ports = c["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    port_line(w, ports, "Port", "containerPort");
    port_line(w, ports, "Host Port", "hostPort");
    for (title, key) in [("Command", "command"), ("Args", "args")] {
        if strings(&c[key]).next().is_some() {
            put!(w, "    {title}:");
        }
        for line in strings(&c[key]).flat_map(|word| word.split('\n')) {
            put!(w, "      {line}");
        }
    }
}

fn port_line(w: &mut String, ports: &[Value], title: &str, key: &str) {
    let one = |p: &Value| {
        let name = p["name"]
            .as_str()
            .filter(|n| !n.is_empty())
            .map(|n| format!(" ({n})"))
            .unwrap_or_default();
        format!(
            "{}/{}{name}",
            p[key].as_i64().unwrap_or(0),
            p["protocol"].as_str().unwrap_or("TCP")
        )
    };
    let text = ports.iter().map(one).collect::<Vec<_>>().join(", ");
    let plural = if ports.len() > 1 { "s" } else { "" };
    put!(
        w,
        "    {title}{plural}:\t{}",
        if text.is_empty() { "<none>" } else { &text }
    );
}

fn states(w: &mut String, s: &ContainerStatus) {
    state(w, "State", &s.state);
    if s.last_state.terminated.is_some() {
        state(w, "Last State", &s.last_state);
    }
    put!(w, "    Ready:\t{}", if s.ready { "True" } else { "False" });
    put!(w, "    Restart Count:\t{}", s.restart_count);
}

fn state(w: &mut String, title: &str, state: &ContainerState) {
    let text = |w: &mut String, title: &str, value: &str| {
        if !value.is_empty() {
            put!(
                w,
                "      {title}:\t{}",
                value.trim_end().replace('\n', "\n      \t")
            );
        }
    };
    let time = |t: Option<Time>| t.map(human::date).unwrap_or_default();
    if let Some(r) = &state.running {
        put!(w, "    {title}:\tRunning");
        text(w, "Started", &time(r.started_at));
    } else if let Some(t) = &state.terminated {
        put!(w, "    {title}:\tTerminated");
        text(w, "Reason", &t.reason);
        text(w, "Message", &t.message);
        put!(w, "      Exit Code:\t{}", t.exit_code);
        if let Some(signal) = t.signal.filter(|s| *s > 0) {
            put!(w, "      Signal:\t{signal}");
        }
        text(w, "Started", &time(t.started_at));
        text(w, "Finished", &time(t.finished_at));
    } else {
        put!(w, "    {title}:\tWaiting");
        let waiting = state.waiting.as_ref();
        text(w, "Reason", waiting.map_or("", |s| &s.reason));
        // kubectl leaves the message to the events; it says what to do, so it stands here too.
        text(w, "Message", waiting.map_or("", |s| &s.message));
    }
}

fn amounts(w: &mut String, title: &str, map: &Value) {
    let mut entries: Vec<_> = map.as_object().into_iter().flatten().collect();
    entries.sort_by_key(|(k, _)| k.as_str());
    if !entries.is_empty() {
        put!(w, "    {title}:");
    }
    for (key, value) in entries {
        put!(w, "      {key}:\t{}", scalar(value).unwrap_or_default());
    }
}

fn probes(w: &mut String, c: &Value) {
    for (title, key) in [
        ("Liveness", "livenessProbe"),
        ("Readiness", "readinessProbe"),
        ("Startup", "startupProbe"),
    ] {
        if let Ok(probe) = serde_json::from_value::<Probe>(c[key].clone()) {
            put!(w, "    {title}:\t{}", probe_text(&probe));
        }
    }
}

/// `http-get http://:8080/healthz delay=0s timeout=1s period=10s #success=1 #failure=3`.
pub fn probe_text(p: &Probe) -> String {
    let handler = match p.handler() {
        Some(Handler::Exec(exec)) => format!("exec [{}]", exec.command.join(" ")),
        Some(Handler::HttpGet(get)) => {
            let scheme = if get.scheme.is_empty() {
                "http".into()
            } else {
                get.scheme.to_lowercase()
            };
            let slash = if get.path.starts_with('/') { "" } else { "/" };
            format!(
                "http-get {scheme}://{}:{}{slash}{}",
                bracketed(&get.host),
                port(&get.port),
                get.path
            )
        }
        Some(Handler::TcpSocket(tcp)) => format!("tcp-socket {}:{}", tcp.host, port(&tcp.port)),
        Some(Handler::Grpc(grpc)) => format!(
            "grpc <pod>:{} {}",
            grpc.port,
            grpc.service.as_deref().unwrap_or_default()
        ),
        None => "unknown".into(),
    };
    format!(
        "{handler} delay={} timeout={} period={} #success={} #failure={}",
        time(p.initial_delay_milliseconds, p.initial_delay_seconds),
        time(p.timeout_milliseconds, p.timeout_seconds),
        time(p.period_milliseconds, p.period_seconds),
        p.success_threshold,
        p.failure_threshold
    )
}

/// In the unit in which it counts.
fn time(milliseconds: Option<i32>, seconds: i32) -> String {
    milliseconds.map_or_else(|| format!("{seconds}s"), |ms| format!("{ms}ms"))
}

/// An IPv6 address stands in brackets before a port.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.into()
    }
}

fn port(port: &IntOrString) -> String {
    match serde_json::to_value(port) {
        Ok(v) => scalar(&v).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

fn environment(w: &mut String, env: &Value) {
    let list = env.as_array().map(Vec::as_slice).unwrap_or_default();
    put!(
        w,
        "    Environment:{}",
        if list.is_empty() { "\t<none>" } else { "" }
    );
    for e in list {
        let value = e["value"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', "\n      \t");
        put!(
            w,
            "      {}:\t{value}",
            e["name"].as_str().unwrap_or_default()
        );
    }
}

fn mounts(w: &mut String, list: &Value) {
    let mut list: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    list.sort_by_key(|m| m["mountPath"].as_str());
    put!(
        w,
        "    Mounts:{}",
        if list.is_empty() { "\t<none>" } else { "" }
    );
    for m in list {
        let text = |key: &str| m[key].as_str().unwrap_or_default();
        let mode = if m["readOnly"] == true { "ro" } else { "rw" };
        let sub = if text("subPath").is_empty() {
            String::new()
        } else {
            format!(",path=\"{}\"", text("subPath"))
        };
        put!(
            w,
            "      {} from {} ({mode}{sub})",
            text("mountPath"),
            text("name")
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(probe: Value, expected: &str) {
        assert_eq!(
            probe_text(&serde_json::from_value(probe).unwrap()),
            expected
        );
    }

    #[test]
    fn probes_are_one_line_each() {
        let tail = "delay=0s timeout=1s period=10s #success=1 #failure=3";
        check(
            json!({"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}}),
            &format!("http-get http://:8080/healthz {tail}"),
        );
        check(
            json!({"httpGet": {"path": "x", "port": "web", "host": "::1", "scheme": "HTTPS"}}),
            &format!("http-get https://[::1]:web/x {tail}"),
        );
        check(
            json!({"tcpSocket": {"port": 80}}),
            &format!("tcp-socket :80 {tail}"),
        );
        check(
            json!({"exec": {"command": ["cat", "/tmp/x"]}}),
            &format!("exec [cat /tmp/x] {tail}"),
        );
        check(
            json!({"grpc": {"port": 9000, "service": "s"}}),
            &format!("grpc <pod>:9000 s {tail}"),
        );
        let odd = json!({"tcpSocket": {"port": 1}, "initialDelaySeconds": 5, "timeoutSeconds": 2, "periodSeconds": 3, "successThreshold": 4, "failureThreshold": 6});
        check(
            odd,
            "tcp-socket :1 delay=5s timeout=2s period=3s #success=4 #failure=6",
        );
        let fine = json!({"tcpSocket": {"port": 1}, "initialDelayMilliseconds": 250, "timeoutMilliseconds": 100, "periodSeconds": 3});
        check(
            fine,
            "tcp-socket :1 delay=250ms timeout=100ms period=3s #success=1 #failure=3",
        );
    }
}
