//! Admission: may this pod run beside those that do (kubelet-probes 10)? Pure. Of the kubelet's checks the node can
//! answer host ports so far; the others need node labels and capacity, a later step.

use crate::api::Pod;
use crate::api::pod::ContainerPort;

/// Why a pod is refused; becomes `status.reason` and, after `Pod was rejected: `, `status.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// One word.
    pub reason: &'static str,
    /// The kubelet's sentence, and which port of which pod.
    pub message: String,
}

/// Checks `pod` against the other active pods.
///
/// # Errors
/// The first refusal.
pub fn admit<'a>(pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> Result<(), Rejection> {
    for other in others.filter(|o| o.uid() != pod.uid()) {
        let taken =
            host_ports(pod).find(|wanted| host_ports(other).any(|held| conflict(wanted, held)));
        if let Some(port) = taken {
            let holder = other.reference();
            let message = format!(
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: {}/{} is held by pod {}_{}",
                port.protocol, port.host_port, holder.name, holder.namespace
            );
            return Err(Rejection {
                reason: "NodePorts",
                message,
            });
        }
    }
    Ok(())
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let lasting = pod.spec.containers.iter().chain(pod.spec.sidecars());
    lasting.flat_map(|c| &c.ports).filter(|p| p.host_port > 0)
}

/// Same protocol and port, and one address is every address, or both are equal.
fn conflict(a: &ContainerPort, b: &ContainerPort) -> bool {
    let every = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.protocol == b.protocol
        && a.host_port == b.host_port
        && (every(&a.host_ip) || every(&b.host_ip) || a.host_ip == b.host_ip)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, port: Value) -> Pod {
        let spec = json!({"containers": [{"name": "a", "ports": [port]}]});
        let metadata = json!({"name": uid, "namespace": "default", "uid": uid});
        Pod {
            metadata: serde_json::from_value(metadata).unwrap(),
            spec: serde_json::from_value(spec).unwrap(),
            raw: Value::Null,
        }
    }

    #[track_caller]
    fn check(a: Value, b: Value, admitted: bool) {
        let (a, b) = (pod("a", a), pod("b", b));
        let got = admit(&a, [&a, &b].into_iter());
        assert_eq!(got.is_ok(), admitted, "{got:?}");
    }

    #[test]
    fn host_ports_conflict_by_protocol_port_and_address() {
        let port = |protocol: &str, n: i32, ip: &str| json!({"protocol": protocol, "hostPort": n, "hostIP": ip});
        check(port("TCP", 80, ""), port("TCP", 80, ""), false);
        check(port("TCP", 80, ""), port("TCP", 80, "10.0.0.1"), false);
        check(
            port("TCP", 80, "0.0.0.0"),
            port("TCP", 80, "10.0.0.1"),
            false,
        );
        check(
            port("TCP", 80, "10.0.0.1"),
            port("TCP", 80, "10.0.0.1"),
            false,
        );
        check(
            port("TCP", 80, "10.0.0.2"),
            port("TCP", 80, "10.0.0.1"),
            true,
        );
        check(port("TCP", 80, ""), port("UDP", 80, ""), true);
        check(port("TCP", 80, ""), port("TCP", 81, ""), true);
        check(port("TCP", 0, ""), port("TCP", 0, ""), true);
    }

    #[test]
    fn the_refusal_names_the_holder() {
        let port = || json!({"protocol": "TCP", "hostPort": 80});
        let error = admit(&pod("a", port()), [&pod("b", port())].into_iter()).unwrap_err();
        assert_eq!(error.reason, "NodePorts");
        assert!(
            error.message.ends_with("TCP/80 is held by pod b_default"),
            "{}",
            error.message
        );
    }
}
