//! The strategic merge patch of an API server, for the fields that a node patches.

use serde_json::{Map, Value};

/// The lists that are merged by a key of their items. All others are replaced.
const MERGED: [(&str, &str); 4] = [
    ("conditions", "type"),
    ("addresses", "type"),
    ("hostIPs", "ip"),
    ("podIPs", "ip"),
];

/// Puts `patch` on `object`.
pub(super) fn apply(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if key.starts_with("$setElementOrder/") {
            continue;
        }
        let merged = MERGED.iter().find(|(list, _)| list == key);
        match (value, merged) {
            (Value::Null, _) => {
                object.as_object_mut().unwrap().shift_remove(key);
            }
            (Value::Array(items), Some((_, by))) => merge(&mut object[key.as_str()], items, by),
            (Value::Object(_), _) => apply(&mut object[key.as_str()], value),
            _ => object[key.as_str()] = value.clone(),
        }
    }
    // The order counts for the list as it is after the merge.
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$setElementOrder/") {
            order(&mut object[list], list, value);
        }
    }
}

fn merge(list: &mut Value, items: &[Value], by: &str) {
    let replaces = items.iter().any(|item| item["$patch"] == "replace");
    let mut merged = match replaces {
        true => Vec::new(),
        false => list.as_array().cloned().unwrap_or_default(),
    };
    for item in items {
        match item["$patch"].as_str() {
            Some("replace") => {}
            Some("delete") => merged.retain(|old| old[by] != item[by]),
            _ => match merged
                .iter_mut()
                .find(|old| !replaces && old[by] == item[by])
            {
                Some(old) => apply(old, item),
                None => merged.push(item.clone()),
            },
        }
    }
    *list = merged.into();
}

fn order(list: &mut Value, name: &str, wanted: &Value) {
    let by = MERGED.iter().find(|(merged, _)| *merged == name);
    let (Some((_, by)), Some(items), Some(wanted)) = (by, list.as_array_mut(), wanted.as_array())
    else {
        return;
    };
    let place = |item: &Value| wanted.iter().position(|w| w[by] == item[by]);
    items.sort_by_key(|item| place(item).unwrap_or(usize::MAX));
}
