use super::super::test_texts::{check_text, decode};
use super::*;
use crate::api::service::Cidr;

/// Returns the text of a Service with these lines below `spec`. The lines of `spec` begin on line 5 of the text.
fn with(spec: &str) -> String {
    let spec: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec:\n{spec}")
}

/// Decodes the text of a Service. Returns the Service and its notes. The name of the Service at the start of each note
/// is left out.
#[track_caller]
fn noted(text: &str) -> (Service, Vec<String>) {
    let mut found = decode(text).unwrap_or_else(|e| panic!("{e}"));
    let ObjectContent::Service(service) = found.objects.remove(0).content else {
        panic!("no service")
    };
    let plain = |note: &String| {
        note.strip_prefix("Service default/web: ")
            .map(str::to_owned)
    };
    let notes = found.notes.iter().map(|note| plain(note).expect(note));
    (Service::clone(&service), notes.collect())
}

#[track_caller]
fn good(spec: &str) -> Service {
    let (service, notes) = noted(&with(spec));
    assert_eq!(notes, [""; 0]);
    service
}

#[track_caller]
fn check(spec: &str, expected: &[&str]) {
    check_text(&with(spec), expected);
}

/// Checks the notes of a valid service.
#[track_caller]
fn check_notes(spec: &str, expected: &[&str]) {
    assert_eq!(noted(&with(spec)).1, expected);
}

const PORT: &str = "ports: [{port: 80}]\n";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn what_is_left_out_has_the_defaults_of_the_api() {
    let service = good(PORT);
    let port = ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        target_port: TargetPort::Number(80),
        node_port: None,
        app_protocol: None,
    };
    let expected = Service {
        ports: vec![port],
        ..Service::default()
    };
    assert_eq!(service, expected);
    assert_eq!(service.type_, ServiceType::ClusterIp);
    assert_eq!(service.cluster_ips, ClusterIps::Allocated);
    assert_eq!(service.ip_family_policy, IpFamilyPolicy::SingleStack);
    assert!(service.is_proxied() && !service.has_node_ports());
}

#[test]
fn every_field_that_has_an_effect_is_read() {
    let text = "\
type: LoadBalancer
selector: {app: web}
clusterIP: 10.96.0.7
clusterIPs: [10.96.0.7, '2001:db8::7']
ipFamilies: [IPv4, IPv6]
ipFamilyPolicy: PreferDualStack
externalIPs: [192.0.2.1]
sessionAffinity: ClientIP
sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
internalTrafficPolicy: Local
externalTrafficPolicy: Local
healthCheckNodePort: 32000
publishNotReadyAddresses: true
allocateLoadBalancerNodePorts: false
loadBalancerSourceRanges: [' 10.1.2.3/8 ', 2001:db8::/32]
ports:
- {name: http, port: 80, targetPort: web, nodePort: 30080, appProtocol: kubernetes.io/ws}
- {name: dns, port: 53, targetPort: 5353, protocol: UDP}
";
    let status =
        "status: {loadBalancer: {ingress: [{ip: 192.0.2.9}, {ip: 192.0.2.10, ipMode: VIP}]}}\n";
    let (service, notes) = noted(&format!("{}{status}", with(text)));
    assert_eq!(notes, [""; 0]);
    let port =
        |name: &str, protocol, port, target_port, node_port, app: Option<&str>| ServicePort {
            name: name.to_owned(),
            protocol,
            port,
            target_port,
            node_port,
            app_protocol: app.map(str::to_owned),
        };
    let name = TargetPort::Name("web".into());
    let cidr = |network, prefix| Cidr {
        network: ip(network),
        prefix,
    };
    let expected = Service {
        type_: ServiceType::LoadBalancer,
        selector: [("app".to_owned(), "web".to_owned())].into(),
        cluster_ips: ClusterIps::Given(vec![ip("10.96.0.7"), ip("2001:db8::7")]),
        ip_families: vec![IpFamily::V4, IpFamily::V6],
        ip_family_policy: IpFamilyPolicy::PreferDualStack,
        external_ips: vec![ip("192.0.2.1")],
        session_affinity: Some(Duration::from_secs(60)),
        internal_traffic_policy: TrafficPolicy::Local,
        external_traffic_policy: TrafficPolicy::Local,
        health_check_node_port: Some(32000),
        publish_not_ready_addresses: true,
        no_node_ports: true,
        source_ranges: vec![cidr("10.0.0.0", 8), cidr("2001:db8::", 32)],
        ingress_ips: vec![ip("192.0.2.9"), ip("192.0.2.10")],
        ports: vec![
            port(
                "http",
                Protocol::Tcp,
                80,
                name,
                Some(30080),
                Some("kubernetes.io/ws"),
            ),
            port(
                "dns",
                Protocol::Udp,
                53,
                TargetPort::Number(5353),
                None,
                None,
            ),
        ],
        ..Service::default()
    };
    assert_eq!(service, expected);
    assert!(service.needs_health_check() && service.has_node_ports());
}

