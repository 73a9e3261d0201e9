//! Collects the names that the responder serves, and the clients that get answers.
//!
//! Invariants: pure except for [`read_resolvers`]. Equal inputs give equal names, so the names are sent to the
//! responder only if they have changed.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::api::Pod;
use crate::api::cidr::Cidr;
use crate::net::network::resolv_conf::ResolvConf;
use crate::net::proxyd::dns::PORT;
use crate::net::services::inputs::Inputs;
use crate::net::services::names::Names;
use crate::net::services::naming::service_names;
use crate::net::services::pod_facts::PodFacts;

/// The settings for names, from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSettings {
    /// The value of `clusterDomain`.
    pub domain: String,
    /// The addresses on which the responder answers: the tenth address of each range of `serviceCIDR`.
    pub addresses: Vec<IpAddr>,
    /// The file in `resolvConf`, or `None` if names are queried from the resolver on the node itself.
    pub resolv_conf: Option<PathBuf>,
}

/// The inputs for names that come from the node and not from services.
pub struct Node<'a> {
    /// The settings for names.
    pub settings: &'a NameSettings,
    /// The addresses of the node's interfaces.
    pub addresses: &'a [IpAddr],
    /// The resolvers of the node.
    pub resolvers: &'a [SocketAddr],
}

impl Node<'_> {
    /// Makes the names for these inputs. The names have version 0. Returns `None` if the user's services occupy
    /// every address of the responder. In that case a user's own responder behind such a service answers the
    /// clients.
    pub fn names(&self, inputs: &Inputs<'_>) -> Option<Names> {
        let taken = |ip: &IpAddr| inputs.services.iter().any(|s| s.cluster_ips.contains(ip));
        let free = self.settings.addresses.iter().filter(|ip| !taken(ip));
        let addresses: Vec<IpAddr> = free.copied().collect();
        (!addresses.is_empty()).then(|| Names {
            version: 0,
            domain: self.settings.domain.clone(),
            pod_cidrs: inputs.node.pod_cidrs.to_vec(),
            service_cidrs: inputs.node.service_cidrs.to_vec(),
            clients: self.clients(inputs, &addresses),
            upstreams: self.resolvers.to_vec(),
            services: service_names(inputs),
            addresses,
        })
    }

    /// Returns the addresses of the clients that get answers: the pods, and the node itself. A process of the node
    /// may send from the very address that it queries, so the addresses of the responder are clients, too.
    fn clients(&self, inputs: &Inputs<'_>, addresses: &[IpAddr]) -> Vec<Cidr> {
        let ranges = inputs.node.pod_cidrs;
        // The addresses of pods are added, because CNI plugins may give pods addresses outside of these ranges.
        let pods = inputs.pods.iter().flat_map(|pod| &pod.addresses);
        // Link-local addresses are left out, because such addresses come and go with the pods.
        let is_of_link = |ip: &&IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let of_node = self.addresses.iter().filter(|ip| !is_of_link(ip));
        let single = pods.chain(of_node).chain(addresses);
        let outside = single.filter(|ip| !ranges.iter().any(|r| r.contains(**ip)));
        let single: BTreeSet<Cidr> = outside.map(|ip| Cidr::single(*ip)).collect();
        ranges.iter().copied().chain(single).collect()
    }

    /// Returns a finding if one of the node's resolvers is the responder itself. With such a loop, queries for
    /// names outside of the cluster may have no answer.
    pub fn loop_finding(&self) -> Option<String> {
        let ours = |of: &&SocketAddr| self.settings.addresses.contains(&of.ip());
        let own = self.resolvers.iter().find(ours)?.ip();
        let file = self
            .settings
            .resolv_conf
            .as_deref()
            .unwrap_or(Path::new(""));
        Some(format!(
            "the resolver {own} in {} is podprobe's own address, which asks the node's resolvers what it does not know; it is left out: name another resolver there, or a file with others in resolvConf",
            file.display()
        ))
    }
}

/// The counter that numbers the versions of names.
#[derive(Debug, Default)]
pub struct Versions {
    last: Option<Names>,
}

impl Versions {
    /// Sets the version of the names: the last version if the names have not changed, or else a greater version. A
    /// new version is at least `seconds`, the seconds of the wall clock. So versions grow even if the daemon is
    /// started again.
    pub fn number(&mut self, mut names: Names, seconds: u32) -> Names {
        let last = self.last.as_ref().map_or(0, |last| last.version);
        names.version = last;
        if self.last.as_ref() != Some(&names) {
            names.version = last.wrapping_add(1).max(seconds);
            self.last = Some(names.clone());
        }
        names
    }
}

/// Tells whether a pod queries names. `has_network` tells whether a pod without an address yet will get its
/// own address.
pub fn asks(pod: &Pod, facts: &PodFacts, has_network: bool) -> bool {
    if facts.phase.is_terminal() {
        return false;
    }
    if pod.spec.host_network {
        return pod.spec.dns_policy == "ClusterFirstWithHostNet";
    }
    match facts.addresses.as_slice() {
        [] => has_network && facts.loopback_only.is_none(),
        all => all.iter().any(|ip| !ip.is_loopback()),
    }
}

