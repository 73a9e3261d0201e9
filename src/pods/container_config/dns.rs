//! The resolver settings of a pod's containers (the kubelet's `GetPodDNS`; kubelet-probes 8.10).

use std::collections::HashSet;
use std::net::IpAddr;

use crate::api::Pod;
use crate::api::pod::PodDnsConfigOption;
use crate::net::network::resolv_conf::ResolvConf;

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
/// The largest number of characters in all search domains together, with a space between each two.
const SEARCH_CHARACTERS_MAX: usize = 2048;
/// The largest number of characters in a search domain. Some resolvers abort on a longer search domain.
const SEARCH_MAX: usize = 253;

/// The cluster's name servers and domain, as the node's configuration gives them to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDns {
    /// The addresses of the cluster's name servers (`clusterDNS`).
    pub servers: Vec<IpAddr>,
    /// The domain of the cluster (`clusterDomain`).
    pub domain: String,
}

/// A warning event of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsWarning {
    /// The reason of the event, in one word.
    pub reason: &'static str,
    /// The text of the event: the kubelet's sentence.
    pub message: String,
}

/// Returns the resolver settings of `pod`. `node` has the resolver settings of the node.
pub fn resolver(
    pod: &Pod,
    cluster: &ClusterDns,
    node: ResolvConf,
) -> (ResolvConf, Vec<DnsWarning>) {
    let mut warnings = Vec::new();
    let mut dns = base(pod, cluster, node, &mut warnings);
    if let Some(own) = &pod.spec.dns_config {
        dns.nameservers.extend(own.nameservers.iter().cloned());
        dns.searches.extend(own.searches.iter().cloned());
        without_repeats(&mut dns.nameservers);
        without_repeats(&mut dns.searches);
        dns.options = merged(&dns.options, &own.options);
    }
    fit_nameservers(&mut dns.nameservers, &mut warnings);
    fit_searches(&mut dns.searches, &mut warnings);
    (dns, warnings)
}

/// Returns the resolver settings that follow from the pod's DNS policy.
fn base(
    pod: &Pod,
    cluster: &ClusterDns,
    node: ResolvConf,
    warnings: &mut Vec<DnsWarning>,
) -> ResolvConf {
    let wants_cluster = match pod.spec.dns_policy.as_str() {
        "None" => return ResolvConf::default(),
        "Default" => false,
        "ClusterFirstWithHostNet" => true,
        _ => !pod.spec.host_network,
    };
    if !wants_cluster {
        return node;
    }
    if !cluster.servers.is_empty() {
        return of_cluster(pod, cluster, node);
    }
    // A pod that sets no DNS policy has ClusterFirst, so this policy gives no warning. deviations: no-cluster-dns
    if pod.spec.dns_policy == "ClusterFirstWithHostNet" {
        warnings.push(DnsWarning {
            reason: "MissingClusterDNS",
            message: format!(
                "pod: \"{}\". podprobe does not have clusterDNS configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                pod.reference()
            ),
        });
    }
    node
}

fn of_cluster(pod: &Pod, cluster: &ClusterDns, node: ResolvConf) -> ResolvConf {
    let mut searches = Vec::new();
    if !cluster.domain.is_empty() {
        let domain = &cluster.domain;
        searches.push(format!("{}.svc.{domain}", pod.metadata.namespace));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(node.searches);
    without_repeats(&mut searches);
    ResolvConf {
        nameservers: cluster.servers.iter().map(IpAddr::to_string).collect(),
        searches,
        options: vec!["ndots:5".into()],
    }
}

fn without_repeats(list: &mut Vec<String>) {
    let mut seen = HashSet::new();
    list.retain(|text| seen.insert(text.clone()));
}

/// Merges resolver options. An option in `own` replaces the option of the same name in `given`.
fn merged(given: &[String], own: &[PodDnsConfigOption]) -> Vec<String> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match all.iter_mut().find(|o| o.0 == name) {
        Some(option) => option.1 = value.to_owned(),
        None => all.push((name.to_owned(), value.to_owned())),
    };
    for option in given {
        let (name, value) = option.split_once(':').unwrap_or((option.as_str(), ""));
        set(name, value);
    }
    for option in own {
        set(&option.name, option.value.as_deref().unwrap_or_default());
    }
    all.into_iter()
        .map(|(name, value)| match value.as_str() {
            "" => name,
            value => format!("{name}:{value}"),
        })
        .collect()
}

fn fit_nameservers(list: &mut Vec<String>, warnings: &mut Vec<DnsWarning>) {
    if list.len() <= NAMESERVERS_MAX {
        return;
    }
    list.truncate(NAMESERVERS_MAX);
    warnings.push(DnsWarning {
        reason: "DNSConfigForming",
        message: format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            list.join(" ")
        ),
    });
}

