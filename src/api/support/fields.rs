//! The names of the fields that a type reads, taken from the type itself.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Returns the JSON names of the fields of `T`; empty if `T` is not a struct.
pub(crate) fn of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Ask) {
        Err(Answer(fields)) => fields,
        Ok(_) => &[],
    }
}

/// A deserializer without data. When a struct asks the deserializer for its fields, the deserializer returns the names
/// of the fields as an error.
struct Ask;

/// The names of the fields that a struct asked for.
#[derive(Debug)]
struct Answer(&'static [&'static str]);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Answer {}

impl de::Error for Answer {
    fn custom<M: fmt::Display>(_: M) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Ask {
    type Error = Answer;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(fields))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(&[]))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use crate::api::pod::{ExecAction, HostPath};
    use crate::base::pod_uid::PodUid;

    #[test]
    fn a_struct_names_its_fields_as_json_has_them() {
        assert_eq!(super::of::<ExecAction>(), ["command"]);
        assert_eq!(super::of::<HostPath>(), ["path", "type"]);
        assert!(super::of::<PodUid>().is_empty());
    }
}