/// Reads the node's resolvers from a file. Without a file, returns the resolver on the node itself, as in the
/// resolv.conf of pods.
pub fn read_resolvers(file: Option<&Path>) -> Vec<SocketAddr> {
    let Some(file) = file else {
        return vec![([127, 0, 0, 1], PORT).into()];
    };
    let text = std::fs::read(file).unwrap_or_default();
    let read = ResolvConf::parse(&String::from_utf8_lossy(&text));
    let addresses = read.nameservers.iter().filter_map(|text| text.parse().ok());
    addresses
        .map(|ip: IpAddr| SocketAddr::new(ip, PORT))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::PodPhase;
    use crate::api::service::Service;
    use crate::net::services::inputs::{NamedService, NodeFacts};
    use crate::test_pods;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn settings() -> NameSettings {
        NameSettings {
            domain: "cluster.local".into(),
            addresses: vec![ip("10.96.0.10"), ip("fd00:96::a")],
            resolv_conf: Some("/etc/resolv.conf".into()),
        }
    }

    fn of_services(cluster_ips: &[&[IpAddr]]) -> Option<Names> {
        let service = Service::default();
        let services: Vec<NamedService<'_>> = cluster_ips
            .iter()
            .map(|cluster_ips| NamedService {
                namespace: "kube-system",
                name: "kube-dns",
                service: &service,
                created: None,
                cluster_ips,
                node_ports: &[],
                health_check_node_port: None,
            })
            .collect();
        let of_cni = PodFacts {
            addresses: vec![ip("10.244.0.7"), ip("172.16.0.7")],
            ..PodFacts::default()
        };
        let node = Node {
            settings: &settings(),
            addresses: &[ip("192.0.2.1"), ip("10.244.0.1"), ip("fe80::1")],
            resolvers: &[],
        };
        node.names(&Inputs {
            services: &services,
            pods: &[&of_cni],
            node: NodeFacts {
                pod_cidrs: &["10.244.0.0/24".parse().unwrap()],
                ..NodeFacts::default()
            },
            ..Inputs::default()
        })
    }

    #[test]
    fn pods_and_the_node_may_ask() {
        let clients = of_services(&[]).unwrap().clients;
        let clients: Vec<String> = clients.iter().map(Cidr::to_string).collect();
        let expected = [
            "10.244.0.0/24",
            "10.96.0.10/32",
            "172.16.0.7/32",
            "192.0.2.1/32",
            "fd00:96::a/128",
        ];
        assert_eq!(clients, expected);
    }

    #[test]
    fn a_service_with_the_address_answers_there_itself() {
        let own = [ip("10.96.0.10")];
        assert_eq!(of_services(&[&own]).unwrap().addresses, [ip("fd00:96::a")]);
        let both = settings().addresses;
        assert_eq!(of_services(&[&both]), None);
    }

    #[track_caller]
    fn check_asks(
        spec: serde_json::Value,
        addresses: &[&str],
        phase: PodPhase,
        expected: [bool; 2],
    ) {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let pod = test_pods::pod("p").spec(spec).build();
        let facts = PodFacts {
            addresses: addresses.iter().map(|a| ip(a)).collect(),
            phase,
            ..PodFacts::default()
        };
        let all = [true, false].map(|has_network| asks(&pod, &facts, has_network));
        assert_eq!(all, expected);
    }

    #[test]
    fn pods_with_an_address_of_their_own_ask() {
        let running = PodPhase::Running;
        check_asks(json!({}), &["10.244.0.2"], running, [true, true]);
        check_asks(json!({}), &["127.0.0.1"], running, [false, false]);
        check_asks(json!({}), &[], PodPhase::Pending, [true, false]);
        check_asks(
            json!({}),
            &["10.244.0.2"],
            PodPhase::Succeeded,
            [false, false],
        );
        let host = |policy| json!({"hostNetwork": true, "dnsPolicy": policy});
        check_asks(
            host("ClusterFirst"),
            &["192.0.2.1"],
            running,
            [false, false],
        );
        let asking = host("ClusterFirstWithHostNet");
        check_asks(asking, &["192.0.2.1"], running, [true, true]);
    }

    #[test]
    fn a_resolver_that_is_ourselves_is_told() {
        let settings = settings();
        let with = |resolvers: &[SocketAddr]| {
            Node {
                settings: &settings,
                addresses: &[],
                resolvers,
            }
            .loop_finding()
        };
        assert_eq!(with(&[([127, 0, 0, 53], 53).into()]), None);
        let told = with(&[([127, 0, 0, 53], 53).into(), ([10, 96, 0, 10], 53).into()]).unwrap();
        assert!(
            told.starts_with(
                "the resolver 10.96.0.10 in /etc/resolv.conf is podprobe's own address"
            ),
            "{told}"
        );
    }

    #[test]
    fn names_have_a_new_version_when_they_change() {
        let mut versions = Versions::default();
        let names = |domain: &str| Names {
            domain: domain.into(),
            ..Names::default()
        };
        assert_eq!(versions.number(names("a"), 100).version, 100);
        assert_eq!(versions.number(names("a"), 105).version, 100);
        assert_eq!(versions.number(names("b"), 105).version, 105);
        assert_eq!(versions.number(names("a"), 90).version, 106);
    }

    #[test]
    fn resolvers_are_those_of_the_file_that_are_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        std::fs::write(
            &file,
            "nameserver 192.0.2.1\nnameserver dns\nnameserver fd00::1\n",
        )
        .unwrap();
        let expected: Vec<SocketAddr> = ["192.0.2.1:53", "[fd00::1]:53"]
            .map(|a| a.parse().unwrap())
            .into();
        assert_eq!(read_resolvers(Some(&file)), expected);
        assert_eq!(read_resolvers(Some(&dir.path().join("none"))), []);
        assert_eq!(
            read_resolvers(None),
            [SocketAddr::from(([127, 0, 0, 1], 53))]
        );
    }
}
