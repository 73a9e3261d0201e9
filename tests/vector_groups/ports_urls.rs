//! ports-urls.json: where a probe goes and with which headers (kubelet-probes 3.3, 3.4).

use std::collections::BTreeMap;

use podprobe::api::PodStatus;
use podprobe::api::pod::{ContainerPort, HttpHeader, IntOrString};
use podprobe::api::probe_host::ProbeHosts;
use podprobe::pods::prober::http::header_map;
use podprobe::pods::prober::ports::{port_by_name, resolve_port};
use podprobe::pods::prober::target::resolve_target;
use podprobe::pods::prober::url::ProbeUrl;
use serde::Deserialize;
use serde_json::Value;

use super::{AS_TOLD, Case, Group, Run, Verdict, group, same};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("findPortByName", Run::Each(find_port_by_name)),
    group("resolvePort", Run::Each(resolve)),
    group("httpTarget", Run::Each(http_target)),
    group("tcpTarget", Run::Each(tcp_target)),
    group("formatURL", Run::Each(format_url)),
    group("headers", Run::Each(headers)),
];

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Port {
    name: String,
    container_port: i32,
}

fn ports(told: Vec<Port>) -> Vec<ContainerPort> {
    told.into_iter()
        .map(|p| ContainerPort {
            name: p.name,
            container_port: p.container_port,
            ..Default::default()
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindPort {
    ports: Vec<Port>,
    name: String,
    ok: bool,
    value: i32,
}

fn find_port_by_name(case: &Case) -> Verdict {
    let case: FindPort = case.fields()?;
    let got = port_by_name(&case.name, &ports(case.ports));
    same("ok", case.ok, got.is_some())?;
    same("value", case.value, got.unwrap_or(0))?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolvePort {
    port: Value,
    ports: Vec<Port>,
    ok: bool,
    value: i64,
    error: Option<String>,
}

/// The number beside an error is not returned here: an error is an error. It must be in the text when it was a number.
fn resolve(case: &Case) -> Verdict {
    let case: ResolvePort = case.fields()?;
    let Ok(port) = serde_json::from_value::<IntOrString>(case.port.clone()) else {
        same("ok and value", (case.ok, case.value), (false, -1))?;
        return AS_TOLD;
    };
    let got = resolve_port(&port, &ports(case.ports)).map_err(|e| e.to_string());
    match (case.ok, got) {
        (true, Ok(got)) => same("value", case.value, got.into())?,
        (false, Err(text)) => {
            // What is no number at all is 0 there.
            match text.strip_prefix("invalid port number: ") {
                Some(number) => same("value", case.value.to_string().as_str(), number)?,
                None => same("value", 0, case.value)?,
            }
            case.error
                .map_or(Ok(()), |expected| same("error", expected, text))?;
        }
        (ok, got) => return Err(format!("ok: expected {ok}, got {got:?}")),
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TargetCase {
    #[serde(rename = "podIP")]
    pod_ip: String,
    ports: Vec<Port>,
    #[serde(default)]
    host: String,
    port: IntOrString,
    #[serde(default)]
    path: String,
    ok: bool,
    expect_host: Option<String>,
    expect_port: Option<u16>,
    expect_path: Option<String>,
}

fn http_target(case: &Case) -> Verdict {
    target(case.fields()?, true)
}

fn tcp_target(case: &Case) -> Verdict {
    target(case.fields()?, false)
}

/// What the handlers do before they connect.
fn target(case: TargetCase, http: bool) -> Verdict {
    let status = PodStatus {
        pod_ip: case.pod_ip,
        ..Default::default()
    };
    let port = resolve_port(&case.port, &ports(case.ports)).map_err(|e| e.to_string());
    let got = port.and_then(|port| {
        // Whether a foreign host is allowed is another question than where it is.
        let target = resolve_target(
            &case.host,
            &status,
            None,
            &ProbeHosts {
                allowed: std::slice::from_ref(&case.host),
                is_node_address: &|_| false,
            },
        )
        .map_err(|e| e.to_string())?;
        Ok((target.host, port))
    });
    let (host, port) = match got {
        Ok(got) if case.ok => got,
        Err(_) if !case.ok => return AS_TOLD,
        got => return Err(format!("ok: expected {}, got {got:?}", case.ok)),
    };
    case.expect_host
        .map_or(Ok(()), |expected| same("host", expected, host.clone()))?;
    case.expect_port
        .map_or(Ok(()), |expected| same("port", expected, port))?;
    if let Some(expected) = case.expect_path.filter(|_| http) {
        let url = ProbeUrl::of_probe("http", &host, port, &case.path);
        // A relative path gets its slash where the URL is made, not where it is sent.
        let is_relative = !expected.is_empty() && !expected.starts_with(['/', '?']);
        let expected = if is_relative {
            format!("/{expected}")
        } else {
            expected
        };
        same(
            "path",
            expected,
            url.query
                .map_or(url.path.clone(), |q| format!("{}?{q}", url.path)),
        )?;
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormatUrl {
    scheme: String,
    host: String,
    port: u16,
    path: String,
    url: String,
}

fn format_url(case: &Case) -> Verdict {
    let case: FormatUrl = case.fields()?;
    same(
        "url",
        case.url,
        ProbeUrl::of_probe(&case.scheme, &case.host, case.port, &case.path).to_string(),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Headers {
    #[serde(rename = "in")]
    spec: Vec<(String, String)>,
    out: BTreeMap<String, Vec<String>>,
}

fn headers(case: &Case) -> Verdict {
    let case: Headers = case.fields()?;
    let spec: Vec<_> = case
        .spec
        .into_iter()
        .map(|(name, value)| HttpHeader { name, value })
        .collect();
    same("headers", case.out, header_map(&spec).into_iter().collect())?;
    AS_TOLD
}
