//! The names of chains, maps and sets in the table. The names that belong to a service contain a `/`. All other
//! names have no `/`.

use std::net::SocketAddr;

use crate::net::services::table::ServicePortName;

// Chains that are shared by all services.
pub(super) const SERVICES: &str = "services";
pub(super) const ENDPOINTS_CHECK: &str = "endpoints-check";
pub(super) const NODEPORTS_CHECK: &str = "nodeports-check";
pub(super) const FIREWALL_CHECK: &str = "firewall-check";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const REJECT: &str = "reject";

// Maps that lead to chains.
pub(super) const SERVICE_IPS: &str = "service-ips";
pub(super) const SERVICE_NODEPORTS: &str = "service-nodeports";
pub(super) const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
pub(super) const NO_ENDPOINT_NODEPORTS: &str = "no-endpoint-nodeports";
pub(super) const FIREWALL_IPS: &str = "firewall-ips";
/// The names of all maps in the table.
pub(super) const MAPS: [&str; 5] = [
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    NO_ENDPOINT_NODEPORTS,
    FIREWALL_IPS,
];

// Sets of addresses and ranges.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";
pub(super) const HAIRPINS: &str = "hairpins";
pub(super) const POD_CIDRS: &str = "pod-cidrs";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";
/// The names of all sets in the table.
pub(super) const SETS: [&str; 4] = [CLUSTER_IPS, HAIRPINS, POD_CIDRS, SERVICE_CIDRS];

/// The names of a service port's chains. A name is made from namespace, service and port, which have at most 63
/// characters each. The kernel accepts names of up to 255 characters.
pub(super) struct Names {
    /// The chain that picks an endpoint for clients of a clusterIP.
    pub(super) service: String,
    /// The chain that picks an endpoint on the service's other addresses, for clients on the node and in pods.
    /// This chain exists only if these clients get other endpoints on these addresses than on the clusterIP.
    pub(super) inside: String,
    /// The chain for external addresses and the node port. This chain treats clients outside of the node
    /// differently from clients inside.
    pub(super) external: String,
    /// The chain that drops clients that may not use the load balancer's addresses.
    pub(super) firewall: String,
    text: String,
}

/// The names of an endpoint's chain and set, in a service with session affinity.
pub(super) struct EndpointNames {
    /// The chain that sends clients to the endpoint.
    pub(super) chain: String,
    /// The set of the clients that keep this endpoint.
    pub(super) affinity: String,
}

impl Names {
    pub(super) fn of(name: &ServicePortName) -> Self {
        let mut text = format!("{}/{}/{}", name.namespace, name.service, name.protocol);
        text.make_ascii_lowercase();
        if !name.port.is_empty() {
            text.push('/');
            text.push_str(&name.port);
        }
        Self {
            service: format!("service-{text}"),
            inside: format!("inside-{text}"),
            external: format!("external-{text}"),
            firewall: format!("firewall-{text}"),
            text,
        }
    }

    pub(super) fn endpoint(&self, endpoint: SocketAddr) -> EndpointNames {
        // A name must not contain a colon.
        let ip = endpoint.ip().to_string().replace(':', ".");
        let text = format!("{}__{ip}/{}", self.text, endpoint.port());
        EndpointNames {
            chain: format!("endpoint-{text}"),
            affinity: format!("affinity-{text}"),
        }
    }
}

/// Tells whether a chain or set with this name belongs to a service.
pub(super) fn is_of_service(name: &str) -> bool {
    name.contains('/')
}
