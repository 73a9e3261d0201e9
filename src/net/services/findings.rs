//! Findings: what is wrong with services and pods on this node, as data and as texts for people (services 2.5).
//!
//! Invariants: there are no side effects. A finding names the object, the field, the value, and what a person can do.

use std::fmt;

/// The object that causes a finding.
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

/// The kind of a finding: what is left out of the data path, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// An address that belongs to the node.
    AddressOfNode,
    /// An address and port, or a port of the node, that podprobe uses itself.
    PortOfPodprobe,
    /// An address and port that another service has.
    AddressTaken,
    /// A port of the node that another service or a pod has.
    NodePortTaken,
    /// An address of a family that the service does not have.
    OtherFamily,
}

/// A part of a service or pod that is left out of the data path, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The object that causes the finding.
    pub subject: Subject,
    /// The kind of the finding.
    pub what: What,
    /// Text for people: field, value, cause and way out. The text does not name the object.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}
