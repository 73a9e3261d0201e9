//! An object that is put together from its parts when somebody reads it.
//!
//! Invariants: the daemon keeps the parts, which are shared with their owners, and only writes objects out. A tree of values
//! for each object would take ten times the memory of its text.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The parts of an object.
pub trait Parts: PartialEq {
    /// Puts the object together.
    fn object(&self) -> Value;
}

/// An object that is put together from its parts, or an object that was read from JSON.
#[derive(Debug)]
pub struct LazyObject<P> {
    parts: Option<Arc<P>>,
    /// The object as a tree of values, which is made when it is first read.
    object: OnceLock<Value>,
}

impl<P> From<Arc<P>> for LazyObject<P> {
    fn from(parts: Arc<P>) -> Self {
        Self {
            parts: Some(parts),
            object: OnceLock::new(),
        }
    }
}

impl<P> From<Value> for LazyObject<P> {
    fn from(object: Value) -> Self {
        Self {
            parts: None,
            object: object.into(),
        }
    }
}

impl<P> Default for LazyObject<P> {
    fn default() -> Self {
        Value::Null.into()
    }
}

/// A clone shares the parts. It does not have the tree of values that somebody has read, so that the tree goes with its
/// reader.
impl<P> Clone for LazyObject<P> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
            object: match self.parts {
                Some(_) => OnceLock::new(),
                None => self.object.clone(),
            },
        }
    }
}

impl<P: Parts> Deref for LazyObject<P> {
    type Target = Value;

    fn deref(&self) -> &Value {
        let read = || self.parts.as_ref().map(|parts| parts.object());
        self.object.get_or_init(|| read().unwrap_or_default())
    }
}

/// Compares the parts, or else the objects.
impl<P: Parts> PartialEq for LazyObject<P> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.parts, &other.parts) {
            (Some(a), Some(b)) => a == b,
            _ => **self == **other,
        }
    }
}

impl<P: Parts> Serialize for LazyObject<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.parts {
            Some(parts) => parts.object().serialize(serializer),
            None => self.object.get().serialize(serializer),
        }
    }
}

impl<'de, P> Deserialize<'de> for LazyObject<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Number(u32);

    impl Parts for Number {
        fn object(&self) -> Value {
            json!({"number": self.0})
        }
    }

    fn lazy(number: u32) -> LazyObject<Number> {
        Arc::new(Number(number)).into()
    }

    #[test]
    fn an_object_is_written_and_read_again() {
        let object = lazy(3);
        assert_eq!(object["number"], 3);
        let written = serde_json::to_value(&object).unwrap();
        assert_eq!(written, *object);
        let read: LazyObject<Number> = serde_json::from_value(written).unwrap();
        assert_eq!(read, object);
        assert!(read != lazy(4) && read.clone() == read);
        assert_eq!(serde_json::to_value(&read).unwrap(), *object);
    }

    #[test]
    fn objects_of_equal_parts_are_equal_and_are_not_put_together_for_it() {
        let (object, equal) = (lazy(3), lazy(3));
        assert!(object == equal && object != lazy(4));
        assert!(object.object.get().is_none() && equal.object.get().is_none());
    }

    #[test]
    fn what_a_reader_has_put_together_goes_with_the_reader() {
        let kept = lazy(3);
        let copy = kept.clone();
        assert_eq!(copy["number"], 3);
        assert!(kept.object.get().is_none());
        assert!(copy.clone().object.get().is_none());
    }
}
