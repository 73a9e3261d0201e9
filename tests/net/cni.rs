//! Networks of CNI: real plugins with real traffic, and what becomes of a sandbox when anything goes wrong.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use podprobe::api::service::Protocol;
use podprobe::base::sys::task::Process;
use podprobe::net::network::cni::{CniError, CniNetwork, CniSettings, Limits};
use podprobe::net::network::{Bandwidth, PodNetwork, PortMapping, SandboxNetwork};
use serde_json::{Value, json};

use crate::support::cni::{
    CEILING, Node, Pod, command, greeted, hold, on_a_node, wait_for, with_real_plugins,
};
use crate::support::own_process::again;

const BRIDGE: &str = "{'cniVersion': '1.0.0', 'name': 'pods', 'plugins': [
    {'type': 'bridge', 'bridge': 'cni0', 'isGateway': true, 'hairpinMode': true,
     'ipam': {'type': 'host-local', 'subnet': '10.88.0.0/24', 'dataDir': 'IPAM', 'routes': [{'dst': '0.0.0.0/0'}]}},
    {'type': 'portmap', 'capabilities': {'portMappings': true}},
    {'type': 'loopback'}]}";

const RECORDED: &str = "{'cniVersion': '1.1.0', 'name': 'n', 'plugins': [
    {'type': 'first', 'own': [1]}, {'type': 'second', 'capabilities': {'portMappings': true}}]}";

fn gateway() -> IpAddr {
    "10.88.0.1".parse().unwrap()
}

fn port_80_at(host_port: u16) -> PortMapping {
    PortMapping {
        host_ip: None,
        host_port,
        container_port: 80,
        protocol: Protocol::Tcp,
    }
}

/// A process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn up(network: &CniNetwork, pod: &Pod) -> IpAddr {
    network.set_up(&pod.sandbox()).unwrap()[0]
}

#[track_caller]
fn refused(network: &CniNetwork, pod: &Pod) -> String {
    network.set_up(&pod.sandbox()).unwrap_err().to_string()
}

/// A recording node with two plugins.
fn recorded(test: impl FnOnce(&Node) + Send) {
    on_a_node(|node| {
        node.plugin("first", "");
        node.plugin("second", "");
        node.configure("1.conflist", RECORDED);
        test(node);
    });
}

#[test]
fn pods_on_a_bridge_reach_one_another_the_node_and_are_reached_by_host_port() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let network = node.network();
        let (mut one, two) = (Pod::new(1), Pod::new(2));
        one.ports = vec![port_80_at(8080)];
        let (first, second) = (up(&network, &one), up(&network, &two));
        assert_eq!(
            [first, second].map(|a| a.to_string()),
            ["10.88.0.2", "10.88.0.3"]
        );
        one.serve(80);
        two.serve(80);
        assert_eq!(greeted(first, 80).unwrap(), one.id());
        assert_eq!(two.inside(|| greeted(first, 80)).unwrap(), one.id());
        assert_eq!(one.inside(|| greeted(second, 80)).unwrap(), two.id());
        assert_eq!(greeted(gateway(), 8080).unwrap(), one.id());
        assert_eq!(two.inside(|| greeted(gateway(), 8080)).unwrap(), one.id());
        // The portmap plugin of this package cannot check a pod with ports: it misses rules of IPv6 that it has not made.
        network.check(&two.sandbox()).unwrap();

        network.tear_down(&one.sandbox()).unwrap();
        assert_eq!(node.reserved("pods"), ["10.88.0.3"]);
        assert!(two.inside(|| greeted(gateway(), 8080)).is_err());
        assert!(!one.inside(|| command("ip addr")).contains("eth0"));
        assert_eq!(two.inside(|| greeted(first, 80)).map_err(|_| ()), Err(()));
        network.tear_down(&two.sandbox()).unwrap();
        assert!(node.reserved("pods").is_empty() && node.cached().is_empty());
        let rules = command("iptables -t nat -S");
        assert!(!rules.contains("8080"), "{rules}");
        // Once more is nothing to do.
        network.tear_down(&two.sandbox()).unwrap();
        assert_eq!(fs::read_dir(one.record()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(node.path("cache/locks")).unwrap().count(), 0);
    });
}

#[test]
fn check_sees_a_pod_whose_address_is_gone() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let network = node.network();
        let pod = Pod::new(1);
        assert_eq!(
            network.check(&pod.sandbox()).unwrap_err().to_string(),
            "it is in no network"
        );
        up(&network, &pod);
        network.check(&pod.sandbox()).unwrap();
        pod.inside(|| command("ip addr flush dev eth0"));
        let error = network.check(&pod.sandbox()).unwrap_err().to_string();
        assert!(
            error.starts_with("plugin type=\"bridge\" failed (check): "),
            "{error}"
        );
        network.tear_down(&pod.sandbox()).unwrap();
    });
}

