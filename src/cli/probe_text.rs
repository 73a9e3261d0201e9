//! Describes the specification of a probe on one line, as kubectl does.

use crate::api::Probe;
use crate::api::pod::{Handler, IntOrString};

/// Returns a description such as `http-get http://:8080/healthz delay=0s timeout=1s period=10s #success=1
/// #failure=3`.
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

/// Returns a time as text. Milliseconds replace the seconds if they are set.
fn time(milliseconds: Option<i32>, seconds: i32) -> String {
    milliseconds.map_or_else(|| format!("{seconds}s"), |ms| format!("{ms}ms"))
}

/// Puts an IPv6 address into brackets, because a port follows.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.into()
    }
}

fn port(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
