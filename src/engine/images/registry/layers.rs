//! Pulls the layers of one image: a few threads fetch and unpack them, and then the image is committed to the store.
//!
//! Invariants: a layer is unpacked while it arrives, and no other copy of it is written to the disk. The image appears in
//! the store only if every digest, size and diff id is right. The unpacked files of a failed pull are removed.

use std::io::{Cursor, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::blob::{BlobReader, State};
use super::bounds::{self, Bounds};
use super::docker_config::DockerConfig;
use super::flights::Flights;
use super::hosts::Registries;
use super::manifest::{self, Compression, Descriptor};
use super::progress::PullProgress;
use super::resolve::{Resolved, check_document, of_store};
use super::session::Session;
use super::slots::Slots;
use crate::base::http_client::{FetchError, Sources, Stop, quoted};
use crate::base::live::Live;
use crate::base::locks::Locked;
use crate::engine::images::archive::Found;
use crate::engine::images::config::OciConfig;
use crate::engine::images::files::PullDir;
use crate::engine::images::reference::Reference;
use crate::engine::images::staging::Staged;
use crate::engine::images::store::{ImageStore, LoadedImage};
use crate::engine::images::stream;

/// Number of layers that all pulls of this process may unpack at once.
pub(super) const LAYERS_AT_ONCE: usize = 3;
/// Stack size in bytes of a layer's thread. The thread runs TLS and the decoder, and walks through the tree.
const STACK: usize = 1 << 20;

/// The state that all pulls of one [`super::RegistryPuller`] share.
pub(super) struct Shared {
    pub(super) store: ImageStore,
    pub(super) registries: Live<Registries>,
    /// Paths at which docker's config.json is searched if the settings name none.
    pub(super) docker_configs: Vec<std::path::PathBuf>,
    pub(super) sources: Sources,
    pub(super) bounds: Bounds,
    pub(super) layers: Slots,
    /// The slot for zstd. Only one layer of zstd is decoded at a time, because each decoder holds a window of up to 8
    /// MiB.
    pub(super) zstd: Slots,
    pub(super) flights: Flights<Layer>,
    pub(super) stop: Stop,
}

/// An unpacked layer, and the directory that holds this layer until its commit.
pub(super) struct Layer {
    /// The unpacked layer; None if the layer has been committed to the store already, by another pull.
    staged: Option<Staged>,
    _dir: Arc<PullDir>,
}

/// The task of one pull: the image, the logins to try first, the place for the progress, and the signal that stops the
/// pull.
pub(super) struct Wanted {
    pub(super) image: Reference,
    pub(super) credentials: Vec<DockerConfig>,
    pub(super) progress: Arc<PullProgress>,
    pub(super) stop: Stop,
}

/// The layers of one image, as one server offers them.
pub(super) struct Layers<'a> {
    pub(super) shared: &'a Shared,
    pub(super) wanted: &'a Wanted,
    pub(super) session: &'a Session,
    pub(super) image: &'a Resolved,
    pub(super) stop: &'a Stop,
}

