//! An object as people wrote it, kept as JSON text.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A JSON object that is kept for people and hardly read here. As text it takes a tenth of the
/// memory of a tree of values.
#[derive(Clone, Debug)]
pub struct RawObject(Box<str>);

impl RawObject {
    /// Keeps `value`.
    pub fn new(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// The object as a tree.
    pub fn value(&self) -> Value {
        // An object nests at most 100 deep when it is decoded; this reader takes 127.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// The member at the JSON pointer `path`.
    pub fn at(&self, path: &str) -> Option<Value> {
        self.value().pointer_mut(path).map(Value::take)
    }

    /// Changes the object.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = self.value();
        change(&mut value);
        *self = Self::new(&value);
    }
}

impl Default for RawObject {
    fn default() -> Self {
        Self::new(&Value::Null)
    }
}

// Not with serde_json's `raw_value`: that feature has every reader of the program read a text again
// that lies under a key of its own, as deep as a file wants, until the stack is full.
impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// The order of members does not count.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_the_object_that_it_was_made_of() {
        let object = json!({"b": [1, 1.5, -2, u64::MAX, null, true], "a": {"x": "\u{1}\"ä"}});
        let mut raw = RawObject::new(&object);
        assert_eq!(raw.value(), object);
        assert_eq!(raw.value().as_object().unwrap().keys().next().unwrap(), "b");
        assert_eq!(raw.at("/a/x"), Some("\u{1}\"ä".into()));
        assert_eq!(serde_json::to_string(&raw).unwrap(), object.to_string());
        assert_eq!(raw.at("/a/y"), None);
        raw.edit(|object| object["a"] = 1.into());
        assert_eq!(raw.at("/a"), Some(1.into()));
    }

    #[test]
    fn the_order_of_members_does_not_count() {
        let raw = |text: &str| RawObject::new(&serde_json::from_str(text).unwrap());
        assert_eq!(raw(r#"{"a": 1, "b": 2}"#), raw(r#"{"b": 2, "a": 1}"#));
        assert_ne!(raw(r#"{"a": [1, 2]}"#), raw(r#"{"a": [2, 1]}"#));
    }

    #[test]
    fn what_nests_as_deep_as_texts_may_is_kept() {
        let deepest = "[".repeat(127) + &"]".repeat(127);
        let deepest: Value = serde_json::from_str(&deepest).unwrap();
        assert_eq!(RawObject::new(&deepest).value(), deepest);
    }
}