fn fit_searches(list: &mut Vec<String>, warnings: &mut Vec<DnsWarning>) {
    let before = list.len();
    list.truncate(SEARCHES_MAX);
    list.retain(|search| search.len() <= SEARCH_MAX);
    while list.join(" ").len() > SEARCH_CHARACTERS_MAX {
        list.pop();
    }
    if list.len() < before {
        warnings.push(DnsWarning {
            reason: "DNSConfigForming",
            message: format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
                list.join(" ")
            ),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods;

    const NODE: &str = "nameserver 192.0.2.1\nsearch lan\noptions edns0 ndots:2\n";

    fn made(mut spec: Value, cluster: bool) -> (String, Vec<DnsWarning>) {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let pod = test_pods::pod("p").uid("u").spec(spec).build();
        let cluster = match cluster {
            true => ClusterDns {
                servers: vec!["10.96.0.10".parse().unwrap()],
                domain: "cluster.local".into(),
            },
            false => ClusterDns::default(),
        };
        let (dns, warnings) = resolver(&pod, &cluster, ResolvConf::parse(NODE));
        (dns.text(), warnings)
    }

    #[track_caller]
    fn check(spec: Value, cluster: bool, expected: &str) {
        assert_eq!(made(spec, cluster), (expected.into(), vec![]));
    }

    const OF_NODE: &str = "search lan\nnameserver 192.0.2.1\noptions edns0 ndots:2\n";
    const OF_CLUSTER: &str = "search default.svc.cluster.local svc.cluster.local cluster.local lan\nnameserver 10.96.0.10\noptions ndots:5\n";

    #[test]
    fn the_policy_decides() {
        check(json!({"dnsPolicy": "Default"}), true, OF_NODE);
        check(json!({"dnsPolicy": "ClusterFirst"}), true, OF_CLUSTER);
        check(json!({}), true, OF_CLUSTER);
        let host = |policy| json!({"dnsPolicy": policy, "hostNetwork": true});
        check(host("ClusterFirst"), true, OF_NODE);
        check(host("ClusterFirstWithHostNet"), true, OF_CLUSTER);
        check(json!({"dnsPolicy": "None"}), true, "");
    }

    /// Only a pod that requests the cluster DNS gets a warning (deviations: no-cluster-dns).
    #[test]
    fn without_a_cluster_dns_a_pod_has_the_node_s_and_only_who_asks_is_told() {
        check(json!({"dnsPolicy": "ClusterFirst"}), false, OF_NODE);
        let asks = json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true});
        let (dns, warnings) = made(asks, false);
        assert_eq!(dns, OF_NODE);
        assert_eq!(warnings[0].reason, "MissingClusterDNS");
        assert_eq!(
            warnings[0].message,
            "pod: \"p_default(u)\". podprobe does not have clusterDNS configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy."
        );
    }

    #[test]
    fn the_pod_s_own_entries_follow_and_its_options_replace() {
        let own = json!({"nameservers": ["192.0.2.9", "192.0.2.1"], "searches": ["x.example.", "lan"],
            "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}, {"name": "rotate"}]});
        check(
            json!({"dnsPolicy": "Default", "dnsConfig": own}),
            false,
            "search lan x.example.\nnameserver 192.0.2.1\nnameserver 192.0.2.9\noptions edns0 ndots:1 rotate\n",
        );
        check(
            json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.9"]}}),
            true,
            "nameserver 192.0.2.9\n",
        );
    }

    #[test]
    fn what_is_over_a_limit_is_left_out_with_an_event() {
        let own = json!({"nameservers": ["192.0.2.2", "192.0.2.3", "192.0.2.4"]});
        let (dns, warnings) = made(json!({"dnsPolicy": "Default", "dnsConfig": own}), false);
        assert!(!dns.contains("192.0.2.4"), "{dns}");
        assert_eq!(
            warnings,
            [DnsWarning {
                reason: "DNSConfigForming",
                message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 192.0.2.1 192.0.2.2 192.0.2.3".into()
            }]
        );
        let searches = |all: Vec<String>| {
            let own = json!({"searches": all});
            let (dns, warnings) = made(json!({"dnsPolicy": "Default", "dnsConfig": own}), false);
            let line = dns.lines().next().unwrap().to_owned();
            (line.split(' ').count() - 1, warnings.len())
        };
        // Each list gets one more search domain: the search domain of the node.
        let many = |n| (0..n).map(|i| format!("s{i}")).collect();
        assert_eq!(searches(many(31)), (32, 0));
        assert_eq!(searches(many(32)), (32, 1));
        assert_eq!(searches(vec!["a".repeat(254)]), (1, 1));
        let long = |n| (0..n).map(|i| format!("{i:0253}")).collect();
        assert_eq!(searches(long(8)), (9, 0));
        assert_eq!(searches(long(9)), (9, 1));
    }
}
