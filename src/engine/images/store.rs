//! The image store: a directory that the daemon and the command line share.
//!
//! ```text
//! lock                   locked (flock) by the process that writes
//! names.json             name -> image id
//! images/<hex>.json      one record per image
//! layers/<hex>/fs        an unpacked layer by its diff id, complete and never changed
//! layers/<hex>/layer.json
//! tmp/                   unfinished files; the next writer empties it
//! pulls/<name>/          layers of a running pull, with a lock of its own
//! dropped.json           archives that were loaded from a directory, see `dropped`
//! ```
//!
//! Invariants: readers need no lock. Every file is on the disk before a rename makes it visible, in the order layer,
//! record, name. The directory has mode 0700, so that the node's users cannot reach a setuid file of an image.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use serde::Serialize;

use super::archive::{self, Blob, Found, Naming, stem};
use super::config::{ImageConfig, OciConfig};
use super::error::ImageError;
use super::files::{Names, PullDir, Record, StoreDir};
use super::image_gc::DiskUsage;
use super::layer::Limits;
use super::reference::{self, Reference};
use super::repair;
use super::source::Source;
use super::space::Space;
use super::staging::{Staged, Staging};
use super::stream;
use crate::base::clock::Time;

/// A handle on the image store. The handle holds no descriptor and no lock between calls. Several threads and processes
/// may use the store at once.
#[derive(Clone, Debug)]
pub struct ImageStore {
    dir: StoreDir,
    limits: Limits,
}

/// An image that a load or import put into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// Id of the image: the digest `sha256:…` of its configuration.
    pub id: String,
    /// The names of the image, normalised.
    pub names: Vec<String>,
    /// Size in bytes of the files in the image's layers.
    pub size: u64,
    /// Warnings about metadata and files of the archive that could not be kept (such as an attribute unknown to the
    /// file system), at most 20 per layer.
    pub warnings: Vec<String>,
}

/// A row of the output of `image list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Normalised name. None if the name went to another image, or was removed while a container used the image.
    pub name: Option<String>,
    /// Id of the image, `sha256:…`.
    pub id: String,
    /// Size in bytes of the files in the image's layers. A layer that several images share counts in the size of each
    /// image.
    pub size: u64,
    /// Time at which the image was built, according to the image.
    pub created: Option<Time>,
}

/// An image that a container can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Id of the image: the digest `sha256:…` of its configuration.
    pub id: String,
    /// The normalised reference by which the image was found.
    pub name: String,
    /// True if a pull from a registry gave the image the name `name`. False if somebody loaded or imported the image
    /// under this name.
    pub pulled: bool,
    /// The image's defaults for its process.
    pub config: ImageConfig,
    /// Directories of the unpacked layers, topmost first: the order of overlayfs and of [`super::overlay::mount`].
    pub layers: Vec<PathBuf>,
}

/// The details of an image in the store, to be shown to people and programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageDetails {
    /// Id of the image: the digest `sha256:…` of its configuration.
    pub id: String,
    /// The names of the image.
    pub names: Vec<String>,
    /// The names under which the image was pulled from a registry.
    pub pulled: Vec<String>,
    /// Digests of the image's manifests, and of the indexes that led to them.
    pub digests: Vec<String>,
    /// Time at which the image was built, according to the image.
    pub created: Option<Time>,
    /// Size in bytes of the files in the image's layers.
    pub size: u64,
    /// The image's defaults for its process.
    pub config: ImageConfig,
    /// Diff ids of the layers, bottom first.
    pub layers: Vec<String>,
}

impl ImageStore {
    /// Opens the store at `dir`, and creates the store if it is missing. Removes the leftovers of dead writers and
    /// repairs damaged files, unless another process is writing.
    pub fn open(dir: PathBuf) -> Result<Self, ImageError> {
        let store = Self {
            dir: StoreDir::new(dir),
            limits: Limits::default(),
        };
        store.dir.create()?;
        // If nothing can be written, the store is opened all the same, because images can still be read.
        if let Err(e) = store.tidy() {
            log::warn!("{e}; images can be used, but not loaded or removed");
        }
        Ok(store)
    }

