//! Releases the networks of sandboxes: of a single sandbox, and of all sandboxes that no longer exist
//! (cni-plugins 5.3).

use std::fs;
use std::path::Path;
use std::sync::PoisonError;

use super::cache::{Cache, Found};
use super::conf::Version;
use super::error::CniError;
use super::files::Loaded;
use super::lock::SandboxLock;
use super::network::{CniNetwork, MARK, cannot, present};
use super::request::Attachment;
use crate::net::network::SandboxNetwork;

impl CniNetwork {
    /// Releases everything that belongs to none of the sandboxes in `valid`, a list of ids. First the sandboxes in
    /// the cache that are not in `valid` are released, each with its own configuration. Then GC of the currently
    /// configured network runs. The caller passes every sandbox that exists, and makes no new sandbox before the
    /// call.
    ///
    /// # Errors
    /// Returns all failures together. A failure does not stop the release of the other sandboxes.
    pub fn gc(&self, valid: &[&str]) -> Result<(), CniError> {
        let _alone = self
            .collecting
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut errors = Vec::new();
        let (kept, stale): (Vec<_>, Vec<_>) = self
            .find(None)?
            .into_iter()
            .partition(|f| valid.contains(&f.container_id.as_str()));
        for found in stale {
            let id = found.container_id.clone();
            let lock = self.lock_or_go_on(&id);
            match self.release(found, Path::new(""), lock.as_ref()) {
                Ok(()) => lock.into_iter().for_each(SandboxLock::remove),
                Err(e) => errors.push(e),
            }
        }
        self.collect(valid, &kept, &mut errors);
        self.cache.sweep();
        SandboxLock::sweep(&self.settings.cache_dir.join("locks"), valid);
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(CniError::Several(errors)),
        }
    }

    /// Runs GC of the currently configured network. A sandbox that is not in the cache may be connected to this
    /// network, so it counts as connected. Otherwise the plugins could release an address that is in use.
    fn collect(&self, valid: &[&str], kept: &[Found], errors: &mut Vec<CniError>) {
        let version = |loaded: Loaded| self.common(&loaded).map(|version| (loaded, version));
        let (loaded, version) = match self.configured().map(|loaded| loaded.map(version)) {
            Ok(None) => return,
            Ok(Some(Ok(found))) => found,
            Ok(Some(Err(e))) | Err(e) => return errors.push(e),
        };
        if loaded.list.disable_gc || version < Version::STATUS {
            return;
        }
        let elsewhere = |id: &&str| {
            let mut entries = kept.iter().filter(|f| f.container_id == **id).peekable();
            entries.peek().is_some() && entries.all(|f| f.network != loaded.list.name)
        };
        let valid: Vec<&str> = valid.iter().copied().filter(|id| !elsewhere(id)).collect();
        errors.extend(
            self.chain(&loaded.list, &loaded.file, version, None)
                .gc(&valid),
        );
    }

    pub(super) fn del(&self, sandbox: &SandboxNetwork<'_>) -> Result<(), CniError> {
        let _not_collecting = self.begin()?;
        let mark = sandbox.record.join(MARK);
        let marked = fs::read_to_string(&mark).ok();
        if marked.is_none() && self.find(Some(sandbox.id))?.is_empty() {
            return Ok(());
        }
        let lock = self.lock_or_go_on(sandbox.id);
        let found = self.find(Some(sandbox.id))?;
        if let (true, Some(network)) = (found.is_empty(), marked) {
            self.release_lost(sandbox, &network, lock.as_ref())?;
        }
        for found in found {
            let netns = present(sandbox, found.entry.as_ref());
            self.release(found, &netns, lock.as_ref())?;
        }
        let _ = fs::remove_file(&mark);
        lock.into_iter().for_each(SandboxLock::remove);
        Ok(())
    }

    /// Releases one sandbox from one network, with the configuration and the result in the cache.
    pub(super) fn release(
        &self,
        found: Found,
        netns: &Path,
        lock: Option<&SandboxLock>,
    ) -> Result<(), CniError> {
        match found.entry {
            Some(mut entry) => {
                entry.attachment.netns = netns.to_owned();
                let chain = self.chain(&entry.list, &entry.file, entry.version(), lock);
                chain.del(&entry.attachment, entry.result.as_ref())?;
            }
            None => self.release_damaged(&found, lock)?,
        }
        Cache::remove(&found.path).map_err(|e| cannot("remove", &found.path, e))
    }

    /// Releases a sandbox whose cache file cannot be read. Uses the current configuration, because the
    /// configuration at ADD is not known.
    fn release_damaged(&self, found: &Found, lock: Option<&SandboxLock>) -> Result<(), CniError> {
        log::warn!("{} is damaged", found.path.display());
        let attachment = Attachment {
            container_id: found.container_id.clone(),
            ..Attachment::default()
        };
        self.release_by_name(&found.network, &attachment, lock)
    }

    /// Releases a sandbox that has no cache file, although its record says that it was connected.
    fn release_lost(
        &self,
        sandbox: &SandboxNetwork<'_>,
        network: &str,
        lock: Option<&SandboxLock>,
    ) -> Result<(), CniError> {
        log::warn!(
            "what is kept of sandbox {} in network {network:?} is lost",
            sandbox.id
        );
        let netns = present(sandbox, None);
        let attachment = Attachment::of(sandbox, netns.clone());
        let attachment = attachment.unwrap_or_else(|_| Attachment {
            container_id: sandbox.id.to_owned(),
            netns,
            ..Attachment::default()
        });
        self.release_by_name(network, &attachment, lock)
    }

    fn release_by_name(
        &self,
        network: &str,
        attachment: &Attachment,
        lock: Option<&SandboxLock>,
    ) -> Result<(), CniError> {
        match self.configured()? {
            Some(loaded) if loaded.list.name == network => {
                let version = self.version(&loaded)?;
                self.chain(&loaded.list, &loaded.file, version, lock)
                    .del(attachment, None)
            }
            _ => {
                log::warn!(
                    "network {network:?} is not configured any more: what its plugins keep for sandbox {} is not released",
                    attachment.container_id
                );
                Ok(())
            }
        }
    }

    /// Returns the lock of the sandbox. If the lock cannot be taken, logs a warning and returns None. The caller
    /// releases the network even without the lock.
    fn lock_or_go_on(&self, id: &str) -> Option<SandboxLock> {
        let lock = self.lock(id);
        lock.inspect_err(|e| log::warn!("sandbox {id} is released all the same: {e}"))
            .ok()
    }
}
