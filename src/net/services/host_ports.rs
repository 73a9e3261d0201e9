//! Ports of the node that lead to ports of containers (services 2.3).
//!
//! Invariants: the functions have no state. If two pods want the same port, a pod that is not terminating gets the port
//! before a pod that is terminating. Among equal pods, the first by name gets the port.

use std::net::IpAddr;

use super::claims::{Claim, Claims, Holder};
use super::endpoints::counts;
use super::findings::{Finding, Subject, What};
use super::pod_facts::{PodFacts, PodPort};
use super::table::{Backend, HostPort};
use crate::api::service::IpFamily;

/// Claims the host ports of all pods. Returns the ports from which a data path has to send clients to a container. The
/// ports of a pod on the node's network are claimed but not returned, because the pod itself listens there.
pub(super) fn host_ports(
    pods: &[&PodFacts],
    claims: &mut Claims,
    findings: &mut Vec<Finding>,
) -> Vec<HostPort> {
    let has_one = |pod: &PodFacts| pod.ports.iter().any(|port| port.host_port.is_some());
    let pods = pods.iter().copied();
    let mut pods: Vec<&PodFacts> = pods.filter(|p| has_one(p) && counts(p)).collect();
    pods.sort_by_key(|p| (p.terminating, &p.namespace, &p.name));
    let mut found = Vec::new();
    for pod in pods {
        for port in &pod.ports {
            if claimed(pod, port, claims, findings) && !pod.host_network {
                found.extend(of_port(pod, port));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Returns the address, but `None` for 0.0.0.0 and ::, which mean every address. A claim on every address covers both
/// families.
fn specific(address: Option<IpAddr>) -> Option<IpAddr> {
    address.filter(|a| !a.is_unspecified())
}

fn claimed(
    pod: &PodFacts,
    port: &PodPort,
    claims: &mut Claims,
    findings: &mut Vec<Finding>,
) -> bool {
    let Some(number) = port.host_port else {
        return false;
    };
    let holder = Holder::Pod(format!("{}/{}", pod.namespace, pod.name));
    let address = specific(port.host_ip);
    match claims.node_port(address, number, port.protocol, &holder) {
        Claim::New => true,
        Claim::Again => false,
        Claim::TakenBy(by) => {
            // There is no finding for a pod on the node's network, which has asked for no host port. There is no
            // finding for a terminating pod either, which will free its ports soon.
            let is_quiet = pod.host_network || pod.terminating;
            if !is_quiet {
                findings.push(finding(pod, number, port, &by));
            }
            false
        }
    }
}

fn finding(pod: &PodFacts, number: u16, port: &PodPort, by: &Holder) -> Finding {
    let what = match by {
        Holder::Podprobe(_) => What::PortOfPodprobe,
        _ => What::NodePortTaken,
    };
    Finding {
        subject: Subject::Pod(pod.namespace.clone(), pod.name.clone()),
        what,
        message: format!(
            "hostPort: Invalid value: {number}: {number}/{} of this node belongs to {by}; choose another",
            port.protocol
        ),
    }
}

/// Returns the host ports for a container's port: one for each family that both the pod and the address of the node have.
fn of_port(pod: &PodFacts, port: &PodPort) -> Vec<HostPort> {
    let wanted = port.host_ip.map(IpFamily::of);
    let families = [IpFamily::V4, IpFamily::V6];
    let of_family = |family| {
        let address = pod.addresses_of(family).next()?;
        Some(HostPort {
            host_ip: specific(port.host_ip),
            port: port.host_port?,
            protocol: port.protocol,
            backend: Backend {
                address: (address, port.port).into(),
                namespace: pod.loopback_only.clone(),
            },
            pod: format!("{}_{}", pod.name, pod.namespace),
        })
    };
    let families = families.into_iter();
    families
        .filter(|f| wanted.is_none_or(|w| w == *f))
        .filter_map(of_family)
        .collect()
}
