//! What can go wrong with images, each with what to do about it.

use std::fmt;
use std::io;

/// Why an image cannot be loaded, found or removed. The text is one sentence for people.
#[derive(Debug)]
pub enum ImageError {
    /// No loaded image answers to this reference. Nothing is pulled.
    NotFound {
        /// As it was asked for.
        reference: String,
        /// Loaded names that look like it, at most three.
        similar: Vec<String>,
    },
    /// Not an image reference.
    InvalidName {
        /// As it was given.
        name: String,
        /// The rule it breaks.
        why: String,
    },
    /// The archive names no image and the caller gave no name.
    NoName {
        /// The archive.
        archive: String,
    },
    /// The file is not an image archive at all.
    NotAnImage {
        /// The file.
        path: String,
        /// What was looked for and not found.
        why: String,
    },
    /// Truncated, damaged, or not what its digest says.
    Corrupt {
        /// The archive, blob, layer or image.
        what: String,
        /// How.
        why: String,
    },
    /// A layer's entry that would leave the layer, or that no layer may have.
    Refused {
        /// The entry's path in the archive.
        entry: String,
        /// The rule it breaks.
        why: String,
    },
    /// More than a limit allows ([`super::Limits`]).
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
    /// The archive has no image for this machine.
    WrongPlatform {
        /// `linux/amd64` and so on.
        wanted: String,
        /// The platforms it has.
        found: Vec<String>,
    },
    /// The system refused.
    Io {
        /// "read /srv/x.tar", "write layer sha256:…".
        doing: String,
        /// The cause.
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

    /// An error of reading `what`: the system's own are [`Self::Io`], those of the decoders mean damaged data.
    pub(super) fn reading(what: &str, cause: io::Error) -> Self {
        if cause.raw_os_error().is_some() {
            return Self::io(format!("read {what}"), cause);
        }
        match cause
            .get_ref()
            .and_then(|e| e.downcast_ref::<StreamTooLong>())
        {
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

/// Carried inside an `io::Error` by the reader that enforces the limit, in bytes.
#[derive(Debug)]
pub(super) struct StreamTooLong(pub(super) u64);

impl fmt::Display for StreamTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} bytes", self.0)
    }
}

impl std::error::Error for StreamTooLong {}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { reference, similar } => {
                write!(
                    f,
                    "cannot find image {reference:?} on this node: nothing is pulled, load it with `podprobe image load FILE`"
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
