//! Removes our own directories.

use std::fs;
use std::io;
use std::path::Path;

use crate::sys::mountinfo;

/// Removes a tree, but never through a mount, because that would empty the mounted file system.
///
/// # Errors
/// Something is mounted below it, or a file cannot be removed. A missing tree is not an error.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let mounts = mountinfo::read()?;
    if let Some(at) = mounts.iter().map(|m| &m.at).find(|at| at.starts_with(dir)) {
        return Err(io::Error::other(format!(
            "{} is mounted; unmount it first",
            at.display()
        )));
    }
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
