//! The objects of the API server, each change with a version, and the changes for watches.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The place of an object: its resource, such as `pods`, its namespace (empty without one) and its name.
pub(crate) type Key = (String, String, String);

/// A change, as watches are told of it.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) type_: &'static str,
    pub(super) key: Key,
    pub(super) object: Value,
}

/// All objects.
#[derive(Default)]
pub(super) struct Store {
    pub(super) version: u64,
    objects: BTreeMap<Key, Value>,
    pub(super) changes: Vec<Change>,
    /// The version up to which changes have been forgotten.
    pub(super) compacted: u64,
    uids: u64,
    /// All versions of all objects, from the first.
    pub(super) history: Vec<(Key, Value)>,
}

impl Store {
    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub(super) fn of<'a>(
        &'a self,
        resource: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        self.objects
            .iter()
            .filter(move |(key, _)| key.0 == resource)
    }

    /// Stores an object as the API server does: with a version, and with UID and time of creation if it is new.
    pub(super) fn put(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        let old = self.objects.get(key);
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        match old {
            Some(old) => metadata["uid"] = old["metadata"]["uid"].clone(),
            None => {
                self.uids += 1;
                metadata["uid"] = format!("00000000-0000-0000-0000-{:012}", self.uids).into();
                metadata["creationTimestamp"] = "2026-11-27T08:00:00Z".into();
                if key.0 == "pods" {
                    metadata["generation"] = 1.into();
                }
            }
        }
        let type_ = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.change(type_, key, &object);
        self.objects.insert(key.clone(), object.clone());
        object
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.change("DELETED", key, &object);
        Some(object)
    }

    fn change(&mut self, type_: &'static str, key: &Key, object: &Value) {
        self.history.push((key.clone(), object.clone()));
        self.changes.push(Change {
            version: self.version,
            type_,
            key: key.clone(),
            object: object.clone(),
        });
    }

    /// Forgets all changes, as a compaction does.
    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        self.changes.clear();
    }
}

/// The objects that a list or a watch selects.
#[derive(Clone)]
pub(super) struct Selection {
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    /// A field selector: `metadata.name` or `spec.nodeName` with its value.
    pub(super) field: Option<(String, String)>,
    /// Labels that an object does not have.
    pub(super) without_labels: Vec<String>,
}

impl Selection {
    pub(super) fn fits(&self, key: &Key, object: &Value) -> bool {
        let is_of_namespace = self.namespace.as_ref().is_none_or(|ns| *ns == key.1);
        let is_of_field = match &self.field {
            None => true,
            Some((field, value)) => {
                let pointer = format!("/{}", field.replace('.', "/"));
                object.pointer(&pointer).and_then(Value::as_str) == Some(value)
            }
        };
        let has_label = |label: &String| !object["metadata"]["labels"][label].is_null();
        let is_left_out = self.without_labels.iter().any(has_label);
        key.0 == self.resource && is_of_namespace && is_of_field && !is_left_out
    }
}

/// A line of a watch.
pub(super) fn line(type_: &str, object: &Value) -> String {
    let mut line = json!({"type": type_, "object": object}).to_string();
    line.push('\n');
    line
}
