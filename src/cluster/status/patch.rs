//! The body of a PATCH of a pod's status: a strategic merge patch from the API server's status to the wanted one.

use serde_json::{Value, json};

use super::Object;
use super::same::same;

/// Lists that are merged by a key of their items, with that key. All other lists are replaced as a whole.
const MERGE_KEYS: [(&str, &str); 3] = [("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip")];

/// Lists of addresses, with the field of the primary one. The API server throws a list away silently if its first item
/// is not the primary address, so the primary address goes with the list.
const PRIMARIES: [(&str, &str); 2] = [("podIPs", "podIP"), ("hostIPs", "hostIP")];

/// Returns the body that changes `present`, the API server's status, into `wanted`. Returns None if nothing differs.
/// With the UID, the API server refuses the patch for another pod of the same name.
pub fn patch(uid: &str, present: &Object, wanted: &Object) -> Option<Value> {
    let mut changes = difference(present, wanted);
    for (list, primary) in PRIMARIES {
        if changes.get(list).is_some_and(Value::is_array)
            && let Some(address) = wanted.get(primary)
        {
            changes.insert(primary.into(), address.clone());
        }
    }
    (!changes.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": changes}))
}

/// Returns the fields that change `old` into `new`. A field that goes is null.
fn difference(old: &Object, new: &Object) -> Object {
    let mut changes = Object::new();
    for (key, value) in new.iter().filter(|(_, value)| !is_missing(value)) {
        match old.get(key).filter(|old| !is_missing(old)) {
            None => {
                changes.insert(key.clone(), value.clone());
            }
            Some(old) if same(old, value) => {}
            Some(old) => change(&mut changes, key, old, value),
        }
    }
    let gone = |(key, value): &(&String, &Value)| {
        !is_missing(value) && new.get(*key).is_none_or(is_missing)
    };
    for (key, _) in old.iter().filter(gone) {
        changes.insert(key.clone(), Value::Null);
    }
    changes
}

/// True for a value that counts as no value. The API server fails on a patch with an empty list of conditions and an
/// empty order of them if the pod has none.
fn is_missing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Adds the change of one field that both sides have.
fn change(changes: &mut Object, key: &str, old: &Value, new: &Value) {
    let merge_key = MERGE_KEYS.iter().find(|(list, _)| *list == key);
    match (old, new, merge_key) {
        (Value::Array(old), Value::Array(new), Some((_, by))) => {
            let items = changed_items(old, new, by);
            if !items.is_empty() {
                let order = new.iter().map(|item| json!({*by: item[*by]})).collect();
                changes.insert(format!("$setElementOrder/{key}"), order);
                changes.insert(key.to_owned(), items.into());
            }
        }
        (Value::Object(old), Value::Object(new), _) => {
            let fields = difference(old, new);
            if !fields.is_empty() {
                changes.insert(key.to_owned(), fields.into());
            }
        }
        _ => {
            changes.insert(key.to_owned(), new.clone());
        }
    }
}

/// Returns the items that differ, each with its key and its changed fields, and then the items that go.
fn changed_items(old: &[Value], new: &[Value], by: &str) -> Vec<Value> {
    let of = |list: &[Value], item: &Value| {
        let found = list.iter().find(|other| other[by] == item[by]);
        found.cloned()
    };
    let mut items = Vec::new();
    for item in new {
        let Some(before) = of(old, item) else {
            items.push(item.clone());
            continue;
        };
        let (Some(before), Some(after)) = (before.as_object(), item.as_object()) else {
            continue;
        };
        let mut fields = difference(before, after);
        if !fields.is_empty() {
            fields.insert(by.to_owned(), item[by].clone());
            items.push(fields.into());
        }
    }
    for item in old.iter().filter(|item| of(new, item).is_none()) {
        items.push(json!({"$patch": "delete", by: item[by]}));
    }
    items
}
