//! What a reading of a pod file gives: its content, or why that is not used.

use std::path::Path;
use std::sync::Arc;

use crate::api::PodUid;
use crate::api::decode::{DecodeError, Decoded};
use crate::api::objects::ObjectKey;

/// Turns the bytes of a file into objects.
pub type Decode = Arc<dyn Fn(&[u8], &Path) -> Result<Decoded, DecodeError> + Send + Sync>;

/// SHA-256 of a file's content.
pub type Digest = [u8; 32];

/// Equal signatures mean the same file with the same content: any write changes `ctime`, any
/// replacement changes the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Device and inode of the file behind all links.
    pub inode: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Seconds and nanoseconds.
    pub ctime: (i64, i64),
}

/// The result of reading a name in the directory. `signature` is None when the file was changed so
/// recently that a further write could leave the signature the same; the file is then read again
/// next time.
#[derive(Clone, Debug)]
pub enum Reading {
    /// The signature is the known one; the file was not opened.
    Unchanged,
    /// The file was opened, and its content is the same.
    SameContent {
        /// The signature to compare next time.
        signature: Option<Signature>,
    },
    /// The file was opened, and its content is new.
    Parsed {
        /// The signature, to be compared next time.
        signature: Option<Signature>,
        /// The digest of the content.
        digest: Digest,
        /// The result of decoding.
        result: Result<Decoded, ContentError>,
    },
    /// The file could not be read.
    Failed(String),
    /// Not a regular file: `a directory`, `a FIFO`, …
    Skipped(&'static str),
}

/// Content of a file that is not used, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// A file without a byte.
    #[error("the file is empty")]
    EmptyFile,
    /// An answer of a pod URL without a byte.
    #[error("the answer is empty; a PodList without items says that no pod is wanted")]
    EmptyAnswer,
    /// Content that is not understood, or holds an object that is not valid.
    #[error(transparent)]
    Refused(#[from] DecodeError),
    /// Content that made the decoder panic.
    #[error("cannot decode the file: internal error; please report this file")]
    Panicked,
    /// A pod that has a new name under its old UID. It would keep running under the old name.
    #[error(
        "metadata.name: {was} has become {is} under the same metadata.uid {uid}: change the uid too, or leave it out"
    )]
    Renamed {
        /// Namespace and name in the last good version.
        was: String,
        /// Namespace and name in this content.
        is: String,
        /// The UID of both.
        uid: PodUid,
    },
    /// New data of an immutable object.
    #[error(
        "{field}: Forbidden: field is immutable when `immutable` is set: {object} keeps its data; remove it from the file first, or give the new one another name"
    )]
    Immutable {
        /// The field that may not change.
        field: &'static str,
        /// The object.
        object: ObjectKey,
    },
}
