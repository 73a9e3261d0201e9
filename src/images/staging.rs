//! Layers on their way into the store: unpacked under `tmp/`, checked, moved to their place.
//!
//! Invariants: all of it only under the store's lock; a layer gets its place by one rename, after everything of it is on
//! the disk, so a power loss leaves all of it or nothing.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::archive::Blob;
use super::error::ImageError;
use super::files::{sync_dir, unique};
use super::source::Source;
use super::store::ImageStore;
use super::stream::{self, Hashing, Limited};
use super::{layer, pack};

/// `layers/<hex>/layer.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub(super) bytes: u64,
}

/// A layer unpacked in `tmp/`, gone with this value unless it was committed.
pub(super) struct Staged {
    dir: PathBuf,
    pub(super) diff_id: String,
    pub(super) bytes: u64,
    pub(super) warnings: Vec<String>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Gone when it was committed. What cannot be removed is removed by the next writer.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl ImageStore {
    pub(super) fn stage_blob(
        &self,
        source: &Source,
        blob: &Blob,
        diff_id: &str,
    ) -> Result<Staged, ImageError> {
        let what = format!("layer {diff_id} ({} of {})", blob.path, source.name());
        let file = source
            .file(&blob.path)?
            .ok_or_else(|| ImageError::corrupt(&what, "it is missing"))?;
        let (staged, digest, _) = self.stage(file, &what)?;
        if let Some(expected) = blob.digest.as_ref().filter(|d| **d != digest) {
            return Err(ImageError::corrupt(
                what,
                format!("its content has digest {digest}, not {expected}"),
            ));
        }
        if staged.diff_id != *diff_id {
            return Err(ImageError::corrupt(
                what,
                format!("its uncompressed content has digest {}", staged.diff_id),
            ));
        }
        Ok(staged)
    }

    pub(super) fn stage_file(&self, path: &Path) -> Result<Staged, ImageError> {
        let what = path.display().to_string();
        let file = File::open(path).map_err(|e| ImageError::io(format!("read {what}"), e))?;
        let (staged, _, complete) = self.stage(file, &what)?;
        // No digest vouches for this one, so a missing end is the only sign of a cut file.
        if complete {
            Ok(staged)
        } else {
            Err(ImageError::corrupt(
                what,
                "truncated: the end of the archive is missing",
            ))
        }
    }

    pub(super) fn stage_directory(&self, root: &Path) -> Result<Staged, ImageError> {
        let (reader, writer) = io::pipe().map_err(|e| ImageError::io("create a pipe", e))?;
        let what = root.display().to_string();
        std::thread::scope(|scope| {
            let packer = scope.spawn(|| {
                pack::pack(
                    root,
                    self.dir(),
                    io::BufWriter::with_capacity(1 << 16, writer),
                )
            });
            let staged = self.stage(reader, &what);
            let packed = packer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a panic while reading it")));
            match (staged, packed) {
                // Our own failure closes the pipe, so the packer's is only its echo.
                (Err(e), Err(p)) if p.kind() == io::ErrorKind::BrokenPipe => Err(e),
                (_, Err(p)) => Err(ImageError::io(format!("read {what}"), p)),
                (staged, Ok(())) => staged.map(|(staged, ..)| staged),
            }
        })
    }

    /// Unpacks a layer into `tmp/`; gives it with the digest of the file as it was, and whether it had its end mark.
    fn stage(&self, file: impl Read, what: &str) -> Result<(Staged, String, bool), ImageError> {
        let read = |e| ImageError::reading(what, e);
        let dir = self.tmp().join(unique());
        let mut staged = Staged {
            dir: dir.clone(),
            diff_id: String::new(),
            bytes: 0,
            warnings: Vec::new(),
        };
        let root = dir.join("fs");
        fs::create_dir_all(&root)
            .and_then(|()| fs::set_permissions(&root, PermissionsExt::from_mode(0o755)))
            .map_err(|e| ImageError::io(format!("create {}", root.display()), e))?;
        let mut blob = Hashing::new(file);
        let plain =
            stream::decompress(BufReader::with_capacity(1 << 16, &mut blob)).map_err(read)?;
        let plain = Hashing::new(Limited::new(plain, self.limits().bytes));
        let (unpacked, plain) =
            layer::unpack(plain, &root, self.limits()).map_err(|e| of_layer(e, what))?;
        (staged.diff_id, _) = plain.finish().map_err(read)?;
        let (digest, _) = blob.finish().map_err(read)?;
        (staged.bytes, staged.warnings) = (unpacked.bytes, unpacked.warnings);
        self.write_file(
            &dir.join("layer.json"),
            &LayerRecord {
                bytes: staged.bytes,
            },
        )?;
        Ok((staged, digest, unpacked.complete))
    }

    /// Moves layers to their place, once they are on the disk.
    pub(super) fn commit_layers(&self, staged: &[Staged]) -> Result<(), ImageError> {
        if staged.is_empty() {
            return Ok(());
        }
        let failed = |e: io::Error| ImageError::io(format!("write {}", self.dir().display()), e);
        let dir = File::open(self.dir()).map_err(failed)?;
        nix::unistd::syncfs(&dir).map_err(|e| failed(e.into()))?;
        for layer in staged {
            let to = self.layer_dir(&layer.diff_id);
            if !to.exists() {
                fs::rename(&layer.dir, &to).map_err(failed)?;
            }
        }
        sync_dir(&self.dir().join("layers"))
    }
}

/// Names the layer in an error of its unpacking.
fn of_layer(e: ImageError, layer: &str) -> ImageError {
    match e {
        ImageError::Corrupt { why, .. } => ImageError::corrupt(layer, why),
        ImageError::TooLarge { limit, .. } => ImageError::TooLarge {
            what: layer.into(),
            limit,
        },
        ImageError::Refused { entry, why } => ImageError::Refused {
            entry: format!("{entry} of {layer}"),
            why,
        },
        other => other,
    }
}
