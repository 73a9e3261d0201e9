//! Names in the table. Those of services hold a `/`, the others none.

use std::net::SocketAddr;

use crate::net::services::table::ServicePortName;

// Chains of all services.
pub(super) const SERVICES: &str = "services";
pub(super) const ENDPOINTS_CHECK: &str = "endpoints-check";
pub(super) const NODEPORTS_CHECK: &str = "nodeports-check";
pub(super) const FIREWALL_CHECK: &str = "firewall-check";
pub(super) const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
pub(super) const REJECT: &str = "reject";

// Maps to chains.
pub(super) const SERVICE_IPS: &str = "service-ips";
pub(super) const SERVICE_NODEPORTS: &str = "service-nodeports";
pub(super) const NO_ENDPOINT_SERVICES: &str = "no-endpoint-services";
pub(super) const NO_ENDPOINT_NODEPORTS: &str = "no-endpoint-nodeports";
pub(super) const FIREWALL_IPS: &str = "firewall-ips";
/// All of them.
pub(super) const MAPS: [&str; 5] = [
    SERVICE_IPS,
    SERVICE_NODEPORTS,
    NO_ENDPOINT_SERVICES,
    NO_ENDPOINT_NODEPORTS,
    FIREWALL_IPS,
];

// Sets.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";
pub(super) const HAIRPINS: &str = "hairpins";
pub(super) const POD_CIDRS: &str = "pod-cidrs";
pub(super) const SERVICE_CIDRS: &str = "service-cidrs";
/// All of them.
pub(super) const SETS: [&str; 4] = [CLUSTER_IPS, HAIRPINS, POD_CIDRS, SERVICE_CIDRS];

/// The names of a service port's chains. Namespace, service and port have at most 63 characters each, and the kernel takes
/// 255.
pub(super) struct Names {
    /// Picks an endpoint for clients of a clusterIP.
    pub(super) service: String,
    /// Picks one for clients on the node and in pods, on other addresses, where these get others.
    pub(super) inside: String,
    /// Tells clients from outside from these.
    pub(super) external: String,
    /// Drops clients that may not use the load balancer's addresses.
    pub(super) firewall: String,
    text: String,
}

/// The names that an endpoint has in a service whose clients keep their endpoints.
pub(super) struct EndpointNames {
    /// Leads to it.
    pub(super) chain: String,
    /// Its clients.
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
        // A name may have no colon.
        let ip = endpoint.ip().to_string().replace(':', ".");
        let text = format!("{}__{ip}/{}", self.text, endpoint.port());
        EndpointNames {
            chain: format!("endpoint-{text}"),
            affinity: format!("affinity-{text}"),
        }
    }
}

/// Whether a chain or map is a service's.
pub(super) fn is_of_service(name: &str) -> bool {
    name.contains('/')
}