#[test]
fn a_point_to_point_pod_has_its_bandwidth_and_two_families() {
    with_real_plugins(|node| {
        node.configure(
            "1.conflist",
            "{'cniVersion': '0.4.0', 'name': 'p2p', 'plugins': [
              {'type': 'ptp', 'ipam': {'type': 'host-local', 'dataDir': 'IPAM',
               'ranges': [[{'subnet': 'fd00:5::/64'}], [{'subnet': '10.89.0.0/24'}]]}},
              {'type': 'bandwidth', 'capabilities': {'bandwidth': true}}]}",
        );
        let network = node.network();
        let mut pod = Pod::new(1);
        pod.bandwidth = Bandwidth {
            ingress: Some(8_000_000),
            egress: Some(16_000_000),
        };
        let addresses = network.set_up(&pod.sandbox()).unwrap();
        let texts: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(texts, ["10.89.0.2", "fd00:5::2"]);
        let shaped = command("tc qdisc show");
        assert!(
            shaped.contains("rate 8Mbit") && shaped.contains("rate 16Mbit"),
            "{shaped}"
        );
        pod.serve(80);
        assert_eq!(greeted(addresses[0], 80).unwrap(), pod.id());
        network.check(&pod.sandbox()).unwrap();
        network.tear_down(&pod.sandbox()).unwrap();
        assert!(!command("tc qdisc show").contains("tbf"));
        assert!(node.reserved("p2p").is_empty());
    });
}

#[test]
fn every_version_that_the_plugins_speak_works() {
    with_real_plugins(|node| {
        for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"] {
            let conf = BRIDGE.replace("'1.0.0'", &format!("'{version}'"));
            // Chains came with 0.3.0.
            let conf = match version {
                "0.1.0" | "0.2.0" => conf.replace(", 'routes': [{'dst': '0.0.0.0/0'}]", ""),
                _ => conf,
            };
            let chain = if version < "0.3.0" {
                let end = conf.find("},\n    {'type': 'portmap'").unwrap();
                format!("{}}}]}}", &conf[..end])
            } else {
                conf
            };
            node.configure("1.conflist", &chain);
            let (network, pod) = (node.network(), Pod::new(1));
            network.ready().unwrap();
            let address = up(&network, &pod);
            pod.serve(80);
            assert_eq!(greeted(address, 80).unwrap(), pod.id(), "{version}");
            network.tear_down(&pod.sandbox()).unwrap();
            assert!(node.reserved("pods").is_empty(), "{version}");
        }
    });
}

#[test]
fn the_newest_version_that_the_plugins_speak_is_chosen() {
    with_real_plugins(|node| {
        let several = BRIDGE.replace("'1.0.0'", "'0.4.0', 'cniVersions': ['1.0.0', '1.1.0']");
        node.configure("1.conflist", &several);
        let (network, pod) = (node.network(), Pod::new(1));
        network.ready().unwrap();
        up(&network, &pod);
        let kept: Value = serde_json::from_slice(&fs::read(&node.cached()[0]).unwrap()).unwrap();
        assert_eq!(kept["result"]["cniVersion"], "1.0.0");
        network.tear_down(&pod.sandbox()).unwrap();

        node.configure("1.conflist", &BRIDGE.replace("'1.0.0'", "'1.1.0'"));
        let error = network.ready().unwrap_err().to_string();
        let expected = "the configuration is written for CNI 1.1.0, but plugin type=\"bridge\" speaks 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0; ";
        assert!(error.starts_with(expected), "{error}");
        let error = refused(&network, &pod);
        assert!(
            error.contains("(code 1, incompatible CNI version)"),
            "{error}"
        );
    });
}

#[test]
fn a_pod_whose_holder_is_gone_is_released_and_nobody_else() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let network = node.network();
        let (mut gone, mut reused, mut node_s, other) =
            (Pod::new(1), Pod::new(2), Pod::new(3), Pod::new(4));
        for pod in [&gone, &reused, &node_s, &other] {
            up(&network, pod);
        }
        other.serve(80);
        gone.kill();
        reused.kill_and_reuse(other.pid());
        let in_node = Command::new("sleep").arg("1000").spawn().unwrap();
        let in_node = Killed(in_node);
        node_s.kill_and_reuse(in_node.0.id());
        for pod in [&gone, &reused, &node_s] {
            network.tear_down(&pod.sandbox()).unwrap();
        }
        assert_eq!(node.reserved("pods"), ["10.88.0.5"]);
        let address = "10.88.0.5".parse().unwrap();
        assert_eq!(greeted(address, 80).unwrap(), other.id());
        network.check(&other.sandbox()).unwrap();
        network.tear_down(&other.sandbox()).unwrap();
    });
}