impl Layers<'_> {
    /// Fetches the layers that are missing on the node, and commits the image.
    pub(super) fn pull(&self) -> Result<LoadedImage, FetchError> {
        let store = &self.shared.store;
        // A second round is needed if a layer that was on the node has been removed meanwhile.
        for _ in 0..2 {
            let missing = self.missing();
            let bytes = missing
                .iter()
                .map(|(layer, _)| layer.size)
                .fold(0, u64::saturating_add);
            self.wanted.progress.begins(missing.len(), bytes);
            let dir = Arc::new(store.files().pull_dir().map_err(of_store)?);
            let staging = store.staging_in(&dir, store.limits().bytes);
            let image = self.wanted.image.to_string();
            staging.require(bytes, &image).map_err(of_store)?;
            let layers = self.fetch_all(&missing, &dir)?;
            self.stop.check()?;
            let staged: Vec<&Staged> = layers.iter().filter_map(|l| l.staged.as_ref()).collect();
            let loaded = store
                .commit_pulled(self.found()?, &staged)
                .map_err(of_store)?;
            if let Some(mut loaded) = loaded {
                loaded.warnings = staged.iter().flat_map(|s| s.warnings.clone()).collect();
                return Ok(loaded);
            }
        }
        Err(FetchError::failed(
            "a layer of it was removed from this node during the pull",
        ))
    }

    fn found(&self) -> Result<Found, FetchError> {
        Ok(Found {
            names: vec![self.wanted.image.to_string()],
            id: self.image.id.clone(),
            config: OciConfig::parse(&self.image.config).map_err(of_store)?,
            digests: self.image.digests.clone(),
            layers: Vec::new(),
        })
    }

    /// Returns the layers that are not on the node, with their diff ids. A layer that occurs several times is returned
    /// once.
    fn missing(&self) -> Vec<(&Descriptor, &str)> {
        let store = self.shared.store.files();
        let mut seen = std::collections::BTreeSet::new();
        let all = self.image.manifest.layers.iter().zip(&self.image.diff_ids);
        all.map(|(layer, diff_id)| (layer, diff_id.as_str()))
            .filter(|(_, diff_id)| !store.has_layer(diff_id) && seen.insert(*diff_id))
            .collect()
    }

    /// Fetches the layers with a few threads. The first error ends all these threads.
    fn fetch_all(
        &self,
        missing: &[(&Descriptor, &str)],
        dir: &Arc<PullDir>,
    ) -> Result<Vec<Arc<Layer>>, FetchError> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(missing.len()));
        let failed: Mutex<Option<FetchError>> = Mutex::default();
        let work = || {
            while let Some((layer, diff_id)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.fetch(layer, diff_id, dir) {
                    Ok(layer) => done.locked().push(layer),
                    Err(e) => {
                        let mut failed = failed.locked();
                        failed.get_or_insert(e);
                        return self.stop.set();
                    }
                }
            }
        };
        std::thread::scope(|scope| -> std::io::Result<()> {
            for _ in 0..missing.len().min(LAYERS_AT_ONCE) {
                let builder = std::thread::Builder::new().name("pull-layer".into());
                builder.stack_size(STACK).spawn_scoped(scope, work)?;
            }
            Ok(())
        })
        .map_err(|e| FetchError::failed(format!("cannot start a thread: {e}")))?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(e) => Err(e),
            None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn fetch(
        &self,
        layer: &Descriptor,
        diff_id: &str,
        dir: &Arc<PullDir>,
    ) -> Result<Arc<Layer>, FetchError> {
        let shared = self.shared;
        let download = || {
            let staged = match shared.store.files().has_layer(diff_id) {
                true => None,
                false => Some(self.download(layer, diff_id, dir)?),
            };
            let _dir = dir.clone();
            Ok(Arc::new(Layer { staged, _dir }))
        };
        let (unpacked, own) = shared.flights.join(diff_id, self.stop, download)?;
        self.wanted.progress.layer(if own { 0 } else { layer.size });
        Ok(unpacked)
    }

    fn download(
        &self,
        layer: &Descriptor,
        diff_id: &str,
        dir: &PullDir,
    ) -> Result<Staged, FetchError> {
        let shared = self.shared;
        let take = |slots: &Slots| {
            let slot = slots.take(&|| self.stop.is_set());
            slot.ok_or_else(FetchError::cancelled)
        };
        let kind = manifest::compression(&layer.media_type)?;
        let _slot = take(&shared.layers)?;
        let _zstd = match kind {
            Compression::Zstd => Some(take(&shared.zstd)?),
            _ => None,
        };
        let mut blob = BlobReader {
            session: self.session,
            stop: self.stop,
            bounds: shared.bounds,
            digest: &layer.digest,
            size: layer.size,
            progress: &self.wanted.progress,
            state: State::default(),
        };
        let unpacked = self.unpack(&mut blob, layer, kind, dir);
        // If the connection failed, the decoder fails too. The cause is the error of the connection.
        match (blob.state.failure.take(), unpacked) {
            (Some(e), _) | (None, Err(e)) => Err(FetchError {
                text: format!("layer {}: {}", layer.digest, e.text),
                kind: e.kind,
            }),
            (None, Ok((staged, digest))) => {
                check_document("layer", &layer.digest, None, &digest, layer.size)?;
                match staged.diff_id == diff_id {
                    true => Ok(staged),
                    false => Err(FetchError::failed(format!(
                        "the layer {} unpacks to {}, and the configuration says {diff_id}",
                        layer.digest, staged.diff_id
                    ))),
                }
            }
        }
    }

    fn unpack(
        &self,
        blob: &mut BlobReader<'_>,
        layer: &Descriptor,
        kind: Compression,
        dir: &PullDir,
    ) -> Result<(Staged, String), FetchError> {
        let store = &self.shared.store;
        let mut start = Vec::with_capacity(4);
        let read = |e: std::io::Error| FetchError::failed(e.to_string());
        Read::take(&mut *blob, 4)
            .read_to_end(&mut start)
            .map_err(read)?;
        // Zstd needs much memory, so its decoders are bounded by a slot. The media type decides whether the slot is
        // taken, so the media type must be right.
        if stream::is_zstd(&start) && kind != Compression::Zstd {
            let said = quoted(&layer.media_type);
            return Err(FetchError::failed(format!(
                "the registry says {said}, and it is zstd"
            )));
        }
        let most = bounds::unpacked(layer.size, store.limits().bytes);
        let staging = store.staging_in(dir, most);
        let whole = Cursor::new(start).chain(blob);
        let (staged, digest, _) = staging.stage(whole, &layer.digest).map_err(of_store)?;
        Ok((staged, digest))
    }
}
