//! What the records say: PLEG's listing, and the lookups of the other operations.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::by_pod::{ByPod, OfPod};
use super::{CORRUPT, SCHEME, ShimRuntime, is_id, lock};
use crate::base::clock::Moment;
use crate::base::remove_tree::remove_tree;
use crate::engine::nsexec;
use crate::engine::runtime::{
    ContainerId, ContainerMetadata, ContainerStatus, Listing, NamespaceMode, NetworkNamespace,
    RuntimeError, RuntimeErrorKind, RuntimeState, SandboxMetadata, SandboxStatus,
};
use crate::engine::shims::cri_log;
use crate::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, EXIT, ExitRecord, NETWORK, NetworkRecord,
    Process, SANDBOX, STATE, SandboxRecord, SandboxState,
};

/// Records that never change, and the last state read.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) containers: ByPod<KnownContainer>,
    pub(super) sandboxes: ByPod<KnownSandbox>,
    /// Records that this runtime is removing.
    pub(super) leaving: HashSet<String>,
    /// The record directories have been read: what is not here and not in the two sets below is not there.
    is_whole: bool,
    /// Made by this daemon since, and not read yet.
    pub(super) new_containers: HashSet<String>,
    pub(super) new_sandboxes: HashSet<String>,
    /// Passes over the record directories.
    #[cfg(test)]
    passes: usize,
    /// When the shims of running containers were last looked for.
    shims_looked_at: Option<Moment>,
}

/// A shim that was killed is noticed within this: of a container that runs nobody else asks for it.
const SHIM_LOOK: Duration = Duration::from_secs(5);

/// A container as last read.
#[derive(Clone)]
pub(super) struct KnownContainer {
    pub(super) record: Arc<ContainerRecord>,
    pub(super) state: Option<ContainerState>,
    pub(super) exit: Option<Arc<ExitRecord>>,
    /// True once it has been said that the container's shim is gone.
    loss_reported: bool,
}

/// A sandbox as last read.
#[derive(Clone)]
pub(super) struct KnownSandbox {
    pub(super) record: Arc<SandboxRecord>,
    pub(super) state: Option<SandboxState>,
    /// Record of the sandbox's network; `None` until the network is set up.
    pub(super) network: Option<NetworkRecord>,
}

/// The facts that the state of a container without an exit record follows from.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// The container's records are of this boot.
    this_boot: bool,
    /// `start` succeeded.
    started: bool,
    /// The container's first process runs.
    alive: bool,
    /// The container's shim runs, or this daemon is starting the container, or nobody needs to ask.
    shim_alive: bool,
}

/// The state of a container without an exit record. While its shim lives, it is created or running, as the shim has recorded.
/// After its shim was killed, it runs as long as its process does. What a reboot ended has exited. Everything else is unknown.
fn live_state(f: Evidence) -> RuntimeState {
    match f {
        Evidence {
            this_boot: false, ..
        } => RuntimeState::Exited,
        Evidence {
            started: true,
            alive: true,
            ..
        } => RuntimeState::Running,
        // It has just ended and the shim is about to say so.
        Evidence {
            started: true,
            shim_alive: true,
            ..
        } => RuntimeState::Running,
        Evidence {
            started: false,
            shim_alive: true,
            ..
        } => RuntimeState::Created,
        _ => RuntimeState::Unknown,
    }
}

impl OfPod for KnownContainer {
    fn uid(&self) -> &str {
        &self.record.pod.uid
    }
}

impl OfPod for KnownSandbox {
    fn uid(&self) -> &str {
        &self.record.pod.uid
    }
}

impl KnownContainer {
    fn process_alive(&self) -> bool {
        self.state
            .as_ref()
            .and_then(|s| s.process)
            .is_some_and(Process::alive)
    }

    /// True if the container runs and its shim does not. The shim is looked at first, because a container that ends does so
    /// before its shim.
    fn has_lost_its_shim(&self, boot_id: &str) -> bool {
        let started = self.exit.is_none()
            && self
                .state
                .as_ref()
                .is_some_and(|s| s.boot_id == boot_id && s.started.is_some());
        started && !self.shim_alive() && self.process_alive()
    }

    pub(super) fn shim_alive(&self) -> bool {
        self.state.as_ref().is_some_and(|s| s.shim.alive())
    }
}

