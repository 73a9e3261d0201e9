//! The network that CNI plugins make for pods.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use nix::errno::Errno;

use super::cache::{Cache, Entry, Found};
use super::chain::Chain;
use super::conf::{NetworkList, Version};
use super::error::{Cause, CniError, Command, PluginError};
use super::files::{self, Loaded};
use super::lock::SandboxLock;
use super::request::Attachment;
use super::versions::{self, Memory};
use super::{CniSettings, Limits, Slow, result};
use crate::base::cancel::Cancel;
use crate::base::sys::task::Process;
use crate::net::network::{PodNetwork, SandboxNetwork};

/// Name of a file in the directory of a sandbox's record. This file holds the name of the CNI network, and exists
/// from before ADD until after DEL.
pub(super) const MARK: &str = "cni";

/// The network that CNI plugins make for pods. Every call reads the configuration anew.
#[derive(Debug)]
pub struct CniNetwork {
    pub(super) settings: CniSettings,
    pub(super) limits: Limits,
    pub(super) cache: Cache,
    pub(super) versions: Memory,
    pub(super) cancel: Cancel,
    /// A lock that GC holds for writing, because no ADD and no DEL may run at the same time
    /// (cni-plugins 5.2).
    pub(super) collecting: RwLock<()>,
}

impl CniNetwork {
    /// Makes a network with the usual limits.
    pub fn new(settings: CniSettings) -> Self {
        Self::with_limits(settings, Limits::default())
    }

    /// Makes a network with limits of the caller's choice.
    pub fn with_limits(settings: CniSettings, limits: Limits) -> Self {
        Self {
            cache: Cache::below(&settings.cache_dir),
            settings,
            limits,
            versions: Memory::default(),
            cancel: Cancel::default(),
            collecting: RwLock::default(),
        }
    }

    /// Kills the running plugins and starts no more plugins, because the daemon is ending. The next daemon
    /// releases the sandboxes whose ADD was interrupted.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// Returns the network for new sandboxes. Returns None if no network is configured.
    ///
    /// # Errors
    /// Returns [`CniError`] if the configuration cannot be used.
    pub fn configured(&self) -> Result<Option<Loaded>, CniError> {
        Ok(files::load(&self.settings.conf_dir)?)
    }

    /// Checks that a new sandbox could be connected. There must be a configuration, and the configured plugins
    /// must exist and support the configured version. Runs each plugin for VERSION unless the answer is known
    /// already. Then runs the plugins for STATUS if the version has this command.
    ///
    /// # Errors
    /// Returns [`CniError`] if a sandbox could not be connected.
    pub fn ready(&self) -> Result<(), CniError> {
        let loaded = self.loaded()?;
        let version = self.common(&loaded)?;
        if version < Version::STATUS {
            return Ok(());
        }
        self.chain(&loaded.list, &loaded.file, version, None)
            .status()
    }

