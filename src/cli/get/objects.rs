//! The forms `get configmaps`, `get secrets` and `get persistentvolumeclaims`: list objects in the daemon's
//! files. The table shows no values of Secrets.
//!
//! Invariants: pure.

use std::path::Path;

use serde_json::Value;

use super::item::Item;
use super::kind::Kind;
use crate::api::objects::ObjectKind;

/// Returns the daemon's kind of objects for a kind of `get`; None for kinds that other files of this directory
/// list.
pub fn kind(kind: Kind) -> Option<ObjectKind> {
    match kind {
        Kind::ConfigMaps => Some(ObjectKind::ConfigMap),
        Kind::Secrets => Some(ObjectKind::Secret),
        Kind::PersistentVolumeClaims => Some(ObjectKind::PersistentVolumeClaim),
        _ => None,
    }
}

/// Returns the row of an object. `claims` is the directory that holds the data of claims.
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