impl ShimRuntime {
    /// All that is recorded, or what is recorded of one pod.
    pub(super) fn listing(&self, pod: Option<&str>) -> Result<Listing, RuntimeError> {
        self.refresh(pod).map_err(|e| {
            let dir = self.layout.run_dir();
            RuntimeError::failed(format!(
                "cannot list containers below {}: {e}",
                dir.display()
            ))
        })?;
        let cache = lock(&self.cache);
        let sandbox = |e| self.sandbox_status(e);
        let container = |e| self.container_status(e);
        let (sandboxes, containers) = (&cache.sandboxes, &cache.containers);
        Ok(match pod {
            None => Listing {
                sandboxes: sandboxes.values().map(sandbox).collect(),
                containers: containers.values().map(container).collect(),
            },
            Some(uid) => Listing {
                sandboxes: sandboxes.of(uid).map(sandbox).collect(),
                containers: containers.of(uid).map(container).collect(),
            },
        })
    }

    /// Brings the cache up to date. For one pod its records and the new ones are looked at and no directory is read, so
    /// that the work for one pod does not grow with the number of all.
    pub(super) fn refresh(&self, only: Option<&str>) -> io::Result<()> {
        if let Some(uid) = only
            && self.refresh_pod(uid)?
        {
            return Ok(());
        }
        self.refresh_all(only)
    }

    /// False when the directories have to be read: they have not been, or somebody else has removed a record.
    fn refresh_pod(&self, uid: &str) -> io::Result<bool> {
        let mut cache = lock(&self.cache);
        if !cache.is_whole {
            return Ok(false);
        }
        for id in std::mem::take(&mut cache.new_sandboxes) {
            if self.layout.sandboxes().join(&id).exists() {
                self.refresh_sandbox(&mut cache, id)?;
            }
        }
        for id in std::mem::take(&mut cache.new_containers) {
            if self.layout.containers().join(&id).exists() {
                self.refresh_container(&mut cache, id)?;
            }
        }
        let sandboxes = cache.sandboxes.ids_of(uid).to_vec();
        let containers = cache.containers.ids_of(uid).to_vec();
        let is_there = |dir: &Path, id: &String| dir.join(id).exists();
        let (of_sandboxes, of_containers) = (self.layout.sandboxes(), self.layout.containers());
        if !sandboxes.iter().all(|id| is_there(&of_sandboxes, id))
            || !containers.iter().all(|id| is_there(&of_containers, id))
        {
            return Ok(false);
        }
        for id in sandboxes {
            self.refresh_sandbox(&mut cache, id)?;
        }
        for id in containers {
            self.refresh_container(&mut cache, id)?;
        }
        Ok(true)
    }

    /// Passes once over the record directories. Of the known records, only those of the pod `only` are looked at again;
    /// without `only`, all of them are.
    fn refresh_all(&self, only: Option<&str>) -> io::Result<()> {
        let (containers, sandboxes) = (self.layout.containers(), self.layout.sandboxes());
        let (container_ids, sandbox_ids) = (ids(&containers)?, ids(&sandboxes)?);
        let mut cache = lock(&self.cache);
        #[cfg(test)]
        {
            cache.passes += 1;
        }
        self.restore_records(&cache, &container_ids, &sandbox_ids)?;
        let is_there = |listed: &HashSet<String>, dir: &Path, id: &String| {
            listed.contains(id) || dir.join(id).exists()
        };
        cache
            .containers
            .retain(|id| is_there(&container_ids, &containers, id));
        cache
            .sandboxes
            .retain(|id| is_there(&sandbox_ids, &sandboxes, id));
        let of_another = |uid: &str| only.is_some_and(|only| only != uid);
        for id in container_ids {
            let known = cache.containers.get(&id);
            if !known.is_some_and(|e| of_another(&e.record.pod.uid)) {
                self.refresh_container(&mut cache, id)?;
            }
        }
        for id in sandbox_ids {
            let known = cache.sandboxes.get(&id);
            if !known.is_some_and(|e| of_another(&e.record.pod.uid)) {
                self.refresh_sandbox(&mut cache, id)?;
            }
        }
        cache.is_whole = true;
        self.look_for_shims(&mut cache, Moment::now());
        Ok(())
    }

