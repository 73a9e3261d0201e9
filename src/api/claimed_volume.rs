//! The volume of a cluster behind a claim: what the API server's PersistentVolumeClaim and PersistentVolume say, read as
//! the kubelet reads them before it mounts (`getPVCExtractPV`).
//!
//! Invariant: pure. Only directories and files of the node itself can be mounted; every other volume is named with its
//! type.

use serde::Deserialize;
use serde_json::Value;

use super::pod::{HostPath, NodeSelector};

/// The volume that a claim of a cluster gives to the pods of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedVolume {
    /// The name of the PersistentVolume.
    pub name: String,
    /// The path on the node.
    pub path: HostPath,
    /// True for a PersistentVolume of type `local`, whose files may be given to a pod's `fsGroup`. Those of a
    /// `hostPath` may not.
    pub is_local: bool,
    /// The nodes that have the volume; None if every node has it.
    pub nodes: Option<NodeSelector>,
    /// True if the volume is to be mounted with options.
    pub has_mount_options: bool,
}

/// The reason why a claim of a cluster gives no volume. The first five are in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVolume {
    /// Somebody deletes the claim.
    #[error("PVC is being deleted")]
    IsDeleted,
    /// The control plane has not found a volume for the claim yet.
    #[error("PVC is not bound")]
    NotBound,
    /// The claim is bound, but names no volume.
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoName,
    /// The volume does not belong to any claim.
    #[error(
        "found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
    )]
    NotClaimed(String),
    /// The volume belongs to another claim, perhaps an older one of the same name.
    #[error(
        "found PV object {volume} but its pv.Spec.ClaimRef.UID {of:?} does not point to claim.UID {claim:?}"
    )]
    OfAnother {
        /// The name of the volume.
        volume: String,
        /// The uid of the claim that the volume belongs to.
        of: String,
        /// The uid of the pod's claim.
        claim: String,
    },
    /// The volume does not exist.
    #[error("persistentvolume {0:?} not found")]
    Missing(String),
    /// The volume is a device, not a directory.
    #[error(
        "PersistentVolume {0} has volumeMode Block, and podprobe gives no block devices to containers"
    )]
    Block(String),
    /// Other nodes have the volume. The scheduler heeds that, but a pod may name its node itself.
    #[error(
        "MountVolume.NodeAffinity check failed: no matching NodeSelectorTerms: the nodeAffinity of the PersistentVolume \
         does not fit the labels of this node"
    )]
    OnOtherNodes,
    /// The volume has `mountOptions`.
    #[error(
        "PersistentVolume {0} has mountOptions, and podprobe applies none: the path is used as the node has mounted it"
    )]
    MountOptions(String),
    /// The directory of a `local` volume does not exist.
    #[error(
        "PersistentVolume {volume}: {path} is no directory of this node; create it there, as podprobe does not"
    )]
    NoDirectory {
        /// The name of the volume.
        volume: String,
        /// The path on the node.
        path: String,
    },
    /// The volume is of a type that podprobe cannot mount.
    #[error(
        "PersistentVolume {volume} is of type {kind}; podprobe mounts hostPath and local volumes"
    )]
    Unsupported {
        /// The name of the volume.
        volume: String,
        /// The type of the volume, a field of its spec.
        kind: String,
    },
}

/// Returns the name of the volume that a claim is bound to.
///
/// # Errors
/// Returns the reason why the claim has no volume.
pub fn bound_to(claim: &Value) -> Result<&str, NoVolume> {
    if !claim["metadata"]["deletionTimestamp"].is_null() {
        return Err(NoVolume::IsDeleted);
    }
    if claim["status"]["phase"] != "Bound" {
        return Err(NoVolume::NotBound);
    }
    let name = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    match name {
        "" => Err(NoVolume::NoName),
        name => Ok(name),
    }
}

impl ClaimedVolume {
    /// Reads the volume that a claim is bound to.
    ///
    /// # Errors
    /// Returns the reason why the volume cannot be used for this claim, or not on this node.
    pub fn of(claim: &Value, volume: &Value) -> Result<Self, NoVolume> {
        let name = text(&volume["metadata"]["name"]);
        let spec = &volume["spec"];
        let (of, uid) = (&spec["claimRef"], text(&claim["metadata"]["uid"]));
        if of.is_null() {
            return Err(NoVolume::NotClaimed(name));
        }
        if of["uid"] != uid {
            return Err(NoVolume::OfAnother {
                volume: name,
                of: text(&of["uid"]),
                claim: uid,
            });
        }
        if spec["volumeMode"] == "Block" {
            return Err(NoVolume::Block(name));
        }
        let (host_path, local) = (&spec["hostPath"], &spec["local"]);
        let (source, type_) = match (host_path.is_object(), local.is_object()) {
            (true, _) => (host_path, text(&host_path["type"])),
            // The kubelet makes no directory for it either.
            (_, true) => (local, "Directory".to_owned()),
            _ => {
                let kind = kind(spec);
                return Err(NoVolume::Unsupported { volume: name, kind });
            }
        };
        let options = spec["mountOptions"].as_array();
        let old_options = text(&volume["metadata"]["annotations"][MOUNT_OPTIONS]);
        let required = &spec["nodeAffinity"]["required"];
        Ok(Self {
            path: HostPath {
                path: text(&source["path"]),
                type_,
            },
            is_local: !host_path.is_object(),
            has_mount_options: options.is_some_and(|all| !all.is_empty())
                || !old_options.is_empty(),
            // A selector that cannot be read selects no node.
            nodes: (!required.is_null())
                .then(|| NodeSelector::deserialize(required).unwrap_or_default()),
            name,
        })
    }
}

