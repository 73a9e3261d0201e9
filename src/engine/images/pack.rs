//! Writes directories as tar streams. `import` packs a root directory, and unpacks it again like every other layer.
//! `save` packs a layer of the store with its whiteouts.
//!
//! Invariants: the same tree gives the same bytes, because entries are sorted. Symlinks are not followed. Other file
//! systems mounted in the tree, and the image store itself, are left out.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use crate::base::sys::xattr;

/// Writes the directory `root` to `out`, without the files below the directory `skip`. Sockets are left out, as in
/// every tar program. An error names the file that could not be packed.
pub(super) fn pack(root: &Path, skip: &Path, out: impl Write) -> io::Result<()> {
    let skip = fs::metadata(skip).ok().map(|m| (m.dev(), m.ino()));
    write(root, skip, false, out)
}

/// Writes a layer of the store to `out`. The whiteouts of overlayfs, which mark deleted files, become `.wh.` entries.
pub(super) fn layer(root: &Path, out: impl Write) -> io::Result<()> {
    write(root, None, true, out)
}

fn write(root: &Path, skip: Option<(u64, u64)>, is_layer: bool, out: impl Write) -> io::Result<()> {
    let meta = fs::metadata(root)?;
    let mut packer = Packer {
        builder: Builder::new(out),
        device: meta.dev(),
        skip,
        is_layer,
        links: HashMap::new(),
    };
    packer.header(root, Path::new("./"), &meta, EntryType::Directory)?;
    packer.directory(root)?;
    packer.builder.finish()
}

/// The attribute of an opaque directory, which hides the directories of the same name in the layers below.
const OPAQUE: &str = "trusted.overlay.opaque";

struct Packer<W: Write> {
    builder: Builder<W>,
    device: u64,
    skip: Option<(u64, u64)>,
    is_layer: bool,
    /// For each inode with several names, the path that was packed first.
    links: HashMap<u64, PathBuf>,
}

impl<W: Write> Packer<W> {
    /// Packs all files below `root`. The function does not recurse: a stack holds the paths still to visit, the last
    /// name first.
    fn directory(&mut self, root: &Path) -> io::Result<()> {
        let mut todo = names(root)?;
        while let Some(path) = todo.pop() {
            let name = path.strip_prefix(root).expect("below the root").to_owned();
            let meta = fs::symlink_metadata(&path)?;
            self.entry(&path, &name, &meta)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            if meta.is_dir()
                && meta.dev() == self.device
                && self.skip != Some((meta.dev(), meta.ino()))
            {
                todo.extend(names(&path)?);
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &Path, meta: &Metadata) -> io::Result<()> {
        let kind = meta.file_type();
        if kind.is_socket() {
            return Ok(());
        }
        if self.is_layer && kind.is_char_device() && meta.rdev() == 0 {
            let hidden = name.file_name().unwrap_or_default();
            let mut whiteout = OsString::from(".wh.");
            whiteout.push(hidden);
            return self.whiteout(name.with_file_name(whiteout));
        }
        if !meta.is_dir() && meta.nlink() > 1 {
            if let Some(first) = self.links.get(&meta.ino()) {
                let mut header = plain_header(meta, EntryType::Link);
                let first = first.clone();
                return self.builder.append_link(&mut header, name, first);
            }
            self.links.insert(meta.ino(), name.to_owned());
        }
        let kind = match () {
            () if meta.is_dir() => EntryType::Directory,
            () if meta.is_symlink() => EntryType::Symlink,
            () if kind.is_fifo() => EntryType::Fifo,
            () if kind.is_char_device() => EntryType::Char,
            () if kind.is_block_device() => EntryType::Block,
            () => EntryType::Regular,
        };
        self.header(path, name, meta, kind)?;
        if self.is_layer && meta.is_dir() && xattr::get(path, OPAQUE.as_ref())?.is_some() {
            self.whiteout(name.join(".wh..wh..opq"))?;
        }
        Ok(())
    }

    /// Writes an empty file as a whiteout. Its name says which file is deleted.
    fn whiteout(&mut self, name: PathBuf) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(0);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        self.builder.append_data(&mut header, name, io::empty())
    }

    fn header(
        &mut self,
        path: &Path,
        name: &Path,
        meta: &Metadata,
        kind: EntryType,
    ) -> io::Result<()> {
        self.attributes(path, meta)?;
        let mut header = plain_header(meta, kind);
        match kind {
            EntryType::Symlink => self
                .builder
                .append_link(&mut header, name, fs::read_link(path)?),
            EntryType::Regular => {
                header.set_size(meta.len());
                // Writes exactly as many bytes as the header announces, even if the file changes meanwhile.
                let content = io::Read::chain(File::open(path)?, io::repeat(0));
                self.builder
                    .append_data(&mut header, name, io::Read::take(content, meta.len()))
            }
            EntryType::Char | EntryType::Block => {
                header.set_device_major(nix::sys::stat::major(meta.rdev()) as u32)?;
                header.set_device_minor(nix::sys::stat::minor(meta.rdev()) as u32)?;
                self.builder.append_data(&mut header, name, io::empty())
            }
            _ => self.builder.append_data(&mut header, name, io::empty()),
        }
    }

    /// Writes the metadata that does not fit into a plain header: extended attributes, and the fraction of the time.
    fn attributes(&mut self, path: &Path, meta: &Metadata) -> io::Result<()> {
        let mut records: Vec<(String, Vec<u8>)> = Vec::new();
        if meta.mtime_nsec() != 0 || meta.mtime() < 0 {
            records.push((
                "mtime".into(),
                pax_time(meta.mtime(), meta.mtime_nsec()).into_bytes(),
            ));
        }
        let of_overlay = |name: &OsStr| name.as_bytes().starts_with(b"trusted.overlay.");
        for name in xattr::list(path)? {
            if self.is_layer && of_overlay(&name) {
                continue;
            }
            if let (Some(text), Some(value)) = (name.to_str(), xattr::get(path, &name)?) {
                records.push((format!("SCHILY.xattr.{text}"), value));
            }
        }
        self.builder
            .append_pax_extensions(records.iter().map(|(k, v)| (k.as_str(), v.as_slice())))
    }
}

/// Returns a time as PAX writes it, a decimal number of seconds. `nanos` counts forward from the second, also before
/// 1970.
fn pax_time(seconds: i64, nanos: i64) -> String {
    if seconds < 0 && nanos > 0 {
        let (seconds, nanos) = (-(seconds + 1), 1_000_000_000 - nanos);
        return format!("-{seconds}.{nanos:09}");
    }
    format!("{seconds}.{nanos:09}")
}

fn plain_header(meta: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(meta.uid().into());
    header.set_gid(meta.gid().into());
    header.set_mtime(meta.mtime().max(0) as u64);
    header.set_size(0);
    header
}

/// Returns the paths in a directory, in descending order. A name that begins with `.wh.` is an error, because a layer
/// would treat it as a whiteout.
fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path
            .file_name()
            .unwrap_or(OsStr::new(""))
            .as_bytes()
            .starts_with(b".wh.")
        {
            return Err(io::Error::other(format!(
                "{}: a name beginning with .wh. means a deleted file in a layer; rename it",
                path.display()
            )));
        }
        all.push(path);
    }
    all.sort_by(|a, b| b.cmp(a));
    Ok(all)
}
