//! Releases sandboxes: one, and all that nobody needs any more (cni-plugins 5.3).

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
    /// Releases what belongs to none of these sandboxes, by their ids: those that the cache knows with their own
    /// configuration, then by GC of the network that is configured now. Call it with every sandbox that exists, before
    /// others are made.
    ///
    /// # Errors
    /// Returns what failed, after the rest was done.
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

    /// GC of the network that is configured now. A sandbox that the cache does not know counts as connected to it, for it may
    /// be: the plugins must not take its address away.
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

    /// Releases one sandbox in one network, with what the cache has of it.
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

    /// The cache's file cannot be read. The configuration of now is the best that there is.
    fn release_damaged(&self, found: &Found, lock: Option<&SandboxLock>) -> Result<(), CniError> {
        log::warn!("{} is damaged", found.path.display());
        let attachment = Attachment {
            container_id: found.container_id.clone(),
            ..Attachment::default()
        };
        self.release_by_name(&found.network, &attachment, lock)
    }

    /// The cache is lost, but the sandbox's record says that it was connected.
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

    /// A lock that cannot be had must not keep a network from being released.
    fn lock_or_go_on(&self, id: &str) -> Option<SandboxLock> {
        let lock = self.lock(id);
        lock.inspect_err(|e| log::warn!("sandbox {id} is released all the same: {e}"))
            .ok()
    }
}
