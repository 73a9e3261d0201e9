//! Layers on their way into the store. They are unpacked under `tmp/`, checked, and moved to their place.
//!
//! Invariants: files in `tmp/` are changed only under the store's lock. A pull unpacks its layers in a directory with a
//! lock of its own ([`super::files::PullDir`]). When a layer is completely on the disk, one rename moves it to its
//! place. So after a power loss the layer is whole or missing.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::archive::Blob;
use super::error::ImageError;
use super::file_kind::{self, FileKind};
use super::files::{LayerRecord, StoreDir, sync_dir, unique, write_file};
use super::layer::Limits;
use super::source::Source;
use super::space::{Space, WithRoom};
use super::stream::{self, Hashing, Limited};
use super::{layer, pack};

/// The directory in which layers are unpacked, and the limits for these layers.
pub(super) struct Staging<'a> {
    pub(super) dir: &'a StoreDir,
    pub(super) limits: Limits,
    /// The directory in which layers are unpacked: `tmp/`, or the directory of a pull.
    pub(super) at: PathBuf,
}

/// An unpacked layer that is not yet in its place. If the value is dropped before the commit, the layer is removed.
pub(super) struct Staged {
    dir: PathBuf,
    pub(super) diff_id: String,
    pub(super) bytes: u64,
    pub(super) warnings: Vec<String>,
}

impl Staged {
    /// Tells whether the layer has not been moved to its place yet.
    pub(super) fn is_there(&self) -> bool {
        self.dir.is_dir()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a commit the directory does not exist any more. If the directory cannot be removed, the next writer
        // removes it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Staging<'_> {
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

    /// Returns an error if there is no room for layers of `bytes` bytes in all. For compressed layers this is a lower
    /// bound, because they need more room when they are unpacked. The parameter `what` names the layers in the error.
    pub(super) fn require(&self, bytes: u64, what: &str) -> Result<(), ImageError> {
        Space::of(&self.at)?.require(bytes, what)
    }

    /// Unpacks a file as a layer. The file is a tar, which may be compressed, or a static program. A program becomes
    /// the only file of the layer. For a program, the program's path in the layer is returned too.
    pub(super) fn stage_file(&self, path: &Path) -> Result<(Staged, Option<String>), ImageError> {
        let what = path.display().to_string();
        let read = |e| ImageError::io(format!("read {what}"), e);
        let mut file = File::open(path).map_err(read)?;
        let meta = file.metadata().map_err(read)?;
        self.require(meta.size(), &what)?;
        let not_an_image = |why: &str| ImageError::NotAnImage {
            path: what.clone(),
            why: format!(
                "{why}; give a root directory, a tar of one (.tar, .tar.gz, .tar.zst), or a statically linked program"
            ),
        };
        let mut start = [0; 4];
        let length = std::os::unix::fs::FileExt::read_at(&file, &mut start, 0).map_err(read)?;
        match file_kind::of(&file).map_err(read)? {
            _ if stream::is_compressed(&start[..length]) => {}
            FileKind::Tar => {}
            FileKind::StaticProgram => {
                let inside = program_path(path).ok_or_else(|| {
                    not_an_image("its name is not plain text of at most 90 bytes")
                })?;
                let tar =
                    program_as_tar(&mut file, meta.size(), meta.mtime(), &inside).map_err(read)?;
                let (staged, ..) = self.stage(tar, &what)?;
                return Ok((staged, Some(format!("/{inside}"))));
            }
            FileKind::DynamicProgram => {
                return Err(not_an_image(
                    "it is a program that needs shared libraries, which an image of it alone would lack",
                ));
            }
            FileKind::Other => return Err(not_an_image("it is neither a tar nor a program")),
        }
        let (staged, _, complete) = self.stage(file, &what)?;
        // This layer has no digest. So a missing end mark is the only sign that the file was cut off.
        if complete {
            Ok((staged, None))
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
                    self.dir.path(),
                    io::BufWriter::with_capacity(1 << 16, writer),
                )
            });
            let staged = self.stage(reader, &what);
            let packed = packer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a panic while reading it")));
            match (staged, packed) {
                // If unpacking fails, the pipe is closed, and the packer fails too. So the error of unpacking is the
                // cause.
                (Err(e), Err(p)) if p.kind() == io::ErrorKind::BrokenPipe => Err(e),
                (_, Err(p)) => Err(ImageError::io(format!("read {what}"), p)),
                (staged, Ok(())) => staged.map(|(staged, ..)| staged),
            }
        })
    }

    /// Unpacks a layer. Returns the layer, the digest of the file as it is stored, and true if the archive had its end
    /// mark. The parameter `what` names the layer in errors.
    pub(super) fn stage(
        &self,
        file: impl Read,
        what: &str,
    ) -> Result<(Staged, String, bool), ImageError> {
        let read = |e| ImageError::reading(what, e);
        let dir = self.at.join(unique());
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
        let plain = WithRoom::new(plain, Space::of(&self.at)?);
        let plain = Hashing::new(Limited::new(plain, self.limits.bytes));
        let (unpacked, plain) =
            layer::unpack(plain, &root, self.limits).map_err(|e| of_layer(e, what))?;
        (staged.diff_id, _) = plain.finish().map_err(read)?;
        let (digest, _) = blob.finish().map_err(read)?;
        (staged.bytes, staged.warnings) = (unpacked.bytes, unpacked.warnings);
        write_file(
            &dir.join("layer.json"),
            &LayerRecord {
                bytes: staged.bytes,
            },
        )?;
        Ok((staged, digest, unpacked.complete))
    }

    /// Waits until the layers are on the disk, and then moves them to their place.
    pub(super) fn commit_layers(&self, staged: &[&Staged]) -> Result<(), ImageError> {
        if staged.is_empty() {
            return Ok(());
        }
        let store = self.dir.path();
        let failed = |e: io::Error| ImageError::io(format!("write {}", store.display()), e);
        let dir = File::open(store).map_err(failed)?;
        nix::unistd::syncfs(&dir).map_err(|e| failed(e.into()))?;
        for layer in staged {
            let to = self.dir.layer_dir(&layer.diff_id);
            // A layer's directory without its files is useless, and would be in the way of the new layer.
            if to.exists() && !self.dir.has_layer(&layer.diff_id) {
                fs::rename(&to, self.dir.tmp().join(unique())).map_err(failed)?;
            }
            // The layer's place may be taken already: if two pulls share a layer, the other pull may have committed it.
            if !to.exists() {
                fs::rename(&layer.dir, &to).map_err(failed)?;
            }
        }
        sync_dir(&store.join("layers"))
    }
}

