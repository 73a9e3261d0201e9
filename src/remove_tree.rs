//! Removing directories of ours.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Removes a tree that is ours, but never through a mount: whatever somebody mounted below it would be emptied.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    if let Some(at) = mounts
        .lines()
        .filter_map(|l| l.split(' ').nth(4))
        .map(unescape)
        .find(|at| at.starts_with(dir))
    {
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

/// Mount points have blanks and backslashes as octal escapes.
fn unescape(field: &str) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&b, tail)) = rest.split_first() {
        let octal = (b == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        (rest, _) = match octal {
            Some(c) => (&tail[3..], out.push(c)),
            None => (tail, out.push(b)),
        };
    }
    OsString::from_vec(out).into()
}
