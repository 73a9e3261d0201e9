//! Reads the records of containers and sandboxes, for the listing that PLEG makes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::by_pod::{ByPod, OfPod};
use super::{CORRUPT, SCHEME, ShimRuntime, is_id, lock};
use crate::api::pod::ResourceRequirements;
use crate::base::clock::Moment;
use crate::base::remove_tree::remove_tree;
use crate::engine::runtime::{
    ContainerId, ContainerMetadata, ContainerStatus, Listing, NamespaceMode, RuntimeError,
    RuntimeState, SandboxMetadata, SandboxStatus,
};
use crate::engine::shims::cri_log;
use crate::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, EXIT, ExitRecord, NETWORK, NetworkRecord,
    Process, RESOURCES, ResourcesRecord, SANDBOX, STATE, SandboxRecord, SandboxState,
};
use crate::net::network::NetworkKind;

/// A cache of records that never change, and of the last state that was read.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) containers: ByPod<KnownContainer>,
    pub(super) sandboxes: ByPod<KnownSandbox>,
    /// Ids of the records that this runtime is removing.
    pub(super) leaving: HashSet<String>,
    /// True once the record directories have been read. After that, every existing record is in this cache, or its id
    /// is in one of the two sets below.
    is_whole: bool,
    /// Ids of containers that this daemon has made since the last listing, and has not read yet.
    pub(super) new_containers: HashSet<String>,
    pub(super) new_sandboxes: HashSet<String>,
    /// Number of passes over the record directories.
    #[cfg(test)]
    passes: usize,
    /// Time at which the daemon last checked the shims of running containers.
    shims_looked_at: Option<Moment>,
}

/// Time between two checks for shims that were killed. No other code checks the shim of a running container.
const SHIM_LOOK: Duration = Duration::from_secs(5);

/// A container, as last read from its records.
#[derive(Clone)]
pub(super) struct KnownContainer {
    pub(super) record: Arc<ContainerRecord>,
    /// Resources in effect.
    pub(super) resources: Option<Arc<ResourceRequirements>>,
    pub(super) state: Option<ContainerState>,
    pub(super) exit: Option<Arc<ExitRecord>>,
    /// True once it was logged that the container's shim is gone.
    loss_reported: bool,
}

/// A sandbox, as last read from its records.
#[derive(Clone)]
pub(super) struct KnownSandbox {
    pub(super) record: Arc<SandboxRecord>,
    pub(super) state: Option<SandboxState>,
    /// Record of the sandbox's network; `None` until the network is set up.
    pub(super) network: Option<NetworkRecord>,
}

/// The facts from which the state of a container without an exit record follows.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// True if the container's records are from this boot.
    this_boot: bool,
    /// True if the start of the container succeeded.
    started: bool,
    /// True if the container's first process runs.
    alive: bool,
    /// True if the container's shim runs, if this daemon is starting the container, or if the shim does not matter.
    shim_alive: bool,
}

