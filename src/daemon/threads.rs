//! The threads that the daemon has started, and the order in which they end.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::cluster::rounds::RoundsThread;
use crate::engine::images::housekeeping::ImageKeeper;
use crate::engine::images::registry::PullStop;
use crate::engine::shims::exits::ExitListener;
use crate::face::server::Server;
use crate::net::proxy::health::Health;
use crate::pods::controllers::WallClockWatch;
use crate::pods::drain::Drain;
use crate::pods::pleg::Pleg;
use crate::pods::sources::{FileSource, HttpSource};

/// Time between two checks whether a thread has ended.
const STEP: Duration = Duration::from_millis(2);

/// All threads except those of pod workers and probe workers, which end with their managers.
pub(super) struct Threads {
    pub(super) server: Server,
    pub(super) files: FileSource,
    pub(super) url: Option<HttpSource>,
    pub(super) images: ImageKeeper,
    /// Handle that ends the pulls. The threads of pulls end with the pod workers that wait for them.
    pub(super) pulls: PullStop,
    pub(super) exits: ExitListener,
    pub(super) pleg: (Arc<Pleg>, Sender<()>),
    pub(super) sync_loop: (JoinHandle<()>, Sender<()>),
    pub(super) checkpoint: (JoinHandle<()>, Sender<()>),
    pub(super) eviction: (JoinHandle<()>, Sender<()>),
    /// The orders for all pods, which have a thread while pods end.
    pub(super) drain: Arc<Drain>,
    pub(super) network: (JoinHandle<()>, Sender<()>),
    pub(super) proxy: (JoinHandle<()>, Sender<()>),
    pub(super) health: (JoinHandle<()>, Arc<Health>),
    /// The thread, and the senders that end it: one for the thread, one for what it sends to the sync loop.
    pub(super) controllers: (JoinHandle<()>, Sender<()>),
    pub(super) wall_clock: WallClockWatch,
    pub(super) link: Option<RoundsThread>,
    pub(super) cluster_services: Option<RoundsThread>,
    /// The thread that feeds the watchdog of the service manager, if there is one.
    pub(super) watchdog: Option<(JoinHandle<()>, Sender<()>)>,
}

/// A thread that has the order to end.
pub(super) struct Ending {
    name: String,
    is_finished: Box<dyn Fn() -> bool>,
}

impl Ending {
    fn new(name: &str, is_finished: impl Fn() -> bool + 'static) -> Self {
        Self {
            name: name.to_owned(),
            is_finished: Box::new(is_finished),
        }
    }
}

impl Threads {
    /// Ends the sources of pods, so that no source adds a pod any more. Returns false if a source has not ended by
    /// `deadline`.
    pub(super) fn stop_sources(&self, deadline: Instant) -> bool {
        self.files.stop();
        self.url.iter().for_each(HttpSource::stop);
        self.link.iter().for_each(RoundsThread::stop);
        let url = || self.url.as_ref().is_none_or(HttpSource::is_finished);
        let link = || self.link.as_ref().is_none_or(RoundsThread::is_finished);
        let ended = || self.files.is_finished() && url() && link();
        while !ended() && Instant::now() < deadline {
            std::thread::park_timeout(STEP);
        }
        ended()
    }

    /// Orders every thread to end, and waits for none of them. Threads that bring in work get the order first. The
    /// thread `proxy` gets the order when the returned sender is dropped.
    pub(super) fn stop(self) -> (Vec<Ending>, Sender<()>) {
        let Self {
            server,
            files,
            url,
            images,
            pulls,
            exits,
            pleg: (pleg, stop_pleg),
            sync_loop: (sync_loop, stop_loop),
            checkpoint: (checkpoint, stop_checkpoint),
            eviction: (eviction, stop_eviction),
            drain,
            network: (network, stop_network),
            proxy: (proxy, stop_proxy),
            health: (health, of_health),
            controllers: (controllers, stop_controllers),
            wall_clock,
            link,
            cluster_services,
            watchdog,
        } = self;
        let watchdog = watchdog.map(|(thread, stop)| {
            drop(stop);
            thread
        });
        server.stop();
        files.stop();
        url.iter().for_each(HttpSource::stop);
        images.stop();
        pulls.stop();
        let exits = exits.stop();
        of_health.stop();
        wall_clock.stop();
        drain.stop();
        link.iter().for_each(RoundsThread::stop);
        cluster_services.iter().for_each(RoundsThread::stop);
        // The end of the sync loop closes the channels of results, so that no probe worker waits in a send.
        drop((
            stop_controllers,
            stop_loop,
            stop_checkpoint,
            stop_eviction,
            stop_network,
            stop_pleg,
        ));
        let ending = vec![
            Ending::new("the server", move || server.is_finished()),
            Ending::new("the watcher of pod files", move || files.is_finished()),
            Ending::new("the source of pods from a URL", move || {
                url.as_ref().is_none_or(HttpSource::is_finished)
            }),
            Ending::new("the image keeper", move || images.is_finished()),
            Ending::new("the listener for ends", move || exits.is_finished()),
            Ending::new("PLEG", move || pleg.is_finished()),
            Ending::new("the sync loop", move || sync_loop.is_finished()),
            Ending::new("the checkpoint", move || checkpoint.is_finished()),
            Ending::new("the watch of volumes", move || eviction.is_finished()),
            Ending::new("the drain", move || drain.is_finished()),
            Ending::new("the watch of networks", move || network.is_finished()),
            Ending::new("the services", move || proxy.is_finished()),
            Ending::new("the health checks", move || health.is_finished()),
            Ending::new("the controllers", move || controllers.is_finished()),
            Ending::new("the watch of the wall clock", move || {
                wall_clock.is_finished()
            }),
            Ending::new("the link to the cluster", move || {
                link.as_ref().is_none_or(RoundsThread::is_finished)
            }),
            Ending::new("the watch of the cluster's services", move || {
                let services = cluster_services.as_ref();
                services.is_none_or(RoundsThread::is_finished)
            }),
            Ending::new("the watchdog", move || {
                watchdog.as_ref().is_none_or(JoinHandle::is_finished)
            }),
        ];
        (ending, stop_proxy)
    }
}

/// Waits until all threads have ended, at most until `deadline`. Returns the names of the threads that have not ended.
pub(super) fn late(mut ending: Vec<Ending>, deadline: Instant) -> Vec<String> {
    loop {
        ending.retain(|thread| !(thread.is_finished)());
        if ending.is_empty() || Instant::now() >= deadline {
            return ending.into_iter().map(|thread| thread.name).collect();
        }
        std::thread::park_timeout(STEP);
    }
}
