//! Chooses the endpoints to which a service's traffic goes (services 2.1, 2.2).
//!
//! Invariants: the functions have no state and no side effects. Chosen backends are sorted, without duplicates.

use std::collections::BTreeMap;

use super::endpoints::PodEndpoint;
use super::table::{Backend, Backends};
use crate::api::service::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, IpFamily, ServicePort, TrafficPolicy,
};

/// An endpoint of one port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address, port and namespace to which traffic for the endpoint goes.
    pub backend: Backend,
    /// The conditions of the endpoint: ready, serving, terminating.
    pub conditions: EndpointConditions,
    /// True if the endpoint is on this node.
    pub local: bool,
}

impl Candidate {
    fn family(&self) -> IpFamily {
        IpFamily::of(self.backend.address.ip())
    }

    /// Tells whether the endpoint is serving and terminating. Traffic goes to such endpoints if no endpoint is ready.
    fn is_last_resort(&self) -> bool {
        self.conditions.serving && self.conditions.terminating
    }

    /// Returns a rank for the endpoint. Of two endpoints with the same backend, the one with the higher rank is kept.
    fn rank(&self) -> (bool, bool, bool) {
        (self.conditions.ready, self.is_last_resort(), self.local)
    }
}

/// Returns the endpoints of one port of a service: pods of this node, and endpoints in slices from files. For a pod of
/// this node, podprobe's own knowledge counts, even if a slice says something else about the pod's address.
pub fn candidates(
    port: &ServicePort,
    pods: &[PodEndpoint],
    slices: &[&EndpointSlice],
    node_name: &str,
) -> Vec<Candidate> {
    let mut found: BTreeMap<Backend, Candidate> = BTreeMap::new();
    let of_slices = slices.iter().flat_map(|s| of_slice(port, s, node_name));
    for candidate in of_slices {
        let known = found.get(&candidate.backend);
        if known.is_none_or(|known| known.rank() < candidate.rank()) {
            found.insert(candidate.backend.clone(), candidate);
        }
    }
    let of_pods = pods.iter().filter_map(|pod| of_pod(port, pod));
    found.extend(of_pods.map(|c| (c.backend.clone(), c)));
    found.into_values().collect()
}

/// Returns the endpoint of a pod for one port of a service, or `None` if the pod does not have the port.
pub fn of_pod(port: &ServicePort, pod: &PodEndpoint) -> Option<Candidate> {
    let backend = Backend {
        namespace: pod.loopback_only.clone(),
        ..backend(port, &pod.ports, &pod.endpoint)?
    };
    Some(Candidate {
        backend,
        conditions: pod.endpoint.conditions,
        local: true,
    })
}

fn of_slice(port: &ServicePort, slice: &EndpointSlice, node_name: &str) -> Vec<Candidate> {
    let one = |endpoint: &Endpoint| {
        Some(Candidate {
            backend: backend(port, &slice.ports, endpoint)?,
            conditions: endpoint.conditions,
            local: endpoint.node_name.as_deref() == Some(node_name),
        })
    };
    slice.endpoints.iter().filter_map(one).collect()
}

/// Returns the endpoint's first address, with the number of the port that has the service port's name and protocol.
fn backend(port: &ServicePort, ports: &[EndpointPort], endpoint: &Endpoint) -> Option<Backend> {
    let same = |p: &&EndpointPort| p.name == port.name && p.protocol == port.protocol;
    let number = ports.iter().find(same)?.port.filter(|n| *n != 0)?;
    let address = *endpoint.addresses.first()?;
    Some(Backend {
        address: (address, number).into(),
        namespace: None,
    })
}

/// The backends of one port of a service, for each traffic policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The backends for the policy Cluster, on all nodes.
    cluster: Vec<Backend>,
    /// The backends for the policy Local, on this node only.
    local: Vec<Backend>,
}

impl Choice {
    /// Chooses among the endpoints of a service's port. The choice is made for each family on its own, because a client
    /// can only use endpoints of its own family.
    pub fn of(candidates: &[Candidate]) -> Self {
        let mut choice = Self {
            cluster: Vec::new(),
            local: Vec::new(),
        };
        for family in [IpFamily::V4, IpFamily::V6] {
            let all = || candidates.iter().filter(move |c| c.family() == family);
            choice.cluster.extend(usable(all()));
            choice.local.extend(usable(all().filter(|c| c.local)));
        }
        choice.cluster.sort_unstable();
        choice.local.sort_unstable();
        choice
    }

