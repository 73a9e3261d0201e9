//! Implements [`Puller`] for registries. Each pull has a thread of its own, so that a caller that cancels the pull can
//! return at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::bounds::Bounds;
use super::flights::Flights;
use super::hosts::Registries;
use super::layers::{LAYERS_AT_ONCE, Shared, Wanted};
use super::progress::PullProgress;
use super::pull;
use super::slots::Slots;
use crate::base::http_client::{FetchError, Kind, SLICE, Sources, Stop};
use crate::base::live::Live;
use crate::engine::images::manager::{PullError, PullRequest, Puller};
use crate::engine::images::reference::Reference;
use crate::engine::images::store::{ImageStore, LoadedImage};

/// Stack size in bytes of the thread of a pull. The thread runs TLS, and parses JSON documents of at most 4 MiB.
const STACK: usize = 1 << 20;
/// Longest time that the caller waits for a cancelled pull. A pull that is looking up a host name cannot end at once,
/// and ends after the lookup.
const ENDING: Duration = Duration::from_secs(1);

/// Pulls images from the registries in the images' names, or from mirrors. Clones of a puller share their downloads.
#[derive(Clone)]
pub struct RegistryPuller {
    shared: Arc<Shared>,
}

/// A handle that ends all pulls of a puller.
#[derive(Clone, Debug)]
pub struct PullStop(Stop);

impl PullStop {
    /// Ends the pulls that run, and makes all later pulls fail. Never blocks.
    pub fn stop(&self) {
        self.0.set();
    }
}

impl RegistryPuller {
    /// Returns a puller that pulls into `store`. Docker's config.json is the file that `registries` names. If
    /// `registries` names none, it is the first file of `docker_configs` that exists.
    pub fn new(
        store: ImageStore,
        registries: impl Into<Live<Registries>>,
        docker_configs: Vec<PathBuf>,
    ) -> Self {
        Self::with_bounds(store, registries, docker_configs, Bounds::default())
    }

    /// Returns a puller as [`Self::new`] does, with bounds of the caller's choice.
    pub fn with_bounds(
        store: ImageStore,
        registries: impl Into<Live<Registries>>,
        docker_configs: Vec<PathBuf>,
        bounds: Bounds,
    ) -> Self {
        let shared = Shared {
            store,
            registries: registries.into(),
            docker_configs,
            sources: Sources::of_environment(),
            bounds,
            layers: Slots::new(LAYERS_AT_ONCE),
            zstd: Slots::new(1),
            flights: Flights::default(),
            stop: Stop::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns a handle that ends all pulls of this puller.
    pub fn stopper(&self) -> PullStop {
        PullStop(self.shared.stop.clone())
    }

    /// Pulls an image, and writes the progress into `progress`.
    ///
    /// # Errors
    /// Returns [`PullError`] if the pull failed or was cancelled. In this case no part of the image is kept.
    pub fn pull_watched(
        &self,
        request: &PullRequest<'_>,
        progress: Arc<PullProgress>,
    ) -> Result<LoadedImage, PullError> {
        let stop = self.shared.stop.child();
        let wanted = Wanted {
            image: request.image.clone(),
            credentials: request.credentials.to_vec(),
            progress,
            stop: stop.clone(),
        };
        let (done, result) = bounded(1);
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("pull".into())
            .stack_size(STACK)
            .spawn(move || _ = done.send(pull::pull(&shared, &wanted)));
        if let Err(e) = thread {
            return Err(PullError::Failed(format!("cannot start a thread: {e}")));
        }
        wait(&result, &stop, request.cancelled).map_err(|e| of_pull(request.image, &e))
    }
}

/// Waits for the result of a pull. After the caller has cancelled the pull, waits for the result at most [`ENDING`].
fn wait(
    result: &Receiver<Result<LoadedImage, FetchError>>,
    stop: &Stop,
    cancelled: &dyn Fn() -> bool,
) -> Result<LoadedImage, FetchError> {
    let mut ending = None;
    loop {
        match result.recv_timeout(SLICE) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                let text = "the thread of the pull panicked: a bug of podprobe";
                return Err(FetchError::failed(text));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ending.is_none() && (stop.is_set() || cancelled()) {
            stop.set();
            ending = Some(Instant::now() + ENDING);
        }
        if ending.is_some_and(|at| Instant::now() >= at) {
            return Err(FetchError::cancelled());
        }
    }
}

fn of_pull(image: &Reference, e: &FetchError) -> PullError {
    let text = format!("cannot pull {image}: {e}");
    match e.kind {
        Kind::Cancelled => PullError::Cancelled,
        Kind::Unavailable => PullError::RegistryUnavailable(format!(
            "{text}; without a registry `podprobe image load FILE` puts an image on this node"
        )),
        Kind::Unauthorized | Kind::Failed => PullError::Failed(text),
    }
}

impl Puller for RegistryPuller {
    fn serves(&self, _: &Reference) -> bool {
        self.shared.registries.get().pull
    }

    fn pull(
        &self,
        request: &PullRequest<'_>,
        progress: &Arc<PullProgress>,
    ) -> Result<u64, PullError> {
        let loaded = self.pull_watched(request, progress.clone())?;
        for warning in &loaded.warnings {
            log::warn!("{}: {warning}", request.image);
        }
        Ok(loaded.size)
    }
}
