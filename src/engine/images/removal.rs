//! Removes names, images and layers from the store. A person names an image to remove, an image has no name, or the
//! disk is full.
//!
//! Invariants: nothing that a container uses is removed, even if files of the store are lost. The record of an image is
//! removed before the image's layers, so no record is left without its layers.

use std::collections::BTreeSet;
use std::fs;

use super::error::ImageError;
use super::files::{Names, Record, sync_dir, unique};
use super::in_use::ImagesInUse;
use super::reference::{self, Reference};
use super::repair;
use super::store::ImageStore;

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The names that were removed.
    pub names: Vec<String>,
    /// Ids of the images that were removed because they had no name any more.
    pub images: Vec<String>,
    /// Ids of images that have no name any more, and stay because containers use them. A later `remove` or `prune`
    /// removes these images.
    pub in_use: Vec<String>,
}

impl ImageStore {
    /// Removes a name, or all names of an image if `name` is the image's id (`sha256:…`). If an image has no name left
    /// and no container uses it, the image is removed with the layers that no other image has. `in_use` is called while
    /// the store is locked, and only if something would be removed.
    pub fn remove(
        &self,
        name: &str,
        in_use: &dyn Fn() -> ImagesInUse,
    ) -> Result<Removed, ImageError> {
        let (_lock, mut names) = self.lock()?;
        let by_id = reference::is_digest(name);
        let gone: Vec<String> = if by_id {
            repair::names_for(&names, name).into_iter().collect()
        } else {
            let wanted = Reference::parse(name)?;
            names
                .contains_key(&wanted.to_string())
                .then(|| wanted.to_string())
                .into_iter()
                .collect()
        };
        let record = match by_id {
            true => self.files().record(name)?,
            false => None,
        };
        if gone.is_empty() && record.is_none() {
            let similar = Reference::parse(name)
                .map(|r| reference::similar(&r, names.keys().map(String::as_str)));
            return Err(ImageError::NotFound {
                reference: name.into(),
                similar: similar.unwrap_or_default(),
            });
        }
        // An image whose names were lost can be removed too, if a person names it by its id. For this, the record gets
        // an empty list of names.
        if let Some(record) = record.filter(|r| r.names.is_none()) {
            self.files().write_record(&Record {
                names: Some(BTreeSet::new()),
                ..record
            })?;
        }
        names.retain(|name, _| !gone.contains(name));
        repair::write_names(self.files(), &names)?;
        self.collect(&names, in_use).map(|done| Removed {
            names: gone,
            ..done
        })
    }

    /// Removes images without a name and layers without an image, unless a container uses them. `in_use` is called while
    /// the store is locked, and only if something would be removed.
    pub fn prune(&self, in_use: &dyn Fn() -> ImagesInUse) -> Result<Removed, ImageError> {
        let (_lock, names) = self.lock()?;
        self.collect(&names, in_use)
    }

    /// Returns the ids of the pulled images: those that have names, all of which come from pulls.
    pub(super) fn pulled(&self) -> Result<Vec<String>, ImageError> {
        let names = self.names()?;
        let ids = self.files().ids()?.into_iter();
        // An image with an unreadable record does not count as pulled.
        let is_pulled = |id: &String| {
            let record = self.files().record(id).ok().flatten();
            record.is_some_and(|record| is_pulled(&record, &repair::names_for(&names, id)))
        };
        Ok(ids.filter(is_pulled).collect())
    }

    /// Removes a pulled image with all its names. Returns None if a name was given by hand, or if a container uses the
    /// image.
    pub(super) fn remove_pulled(
        &self,
        id: &str,
        in_use: &dyn Fn() -> ImagesInUse,
    ) -> Result<Option<Removed>, ImageError> {
        let (_lock, mut names) = self.lock()?;
        let own = repair::names_for(&names, id);
        let record = self.files().record(id)?;
        if !record.is_some_and(|record| is_pulled(&record, &own)) {
            return Ok(None);
        }
        let used = in_use();
        if used.image(id) {
            return Ok(None);
        }
        names.retain(|name, _| !own.contains(name));
        repair::write_names(self.files(), &names)?;
        let removed = self.collect(&names, &|| used.clone())?;
        Ok(Some(Removed {
            names: own.into_iter().collect(),
            ..removed
        }))
    }

    /// Removes records without a name and layers without a record, unless a container uses them.
    fn collect(
        &self,
        names: &Names,
        in_use: &dyn Fn() -> ImagesInUse,
    ) -> Result<Removed, ImageError> {
        let named: BTreeSet<&String> = names.values().collect();
        let (mut needed, mut nameless) = (BTreeSet::new(), Vec::new());
        for id in self.files().ids()? {
            let record = self.files().record(&id)?;
            // A record without a list of names may belong to an image whose name was lost. Such a record is kept.
            if !named.contains(&id) && record.as_ref().is_some_and(|r| r.names.is_some()) {
                nameless.extend(record);
            } else {
                needed.extend(record.into_iter().flat_map(|r| r.diff_ids));
            }
        }
        let unneeded = |needed: &BTreeSet<String>| -> Result<Vec<String>, ImageError> {
            let mut layers = self.files().entries("layers")?;
            layers.retain(|l| !needed.contains(&format!("sha256:{l}")));
            Ok(layers)
        };
        let mut done = Removed::default();
        if nameless.is_empty() && unneeded(&needed)?.is_empty() {
            return Ok(done);
        }
        let in_use = in_use();
        for record in nameless {
            if in_use.image(&record.id) {
                needed.extend(record.diff_ids);
                done.in_use.push(record.id);
            } else {
                let path = self.files().record_path(&record.id);
                fs::remove_file(&path)
                    .map_err(|e| ImageError::io(format!("remove {}", path.display()), e))?;
                done.images.push(record.id);
            }
        }
        sync_dir(&self.dir().join("images"))?;
        for layer in unneeded(&needed)?.iter().filter(|l| !in_use.layer(l)) {
            // A rename makes the layer vanish at once. The layer's files are removed afterwards.
            let (from, to) = (
                self.dir().join("layers").join(layer),
                self.files().tmp().join(unique()),
            );
            fs::rename(&from, &to)
                .map_err(|e| ImageError::io(format!("remove {}", from.display()), e))?;
        }
        self.files().clear_tmp();
        Ok(done)
    }
}

/// Tells whether the image has names and all of them come from pulls.
fn is_pulled(record: &Record, names: &BTreeSet<String>) -> bool {
    !names.is_empty() && names.is_subset(&record.pulled)
}