    /// Repairs the store, unless another process is writing.
    fn tidy(&self) -> Result<(), ImageError> {
        match self.dir.try_lock()? {
            Some(_lock) => repair::repair(&self.dir).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the store with other limits for layers.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Loads the images of an OCI layout (a directory, or a tar, which may be compressed) or of a docker archive.
    /// Returns when the images are on the disk. Blocks while another process writes.
    ///
    /// The names of the images come from the archive: `io.containerd.image.name`, `org.opencontainers.image.ref.name`,
    /// `RepoTags`.
    pub fn load(&self, path: &Path) -> Result<Vec<LoadedImage>, ImageError> {
        self.load_as(path, None)
    }

    /// Loads an archive as [`Self::load`] does. If the archive has a single image, the image gets the name `name` too.
    pub fn load_as(&self, path: &Path, name: Option<&str>) -> Result<Vec<LoadedImage>, ImageError> {
        self.load_named(
            path,
            Naming {
                stem: &stem(path),
                name,
                fall_back: false,
            },
        )
    }

    /// Makes an image from a root file system: a directory, which is copied, or a tar of such a directory, which may be
    /// compressed. Other file systems mounted below the directory are left out. A statically linked program becomes an
    /// image that holds only `/bin/PROGRAM`. A container of this image runs the program unless `config` has a command.
    /// The same content and configuration give the same id.
    pub fn import(
        &self,
        path: &Path,
        name: &str,
        config: ImageConfig,
    ) -> Result<LoadedImage, ImageError> {
        let name = Reference::parse(name)?.to_string();
        let (_lock, names) = self.lock()?;
        let mut config = config;
        let mut staged = if path.is_dir() {
            self.staging().stage_directory(path)?
        } else {
            let (staged, program) = self.staging().stage_file(path)?;
            if let Some(program) = program
                && config.entrypoint.is_empty()
                && config.cmd.is_empty()
            {
                config.entrypoint.push(program);
            }
            staged
        };
        let oci = OciConfig::of(&config, None, vec![staged.diff_id.clone()]);
        let bytes = serde_json::to_vec(&oci)
            .map_err(|e| ImageError::io("write the image configuration", e))?;
        let record = Record {
            id: stream::sha256(&bytes),
            config,
            diff_ids: vec![staged.diff_id.clone()],
            created: Some(Time::now()),
            size: staged.bytes,
            digests: BTreeSet::new(),
            names: None,
            pulled: BTreeSet::new(),
        };
        let warnings = std::mem::take(&mut staged.warnings);
        self.commit(names, &[&staged], vec![(record, vec![name])])
            .map(|mut loaded| LoadedImage {
                warnings,
                ..loaded.remove(0)
            })
    }

    /// Returns a row for each name of each image. The rows are sorted by repository, and for each repository the newest
    /// image comes first. Rows for images without a name come last, the newest image first.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        let names = self.names()?;
        let mut unnamed: BTreeSet<String> = self.dir.ids()?.into_iter().collect();
        let mut rows = Vec::new();
        for (name, id) in &names {
            unnamed.remove(id);
            rows.push((Some(name.clone()), id.clone()));
        }
        rows.extend(unnamed.into_iter().map(|id| (None, id)));
        let row = |(name, id): (Option<String>, String)| {
            // An image without a readable record has a row too, so that a person can remove it. Another process may
            // have removed the image meanwhile, or the image is damaged.
            let record = self.dir.record(&id).ok().flatten();
            ImageRecord {
                name,
                id,
                size: record.as_ref().map_or(0, |r| r.size),
                created: record.and_then(|r| r.created),
            }
        };
        let mut rows: Vec<ImageRecord> = rows.into_iter().map(row).collect();
        rows.sort_by_cached_key(order);
        Ok(rows)
    }

    /// Returns the image that a reference means: a name, a name with a digest, or an id (`sha256:…`).
    pub fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        let names = self.names()?;
        let not_found = |similar| ImageError::NotFound {
            reference: reference.into(),
            similar,
        };
        if reference::is_digest(reference) {
            let record = self
                .dir
                .record(reference)?
                .ok_or_else(|| not_found(Vec::new()))?;
            return self.image(record, reference.into());
        }
        let wanted = Reference::parse(reference)?;
        let id = match &wanted.digest {
            Some(digest) => self.id_by_digest(digest)?,
            None => names.get(&wanted.to_string()).cloned(),
        };
        let id = id.ok_or_else(|| {
            not_found(reference::similar(
                &wanted,
                names.keys().map(String::as_str),
            ))
        })?;
        let record = match self.dir.record(&id) {
            Ok(Some(record)) => record,
            Ok(None) => return Err(damaged(&id, "its record is missing")),
            Err(ImageError::Corrupt { .. }) => {
                return Err(damaged(&id, "its record is damaged"));
            }
            Err(e) => return Err(e),
        };
        self.image(record, wanted.to_string())
    }

