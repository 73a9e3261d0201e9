//! Reasons why a copy fails.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// Reason why a copy has failed.
#[derive(Debug)]
pub enum CopyError {
    /// The source does not exist, or the directory of the destination does not exist.
    NotFound(String),
    /// The files on this side do not allow the copy.
    Refused(String),
    /// The stream cannot be read or written any further, or is not a tar archive.
    Stream(io::Error),
}

impl CopyError {
    /// Returns the error `cannot <verb> "<path>": <why>`.
    pub(super) fn refused(verb: &str, path: &[u8], why: impl fmt::Display) -> Self {
        Self::Refused(format!("cannot {verb} {}: {why}", shown(path)))
    }

    /// Returns the error of a copy for a system call that has failed on a file.
    pub(super) fn of_file(verb: &str, path: &[u8], e: impl Into<io::Error>) -> Self {
        let e = e.into();
        let text = match e.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {
                return Self::NotFound(format!("cannot {verb} {}: it does not exist", shown(path)));
            }
            Some(Errno::EROFS) => {
                "the file system is read-only; a volume of the pod may be written to"
            }
            Some(Errno::ENOSPC) => "no space is left on the file system",
            Some(Errno::EDQUOT) => "the quota of the file system is used up",
            Some(Errno::EISDIR) => "it is a directory",
            Some(Errno::ENOTDIR) => "it, or what leads to it, is not a directory",
            Some(Errno::EBUSY) => "it is a mount of its own, which is not replaced",
            Some(Errno::ELOOP) => "too many links lead to it",
            Some(Errno::ENAMETOOLONG) => "a name is too long for the file system",
            Some(Errno::EACCES | Errno::EPERM) => "permission denied",
            Some(Errno::EMFILE | Errno::ENFILE) => "no descriptors are left; try again",
            _ => return Self::refused(verb, path, e),
        };
        Self::refused(verb, path, text)
    }
}

/// Returns a path as readable text in quotes: the path of a container may hold any byte.
pub(super) fn shown(path: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(path))
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(text) | Self::Refused(text) => f.write_str(text),
            Self::Stream(e) => write!(f, "the stream of files has broken off: {e}"),
        }
    }
}

impl std::error::Error for CopyError {}
