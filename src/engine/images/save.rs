//! Writes images as a docker archive. `load`, docker, podman and ctr can read the archive.
//!
//! The store keeps layers unpacked, so each layer is packed again. The new archive of a layer differs from the archive
//! from which the layer came. So the image gets another id, unless it was imported. Invariant: no temporary file is
//! written. A layer is packed twice, because its digest and its length come before its content.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tar::{EntryType, Header};

use super::config::OciConfig;
use super::error::ImageError;
use super::pack;
use super::store::{ImageDetails, ImageStore};
use super::stream::{self, Hashing};

/// Size of a block in bytes. A tar ends with two empty blocks.
const BLOCK: usize = 512;
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// An entry of `manifest.json`, which describes one image of the archive.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// A layer that has been written to the archive.
#[derive(Clone)]
struct Saved {
    digest: String,
    path: String,
}

impl ImageStore {
    /// Writes images to `out`. An image that is named by its id is saved with all its names. Any other image is saved
    /// with the given name.
    ///
    /// # Errors
    /// Returns [`ImageError`] if an image is missing, if an image is removed meanwhile, or if `out` cannot be written.
    pub fn save(&self, references: &[String], out: &mut dyn Write) -> Result<(), ImageError> {
        // All images are looked up first, so that nothing is written if a name is wrong.
        let images = references.iter().map(|reference| {
            let image = self.resolve(reference)?;
            Ok((image.name, self.inspect(&image.id)?))
        });
        let images: Vec<(String, ImageDetails)> = images.collect::<Result<_, ImageError>>()?;
        let mut archive = Archive {
            store: self,
            out,
            layers: BTreeMap::new(),
        };
        let entries = images
            .iter()
            .map(|(reference, image)| archive.image(reference, image));
        let entries: Vec<Entry> = entries.collect::<Result<_, ImageError>>()?;
        let manifest = to_json(&entries)?;
        archive.file("manifest.json", &manifest)?;
        archive.write(&END)
    }
}

struct Archive<'a> {
    store: &'a ImageStore,
    out: &'a mut dyn Write,
    /// The layers that are in the archive already. The key is the diff id in the store.
    layers: BTreeMap<String, Saved>,
}

impl Archive<'_> {
    fn image(&mut self, reference: &str, image: &ImageDetails) -> Result<Entry, ImageError> {
        let layers = image.layers.iter().map(|id| self.layer(id));
        let layers: Vec<Saved> = layers.collect::<Result<_, ImageError>>()?;
        let diff_ids = layers.iter().map(|l| l.digest.clone()).collect();
        let config = configuration(image, diff_ids)?;
        let hex = stream::sha256(&config).replace("sha256:", "");
        let path = format!("{hex}.json");
        self.file(&path, &config)?;
        Ok(Entry {
            config: path,
            // A name with a digest is not a tag, so such an image is saved with all its names.
            repo_tags: match reference != image.id && !reference.contains('@') {
                true => vec![reference.to_owned()],
                false => image.names.clone(),
            },
            layers: layers.into_iter().map(|l| l.path).collect(),
        })
    }

    fn layer(&mut self, id: &str) -> Result<Saved, ImageError> {
        if let Some(saved) = self.layers.get(id) {
            return Ok(saved.clone());
        }
        let dir = self.store.files().layer_dir(id).join("fs");
        let failed = |e: io::Error| match dir.exists() {
            true => ImageError::io(format!("save the layer {}", dir.display()), e),
            false => ImageError::corrupt(format!("layer {id}"), "it was removed meanwhile"),
        };
        let mut measured = Hashing::new(io::sink());
        pack::layer(&dir, &mut measured).map_err(failed)?;
        let (digest, length) = measured.written();
        let path = format!("{}/layer.tar", digest.replace("sha256:", ""));
        self.header(&path, length)?;
        let mut exact = Exact {
            out: &mut *self.out,
            left: length,
        };
        pack::layer(&dir, &mut exact).map_err(failed)?;
        if exact.left > 0 {
            return Err(failed(io::Error::other("it changed while it was read")));
        }
        self.pad(length)?;
        let saved = Saved { digest, path };
        self.layers.insert(id.to_owned(), saved.clone());
        Ok(saved)
    }

    fn file(&mut self, path: &str, content: &[u8]) -> Result<(), ImageError> {
        self.header(path, content.len() as u64)?;
        self.write(content)?;
        self.pad(content.len() as u64)
    }

    fn header(&mut self, path: &str, length: u64) -> Result<(), ImageError> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_path(path).map_err(of_output)?;
        header.set_size(length);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        self.write(header.as_bytes())
    }

    fn pad(&mut self, length: u64) -> Result<(), ImageError> {
        let over = (length % BLOCK as u64) as usize;
        self.write(&END[..(BLOCK - over) % BLOCK])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.out.write_all(bytes).map_err(of_output)
    }
}

/// Returns the image's configuration for the archive. The configuration of an imported image is the one that the import
/// made, which gives the image's id. For any other image the configuration also has the time at which the image was
/// built.
fn configuration(image: &ImageDetails, diff_ids: Vec<String>) -> Result<Vec<u8>, ImageError> {
    let imported = to_json(&OciConfig::of(&image.config, None, diff_ids.clone()))?;
    if stream::sha256(&imported) == image.id {
        return Ok(imported);
    }
    let created = image.created.map(|t| t.to_string());
    to_json(&OciConfig::of(&image.config, created, diff_ids))
}

/// A writer that fails if it gets more bytes than the header has announced.
struct Exact<'a> {
    out: &'a mut dyn Write,
    left: u64,
}

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(|| io::Error::other("it changed while it was read"))?;
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, ImageError> {
    serde_json::to_vec(value).map_err(|e| ImageError::io("write the archive", e))
}

fn of_output(e: io::Error) -> ImageError {
    ImageError::io("write the archive", e)
}

/// Writes images to a file. The file appears at `path` when it is complete.
///
/// # Errors
/// Returns the error of [`ImageStore::save`], or the error of writing the file. After an error no part of the new file
/// is left.
pub fn save_to(store: &ImageStore, references: &[String], path: &Path) -> Result<(), ImageError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let failed = |e| ImageError::io(format!("write {}", path.display()), e);
    let written = fs::File::create_new(&temporary)
        .map_err(failed)
        .and_then(|file| {
            let mut out = io::BufWriter::with_capacity(1 << 16, file);
            store.save(references, &mut out)?;
            let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
            file.sync_all().map_err(failed)
        });
    let done = written.and_then(|()| fs::rename(&temporary, path).map_err(failed));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}
