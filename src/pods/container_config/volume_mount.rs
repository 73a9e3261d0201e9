//! Mounts a volume into a container (the kubelet's `makeMounts`): sub path, propagation, and the read-only mode.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Inputs;
use crate::api::expansion::expand;
use crate::api::pod::VolumeMount;
use crate::engine::runtime::{Mount, Propagation};

/// The reason why a volume cannot be mounted as a container requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The pod does not have the volume.
    #[error("cannot mount volume {0:?}: the pod has no such volume")]
    NoVolume(String),
    /// The volume cannot pass mounts on to the node.
    #[error(
        "cannot mount volume {volume:?} with mountPropagation Bidirectional: it is {is}, where the node sees no mount"
    )]
    OfPod {
        /// The name of the volume.
        volume: String,
        /// A text about the place of the volume.
        is: &'static str,
    },
    /// The sub path is an absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// The sub path leads out of the volume.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    ParentSubPath(String),
    /// The container has no value for these variables in the sub path.
    #[error("missing value for {}", .0.join(", "))]
    MissingValues(Vec<String>),
    /// Kubernetes has no mount propagation with this name.
    #[error("invalid MountPropagation mode: {0:?}")]
    Propagation(String),
    /// The kernel cannot make the mounts below a volume read-only.
    #[error(
        "failed to resolve recursive read-only mode: volume {0:?} requested recursive read-only mode, but it is not supported by the runtime: it needs Linux 5.12"
    )]
    RecursiveReadOnly(String),
}

/// Makes the mount of one of the pod's volumes.
pub(super) fn mount(
    i: &Inputs<'_>,
    m: &VolumeMount,
    variables: &[(String, String)],
) -> Result<Mount, MountError> {
    let image = i.image_volumes.get(&m.name);
    let source = match image {
        Some(_) => Path::new(""),
        None => {
            let source = i.volumes.source(&m.name);
            source.ok_or_else(|| MountError::NoVolume(m.name.clone()))?
        }
    };
    let propagation = propagation(m)?;
    let in_memory = i.volumes.tmpfs().iter().any(|t| t.path == source);
    let of_pod = image
        .map(|_| "an image")
        .or(in_memory.then_some("in the memory of the pod"));
    if let (Propagation::Bidirectional, Some(is)) = (propagation, of_pod) {
        let volume = m.name.clone();
        return Err(MountError::OfPod { volume, is });
    }
    Ok(Mount {
        host_path: source.to_owned(),
        image: image.cloned(),
        sub_path: sub_path(m, variables)?,
        container_path: m.destination().into_owned(),
        read_only: m.read_only || i.volumes.is_read_only(&m.name),
        recursive_read_only: recursive_read_only(m, i.node.recursive_read_only)?,
        // The node mounts nothing in an image or in a volume in memory.
        propagation: match of_pod {
            Some(_) => Propagation::Private,
            None => propagation,
        },
    })
}

fn sub_path(
    m: &VolumeMount,
    variables: &[(String, String)],
) -> Result<Option<PathBuf>, MountError> {
    if m.sub_path_expr.is_empty() {
        return Ok((!m.sub_path.is_empty()).then(|| m.sub_path.clone().into()));
    }
    let path = expanded(&m.sub_path_expr, variables)?;
    if path.starts_with('/') {
        return Err(MountError::AbsoluteSubPath(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(MountError::ParentSubPath(path));
    }
    Ok((!path.is_empty()).then(|| path.into()))
}

/// Expands the variables in a sub path. Each variable must have a value, unlike in a command.
fn expanded(text: &str, variables: &[(String, String)]) -> Result<String, MountError> {
    let missing = RefCell::new(BTreeSet::new());
    let path = expand(text, |name| {
        let value = variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        if value.as_ref().is_none_or(String::is_empty) {
            missing.borrow_mut().insert(name.to_owned());
        }
        value
    });
    let missing = missing.into_inner();
    match missing.is_empty() {
        true => Ok(path),
        false => Err(MountError::MissingValues(missing.into_iter().collect())),
    }
}

fn propagation(m: &VolumeMount) -> Result<Propagation, MountError> {
    match m.mount_propagation.as_deref() {
        None | Some("None") => Ok(Propagation::Private),
        Some("HostToContainer") => Ok(Propagation::HostToContainer),
        Some("Bidirectional") => Ok(Propagation::Bidirectional),
        Some(other) => Err(MountError::Propagation(other.to_owned())),
    }
}

fn recursive_read_only(m: &VolumeMount, possible: bool) -> Result<bool, MountError> {
    match m.recursive_read_only.as_deref() {
        Some("IfPossible") => Ok(possible),
        Some("Enabled") if possible => Ok(true),
        Some("Enabled") => Err(MountError::RecursiveReadOnly(m.name.clone())),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expr(text: &str) -> Result<Option<PathBuf>, String> {
        let m = VolumeMount {
            sub_path_expr: text.into(),
            ..Default::default()
        };
        let variables = [("A", "a"), ("UP", ".."), ("ROOT", "/etc"), ("EMPTY", "")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        sub_path(&m, &variables).map_err(|e| e.to_string())
    }

    #[test]
    fn a_sub_path_expression_has_a_value_for_each_name() {
        assert_eq!(expr("x/$(A)/$$(A)"), Ok(Some("x/a/$(A)".into())));
        assert_eq!(expr(""), Ok(None));
        assert_eq!(
            expr("$(Z)/$(EMPTY)/$(A)/$(B)"),
            Err("missing value for B, EMPTY, Z".into())
        );
        assert_eq!(
            expr("$(ROOT)"),
            Err("error SubPath `/etc` must not be an absolute path".into())
        );
        assert_eq!(
            expr("a/$(UP)"),
            Err("unable to provision SubPath `a/..`: must not contain '..'".into())
        );
    }

    #[test]
    fn recursive_read_only_where_it_is_possible() {
        let of = |mode: &str, possible| {
            let m = VolumeMount {
                name: "v".into(),
                recursive_read_only: Some(mode.into()),
                ..Default::default()
            };
            recursive_read_only(&m, possible)
        };
        assert_eq!(of("Disabled", true), Ok(false));
        assert_eq!(of("IfPossible", false), Ok(false));
        assert_eq!(of("IfPossible", true), Ok(true));
        assert_eq!(of("Enabled", true), Ok(true));
        let error = of("Enabled", false).unwrap_err().to_string();
        assert!(error.contains("not supported by the runtime"), "{error}");
    }
}
