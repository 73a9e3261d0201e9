//! The types into which the decoder reads Service, EndpointSlice and Endpoints objects from files. They have the
//! fields that podprobe reads, in the API's names and types. Functions set the API's defaults for these fields.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::api::pod::{IgnoredText, IntOrString, ObjectMeta};

/// Value of `clusterIP` that makes a service headless.
pub(crate) const NONE: &str = "None";

/// A v1 Service as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenService {
    // The decoder checks `apiVersion` and `kind` before it reads this type. The type has both fields, because the
    // decoder reports fields that no type has as unread.
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: WrittenServiceSpec,
    pub(crate) status: WrittenStatus,
}

/// `spec` of a Service as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenServiceSpec {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) ports: Vec<WrittenServicePort>,
    pub(crate) selector: BTreeMap<String, String>,
    #[serde(rename = "clusterIP")]
    pub(crate) cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    pub(crate) cluster_ips: Vec<String>,
    pub(crate) ip_families: Vec<String>,
    pub(crate) ip_family_policy: Option<String>,
    #[serde(rename = "externalIPs")]
    pub(crate) external_ips: Vec<String>,
    pub(crate) external_name: String,
    pub(crate) session_affinity: String,
    pub(crate) session_affinity_config: Option<WrittenAffinityConfig>,
    pub(crate) internal_traffic_policy: Option<String>,
    pub(crate) external_traffic_policy: String,
    pub(crate) publish_not_ready_addresses: bool,
    pub(crate) load_balancer_source_ranges: Vec<String>,
    pub(crate) health_check_node_port: i32,
    pub(crate) allocate_load_balancer_node_ports: Option<bool>,
    // The fields below are checked and have no effect.
    pub(crate) load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    pub(crate) load_balancer_ip: String,
    pub(crate) traffic_distribution: Option<String>,
}

/// `spec.ports[]` of a Service as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenServicePort {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
    pub(crate) target_port: IntOrString,
    pub(crate) node_port: i32,
    pub(crate) app_protocol: Option<String>,
}

/// `spec.sessionAffinityConfig`: the settings of a session affinity.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenAffinityConfig {
    #[serde(rename = "clientIP")]
    pub(crate) client_ip: Option<WrittenClientIp>,
}

/// `spec.sessionAffinityConfig.clientIP`: the time for which a client keeps its endpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenClientIp {
    pub(crate) timeout_seconds: Option<i32>,
}

/// `status` of a Service. In the status, a file can give the addresses of a load balancer outside of the node.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenStatus {
    pub(crate) load_balancer: WrittenLoadBalancer,
}

/// `status.loadBalancer` of a Service.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenLoadBalancer {
    pub(crate) ingress: Vec<WrittenIngress>,
}

/// `status.loadBalancer.ingress[]`: an address of the load balancer.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenIngress {
    pub(crate) ip: String,
    pub(crate) hostname: String,
    pub(crate) ip_mode: Option<String>,
}

/// Default time for which a client keeps its endpoint, in seconds: three hours.
const AFFINITY_SECONDS: i32 = 10_800;

impl WrittenService {
    /// Sets the defaults that the API sets when a service is created.
    pub(crate) fn set_defaults(&mut self) {
        let spec = &mut self.spec;
        default(&mut spec.session_affinity, NONE);
        default(&mut spec.type_, "ClusterIP");
        for port in &mut spec.ports {
            default(&mut port.protocol, "TCP");
            let unset = match &port.target_port {
                IntOrString::Int(number) => *number == 0,
                IntOrString::String(name) => name.is_empty(),
            };
            if unset {
                port.target_port = IntOrString::Int(port.port);
            }
        }
        match spec.session_affinity.as_str() {
            NONE => spec.session_affinity_config = None,
            "ClientIP" => spec.give_affinity_a_time(),
            _ => {}
        }
        if spec.is_reached_from_outside() {
            default(&mut spec.external_traffic_policy, "Cluster");
        }
        if spec.cluster_ips.is_empty() && !spec.cluster_ip.is_empty() {
            spec.cluster_ips = vec![spec.cluster_ip.clone()];
        }
    }
}

