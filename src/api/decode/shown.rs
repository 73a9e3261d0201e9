//! Turns pods back into the objects of pod files, from the form in which a daemon shows the pods.
//!
//! Invariants: pure. A file with the result gives the same pod, except for its UID. The UID depends on which fields
//! the first file left out, such as the namespace, and the shown pod does not tell which fields these were.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::documents;
use crate::api::identity::static_name;
use crate::api::source::{HASH_ANNOTATION, SEEN_ANNOTATION, SOURCE_ANNOTATION};

/// Returns the objects of a text, each for a file of its own. The text shows at least one pod as the daemon of the
/// node `node_name` shows it. Returns None if the text shows no such pod, or if the text cannot be read.
pub fn as_in_files(bytes: &[u8], node_name: &str) -> Option<Vec<Value>> {
    let nowhere = Path::new("/");
    let text = documents::text(bytes, nowhere).ok()?;
    let (_, documents) = documents::parse(text, nowhere).ok()?;
    let mut objects: Vec<Value> = documents.into_iter().flat_map(items).collect();
    let mut found = false;
    for object in &mut objects {
        found |= strip(object, node_name).is_some();
    }
    found.then_some(objects)
}

/// Returns the objects of a `List`, or the object itself.
fn items(document: Value) -> Vec<Value> {
    match document {
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        other => vec![other],
    }
}

/// Removes the fields that the daemon has given the pod. Returns None if the object is not a pod from a file of the
/// node `node_name`.
fn strip(object: &mut Value, node_name: &str) -> Option<()> {
    let of_a_file = object["metadata"]["annotations"][SOURCE_ANNOTATION] == "file";
    if object["kind"] != "Pod" || !of_a_file {
        return None;
    }
    let name = object["metadata"]["name"].as_str()?;
    let name = name.strip_suffix(&static_name("", node_name))?.to_owned();
    object.as_object_mut()?.shift_remove("status");
    let metadata = object["metadata"].as_object_mut()?;
    metadata.insert("name".into(), name.into());
    if metadata
        .get("uid")
        .and_then(Value::as_str)
        .is_some_and(is_derived)
    {
        metadata.shift_remove("uid");
    }
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    for key in [SOURCE_ANNOTATION, SEEN_ANNOTATION, HASH_ANNOTATION] {
        annotations.shift_remove(key);
    }
    drop_if_empty(metadata, "annotations");
    let spec = object["spec"].as_object_mut()?;
    if spec.get("nodeName").is_some_and(|node| node == node_name) {
        spec.shift_remove("nodeName");
    }
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        tolerations.retain(|t| *t != json!({"operator": "Exists", "effect": "NoExecute"}));
    }
    drop_if_empty(spec, "tolerations");
    Some(())
}

fn drop_if_empty(map: &mut Map<String, Value>, key: &str) {
    let is_empty = match map.get(key) {
        Some(Value::Object(inner)) => inner.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    };
    if is_empty {
        map.shift_remove(key);
    }
}

/// True if podprobe has derived this UID from a pod's content. A derived UID has 32 hex digits. UIDs that people write
/// have dashes.
fn is_derived(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodOrigin;
    use crate::api::decode;
    use crate::api::identity::content_hash_without_uid;

    const FILE: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec: {containers: [{name: c, image: i:1}]}\n";

    fn origin() -> PodOrigin<'static> {
        PodOrigin::File {
            node_name: "edge",
            path: Path::new("/p/web.yaml"),
        }
    }

    /// Returns the pod of a pod file as `get -o json` prints the pod.
    fn shown(file: &str) -> Value {
        let decoded = decode::objects(file.as_bytes(), &origin()).unwrap();
        let mut shown = decoded.pods[0].pod.raw.value();
        let annotations = shown["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.insert(SOURCE_ANNOTATION.into(), "file".into());
        annotations.insert(SEEN_ANNOTATION.into(), "2026-01-01T00:00:00Z".into());
        shown["status"] = json!({"phase": "Running"});
        shown
    }

    #[track_caller]
    fn check_is_the_same_pod(file: &str) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [shown(file)]});
        for text in [shown(file).to_string(), list.to_string()] {
            let objects = as_in_files(text.as_bytes(), "edge").unwrap();
            assert_eq!(objects.len(), 1);
            let again = decode::objects(objects[0].to_string().as_bytes(), &origin()).unwrap();
            let before = decode::objects(file.as_bytes(), &origin()).unwrap();
            let (again, before) = (&again.pods[0].pod, &before.pods[0].pod);
            let [again_is, before_was] = [again, before].map(content_hash_without_uid);
            assert_eq!(again_is, before_was);
            assert_eq!(again.metadata.name, "web-edge");
        }
    }

    #[test]
    fn a_pod_that_is_shown_is_the_pod_of_its_file() {
        check_is_the_same_pod(FILE);
        check_is_the_same_pod(&FILE.replace("name: web,", "name: web, annotations: {a: b},"));
        let with_uid = "name: web, uid: 0f3c6a1e-1b1f-4b57-9c9e-3f1c7a5f2a11,";
        check_is_the_same_pod(&FILE.replace("name: web,", with_uid));
    }

    #[test]
    fn what_a_person_wrote_is_left_as_it_is() {
        assert_eq!(as_in_files(FILE.as_bytes(), "edge"), None);
        assert_eq!(as_in_files(b"{", "edge"), None);
        let mut of_another = shown(FILE);
        of_another["metadata"]["name"] = "web-other".into();
        let text = of_another.to_string();
        assert_eq!(as_in_files(text.as_bytes(), "edge"), None);
    }
}