    /// Runs CHECK of each plugin, to find out whether the sandbox is still connected as ADD left it.
    ///
    /// # Errors
    /// Returns the error of the first plugin that fails, or an error if the sandbox is in no network.
    pub fn check(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<()> {
        let _not_collecting = self.without_gc();
        let lock = self.lock(sandbox.id)?;
        let found = self.find(Some(sandbox.id))?;
        let entries: Vec<Entry> = found.into_iter().filter_map(|f| f.entry).collect();
        if entries.iter().all(|e| e.result.is_none()) {
            return Err(io::Error::other("it is in no network"));
        }
        for entry in &entries {
            let (Some(added), true) = (&entry.result, entry.version() >= Version::CHECK) else {
                continue;
            };
            if !entry.list.disable_check {
                let chain = self.chain(&entry.list, &entry.file, entry.version(), Some(&lock));
                chain.check(&entry.attachment, added)?;
            }
        }
        Ok(())
    }

    fn loaded(&self) -> Result<Loaded, CniError> {
        let none = || CniError::NotInitialized(self.settings.conf_dir.clone());
        self.configured()?.ok_or_else(none)
    }

    pub(super) fn chain<'a>(
        &'a self,
        list: &'a NetworkList,
        file: &'a Path,
        version: Version,
        lock: Option<&'a SandboxLock>,
    ) -> Chain<'a> {
        Chain {
            settings: &self.settings,
            limits: self.limits,
            cancel: &self.cancel,
            list,
            file,
            version,
            lock,
        }
    }

    /// Returns the newest version that the network and all its plugins support. If the configuration has only
    /// one version, a plugin that fails at VERSION is trusted, because small scripts do not know VERSION.
    pub(super) fn common(&self, loaded: &Loaded) -> Result<Version, CniError> {
        let chain = self.chain(&loaded.list, &loaded.file, Version::FIRST, None);
        let programs = chain.programs(Command::Version)?;
        let mut speak = Vec::new();
        for (plugin, program) in loaded.list.plugins.iter().zip(&programs) {
            let answer = self.versions.of(program, || chain.speaks(plugin));
            speak.push(match (answer, &loaded.list.versions[..]) {
                (Err(CniError::Plugin(_)), [only]) => vec![only.as_str().to_owned()],
                (answer, _) => answer?,
            });
        }
        versions::common(&loaded.list, &speak).map_err(|detail| CniError::Versions {
            network: loaded.list.name.clone(),
            file: loaded.file.clone(),
            detail,
        })
    }

    /// Returns the version for ADD. Asks the plugins only if the configuration has several versions.
    pub(super) fn version(&self, loaded: &Loaded) -> Result<Version, CniError> {
        match loaded.list.versions[..] {
            [only] => {
                let chain = self.chain(&loaded.list, &loaded.file, only, None);
                chain.programs(Command::Add).map(|_| only)
            }
            _ => self.common(loaded),
        }
    }

    /// Begins an ADD or a DEL. No GC runs while the returned guard lives. Fails after [`CniNetwork::stop`].
    pub(super) fn begin(&self) -> Result<RwLockReadGuard<'_, ()>, CniError> {
        if self.cancel.is_cancelled() {
            return Err(CniError::Stopped);
        }
        Ok(self.without_gc())
    }

    fn without_gc(&self) -> RwLockReadGuard<'_, ()> {
        self.collecting
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sandbox: &SandboxNetwork<'_>) -> Result<Vec<IpAddr>, CniError> {
        let _not_collecting = self.begin()?;
        let loaded = self.loaded()?;
        let lock = self.lock(sandbox.id)?;
        let added = self.add_locked(sandbox, loaded, &lock);
        if added.is_err()
            && self
                .find(Some(sandbox.id))
                .is_ok_and(|found| found.is_empty())
        {
            lock.remove();
        }
        added
    }

    fn add_locked(
        &self,
        sandbox: &SandboxNetwork<'_>,
        loaded: Loaded,
        lock: &SandboxLock,
    ) -> Result<Vec<IpAddr>, CniError> {
        // An earlier ADD may have been interrupted. The specification demands a DEL between two ADDs.
        for found in self.find(Some(sandbox.id))? {
            let netns = present(sandbox, found.entry.as_ref());
            self.release(found, &netns, Some(lock))?;
        }
        let version = self.version(&loaded)?;
        let mut entry = self.entry(loaded, version, sandbox)?;
        warn_of_ports(&entry);
        let mark = sandbox.record.join(MARK);
        fs::write(&mark, &entry.list.name).map_err(|e| cannot("write", &mark, e))?;
        self.keep(&entry)
            .inspect_err(|_| _ = fs::remove_file(&mark))?;
        match self.connect(&mut entry, lock) {
            // The entry stays in the cache. The next daemon finds it and releases the sandbox.
            Err(CniError::Stopped) => Err(CniError::Stopped),
            Err(error) => Err(self.undo(error, &entry, lock, &mark)),
            addresses => addresses,
        }
    }

    fn entry(
        &self,
        loaded: Loaded,
        version: Version,
        sandbox: &SandboxNetwork<'_>,
    ) -> Result<Entry, CniError> {
        let holder = sandbox.holder.ok_or_else(|| {
            CniError::Io(
                "there is no network namespace".into(),
                invalid("the sandbox has ended"),
            )
        })?;
        let netns = namespace_of(holder);
        let namespace = foreign_namespace(&netns)?;
        let attachment = Attachment::of(sandbox, netns).map_err(|key| {
            let why = "the value has ';' or '='";
            CniError::Io(
                format!("cannot hand {key} to network plugins"),
                invalid(why),
            )
        })?;
        let mut list = loaded.list;
        list.versions = vec![version];
        Ok(Entry {
            list,
            file: loaded.file,
            attachment,
            namespace,
            result: None,
        })
    }

    fn connect(&self, entry: &mut Entry, lock: &SandboxLock) -> Result<Vec<IpAddr>, CniError> {
        let chain = self.chain(&entry.list, &entry.file, entry.version(), Some(lock));
        let added = chain.add(&entry.attachment)?;
        let addresses = result::addresses(&added).map_err(|why| {
            let cause = Cause::BadResult {
                why,
                stdout: result::head(added.to_string().as_bytes()),
            };
            let last = entry.list.plugins.last();
            CniError::Plugin(Box::new(PluginError {
                kind: last.map_or_else(String::new, |p| p.kind.clone()),
                command: Command::Add,
                network: entry.list.name.clone(),
                file: entry.file.clone(),
                cause,
            }))
        })?;
        entry.result = Some(added);
        self.keep(entry)?;
        Ok(addresses)
    }

    /// Releases everything that a failed ADD may have made. If this release fails too, a later call tries again.
    fn undo(&self, error: CniError, entry: &Entry, lock: &SandboxLock, mark: &Path) -> CniError {
        let found = Found {
            path: self
                .cache
                .path(&entry.list.name, &entry.attachment.container_id),
            container_id: entry.attachment.container_id.clone(),
            network: entry.list.name.clone(),
            entry: Some(entry.clone()),
        };
        match self.release(found, &entry.attachment.netns, Some(lock)) {
            Ok(()) => {
                let _ = fs::remove_file(mark);
                error
            }
            Err(then) => CniError::Several(vec![error, then]),
        }
    }

    pub(super) fn find(&self, id: Option<&str>) -> Result<Vec<Found>, CniError> {
        let cannot = |e| cannot("read", &self.settings.cache_dir, e);
        self.cache.find(id).map_err(cannot)
    }

    fn keep(&self, entry: &Entry) -> Result<(), CniError> {
        let cannot = |e| cannot("write", &self.settings.cache_dir, e);
        self.cache.write(entry).map_err(cannot)
    }

    pub(super) fn lock(&self, id: &str) -> Result<SandboxLock, CniError> {
        let dir = self.settings.cache_dir.join("locks");
        let say = || {
            log::warn!(
                "sandbox {id} waits for a network plugin of an earlier call, which still runs"
            );
        };
        let slow = Slow {
            after: self.limits.slow,
            say: &say,
        };
        let held = SandboxLock::take(&dir, id, self.limits.plugin, slow, &self.cancel);
        match held {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => {
                let what = "a plugin of this sandbox still runs, of an earlier call".to_owned();
                Err(CniError::Io(what, Errno::EBUSY.into()))
            }
            Err(_) if self.cancel.is_cancelled() => Err(CniError::Stopped),
            Err(e) => Err(cannot("lock a sandbox in", &dir, e)),
        }
    }
}

