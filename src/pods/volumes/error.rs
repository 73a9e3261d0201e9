//! The reasons why a volume is not ready. A text begins like the kubelet's text if the kubelet has one.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::api::claimed_volume::NoVolume;
use crate::api::field::aggregate;
use crate::api::field_ref::FieldRefError;
use crate::api::objects::NoObject;
use crate::api::service_account::NoToken;

/// A volume is not ready. The text is in the kubelet's words.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {cause}")]
pub struct VolumeError {
    /// The name of the volume.
    pub volume: String,
    /// The reason why the volume is not ready.
    #[source]
    pub cause: SetUpError,
}

impl VolumeError {
    pub(super) fn new(volume: &str, cause: impl Into<SetUpError>) -> Self {
        Self {
            volume: volume.to_owned(),
            cause: cause.into(),
        }
    }
}

/// The reason why a volume cannot be made, filled or given to the pod's group.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// No type of volume supports the volume.
    #[error("no type of volume that podprobe has")]
    NoType,
    /// A path on the node differs from the pod's spec.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The volume is a `persistentVolumeClaim` without a claim name.
    #[error("it names no claim")]
    NoClaim,
    /// The directory of the volume cannot be made.
    #[error("cannot make {}: {source}", .dir.display())]
    Make {
        /// The path of the directory.
        dir: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The containers request pages of several sizes, and the medium does not name a size.
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    ManyPageSizes(String),
    /// No container requests pages that fit the medium.
    #[error(
        "medium {0}: hugePages storage requested, but there is no resource request for huge pages"
    )]
    NoPageSize(String),
    /// The files cannot be given to the pod's group.
    #[error("cannot set its group: {0}")]
    Group(#[source] io::Error),
    /// The directory of the volume cannot be opened.
    #[error("cannot open its directory: {0}")]
    Open(#[source] io::Error),
    /// The file system of the directory cannot be determined.
    #[error("cannot look at its directory: {0}")]
    Look(#[source] Errno),
    /// The directory is not in memory, but the content of objects must not be on a disk.
    #[error("its directory is not in memory")]
    NotInMemory,
    /// The object or field that the volume shows has no valid files.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The files of the volume cannot be written.
    #[error("cannot write its files: {0}")]
    Write(#[source] io::Error),
}

impl SetUpError {
    pub(super) fn make(dir: &Path, source: io::Error) -> Self {
        Self::Make {
            dir: dir.to_owned(),
            source,
        }
    }
}

/// The reason why a path on the node cannot be a `hostPath` volume.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// The volume is a `hostPath` without a path.
    #[error("it names no hostPath")]
    NoPath,
    /// Kubernetes has no `hostPath` type with this name.
    #[error("unknown type {0:?}")]
    UnknownType(String),
    /// The missing file or directory cannot be made.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The path on the node.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path does not exist, and the `hostPath` type does not create it.
    #[error("hostPath {path} doesn't exist; create the {word} first{}", or_create(.type_))]
    Missing {
        /// The path on the node.
        path: String,
        /// The kind of file that the type requires, in words.
        word: &'static str,
        /// The `hostPath` type.
        type_: String,
    },
    /// The type of the file at the path cannot be determined.
    #[error("cannot look at {path}: {source}")]
    Look {
        /// The path on the node.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file at the path is not of the required type.
    #[error(
        "hostPath type check failed: {path} is not a {word}, it's a {is}; name a {word} or change the type"
    )]
    OtherType {
        /// The path on the node.
        path: String,
        /// The kind of file that the type requires, in words.
        word: &'static str,
        /// The kind of file that exists at the path, in Kubernetes' word.
        is: &'static str,
    },
}

fn or_create(type_: &str) -> &'static str {
    match type_ {
        "Directory" => ", or use type DirectoryOrCreate",
        "File" => ", or use type FileOrCreate",
        _ => "",
    }
}

/// The reason why an object or a field of the pod cannot be the content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// There is no object.
    #[error(transparent)]
    NoObject(#[from] NoObject),
    /// The claim gives no volume.
    #[error("error processing PVC {claim}: {cause}")]
    NoVolume {
        /// Namespace and name of the claim.
        claim: String,
        /// The reason.
        cause: NoVolume,
    },
    /// There is no token of the pod's service account.
    #[error(transparent)]
    NoToken(#[from] NoToken),
    /// The ConfigMap does not have the key.
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    /// The Secret does not have the key.
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    /// A field or a resource of the pod has no value.
    #[error(transparent)]
    Field(#[from] FieldRefError),
    /// The path of a file is not valid.
    #[error("invalid path: {rule}: {path:?}")]
    Path {
        /// The rule that the path breaks.
        rule: PathRule,
        /// The path as written.
        path: String,
    },
    /// A path is both a file and the directory of another file.
    #[error("path {0:?} is a file and a directory")]
    FileAndDirectory(String),
    /// The errors of several sources of a projected volume, in their order.
    #[error("{}", aggregate(.0))]
    Sources(Vec<ContentError>),
}

/// A rule for the path of a file in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRule {
    /// The path must not be empty.
    #[error("must not be empty")]
    NotEmpty,
    /// The path must be relative to the volume.
    #[error("must be relative path")]
    Relative,
    /// The path must not be longer than the kernel accepts.
    #[error("must be less than or equal to 4096 characters")]
    Length,
    /// The path must not have too many parts.
    #[error("must have at most 100 parts")]
    Parts,
    /// The path must not have a NUL character.
    #[error("must not contain a NUL character")]
    NoNul,
    /// The path must not lead out of the volume.
    #[error("must not contain '..'")]
    NoParent,
    /// No name in the path may be longer than a file system accepts.
    #[error("filenames must be less than or equal to 255 characters")]
    NameLength,
    /// The path must not begin with `..`: such names are reserved for the volume's own files.
    #[error("must not start with '..'")]
    NotReserved,
}
