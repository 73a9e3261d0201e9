//! The settings that parts of the daemon read anew whenever they need them, and the parts that must be told of new ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::base::live::Live;
use crate::daemon::settings::Settings;
use crate::engine::images::ImageGcPolicy;
use crate::engine::images::registry::Registries;
use crate::engine::shims::LogBounds;
use crate::pods::container_config::ResourcePolicy;
use crate::pods::drain::ShutdownGrace;
use crate::pods::workers::Syncer;
use crate::workloads;

/// The settings that parts of the daemon read anew.
#[derive(Clone)]
pub(super) struct LiveSettings {
    pub(super) image_gc: Live<ImageGcPolicy>,
    pub(super) registries: Live<Registries>,
    pub(super) resources: Live<ResourcePolicy>,
    pub(super) controllers: Live<workloads::Settings>,
    pub(super) debugging: Live<bool>,
    pub(super) resync: Live<Duration>,
    pub(super) shutdown: Live<ShutdownGrace>,
}

impl LiveSettings {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            image_gc: Live::new(settings.image_gc()),
            registries: Live::new(settings.registries.clone()),
            resources: Live::new(settings.resource_policy()),
            controllers: Live::new(settings.controllers()),
            debugging: Live::new(settings.enable_debugging_handlers),
            resync: Live::new(settings.sync_frequency),
            shutdown: Live::new(settings.shutdown_grace()),
        }
    }

    pub(super) fn set(&self, settings: &Settings) {
        self.image_gc.set(settings.image_gc());
        self.registries.set(settings.registries.clone());
        self.resources.set(settings.resource_policy());
        self.controllers.set(settings.controllers());
        self.debugging.set(settings.enable_debugging_handlers);
        self.resync.set(settings.sync_frequency);
        self.shutdown.set(settings.shutdown_grace());
    }
}

/// The parts whose settings a new configuration changes, besides those that clients ask.
pub(super) struct Reloading {
    pub(super) live: LiveSettings,
    pub(super) logs: Live<LogBounds>,
    pub(super) syncer: Arc<Syncer>,
    /// Channel that tells the sync loop that there may be room for more pods.
    pub(super) room_made: Sender<()>,
    /// Held during a reload.
    pub(super) turn: Mutex<()>,
}