    /// Returns the backends for a policy. If the policy is Local and this node has no backend, packets are dropped if
    /// another node has a backend, and refused if no node has a backend.
    pub fn backends(&self, policy: TrafficPolicy) -> Backends {
        let chosen = match policy {
            TrafficPolicy::Cluster => &self.cluster,
            TrafficPolicy::Local => &self.local,
        };
        match (chosen.is_empty(), self.cluster.is_empty()) {
            (false, _) => Backends::Some(chosen.clone()),
            (true, false) => Backends::Drop,
            (true, true) => Backends::Reject,
        }
    }

    /// Tells whether the backend gets traffic under at least one policy.
    pub fn uses(&self, backend: &Backend) -> bool {
        self.cluster.contains(backend) || self.local.contains(backend)
    }
}

/// Returns the endpoints that traffic can go to: the ready endpoints, or if no endpoint is ready, the endpoints that
/// serve while they terminate.
fn usable<'a>(candidates: impl Iterator<Item = &'a Candidate> + Clone) -> Vec<Backend> {
    let mut ready = candidates.clone().filter(|c| c.conditions.ready).peekable();
    let backend = |c: &Candidate| c.backend.clone();
    match ready.peek().is_some() {
        true => ready.map(backend).collect(),
        false => candidates
            .filter(|c| c.is_last_resort())
            .map(backend)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::api::service::{Protocol, TargetPort};

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address with a port")
    }

    /// Parses a candidate such as `10.0.0.1:80 rstl`. The letters mean ready, serving, terminating, local.
    fn candidate(text: &str) -> Candidate {
        let (at, letters) = text.split_once(' ').expect("an address and letters");
        let has = |letter| letters.contains(letter);
        Candidate {
            backend: Backend {
                address: address(at),
                namespace: None,
            },
            conditions: EndpointConditions {
                ready: has('r'),
                serving: has('s'),
                terminating: has('t'),
            },
            local: has('l'),
        }
    }

    fn text(backends: Backends) -> String {
        match backends {
            Backends::Reject => "reject".into(),
            Backends::Drop => "drop".into(),
            Backends::Some(list) => {
                let words: Vec<_> = list.iter().map(|b| b.address.to_string()).collect();
                words.join(" ")
            }
        }
    }

    #[track_caller]
    fn check(candidates: &[&str], cluster: &str, local: &str) {
        let candidates: Vec<_> = candidates.iter().map(|c| candidate(c)).collect();
        let choice = Choice::of(&candidates);
        assert_eq!(text(choice.backends(TrafficPolicy::Cluster)), cluster);
        assert_eq!(text(choice.backends(TrafficPolicy::Local)), local);
    }

    const A: &str = "10.0.0.1:80";
    const B: &str = "10.0.0.2:80";

    #[test]
    fn only_ready_ones_are_used_while_there_are_any() {
        check(&["10.0.0.1:80 rsl", "10.0.0.2:80 l"], A, A);
        check(&["10.0.0.1:80 rsl", "10.0.0.2:80 stl"], A, A);
        let both = format!("{A} {B}");
        check(&["10.0.0.2:80 rsl", "10.0.0.1:80 rsl"], &both, &both);
    }

    #[test]
    fn those_that_answer_while_they_end_are_the_last_resort() {
        check(&["10.0.0.1:80 stl", "10.0.0.2:80 l"], A, A);
        check(&["10.0.0.1:80 tl"], "reject", "reject");
        check(&["10.0.0.1:80 sl"], "reject", "reject");
        check(&[], "reject", "reject");
    }

    #[test]
    fn each_policy_has_its_own_last_resort() {
        check(&["10.0.0.1:80 stl", "10.0.0.2:80 rs"], B, A);
    }

    #[test]
    fn local_without_one_here_is_dropped_where_another_node_has_one() {
        check(&["10.0.0.1:80 rs"], A, "drop");
        check(&["10.0.0.1:80 st"], A, "drop");
        check(&["10.0.0.1:80 rs", "10.0.0.2:80 l"], A, "drop");
        check(&["10.0.0.1:80 "], "reject", "reject");
    }

    #[test]
    fn published_ones_are_ready_whatever_they_are() {
        check(
            &["10.0.0.1:80 rl", "10.0.0.2:80 rstl"],
            "10.0.0.1:80 10.0.0.2:80",
            "10.0.0.1:80 10.0.0.2:80",
        );
    }

    #[test]
    fn each_family_has_its_own_last_resort() {
        check(
            &["10.0.0.1:80 stl", "[fd00::1]:80 rsl"],
            "10.0.0.1:80 [fd00::1]:80",
            "10.0.0.1:80 [fd00::1]:80",
        );
    }

    fn port(name: &str) -> ServicePort {
        ServicePort {
            name: name.into(),
            protocol: Protocol::Tcp,
            port: 80,
            target_port: TargetPort::Number(80),
            node_port: None,
            app_protocol: None,
        }
    }

    fn endpoint(addresses: &[&str], letters: &str, node: Option<&str>) -> Endpoint {
        let at = |a: &&str| a.parse().expect("an address");
        Endpoint {
            addresses: addresses.iter().map(at).collect(),
            conditions: candidate(&format!("{A} {letters}")).conditions,
            hostname: None,
            node_name: node.map(Into::into),
            target: None,
        }
    }

    fn slice(ports: &[(&str, Protocol, Option<u16>)], endpoints: Vec<Endpoint>) -> EndpointSlice {
        let port = |(name, protocol, port): &(&str, Protocol, Option<u16>)| EndpointPort {
            name: name.to_string(),
            protocol: *protocol,
            port: *port,
            app_protocol: None,
        };
        EndpointSlice {
            service: "web".into(),
            family: IpFamily::V4,
            endpoints,
            ports: ports.iter().map(port).collect(),
        }
    }

    fn found(of: &ServicePort, pods: &[PodEndpoint], slices: &[EndpointSlice]) -> Vec<String> {
        let slices: Vec<&EndpointSlice> = slices.iter().collect();
        let word = |c: Candidate| {
            let letter = |is, letter| if is { letter } else { "" };
            let (ready, local) = (letter(c.conditions.ready, "r"), letter(c.local, "l"));
            format!("{} {ready}{local}", c.backend.address)
        };
        let found = candidates(of, pods, &slices, "node");
        found.into_iter().map(word).collect()
    }

    #[test]
    fn ports_of_slices_are_found_by_name_and_protocol() {
        let one = || vec![endpoint(&["10.0.0.1", "10.0.0.9"], "rs", None)];
        let slices = [
            slice(
                &[
                    ("http", Protocol::Udp, Some(1)),
                    ("http", Protocol::Tcp, Some(8080)),
                ],
                one(),
            ),
            slice(&[("other", Protocol::Tcp, Some(2))], one()),
            slice(&[("http", Protocol::Tcp, None)], one()),
            slice(&[("http", Protocol::Tcp, Some(0))], one()),
        ];
        assert_eq!(found(&port("http"), &[], &slices), ["10.0.0.1:8080 r"]);
    }

    #[test]
    fn endpoints_of_a_slice_are_local_by_their_node() {
        let both = vec![
            endpoint(&["10.0.0.1"], "rs", Some("node")),
            endpoint(&["10.0.0.2"], "rs", Some("other")),
        ];
        let slices = [slice(&[("", Protocol::Tcp, Some(80))], both)];
        assert_eq!(
            found(&port(""), &[], &slices),
            ["10.0.0.1:80 rl", "10.0.0.2:80 r"]
        );
    }

    #[test]
    fn of_two_slices_with_one_address_the_ready_one_counts() {
        let of = |letters| {
            let one = vec![endpoint(&["10.0.0.1"], letters, None)];
            slice(&[("", Protocol::Tcp, Some(80))], one)
        };
        assert_eq!(
            found(&port(""), &[], &[of(""), of("rs")]),
            ["10.0.0.1:80 r"]
        );
        assert_eq!(
            found(&port(""), &[], &[of("rs"), of("")]),
            ["10.0.0.1:80 r"]
        );
    }

    #[test]
    fn a_slice_does_not_overrule_what_is_known_of_a_pod() {
        let pod = PodEndpoint {
            endpoint: endpoint(&["10.0.0.1"], "", None),
            family: IpFamily::V4,
            ports: slice(&[("", Protocol::Tcp, Some(80))], vec![]).ports,
            loopback_only: None,
        };
        let one = vec![endpoint(&["10.0.0.1"], "rs", None)];
        let slices = [slice(&[("", Protocol::Tcp, Some(80))], one)];
        assert_eq!(found(&port(""), &[pod], &slices), ["10.0.0.1:80 l"]);
    }

    #[test]
    fn pods_with_loopback_only_are_different_places() {
        let pod = |netns: &str| PodEndpoint {
            endpoint: endpoint(&["127.0.0.1"], "rs", None),
            family: IpFamily::V4,
            ports: slice(&[("", Protocol::Tcp, Some(80))], vec![]).ports,
            loopback_only: Some(netns.into()),
        };
        let found = candidates(
            &port(""),
            &[pod("/proc/1/ns/net"), pod("/proc/2/ns/net")],
            &[],
            "node",
        );
        let places: Vec<_> = found.iter().map(|c| c.backend.namespace.clone()).collect();
        assert_eq!(
            places,
            [Some("/proc/1/ns/net".into()), Some("/proc/2/ns/net".into())]
        );
    }
}
