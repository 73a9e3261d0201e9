use super::super::test_texts::{check_text, decode};
use super::*;
use crate::api::service::Protocol;

/// Decodes a valid text. Returns its slices and its notes.
#[track_caller]
fn good(text: &str) -> (Vec<EndpointSlice>, Vec<String>) {
    let mut found = decode(text).unwrap_or_else(|e| panic!("{e}"));
    let slices = match found.objects.remove(0).content {
        ObjectContent::EndpointSlice(slice) => vec![EndpointSlice::clone(&slice)],
        ObjectContent::Endpoints(slices) => {
            slices.iter().map(|s| EndpointSlice::clone(s)).collect()
        }
        other => panic!("{other:?}"),
    };
    (slices, found.notes)
}

const SLICE: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
";
const ENDPOINTS: &str = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: shop}\n";

fn conditions(ready: bool, serving: bool, terminating: bool) -> EndpointConditions {
    EndpointConditions {
        ready,
        serving,
        terminating,
    }
}

fn endpoint(address: &str, conditions: EndpointConditions) -> Endpoint {
    Endpoint {
        addresses: vec![address.parse().unwrap()],
        conditions,
        hostname: None,
        node_name: None,
        target: None,
    }
}

fn port(name: &str, protocol: Protocol, number: u16) -> EndpointPort {
    EndpointPort {
        name: name.to_owned(),
        protocol,
        port: Some(number),
        app_protocol: None,
    }
}

#[test]
fn a_slice_is_read_as_it_is() {
    let (slices, notes) = good(&format!(
        "{SLICE}endpoints:
- addresses: [10.1.0.1, 10.1.0.2]
  hostname: web-0
  nodeName: other
  zone: a
  deprecatedTopology: {{a: b}}
  targetRef: {{kind: Pod, name: web-0, uid: x, apiVersion: v1}}
- {{addresses: [10.1.0.3], targetRef: {{kind: Node, name: other}}}}
ports:
- {{port: 80}}
- {{name: dns, port: 53, protocol: UDP, appProtocol: dns}}
"
    ));
    assert_eq!(notes, [""; 0]);
    let first = Endpoint {
        addresses: vec!["10.1.0.1".parse().unwrap(), "10.1.0.2".parse().unwrap()],
        hostname: Some("web-0".into()),
        node_name: Some("other".into()),
        target: Some(("default".into(), "web-0".into())),
        ..endpoint("10.1.0.1", conditions(true, true, false))
    };
    let dns = EndpointPort {
        app_protocol: Some("dns".into()),
        ..port("dns", Protocol::Udp, 53)
    };
    let expected = EndpointSlice {
        service: "web".into(),
        family: IpFamily::V4,
        endpoints: vec![first, endpoint("10.1.0.3", conditions(true, true, false))],
        ports: vec![port("", Protocol::Tcp, 80), dns],
    };
    assert_eq!(slices, [expected]);
}

#[test]
fn conditions_that_are_left_out_follow_ready() {
    let read = |written: &str| {
        let text =
            format!("{SLICE}endpoints: [{{addresses: [10.1.0.1], conditions: {written}}}]\n");
        good(&text).0[0].endpoints[0].conditions
    };
    assert_eq!(read("{}"), conditions(true, true, false));
    assert_eq!(read("{ready: null}"), conditions(true, true, false));
    assert_eq!(read("{ready: false}"), conditions(false, false, false));
    assert_eq!(
        read("{ready: false, serving: true, terminating: true}"),
        conditions(false, true, true)
    );
}

