//! Connects sandboxes to their networks, and disconnects them.

use std::io;

use super::listing::KnownSandbox;
use super::{ShimRuntime, lock};
use crate::clock::Moment;
use crate::network::SandboxNetwork;
use crate::runtime::ContainerId;
use crate::runtime::shims::state::{self, NETWORK, NetworkRecord};

impl ShimRuntime {
    /// Its addresses are written down only when all is done: until then the sandbox is not ready.
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
        lock(&self.cache).sandboxes.remove(id.as_str());
        Ok(())
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