    /// Returns the details of the image that a reference means. Accepts the references of [`Self::resolve`].
    pub fn inspect(&self, reference: &str) -> Result<ImageDetails, ImageError> {
        let image = self.resolve(reference)?;
        let names = repair::names_for(&self.names()?, &image.id);
        let record = self.dir.record(&image.id)?;
        let record = record.ok_or_else(|| damaged(&image.id, "its record is missing"))?;
        Ok(ImageDetails {
            id: record.id,
            pulled: record.pulled.intersection(&names).cloned().collect(),
            names: names.into_iter().collect(),
            digests: record.digests.into_iter().collect(),
            created: record.created,
            size: record.size,
            config: record.config,
            layers: record.diff_ids,
        })
    }

    /// Returns the size and the free space of the file system of the store.
    pub(super) fn disk(&self) -> Result<DiskUsage, ImageError> {
        let failed = |e| ImageError::io(format!("look how full {} is", self.dir().display()), e);
        Space::of(self.dir())?.usage().map_err(failed)
    }

    /// Returns the store's directory. Each change of an image name replaces the file [`NAMES`](super::NAMES) in this
    /// directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn files(&self) -> &StoreDir {
        &self.dir
    }

    fn staging(&self) -> Staging<'_> {
        Staging {
            dir: &self.dir,
            limits: self.limits,
            at: self.dir.tmp(),
        }
    }

    /// Returns the place in which a pull unpacks its layers: the pull's own directory `at`. `bytes` is the size limit
    /// of each layer.
    pub(super) fn staging_in<'a>(&'a self, at: &PullDir, bytes: u64) -> Staging<'a> {
        Staging {
            dir: &self.dir,
            limits: Limits {
                bytes,
                ..self.limits
            },
            at: at.path().to_owned(),
        }
    }

    /// Returns the limits for one layer.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the names for a reader. Does not repair damaged files, because the next writer does.
    pub(super) fn names(&self) -> Result<Names, ImageError> {
        repair::read_names(&self.dir)
    }

    /// Takes the store's lock, repairs damaged files, and returns the names for a writer.
    pub(super) fn lock(&self) -> Result<(Flock<File>, Names), ImageError> {
        let lock = self.dir.lock()?;
        Ok((lock, repair::repair(&self.dir)?))
    }

    pub(super) fn load_named(
        &self,
        path: &Path,
        naming: Naming<'_>,
    ) -> Result<Vec<LoadedImage>, ImageError> {
        let (_lock, names) = self.lock()?;
        let source = Source::open(path, &self.dir.tmp())?;
        let found = archive::read(&source, naming)?;
        let staging = self.staging();
        let new = self.new_layers(&found);
        let bytes = new.iter().map(|(blob, _)| source.size(&blob.path)).sum();
        staging.require(bytes, &source.name())?;
        let staged = new
            .into_iter()
            .map(|(blob, diff_id)| staging.stage_blob(&source, blob, diff_id))
            .collect::<Result<Vec<_>, _>>()?;
        let by_reference: Vec<&Staged> = staged.iter().collect();
        let records = found
            .into_iter()
            .map(|f| self.found_record(f, &by_reference))
            .collect::<Result<Vec<_>, _>>()?;
        let warnings: Vec<String> = staged.iter().flat_map(|s| s.warnings.clone()).collect();
        let mut loaded = self.commit(names, &by_reference, records)?;
        if let Some(first) = loaded.first_mut() {
            first.warnings = warnings;
        }
        Ok(loaded)
    }

    /// Returns the layers that the store does not have, with their diff ids. A layer that occurs several times is
    /// returned once.
    fn new_layers<'a>(&self, found: &'a [Found]) -> Vec<(&'a Blob, &'a str)> {
        let mut seen = BTreeSet::new();
        let all = found
            .iter()
            .flat_map(|image| image.layers.iter().zip(&image.config.rootfs.diff_ids));
        all.map(|(blob, diff_id)| (blob, diff_id.as_str()))
            .filter(|(_, diff_id)| !self.dir.has_layer(diff_id) && seen.insert(*diff_id))
            .collect()
    }

    fn found_record(
        &self,
        found: Found,
        staged: &[&Staged],
    ) -> Result<(Record, Vec<String>), ImageError> {
        let mut size = 0;
        for diff_id in &found.config.rootfs.diff_ids {
            size += match staged.iter().find(|s| s.diff_id == *diff_id) {
                Some(layer) => layer.bytes,
                None => self.dir.layer_bytes(diff_id)?,
            };
        }
        let record = Record {
            id: found.id,
            config: found.config.image_config(),
            created: found.config.created(),
            diff_ids: found.config.rootfs.diff_ids,
            size,
            digests: found.digests.into_iter().collect(),
            names: None,
            pulled: BTreeSet::new(),
        };
        Ok((record, found.names))
    }

    /// Moves the layers of a pulled image to their place and makes the image visible. Returns None if a layer is
    /// missing: it was on the node and therefore was not pulled, but has been removed meanwhile.
    pub(super) fn commit_pulled(
        &self,
        found: Found,
        staged: &[&Staged],
    ) -> Result<Option<LoadedImage>, ImageError> {
        let (_lock, names) = self.lock()?;
        let is_there = |diff_id: &String| {
            let unpacked = |s: &&Staged| s.diff_id == *diff_id && s.is_there();
            self.dir.has_layer(diff_id) || staged.iter().any(unpacked)
        };
        if !found.config.rootfs.diff_ids.iter().all(is_there) {
            return Ok(None);
        }
        let (mut record, new_names) = self.found_record(found, staged)?;
        record.pulled.extend(new_names.iter().cloned());
        let mut loaded = self.commit(names, staged, vec![(record, new_names)])?;
        Ok(loaded.pop())
    }

    /// Makes layers visible first, then records, then names. The files of each step are on the disk before the next
    /// step begins.
    fn commit(
        &self,
        mut names: Names,
        staged: &[&Staged],
        images: Vec<(Record, Vec<String>)>,
    ) -> Result<Vec<LoadedImage>, ImageError> {
        self.staging().commit_layers(staged)?;
        let mut loaded = Vec::new();
        for (mut record, new_names) in images {
            names.extend(new_names.iter().map(|n| (n.clone(), record.id.clone())));
            record.names = Some(repair::names_for(&names, &record.id));
            // If the same image was loaded from another archive before, it keeps its earlier digests.
            let before = self.dir.record(&record.id).ok().flatten();
            if let Some(before) = before {
                record.digests.extend(before.digests);
                // A pulled name that is now given by hand does not count as pulled any more.
                let other = before.pulled.into_iter().filter(|n| !new_names.contains(n));
                record.pulled.extend(other);
            }
            self.dir.write_record(&record)?;
            loaded.push(LoadedImage {
                id: record.id,
                names: new_names,
                size: record.size,
                warnings: Vec::new(),
            });
        }
        repair::write_names(&self.dir, &names)?;
        Ok(loaded)
    }

    fn image(&self, record: Record, name: String) -> Result<Image, ImageError> {
        // Overlayfs accepts a directory only once. So a layer that occurs twice is mounted only at its topmost place.
        let mut seen = BTreeSet::new();
        let layers: Vec<PathBuf> = record
            .diff_ids
            .iter()
            .rev()
            .filter(|d| seen.insert(d.as_str()))
            .map(|d| self.dir.layer_dir(d).join("fs"))
            .collect();
        match layers.iter().find(|l| !l.is_dir()) {
            Some(missing) => Err(damaged(
                &record.id,
                &format!("its layer {} is missing", missing.display()),
            )),
            None => Ok(Image {
                id: record.id,
                pulled: record.pulled.contains(&name),
                name,
                config: record.config,
                layers,
            }),
        }
    }

    fn id_by_digest(&self, digest: &str) -> Result<Option<String>, ImageError> {
        let known = |id: &String| {
            let record = self.dir.record(id).ok().flatten();
            id == digest || record.is_some_and(|r| r.digests.contains(digest))
        };
        Ok(self.dir.ids()?.into_iter().find(known))
    }
}