    /// A container runs on without its shim, but nobody reads its output or learns how it ends: that is said once.
    fn look_for_shims(&self, cache: &mut Cache, now: Moment) {
        if cache
            .shims_looked_at
            .is_some_and(|last| now.since(last) < SHIM_LOOK)
        {
            return;
        }
        cache.shims_looked_at = Some(now);
        for e in cache
            .containers
            .values_mut()
            .filter(|e| !e.loss_reported && e.has_lost_its_shim(&self.boot_id))
        {
            e.loss_reported = true;
            let r = &e.record;
            log::warn!(
                "the shim of container {} of pod {}/{} is gone: the container runs on, but its output is lost and its exit code \
                 will not be known; a change to its pod file, such as another annotation, starts the pod afresh",
                r.name,
                r.pod.namespace,
                r.pod.name
            );
            cri_log::note_loss(&r.log_path);
        }
    }

    /// An error is ours, such as no descriptors: what cannot be looked at is neither gone nor damaged.
    fn refresh_container(&self, cache: &mut Cache, id: String) -> io::Result<()> {
        let dir = self.layout.containers().join(&id);
        if !cache.containers.contains(&id) {
            let read = state::try_read(&dir, CONTAINER)?;
            if read.is_none() && is_gone(&dir) {
                return Ok(());
            }
            match read.or_else(|| self.rebuilt_container(&id)) {
                Some(record) => {
                    let record = Arc::new(record);
                    cache.containers.add(
                        id.clone(),
                        KnownContainer {
                            record,
                            state: None,
                            exit: None,
                            loss_reported: false,
                        },
                    );
                }
                None => return self.set_aside(&id),
            }
        }
        let e = cache.containers.get_mut(&id).expect("just inserted");
        if e.exit.is_some() {
            return Ok(());
        }
        if e.state.as_ref().is_none_or(|s| s.started.is_none()) {
            e.state = state::try_read(&dir, STATE)?.or(e.state.take());
            if e.state.as_ref().is_none_or(ContainerState::is_torn) {
                e.state = self.rebuilt_state(&e.record, &dir).or(e.state.take());
            }
        }
        // Looked at before the exit record: whoever ends writes it first, so what is dead here has it.
        let dead = !e.process_alive() && !e.shim_alive();
        if dead || dir.join(EXIT).exists() {
            e.exit = self.exit_of(&dir, dead)?.map(Arc::new);
        }
        Ok(())
    }

    fn refresh_sandbox(&self, cache: &mut Cache, id: String) -> io::Result<()> {
        let dir = self.layout.sandboxes().join(&id);
        if !cache.sandboxes.contains(&id) {
            let read = state::try_read(&dir, SANDBOX)?;
            if read.is_none() && is_gone(&dir) {
                return Ok(());
            }
            match read.or_else(|| self.rebuilt_sandbox(&id)) {
                Some(record) => {
                    let record = Arc::new(record);
                    cache.sandboxes.add(
                        id.clone(),
                        KnownSandbox {
                            record,
                            state: None,
                            network: None,
                        },
                    );
                }
                None => return self.set_aside_sandbox(cache, &id),
            }
        }
        let e = cache.sandboxes.get_mut(&id).expect("just inserted");
        if e.state.is_none() {
            let read = state::try_read(&dir, STATE)?;
            let is_starting = lock(&self.starting).contains(&id);
            e.state = match read {
                None if is_starting => None,
                read => read.or_else(|| self.rebuilt_holder(&cache.containers, &id)),
            };
        }
        if e.network.is_none() {
            e.network = match self.networks.fixed(e.record.network()) {
                Some(addresses) => Some(NetworkRecord { addresses }),
                None => state::try_read(&dir, NETWORK)?,
            };
        }
        Ok(())
    }

    /// A container nobody can name: its processes are ended, its directory is kept for a person to look at. An error
    /// leaves everything as it is.
    fn set_aside(&self, id: &str) -> io::Result<()> {
        let dir = self.layout.containers().join(id);
        let state = state::try_read::<ContainerState>(&dir, STATE)?;
        for p in state
            .iter()
            .flat_map(|s| [Some(s.shim), s.process])
            .flatten()
        {
            super::kill_process(p);
        }
        // Without its state, the OCI runtime still knows the container's process and cgroups.
        self.clear_leftovers(
            id,
            &self.runtime_command(),
            &self.layout.oci_state(),
            state.as_ref().map_or(&[], |s| &s.cgroups),
        );
        if let Err(e) = remove_tree(&self.layout.container_data(id)) {
            log::warn!("cannot remove the file system of container {id}: {e}");
        }
        self.rename_corrupt(&dir, id);
        Ok(())
    }

