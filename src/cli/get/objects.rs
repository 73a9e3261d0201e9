//! `get configmaps`, `get secrets` and `get persistentvolumeclaims`: the objects of the files. The table has no value of a
//! Secret.
//!
//! Invariants: pure.

use std::path::Path;

use serde_json::Value;

use super::item::Item;
use super::kind::Kind;
use crate::api::objects::ObjectKind;

/// Returns the daemon's word for the kind; None for the kinds of other files.
pub fn kind(kind: Kind) -> Option<ObjectKind> {
    match kind {
        Kind::ConfigMaps => Some(ObjectKind::ConfigMap),
        Kind::Secrets => Some(ObjectKind::Secret),
        Kind::PersistentVolumeClaims => Some(ObjectKind::PersistentVolumeClaim),
        _ => None,
    }
}

/// The row of an object; `claims` is the directory of the claims.
pub fn item(kind: Kind, object: Value, claims: &Path) -> Item {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"]["name"]);
    let namespace = text(&object["metadata"]["namespace"]);
    let keys = |field: &str| object[field].as_object().map_or(0, |map| map.len());
    let columns = match kind {
        Kind::ConfigMaps => vec![(keys("data") + keys("binaryData")).to_string()],
        Kind::Secrets => vec![text(&object["type"]), keys("data").to_string()],
        _ => {
            let directory = claims.join(&namespace).join(&name);
            vec![
                text(&object["status"]["phase"]),
                directory.display().to_string(),
            ]
        }
    };
    Item {
        cells: [name.clone()].into_iter().chain(columns).collect(),
        namespace,
        name,
        object,
        visible: String::new(),
    }
}
