//! Replaces a file as a whole: a reader finds either all of the old content or all of the new, even after a power cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::aside::rename_over;

/// Replaces a file that only its owner may read. The new content is on disk when the function returns.
///
/// # Errors
/// Returns the system's error if the file cannot be written. The file then keeps its old content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(bytes))
}

/// Replaces a file like [`replace`], with content that `write` writes piece by piece. The content is never in memory as
/// a whole.
///
/// # Errors
/// Returns the system's error if the file cannot be written, or the error of `write`. The file then keeps its old content.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    let replaced = write(&mut file)
        .and_then(|()| file.sync_all())
        .and_then(|()| rename_over(&temporary, path));
    if let Err(e) = replaced {
        // On a full disk the temporary file would take the little room that is left.
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    path.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_write_that_fails_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        replace(&path, b"old").unwrap();
        let failed = replace_with(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
