//! The daemon: starts every part, holds the lock of its root, and ends all threads in order.

mod adapters;
mod backend;
mod checks;
mod cluster;
mod containers;
mod counted;
mod error;
mod garbage;
mod last_daemon;
mod live_settings;
pub mod logging;
mod machine;
mod metrics;
mod parts;
mod pauses;
mod reload;
mod requests;
mod resources;
mod restarts;
mod root;
mod service_manager;
pub mod settings;
mod signals;
mod stores;
#[cfg(test)]
mod tests;
mod threads;
mod wiring;

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::Flock;
use nix::sys::signal::Signal;

use self::error::cannot;
pub use self::error::{DaemonError, EndError};
use self::parts::Engine;
use self::threads::{Threads, late};
use self::wiring::Running;
use crate::api::PodSource;
use crate::base::locks::Locked;
use crate::base::paths::Layout;
use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::process::{LAST, protect_from_the_oom_killer};
use crate::daemon::settings::Settings;
use crate::engine::images::ImageStore;
use crate::engine::shims::ShimRuntime;
use crate::face::server::Backend;
use crate::net::proxy::userspace;
use crate::pods::kuberuntime::KubeRuntime;

/// Longest wait of a shutdown for probes that wait for an answer over the network. The timeouts of such probes may be
/// much longer.
const PROBES_LIMIT: Duration = Duration::from_secs(1);

/// A running daemon.
pub struct Daemon {
    running: Running,
    /// The threads of the daemon; None after the threads got the order to end.
    threads: Mutex<Option<Threads>>,
    /// Lock of the root, held until the process ends. So a root has only one daemon.
    _lock: Flock<File>,
}

/// Asks the kernel to kill any pod before the daemon when memory is short. Without the daemon nothing is probed or
/// restarted.
fn protect() {
    if let Some(score) = protect_from_the_oom_killer().filter(|score| *score > LAST) {
        log::info!(
            "when memory is short, the kernel may kill the daemon before pods: its oom_score_adj is {score}, and without \
             CAP_SYS_RESOURCE it cannot be {LAST}"
        );
    }
}

impl Daemon {
    /// Blocks the signals that [`Self::wait_for_signal`] waits for, and signals without a meaning for the daemon. This
    /// function must run before the process starts its first thread. A signal that some thread does not block would
    /// end the whole daemon.
    pub fn block_signals() {
        signals::block();
    }

    /// Starts every part. Containers that an earlier daemon of this root has started are found and kept.
    ///
    /// # Errors
    /// Returns [`DaemonError`] if another daemon holds the root, or if a directory, the runtime, the socket or a
    /// thread is not available.
    pub fn start(settings: Settings, layout: Layout) -> Result<Self, DaemonError> {
        crate::base::sys::harden_process();
        protect();
        signals::block();
        let lock = root::prepare(&layout)?;
        let store = ImageStore::open(layout.images())?;
        let absolute = layout.absolute().map_err(cannot("find the root"))?;
        let options = settings.shims(&absolute);
        let logs = options.logs.clone();
        let runtime = ShimRuntime::new(absolute, options, store.clone())
            .map_err(cannot("set up the runtime"))?;
        runtime.resume_networks();
        let engine = Engine {
            networks: runtime.networks(),
            sandboxes: runtime.sandboxes(),
            runtime: Arc::new(runtime),
            logs,
            images: Arc::new(store.clone()),
            store,
        };
        engine.runtime.check()?;
        Self::wire(&settings, &layout, lock, engine)
    }

    fn wire(
        settings: &Settings,
        layout: &Layout,
        lock: Flock<File>,
        engine: Engine,
    ) -> Result<Self, DaemonError> {
        let (running, threads) = wiring::start(settings, layout, engine)?;
        log::info!(
            "podprobe {} runs as node {}, pods from {}",
            env!("CARGO_PKG_VERSION"),
            settings.node_name,
            settings.static_pod_path.display()
        );
        service_manager::ready();
        Ok(Self {
            running,
            threads: Mutex::new(Some(threads)),
            _lock: lock,
        })
    }

    /// Returns the backend, which clients and the live table read from.
    pub fn backend(&self) -> Arc<dyn Backend> {
        self.running.backend.clone()
    }

    /// Waits for TERM, INT or HUP.
    pub fn wait_for_signal(&self) -> Signal {
        signals::wait()
    }

