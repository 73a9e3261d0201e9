//! An object as a person wrote it, kept as JSON text.

use std::sync::OnceLock;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// A JSON object that is kept for output and is seldom read. The text takes a tenth of the memory that a tree of
/// values would take.
#[derive(Clone, Debug)]
pub struct RawObject {
    text: Box<str>,
    fingerprint: OnceLock<u32>,
}

impl RawObject {
    /// Keeps `value` as text.
    pub fn new(value: &Value) -> Self {
        Self::of_text(&value.to_string())
    }

    /// Takes JSON text that podprobe itself has written.
    pub fn of_text(text: &str) -> Self {
        Self {
            text: text.into(),
            fingerprint: OnceLock::new(),
        }
    }

    /// Returns the object as JSON text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number that `of` makes of the object. It is made once, so every caller must pass the same function.
    pub fn fingerprint(&self, of: impl FnOnce(&Value) -> u32) -> u32 {
        *self.fingerprint.get_or_init(|| of(&self.value()))
    }

    /// Returns the object as a tree of values.
    pub fn value(&self) -> Value {
        // The decoder accepts objects that nest at most 100 deep; this reader accepts 127.
        serde_json::from_slice(self.text.as_bytes()).unwrap_or_default()
    }

    /// Returns the member at the JSON pointer `path`.
    pub fn at(&self, path: &str) -> Option<Value> {
        self.value().pointer_mut(path).map(Value::take)
    }

    /// Changes the object by a function.
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

// serde_json's feature `raw_value` could keep the text too, but is dangerous. With this feature, every reader of the
// program parses the text below a special key again. A file can nest such texts until the stack is full.
impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

/// Compares the objects. The order of their members does not count.
impl PartialEq for RawObject {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text || self.value() == other.value()
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
