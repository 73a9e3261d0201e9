//! Finds a container, a sandbox, or what an operation needs of them, in the records that the listing has read.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::Arc;

use super::listing::{Cache, KnownContainer, KnownSandbox};
use super::{ShimRuntime, is_id, lock};
use crate::base::json;
use crate::engine::nsexec;
use crate::engine::runtime::{
    ContainerId, NetworkNamespace, RuntimeError, RuntimeErrorKind, RuntimeState,
};
use crate::engine::shims::state::{ContainerRecord, Process};

impl ShimRuntime {
    /// Returns a container as it is now; None if no container has this id.
    pub(super) fn find(&self, id: &ContainerId) -> Option<KnownContainer> {
        if !is_id(id.as_str().as_ref()) {
            return None;
        }
        if !self.layout.containers().join(id.as_str()).is_dir() {
            self.restore_if_known(|cache| cache.containers.contains(id.as_str()))?;
        }
        let mut cache = lock(&self.cache);
        self.refresh_container(&mut cache, id.as_str().to_owned())
            .unwrap_or_else(|e| log::warn!("{e}"));
        cache.containers.get(id.as_str()).cloned()
    }

    /// Restores all records if `is_known` returns true, and otherwise returns None. True means that the record is in
    /// the cache although its directory is gone, so another program has removed the directory.
    fn restore_if_known(&self, is_known: impl FnOnce(&Cache) -> bool) -> Option<()> {
        let known = is_known(&lock(&self.cache));
        known.then(|| {
            self.refresh(None).unwrap_or_else(|e| log::warn!("{e}"));
        })
    }

    /// Returns a sandbox as it is now; None if no sandbox has this id.
    pub(super) fn find_sandbox(&self, id: &ContainerId) -> Option<KnownSandbox> {
        if !is_id(id.as_str().as_ref()) {
            return None;
        }
        if !self.layout.sandboxes().join(id.as_str()).is_dir() {
            self.restore_if_known(|cache| cache.sandboxes.contains(id.as_str()))?;
        }
        let mut cache = lock(&self.cache);
        self.refresh_sandbox(&mut cache, id.as_str().to_owned())
            .unwrap_or_else(|e| log::warn!("{e}"));
        cache.sandboxes.get(id.as_str()).cloned()
    }

    /// Returns the record and the first process of a running container.
    pub(super) fn running(
        &self,
        id: &ContainerId,
    ) -> Result<(Arc<ContainerRecord>, Process), RuntimeError> {
        let fail = |why: &str| {
            RuntimeError::new(
                RuntimeErrorKind::NotRunning,
                format!("cannot enter container {id}: {why}"),
            )
        };
        if let Some(known) = self.started(id) {
            return Ok(known);
        }
        let e = self
            .find(id)
            .ok_or_else(|| fail("there is no such container"))?;
        match e
            .state
            .as_ref()
            .and_then(|s| s.process)
            .filter(|p| self.state_of(&e) == RuntimeState::Running && p.alive())
        {
            Some(process) => Ok((e.record, process)),
            None => Err(fail("it is not running")),
        }
    }

    /// Returns the record and the first process of a container that was seen running. The process may have ended since,
    /// so code that enters it must check that it is still the same process.
    fn started(&self, id: &ContainerId) -> Option<(Arc<ContainerRecord>, Process)> {
        let cache = lock(&self.cache);
        let e = cache.containers.get(id.as_str())?;
        let state = e.state.as_ref().filter(|s| {
            s.started.is_some() && e.exit.is_none() && e.record.boot_id == self.boot_id
        })?;
        Some((e.record.clone(), state.process?))
    }

    /// Returns the part of a container's configuration that an exec needs. The container's first exec reads this part
    /// from the file `config.json`.
    pub(super) fn config(&self, id: &ContainerId) -> io::Result<Arc<nsexec::Config>> {
        if let Some(known) = lock(&self.configs).get(id) {
            return Ok(known.clone());
        }
        let file = self
            .layout
            .containers()
            .join(id.as_str())
            .join("bundle/config.json");
        let config: Arc<nsexec::Config> = Arc::new(json::from_slice(&fs::read(file)?)?);
        // Never locks the cache while `configs` is locked: the code that restores records locks `configs` after the
        // cache.
        let known: HashSet<String> = lock(&self.cache).containers.ids().cloned().collect();
        let mut all = lock(&self.configs);
        all.retain(|id, _| known.contains(id.as_str()));
        all.insert(id.clone(), config.clone());
        Ok(config)
    }

    pub(super) fn namespace_of(&self, uid: &str) -> Result<Option<NetworkNamespace>, RuntimeError> {
        let fail = |why: &str| {
            RuntimeError::failed(format!("cannot enter the network of pod {uid}: {why}"))
        };
        // The cache is up to date enough, because PLEG refreshes it. A holder in the cache is checked by its start
        // time, both here and when its namespace is entered.
        let newest = |cache: &Cache| {
            let of_pod = cache.sandboxes.of(uid);
            of_pod
                .filter_map(|e| Some((e.record.attempt, e.record.host_network, self.holder(e)?)))
                .max_by_key(|(attempt, ..)| *attempt)
        };
        let mut found = newest(&lock(&self.cache));
        if found.is_none() {
            self.refresh(Some(uid)).map_err(|e| fail(&e.to_string()))?;
            found = newest(&lock(&self.cache));
        }
        match found {
            Some((_, true, _)) => Ok(None),
            Some((_, false, holder)) => Ok(Some(NetworkNamespace::of(holder))),
            None => Err(fail("it has no running sandbox")),
        }
    }
}
