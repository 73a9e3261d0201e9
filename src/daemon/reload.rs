//! A new configuration while the daemon runs: each part gets its new settings, and keys that need a restart are told.
//!
//! Invariants: a file that cannot be used changes nothing. One reload follows another.

use std::sync::Arc;

use super::backend::DaemonBackend;
use super::live_settings::Reloading;
use crate::base::locks::Locked;
use crate::daemon::logging;
use crate::daemon::settings::Settings;
use crate::face::server::RequestError;

impl DaemonBackend {
    /// Reads the configuration again, and gives each part its new settings. Returns the lines of the answer, which the log has
    /// too.
    pub(super) fn reload_configuration(&self) -> Result<Vec<String>, RequestError> {
        let _turn = self.reloading.turn.locked();
        let old = self.settings.get();
        let Some(origin) = &old.origin else {
            return Err(RequestError::NoConfiguration);
        };
        let unusable = |e| RequestError::Configuration(Box::new(e));
        let (settings, changes) = old.reloaded(&origin.load().map_err(unusable)?);
        self.apply(&settings);
        let summary = match changes.len() {
            0 => "nothing has changed".to_owned(),
            1 => "1 key has changed".to_owned(),
            n => format!("{n} keys have changed"),
        };
        let mut lines = vec![format!("{}: {summary}", origin.file())];
        lines.extend(changes);
        lines.iter().for_each(|line| log::info!("{line}"));
        self.settings.set(Arc::new(settings));
        Ok(lines)
    }

    fn apply(&self, settings: &Settings) {
        let Reloading {
            live,
            logs,
            syncer,
            room_made,
            ..
        } = &self.reloading;
        live.set(settings);
        logs.set(settings.log_bounds());
        logging::set_levels(settings.log_levels.clone());
        let max_back_off = settings.max_container_restart_period;
        syncer.set_max_back_off(max_back_off);
        self.evictions.set_max_back_off(max_back_off);
        self.reviews.set_lifetimes(settings.review_lifetimes());
        let images = self.kuberuntime.images();
        images.set_parallel(settings.parallel_image_pulls());
        self.node.update(|node| node.max_pods = settings.max_pods);
        // A full channel means that the sync loop already has a message.
        let _ = room_made.try_send(());
        self.pods.feed.wake();
    }
}