/// Returns an error of unpacking with the name of the layer in its text.
fn of_layer(e: ImageError, layer: &str) -> ImageError {
    match e {
        ImageError::Corrupt { why, .. } => ImageError::corrupt(layer, why),
        ImageError::NoSpace { room, .. } => ImageError::NoSpace {
            what: layer.into(),
            room,
        },
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

/// Returns the path of the program in its image, `bin/NAME`. Returns None if NAME is too long for a tar header, or is not
/// UTF-8.
fn program_path(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    (name.len() <= 90).then(|| format!("bin/{name}"))
}

/// Returns a tar that holds the directory `bin` and the program in it. Directory and program belong to root.
fn program_as_tar<'a>(
    file: &'a mut File,
    size: u64,
    mtime: i64,
    inside: &str,
) -> io::Result<impl Read + 'a> {
    let header = |kind, path: &str, size| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_path(path)?;
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(mtime).unwrap_or(0));
        header.set_size(size);
        header.set_cksum();
        io::Result::Ok(*header.as_bytes())
    };
    let mut start = header(tar::EntryType::Directory, "bin/", 0)?.to_vec();
    start.extend(header(tar::EntryType::Regular, inside, size)?);
    let padding = size.next_multiple_of(512) - size;
    // The zeros fill the program's last block, and form the end mark of two empty blocks.
    let end = io::repeat(0).take(padding + 1024);
    Ok(io::Cursor::new(start).chain(file.take(size)).chain(end))
}
