//! What is wrong with a service on this node, as data and for people (services 2.5).
//!
//! Invariants: pure. A finding names the object, the field, the value, and the way out.

use std::fmt;

/// Whose fault it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A service, by namespace and name.
    Service(String, String),
    /// A pod, by namespace and name.
    Pod(String, String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(namespace, name) => write!(f, "service {namespace}/{name}"),
            Self::Pod(namespace, name) => write!(f, "pod {namespace}/{name}"),
        }
    }
}

/// What is left out of the data path, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// An address that the node has.
    AddressOfNode,
    /// An address and port, or a port of the node, that podprobe itself uses.
    PortOfPodprobe,
    /// An address and port that another service has.
    AddressTaken,
    /// A port of the node that another service or a pod has.
    NodePortTaken,
    /// An address of a family that the service does not have.
    OtherFamily,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Whose it is.
    pub subject: Subject,
    /// What is left out.
    pub what: What,
    /// Field, value, cause and way out; without the object.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}