    fn set_aside_sandbox(&self, cache: &Cache, id: &str) -> io::Result<()> {
        let dir = self.layout.sandboxes().join(id);
        let state = state::try_read::<SandboxState>(&dir, STATE)?;
        if let Some(s) = state.or_else(|| self.rebuilt_holder(&cache.containers, id)) {
            super::kill_process(s.process);
        }
        self.rename_corrupt(&dir, id);
        Ok(())
    }

    fn rename_corrupt(&self, dir: &Path, id: &str) {
        let aside = dir.with_file_name(format!("{id}{CORRUPT}"));
        match fs::rename(dir, &aside) {
            Ok(()) => log::error!(
                "cannot use the record of {id}: its processes were ended and it is kept as {}",
                aside.display()
            ),
            // Removed by another thread in the meantime.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => log::error!("cannot set the record {} aside: {e}", dir.display()),
        }
    }

    fn sandbox_status(&self, e: &KnownSandbox) -> SandboxStatus {
        let r = &e.record;
        let network = match r.host_network {
            true => NamespaceMode::Node,
            false => NamespaceMode::Pod,
        };
        let metadata = SandboxMetadata {
            name: r.pod.name.clone(),
            namespace: r.pod.namespace.clone(),
            uid: r.pod.uid.clone(),
            attempt: r.attempt,
        };
        SandboxStatus {
            id: ContainerId::new(SCHEME, &r.id),
            // A daemon that was killed in between has left it without a network: the pod gets another.
            ready: e.network.is_some() && e.record.is_usable() && self.holder(e).is_some(),
            network,
            created_at: r.created_at,
            ips: e
                .network
                .as_ref()
                .map_or(Vec::new(), |n| n.addresses.clone()),
            metadata,
        }
    }

    /// The living holder.
    pub(super) fn holder(&self, e: &KnownSandbox) -> Option<Process> {
        e.state
            .as_ref()
            .filter(|s| s.boot_id == self.boot_id)
            .map(|s| s.process)
            .filter(|p| p.alive())
    }

    fn container_status(&self, e: &KnownContainer) -> ContainerStatus {
        let r = &e.record;
        let this_boot = r.boot_id == self.boot_id;
        let state = self.state_of(e);
        let mut status = ContainerStatus {
            id: ContainerId::new(SCHEME, &r.id),
            sandbox: ContainerId::new(SCHEME, &r.sandbox),
            metadata: ContainerMetadata {
                name: r.name.clone(),
                attempt: r.attempt,
            },
            state,
            image: r.image.clone(),
            image_id: r.image_id.clone(),
            created_at: r.created_at,
            started_at: e.state.as_ref().and_then(|s| s.started_at),
            started: e
                .state
                .as_ref()
                .and_then(|s| s.started)
                .filter(|_| this_boot),
            finished_at: None,
            finished: None,
            exit_code: 0,
            signal: None,
            reason: String::new(),
            message: String::new(),
            pid: e
                .state
                .as_ref()
                .and_then(|s| s.process)
                .map(|p| p.pid)
                .filter(|_| state == RuntimeState::Running),
            log_path: r.log_path.clone(),
            user: r.linux_user.clone(),
            labels: r.labels.clone(),
            annotations: r.annotations.clone(),
        };
        match &e.exit {
            Some(x) => {
                (status.exit_code, status.signal) = (x.code, x.signal);
                (status.reason, status.message) = (x.reason.clone(), x.message.clone());
                status.finished_at = Some(x.finished_at);
                status.finished = (x.boot_id == self.boot_id).then_some(x.finished);
            }
            None if state == RuntimeState::Exited => {
                status.exit_code = 137;
                status.reason = UNKNOWN.into();
                status.message = "The machine was started again while the container ran.".into();
            }
            None => {}
        }
        status
    }

    pub(super) fn state_of(&self, e: &KnownContainer) -> RuntimeState {
        if e.exit.is_some() {
            return RuntimeState::Exited;
        }
        let started = e.state.as_ref().is_some_and(|s| s.started.is_some());
        let alive = e.process_alive();
        // Of a container that runs nobody asks for the shim.
        let shim_alive =
            started && alive || e.shim_alive() || lock(&self.starting).contains(&e.record.id);
        live_state(Evidence {
            this_boot: e.record.boot_id == self.boot_id,
            started,
            alive,
            shim_alive,
        })
    }