#[test]
fn a_pod_is_released_as_it_was_connected_whatever_the_configuration_is_now() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let network = node.network();
        let pods = [Pod::new(1), Pod::new(2), Pod::new(3)];
        pods.iter().for_each(|pod| _ = up(&network, pod));
        let [removed, changed, broken] = &pods;
        node.unconfigure();
        node.network().tear_down(&removed.sandbox()).unwrap();
        node.configure(
            "0.conflist",
            &BRIDGE.replace("10.88", "10.99").replace("'pods'", "'new'"),
        );
        network.tear_down(&changed.sandbox()).unwrap();
        node.configure("0.conflist", "{");
        network.tear_down(&broken.sandbox()).unwrap();
        assert!(node.reserved("pods").is_empty() && node.cached().is_empty());
    });
}

#[test]
fn what_a_reboot_has_left_is_released_and_what_lives_is_not() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let (mut lost, alive) = (Pod::new(1), Pod::new(2));
        lost.ports = vec![port_80_at(8080)];
        up(&node.network(), &lost);
        up(&node.network(), &alive);
        lost.kill();
        drop(lost);
        assert_eq!(node.reserved("pods").len(), 2);
        let network = node.network();
        network.gc(&[alive.id()]).unwrap();
        assert_eq!(node.reserved("pods"), ["10.88.0.3"]);
        assert!(!command("iptables -t nat -S").contains("8080"));
        network.check(&alive.sandbox()).unwrap();
        // Without a configuration it is the same.
        node.unconfigure();
        network.gc(&[]).unwrap();
        assert!(node.reserved("pods").is_empty() && node.cached().is_empty());
    });
}

