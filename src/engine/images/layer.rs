//! Unpacks one layer into an empty directory, in the form that overlayfs needs. The layer's archive is not trusted.
//!
//! Invariants: nothing outside the directory is created, changed, linked or removed (see [`super::tree`]). The amount
//! that is written is bounded by [`Limits`]. A whiteout appears only where the archive has a `.wh.` entry, because 0/0
//! devices and `trusted.overlay.*` attributes of the archive are dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmodat, mknodat, utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat, linkat, symlinkat};

use super::error::ImageError;
use super::tarstream::{Kind, Stream, TarEntry, TarReader};
use super::tree::{self, Tree};
use crate::base::sys::xattr;

/// The limits for unpacking one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upper limit for the uncompressed size of a layer in bytes. The holes of sparse files count. The default is 16
    /// GiB.
    pub bytes: u64,
    /// Largest number of entries in a layer. The default is 2 million.
    pub entries: u64,
    /// Upper limit in bytes for the names of a layer's directories, which are held in memory until the layer is
    /// unpacked. The default is 64 MiB.
    pub directory_names: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            entries: 2_000_000,
            directory_names: 64 << 20,
        }
    }
}

/// The result of unpacking a layer.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    /// Size in bytes of the layer's files.
    pub(super) bytes: u64,
    /// Warnings about attributes and files that could not be kept, at most [`MAX_WARNINGS`].
    pub(super) warnings: Vec<String>,
    /// True if the end mark of the archive was read. Without it the archive may have been cut off.
    pub(super) complete: bool,
}

const MAX_WARNINGS: usize = 20;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Unpacks an uncompressed tar stream into `target`, an empty directory that podprobe has made. Returns the result and
/// the stream.
pub(super) fn unpack<R: Stream>(
    stream: R,
    target: &Path,
    limits: Limits,
) -> Result<(Unpacked, R), ImageError> {
    let tree =
        Tree::open(target).map_err(|e| ImageError::io(format!("open {}", target.display()), e))?;
    let mut unpacker = Unpacker {
        tree,
        limits,
        entries: 0,
        directories: Vec::new(),
        directory_names: 0,
        done: Unpacked::default(),
    };
    let mut tar = TarReader::new(stream);
    while let Some(entry) = tar.next().map_err(|e| ImageError::reading("layer", e))? {
        unpacker.entry(&entry, &mut tar)?;
    }
    unpacker.finish_directories()?;
    unpacker.done.complete = tar.complete;
    Ok((unpacker.done, tar.into_inner()))
}

struct Unpacker {
    tree: Tree,
    limits: Limits,
    entries: u64,
    /// Directories and their modification times. The times are set at the end, because each new entry in a directory
    /// changes the directory's time.
    directories: Vec<(Vec<u8>, (i64, i64))>,
    directory_names: u64,
    done: Unpacked,
}

/// The place of an entry: its clean path, the directory that holds it, and its name there.
struct Place<'a> {
    path: &'a [u8],
    dir: &'a OwnedFd,
    name: &'a [u8],
}

impl Place<'_> {
    /// Returns an error that names the entry and says whether the archive or the system caused it.
    fn failed(&self, e: impl Into<io::Error>) -> ImageError {
        failed(self.path, e.into())
    }
}

fn failed(path: &[u8], e: io::Error) -> ImageError {
    let why = match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ELOOP) => "too many symlinks on the way",
        Some(Errno::ENOTDIR) => "its parent is not a directory",
        Some(Errno::ENAMETOOLONG) => "directories nested more than 256 deep, or a name too long",
        Some(Errno::ENOENT) => "it links to a file that it replaces",
        Some(Errno::EMLINK) => "more hard links than the file system can have",
        Some(Errno::EINVAL | Errno::EOVERFLOW) => "a value the system does not know",
        _ => {
            return ImageError::io(
                format!("write {:?} of the layer", String::from_utf8_lossy(path)),
                e,
            );
        }
    };
    ImageError::refused(path, why)
}

