//! Why a volume is not ready. The texts begin as the kubelet's where it has one.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::api::field::aggregate;
use crate::api::field_ref::FieldRefError;
use crate::api::objects::ObjectKind;

/// A volume that is not ready, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {cause}")]
pub struct VolumeError {
    /// Name of the volume.
    pub volume: String,
    /// The cause.
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

/// A reason why a volume cannot be made, filled or given to the pod's group.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// No type of volume supports it.
    #[error("no type of volume that podprobe has")]
    NoType,
    /// A path of the node is not what the pod says.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The volume is a claim without a name.
    #[error("it names no claim")]
    NoClaim,
    /// The directory of the volume cannot be made.
    #[error("cannot make {}: {source}", .dir.display())]
    Make {
        /// The directory.
        dir: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The containers request pages of several sizes, and the medium names none of them.
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
    /// The file system of the directory is unknown.
    #[error("cannot look at its directory: {0}")]
    Look(#[source] Errno),
    /// The content of objects must not be on a disk.
    #[error("its directory is not in memory")]
    NotInMemory,
    /// The object or field that the volume shows has no files.
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

/// A reason why a path of the node cannot be a `hostPath` volume.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// The volume is a `hostPath` without a path.
    #[error("it names no hostPath")]
    NoPath,
    /// Kubernetes has no such type.
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
    /// Nothing is at the path, and the type does not say that something is made there.
    #[error("hostPath {path} doesn't exist; create the {word} first{}", or_create(.type_))]
    Missing {
        /// The path on the node.
        path: String,
        /// The file that the type asks for, in words.
        word: &'static str,
        /// The type.
        type_: String,
    },
    /// The file at the path cannot be looked at.
    #[error("cannot look at {path}: {source}")]
    Look {
        /// The path on the node.
        path: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file at the path is not of the type.
    #[error(
        "hostPath type check failed: {path} is not a {word}, it's a {is}; name a {word} or change the type"
    )]
    OtherType {
        /// The path on the node.
        path: String,
        /// The file that the type asks for, in words.
        word: &'static str,
        /// The file that is there, in the word of Kubernetes.
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

/// A reason why an object or a field of the pod cannot be the content of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The object is missing.
    #[error("{} {name:?} not found", .kind.resource())]
    NotFound {
        /// The kind of the object.
        kind: ObjectKind,
        /// The name of the object.
        name: String,
    },
    /// The ConfigMap does not have the key.
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    /// The Secret does not have the key.
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    /// A field or a resource of the pod has no value.
    #[error(transparent)]
    Field(#[from] FieldRefError),
    /// A file cannot have the path.
    #[error("invalid path: {rule}: {path:?}")]
    Path {
        /// The rule that the path breaks.
        rule: PathRule,
        /// The path as written.
        path: String,
    },
    /// Two files have paths of which one leads through the other.
    #[error("path {0:?} is a file and a directory")]
    FileAndDirectory(String),
    /// Several sources of a projected volume are wrong, in their order.
    #[error("{}", aggregate(.0))]
    Sources(Vec<ContentError>),
}

impl ContentError {
    pub(super) fn not_found(kind: ObjectKind, name: &str) -> Self {
        Self::NotFound {
            kind,
            name: name.to_owned(),
        }
    }
}

/// A rule for the path of a file in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRule {
    /// The path names a file.
    #[error("must not be empty")]
    NotEmpty,
    /// The path begins in the volume.
    #[error("must be relative path")]
    Relative,
    /// The path is not too long for the kernel.
    #[error("must be less than or equal to 4096 characters")]
    Length,
    /// The path does not lead through too many directories.
    #[error("must have at most 100 parts")]
    Parts,
    /// The path is a text of the kernel.
    #[error("must not contain a NUL character")]
    NoNul,
    /// The path does not leave the volume.
    #[error("must not contain '..'")]
    NoParent,
    /// No name in the path is too long for a file system.
    #[error("filenames must be less than or equal to 255 characters")]
    NameLength,
    /// The path is none that the volume keeps for itself.
    #[error("must not start with '..'")]
    NotReserved,
}