#[test]
fn a_slice_has_addresses_of_its_family_and_ports() {
    check_text(
        &format!(
            "{SLICE}endpoints:\n- {{}}\n- {{addresses: ['2001:db8::1', 127.0.0.1, x], nodeName: A, hostname: a.b}}\nports:\n- {{name: a, port: 0}}\n- {{name: a, protocol: SCTP}}\n- {{name: b, port: http}}\n"
        ),
        &[
            "11:13: ports[2].port: Invalid value: \"http\": must be a whole number between -2147483648 and 2147483647, not a text",
            "6:3: endpoints[0].addresses: Required value: must contain at least 1 address",
            "7:16: endpoints[1].addresses[0]: Invalid value: \"2001:db8::1\": must be a valid IPv4 address",
            "7:31: endpoints[1].addresses[1]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "7:42: endpoints[1].addresses[2]: Invalid value: \"x\": must be a valid IPv4 address",
            "7:46: endpoints[1].nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "7:59: endpoints[1].hostname: Invalid value: \"a.b\": must not contain dots",
            "9:13: ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "10:4: ports[1].name: Duplicate value: \"a\"",
            "10:13: ports[1].protocol: Forbidden: SCTP is not supported: services here carry TCP and UDP; take this port out, and let its clients connect to the pod itself",
        ],
    );
    let of = |family: &str| SLICE.replace("IPv4", family);
    check_text(
        &of("FQDN"),
        &[
            "4:1: addressType: Forbidden: FQDN is not supported: write the addresses, or a Service of type ExternalName with the name",
        ],
    );
    check_text(
        &of("ipv4"),
        &[
            "4:1: addressType: Unsupported value: \"ipv4\": supported values: \"IPv4\", \"IPv6\"; did you mean \"IPv4\"?",
        ],
    );
    check_text(&of("''"), &["4:1: addressType: Required value"]);
    check_text(
        &format!("{}endpoints: [{{addresses: [10.0.0.1]}}]\n", of("IPv6")),
        &[
            "5:26: endpoints[0].addresses[0]: Invalid value: \"10.0.0.1\": must be a valid IPv6 address",
        ],
    );
}

#[test]
fn a_slice_has_at_most_a_thousand_endpoints_of_a_hundred_addresses() {
    let endpoints = |number| {
        format!(
            "{SLICE}endpoints: [{}]\n",
            "{addresses: [10.0.0.1]},".repeat(number)
        )
    };
    good(&endpoints(1000));
    check_text(
        &endpoints(1001),
        &["5:1: endpoints: Too many: 1001: must have at most 1000 items"],
    );
    let addresses = |number| {
        format!(
            "{SLICE}endpoints: [{{addresses: [{}]}}]\n",
            "10.0.0.1,".repeat(number)
        )
    };
    good(&addresses(100));
    check_text(
        &addresses(101),
        &["5:14: endpoints[0].addresses: Too many: 101: must have at most 100 items"],
    );
}

#[test]
fn what_leads_nowhere_is_noted() {
    let nowhere = SLICE.replace(", labels: {kubernetes.io/service-name: web}", "");
    let (slices, notes) = good(&format!(
        "{nowhere}endpoints:\n- {{addresses: [10.0.0.1], hints: {{forZones: [{{name: a}}]}}}}\n- {{addresses: [10.0.0.2], hints: {{}}}}\nports: [{{name: a}}]\n"
    ));
    assert_eq!(slices[0].service, "");
    let named = |text: &str| format!("EndpointSlice default/web-1: {text}");
    assert_eq!(
        notes,
        [
            named(
                "endpoints[0].hints: not acted on: every endpoint that is ready gets traffic, wherever it is"
            ),
            named(
                "metadata.labels[kubernetes.io/service-name]: not set: the slice belongs to no service, and nothing leads to its endpoints"
            ),
            named("ports[0].port: not set: nothing leads to it"),
        ]
    );
    check_text(
        &format!("{SLICE}endpoint: []\n"),
        &["5:1: endpoint: unknown field: did you mean \"endpoints\"?"],
    );
}