#[test]
fn what_an_api_server_writes_into_a_service_is_of_no_meaning() {
    let text = "apiVersion: v1
kind: Service
metadata:
  name: web
  uid: 0f1e
  resourceVersion: '7'
  creationTimestamp: '2026-01-01T00:00:00Z'
  labels: {a: b}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}
spec:
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7]
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports: [{name: http, port: 80, protocol: TCP, targetPort: 80}]
  selector: {app: web}
  sessionAffinity: None
  type: ClusterIP
status: {loadBalancer: {}, conditions: []}
";
    let (service, notes) = noted(text);
    assert_eq!(notes, [""; 0]);
    assert_eq!(service.labels["a"], "b");
    assert_eq!(service.ip_families, [IpFamily::V4]);
}

#[test]
fn names_begin_with_a_letter() {
    let text = with(PORT).replace("web", "9-web");
    check_text(
        &text,
        &[
            "3:12: metadata.name: Invalid value: \"9-web\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    let long = with(PORT).replace("web", &"w".repeat(64));
    let expected = format!(
        "3:12: metadata.name: Invalid value: \"{}\": must be no more than 63 characters",
        "w".repeat(64)
    );
    check_text(&long, &[&expected]);
    check_text(
        &with(PORT).replace("name: web", "namespace: a"),
        &["3:1: metadata.name: Required value: name is needed for the Service"],
    );
}

#[test]
fn a_service_has_ports_unless_it_needs_none() {
    check("type: NodePort\n", &["4:1: spec.ports: Required value"]);
    assert!(good("clusterIP: None\n").is_headless());
    let name = good("type: ExternalName\nexternalName: db.example.com.\n");
    assert_eq!(name.external_name, "db.example.com.");
    assert!(!name.is_proxied());
}

#[test]
fn a_port_has_a_number_a_name_and_a_protocol() {
    check(
        "ports:\n- {name: Http, port: 0}\n- {name: a, port: 70000, targetPort: '80'}\n- {port: 1, protocol: tcp}\n- {name: a, port: 2, targetPort: -1, appProtocol: a/b/c}\n",
        &[
            "6:6: spec.ports[0].name: Invalid value: \"Http\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            "6:18: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "7:15: spec.ports[1].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "7:28: spec.ports[1].targetPort: Invalid value: \"80\": must contain at least one letter (a-z); write 80 without quotes",
            "8:5: spec.ports[2].name: Required value",
            "8:15: spec.ports[2].protocol: Unsupported value: \"tcp\": supported values: \"TCP\", \"UDP\"; did you mean \"TCP\"?",
            "9:6: spec.ports[3].name: Duplicate value: \"a\"",
            "9:24: spec.ports[3].targetPort: Invalid value: -1: must be between 1 and 65535, inclusive",
            "9:40: spec.ports[3].appProtocol: Invalid value: \"a/b/c\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    );
    check(
        "ports: [{port: 5000, protocol: SCTP}]\n",
        &[
            "5:24: spec.ports[0].protocol: Forbidden: SCTP is not supported: services here carry TCP and UDP; take this port out, and let its clients connect to the pod itself",
        ],
    );
    check(
        "ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}, {name: c, port: 53, targetPort: 80}]\n",
        &["5:68: spec.ports[2]: Duplicate value: \"TCP/53\""],
    );
}

#[test]
fn values_of_a_wrong_type_are_told_at_their_place() {
    check(
        "ports:\n- {port: '80'}\n- 81\nselector: [app]\npublishNotReadyAddresses: 'yes'\nclusterIPs: 10.0.0.1\n",
        &[
            "6:6: spec.ports[0].port: Invalid value: \"80\": must be a whole number between -2147483648 and 2147483647, not a text; write 80 without quotes",
            "7:5: spec.ports[1]: Invalid value: 81: must be an object ({...}), not a number",
            "8:3: spec.selector: Invalid value: [\"app\"]: must be an object ({...}), not a list",
            "9:3: spec.publishNotReadyAddresses: Invalid value: \"yes\": must be true or false, not a text",
            "10:3: spec.clusterIPs: Invalid value: \"10.0.0.1\": must be a list ([...]), not a text; write [\"10.0.0.1\"]",
        ],
    );
    check(
        "ports: [{port: eighty}]\nselector: {app: 5}\n",
        &[
            "5:12: spec.ports[0].port: Invalid value: \"eighty\": must be a whole number between -2147483648 and 2147483647, not a text",
            "6:14: spec.selector[app]: Invalid value: 5: must be a text (\"...\"), not a number; write \"5\" with quotes",
        ],
    );
    check_text(
        &with(PORT)
            .replace("spec:", "spec: &s")
            .replace("{name: web}", "[web]"),
        &["3:1: metadata: Invalid value: [\"web\"]: must be an object ({...}), not a list"],
    );
}

#[test]
fn node_ports_are_of_their_range_and_only_where_the_type_has_them() {
    check(
        "ports: [{port: 80, nodePort: 30080}]\n",
        &["5:22: spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
    );
    let range = "provided port is not in the valid range. The range of valid ports is 30000-32767";
    for (number, is_good) in [(29999, false), (30000, true), (32767, true), (32768, false)] {
        let spec = format!("type: NodePort\nports: [{{port: 80, nodePort: {number}}}]\n");
        match is_good {
            true => drop(good(&spec)),
            false => check(
                &spec,
                &[&format!(
                    "6:22: spec.ports[0].nodePort: Invalid value: {number}: {range}"
                )],
            ),
        }
    }
    let two = |protocol: &str| {
        format!(
            "type: NodePort\nports:\n- {{name: a, port: 53, nodePort: 30053}}\n- {{name: b, port: 54, protocol: {protocol}, nodePort: 30053}}\n"
        )
    };
    good(&two("UDP"));
    check(
        &two("TCP"),
        &["8:40: spec.ports[1].nodePort: Duplicate value: 30053"],
    );
}

#[test]
fn cluster_ips_agree_with_one_another_and_with_their_families() {
    let with_port = |spec: &str| format!("{PORT}{spec}");
    let check = |spec: &str, expected: &[&str]| check(&with_port(spec), expected);
    check(
        "clusterIP: 10.0.0\n",
        &[
            "6:3: spec.clusterIP: Invalid value: \"10.0.0\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
    check(
        "clusterIP: 10.096.0.1\n",
        &["6:3: spec.clusterIP: Invalid value: \"10.096.0.1\": must not have leading 0s"],
    );
    check(
        "clusterIPs: [10.0.0.1]\n",
        &[
            "6:3: spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: must be empty when `clusterIP` is not specified",
        ],
    );
    check(
        "clusterIP: 10.0.0.2\nclusterIPs: [10.0.0.1]\n",
        &[
            "7:3: spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: first value must match `clusterIP`",
        ],
    );
    check(
        "clusterIP: None\nclusterIPs: [None, 10.0.0.1]\nipFamilyPolicy: PreferDualStack\n",
        &[
            "7:3: spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.1\"]: 'None' must be the first and only value",
        ],
    );
    check(
        "clusterIP: 10.0.0.1\nclusterIPs: [10.0.0.1, 10.0.0.2]\nipFamilyPolicy: RequireDualStack\n",
        &[
            "7:3: spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP family",
        ],
    );
    check(
        "clusterIP: 10.0.0.1\nclusterIPs: [10.0.0.1, '2001:db8::1', 10.0.0.3]\nipFamilyPolicy: RequireDualStack\n",
        &[
            "7:3: spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"2001:db8::1\",\"10.0.0.3\"]: may only hold up to 2 values",
        ],
    );
    check(
        "clusterIP: 10.0.0.1\nclusterIPs: [10.0.0.1, '2001:db8::1']\nipFamilies: [IPv4, IPv6]\n",
        &[
            "4:1: spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified",
            "4:1: spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ],
    );
    check(
        "clusterIP: 10.0.0.1\nipFamilies: [IPv6]\nipFamilyPolicy: Dual\n",
        &[
            "8:3: spec.ipFamilyPolicy: Unsupported value: \"Dual\": supported values: \"PreferDualStack\", \"RequireDualStack\", \"SingleStack\"",
            "6:3: spec.clusterIP: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
        ],
    );
    check(
        "ipFamilies: [IPv4, IPv4, ipv6]\nipFamilyPolicy: PreferDualStack\n",
        &[
            "6:22: spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
            "6:28: spec.ipFamilies[2]: Unsupported value: \"ipv6\": supported values: \"IPv4\", \"IPv6\"; did you mean \"IPv6\"?",
        ],
    );
    check(
        "clusterIP: None\ntype: NodePort\n",
        &[
            "6:3: spec.clusterIP: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ],
    );
    let mapped = good(&with_port("clusterIP: '::ffff:10.0.0.1'\n"));
    assert_eq!(mapped.cluster_ips, ClusterIps::Given(vec![ip("10.0.0.1")]));
    // A headless service whose endpoints come from slices has both families.
    let dual = IpFamilyPolicy::RequireDualStack;
    let headless = "clusterIP: None\nipFamilies: [IPv6, IPv4]\n";
    assert_eq!(good(headless).ip_family_policy, dual);
    let selecting = good("clusterIP: None\nselector: {app: web}\n");
    assert_eq!(selecting.ip_family_policy, IpFamilyPolicy::SingleStack);
}

#[test]
fn external_addresses_lead_to_a_machine() {
    let refused = |address: &str, why: &str| {
        let place = "6:17: spec.externalIPs[0]: Invalid value:";
        let expected = format!("{place} \"{address}\": {why}");
        check(&format!("{PORT}externalIPs: ['{address}']\n"), &[&expected]);
    };
    refused("0.0.0.0", "may not be unspecified (0.0.0.0)");
    refused("::", "may not be unspecified (::)");
    refused(
        "127.1.2.3",
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    );
    refused(
        "::1",
        "may not be in the loopback range (127.0.0.0/8, ::1/128)",
    );
    refused(
        "169.254.169.254",
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
    );
    refused(
        "fe80::1",
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
    );
    refused(
        "224.0.0.5",
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
    );
    refused(
        "ff02::1",
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
    );
    refused(
        "239.1.1.1",
        "may not be in the multicast range (224.0.0.0/4, ff00::/8)",
    );
    refused(
        "web",
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    );
    good(&format!("{PORT}externalIPs: [192.0.2.1, '2001:db8::1']\n"));
}

#[test]
fn an_external_name_has_nothing_but_its_name() {
    let given = "type: ExternalName\nclusterIP: 10.0.0.1\nipFamilies: [IPv4]\nipFamilyPolicy: SingleStack\n";
    check(
        given,
        &[
            "4:1: spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            "7:3: spec.ipFamilies: Forbidden: may not be set for ExternalName services",
            "8:3: spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
            "4:1: spec.externalName: Required value",
        ],
    );
    let error = decode(&with("type: ExternalName\nexternalName: a_b\n")).unwrap_err();
    let error = error.to_string();
    let expected =
        ":6:3: spec.externalName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain";
    assert!(error.contains(expected), "{error}");
    check_notes(
        "type: ExternalName\nexternalName: a\nselector: {a: b}\nexternalIPs: [192.0.2.1]\n",
        &[
            "spec.externalIPs: not acted on: a service of type ExternalName is a name for something elsewhere",
            "spec.selector: not acted on: a service of type ExternalName is a name for something elsewhere",
        ],
    );
}

#[test]
fn affinity_lasts_a_second_to_a_day() {
    let with_time = |seconds: &str| {
        format!(
            "{PORT}sessionAffinity: ClientIP\nsessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}\n"
        )
    };
    let affinity = |spec: &str| good(spec).session_affinity.map(|time| time.as_secs());
    assert_eq!(affinity(&with_time("1")), Some(1));
    assert_eq!(affinity(&with_time("86400")), Some(86_400));
    for spec in [
        "",
        "sessionAffinityConfig: {}\n",
        "sessionAffinityConfig: {clientIP: {}}\n",
    ] {
        let spec = format!("{PORT}sessionAffinity: ClientIP\n{spec}");
        assert_eq!(affinity(&spec), Some(10_800), "{spec}");
    }
    for seconds in ["0", "-1", "86401"] {
        let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        let expected = format!(
            "7:38: {path}: Invalid value: {seconds}: must be greater than 0 and less than 86400"
        );
        check(&with_time(seconds), &[&expected]);
    }
    check(
        &format!("{PORT}sessionAffinity: Cookie\n"),
        &[
            "6:3: spec.sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\"",
        ],
    );
    let ignored = &with_time("0").replace("sessionAffinity: ClientIP\n", "");
    check_notes(
        ignored,
        &["spec.sessionAffinityConfig: not acted on: sessionAffinity is None"],
    );
}

#[test]
fn fields_of_load_balancers_and_outside_clients_need_them() {
    check(
        &format!(
            "{PORT}loadBalancerSourceRanges: [10.0.0.0]\nallocateLoadBalancerNodePorts: true\nloadBalancerClass: a\nexternalTrafficPolicy: Cluster\nhealthCheckNodePort: 30000\n"
        ),
        &[
            "6:3: spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "6:30: spec.loadBalancerSourceRanges[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            "7:3: spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "8:3: spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "9:3: spec.externalTrafficPolicy: Invalid value: \"Cluster\": may only be set for externally-accessible services",
            "10:3: spec.healthCheckNodePort: Invalid value: 30000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ],
    );
    good(&format!(
        "{PORT}externalIPs: [192.0.2.1]\nexternalTrafficPolicy: Local\n"
    ));
    check(
        &format!(
            "{PORT}type: NodePort\nexternalTrafficPolicy: Global\ninternalTrafficPolicy: local\n"
        ),
        &[
            "7:3: spec.externalTrafficPolicy: Unsupported value: \"Global\": supported values: \"Cluster\", \"Local\"",
            "8:3: spec.internalTrafficPolicy: Unsupported value: \"local\": supported values: \"Cluster\", \"Local\"; did you mean \"Local\"?",
        ],
    );
    check(
        "type: LoadBalancer\nexternalTrafficPolicy: Local\nhealthCheckNodePort: 30001\nports: [{port: 80, nodePort: 30001}]\n",
        &["7:3: spec.healthCheckNodePort: Duplicate value: 30001"],
    );
    check(
        &format!(
            "{PORT}type: LoadBalancer\nexternalTrafficPolicy: Local\nhealthCheckNodePort: 80\n"
        ),
        &[
            "8:3: spec.healthCheckNodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ],
    );
    check(
        &format!("{PORT}type: Balancer\n"),
        &[
            "6:3: spec.type: Unsupported value: \"Balancer\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ],
    );
}

#[test]
fn source_ranges_may_be_in_the_annotation_of_old() {
    let text = |ranges: &str, type_: &str| {
        with(&format!("{PORT}type: {type_}\n")).replace(
            "{name: web}",
            &format!("{{name: web, annotations: {{service.beta.kubernetes.io/load-balancer-source-ranges: '{ranges}'}}}}"),
        )
    };
    let (service, _) = noted(&text(" 10.0.0.0/8, 192.0.2.0/24 ", "LoadBalancer"));
    assert_eq!(service.source_ranges.len(), 2);
    assert_eq!(noted(&text("", "LoadBalancer")).0.source_ranges, []);
    let path = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]";
    check_text(
        &text("10.0.0.0/8", "NodePort"),
        &[&format!(
            "3:37: {path}: Forbidden: may only be used when `type` is 'LoadBalancer'"
        )],
    );
    check_text(
        &text("10.0.0.0/8,", "LoadBalancer"),
        &[&format!(
            "3:37: {path}: Invalid value: \"\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )],
    );
}

#[test]
fn the_status_names_the_addresses_of_the_load_balancer() {
    let balancer = |ingress: &str| {
        let spec = with(&format!("{PORT}type: LoadBalancer\n"));
        format!("{spec}status:\n  loadBalancer:\n    ingress: [{ingress}]\n")
    };
    let (service, notes) = noted(&balancer(
        "{ip: 192.0.2.1, ipMode: VIP}, {ip: 192.0.2.2, ipMode: Proxy}, {hostname: lb.example.com}",
    ));
    assert_eq!(service.ingress_ips, [ip("192.0.2.1")]);
    assert_eq!(
        notes,
        [
            "status.loadBalancer.ingress[1].ipMode: with Proxy the node does not answer on 192.0.2.2: the load balancer sends to node ports",
            "status.loadBalancer.ingress[2].hostname: not acted on: only addresses are",
        ]
    );
    check_notes(
        &format!("{PORT}type: LoadBalancer\n"),
        &[
            "status.loadBalancer.ingress: no address: nothing here assigns one, so the service answers on its cluster IP and node ports only; write its addresses there",
        ],
    );
    check_text(
        &balancer(
            "{ip: x}, {ipMode: VIP}, {ip: 192.0.2.1, ipMode: Vip, hostname: 1.2.3.4}, {ip: 127.0.0.1}",
        ),
        &[
            "9:16: status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "9:25: status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
            "9:55: status.loadBalancer.ingress[2].ipMode: Unsupported value: \"Vip\": supported values: \"Proxy\", \"VIP\"; did you mean \"VIP\"?",
            "9:68: status.loadBalancer.ingress[2].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            "9:89: status.loadBalancer.ingress[3].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ],
    );
    check_text(
        &balancer("{ip: 192.0.2.1}").replace("LoadBalancer", "NodePort"),
        &[
            "9:5: status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
        ],
    );
}

#[test]
fn fields_without_effect_are_noted() {
    let by_status = "not acted on: nothing here gives addresses to a load balancer; its own are those of status.loadBalancer.ingress";
    let text = with(&format!(
        "{PORT}type: LoadBalancer\nloadBalancerIP: 192.0.2.1\nloadBalancerClass: example.com/lb\ntrafficDistribution: PreferSameZone\nexternalName: a\n"
    ));
    let text = format!("{text}status: {{loadBalancer: {{ingress: [{{ip: 192.0.2.1}}]}}}}\n");
    assert_eq!(
        noted(&text).1,
        [
            "spec.trafficDistribution: not acted on: every endpoint that is ready gets traffic, wherever it is".to_owned(),
            format!("spec.loadBalancerIP: {by_status}"),
            format!("spec.loadBalancerClass: {by_status}"),
            "spec.externalName: not acted on: the type is not ExternalName".to_owned(),
        ]
    );
    check(
        &format!("{PORT}trafficDistribution: Near\n"),
        &[
            "6:3: spec.trafficDistribution: Unsupported value: \"Near\": supported values: \"PreferClose\", \"PreferSameNode\", \"PreferSameZone\"",
        ],
    );
    let why = "not acted on: a headless service is not proxied: its name leads to its endpoints";
    check_notes(
        &format!("{PORT}clusterIP: None\nsessionAffinity: ClientIP\nexternalIPs: [192.0.2.1]\n"),
        &[
            &format!("spec.externalIPs: {why}"),
            &format!("spec.sessionAffinity: {why}"),
        ],
    );
    let marked = with(PORT).replace(
        "{name: web}",
        "{name: web, deletionTimestamp: x, labels: {service.kubernetes.io/service-proxy-name: cilium}, annotations: {service.kubernetes.io/topology-mode: Auto}}",
    );
    let (service, notes) = noted(&marked);
    assert!(!service.is_proxied());
    assert_eq!(
        notes,
        [
            "metadata.deletionTimestamp: not acted on: a Service in a file is deleted by removing the file",
            "metadata.labels[service.kubernetes.io/service-proxy-name]: the service is not proxied: the label leaves it to another proxy",
            "metadata.annotations[service.kubernetes.io/topology-mode]: not acted on: every endpoint that is ready gets traffic, wherever it is",
        ]
    );
    let both = with(PORT).replace(
        "{name: web}",
        "{name: web, annotations: {service.kubernetes.io/topology-mode: Auto, service.kubernetes.io/topology-aware-hints: Disabled}}",
    );
    check_text(
        &both,
        &[
            "3:37: metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: \"Auto\": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
        ],
    );
}

#[test]
fn unknown_fields_are_refused_where_a_known_one_was_meant_and_noted_elsewhere() {
    check(
        "ports:\n- {port: 80, targetport: 8080}\nselektor: {app: web}\n",
        &[
            "6:16: spec.ports[0].targetport: unknown field: did you mean \"targetPort\"?",
            "7:3: spec.selektor: unknown field: did you mean \"selector\"?",
        ],
    );
    check_notes(
        "ports:\n- {port: 80, name: a, weight: 1}\n- {port: 81, name: b, weight: 1}\ntopologyKeys: []\n",
        &[
            "spec.ports[0].weight: not acted on: unknown field",
            "spec.topologyKeys: not acted on: unknown field",
        ],
    );
    check_text(
        &format!("{}sepc: {{}}\n", with(PORT)),
        &["6:1: sepc: unknown field: did you mean \"spec\"?"],
    );
    check_text(
        &with(PORT).replace("{name: web}", "{name: web, lables: {a: b}}"),
        &["3:23: metadata.lables: unknown field: did you mean \"labels\"?"],
    );
}

#[test]
fn selectors_and_labels_follow_the_rules_of_labels() {
    let error = decode(&with(&format!("{PORT}selector: {{'a b': 'c d'}}\n"))).unwrap_err();
    let error = error.to_string();
    let lines: Vec<_> = error.lines().collect();
    assert!(
        lines[0].contains(":6:3: spec.selector: Invalid value: \"a b\": name part must consist of")
            && lines[1]
                .contains(":6:14: spec.selector[a b]: Invalid value: \"c d\": a valid label"),
        "{error}"
    );
}

#[test]
fn lists_and_documents_hold_services() {
    let service =
        |name: &str| format!("{{metadata: {{name: {name}}}, spec: {{ports: [{{port: 80}}]}}}}");
    let list =
        |kind: &str, items: &str| format!("apiVersion: v1\nkind: {kind}\nitems: [{items}]\n");
    let two = format!("{}, {}", service("a"), service("b"));
    let names = |text: &str| -> Vec<String> {
        let found = decode(text).unwrap_or_else(|e| panic!("{e}"));
        found.objects.iter().map(|o| o.key.to_string()).collect()
    };
    assert_eq!(
        names(&list("ServiceList", &two)),
        ["Service default/a", "Service default/b"]
    );
    let documents = format!(
        "{}---\n{}",
        with(PORT),
        with("clusterIP: None\n").replace("web", "db")
    );
    assert_eq!(
        names(&documents),
        ["Service default/web", "Service default/db"]
    );
    check_text(
        &list(
            "ServiceList",
            &format!("{}, {}", service("a"), service("a")),
        ),
        &["3:73: items[1].metadata.name: Duplicate value: \"default/a\""],
    );
    check_text(
        &list("ServiceList", &service("a").replace("80", "0")),
        &[
            "3:47: items[0].spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
}

#[test]
fn a_service_of_another_group_is_another_kind() {
    let knative = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: web}\n";
    let found = decode(&format!("{knative}---\n{}", with(PORT))).unwrap();
    assert_eq!(found.objects.len(), 1);
    assert!(
        found.notes[0].starts_with(
            "serving.knative.dev/v1 Service \"web\": not run here: podprobe reads v1 Pods"
        ),
        "{:?}",
        found.notes
    );
    let error = decode(knative).unwrap_err().to_string();
    let expected =
        ":2:1: kind: Unsupported value: \"serving.knative.dev/v1 Service\": not run here";
    assert!(error.contains(expected), "{error}");
    let error = decode(&with(PORT).replacen("v1", "apps/v1", 1)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains(":1:1: apiVersion: Unsupported value: \"apps/v1\": podprobe reads")
            && error.ends_with("; write \"v1\""),
        "{error}"
    );
}
