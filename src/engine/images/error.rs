//! Errors of images. The text of each error says what a person can do.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reason why an image cannot be loaded, found or removed. The text is one sentence for people.
#[derive(Debug)]
pub enum ImageError {
    /// No image of the node has this reference.
    NotFound {
        /// The reference as the caller gave it.
        reference: String,
        /// Names of loaded images that are similar to the reference, at most three.
        similar: Vec<String>,
    },
    /// The text is not an image reference.
    InvalidName {
        /// The text as the caller gave it.
        name: String,
        /// The rule that the text breaks.
        why: String,
    },
    /// The archive names no image and the caller gave no name.
    NoName {
        /// Path or description of the archive.
        archive: String,
    },
    /// The file is not an image archive at all.
    NotAnImage {
        /// Path of the file.
        path: String,
        /// Reason why the file cannot be loaded.
        why: String,
    },
    /// The content is truncated or damaged, or its digest is not the expected one.
    Corrupt {
        /// The archive, blob, layer or image that cannot be used.
        what: String,
        /// The damage that was found.
        why: String,
    },
    /// A layer has an entry that would lead out of the layer, or that is not allowed in a layer.
    Refused {
        /// Path of the entry in the archive, cut after 200 bytes.
        entry: String,
        /// The rule that the entry breaks.
        why: String,
    },
    /// An image or a stream exceeds one of the limits ([`super::Limits`]).
    TooLarge {
        /// The thing that is too large.
        what: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// The file system of the store has too little room.
    NoSpace {
        /// The object for which there was no room.
        what: String,
        /// The free room and the needed room.
        room: NoRoom,
    },
    /// The archive has no image for this machine.
    WrongPlatform {
        /// The platform of this machine, as in `linux/amd64`.
        wanted: String,
        /// The platforms for which the archive has images.
        found: Vec<String>,
    },
    /// A system call failed.
    Io {
        /// The operation that failed: "read /srv/x.tar", "write layer sha256:…".
        doing: String,
        /// The error of the system call.
        cause: io::Error,
    },
}

impl ImageError {
    pub(super) fn io(doing: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Io {
            doing: doing.into(),
            cause: cause.into(),
        }
    }

    pub(super) fn corrupt(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Corrupt {
            what: what.into(),
            why: why.into(),
        }
    }

    /// Returns the error for a failure to read `what`, the object that the error names. An error of the system becomes
    /// [`Self::Io`]. An error of a decoder means damaged data.
    pub(super) fn reading(what: &str, cause: io::Error) -> Self {
        if cause.raw_os_error().is_some() {
            return Self::io(format!("read {what}"), cause);
        }
        let inner = cause.get_ref();
        if let Some(room) = inner.and_then(|e| e.downcast_ref::<NoRoom>()) {
            let (what, room) = (what.into(), room.clone());
            return Self::NoSpace { what, room };
        }
        match inner.and_then(|e| e.downcast_ref::<StreamTooLong>()) {
            Some(e) => Self::TooLarge {
                what: what.into(),
                limit: format!("{} bytes", e.0),
            },
            None => Self::corrupt(what, cause.to_string()),
        }
    }

    pub(super) fn refused(entry: &[u8], why: impl Into<String>) -> Self {
        let shown = String::from_utf8_lossy(&entry[..entry.len().min(200)]).into_owned();
        Self::Refused {
            entry: shown,
            why: why.into(),
        }
    }
}

/// A stream is longer than its limit in bytes. The reader that enforces the limit puts this value into its `io::Error`.
#[derive(Debug)]
pub(super) struct StreamTooLong(pub(super) u64);

impl fmt::Display for StreamTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} bytes", self.0)
    }
}

impl std::error::Error for StreamTooLong {}

/// A file system has too little room. The reader that checks the room puts this value into its `io::Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// A directory on the file system that is full.
    pub dir: PathBuf,
    /// Smallest number of bytes that are still needed.
    pub needed: u64,
    /// Number of bytes that are free.
    pub free: u64,
    /// Number of bytes that must stay free on the file system.
    pub kept: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dir,
            needed,
            free,
            kept,
        } = self;
        write!(
            f,
            "no space left on the file system of {}: at least {} more are needed, {} are free and {} of them are kept free",
            dir.display(),
            Bytes(*needed),
            Bytes(*free),
            Bytes(*kept)
        )
    }
}

impl std::error::Error for NoRoom {}

/// A number of bytes, displayed with a suitable unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1 << 10 => write!(f, "{n} bytes"),
            n if n < 10 << 20 => write!(f, "{} KiB", n.div_ceil(1 << 10)),
            n => write!(f, "{} MiB", n.div_ceil(1 << 20)),
        }
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { reference, similar } => {
                write!(
                    f,
                    "cannot find image {reference:?} on this node: load it with `podprobe image load FILE`, or pull it with `podprobe image pull`"
                )?;
                if similar.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; loaded with a similar name: {}", similar.join(", "))
                }
            }
            Self::InvalidName { name, why } => write!(f, "cannot parse image name {name:?}: {why}"),
            Self::NoName { archive } => {
                write!(
                    f,
                    "cannot name the image of {archive}: the archive gives it no name, load it with `--name NAME`"
                )
            }
            Self::NotAnImage { path, why } => write!(f, "cannot load {path}: {why}"),
            Self::Corrupt { what, why } => write!(f, "cannot use {what}: {why}"),
            Self::Refused { entry, why } => write!(f, "cannot unpack entry {entry:?}: {why}"),
            Self::NoSpace { what, room } => write!(
                f,
                "cannot unpack {what}: {room}; free some space and try again, nothing was kept"
            ),
            Self::TooLarge { what, limit } => write!(f, "cannot unpack {what}: more than {limit}"),
            Self::WrongPlatform { wanted, found } => {
                write!(
                    f,
                    "cannot run this image here: it has no {wanted}, only {}",
                    found.join(", ")
                )
            }
            Self::Io { doing, cause } if cause.kind() == io::ErrorKind::StorageFull => {
                write!(
                    f,
                    "cannot {doing}: no space left on the file system, free some and try again; nothing was kept"
                )
            }
            Self::Io { doing, cause } => write!(f, "cannot {doing}: {cause}"),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