    /// Reads the configuration again, and puts what can change at once into force. The log has the answer.
    pub fn reload(&self) {
        if let Err(e) = self.running.backend.reload_configuration() {
            log::error!("{e}");
        }
    }

    /// Ends every thread. Containers keep running.
    ///
    /// # Errors
    /// Returns [`EndError`] with the threads that have not ended within `limit`.
    pub fn shutdown(&self, limit: Duration) -> Result<(), EndError> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let Running {
            backend, runtime, ..
        } = &self.running;
        let Some(threads) = self.threads().take() else {
            return Ok(());
        };
        service_manager::stopping();
        let (ending, stop_proxy) = threads.stop();
        // The workers stop before the runtime's calls fail, so that a cancelled run does not count its errors as
        // failures.
        backend.workers.stop();
        runtime.interrupt();
        backend.pleg.cache().close();
        // Wakes the threads that wait for a change, so that each of these threads sees that it should end.
        backend.pods.feed.wake();
        let workers = backend.workers.shutdown(left());
        KubeRuntime::sweep_log_links(&backend.layout);
        // The proxy stops after the workers, so that no rule of a service stays in force for a pod that has just
        // ended.
        drop(stop_proxy);
        backend.pods.feed.wake();
        let probes = backend.prober.manager.shutdown(left().min(PROBES_LIMIT));
        if probes > 0 {
            // These probes hold no resources and change nothing any more. The probes end with the process.
            log::info!("{probes} probes still wait for an answer; they are given up");
        }
        let workers = workers.iter().map(|pod| format!("the worker of pod {pod}"));
        let threads: Vec<String> = workers.chain(late(ending, deadline)).collect();
        if threads.is_empty() {
            Ok(())
        } else {
            Err(EndError::Threads { threads, limit })
        }
    }

    /// Stops and removes every pod, as if all pod files were deleted.
    ///
    /// # Errors
    /// Returns [`EndError`] with the pods that are not removed within `limit`, or if the removal cannot begin.
    pub fn remove_all_pods(&self, limit: Duration) -> Result<(), EndError> {
        let deadline = Instant::now() + limit;
        let Running {
            backend,
            runtime,
            updates,
            ..
        } = &self.running;
        if let Some(threads) = &*self.threads()
            && !threads.stop_sources(deadline)
        {
            return Err(EndError::Source);
        }
        for source in &backend.sources.all {
            backend.sources.workloads.replace(*source, Vec::new());
        }
        // The controllers delete the pods that they have made, and would make others in place of those that go otherwise.
        let is_of_others = |source: &&PodSource| **source != PodSource::Controller;
        for source in backend.sources.all.iter().filter(is_of_others) {
            let none = backend
                .sources
                .config
                .merge(*source, Vec::new(), SystemTime::now());
            for update in none.updates {
                updates.send_timeout(update, limit)?;
            }
        }
        loop {
            let version = backend.pods.feed.version();
            let left = runtime.list_pods()?;
            if left.is_empty() && backend.workers.working().is_empty() {
                self.remove_services(deadline);
                return self.remove_cgroups();
            }
            if Instant::now() >= deadline {
                let pods = left
                    .iter()
                    .map(|p| format!("{}_{}", p.name, p.namespace))
                    .collect();
                return Err(EndError::Pods { pods, limit });
            }
            backend
                .pods
                .feed
                .wait_newer(version, Duration::from_millis(50));
        }
    }

    /// Removes the cgroups of pods that have ended. Each listing of the pods does so. The listing is repeated, because
    /// a listing of another thread may have begun before a pod ended.
    fn remove_cgroups(&self) -> Result<(), EndError> {
        let end = Instant::now() + Duration::from_secs(2);
        let top = &self.running.cgroup;
        let is_left = || Cgroups::detect().is_ok_and(|c| !c.dirs(top).is_empty());
        loop {
            self.running.runtime.list_pods()?;
            if !is_left() || Instant::now() >= end {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Removes the services from the data path, so that no client is sent to a pod that is gone.
    fn remove_services(&self, deadline: Instant) {
        let Running {
            backend,
            removal,
            proxy,
            ..
        } = &self.running;
        removal.order();
        backend.pods.feed.wake();
        while !removal.is_done() && Instant::now() < deadline {
            let version = backend.pods.feed.version();
            backend
                .pods
                .feed
                .wait_newer(version, Duration::from_millis(50));
        }
        userspace::end(proxy, Duration::from_secs(1));
    }

    fn threads(&self) -> MutexGuard<'_, Option<Threads>> {
        self.threads.locked()
    }
}
