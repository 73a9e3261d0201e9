//! Removing directories of ours.

use std::fs;
use std::io;
use std::path::Path;

use crate::sys::mountinfo;

/// Removes a tree that is ours, but never through a mount: whatever somebody mounted below it would be emptied.
///
/// # Errors
/// Something is mounted below it, or the disk does not let go of it. A tree that is not there is no error.
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
