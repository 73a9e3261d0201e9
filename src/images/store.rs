//! The image store: one directory, shared by the daemon and the command line.
//!
//! ```text
//! lock                   held (flock) by whoever writes
//! names.json             name -> image id
//! images/<hex>.json      one record per image
//! layers/<hex>/fs        an unpacked layer by its diff id, complete and never changed
//! layers/<hex>/layer.json
//! tmp/                   what is being made; emptied by the next writer
//! dropped.json           see `dropped`
//! ```
//!
//! Invariants: readers need no lock, because everything appears by rename, after it is on the disk, in the order layer,
//! record, name. The directory is 0700: a setuid file of an image is out of reach of the node's users.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::archive::{self, Found, Naming};
use super::config::{ImageConfig, OciConfig};
use super::error::ImageError;
use super::files::{NAMES, Names, private_dir, sync_dir, unique};
use super::layer::Limits;
use super::reference::{self, Reference};
use super::source::Source;
use super::staging::{LayerRecord, Staged};
use super::{dropped, stream};
use crate::clock::Time;

/// A handle on the store; holds no descriptor and no lock between calls. May be used from several threads and
/// processes at once.
#[derive(Clone, Debug)]
pub struct ImageStore {
    dir: PathBuf,
    limits: Limits,
}

/// What a load or import put into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// `sha256:…` of the configuration.
    pub id: String,
    /// Its names, normalised.
    pub names: Vec<String>,
    /// Bytes of the files of its layers.
    pub size: u64,
    /// What could not be kept of its files (an attribute the file system does not know), at most 20 a layer.
    pub warnings: Vec<String>,
}

/// A row of `image list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Normalised; None when the name went to another image, or was removed while a container used it.
    pub name: Option<String>,
    /// `sha256:…`.
    pub id: String,
    /// Bytes of the files of its layers; layers shared with other images count for each.
    pub size: u64,
    /// When it was built, as the image says it.
    pub created: Option<Time>,
}

/// An image, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…` of the configuration.
    pub id: String,
    /// What the reference resolved to, normalised.
    pub name: String,
    /// What the image says of its process.
    pub config: ImageConfig,
    /// The unpacked layers, topmost first: the order of overlayfs and of [`super::overlay::mount`].
    pub layers: Vec<PathBuf>,
}

/// What came of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names that are gone.
    pub names: Vec<String>,
    /// Ids of the images that are gone with their last name.
    pub images: Vec<String>,
    /// Ids that have no name any more and stay because they are in use; a later `remove` or `prune` takes them.
    pub in_use: Vec<String>,
}

/// `images/<hex>.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    id: String,
    config: ImageConfig,
    /// Bottom first.
    diff_ids: Vec<String>,
    created: Option<Time>,
    size: u64,
    /// Digests of manifests and indexes it came by, for `name@sha256:…`.
    digests: BTreeSet<String>,
}

impl ImageStore {
    /// Opens the store at `dir`, creating it. Leftovers of a writer that died are removed, unless another is writing.
    pub fn open(dir: PathBuf) -> Result<Self, ImageError> {
        let store = Self {
            dir,
            limits: Limits::default(),
        };
        if let Some(above) = store.dir.parent() {
            fs::create_dir_all(above)
                .map_err(|e| ImageError::io(format!("create {}", above.display()), e))?;
        }
        ["", "images", "layers", "tmp"]
            .iter()
            .try_for_each(|sub| private_dir(&store.dir.join(sub)))?;
        // Held by someone: what lies in tmp/ is theirs.
        if let Ok(_lock) = Flock::lock(store.lock_file()?, FlockArg::LockExclusiveNonblock) {
            store.clear_tmp();
        }
        Ok(store)
    }

    /// The same store with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Loads the images of an OCI layout (directory, or tar, which may be compressed) or of a docker archive, and
    /// returns them once they are on the disk. Blocks while another process writes.
    ///
    /// Names come from the archive: `io.containerd.image.name`, `org.opencontainers.image.ref.name`, `RepoTags`.
    pub fn load(&self, path: &Path) -> Result<Vec<LoadedImage>, ImageError> {
        self.load_as(path, None)
    }

    /// As [`Self::load`]; when the archive has one image, it is given `name` too.
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

    /// Makes an image of a root file system: a directory, which is copied, or a tar of one, which may be compressed.
    /// Other file systems mounted below the directory are left out. The same content and configuration give the same id.
    pub fn import(
        &self,
        path: &Path,
        name: &str,
        config: ImageConfig,
    ) -> Result<LoadedImage, ImageError> {
        let name = Reference::parse(name)?.to_string();
        let _lock = self.lock()?;
        let mut staged = if path.is_dir() {
            self.stage_directory(path)?
        } else {
            self.stage_file(path)?
        };
        let oci = OciConfig::for_import(&config, &staged.diff_id);
        let bytes = serde_json::to_vec(&oci)
            .map_err(|e| ImageError::io("write the image configuration", e))?;
        let record = Record {
            id: stream::sha256(&bytes),
            config,
            diff_ids: vec![staged.diff_id.clone()],
            created: Some(Time::now()),
            size: staged.bytes,
            digests: BTreeSet::new(),
        };
        let warnings = std::mem::take(&mut staged.warnings);
        self.commit(&[staged], vec![(record, vec![name])])
            .map(|mut loaded| LoadedImage {
                warnings,
                ..loaded.remove(0)
            })
    }

