//! The place to which a copy writes the files of a stream: a directory, and the names of the files in this directory.

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use super::error::{CopyError, shown};
use super::names::{base_name, names_a_directory, parent};
use super::place::Root;
use crate::engine::images::tarstream::{Kind, TarEntry};
use crate::engine::images::tree;

/// Rule that says what the destination path of a copy means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The rule of `cp -r`: if there is a directory at the destination path, the copy goes into this directory.
    /// Otherwise the path is the copy's new name.
    Copy,
    /// The destination path is that of an existing directory, and each entry of the stream goes below this directory.
    Extract,
}

/// The destination of a copy.
pub struct Target<'a> {
    /// The directory at which the destination path starts.
    pub root: &'a Root,
    /// The destination path as a person typed it.
    pub path: &'a [u8],
    /// User and group that own the new files. None means the user and group of this process.
    pub owner: Option<(u32, u32)>,
    /// Rule that says what the destination path means.
    pub placement: Placement,
}

/// Rule that turns the path of an entry in the stream into the entry's path below the base directory.
#[derive(Default)]
pub(super) struct Way {
    /// Name with which every path in the stream begins, and which is removed from the path. None if no name is removed.
    source: Option<Vec<u8>>,
    /// Name that is put in the place of `source`; None if no name is put there.
    name: Option<Vec<u8>>,
}

impl Way {
    /// Returns the path of an entry below the base directory. The path is empty for the base directory itself.
    pub(super) fn of(&self, path: &[u8]) -> Result<Vec<u8>, &'static str> {
        let path = tree::clean(path)?;
        let rest = match &self.source {
            None => path.as_slice(),
            Some(source) => match path.strip_prefix(source.as_slice()) {
                Some(rest @ ([] | [b'/', ..])) => rest,
                _ => return Err("the stream has two beginnings"),
            },
        };
        let parts = [self.name.as_deref().unwrap_or_default(), rest];
        tree::clean(&parts.join(&b'/'))
    }
}

pub(super) fn write_failed(path: &[u8], e: impl Into<io::Error>) -> CopyError {
    CopyError::of_file("write", path, e)
}

impl Target<'_> {
    /// Returns the base directory, and the rule for paths below this directory. Both depend on the first entry of the
    /// stream, which is the file or directory that a person has named.
    pub(super) fn begin(&self, first: &TarEntry) -> Result<(OwnedFd, Way), CopyError> {
        if self.placement == Placement::Extract {
            let dir = self.root.dir(self.path);
            return Ok((dir.map_err(|e| write_failed(self.path, e))?, Way::default()));
        }
        let refused = |why| CopyError::refused("write", &first.path, why);
        let source = tree::clean(&first.path).map_err(refused)?;
        if source.contains(&b'/') {
            return Err(refused(
                "the stream begins with something inside a directory",
            ));
        }
        // The first entry has an empty path if the content of a directory is copied. There is no name to remove in this
        // case.
        let source = (!source.is_empty()).then_some(source);
        if let Some(dir) = self.existing_dir(first.kind == Kind::Directory)? {
            let name = source.clone();
            return Ok((dir, Way { source, name }));
        }
        let missing = || write_failed(self.path, Errno::ENOENT);
        let name = base_name(self.path).ok_or_else(missing)?;
        let name = Some(name.to_vec());
        Ok((self.parent()?, Way { source, name }))
    }

    /// Returns the directory at the destination path. Returns None if the path is a new name, or the name of a file
    /// that the copy replaces.
    fn existing_dir(&self, is_dir: bool) -> Result<Option<OwnedFd>, CopyError> {
        let path = self.path;
        match self.root.dir(path) {
            Ok(dir) => Ok(Some(dir)),
            Err(Errno::ENOTDIR) if is_dir || names_a_directory(path) => {
                Err(CopyError::refused("write", path, "it is not a directory"))
            }
            Err(Errno::ENOENT) if !is_dir && names_a_directory(path) => {
                Err(write_failed(path, Errno::ENOENT))
            }
            Err(Errno::ENOTDIR | Errno::ENOENT) => Ok(None),
            Err(e) => Err(write_failed(path, e)),
        }
    }

    fn parent(&self) -> Result<OwnedFd, CopyError> {
        let (path, above) = (self.path, parent(self.path));
        self.root.dir(above).map_err(|e| match e {
            Errno::ENOENT => CopyError::NotFound(format!(
                "cannot write {}: the directory {} does not exist; make it first",
                shown(path),
                shown(above)
            )),
            e => write_failed(path, e),
        })
    }
}