    /// A container as it is now; None when there is none of that id.
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

    /// A record that is known and not there was removed by somebody else.
    fn restore_if_known(&self, is_known: impl FnOnce(&Cache) -> bool) -> Option<()> {
        let known = is_known(&lock(&self.cache));
        known.then(|| {
            self.refresh(None).unwrap_or_else(|e| log::warn!("{e}"));
        })
    }

    /// A sandbox as it is now.
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

    /// The record and first process of a running container.
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

    /// The record and first process of a container that was seen running. Whoever enters that process has to check anyway
    /// that it still is the same one.
    fn started(&self, id: &ContainerId) -> Option<(Arc<ContainerRecord>, Process)> {
        let cache = lock(&self.cache);
        let e = cache.containers.get(id.as_str())?;
        let state = e.state.as_ref().filter(|s| {
            s.started.is_some() && e.exit.is_none() && e.record.boot_id == self.boot_id
        })?;
        Some((e.record.clone(), state.process?))
    }

    /// Returns the part of a container's configuration that an exec needs. It is read with the container's first exec.
    pub(super) fn config(&self, id: &ContainerId) -> io::Result<Arc<nsexec::Config>> {
        if let Some(known) = lock(&self.configs).get(id) {
            return Ok(known.clone());
        }
        let file = self
            .layout
            .containers()
            .join(id.as_str())
            .join("bundle/config.json");
        let config: Arc<nsexec::Config> = Arc::new(serde_json::from_slice(&fs::read(file)?)?);
        // Not both locks at once: whoever writes records again takes them in the other order.
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
        // The cache is enough: PLEG keeps it, and a holder in it is checked by its start time, here and when it is entered.
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

/// Reason of an end nobody saw.
pub(super) const UNKNOWN: &str = "Unknown";

/// True if a record directory was taken away since it was listed. No process is looked for then, because such a search asks
/// every process.
fn is_gone(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// The record directories in `dir`; none when somebody has removed it.
fn ids(dir: &Path) -> io::Result<HashSet<String>> {
    let mut found = HashSet::new();
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if is_id(&name) {
            found.insert(String::from_utf8_lossy(name.as_bytes()).into_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::engine::images::ImageStore;
    use crate::engine::shims::{RuntimeChoice, ShimOptions};
    use crate::net::network::NetworkSettings;

    #[test]
    fn the_directories_are_read_for_all_pods_and_not_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let layout = crate::base::paths::Layout::new(dir.path());
        let options = ShimOptions {
            runtime: RuntimeChoice::Embedded,
            classes: BTreeMap::new(),
            unfiltered_devices: false,
            network: NetworkSettings::none(&layout),
            log_max_size: 10 << 20,
            log_max_files: 2,
        };
        let images = ImageStore::open(layout.images()).unwrap();
        let runtime = ShimRuntime::new(layout, options, images).unwrap();
        let passes_after = |pod: Option<&str>| {
            runtime.listing(pod).unwrap();
            lock(&runtime.cache).passes
        };
        assert_eq!(passes_after(Some("a")), 1, "nothing is known yet");
        assert_eq!((0..9).map(|_| passes_after(Some("a"))).max(), Some(1));
        assert_eq!(passes_after(None), 2);
    }

    #[track_caller]
    fn check(
        this_boot: bool,
        started: bool,
        alive: bool,
        shim_alive: bool,
        expected: RuntimeState,
    ) {
        assert_eq!(
            live_state(Evidence {
                this_boot,
                started,
                alive,
                shim_alive
            }),
            expected
        );
    }

    #[test]
    fn the_state_of_a_container_without_an_exit_record() {
        use RuntimeState::{Created, Exited, Running, Unknown};
        check(true, false, false, true, Created);
        check(true, false, true, true, Created);
        check(true, true, true, true, Running);
        check(true, true, true, false, Running);
        check(true, true, false, true, Running);
        check(true, true, false, false, Unknown);
        check(true, false, false, false, Unknown);
        check(true, false, true, false, Unknown);
        check(false, true, true, true, Exited);
        check(false, false, false, false, Exited);
    }
}
