//! The decision when the files of a kubeconfig are read again, because others rotate them.
//!
//! Invariant: pure. The caller asks before each connection, and tells what it has read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::clock::Moment;
use crate::pods::sources::Signature;

/// Longest age of a token that was read from a file. Service account tokens are replaced by a new link to a new file,
/// and their old ones expire.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// The use of a file that a kubeconfig names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// A certificate, a key, or the certificates of authorities.
    Certificate,
    /// A bearer token.
    Token,
}

/// The files that have been read, each with its signature and the time of the reading.
#[derive(Debug, Default)]
pub struct Rereading(BTreeMap<PathBuf, (Option<Signature>, Moment)>);

impl Rereading {
    /// True if the file must be read before the next connection or, for a token, before the next request. `current` is
    /// the signature that the file has now; None if the file cannot be found. A file that is missing is not read
    /// again: what was read last counts until the file is back.
    pub fn is_due(
        &self,
        now: Moment,
        what: FileUse,
        file: &Path,
        current: Option<Signature>,
    ) -> bool {
        match (self.0.get(file), current) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some((known, read)), current) => {
                let is_old = what == FileUse::Token && now.since(*read) >= TOKEN_AGE;
                *known != current || is_old
            }
        }
    }

    /// Takes note that a file has been read. `signature` is the one that the file had before its content was read.
    pub fn note(&mut self, now: Moment, file: &Path, signature: Option<Signature>) {
        self.0.insert(file.to_owned(), (signature, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn signature(inode: u64, mtime: i64) -> Option<Signature> {
        Some(Signature {
            inode: (1, inode),
            size: 10,
            mtime: (mtime, 0),
            ctime: (mtime, 0),
        })
    }

    #[test]
    fn certificates_are_read_again_when_their_file_has_changed() {
        let (mut files, file) = (Rereading::default(), Path::new("/c.pem"));
        let due = |files: &Rereading, seconds, current| {
            files.is_due(at(seconds), FileUse::Certificate, file, current)
        };
        assert!(due(&files, 0, None), "never read: the error must be seen");
        files.note(at(0), file, signature(1, 1));
        assert!(!due(&files, 100_000, signature(1, 1)));
        assert!(
            due(&files, 1, signature(2, 1)),
            "another file, as rename makes it"
        );
        assert!(due(&files, 1, signature(1, 2)), "written again");
        assert!(!due(&files, 1, None), "missing in the middle of a rotation");
    }

    #[test]
    fn tokens_are_also_read_again_every_minute() {
        let (mut files, file) = (Rereading::default(), Path::new("/token"));
        files.note(at(10), file, signature(1, 1));
        let due = |seconds, current| files.is_due(at(seconds), FileUse::Token, file, current);
        assert!(!due(69, signature(1, 1)));
        assert!(due(70, signature(1, 1)));
        assert!(due(11, signature(2, 1)));
        assert!(!due(70, None));
    }
}
