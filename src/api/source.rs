//! The sources of pods. The source decides the identity of a pod, the objects that the pod may reference, and how the
//! end of the pod is reported.
//!
//! Architecture Invariant: only this file knows the differences between sources. A new source is a variant of both
//! enums; the compiler then names each rule that needs a case for the source. A mirror pod is the copy of a static pod
//! in an API server. Podprobe never runs a mirror pod. [`PodSource::of_annotations`] and [`MIRROR_ANNOTATION`] tell a
//! mirror pod from the pod that runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Annotation with the source of a pod. The merge of the sources sets it.
pub const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Annotation with the time at which the pod was first seen. The merge of the sources sets it.
pub const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";
/// Annotation of a mirror pod: the hash of the static pod that the mirror pod copies.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Annotation with the UID of a static pod. The static pod has this annotation, and its mirror pod too.
pub const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

/// A kind of pod source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSource {
    /// The directory of pod files.
    #[default]
    File,
    /// A URL that pods are fetched from.
    Http,
    /// The API server.
    Api,
    /// The controllers of workloads, which make pods from templates.
    Controller,
}

impl PodSource {
    /// Returns the value of the annotation `kubernetes.io/config.source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
            Self::Controller => "controller",
        }
    }

    /// Returns the source that a pod's annotations name. The merge of the sources adds the annotation. A pod without
    /// the annotation counts as a pod from a file.
    pub fn of_annotations(annotations: &BTreeMap<String, String>) -> Self {
        match annotations.get(SOURCE_ANNOTATION).map(String::as_str) {
            Some("api") => Self::Api,
            Some("controller") => Self::Controller,
            Some("http") => Self::Http,
            _ => Self::File,
        }
    }

    /// True if the pods of this source are static. The node gives static pods their identity. Static pods exist
    /// without an API server, and they may not reference objects that only an API server holds.
    pub fn is_static(self) -> bool {
        match self {
            Self::File | Self::Http => true,
            Self::Api | Self::Controller => false,
        }
    }
}

impl fmt::Display for PodSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The origin of one pod: its source, and the texts that the source makes the pod's identity from.
#[derive(Clone, Copy, Debug)]
pub enum PodOrigin<'a> {
    /// A pod file on this node.
    File {
        /// The daemon's node name.
        node_name: &'a str,
        /// Path of the pod file.
        path: &'a Path,
    },
    /// A response fetched from a URL.
    Http {
        /// The daemon's node name.
        node_name: &'a str,
        /// URL of the response.
        url: &'a str,
    },
    /// The API server, which has already given the pod its identity.
    Api {
        /// The daemon's node name.
        node_name: &'a str,
    },
    /// A controller of this node, which has already given the pod its identity.
    Controller {
        /// The daemon's node name.
        node_name: &'a str,
    },
}

impl<'a> PodOrigin<'a> {
    /// Returns the source of the pod.
    pub fn source(&self) -> PodSource {
        match self {
            Self::File { .. } => PodSource::File,
            Self::Http { .. } => PodSource::Http,
            Self::Api { .. } => PodSource::Api,
            Self::Controller { .. } => PodSource::Controller,
        }
    }

    /// Returns the daemon's node name.
    pub fn node_name(&self) -> &'a str {
        match self {
            Self::File { node_name, .. }
            | Self::Http { node_name, .. }
            | Self::Api { node_name }
            | Self::Controller { node_name } => node_name,
        }
    }

    /// Returns the place of the pod for error texts.
    pub fn place(&self) -> &'a Path {
        match self {
            Self::File { path, .. } => path,
            Self::Http { url, .. } => Path::new(*url),
            Self::Api { .. } => Path::new("api"),
            Self::Controller { .. } => Path::new("template"),
        }
    }

    /// Returns the texts from which, together with the pod's content, the UID of a static pod is made
    /// (kubelet-probes 6.1). Returns None if the source gives its pods UIDs.
    pub fn uid_texts(&self) -> Option<Vec<String>> {
        match self {
            Self::File { node_name, path } => Some(vec![
                format!("host:{node_name}"),
                format!("file:{}", path.display()),
            ]),
            Self::Http { url, .. } => Some(vec![format!("url:{url}")]),
            Self::Api { .. } | Self::Controller { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_of_the_source_that_its_annotation_names() {
        let of = |source: &str| {
            PodSource::of_annotations(&[(SOURCE_ANNOTATION.to_owned(), source.to_owned())].into())
        };
        for source in [
            PodSource::File,
            PodSource::Http,
            PodSource::Api,
            PodSource::Controller,
        ] {
            assert_eq!(of(source.as_str()), source);
        }
        assert_eq!(PodSource::of_annotations(&BTreeMap::new()), PodSource::File);
        let is_static =
            [PodSource::File, PodSource::Http, PodSource::Api].map(PodSource::is_static);
        assert_eq!(is_static, [true, true, false]);
    }
}
