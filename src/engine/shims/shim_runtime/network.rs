//! Connects sandboxes to their networks, and disconnects them.

use std::fs;
use std::io;

use super::listing::KnownSandbox;
use super::{ShimRuntime, lock};
use crate::base::clock::Moment;
use crate::engine::runtime::ContainerId;
use crate::engine::shims::state::{self, NETWORK, NetworkRecord, PodIdentity};
use crate::net::network::SandboxNetwork;

impl ShimRuntime {
    /// Sets up the network of a sandbox. The addresses are recorded last, and until then the sandbox is not ready.
    pub(super) fn set_up_network(&self, id: &ContainerId) -> io::Result<()> {
        let gone = || io::Error::other("its sandbox has ended");
        let sandbox = self.find_sandbox(id).ok_or_else(gone)?;
        let kind = sandbox.record.network();
        if self.networks.fixed(kind).is_some() {
            return Ok(());
        }
        let dir = self.layout.sandboxes().join(id.as_str());
        let began = Moment::now();
        let addresses = self.with_network(&sandbox, |n| self.networks.of(kind).set_up(n))?;
        let took = Moment::now().since(began).as_millis();
        log::debug!("the network of sandbox {id} is set up after {took} ms: {addresses:?}");
        state::write(&dir, NETWORK, &NetworkRecord { addresses }, false)?;
        self.read_network_again(id.as_str());
        Ok(())
    }

    /// Forgets the network record in memory, so that the next look at the sandbox reads it again.
    fn read_network_again(&self, id: &str) {
        if let Some(known) = lock(&self.cache).sandboxes.get_mut(id) {
            known.network = None;
        }
    }

    /// Takes over the networks of the sandboxes that an earlier daemon has left. Must be called before a new sandbox is
    /// connected.
    pub fn resume_networks(&self) {
        if let Err(e) = self.refresh(None) {
            log::warn!("cannot list sandboxes: {e}");
        }
        let all: Vec<KnownSandbox> = lock(&self.cache).sandboxes.values().cloned().collect();
        for sandbox in all {
            let PodIdentity {
                name, namespace, ..
            } = &sandbox.record.pod;
            if let Err(e) = self.resume_network(&sandbox) {
                log::error!(
                    "the record of the network of pod {name}_{namespace} is lost or damaged: {e}; the pod gets a new sandbox"
                );
            }
        }
    }

    /// Takes over the network of a sandbox. If the network is lost, the sandbox is not ready, and its pod gets a new
    /// sandbox.
    fn resume_network(&self, sandbox: &KnownSandbox) -> io::Result<()> {
        let kind = sandbox.record.network();
        if self.networks.fixed(kind).is_some() || self.holder(sandbox).is_none() {
            return Ok(());
        }
        let dir = self.layout.sandboxes().join(&sandbox.record.id);
        let known = sandbox.network.as_ref().map(|n| &n.addresses[..]);
        let resume = |n: &SandboxNetwork<'_>| self.networks.of(kind).resume(n, known);
        let (found, failed) = match self.with_network(sandbox, resume) {
            Ok(found) => (found, Ok(())),
            Err(e) => (None, Err(e)),
        };
        let written = match (known, found) {
            (None, Some(addresses)) => {
                state::write(&dir, NETWORK, &NetworkRecord { addresses }, false)
            }
            (Some(_), None) => fs::remove_file(dir.join(NETWORK)),
            _ => return failed,
        };
        self.read_network_again(&sandbox.record.id);
        failed.and(written)
    }

    pub(super) fn tear_down_network(&self, sandbox: &KnownSandbox) -> io::Result<()> {
        let network = self.networks.of(sandbox.record.network());
        self.with_network(sandbox, |n| network.tear_down(n))
    }

    fn with_network<T>(
        &self,
        sandbox: &KnownSandbox,
        f: impl FnOnce(&SandboxNetwork<'_>) -> T,
    ) -> T {
        let record = &sandbox.record;
        f(&SandboxNetwork {
            id: &record.id,
            name: &record.pod.name,
            namespace: &record.pod.namespace,
            uid: &record.pod.uid,
            holder: self.holder(sandbox),
            record: &self.layout.sandboxes().join(&record.id),
            ports: &record.ports,
            bandwidth: record.bandwidth,
        })
    }
}