/// Returns the sort key of a row: first the repository, then the newest image, then the name. Images without a name come
/// last.
fn order(row: &ImageRecord) -> impl Ord + use<> {
    let reference = row.name.as_deref().map(Reference::parse);
    let repository = reference.and_then(Result::ok).map(|r| r.repository);
    (
        row.name.is_none(),
        repository,
        std::cmp::Reverse(row.created),
        row.name.clone(),
    )
}

fn damaged(id: &str, why: &str) -> ImageError {
    ImageError::corrupt(format!("image {id}"), format!("{why}; load it again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_by_repository_and_the_newest_first() {
        let row = |name: Option<&str>, created: Option<&str>| ImageRecord {
            name: name.map(str::to_owned),
            id: String::new(),
            size: 0,
            created: created.map(|t| serde_json::from_value(t.into()).unwrap()),
        };
        let (old, new) = (Some("2024-01-01T00:00:00Z"), Some("2025-01-01T00:00:00Z"));
        let sorted = [
            row(Some("docker.io/library/a:9"), old),
            row(Some("docker.io/library/b:10"), new),
            row(Some("docker.io/library/b:1"), old),
            row(Some("docker.io/library/b:2"), old),
            row(Some("docker.io/library/b:3"), None),
            row(Some("quay.io/a:1"), new),
            row(None, new),
            row(None, old),
        ];
        let mut rows = sorted.to_vec();
        rows.reverse();
        rows.sort_by_cached_key(order);
        assert_eq!(rows, sorted);
    }
}
