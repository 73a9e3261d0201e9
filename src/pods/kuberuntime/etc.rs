//! The host names and the resolver of a pod, and the files of /etc that show them to containers.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::api::Pod;
use crate::engine::runtime::RuntimeError;
use crate::net::network::etc_files::{Content, EtcFiles, Hosts};
use crate::net::network::resolv_conf::ResolvConf;
use crate::pods::container_config::{self, ClusterDns, DnsWarning, HostNames};

/// The node's configuration of host names and resolvers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDns {
    /// The configured name servers and domain of the cluster.
    pub cluster: ClusterDns,
    /// The addresses at which podprobe itself answers DNS queries.
    pub own_dns: Vec<IpAddr>,
    /// The node's resolv.conf file from which the files of pods are made. `None` means that the node itself is the
    /// name server.
    pub resolv_conf: Option<PathBuf>,
    /// The node's address.
    pub node_ip: IpAddr,
}

/// The defaults for a node without configured host names and resolvers.
impl Default for NodeDns {
    fn default() -> Self {
        Self {
            cluster: ClusterDns {
                servers: Vec::new(),
                domain: "cluster.local".into(),
            },
            own_dns: Vec::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            node_ip: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

impl NodeDns {
    /// Returns the cluster's name servers and domain for a pod. Of podprobe's own addresses the pod gets only the
    /// addresses of the pod's address families. A pod that has only loopback gets none of podprobe's addresses, because
    /// it could not reach them.
    fn cluster_of(&self, pod: &Pod, addresses: &[IpAddr]) -> ClusterDns {
        let reaches = |server: &IpAddr| {
            let mut own = addresses.iter().filter(|ip| !ip.is_loopback());
            pod.spec.host_network || own.any(|ip| ip.is_ipv4() == server.is_ipv4())
        };
        let own = self.own_dns.iter().filter(|server| reaches(server));
        let configured = self.cluster.servers.iter();
        ClusterDns {
            servers: configured.chain(own).copied().collect(),
            domain: self.cluster.domain.clone(),
        }
    }

    /// Returns the host names of a pod.
    pub(super) fn host_names(&self, pod: &Pod) -> Result<HostNames, RuntimeError> {
        let node = nix::unistd::gethostname().unwrap_or_default();
        container_config::host_names(pod, &self.cluster.domain, &node.to_string_lossy())
            .map_err(|e| RuntimeError::failed(e.to_string()))
    }

    /// Writes the files of /etc for a pod. Returns the warnings about its resolver.
    pub(super) fn write(
        &self,
        pod: &Pod,
        addresses: &[IpAddr],
        files: &EtcFiles,
    ) -> Result<Vec<DnsWarning>, RuntimeError> {
        let names = self.host_names(pod)?;
        let node = self
            .resolver()
            .map_err(|e| RuntimeError::failed(e.to_string()))?;
        let cluster = self.cluster_of(pod, addresses);
        let (resolv_conf, warnings) = container_config::resolver(pod, &cluster, node);
        let aliases = pod.spec.host_aliases.iter();
        let content = Content {
            hosts: Hosts {
                addresses: addresses.to_vec(),
                name: &names.short,
                domain: &names.domain,
                aliases: aliases.map(|a| (a.ip.as_str(), &a.hostnames[..])).collect(),
                host_network: pod.spec.host_network,
            },
            hostname: &names.kernel,
            resolv_conf,
        };
        let written = files.write(&content);
        written
            .map_err(|e| RuntimeError::failed(format!("cannot write the files of /etc: {e}")))?;
        Ok(warnings)
    }

    /// Returns the node's resolver settings. If no file is configured, the settings point to the node itself, as in the
    /// kubelet.
    fn resolver(&self) -> io::Result<ResolvConf> {
        match &self.resolv_conf {
            Some(file) => read(file),
            None => {
                let own: IpAddr = match self.node_ip {
                    IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                };
                Ok(ResolvConf {
                    nameservers: vec![own.to_string()],
                    searches: vec![".".into()],
                    options: vec![],
                })
            }
        }
    }
}

/// Reads a resolv.conf file. A missing file counts as empty, because a node without a network may have no such file.
/// deviations: no-resolv-conf
fn read(file: &Path) -> io::Result<ResolvConf> {
    match fs::read(file) {
        Ok(text) => Ok(ResolvConf::parse(&String::from_utf8_lossy(&text))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(ResolvConf::default()),
        Err(e) => Err(io::Error::new(
            e.kind(),
            format!("cannot read resolvConf {}: {e}", file.display()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    fn resolver(file: Option<&Path>, node_ip: &str) -> Result<String, String> {
        let dns = NodeDns {
            resolv_conf: file.map(Path::to_owned),
            node_ip: node_ip.parse().unwrap(),
            ..NodeDns::default()
        };
        dns.resolver().map(|r| r.text()).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn check_servers(dns: &NodeDns, host_network: bool, addresses: &[&str], expected: &[&str]) {
        let spec =
            json!({"hostNetwork": host_network, "containers": [{"name": "c", "image": "i"}]});
        let pod = test_pods::pod("p").spec(spec).build();
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let cluster = dns.cluster_of(&pod, &addresses);
        let servers: Vec<String> = cluster.servers.iter().map(IpAddr::to_string).collect();
        assert_eq!(servers, expected);
    }

    #[test]
    fn a_pod_gets_the_address_on_which_podprobe_answers_if_it_can_reach_it() {
        let (v4, v6) = ("10.96.0.10", "fd00:96::a");
        let mut dns = NodeDns {
            own_dns: [v4, v6].map(|ip| ip.parse().unwrap()).into(),
            ..NodeDns::default()
        };
        check_servers(&dns, false, &["10.244.0.2"], &[v4]);
        check_servers(&dns, false, &["10.244.0.2", "fd00::2"], &[v4, v6]);
        check_servers(&dns, false, &["127.0.0.1"], &[]);
        check_servers(&dns, true, &["127.0.0.1"], &[v4, v6]);
        dns.own_dns.clear();
        check_servers(&dns, false, &["10.244.0.2"], &[]);
        dns.cluster.servers = vec!["192.0.2.53".parse().unwrap()];
        check_servers(&dns, false, &["10.244.0.2"], &["192.0.2.53"]);
        check_servers(&dns, false, &["127.0.0.1"], &["192.0.2.53"]);
    }

    #[test]
    fn no_file_is_the_node_s_own_resolver() {
        let of = |ip| resolver(None, ip);
        assert_eq!(
            of("192.0.2.1"),
            Ok("search .\nnameserver 127.0.0.1\n".into())
        );
        assert_eq!(of("fd00::1"), Ok("search .\nnameserver ::1\n".into()));
    }

    /// A configured file that is missing counts as empty. An unreadable file is an error (deviations: no-resolv-conf).
    #[test]
    fn a_missing_file_is_an_empty_resolver_and_an_unreadable_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("resolv.conf");
        assert_eq!(resolver(Some(&missing), "192.0.2.1"), Ok(String::new()));
        let error = resolver(Some(dir.path()), "192.0.2.1").unwrap_err();
        assert!(error.starts_with("cannot read resolvConf /"), "{error}");
    }
}
