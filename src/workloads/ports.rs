//! Ports of the node that pods hold.

use std::collections::BTreeSet;

use serde_json::Value;

/// A port of the node with its protocol.
pub type NodePort = (i64, String);

/// Returns the ports of the node that a pod of this spec holds. In the node's network each container port is one.
pub fn node_ports(spec: &Value) -> BTreeSet<NodePort> {
    let is_on_node = spec["hostNetwork"] == true;
    let lists = ["containers", "initContainers"];
    let containers = lists.iter().filter_map(|list| spec[list].as_array());
    let ports = containers.flatten().filter_map(|it| it["ports"].as_array());
    let held = ports.flatten().filter_map(|port| {
        let host = port["hostPort"].as_i64().filter(|port| *port > 0);
        let own = port["containerPort"].as_i64().filter(|_| is_on_node);
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        Some((host.or(own)?, protocol.to_owned()))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: &[(i64, &str)]) {
        let held = node_ports(&spec);
        let held: Vec<_> = held
            .iter()
            .map(|(port, protocol)| (*port, &**protocol))
            .collect();
        assert_eq!(held, expected);
    }

    #[test]
    fn a_pod_holds_its_host_ports_and_in_the_nodes_network_all() {
        let ports = json!([{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]);
        let spec = json!({"containers": [{"ports": ports}]});
        check(spec.clone(), &[(8080, "TCP")]);
        let mut on_node = spec;
        on_node["hostNetwork"] = true.into();
        check(on_node, &[(53, "UDP"), (8080, "TCP")]);
        check(json!({"containers": [{}]}), &[]);
    }
}