/// Returns the state of a container without an exit record. While its shim lives, the container is created or running,
/// as the shim has recorded. After the shim was killed, the container runs as long as its first process. A container of
/// an earlier boot has exited. In every other case the state is unknown.
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
        // The container has just ended, and the shim is about to record the end.
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

    /// Returns true if the container runs but its shim does not. The shim is checked first, because a container always
    /// ends before its shim.
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
    /// Lists all sandboxes and containers that have a record, or only those of one pod.
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

    /// Brings the cache up to date. For one pod, only its records and new records are read, and no directory is listed.
    /// So the work for one pod does not grow with the number of all pods.
    pub(super) fn refresh(&self, only: Option<&str>) -> io::Result<()> {
        if let Some(uid) = only
            && self.refresh_pod(uid)?
        {
            return Ok(());
        }
        self.refresh_all(only)
    }

    /// Brings the cache up to date for one pod. Returns false if the directories must be read first: they were never
    /// read, or another program has removed a record.
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

    /// Passes once over the record directories. Known records are read again only if they belong to the pod `only`. If
    /// `only` is None, all known records are read again.
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

    /// Logs a warning, once for each container that has lost its shim. Such a container runs on, but no process reads
    /// its output or learns how it ends.
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

    /// Brings a container in the cache up to date. An error means that a record cannot be read now, for example because
    /// no descriptors are left. An error does not mean that the record is gone or damaged.
    pub(super) fn refresh_container(&self, cache: &mut Cache, id: String) -> io::Result<()> {
        let dir = self.layout.containers().join(&id);
        if !cache.containers.contains(&id) {
            let read = state::try_read(&dir, CONTAINER)?;
            if read.is_none() && is_gone(&dir) {
                return Ok(());
            }
            match read.or_else(|| self.rebuilt_container(&id)) {
                Some(record) => {
                    let resized: Option<ResourcesRecord> = state::try_read(&dir, RESOURCES)?;
                    let resized = resized.map(|resized| resized.requirements);
                    let resources = resized.or_else(|| record.requirements.clone());
                    let record = Arc::new(record);
                    cache.containers.add(
                        id.clone(),
                        KnownContainer {
                            record,
                            resources,
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
        // The processes are checked before the exit record: a shim writes the record before it ends, so if the first
        // process and the shim are both dead here, the record exists.
        let dead = !e.process_alive() && !e.shim_alive();
        if dead || dir.join(EXIT).exists() {
            e.exit = self.exit_of(&dir, dead)?.map(Arc::new);
        }
        Ok(())
    }

    pub(super) fn refresh_sandbox(&self, cache: &mut Cache, id: String) -> io::Result<()> {
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

    /// Ends the processes of a container whose record cannot be used. Keeps the record directory under another name for
    /// a person to examine. After an error everything is as it was.
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
        // The OCI runtime may know the container's process and cgroups even if there is no state record.
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
        // Else its address and its ports would be taken for as long as the daemon runs.
        if let Err(e) = self.networks.of(NetworkKind::Bridge).forget(id) {
            log::warn!("cannot release the network of sandbox {id}: {e}");
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
            // Another thread has removed the directory in the meantime.
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
            // If a daemon was killed before it had set up the network, the sandbox is not ready, and the pod gets a new
            // sandbox.
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

    /// Returns the holder of a sandbox if it is alive.
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
            resources: e.resources.clone(),
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
        // The shim of a running container is not checked here.
        let shim_alive =
            started && alive || e.shim_alive() || lock(&self.starting).contains(&e.record.id);
        live_state(Evidence {
            this_boot: e.record.boot_id == self.boot_id,
            started,
            alive,
            shim_alive,
        })
    }
}

/// Reason for an end that no process has seen.
pub(super) const UNKNOWN: &str = "Unknown";

/// Returns true if a record directory was removed since it was listed. In this case the process of the record is not
/// searched, because the search examines every process of the node.
fn is_gone(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// Lists the ids of the record directories in `dir`; empty if another program has removed `dir`.
pub(super) fn ids(dir: &Path) -> io::Result<HashSet<String>> {
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
    use crate::base::json;
    use crate::base::live::Live;
    use crate::engine::images::ImageStore;
    use crate::engine::shims::state::EXIT_COPY;
    use crate::engine::shims::{LogBounds, RuntimeChoice, ShimOptions};
    use std::net::Ipv4Addr;

    use crate::net::network::cni::CniSettings;
    use crate::net::network::pod_cidrs::PodCidrs;
    use crate::net::network::{NetworkChoice, NetworkSettings};

    fn runtime(dir: &Path) -> ShimRuntime {
        let layout = crate::base::paths::Layout::new(dir);
        let options = ShimOptions {
            runtime: RuntimeChoice::Embedded,
            classes: BTreeMap::new(),
            unfiltered_devices: false,
            network: NetworkSettings {
                choice: NetworkChoice::None,
                node_ip: Ipv4Addr::LOCALHOST.into(),
                pod_cidrs: PodCidrs::configured(Vec::new()),
                id: layout.id(),
                run: layout.run_dir(),
                records: layout.sandboxes(),
                proxy: layout.proxy_dir(),
                cni: CniSettings {
                    conf_dir: layout.cni_conf_dir(),
                    bin_dirs: Vec::new(),
                    cache_dir: layout.cni_cache(),
                },
            },
            logs: Live::new(LogBounds {
                max_size: 10 << 20,
                max_files: 2,
            }),
        };
        let images = ImageStore::open(layout.images()).unwrap();
        ShimRuntime::new(layout, options, images).unwrap()
    }

    #[test]
    fn the_directories_are_read_for_all_pods_and_not_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime(dir.path());
        let passes_after = |pod: Option<&str>| {
            runtime.listing(pod).unwrap();
            lock(&runtime.cache).passes
        };
        assert_eq!(passes_after(Some("a")), 1, "nothing is known yet");
        assert_eq!((0..9).map(|_| passes_after(Some("a"))).max(), Some(1));
        assert_eq!(passes_after(None), 2);
    }

    /// Writes the record of a container that was never created, with files of its own.
    fn record(runtime: &ShimRuntime, dir: &Path) -> ContainerRecord {
        let file = "../../tests/data/records/0.1.0/container/container.json";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let last: ContainerRecord = json::from_slice(&fs::read(file).unwrap()).unwrap();
        let record = ContainerRecord {
            data: dir.join("data"),
            log_path: dir.join("0.log"),
            termination_log: dir.join("termination-log"),
            boot_id: runtime.boot_id.clone(),
            ..last
        };
        fs::create_dir_all(record.data.join("upper")).unwrap();
        let of = runtime.layout.containers().join(&record.id);
        fs::create_dir_all(of.join("rootfs")).unwrap();
        state::write(&of, CONTAINER, &record, false).unwrap();
        record
    }

    #[test]
    fn a_container_that_its_shim_has_taken_back_is_forgotten_with_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime(dir.path());
        let record = record(&runtime, dir.path());
        assert_eq!(runtime.listing(None).unwrap().containers.len(), 1);
        let of = runtime.layout.containers().join(&record.id);
        let aside = of.with_file_name(format!("{}{}", record.id, state::REMOVING));
        fs::rename(&of, &aside).unwrap();
        assert_eq!(runtime.listing(None).unwrap().containers.len(), 0);
        assert!(!of.exists() && !aside.exists() && !record.data.exists());
    }

    /// Returns how many containers the next daemon finds after one that wrote a record and this trace of a shim.
    fn found_with(trace: impl Fn(&ContainerRecord, &Path)) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let ended = runtime(dir.path());
        let record = record(&ended, dir.path());
        let of = ended.layout.containers().join(&record.id);
        trace(&record, &of);
        drop(ended);
        let next = runtime(dir.path());
        let found = next.listing(None).unwrap().containers.len();
        assert_eq!(of.exists(), found == 1);
        found
    }

    /// A daemon that was killed between the record and the shim. What may have run is not forgotten.
    #[test]
    fn a_container_that_never_had_a_shim_is_forgotten_by_the_next_daemon() {
        assert_eq!(found_with(|_, _| ()), 0);
        for file in [STATE, EXIT, EXIT_COPY] {
            let damaged = |_: &ContainerRecord, of: &Path| fs::write(of.join(file), "{").unwrap();
            assert_eq!(found_with(damaged), 1, "{file}");
        }
        let logged = |record: &ContainerRecord, _: &Path| fs::write(&record.log_path, "").unwrap();
        assert_eq!(found_with(logged), 1);
    }

    #[test]
    fn a_record_that_somebody_else_has_removed_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime(dir.path());
        let record = record(&runtime, dir.path());
        runtime.listing(None).unwrap();
        let of = runtime.layout.containers().join(&record.id);
        fs::remove_dir_all(&of).unwrap();
        assert_eq!(runtime.listing(None).unwrap().containers.len(), 1);
        assert!(of.join(CONTAINER).exists() && record.data.exists());
    }

    #[test]
    fn a_container_is_removed_in_spite_of_what_an_earlier_removal_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime(dir.path());
        let record = record(&runtime, dir.path());
        runtime.listing(None).unwrap();
        let of = runtime.layout.containers().join(&record.id);
        let aside = of.with_file_name(format!("{}{}", record.id, state::REMOVING));
        fs::create_dir_all(aside.join("rootfs")).unwrap();
        let id = ContainerId::new(SCHEME, &record.id);
        runtime.remove(&id).unwrap();
        assert!(!of.exists() && !aside.exists() && !record.data.exists());
        assert_eq!(runtime.listing(None).unwrap().containers.len(), 0);
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
