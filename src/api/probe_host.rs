//! The rule for the `host` that a probe or a hook may name (kubelet-probes 3.3, lessons 6). A kubelet allows any
//! host, so a pod file could make the node send requests anywhere.
//!
//! Invariants: pure. These functions do not know the pod's addresses. A caller that knows the addresses accepts them
//! before it calls these functions.

use std::net::IpAddr;

use super::field::FieldError;
use super::pod::{Container, Handler, HookKind, Listed, Pod, ProbeType};
use super::validation::probe_field;

/// The hosts that a probe or a hook may name besides loopback and its pod's own address.
#[derive(Clone, Copy)]
pub struct ProbeHosts<'a> {
    /// Hosts of `allowProbeHosts` in the configuration.
    pub allowed: &'a [String],
    /// Function that returns true for an address of this node. Pods on the node's network may name such an address.
    pub is_node_address: &'a dyn Fn(IpAddr) -> bool,
}

/// Returns the host as an address. The text may have brackets. Returns None for a name.
pub fn host_address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// True if the list contains the host, compared as text or as address.
pub fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let bare = host_address(host).map(|a| a.to_string());
    allowed.iter().any(|h| {
        h.eq_ignore_ascii_case(host) || bare.as_ref().is_some_and(|b| h.eq_ignore_ascii_case(b))
    })
}

/// Returns why probes and hooks of a pod may not name this host, and how to allow it. Returns None if the host is
/// allowed. An empty host means the pod itself.
pub fn host_refused(host: &str, host_network: bool, hosts: &ProbeHosts<'_>) -> Option<String> {
    let is_ours =
        |a: IpAddr| a.to_canonical().is_loopback() || (host_network && (hosts.is_node_address)(a));
    let may = host.is_empty()
        || host.eq_ignore_ascii_case("localhost")
        || is_allowed(host, hosts.allowed)
        || host_address(host).is_some_and(is_ours);
    let node = if host_network {
        ", nor an address of this node"
    } else {
        ""
    };
    (!may).then(|| {
        format!(
            "it is neither the pod's address nor loopback{node}; leave `host` out, or add it to allowProbeHosts in the configuration"
        )
    })
}

/// Returns an error for each probe and each hook of the pod with a host that is refused. The pod's own addresses are
/// not known before the pod runs. So this function refuses a file that names an address of its pod, although the
/// daemon would use the address.
pub fn refused_hosts<'a>(pod: &'a Pod, hosts: &ProbeHosts<'_>) -> Vec<FieldError> {
    let named = |listed: Listed<'a>| {
        named_hosts(listed.container)
            .map(move |(at, verb, host)| (format!("{}.{at}.host", listed.path()), verb, host))
    };
    let refused = |(path, verb, host): (String, &str, &str)| {
        let why = host_refused(host, pod.spec.host_network, hosts)?;
        let text = format!("cannot {verb} host \"{host}\": {why}");
        Some(FieldError::forbidden(path, text))
    };
    pod.spec
        .listed()
        .flat_map(named)
        .filter_map(refused)
        .collect()
}

/// Returns each field in which a container names a host: the path of the field, the container's action in words, and
/// the host.
fn named_hosts(
    container: &Container,
) -> impl Iterator<Item = (String, &'static str, &str)> + use<'_> {
    let probes = [
        ProbeType::Liveness,
        ProbeType::Readiness,
        ProbeType::Startup,
    ];
    let of_probe = |probe_type| {
        let (name, host) = match container.probe(probe_type)?.handler()? {
            Handler::HttpGet(action) => ("httpGet", action.host.as_str()),
            Handler::TcpSocket(action) => ("tcpSocket", action.host.as_str()),
            Handler::Exec(_) | Handler::Grpc(_) => return None,
        };
        Some((format!("{}.{name}", probe_field(probe_type)), "probe", host))
    };
    let of_hook = |kind: HookKind| {
        let action = container.hook(kind)?.http_get.as_ref()?;
        let at = format!("lifecycle.{}.httpGet", kind.field());
        Some((at, "run a hook at", action.host.as_str()))
    };
    let hooks = HookKind::ALL.into_iter().filter_map(of_hook);
    probes.into_iter().filter_map(of_probe).chain(hooks)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::api::PodOrigin;
    use crate::api::decode::objects;

    const NODE: &str = "192.168.7.2";

    fn refused(host: &str, host_network: bool, allowed: &[&str]) -> bool {
        let allowed: Vec<_> = allowed.iter().map(|s| (*s).to_owned()).collect();
        let hosts = ProbeHosts {
            allowed: &allowed,
            is_node_address: &|a| a.to_string() == NODE,
        };
        host_refused(host, host_network, &hosts).is_some()
    }

    #[test]
    fn an_address_of_the_node_is_for_pods_on_its_network() {
        assert!(!refused(NODE, true, &[]), "kubeadm's advertise address");
        assert!(refused(NODE, false, &[]));
        assert!(!refused(NODE, false, &[NODE]));
        assert!(refused("192.168.7.3", true, &[]));
        assert!(refused("example.com", true, &[]), "a name is no address");
        for host in ["", "localhost", "127.0.0.9", "[::1]"] {
            assert!(!refused(host, false, &[]), "{host}");
        }
        assert!(!refused("[fd00::7]", false, &["fd00::7"]));
    }

    #[test]
    fn each_probe_and_hook_that_is_refused_is_an_error() {
        let raw = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"hostNetwork": true, "containers": [{
                "name": "c", "image": "i",
                "livenessProbe": {"httpGet": {"port": 1, "host": NODE}},
                "readinessProbe": {"tcpSocket": {"port": 1, "host": "10.0.0.9"}},
                "startupProbe": {"exec": {"command": ["true"]}},
                "lifecycle": {
                    "postStart": {"httpGet": {"port": 1, "host": NODE}},
                    "preStop": {"httpGet": {"port": 1, "host": "10.0.0.9"}},
                },
            }]}
        });
        let source = PodOrigin::File {
            node_name: "n",
            path: Path::new("/p.json"),
        };
        let found = objects(raw.to_string().as_bytes(), &source).unwrap();
        let hosts = ProbeHosts {
            allowed: &[],
            is_node_address: &|a| a.to_string() == NODE,
        };
        let errors: Vec<_> = refused_hosts(&found.pods[0].pod, &hosts)
            .iter()
            .map(ToString::to_string)
            .collect();
        let why = "it is neither the pod's address nor loopback, nor an address of this node; leave `host` out, or add it to allowProbeHosts in the configuration";
        assert_eq!(
            errors,
            [
                format!(
                    "spec.containers[0].readinessProbe.tcpSocket.host: Forbidden: cannot probe host \"10.0.0.9\": {why}"
                ),
                format!(
                    "spec.containers[0].lifecycle.preStop.httpGet.host: Forbidden: cannot run a hook at host \"10.0.0.9\": {why}"
                ),
            ]
        );
    }
}