/// The annotation in which volumes had their mount options before there was a field for them.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the type of a volume: the one field of its spec that all volumes do not have.
fn kind(spec: &Value) -> String {
    const OF_ALL: [&str; 9] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    let fields = spec.as_object().into_iter().flat_map(|spec| spec.keys());
    let mut own = fields.filter(|field| !OF_ALL.contains(&field.as_str()));
    own.next()
        .map_or_else(|| "unknown".to_owned(), String::clone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Value {
        json!({"metadata": {"name": "data", "uid": "u1"}, "spec": {"volumeName": "pv-1"},
               "status": {"phase": "Bound"}})
    }

    fn volume(source: Value) -> Value {
        let mut spec =
            json!({"capacity": {"storage": "1Gi"}, "claimRef": {"name": "data", "uid": "u1"}});
        let source = source.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(source);
        json!({"metadata": {"name": "pv-1"}, "spec": spec})
    }

    #[test]
    fn a_claim_leads_to_a_path_of_the_node() {
        assert_eq!(bound_to(&claim()), Ok("pv-1"));
        for (source, type_, is_local) in [
            (json!({"hostPath": {"path": "/data"}}), "", false),
            (
                json!({"hostPath": {"path": "/data", "type": "DirectoryOrCreate"}}),
                "DirectoryOrCreate",
                false,
            ),
            (json!({"local": {"path": "/data"}}), "Directory", true),
        ] {
            let path = HostPath {
                path: "/data".into(),
                type_: type_.into(),
            };
            let expected = ClaimedVolume {
                name: "pv-1".into(),
                path,
                is_local,
                nodes: None,
                has_mount_options: false,
            };
            assert_eq!(ClaimedVolume::of(&claim(), &volume(source)), Ok(expected));
        }
    }

    #[test]
    fn a_volume_names_the_nodes_that_have_it() {
        let nodes = |affinity: Value| {
            let volume =
                volume(json!({"local": {"path": "/data"}, "nodeAffinity": {"required": affinity}}));
            ClaimedVolume::of(&claim(), &volume).unwrap().nodes
        };
        let read = nodes(json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["edge"]}]}]}));
        let terms = read.unwrap().node_selector_terms;
        assert_eq!(terms[0].match_expressions[0].values, ["edge"]);
        assert_eq!(nodes(Value::Null), None);
        assert_eq!(nodes(json!("?")), Some(NodeSelector::default()));
    }

    #[test]
    fn options_of_a_mount_are_seen_in_the_field_and_in_the_old_annotation() {
        let volume = |more: Value| volume(json!({"hostPath": {"path": "/"}, "mountOptions": more}));
        let has = |volume: &Value| {
            ClaimedVolume::of(&claim(), volume)
                .unwrap()
                .has_mount_options
        };
        assert!(!has(&volume(Value::Null)) && !has(&volume(json!([]))));
        assert!(has(&volume(json!(["noexec"]))));
        let mut old = volume(Value::Null);
        old["metadata"]["annotations"] = json!({MOUNT_OPTIONS: "noexec"});
        assert!(has(&old));
    }

    #[test]
    fn a_claim_without_a_volume_says_why() {
        let with = |path: &str, value: Value| {
            let mut claim = claim();
            *claim.pointer_mut(path).unwrap() = value;
            bound_to(&claim).unwrap_err().to_string()
        };
        assert_eq!(with("/status/phase", json!("Pending")), "PVC is not bound");
        let name = with("/spec/volumeName", Value::Null);
        assert_eq!(name, "PVC has empty pvc.Spec.VolumeName");
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(with("/metadata", deleted), "PVC is being deleted");
    }

    #[test]
    fn a_volume_that_is_not_of_the_claim_or_not_of_the_node_says_why() {
        let local = json!({"local": {"path": "/data"}});
        let mut none = volume(local.clone());
        none["spec"]["claimRef"] = Value::Null;
        let mut other = volume(local.clone());
        other["spec"]["claimRef"]["uid"] = "u0".into();
        let mut block = volume(local);
        block["spec"]["volumeMode"] = "Block".into();
        for (volume, expected) in [
            (
                none,
                "found PV object pv-1 but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
            ),
            (
                other,
                "found PV object pv-1 but its pv.Spec.ClaimRef.UID \"u0\" does not point to claim.UID \"u1\"",
            ),
            (
                block,
                "PersistentVolume pv-1 has volumeMode Block, and podprobe gives no block devices to containers",
            ),
            (
                volume(json!({"csi": {"driver": "d"}})),
                "PersistentVolume pv-1 is of type csi; podprobe mounts hostPath and local volumes",
            ),
            (
                volume(json!({})),
                "PersistentVolume pv-1 is of type unknown; podprobe mounts hostPath and local volumes",
            ),
        ] {
            let why = ClaimedVolume::of(&claim(), &volume).unwrap_err();
            assert_eq!(why.to_string(), expected);
        }
    }
}