#[test]
fn the_group_of_slices_is_discovery() {
    let error = decode(&SLICE.replace("discovery.k8s.io/v1", "v1"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(":1:1: apiVersion: Unsupported value: \"v1\": podprobe reads v1 Pods")
            && error.ends_with("; write \"discovery.k8s.io/v1\""),
        "{error}"
    );
    let missing = SLICE.replace("apiVersion: discovery.k8s.io/v1\n", "");
    check_text(
        &missing,
        &["1:1: apiVersion: Required value: write \"apiVersion\": \"discovery.k8s.io/v1\""],
    );
    let item = "{metadata: {name: a, labels: {kubernetes.io/service-name: w}}, addressType: IPv6}";
    let list =
        format!("apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems: [{item}]\n");
    assert_eq!(good(&list).0[0].family, IpFamily::V6);
    check_text(
        &list.replacen("discovery.k8s.io/v1", "v1", 1),
        &[&format!(
            "1:1: apiVersion: Unsupported value: \"v1\": {}; write \"discovery.k8s.io/v1\"",
            "podprobe reads v1 Pods, ReplicationControllers, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, apps/v1 Deployments, ReplicaSets, DaemonSets and StatefulSets, batch/v1 Jobs and CronJobs, and discovery.k8s.io/v1 EndpointSlices"
        )],
    );
}

#[test]
fn endpoints_are_mirrored_into_a_slice_for_each_family_and_each_set_of_ports() {
    let (slices, notes) = good(&format!(
        "{ENDPOINTS}subsets:
- addresses:
  - {{ip: 10.1.0.1, hostname: a, nodeName: node, targetRef: {{kind: Pod, name: a}}}}
  - {{ip: '2001:db8::1'}}
  notReadyAddresses: [{{ip: 10.1.0.2}}, {{ip: 10.1.0.1}}]
  ports: [{{port: 80}}]
- addresses: [{{ip: 10.1.0.9}}]
  ports: [{{name: dns, port: 53, protocol: UDP}}]
- addresses: [{{ip: 10.1.0.3}}]
  ports: [{{port: 80}}]
"
    ));
    assert_eq!(notes, [""; 0]);
    let ready = conditions(true, true, false);
    let first = Endpoint {
        hostname: Some("a".into()),
        node_name: Some("node".into()),
        target: Some(("shop".into(), "a".into())),
        ..endpoint("10.1.0.1", ready)
    };
    let slice = |family, endpoints, port| EndpointSlice {
        service: "web".into(),
        family,
        endpoints,
        ports: vec![port],
    };
    let http = || port("", Protocol::Tcp, 80);
    let not_ready = endpoint("10.1.0.2", conditions(false, false, false));
    let expected = [
        slice(
            IpFamily::V4,
            vec![first, not_ready, endpoint("10.1.0.3", ready)],
            http(),
        ),
        slice(IpFamily::V6, vec![endpoint("2001:db8::1", ready)], http()),
        slice(
            IpFamily::V4,
            vec![endpoint("10.1.0.9", ready)],
            port("dns", Protocol::Udp, 53),
        ),
    ];
    assert_eq!(slices, expected);
}

#[test]
fn endpoints_follow_the_rules_of_the_api() {
    check_text(
        &format!(
            "{ENDPOINTS}subsets:\n- {{}}\n- addresses: [{{ip: 127.0.0.1}}, {{}}]\n  ports: [{{port: 80}}, {{name: b}}]\n"
        ),
        &[
            "5:3: subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
            "6:16: subsets[1].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "6:32: subsets[1].addresses[1].ip: Invalid value: \"\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "7:11: subsets[1].ports[0].name: Required value",
            "7:23: subsets[1].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
    check_text(
        &format!("{ENDPOINTS}subsets: [{{addresses: [{{ip: 10.0.0.1, hostName: a}}]}}]\n"),
        &["4:39: subsets[0].addresses[0].hostName: unknown field: did you mean \"hostname\"?"],
    );
}

#[test]
fn endpoints_that_are_not_mirrored_say_so() {
    let marked = |what: &str| {
        let with = format!("namespace: shop, {what}");
        let text = ENDPOINTS.replace("namespace: shop", &with);
        good(&format!(
            "{text}subsets: [{{addresses: [{{ip: 10.0.0.1}}]}}]\n"
        ))
    };
    let skipped = marked("labels: {endpointslice.kubernetes.io/skip-mirror: 'true'}");
    let note = "Endpoints shop/web: metadata.labels[endpointslice.kubernetes.io/skip-mirror]: the Endpoints have no effect with it";
    assert_eq!(skipped, (vec![], vec![note.to_owned()]));
    let leader = marked("annotations: {control-plane.alpha.kubernetes.io/leader: '{}'}");
    assert_eq!(leader.0, []);
    assert!(
        leader.1[0].contains("metadata.annotations[control-plane"),
        "{leader:?}"
    );
    let kept = marked("labels: {endpointslice.kubernetes.io/skip-mirror: 'false'}");
    assert_eq!((kept.0.len(), kept.1.len()), (1, 0));
}

#[test]
fn a_subset_is_mirrored_up_to_a_thousand_addresses() {
    let addresses: String = (0..1001)
        .map(|n| format!("{{ip: 10.0.{}.{}}},", n / 250, n % 250 + 1))
        .collect();
    let (slices, notes) = good(&format!(
        "{ENDPOINTS}subsets: [{{addresses: [{addresses}]}}]\n"
    ));
    assert_eq!(slices[0].endpoints.len(), 1000);
    assert_eq!(
        notes,
        [
            "Endpoints shop/web: subsets[0]: only the first 1000 of its 1001 addresses count, ready ones first: write the others as another subset, or as EndpointSlices"
        ]
    );
}