impl Unpacker {
    fn entry<R: Stream>(
        &mut self,
        entry: &TarEntry,
        tar: &mut TarReader<R>,
    ) -> Result<(), ImageError> {
        self.count(entry)?;
        let path = tree::clean(&entry.path).map_err(|why| ImageError::refused(&entry.path, why))?;
        let Some((parent, name)) = tree::split(&path) else {
            return self.root(entry);
        };
        let dir = self
            .tree
            .dir(parent, true)
            .map_err(|e| failed(&path, e.into()))?;
        let place = Place {
            path: &path,
            dir: &dir,
            name,
        };
        if name.starts_with(WHITEOUT) {
            return self.whiteout(&place);
        }
        if !self.make(entry, &place, tar)? {
            return Ok(());
        }
        // A hard link shares the metadata of its target, which has been set already.
        if entry.kind == Kind::HardLink {
            Ok(())
        } else {
            self.metadata(entry, &place)
        }
    }

    fn count(&mut self, entry: &TarEntry) -> Result<(), ImageError> {
        let too_large = |limit: String| ImageError::TooLarge {
            what: "layer".into(),
            limit,
        };
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(too_large(format!("{} entries", self.limits.entries)));
        }
        let bytes = if entry.kind == Kind::File {
            entry.size
        } else {
            0
        };
        self.done.bytes = self.done.bytes.saturating_add(bytes);
        if self.done.bytes > self.limits.bytes {
            return Err(too_large(format!("{} bytes", self.limits.bytes)));
        }
        Ok(())
    }

    /// Sets the metadata of the layer's root directory from the archive's entry `./`.
    fn root(&mut self, entry: &TarEntry) -> Result<(), ImageError> {
        if entry.kind != Kind::Directory {
            return Err(ImageError::refused(
                &entry.path,
                "the root of a layer must be a directory",
            ));
        }
        let dir = self
            .tree
            .dir(b"", false)
            .map_err(|e| failed(b"/", e.into()))?;
        self.metadata(
            entry,
            &Place {
                path: b"",
                dir: &dir,
                name: b".",
            },
        )
    }

    /// Applies a whiteout entry to the layers below: `.wh.NAME` hides NAME, and `.wh..wh..opq` hides everything in the
    /// directory. Entries of this layer stay. If this layer has a file called NAME, this file already hides the lower
    /// one. If this layer has a directory called NAME, the directory becomes opaque.
    fn whiteout(&mut self, place: &Place<'_>) -> Result<(), ImageError> {
        if place.name == OPAQUE {
            return self.opaque(place, b".");
        }
        let hidden = &place.name[WHITEOUT.len()..];
        if hidden.starts_with(WHITEOUT) {
            // These names are bookkeeping of aufs (`.wh..wh.plnk`, `.wh..wh.orph`).
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(ImageError::refused(
                place.path,
                "a whiteout that hides no file",
            ));
        }
        match Tree::stat(place.dir, hidden).map_err(|e| place.failed(e))? {
            None => tree::hide(place.dir, hidden).map_err(|e| place.failed(e)),
            Some(stat) if is_dir(&stat) => self.opaque(place, hidden),
            Some(_) => Ok(()),
        }
    }

    fn opaque(&mut self, place: &Place<'_>, name: &[u8]) -> Result<(), ImageError> {
        tree::make_opaque(place.dir, name).map_err(|e| place.failed(e))
    }

    /// Makes the file, directory or link of an entry, without its metadata. Returns false if the entry is left out.
    fn make<R: Stream>(
        &mut self,
        entry: &TarEntry,
        place: &Place<'_>,
        tar: &mut TarReader<R>,
    ) -> Result<bool, ImageError> {
        if entry.kind == Kind::CharDevice && entry.device == (0, 0) {
            self.warn(place, "a 0/0 device would be a whiteout, left out");
            return Ok(false);
        }
        // The target of a hard link is found before anything is removed: a link to itself must not remove its own
        // target.
        let target = if entry.kind == Kind::HardLink {
            Some(self.link_target(entry, place)?)
        } else {
            None
        };
        let was_whiteout = self.clear(entry, place)?;
        let made = match entry.kind {
            Kind::File => return self.file(entry, place, tar).map(|()| true),
            Kind::Directory => match tree::make_dir(place.dir, place.name) {
                // This directory of the layer exists already: `clear` keeps a directory if the new entry is a
                // directory.
                Err(Errno::EEXIST) => Ok(()),
                Ok(()) if was_whiteout => return self.opaque(place, place.name).map(|()| true),
                other => other,
            },
            Kind::Symlink if entry.link.is_empty() || entry.link.contains(&0) => {
                return Err(ImageError::refused(&entry.path, "a symlink to nothing"));
            }
            Kind::Symlink => symlinkat(entry.link.as_slice(), place.dir, place.name),
            Kind::HardLink => {
                let (dir, name) = target.expect("found above");
                linkat(
                    &*dir,
                    name.as_slice(),
                    place.dir,
                    place.name,
                    AtFlags::empty(),
                )
            }
            Kind::Fifo => mknodat(place.dir, place.name, SFlag::S_IFIFO, Mode::empty(), 0),
            // A device node is left out: a program that can open files of the node would reach this machine's device. A
            // file that a lower layer has at this place is hidden all the same.
            Kind::CharDevice | Kind::BlockDevice => {
                self.warn(place, "a device node, left out");
                return tree::hide(place.dir, place.name)
                    .map(|()| false)
                    .map_err(|e| place.failed(e));
            }
        };
        made.map(|()| true).map_err(|e| place.failed(e))
    }

    /// Removes an earlier entry of this layer at the place of the new entry. A directory stays if the new entry is a
    /// directory too. Returns true if the removed entry was a whiteout: a directory in its place must hide the layers
    /// below.
    fn clear(&mut self, entry: &TarEntry, place: &Place<'_>) -> Result<bool, ImageError> {
        let Some(stat) = Tree::stat(place.dir, place.name).map_err(|e| place.failed(e))? else {
            return Ok(false);
        };
        if is_dir(&stat) && entry.kind == Kind::Directory {
            return Ok(false);
        }
        self.tree
            .remove(place.dir, place.name, is_dir(&stat))
            .map_err(|e| place.failed(e))?;
        Ok(tree::is_whiteout(&stat))
    }

    /// Returns the directory and the name of a hard link's target in this layer. If the target is a symlink, the hard
    /// link leads to the symlink itself.
    fn link_target(
        &mut self,
        entry: &TarEntry,
        place: &Place<'_>,
    ) -> Result<(std::rc::Rc<OwnedFd>, Vec<u8>), ImageError> {
        let refuse = |why: &str| {
            ImageError::refused(
                &entry.path,
                format!(
                    "hard link to {:?}: {why}",
                    String::from_utf8_lossy(&entry.link)
                ),
            )
        };
        let target = tree::clean(&entry.link).map_err(refuse)?;
        let (parent, name) = tree::split(&target).ok_or_else(|| refuse("it is the root"))?;
        let dir = self
            .tree
            .dir(parent, false)
            .map_err(|_| refuse("no such file in the layer"))?;
        match Tree::stat(&dir, name).map_err(|e| place.failed(e))? {
            None => Err(refuse("no such file in the layer")),
            Some(stat) if is_dir(&stat) => Err(refuse("it is a directory")),
            Some(stat) => match Tree::stat(place.dir, place.name).map_err(|e| place.failed(e))? {
                Some(here) if (here.st_dev, here.st_ino) == (stat.st_dev, stat.st_ino) => {
                    Err(refuse("it is the entry itself"))
                }
                _ => Ok((dir, name.to_vec())),
            },
        }
    }

    fn file<R: Stream>(
        &mut self,
        entry: &TarEntry,
        place: &Place<'_>,
        tar: &mut TarReader<R>,
    ) -> Result<(), ImageError> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(
            place.dir,
            place.name,
            flags,
            Mode::from_bits_truncate(0o600),
        )
        .map_err(|e| place.failed(e))?;
        let file = File::from(fd);
        let whole = [(0, entry.size)];
        let segments = entry.segments.as_deref().unwrap_or(&whole);
        let mut buffer = vec![0; 128 * 1024];
        for &(offset, length) in segments {
            let mut done = 0;
            while done < length {
                let most = buffer
                    .len()
                    .min(usize::try_from(length - done).unwrap_or(usize::MAX));
                let n = tar
                    .read_content(&mut buffer[..most])
                    .map_err(|e| ImageError::reading("layer", e))?;
                file.write_all_at(&buffer[..n], offset + done)
                    .map_err(|e| place.failed(e))?;
                done += n as u64;
            }
        }
        if entry.segments.is_some() {
            file.set_len(entry.size).map_err(|e| place.failed(e))
        } else {
            Ok(())
        }
    }

    /// Sets the owner, mode, attributes and time of an entry, in this order, because a change of the owner clears
    /// setuid and `security.capability`.
    fn metadata(&mut self, entry: &TarEntry, place: &Place<'_>) -> Result<(), ImageError> {
        let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        fchownat(
            place.dir,
            place.name,
            Some(uid),
            Some(gid),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .map_err(|e| place.failed(e))?;
        if entry.kind != Kind::Symlink {
            // The flag `FollowSymlink` makes no difference: this code has just made the file, and the file is not a
            // symlink.
            let mode = Mode::from_bits_truncate(entry.mode);
            fchmodat(place.dir, place.name, mode, FchmodatFlags::FollowSymlink)
                .map_err(|e| place.failed(e))?;
        }
        self.xattrs(entry, place)?;
        if entry.kind == Kind::Directory {
            return self.remember_directory(entry, place.path);
        }
        set_time(place.dir, place.name, entry.mtime).map_err(|e| place.failed(e))
    }

    fn xattrs(&mut self, entry: &TarEntry, place: &Place<'_>) -> Result<(), ImageError> {
        for (name, value) in entry.xattrs.iter().filter(|(name, _)| is_kept(name)) {
            match xattr::set(
                &tree::path_of(place.dir, place.name),
                OsStr::from_bytes(name),
                value,
            ) {
                Ok(()) => {}
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::ENOTSUP | libc::EPERM | libc::EINVAL)
                    ) =>
                {
                    self.warn(
                        place,
                        &format!("attribute {} is lost: {e}", String::from_utf8_lossy(name)),
                    );
                }
                Err(e) => return Err(place.failed(e)),
            }
        }
        Ok(())
    }

    fn remember_directory(&mut self, entry: &TarEntry, path: &[u8]) -> Result<(), ImageError> {
        self.directory_names += path.len() as u64 + 64;
        if self.directory_names > self.limits.directory_names {
            let limit = format!("{} bytes of directory names", self.limits.directory_names);
            return Err(ImageError::TooLarge {
                what: "layer".into(),
                limit,
            });
        }
        self.directories.push((path.to_vec(), entry.mtime));
        Ok(())
    }

    fn finish_directories(&mut self) -> Result<(), ImageError> {
        for (path, mtime) in std::mem::take(&mut self.directories) {
            let (parent, name) = tree::split(&path).unwrap_or((b"", b"."));
            // If a later entry has replaced the directory, no time is set.
            let Ok(dir) = self.tree.dir(parent, false) else {
                continue;
            };
            if Tree::stat(&dir, name).is_ok_and(|s| s.as_ref().is_some_and(is_dir)) {
                set_time(&dir, name, mtime).map_err(|e| failed(&path, e.into()))?;
            }
        }
        Ok(())
    }

    fn warn(&mut self, place: &Place<'_>, what: &str) {
        if self.done.warnings.len() < MAX_WARNINGS {
            self.done
                .warnings
                .push(format!("{}: {what}", String::from_utf8_lossy(place.path)));
        }
    }
}

fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// Tells whether an image may set the attribute of this name. `trusted.*` and `user.overlay.*` are refused, because they
/// would control overlayfs. `security.*`, except `security.capability`, is refused, because it would control this node's
/// security policy.
fn is_kept(name: &[u8]) -> bool {
    let posix_acl = matches!(
        name,
        b"system.posix_acl_access" | b"system.posix_acl_default"
    );
    name == b"security.capability"
        || posix_acl
        || name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
}

fn set_time(dir: &OwnedFd, name: &[u8], (seconds, nanos): (i64, i64)) -> Result<(), Errno> {
    let time = TimeSpec::new(seconds as _, nanos as _);
    utimensat(dir, name, &time, &time, UtimensatFlags::NoFollowSymlink)
}
