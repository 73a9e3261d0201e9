use super::*;
use crate::net::network::cni::conf::parse_list;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn sandbox<'a>(ports: &'a [PortMapping], bandwidth: Bandwidth) -> SandboxNetwork<'a> {
    SandboxNetwork {
        id: ID,
        name: "web",
        namespace: "default",
        uid: "u-1",
        holder: None,
        record: Path::new("/run"),
        ports,
        bandwidth,
    }
}

fn attachment(sandbox: &SandboxNetwork<'_>) -> Result<Attachment, &'static str> {
    Attachment::of(sandbox, "/proc/7/ns/net".into())
}

fn ports() -> Vec<PortMapping> {
    let port = |host_ip: Option<&str>, host_port, protocol| PortMapping {
        host_ip: host_ip.map(|a| a.parse().unwrap()),
        host_port,
        container_port: 80,
        protocol,
    };
    vec![
        port(None, 8080, Protocol::Tcp),
        port(Some("127.0.0.1"), 53, Protocol::Udp),
    ]
}

fn plugin(capabilities: &str) -> Plugin {
    let text = format!(
        r#"{{"name": "n", "plugins": [{{"type": "p", "cniVersion": "0.1.0", "name": "x", "own": 5, "prevResult": {{}},
             "cni.dev/x": 1, "capabilities": {capabilities}}}]}}"#
    );
    parse_list(text.as_bytes()).unwrap().plugins.remove(0)
}

fn read(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn a_plugin_reads_its_own_fields_those_of_the_network_and_the_result_before() {
    let attachment = attachment(&sandbox(&[], Bandwidth::default())).unwrap();
    let version = Version::parse("1.0.0").unwrap();
    let plain = input(&plugin("{}"), "n", version, None, &attachment);
    let expected = json!({"type": "p", "cniVersion": "1.0.0", "name": "n", "own": 5});
    assert_eq!(read(&plain), expected);
    let before = json!({"ips": []});
    let next = input(&plugin("{}"), "n", version, Some(&before), &attachment);
    assert_eq!(read(&next)["prevResult"], before);
}

#[test]
fn capabilities_reach_the_plugins_that_have_them_switched_on() {
    let bandwidth = Bandwidth {
        ingress: Some(1_000_000),
        egress: None,
    };
    let ports = ports();
    let attachment = attachment(&sandbox(&ports, bandwidth)).unwrap();
    let given = |capabilities| {
        let input = input(
            &plugin(capabilities),
            "n",
            Version::STATUS,
            None,
            &attachment,
        );
        read(&input).get("runtimeConfig").cloned()
    };
    assert_eq!(
        given(r#"{"portMappings": true, "bandwidth": false, "mac": true}"#),
        Some(json!({"portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 53, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"},
        ]}))
    );
    assert_eq!(
        given(r#"{"bandwidth": true}"#),
        Some(json!({"bandwidth": {"ingressRate": 1_000_000, "ingressBurst": 4_294_967_295_u32}}))
    );
    assert_eq!(given(r#"{"mac": true}"#), None);
}

#[test]
fn gc_names_the_sandboxes_that_are_left() {
    let given = read(&gc_input(&plugin("{}"), "n", Version::STATUS, &["a", "b"]));
    let valid =
        json!([{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "eth0"}]);
    assert_eq!(given["cni.dev/valid-attachments"], valid);
    assert_eq!(given["cni.dev/attachments"], valid);
    assert_eq!(given["cni.dev/x"], Value::Null);
}

fn variables(command: Command, attachment: &Attachment, path: Option<&str>) -> Vec<String> {
    let dirs = ["/opt/cni/bin", "/usr/lib/cni"].map(PathBuf::from);
    let mut found: Vec<_> = environment(command, attachment, &dirs, path.map(OsString::from))
        .into_iter()
        .map(|(name, value)| format!("{name}={}", value.display()))
        .collect();
    found.sort();
    found
}

#[test]
fn the_environment_has_the_sandbox_the_pod_and_a_path_with_every_usual_directory() {
    let attachment = attachment(&sandbox(&[], Bandwidth::default())).unwrap();
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(
        variables(Command::Add, &attachment, None),
        [
            format!(
                "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;\
                 K8S_POD_INFRA_CONTAINER_ID={ID};K8S_POD_UID=u-1"
            ),
            "CNI_COMMAND=ADD".into(),
            format!("CNI_CONTAINERID={ID}"),
            "CNI_IFNAME=eth0".into(),
            "CNI_NETNS=/proc/7/ns/net".into(),
            "CNI_PATH=/opt/cni/bin:/usr/lib/cni".into(),
            format!("PATH={usual}"),
        ]
    );
    let status = variables(
        Command::Status,
        &Attachment::default(),
        Some("/x:here:/usr/bin"),
    );
    assert_eq!(
        status,
        [
            "CNI_COMMAND=STATUS",
            "CNI_PATH=/opt/cni/bin:/usr/lib/cni",
            "PATH=/x:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin",
        ]
    );
}

#[test]
fn a_value_that_would_become_arguments_of_its_own_is_refused() {
    let mut sandbox = sandbox(&[], Bandwidth::default());
    sandbox.uid = "u;IP=10.0.0.1";
    assert_eq!(attachment(&sandbox), Err("K8S_POD_UID"));
}