    /// One row per name, sorted by name, then the images without one.
    pub fn list(&self) -> Result<Vec<ImageRecord>, ImageError> {
        let names = self.names()?;
        let mut unnamed: BTreeSet<String> = self.ids()?.into_iter().collect();
        let mut rows = Vec::new();
        for (name, id) in &names {
            unnamed.remove(id);
            rows.push((Some(name.clone()), id.clone()));
        }
        rows.extend(unnamed.into_iter().map(|id| (None, id)));
        let row = |(name, id): (Option<String>, String)| {
            // Removed by another process meanwhile, or damaged: it still has a row, so that it can be removed.
            let record = self.record(&id).ok().flatten();
            ImageRecord {
                name,
                id,
                size: record.as_ref().map_or(0, |r| r.size),
                created: record.and_then(|r| r.created),
            }
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// The image a reference means: a name, a name with a digest, or the id (`sha256:…`) itself.
    pub fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        let names = self.names()?;
        let not_found = |similar| ImageError::NotFound {
            reference: reference.into(),
            similar,
        };
        if reference::is_digest(reference) {
            let record = self
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
        let record = self
            .record(&id)?
            .ok_or_else(|| damaged(&id, "its record is missing"))?;
        self.image(record, wanted.to_string())
    }

    /// Removes a name, or all names of an id (`sha256:…`). Images left without a name go with the layers no other image
    /// has, unless `in_use` says of their id that a container runs on them.
    pub fn remove(&self, name: &str, in_use: &dyn Fn(&str) -> bool) -> Result<Removed, ImageError> {
        let _lock = self.lock()?;
        let mut names = self.names()?;
        let by_id = reference::is_digest(name);
        let gone: Vec<String> = if by_id {
            names
                .iter()
                .filter(|(_, id)| *id == name)
                .map(|(n, _)| n.clone())
                .collect()
        } else {
            let wanted = Reference::parse(name)?;
            names
                .contains_key(&wanted.to_string())
                .then(|| wanted.to_string())
                .into_iter()
                .collect()
        };
        if gone.is_empty() && !(by_id && self.record_path(name).exists()) {
            let similar = Reference::parse(name)
                .map(|r| reference::similar(&r, names.keys().map(String::as_str)));
            return Err(ImageError::NotFound {
                reference: name.into(),
                similar: similar.unwrap_or_default(),
            });
        }
        names.retain(|name, _| !gone.contains(name));
        self.write_json(&self.dir.join(NAMES), &names)?;
        self.collect(&names, in_use).map(|done| Removed {
            names: gone,
            ..done
        })
    }

    /// Removes images without a name that are not in use, and layers without an image.
    pub fn prune(&self, in_use: &dyn Fn(&str) -> bool) -> Result<Removed, ImageError> {
        let _lock = self.lock()?;
        self.collect(&self.names()?, in_use)
    }

    /// Loads what was dropped into `dir`: see [`DropReport`](super::DropReport).
    pub fn load_dropped(&self, dir: &Path) -> Result<super::DropReport, ImageError> {
        self.load_dropped_except(dir, &|_| false)
    }

    /// As [`Self::load_dropped`]; a new or changed file of which `later` says yes is left for a later look.
    pub fn load_dropped_except(
        &self,
        dir: &Path,
        later: &dyn Fn(&Path) -> bool,
    ) -> Result<super::DropReport, ImageError> {
        dropped::load(self, dir, later)
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// The store's directory; [`NAMES`] in it is replaced whenever a name comes, goes or moves.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn load_named(
        &self,
        path: &Path,
        naming: Naming<'_>,
    ) -> Result<Vec<LoadedImage>, ImageError> {
        let _lock = self.lock()?;
        let source = Source::open(path, &self.tmp())?;
        let found = archive::read(&source, naming)?;
        let mut staged: Vec<Staged> = Vec::new();
        for image in &found {
            for (blob, diff_id) in image.layers.iter().zip(&image.config.rootfs.diff_ids) {
                if !self.layer_dir(diff_id).exists()
                    && !staged.iter().any(|s| s.diff_id == *diff_id)
                {
                    staged.push(self.stage_blob(&source, blob, diff_id)?);
                }
            }
        }
        let records = found
            .into_iter()
            .map(|f| self.found_record(f, &staged))
            .collect::<Result<Vec<_>, _>>()?;
        let warnings: Vec<String> = staged.iter().flat_map(|s| s.warnings.clone()).collect();
        let mut loaded = self.commit(&staged, records)?;
        if let Some(first) = loaded.first_mut() {
            first.warnings = warnings;
        }
        Ok(loaded)
    }

    fn found_record(
        &self,
        found: Found,
        staged: &[Staged],
    ) -> Result<(Record, Vec<String>), ImageError> {
        let mut size = 0;
        for diff_id in &found.config.rootfs.diff_ids {
            size += match staged.iter().find(|s| s.diff_id == *diff_id) {
                Some(layer) => layer.bytes,
                None => self
                    .read_json::<LayerRecord>(&self.layer_dir(diff_id).join("layer.json"))?
                    .map_or(0, |l| l.bytes),
            };
        }
        let record = Record {
            id: found.id,
            config: found.config.image_config(),
            created: found.config.created(),
            diff_ids: found.config.rootfs.diff_ids,
            size,
            digests: found.digests.into_iter().collect(),
        };
        Ok((record, found.names))
    }

    /// Makes it all visible: layers, then records, then names, each only once the one before is on the disk.
    fn commit(
        &self,
        staged: &[Staged],
        images: Vec<(Record, Vec<String>)>,
    ) -> Result<Vec<LoadedImage>, ImageError> {
        self.commit_layers(staged)?;
        let mut names = self.names()?;
        let mut loaded = Vec::new();
        for (mut record, new_names) in images {
            // The same image by another archive: it keeps the digests it was known by.
            record.digests.extend(
                self.record(&record.id)
                    .ok()
                    .flatten()
                    .into_iter()
                    .flat_map(|r| r.digests),
            );
            self.write_json(&self.record_path(&record.id), &record)?;
            names.extend(new_names.iter().map(|n| (n.clone(), record.id.clone())));
            loaded.push(LoadedImage {
                id: record.id,
                names: new_names,
                size: record.size,
                warnings: Vec::new(),
            });
        }
        self.write_json(&self.dir.join("names.json"), &names)?;
        Ok(loaded)
    }

    fn image(&self, record: Record, name: String) -> Result<Image, ImageError> {
        let layers: Vec<PathBuf> = record
            .diff_ids
            .iter()
            .rev()
            .map(|d| self.layer_dir(d).join("fs"))
            .collect();
        match layers.iter().find(|l| !l.is_dir()) {
            Some(missing) => Err(damaged(
                &record.id,
                &format!("its layer {} is missing", missing.display()),
            )),
            None => Ok(Image {
                id: record.id,
                name,
                config: record.config,
                layers,
            }),
        }
    }

    fn id_by_digest(&self, digest: &str) -> Result<Option<String>, ImageError> {
        for id in self.ids()? {
            if id == digest
                || self
                    .record(&id)?
                    .is_some_and(|r| r.digests.contains(digest))
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Removes records without a name and layers without a record. A record that cannot be read keeps every layer.
    fn collect(&self, names: &Names, in_use: &dyn Fn(&str) -> bool) -> Result<Removed, ImageError> {
        let named: BTreeSet<&String> = names.values().collect();
        let mut done = Removed::default();
        for id in self.ids()?.into_iter().filter(|id| !named.contains(id)) {
            if in_use(&id) {
                done.in_use.push(id);
            } else {
                let path = self.record_path(&id);
                fs::remove_file(&path)
                    .map_err(|e| ImageError::io(format!("remove {}", path.display()), e))?;
                done.images.push(id);
            }
        }
        sync_dir(&self.dir.join("images"))?;
        let mut needed = BTreeSet::new();
        for id in self.ids()? {
            needed.extend(self.record(&id)?.into_iter().flat_map(|r| r.diff_ids));
        }
        for layer in self
            .entries("layers")?
            .into_iter()
            .filter(|l| !needed.contains(&format!("sha256:{l}")))
        {
            // Out of sight at once, then file by file.
            let (from, to) = (
                self.dir.join("layers").join(&layer),
                self.tmp().join(unique()),
            );
            fs::rename(&from, &to)
                .map_err(|e| ImageError::io(format!("remove {}", from.display()), e))?;
        }
        self.clear_tmp();
        Ok(done)
    }
}

fn damaged(id: &str, why: &str) -> ImageError {
    ImageError::corrupt(
        format!("image {id}"),
        format!("{why}; remove it and load it again"),
    )
}

/// The file's name without the endings of an archive, in lower case: what an image without a name may be called.
pub(super) fn stem(path: &Path) -> String {
    let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let name = absolute
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let endings = [".tar.gz", ".tar.zst", ".tgz", ".tar"];
    endings
        .iter()
        .find_map(|e| name.strip_suffix(e))
        .unwrap_or(&name)
        .to_owned()
}
