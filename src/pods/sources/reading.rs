//! A reading of a pod file: its content, or the reason why its content is not used.

use std::path::Path;
use std::sync::Arc;

use crate::api::PodUid;
use crate::api::decode::{DecodeError, Decoded};
use crate::api::objects::ObjectKey;
use crate::api::workload::WorkloadKey;

/// The decoder that turns the bytes of a file into pods and other objects.
pub type Decode = Arc<dyn Fn(&[u8], &Path) -> Result<Decoded, DecodeError> + Send + Sync>;

/// The SHA-256 digest of a file's content.
pub type Digest = [u8; 32];

/// The signature of a file. Equal signatures mean the same file with the same content: every write changes `ctime`, and
/// every replacement changes the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The device and the inode of the file. Links are followed.
    pub inode: (u64, u64),
    /// The size in bytes.
    pub size: u64,
    /// The time of the last change of the content, in seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// The time of the last change of the inode, in seconds and nanoseconds.
    pub ctime: (i64, i64),
}

/// The result of reading a name in the directory. `signature` is `None` if the file was changed so recently that a
/// further write could leave the signature the same. The file is then read again at the next listing.
#[derive(Clone, Debug)]
pub enum Reading {
    /// The signature has not changed, so the file was not opened.
    Unchanged,
    /// The file was opened, and its content has not changed.
    SameContent {
        /// The signature to compare at the next listing.
        signature: Option<Signature>,
    },
    /// The file was opened, and its content is new.
    Parsed {
        /// The signature to compare at the next listing.
        signature: Option<Signature>,
        /// The digest of the content.
        digest: Digest,
        /// The result of decoding.
        result: Result<Decoded, ContentError>,
    },
    /// The file could not be read.
    Failed(String),
    /// The entry is not a regular file. The text names the kind of the entry: `a directory`, `a FIFO`, …
    Skipped(&'static str),
}

/// The reason why the content of a file is not used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The file has no bytes.
    #[error("the file is empty")]
    EmptyFile,
    /// The answer of a pod URL has no bytes.
    #[error("the answer is empty; a PodList without items says that no pod is wanted")]
    EmptyAnswer,
    /// The content cannot be decoded, or has an object that is not valid.
    #[error(transparent)]
    Refused(#[from] DecodeError),
    /// The content made the decoder panic.
    #[error("cannot decode the file: internal error; please report this file")]
    Panicked,
    /// A pod has a new name under its old UID. The pod would keep running under its old name.
    #[error(
        "metadata.name: {was} has become {is} under the same metadata.uid {uid}: change the uid too, or leave it out"
    )]
    Renamed {
        /// The pod's namespace and name in the last good version.
        was: String,
        /// The pod's namespace and name in the new content.
        is: String,
        /// The UID, which is the same in both versions.
        uid: PodUid,
    },
    /// An immutable object has new data.
    #[error(
        "{field}: Forbidden: field is immutable when `immutable` is set: {object} keeps its data; remove it from the file first, or give the new one another name"
    )]
    Immutable {
        /// The field that must not change.
        field: &'static str,
        /// The immutable object.
        object: ObjectKey,
    },
    /// A workload has a new value in a field that may not change.
    #[error(
        "{errors}: {workload} goes on as it was; give the field its old value again, or delete the workload and apply the file anew, or give the new one another name"
    )]
    ImmutableWorkload {
        /// The fields that must not change, in the API's words.
        errors: String,
        /// The workload that goes on as it was.
        workload: WorkloadKey,
    },
}

impl ContentError {
    /// True if the content is valid, and only does not fit what runs already.
    pub fn is_of_valid_content(&self) -> bool {
        matches!(
            self,
            Self::Renamed { .. } | Self::Immutable { .. } | Self::ImmutableWorkload { .. }
        )
    }
}