/// Returns the path of the network namespace of a process.
fn namespace_of(holder: Process) -> PathBuf {
    format!("/proc/{}/ns/net", holder.pid).into()
}

/// Returns the path of the namespace for DEL; empty if the namespace is gone. The path contains the holder's pid,
/// which another process may have by now. So the namespace must be the namespace that the cache entry names, and
/// never the node's namespace.
pub(super) fn present(sandbox: &SandboxNetwork<'_>, entry: Option<&Entry>) -> PathBuf {
    let there = sandbox.holder.map(namespace_of).filter(|netns| {
        let namespace = foreign_namespace(netns).ok();
        namespace.is_some_and(|n| entry.is_none_or(|e| e.namespace == n))
    });
    there.unwrap_or_default()
}

impl PodNetwork for CniNetwork {
    /// Runs ADD for the sandbox. If ADD fails, undoes the connection, unless ADD failed because the daemon is
    /// ending.
    fn set_up(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<Vec<IpAddr>> {
        Ok(self.add(sandbox)?)
    }

    /// Releases the sandbox's connection, even if the connection is only partly made or the configuration was
    /// removed. If a plugin fails, returns the plugin's error, and the cache keeps everything that another try
    /// needs.
    fn tear_down(&self, sandbox: &SandboxNetwork<'_>) -> io::Result<()> {
        Ok(self.del(sandbox)?)
    }

    fn restore(&self, id: &str, record: &Path) -> io::Result<()> {
        match self.cache.find(Some(id))?.first() {
            Some(found) => fs::write(record.join(MARK), &found.network),
            None => Ok(()),
        }
    }
}

/// Returns device and inode of a network namespace. Fails if this namespace is the namespace in which plugins
/// themselves run.
fn foreign_namespace(netns: &Path) -> Result<String, CniError> {
    let of = |path: &Path| fs::metadata(path).map(|m| format!("{}:{}", m.dev(), m.ino()));
    let unusable = |e| cannot("use the network namespace", netns, e);
    let there = of(netns).map_err(unusable)?;
    if of(Path::new("/proc/thread-self/ns/net")).is_ok_and(|own| own == there) {
        return Err(unusable(invalid("it is the node's")));
    }
    Ok(there)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

pub(super) fn cannot(what: &str, path: &Path, error: io::Error) -> CniError {
    CniError::Io(format!("cannot {what} {}", path.display()), error)
}

/// Logs a warning for each value for which no plugin of the network has the capability. For example, a hostPort
/// has no effect in a network whose plugins cannot map ports, and the user should know.
fn warn_of_ports(entry: &Entry) {
    for name in entry.attachment.capabilities.keys() {
        let known = entry
            .list
            .plugins
            .iter()
            .any(|p| p.capabilities.contains(name));
        if !known {
            log::warn!(
                "sandbox {}: its {name} have no effect: no plugin of network {:?} ({}) has the capability",
                entry.attachment.container_id,
                entry.list.name,
                entry.file.display()
            );
        }
    }
}
