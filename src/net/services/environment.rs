//! Environment variables with which a container finds services: `enableServiceLinks` (services 4).
//!
//! Invariants: the functions have no state and no side effects. Equal services in any order give equal variables. Each name
//! occurs once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::inputs::NamedService;
use crate::api::objects::ObjectKey;
use crate::api::service::{Service, ServicePort, ServiceType};

/// Namespace and name of the API server's service. If this service exists, every pod gets the variables of the service.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Returns the variables for a pod of `namespace`, in the order of the services' names. `links` is the pod's
/// `enableServiceLinks`. The caller must prefer variables that the container sets itself.
pub fn service_environment(
    services: &[NamedService<'_>],
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let mut chosen: BTreeMap<&str, &NamedService<'_>> = BTreeMap::new();
    for service in services {
        let is_master = (service.namespace, service.name) == MASTER;
        let is_own = links && service.namespace == namespace;
        let is_nearer = is_own || !chosen.contains_key(service.name);
        if (is_master || is_own) && is_nearer && has_address(service) {
            chosen.insert(service.name, service);
        }
    }
    let mut variables = Variables::default();
    chosen.values().for_each(|s| variables.add_service(s));
    variables.0
}

/// Returns the variables for a pod of `namespace` by services whose addresses an API server has given.
pub fn given_environment(
    services: &[(ObjectKey, Arc<Service>)],
    namespace: &str,
    links: bool,
) -> Vec<(String, String)> {
    let named = services.iter().map(|(key, service)| NamedService {
        namespace: &key.namespace,
        name: &key.name,
        service,
        created: None,
        cluster_ips: service.cluster_ips.given(),
        node_ports: &[],
        health_check_node_port: None,
    });
    service_environment(&named.collect::<Vec<_>>(), namespace, links)
}

/// Tells whether there are variables for the service. Headless services, external names and services without ports have
/// no variables.
fn has_address(service: &NamedService<'_>) -> bool {
    let Service { type_, ports, .. } = service.service;
    *type_ != ServiceType::ExternalName && !service.cluster_ips.is_empty() && !ports.is_empty()
}

#[derive(Default)]
struct Variables(Vec<(String, String)>);

impl Variables {
    /// Sets a variable. If the name exists already, the last value counts, as in a container's environment.
    fn add(&mut self, name: String, value: impl ToString) {
        let value = value.to_string();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    fn add_service(&mut self, service: &NamedService<'_>) {
        let (Some(address), Some(first)) =
            (service.cluster_ips.first(), service.service.ports.first())
        else {
            return;
        };
        let name = variable_name(service.name);
        self.add(format!("{name}_SERVICE_HOST"), address);
        self.add(format!("{name}_SERVICE_PORT"), first.port);
        for port in &service.service.ports {
            if !port.name.is_empty() {
                let of_port = variable_name(&port.name);
                self.add(format!("{name}_SERVICE_PORT_{of_port}"), port.port);
            }
        }
        self.add(format!("{name}_PORT"), url(*address, first));
        for port in &service.service.ports {
            self.add_link(&name, *address, port);
        }
    }

    /// Adds the variables of one port in Docker's form for linked containers.
    fn add_link(&mut self, service: &str, address: IpAddr, port: &ServicePort) {
        let prefix = format!("{service}_PORT_{}_{}", port.port, port.protocol);
        let protocol = port.protocol.to_string().to_lowercase();
        self.add(prefix.clone(), url(address, port));
        self.add(format!("{prefix}_PROTO"), protocol);
        self.add(format!("{prefix}_PORT"), port.port);
        self.add(format!("{prefix}_ADDR"), address);
    }
}

fn url(address: IpAddr, port: &ServicePort) -> String {
    let protocol = port.protocol.to_string().to_lowercase();
    format!("{protocol}://{}", SocketAddr::from((address, port.port)))
}

/// Converts a name to upper case, with `_` in place of `-`.
fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::service::ClusterIps;
    use crate::api::service::{Protocol, TargetPort};

    fn service(ports: &[(&str, u16, Protocol)]) -> Service {
        let port = |(name, port, protocol): &(&str, u16, Protocol)| ServicePort {
            name: name.to_string(),
            protocol: *protocol,
            port: *port,
            target_port: TargetPort::Number(*port),
            node_port: None,
            app_protocol: None,
        };
        Service {
            ports: ports.iter().map(port).collect(),
            ..Service::default()
        }
    }

    fn named<'a>(
        namespace: &'a str,
        name: &'a str,
        service: &'a Service,
        cluster_ips: &'a [IpAddr],
    ) -> NamedService<'a> {
        NamedService {
            namespace,
            name,
            service,
            created: None,
            cluster_ips,
            node_ports: &[],
            health_check_node_port: None,
        }
    }

    fn ip(text: &str) -> [IpAddr; 1] {
        [text.parse().expect("an address")]
    }

    const TCP: Protocol = Protocol::Tcp;

    #[track_caller]
    fn check(services: &[NamedService<'_>], namespace: &str, links: bool, expected: &[&str]) {
        let got = service_environment(services, namespace, links);
        let got: Vec<String> = got.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(got, expected);
    }

    /// The expected variables are those of the kubelet's own table.
    #[test]
    fn a_service_has_the_variables_of_the_kubelet() {
        let (foo, abc) = (
            service(&[("", 8080, TCP)]),
            service(&[("u-d-p", 8081, Protocol::Udp), ("t-c-p", 8081, TCP)]),
        );
        let (quux, v6) = (
            service(&[("", 8082, TCP), ("8083", 8083, TCP)]),
            service(&[("u-d-p", 8084, Protocol::Udp), ("t-c-p", 8084, TCP)]),
        );
        let headless = Service {
            cluster_ips: ClusterIps::Headless,
            ..foo.clone()
        };
        let (a, b, c, d) = (
            ip("1.2.3.4"),
            ip("5.6.7.8"),
            ip("9.8.7.6"),
            ip("2001:db8::"),
        );
        let services = [
            named("n", "foo-bar", &foo, &a),
            named("n", "abc-123", &abc, &b),
            named("n", "q-u-u-x", &quux, &c),
            named("n", "svrc-clusterip-none", &headless, &[]),
            named("n", "svrc-clusterip-empty", &foo, &[]),
            named("n", "super-ipv6", &v6, &d),
        ];
        let expected = [
            "ABC_123_SERVICE_HOST=5.6.7.8",
            "ABC_123_SERVICE_PORT=8081",
            "ABC_123_SERVICE_PORT_U_D_P=8081",
            "ABC_123_SERVICE_PORT_T_C_P=8081",
            "ABC_123_PORT=udp://5.6.7.8:8081",
            "ABC_123_PORT_8081_UDP=udp://5.6.7.8:8081",
            "ABC_123_PORT_8081_UDP_PROTO=udp",
            "ABC_123_PORT_8081_UDP_PORT=8081",
            "ABC_123_PORT_8081_UDP_ADDR=5.6.7.8",
            "ABC_123_PORT_8081_TCP=tcp://5.6.7.8:8081",
            "ABC_123_PORT_8081_TCP_PROTO=tcp",
            "ABC_123_PORT_8081_TCP_PORT=8081",
            "ABC_123_PORT_8081_TCP_ADDR=5.6.7.8",
            "FOO_BAR_SERVICE_HOST=1.2.3.4",
            "FOO_BAR_SERVICE_PORT=8080",
            "FOO_BAR_PORT=tcp://1.2.3.4:8080",
            "FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080",
            "FOO_BAR_PORT_8080_TCP_PROTO=tcp",
            "FOO_BAR_PORT_8080_TCP_PORT=8080",
            "FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4",
            "Q_U_U_X_SERVICE_HOST=9.8.7.6",
            "Q_U_U_X_SERVICE_PORT=8082",
            "Q_U_U_X_SERVICE_PORT_8083=8083",
            "Q_U_U_X_PORT=tcp://9.8.7.6:8082",
            "Q_U_U_X_PORT_8082_TCP=tcp://9.8.7.6:8082",
            "Q_U_U_X_PORT_8082_TCP_PROTO=tcp",
            "Q_U_U_X_PORT_8082_TCP_PORT=8082",
            "Q_U_U_X_PORT_8082_TCP_ADDR=9.8.7.6",
            "Q_U_U_X_PORT_8083_TCP=tcp://9.8.7.6:8083",
            "Q_U_U_X_PORT_8083_TCP_PROTO=tcp",
            "Q_U_U_X_PORT_8083_TCP_PORT=8083",
            "Q_U_U_X_PORT_8083_TCP_ADDR=9.8.7.6",
            "SUPER_IPV6_SERVICE_HOST=2001:db8::",
            "SUPER_IPV6_SERVICE_PORT=8084",
            "SUPER_IPV6_SERVICE_PORT_U_D_P=8084",
            "SUPER_IPV6_SERVICE_PORT_T_C_P=8084",
            "SUPER_IPV6_PORT=udp://[2001:db8::]:8084",
            "SUPER_IPV6_PORT_8084_UDP=udp://[2001:db8::]:8084",
            "SUPER_IPV6_PORT_8084_UDP_PROTO=udp",
            "SUPER_IPV6_PORT_8084_UDP_PORT=8084",
            "SUPER_IPV6_PORT_8084_UDP_ADDR=2001:db8::",
            "SUPER_IPV6_PORT_8084_TCP=tcp://[2001:db8::]:8084",
            "SUPER_IPV6_PORT_8084_TCP_PROTO=tcp",
            "SUPER_IPV6_PORT_8084_TCP_PORT=8084",
            "SUPER_IPV6_PORT_8084_TCP_ADDR=2001:db8::",
        ];
        check(&services, "n", true, &expected);
        let mut reversed = services;
        reversed.reverse();
        check(&reversed, "n", true, &expected);
    }

    fn hosts(services: &[NamedService<'_>], namespace: &str, links: bool) -> Vec<String> {
        let all = service_environment(services, namespace, links);
        let hosts = all
            .into_iter()
            .filter(|(n, _)| n.ends_with("_SERVICE_HOST"));
        hosts.map(|(n, v)| format!("{n}={v}")).collect()
    }

    #[test]
    fn a_pod_has_its_own_namespace_and_the_api_server() {
        let one = service(&[("", 80, TCP)]);
        let (a, b, c, d) = (
            ip("10.0.0.1"),
            ip("10.0.0.2"),
            ip("10.0.0.3"),
            ip("10.0.0.4"),
        );
        let services = [
            named("n", "kubernetes", &one, &a),
            named("default", "kubernetes", &one, &b),
            named("default", "web", &one, &c),
            named("n", "web", &one, &d),
            named("other", "kubernetes", &one, &d),
        ];
        let (own, master) = (
            "KUBERNETES_SERVICE_HOST=10.0.0.1",
            "KUBERNETES_SERVICE_HOST=10.0.0.2",
        );
        assert_eq!(
            hosts(&services, "n", true),
            [own, "WEB_SERVICE_HOST=10.0.0.4"]
        );
        assert_eq!(hosts(&services, "n", false), [master]);
        assert_eq!(hosts(&services, "third", true), [master]);
        assert_eq!(
            hosts(&services, "default", true),
            [master, "WEB_SERVICE_HOST=10.0.0.3"]
        );
        assert_eq!(hosts(&services, "default", false), [master]);
        assert_eq!(
            hosts(&services[..1], "third", true),
            [""; 0],
            "none is made up"
        );
        let mut reversed = services;
        reversed.reverse();
        assert_eq!(
            hosts(&reversed, "n", true),
            [own, "WEB_SERVICE_HOST=10.0.0.4"]
        );
    }

    #[test]
    fn external_names_have_no_variables() {
        let external = Service {
            type_: ServiceType::ExternalName,
            ..service(&[("", 80, TCP)])
        };
        let a = ip("10.0.0.1");
        check(&[named("n", "a", &external, &a)], "n", true, &[]);
    }

    #[test]
    fn a_variable_that_two_services_have_is_there_once() {
        let one = service(&[("", 80, TCP)]);
        let (a, b) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let services = [
            named("n", "web-service", &one, &b),
            named("n", "web", &one, &a),
        ];
        let all = service_environment(&services, "n", true);
        let of_both: Vec<_> = all
            .iter()
            .filter(|(n, _)| n == "WEB_SERVICE_PORT")
            .collect();
        let link = (
            "WEB_SERVICE_PORT".to_owned(),
            "tcp://10.0.0.2:80".to_owned(),
        );
        assert_eq!(of_both, [&link], "the service that is last by name has it");
    }

    #[test]
    fn names_become_variables() {
        for (name, variable) in [("web", "WEB"), ("a-b", "A_B"), ("8083", "8083")] {
            assert_eq!(variable_name(name), variable);
        }
    }
}