impl WrittenServiceSpec {
    fn give_affinity_a_time(&mut self) {
        let config = self.session_affinity_config.get_or_insert_default();
        let client_ip = config.client_ip.get_or_insert_default();
        client_ip.timeout_seconds.get_or_insert(AFFINITY_SECONDS);
    }

    /// True if clients outside of the node reach the service at an address or a port.
    pub(crate) fn is_reached_from_outside(&self) -> bool {
        match self.type_.as_str() {
            "NodePort" | "LoadBalancer" => true,
            "ClusterIP" => !self.external_ips.is_empty(),
            _ => false,
        }
    }

    /// True if the service gets a `healthCheckNodePort`. That port tells a load balancer whether this node has
    /// endpoints.
    pub(crate) fn needs_health_check(&self) -> bool {
        self.type_ == "LoadBalancer" && self.external_traffic_policy == "Local"
    }

    /// True if the service is headless and its endpoints come from slices. If such a service names no families, it has
    /// both.
    pub(crate) fn is_headless_without_selector(&self) -> bool {
        self.is_headless() && self.selector.is_empty()
    }

    pub(crate) fn is_headless(&self) -> bool {
        self.cluster_ips == [NONE]
    }
}

fn default(field: &mut String, value: &str) {
    if field.is_empty() {
        field.push_str(value);
    }
}

/// A discovery.k8s.io/v1 EndpointSlice as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenSlice {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    pub(crate) metadata: ObjectMeta,
    pub(crate) address_type: String,
    pub(crate) endpoints: Vec<WrittenEndpoint>,
    pub(crate) ports: Vec<WrittenEndpointPort>,
}

/// `endpoints[]` of a slice as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenEndpoint {
    pub(crate) addresses: Vec<String>,
    pub(crate) conditions: WrittenConditions,
    pub(crate) hostname: Option<String>,
    pub(crate) node_name: Option<String>,
    pub(crate) target_ref: Option<WrittenTarget>,
}

/// `endpoints[].conditions` as the file contains them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenConditions {
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
}

/// `targetRef` of an endpoint or an address: the pod that the endpoint or address belongs to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenTarget {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// `ports[]` of a slice or of a subset as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenEndpointPort {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) port: Option<i32>,
    pub(crate) app_protocol: Option<String>,
}

impl WrittenSlice {
    /// Sets the defaults that the API sets when a slice is created.
    pub(crate) fn set_defaults(&mut self) {
        let ports = self.ports.iter_mut();
        ports.for_each(|port| default(&mut port.protocol, "TCP"));
    }
}

/// A v1 Endpoints object as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenEndpoints {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredText,
    #[serde(rename = "kind")]
    _kind: IgnoredText,
    pub(crate) metadata: ObjectMeta,
    pub(crate) subsets: Vec<WrittenSubset>,
}

/// `subsets[]` of an Endpoints object. Each address of a subset has each port of the subset.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenSubset {
    pub(crate) addresses: Vec<WrittenAddress>,
    pub(crate) not_ready_addresses: Vec<WrittenAddress>,
    pub(crate) ports: Vec<WrittenEndpointPort>,
}

/// `subsets[].addresses[]` as the file contains it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenAddress {
    pub(crate) ip: String,
    pub(crate) hostname: String,
    pub(crate) node_name: Option<String>,
    pub(crate) target_ref: Option<WrittenTarget>,
}

impl WrittenEndpoints {
    /// Sets the defaults that the API sets when an Endpoints object is created.
    pub(crate) fn set_defaults(&mut self) {
        let ports = self.subsets.iter_mut().flat_map(|s| &mut s.ports);
        ports.for_each(|port| default(&mut port.protocol, "TCP"));
    }
}
