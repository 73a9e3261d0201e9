//! Finds out which program a process runs.
//!
//! Invariants: two names of one file are the same program. Two files with the same bytes are the same program too, so
//! that installing a package again changes nothing. The bytes are read only if the files differ.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of bytes that are compared at a time.
const PART: usize = 64 * 1024;

/// Returns true if the process runs the program at this path. The file that the process was started from may be gone.
///
/// # Errors
/// Returns the error if the process has ended, or if one of the two files cannot be read.
pub fn is_run_by(program: &Path, pid: i32) -> io::Result<bool> {
    is_same(
        &File::open(program)?,
        &File::open(format!("/proc/{pid}/exe"))?,
    )
}

fn is_same(mut one: &File, mut other: &File) -> io::Result<bool> {
    let (a, b) = (one.metadata()?, other.metadata()?);
    // A sealed copy is the same file, seen through another mount.
    if (a.dev(), a.ino()) == (b.dev(), b.ino()) {
        return Ok(true);
    }
    if a.len() != b.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::with_capacity(PART), Vec::with_capacity(PART));
    loop {
        left.clear();
        right.clear();
        Read::take(&mut one, PART as u64).read_to_end(&mut left)?;
        Read::take(&mut other, PART as u64).read_to_end(&mut right)?;
        if left != right || left.is_empty() {
            return Ok(left == right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &[u8], other: &[u8], same: bool) {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, one).unwrap();
        std::fs::write(&b, other).unwrap();
        let open = |path| File::open(path).unwrap();
        assert_eq!(is_same(&open(&a), &open(&b)).unwrap(), same);
    }

    #[test]
    fn the_bytes_tell_whether_two_files_are_one_program() {
        let long = vec![7; 2 * PART + 1];
        let mut last_differs = long.clone();
        last_differs[2 * PART] = 8;
        check(b"", b"", true);
        check(b"a", b"a", true);
        check(b"a", b"ab", false);
        check(&long, &long.clone(), true);
        check(&long, &last_differs, false);
    }

    #[test]
    fn a_process_runs_its_file_and_every_copy_of_it() {
        let own = std::process::id() as i32;
        assert!(is_run_by(Path::new("/proc/self/exe"), own).unwrap());
        assert!(!is_run_by(Path::new("/proc/self/stat"), own).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy("/proc/self/exe", &copy).unwrap();
        assert!(is_run_by(&copy, own).unwrap());
    }
}
