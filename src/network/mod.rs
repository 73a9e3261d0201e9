//! The network of a pod: its addresses, and the files in its containers that hold them.
//!
//! Invariants: a kind of network is one implementor of [`PodNetwork`]; nothing outside this module asks which kind it is.

pub mod etc_files;
pub mod resolv_conf;

use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// The sandbox whose network it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkOwner<'a> {
    /// Name of the pod.
    pub name: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// UID of the pod.
    pub uid: &'a str,
    /// Number of sandboxes of the pod before this one.
    pub attempt: u32,
}

/// A way to connect pods. The runtime calls it from several threads; a call blocks until it is done.
pub trait PodNetwork: Send + Sync {
    /// Connects a sandbox whose network namespace has just been made.
    ///
    /// # Errors
    /// The sandbox is removed again; the text is shown to the user.
    fn set_up(&self, owner: NetworkOwner<'_>) -> io::Result<()>;

    /// Undoes what `set_up` did outside of the sandbox's namespace. Idempotent; also called for a
    /// sandbox that is gone.
    ///
    /// # Errors
    /// The caller tries again with the next removal.
    fn tear_down(&self, owner: NetworkOwner<'_>) -> io::Result<()>;

    /// The addresses of a sandbox, primary first. Must be cheap, because every listing calls it.
    fn addresses(&self, owner: NetworkOwner<'_>) -> Vec<IpAddr>;
}

/// The node's own network (`hostNetwork: true`).
struct Host {
    node_ip: IpAddr,
}

impl PodNetwork for Host {
    fn set_up(&self, _: NetworkOwner<'_>) -> io::Result<()> {
        Ok(())
    }
    fn tear_down(&self, _: NetworkOwner<'_>) -> io::Result<()> {
        Ok(())
    }
    fn addresses(&self, _: NetworkOwner<'_>) -> Vec<IpAddr> {
        vec![self.node_ip]
    }
}

/// A namespace with only a loopback interface, which the sandbox sets up itself. Only the pod's own
/// containers and its probes can reach it, because they are in the namespace.
struct Loopback;

impl PodNetwork for Loopback {
    fn set_up(&self, _: NetworkOwner<'_>) -> io::Result<()> {
        Ok(())
    }
    fn tear_down(&self, _: NetworkOwner<'_>) -> io::Result<()> {
        Ok(())
    }
    fn addresses(&self, _: NetworkOwner<'_>) -> Vec<IpAddr> {
        vec![Ipv4Addr::LOCALHOST.into()]
    }
}

/// The networks of this node.
pub struct Networks {
    host: Host,
    pods: Box<dyn PodNetwork>,
}

impl Networks {
    /// `node_ip` is the address of pods that use the node's network; other pods have loopback.
    pub fn new(node_ip: IpAddr) -> Self {
        Self {
            host: Host { node_ip },
            pods: Box::new(Loopback),
        }
    }

    /// The network of pods that use the node's network (`host`), or of other pods.
    pub fn of(&self, host: bool) -> &dyn PodNetwork {
        if host { &self.host } else { &*self.pods }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_nodes_address_or_loopback() {
        let networks = Networks::new("192.0.2.1".parse().unwrap());
        let owner = NetworkOwner {
            name: "web",
            namespace: "default",
            uid: "u1",
            attempt: 0,
        };
        let addresses = |host| networks.of(host).addresses(owner);
        assert_eq!(addresses(true), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses(false), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
    }
}
