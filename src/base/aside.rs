//! Moves what is not the file that it should be out of the way, so that a person can look at it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Ending of the name of what was moved aside.
pub const CORRUPT: &str = ".corrupt";

/// Renames a file, or whatever has its name, to the name with `ending` added. What had that name before is removed: it
/// was moved there earlier. Returns the new path.
///
/// # Errors
/// Returns the system's error if the file cannot be renamed.
pub fn move_aside(path: &Path, ending: &str) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ending);
    let aside = PathBuf::from(aside);
    // A file cannot take the name of a directory, nor a directory that of a file.
    remove_any(&aside)?;
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// Removes a file, or the directory that somebody has put in its place. A missing file is not an error.
///
/// # Errors
/// Returns the system's error if something of it is left.
pub fn remove_any(path: &Path) -> io::Result<()> {
    let is_dir = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
    let removed = match is_dir {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Renames a file to a name that it takes from another file. A directory of that name is moved aside.
///
/// # Errors
/// Returns the system's error if the file cannot be renamed.
pub fn rename_over(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(e) if is_no_file(&e) => {
            move_aside(to, CORRUPT)?;
            fs::rename(from, to)
        }
        renamed => renamed,
    }
}

/// Opens a file that is there to be locked, and makes it if it is missing. A directory of its name is moved aside.
///
/// # Errors
/// Returns the system's error if the file cannot be opened.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let open = || {
        let mut open = File::options();
        let open = open.read(true).write(true).create(true).truncate(false);
        open.mode(0o600).open(path)
    };
    match open() {
        Err(e) if is_no_file(&e) => {
            move_aside(path, CORRUPT)?;
            open()
        }
        opened => opened,
    }
}

/// Tells whether a read failed because the path is not a regular file.
pub fn is_no_file(e: &io::Error) -> bool {
    let errno = e.raw_os_error();
    errno.is_some_and(|n| [libc::EISDIR, libc::ELOOP, libc::ENOTDIR, libc::ENXIO].contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_directory_take_the_place_of_what_was_moved_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let is_dir = |is_dir: bool| {
            let aside = move_aside(&path, ".corrupt").unwrap();
            assert_eq!(aside, dir.path().join("a.json.corrupt"));
            assert_eq!(aside.is_dir(), is_dir);
            assert!(!path.exists());
        };
        for _ in 0..2 {
            fs::create_dir_all(path.join("below/it")).unwrap();
            is_dir(true);
            fs::create_dir_all(path.join("below/it")).unwrap();
            is_dir(true);
            fs::write(&path, "x").unwrap();
            is_dir(false);
            fs::write(&path, "x").unwrap();
            is_dir(false);
        }
        assert!(move_aside(&path, ".corrupt").is_err(), "nothing is there");
    }

    #[test]
    fn a_directory_in_the_way_of_a_file_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let (new, path) = (dir.path().join("new"), dir.path().join("a"));
        for _ in 0..2 {
            fs::create_dir_all(path.join("below")).unwrap();
            lock_file(&path).unwrap().try_lock().unwrap();
            assert!(path.is_file() && dir.path().join("a.corrupt/below").exists());
            fs::remove_file(&path).unwrap();
            fs::create_dir_all(path.join("below/it")).unwrap();
            fs::write(&new, "x").unwrap();
            rename_over(&new, &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "x");
            assert!(dir.path().join("a.corrupt/below/it").exists());
            lock_file(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "x");
            fs::remove_file(&path).unwrap();
        }
        assert!(rename_over(&new, &path).is_err(), "nothing is there");
    }

    #[test]
    fn only_what_is_no_file_is_damage() {
        let is_damage = |errno| is_no_file(&io::Error::from_raw_os_error(errno));
        assert!([libc::EISDIR, libc::ELOOP].into_iter().all(is_damage));
        let ours = [libc::EMFILE, libc::ENOMEM, libc::EIO, libc::EACCES];
        assert!(!ours.into_iter().any(is_damage));
        assert!(!is_no_file(&io::ErrorKind::OutOfMemory.into()));
    }
}
