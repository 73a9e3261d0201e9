//! The identity of a pod, which all parts of podprobe use as its key.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The identity of a pod. No two pods ever have the same UID. The UID of a static pod changes with the content of its
/// file (kubelet-probes 6.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(pub Arc<str>);

impl PodUid {
    /// Returns the UID as text, as in `metadata.uid`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PodUid {
    fn from(s: &str) -> Self {
        Self(s.into())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