#[test]
fn many_pods_at_once_have_addresses_of_their_own() {
    with_real_plugins(|node| {
        node.configure("1.conflist", BRIDGE);
        let network = node.network();
        let pods: Vec<_> = (1..=12).map(Pod::new).collect();
        let own = fs::File::open("/proc/thread-self/ns/net").unwrap();
        let connect = |pod: &Pod| {
            nix::sched::setns(&own, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            up(&network, pod)
        };
        let connect = &connect;
        let found: BTreeSet<_> = std::thread::scope(|s| {
            let all: Vec<_> = pods
                .iter()
                .map(|pod| s.spawn(move || connect(pod)))
                .collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(found.len(), pods.len());
        pods.iter()
            .for_each(|pod| network.tear_down(&pod.sandbox()).unwrap());
        assert!(node.reserved("pods").is_empty());
    });
}

#[test]
fn a_failure_of_the_last_plugin_releases_what_the_first_has_made() {
    with_real_plugins(|node| {
        node.plugin(
            "last",
            r#"[ $CNI_COMMAND != ADD ] || { echo '{"code": 7, "msg": "no", "details": "never"}'; exit 1; }"#,
        );
        node.configure("1.conflist", &BRIDGE.replace("loopback", "last"));
        let (network, pod) = (node.network(), Pod::new(1));
        let file = node.path("conf/1.conflist");
        assert_eq!(
            refused(&network, &pod),
            format!(
                "plugin type=\"last\" failed (add): no; never (code 7, invalid network configuration) (network \"pods\", {})",
                file.display()
            )
        );
        assert!(node.reserved("pods").is_empty() && node.cached().is_empty());
        let interfaces = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        assert!(!pod.inside(interfaces).contains("eth0"));
        assert_eq!(fs::read_dir(pod.record()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(node.path("cache/locks")).unwrap().count(), 0);
        node.plugin("last", "");
        up(&network, &pod);
        network.tear_down(&pod.sandbox()).unwrap();
    });
}

#[test]
fn plugins_run_in_order_with_the_result_before_them_and_are_released_in_reverse() {
    recorded(|node| {
        let (network, mut pod) = (node.network(), Pod::new(1));
        pod.ports = vec![port_80_at(8080)];
        assert_eq!(up(&network, &pod).to_string(), "10.5.0.9");
        assert_eq!(node.calls(), ["ADD first", "ADD second"]);
        let input = node.input("ADD.first");
        let expected = json!({"type": "first", "own": [1], "cniVersion": "1.1.0", "name": "n"});
        assert_eq!(input, expected);
        let input = node.input("ADD.second");
        assert_eq!(input["prevResult"]["by"], "first");
        assert_eq!(input["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(input.get("capabilities"), None);
        let seen = |name| node.variable("ADD.second", name).unwrap();
        assert_eq!(seen("CNI_CONTAINERID"), pod.id());
        assert_eq!(seen("CNI_NETNS"), pod.netns().to_str().unwrap());
        assert_eq!(seen("CNI_IFNAME"), "eth0");
        let args = seen("CNI_ARGS");
        let expected = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID=u-1",
            pod.id()
        );
        assert_eq!(args, expected);
        assert_eq!(node.variable("ADD.second", "HOME"), None);

        network.check(&pod.sandbox()).unwrap();
        assert_eq!(node.calls(), ["CHECK first", "CHECK second"]);
        assert_eq!(node.input("CHECK.first")["prevResult"]["by"], "second");

        // The arguments of ADD count, whatever the pod looks like now.
        pod.ports.clear();
        network.tear_down(&pod.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert_eq!(node.input("DEL.first")["prevResult"]["by"], "second");
        let input = node.input("DEL.second");
        assert_eq!(input["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        network.tear_down(&pod.sandbox()).unwrap();
        assert!(node.calls().is_empty());
    });
}

#[test]
fn check_is_not_called_where_it_is_switched_off_or_unknown() {
    recorded(|node| {
        let check = |from: &str, to: &str| {
            node.configure("1.conflist", &RECORDED.replace(from, to));
            let (network, pod) = (node.network(), Pod::new(1));
            up(&network, &pod);
            network.check(&pod.sandbox()).unwrap();
            network.tear_down(&pod.sandbox()).unwrap();
            let calls = node.calls();
            assert!(!calls.iter().any(|c| c.starts_with("CHECK")), "{calls:?}");
        };
        check("'name'", "'disableCheck': true, 'name'");
        check("1.1.0", "0.3.1");
        // Nor is there a result for DEL before 0.4.0.
        assert_eq!(node.input("DEL.first").get("prevResult"), None);
    });
}

#[test]
fn a_release_that_fails_is_tried_again_with_all_that_it_needs() {
    recorded(|node| {
        let (network, mut pod) = (node.network(), Pod::new(1));
        up(&network, &pod);
        node.plugin(
            "first",
            "[ $CNI_COMMAND != DEL ] || { echo stuck >&2; exit 3; }",
        );
        let error = network.tear_down(&pod.sandbox()).unwrap_err().to_string();
        let expected = "plugin type=\"first\" failed (delete): exit status 3 without an error message; stderr: stuck (network \"n\", ";
        assert!(error.starts_with(expected), "{error}");
        node.unconfigure();
        node.plugin("first", "");
        node.calls();
        pod.kill();
        node.network().tear_down(&pod.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert_eq!(node.input("DEL.first")["prevResult"]["by"], "second");
        assert_eq!(node.variable("DEL.first", "CNI_NETNS").unwrap(), "");
    });
}

#[test]
fn a_plugin_with_nothing_to_release_holds_up_no_pod() {
    recorded(|node| {
        let network = node.network();
        let release = |error: &str, alive: bool| {
            node.plugin("second", "");
            let mut pod = Pod::new(1);
            up(&network, &pod);
            let fail = format!("[ $CNI_COMMAND != DEL ] || {{ echo '{error}'; exit 1; }}");
            node.plugin("second", &fail);
            if !alive {
                pod.kill();
            }
            let released = network.tear_down(&pod.sandbox()).is_ok();
            node.plugin("second", "");
            network.tear_down(&pod.sandbox()).unwrap();
            released
        };
        assert!(release(r#"{"code": 3, "msg": "who?"}"#, true));
        assert!(release(
            r#"{"code": 999, "msg": "interface not found"}"#,
            true
        ));
        let missing = r#"{"code": 999, "msg": "open /proc/7/ns/net: no such file or directory"}"#;
        assert!(release(missing, false));
        assert!(!release(missing, true));
        let iptables =
            r#"{"code": 999, "msg": "exec: iptables: executable file not found in $PATH"}"#;
        assert!(!release(iptables, true));
    });
}

#[test]
fn a_plugin_that_hangs_is_killed_and_its_pod_released() {
    recorded(|node| {
        node.plugin("second", "[ $CNI_COMMAND != ADD ] || sleep 1000");
        let limits = Limits {
            plugin: Duration::from_millis(500),
            ..Limits::default()
        };
        let (network, pod) = (node.network_within(limits), Pod::new(1));
        let begin = Instant::now();
        let error = refused(&network, &pod);
        assert!(begin.elapsed() < CEILING);
        let expected = "plugin type=\"second\" failed (add): not done after 500ms; it was killed (network \"n\", ";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(
            node.calls(),
            ["ADD first", "ADD second", "DEL second", "DEL first"]
        );
        assert!(node.cached().is_empty());
    });
}

#[test]
fn answers_that_are_no_results_are_named_and_undone() {
    recorded(|node| {
        let (network, pod) = (node.network(), Pod::new(1));
        let answer = |script: &str, expected: &str| {
            let script = format!("[ $CNI_COMMAND != ADD ] || {{ {script}; }}");
            node.plugin("second", &script);
            let error = refused(&network, &pod);
            let expected = format!("plugin type=\"second\" failed (add): {expected}");
            assert!(error.starts_with(&expected), "{error}");
            assert!(error.ends_with("/conf/1.conflist)"), "{error}");
            assert_eq!(node.calls()[2..], ["DEL second", "DEL first"]);
        };
        answer(
            "echo garbage; exit 0",
            "its result is not valid JSON: expected value at line 1 column 1; stdout: garbage (network \"n\", ",
        );
        answer("exit 0", "it succeeded without a result (");
        answer(
            "exec yes",
            "it wrote more than 1048576 bytes and was killed (",
        );
        answer(
            "echo '{}'; exit 0",
            "the network gave no address for eth0; stdout: ",
        );
        answer("exit 9", "exit status 9 without an error message (");
        assert!(node.cached().is_empty());
    });
}

#[test]
fn without_a_usable_network_no_plugin_runs() {
    on_a_node(|node| {
        let (network, pod) = (node.network(), Pod::new(1));
        let both = |expected: &str| {
            let ready = network.ready().unwrap_err().to_string();
            assert_eq!(refused(&network, &pod), ready);
            assert!(ready.starts_with(expected), "{ready}");
        };
        let dir = node.path("conf");
        let dir = dir.display();
        // Of a pod that was never connected there is nothing to release, and nothing is written.
        network.tear_down(&pod.sandbox()).unwrap();
        assert!(!node.path("cache").exists());
        both(&format!(
            "cni plugin not initialized: no network config found in {dir}"
        ));
        assert!(matches!(network.ready(), Err(CniError::NotInitialized(_))));
        assert!(network.configured().unwrap().is_none());
        network.gc(&[]).unwrap();
        node.configure("1.conflist", "{'name': 'n'");
        both(&format!(
            "cni config load failed: {dir}/1.conflist: it is not valid JSON: EOF while parsing an object at line 1 column 12"
        ));
        node.configure(
            "1.conflist",
            "{'name': 'n', 'plugins': [{'type': 'first'}, {'type': 'nowhere'}]}",
        );
        node.plugin("first", "");
        let error = refused(&network, &pod);
        let expected = format!(
            "plugin type=\"nowhere\" failed (add): there is no such program in {}, /opt/cni/bin, /usr/lib/cni: install the plugin there, or set cniBinDir (",
            node.path("bin").display()
        );
        assert!(error.starts_with(&expected), "{error}");
        assert!(network.ready().unwrap_err().to_string().contains("nowhere"));
        assert!(node.calls().is_empty());
    });
}

#[test]
fn status_is_asked_from_1_1_0_on_and_its_errors_are_told() {
    recorded(|node| {
        let network = node.network();
        network.ready().unwrap();
        let expected = [
            "VERSION first",
            "VERSION second",
            "STATUS first",
            "STATUS second",
        ];
        assert_eq!(node.calls(), expected);
        assert_eq!(node.input("VERSION.first"), json!({"cniVersion": "1.1.0"}));
        let expected = json!({"type": "second", "cniVersion": "1.1.0", "name": "n"});
        assert_eq!(node.input("STATUS.second"), expected);
        assert_eq!(node.variable("STATUS.second", "CNI_CONTAINERID"), None);
        node.plugin(
            "second",
            r#"[ $CNI_COMMAND != STATUS ] || { echo '{"code": 50, "msg": "no addresses are left"}'; exit 1; }"#,
        );
        let error = network.ready().unwrap_err().to_string();
        let expected = "plugin type=\"second\" failed (status): no addresses are left (code 50, the plugin is not available) (network \"n\", ";
        assert!(error.starts_with(expected), "{error}");
        // The second was replaced, the first was not.
        assert_eq!(
            node.calls(),
            ["VERSION second", "STATUS first", "STATUS second"]
        );
        node.configure("1.conflist", &RECORDED.replace("1.1.0", "1.0.0"));
        network.ready().unwrap();
        assert!(node.calls().is_empty());
        // Plugins of the first version do not know VERSION yet.
        let several = RECORDED.replace("'1.1.0'", "'0.1.0', 'cniVersions': ['0.1.0', '1.0.0']");
        node.configure("1.conflist", &several);
        node.plugin(
            "first",
            r#"[ $CNI_COMMAND != VERSION ] || { echo '{"code": 4, "msg": "unknown CNI_COMMAND: VERSION"}'; exit 1; }"#,
        );
        let error = network.ready().unwrap_err().to_string();
        assert!(error.contains("none of them in common"), "{error}");
        node.plugin(
            "second",
            r#"[ $CNI_COMMAND != VERSION ] || { echo '{"cniVersion": "0.2.0"}'; exit; }"#,
        );
        network.ready().unwrap();
        // Small scripts know no VERSION.
        node.configure("1.conflist", &RECORDED.replace("1.1.0", "1.0.0"));
        node.plugin("second", "");
        node.plugin("first", "[ $CNI_COMMAND != VERSION ] || exit 1");
        network.ready().unwrap();
    });
}

#[test]
fn gc_names_those_that_live_and_releases_the_others_with_their_own_configuration() {
    recorded(|node| {
        let network = node.network();
        let (elsewhere, here, stale) = (Pod::new(1), Pod::new(2), Pod::new(3));
        node.plugin("other", "");
        node.configure(
            "1.conflist",
            "{'name': 'old', 'cniVersion': '1.0.0', 'plugins': [{'type': 'other'}]}",
        );
        up(&network, &elsewhere);
        up(&network, &stale);
        node.configure("1.conflist", RECORDED);
        up(&network, &here);
        node.calls();
        let unknown = "f".repeat(64);
        network.gc(&[elsewhere.id(), here.id(), &unknown]).unwrap();
        let expected = [
            "DEL other",
            "VERSION first",
            "VERSION second",
            "GC first",
            "GC second",
        ];
        assert_eq!(node.calls(), expected);
        assert_eq!(
            node.variable("DEL.other", "CNI_CONTAINERID").unwrap(),
            stale.id()
        );
        assert_eq!(node.variable("DEL.other", "CNI_NETNS").unwrap(), "");
        let input = node.input("GC.second");
        let valid = json!([{"containerID": here.id(), "ifname": "eth0"}, {"containerID": unknown, "ifname": "eth0"}]);
        assert_eq!(input["cni.dev/valid-attachments"], valid);
        assert_eq!(input["cni.dev/attachments"], valid);
        assert_eq!(node.cached().len(), 2);

        node.configure(
            "1.conflist",
            &RECORDED.replace("'name'", "'disableGC': true, 'name'"),
        );
        network.gc(&[here.id()]).unwrap();
        assert_eq!(node.calls(), ["DEL other"]);
    });
}

#[test]
fn gc_goes_on_after_a_failure_and_tells_it() {
    recorded(|node| {
        let network = node.network();
        up(&network, &Pod::new(1));
        let fail =
            r#"case $CNI_COMMAND in GC|DEL) echo '{"code": 100, "msg": "no"}'; exit 1;; esac"#;
        node.plugin("first", fail);
        node.calls();
        let error = network.gc(&[]).unwrap_err().to_string();
        assert!(error.contains("failed (delete): no (code 100)"), "{error}");
        assert!(
            error.contains("; plugin type=\"first\" failed (gc): no (code 100)"),
            "{error}"
        );
        let calls = node.calls();
        assert!(
            calls.ends_with(&["GC first".into(), "GC second".into()]),
            "{calls:?}"
        );
        assert_eq!(node.cached().len(), 1);
    });
}

#[test]
fn no_pod_is_connected_while_gc_runs() {
    recorded(|node| {
        let gate = node.path("gate");
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
        node.plugin(
            "first",
            &format!(
                "[ $CNI_COMMAND != GC ] || cat {}; echo \"end of $CNI_COMMAND\" >> $log/calls",
                gate.display()
            ),
        );
        let (network, pod) = (node.network(), Pod::new(1));
        std::thread::scope(|s| {
            let collected = s.spawn(|| network.gc(&[]));
            let open = hold(&gate);
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let (network, sandbox) = (&network, pod.sandbox());
            let connect = move || {
                tell.send(nix::unistd::gettid()).unwrap();
                network.set_up(&sandbox)
            };
            let connected = s.spawn(connect);
            let thread = format!("/proc/self/task/{}/syscall", told.recv().unwrap());
            // A thread that waits for a lock waits for a futex.
            let futex = format!("{} ", nix::libc::SYS_futex);
            let waits = || fs::read_to_string(&thread).is_ok_and(|call| call.starts_with(&futex));
            wait_for("the wait for GC", || waits() || connected.is_finished());
            drop(open);
            collected.join().unwrap().unwrap();
            connected.join().unwrap().unwrap();
        });
        let calls = node.calls();
        let at = |call: &str| calls.iter().position(|c| c == call).unwrap();
        assert!(at("GC second") < at("ADD first"), "{calls:?}");
    });
}

#[test]
fn what_is_under_way_when_the_daemon_ends_is_released_by_the_next_one() {
    recorded(|node| {
        node.plugin(
            "second",
            "[ $CNI_COMMAND != ADD ] || { echo > $log/there; sleep 1000; }",
        );
        let (network, pod) = (node.network(), Pod::new(1));
        std::thread::scope(|s| {
            let connected = s.spawn(|| refused(&network, &pod));
            wait_for("the plugin", || node.path("log/there").exists());
            network.stop();
            assert_eq!(connected.join().unwrap(), "the daemon ends");
        });
        assert_eq!(refused(&network, &pod), "the daemon ends");
        assert_eq!(node.calls(), ["ADD first", "ADD second"]);
        let next = node.network();
        next.tear_down(&pod.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert_eq!(node.input("DEL.first").get("prevResult"), None);
        assert!(node.cached().is_empty());
    });
}

#[test]
fn half_of_an_earlier_connection_is_released_before_the_next_one() {
    recorded(|node| {
        let pod = Pod::new(1);
        up(&node.network(), &pod);
        node.calls();
        up(&node.network(), &pod);
        assert_eq!(
            node.calls(),
            ["DEL second", "DEL first", "ADD first", "ADD second"]
        );
        assert_eq!(node.cached().len(), 1);
    });
}

#[test]
fn what_a_plugin_leaves_behind_does_not_hold_up_its_pod() {
    recorded(|node| {
        let left = "exec 3<&0; sleep 1000 <&3 >/dev/null 2>&1 & echo $! >> $log/left";
        node.plugin(
            "first",
            &format!("[ $CNI_COMMAND != ADD ] || {{ {left}; }}"),
        );
        let (network, pod) = (node.network(), Pod::new(1));
        up(&network, &pod);
        let lock = fs::File::open(node.path("cache/locks").join(pod.id())).unwrap();
        let free = lock.try_lock().is_ok();
        drop(lock);
        for pid in fs::read_to_string(node.path("log/left")).unwrap().lines() {
            let open = fs::read_link(format!("/proc/{pid}/fd/3"));
            let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            let open = open.unwrap();
            assert!(open.ends_with(pod.id()), "{}", open.display());
        }
        assert!(free);
        network.tear_down(&pod.sandbox()).unwrap();
    });
}

/// The daemon of the next tests: it is killed while its plugin connects a pod.
#[test]
fn connect_as_a_daemon_that_is_killed() {
    let Ok(dirs) = std::env::var("KILLED_DAEMON") else {
        return;
    };
    let [conf, bin, cache, pid, record] = dirs.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{dirs}");
    };
    let network = CniNetwork::new(CniSettings {
        conf_dir: conf.into(),
        bin_dirs: vec![bin.into()],
        cache_dir: cache.into(),
    });
    let id = format!("{:064x}", 1);
    let _ = network.set_up(&SandboxNetwork {
        id: &id,
        name: "web",
        namespace: "default",
        uid: "u-1",
        holder: Process::of(pid.parse().unwrap()),
        record: Path::new(record),
        ports: &[],
        bandwidth: Bandwidth::default(),
    });
}

/// Kills a daemon whose plugin waits for the end of the file that is returned.
fn kill_while_connecting(node: &Node, pod: &Pod) -> fs::File {
    let gate = node.path("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let gate = gate.display();
    let wait = format!(
        "[ $CNI_COMMAND != ADD ] || {{ cat {gate}; echo \"end of $CNI_COMMAND\" >> $log/calls; }}"
    );
    node.plugin("first", &wait);
    let paths = ["conf", "bin", "cache"].map(|d| node.path(d));
    let paths = paths.iter().map(|p| p.as_path());
    let pid = pod.pid().to_string();
    let paths: Vec<_> = paths
        .chain([Path::new(&pid), pod.record()])
        .map(|p| p.to_str().unwrap())
        .collect();
    let daemon = again(module_path!(), "connect_as_a_daemon_that_is_killed")
        .env("KILLED_DAEMON", paths.join(" "))
        .spawn()
        .unwrap();
    let mut daemon = Killed(daemon);
    let open = hold(&node.path("gate"));
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    open
}

#[test]
fn a_plugin_of_a_killed_daemon_ends_before_its_pod_is_released() {
    recorded(|node| {
        let (network, pod) = (node.network(), Pod::new(1));
        let open = kill_while_connecting(node, &pod);
        let lock = fs::File::open(node.path("cache/locks").join(pod.id())).unwrap();
        assert!(matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)));
        std::thread::scope(|s| {
            let released = s.spawn(|| network.tear_down(&pod.sandbox()));
            drop(open);
            released.join().unwrap().unwrap();
        });
        let expected = ["ADD first", "end of ADD", "DEL second", "DEL first"];
        assert_eq!(node.calls(), expected);
        assert!(node.cached().is_empty());
    });
}

#[test]
fn a_plugin_of_a_killed_daemon_that_hangs_does_not_keep_its_pod_for_ever() {
    recorded(|node| {
        let pod = Pod::new(1);
        let open = kill_while_connecting(node, &pod);
        let limits = Limits {
            plugin: Duration::from_millis(300),
            ..Limits::default()
        };
        let network = node.network_within(limits);
        let error = refused(&network, &pod);
        assert!(
            error.starts_with("a plugin of this sandbox still runs, of an earlier call: "),
            "{error}"
        );
        network.tear_down(&pod.sandbox()).unwrap();
        assert_eq!(node.calls(), ["ADD first", "DEL second", "DEL first"]);
        drop(open);
    });
}

#[test]
fn a_lost_or_damaged_cache_is_made_up_for_by_the_configuration() {
    recorded(|node| {
        let network = node.network();
        let (lost, damaged, foreign) = (Pod::new(1), Pod::new(2), Pod::new(3));
        up(&network, &lost);
        fs::remove_dir_all(node.path("cache")).unwrap();
        node.calls();
        network.tear_down(&lost.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert_eq!(
            node.variable("DEL.first", "CNI_CONTAINERID").unwrap(),
            lost.id()
        );
        up(&network, &damaged);
        fs::write(&node.cached()[0], "{").unwrap();
        node.calls();
        network.tear_down(&damaged.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert!(node.cached().is_empty());
        // Another network's plugins know nothing of it.
        up(&network, &foreign);
        fs::remove_dir_all(node.path("cache")).unwrap();
        node.configure("1.conflist", &RECORDED.replace("'n'", "'m'"));
        node.calls();
        network.tear_down(&foreign.sandbox()).unwrap();
        assert!(node.calls().is_empty());
    });
}

#[test]
fn a_full_disk_refuses_new_pods_and_releases_old_ones() {
    recorded(|node| {
        use nix::mount::{MsFlags, mount};
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        fs::create_dir(node.path("cache")).unwrap();
        let small = Some("size=64k");
        mount(
            Some("tmpfs"),
            &node.path("cache"),
            Some("tmpfs"),
            MsFlags::empty(),
            small,
        )
        .unwrap();
        let (network, old, new) = (node.network(), Pod::new(1), Pod::new(2));
        up(&network, &old);
        node.calls();
        let filled = fs::write(node.path("cache/ballast"), vec![0; 1 << 20]);
        assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        let error = refused(&network, &new);
        assert!(error.contains("No space left on device"), "{error}");
        assert!(node.calls().is_empty());
        network.tear_down(&new.sandbox()).unwrap();
        network.tear_down(&old.sandbox()).unwrap();
        assert_eq!(node.calls(), ["DEL second", "DEL first"]);
        assert!(node.cached().is_empty());
        assert_eq!(fs::read_dir(node.path("cache/locks")).unwrap().count(), 0);
    });
}

#[test]
fn the_nodes_own_namespace_is_never_a_pods() {
    recorded(|node| {
        let (network, mut pod) = (node.network(), Pod::new(1));
        let in_node = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
        pod.kill_and_reuse(in_node.0.id());
        let error = refused(&network, &pod);
        let expected = format!(
            "cannot use the network namespace /proc/{}/ns/net: it is the node's",
            in_node.0.id()
        );
        assert_eq!(error, expected);
        pod.kill();
        let error = refused(&network, &pod);
        assert_eq!(
            error,
            "there is no network namespace: the sandbox has ended"
        );
        assert!(node.calls().is_empty() && node.cached().is_empty());
    });
}

#[test]
fn a_record_that_was_wiped_gets_its_mark_again() {
    recorded(|node| {
        let (network, pod) = (node.network(), Pod::new(1));
        network.restore(pod.id(), pod.record()).unwrap();
        assert_eq!(fs::read_dir(pod.record()).unwrap().count(), 0);
        up(&network, &pod);
        fs::remove_file(pod.record().join("cni")).unwrap();
        network.restore(pod.id(), pod.record()).unwrap();
        assert_eq!(fs::read_to_string(pod.record().join("cni")).unwrap(), "n");
        network.tear_down(&pod.sandbox()).unwrap();
    });
}
