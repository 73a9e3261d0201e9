//! Reads types from JSON.
//!
//! Invariants: a type is read from a tree of values, and this is the only reader of types. It records the fields that no
//! type has read, and the place of a type error. serde writes a reader of a type for each deserializer that the program
//! uses, and serde_json's own ones also accept a list as the fields of a struct. With them, the static file would be
//! 370 KB larger.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A step from a value to a value inside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Step into a member of an object, by key.
    Key(String),
    /// Step into an item of an array, by index.
    Index(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, ".{key}"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// The error of a value that its type refuses.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct TypeError {
    /// Path of the value.
    pub path: Vec<Step>,
    /// Reason in serde's words.
    pub cause: Error,
}

/// Reads a type from text.
///
/// # Errors
/// Returns an error if the text is not JSON, or if a value does not have the type that it must have.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    from_value(&serde_json::from_slice(text)?)
}

/// Reads a type from a value.
///
/// # Errors
/// Returns an error that names the place of a value that does not have the type that it must have.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    match read(value) {
        Ok((read, _)) => Ok(read),
        Err(e) => Err(e.into()),
    }
}

impl From<TypeError> for Error {
    /// Puts the path before the cause.
    fn from(e: TypeError) -> Self {
        let path: String = e.path.iter().map(Step::to_string).collect();
        match path.trim_start_matches('.') {
            "" => e.cause,
            path => Self::custom(format_args!("{path}: {}", e.cause)),
        }
    }
}

/// Reads a type from a value. Returns it with the paths of the fields that the type does not read.
///
/// # Errors
/// Returns the first error, with its place in the value.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<(T, Vec<Vec<Step>>), TypeError> {
    let account = RefCell::default();
    let read = T::deserialize(Reader {
        value,
        place: &Place::Root,
        account: &account,
    });
    let Account { unread, wrong } = account.into_inner();
    match read {
        Ok(read) => Ok((read, unread)),
        Err(cause) => Err(TypeError {
            path: wrong.unwrap_or_default(),
            cause,
        }),
    }
}

#[derive(Default)]
struct Account {
    unread: Vec<Vec<Step>>,
    /// Path of the value with the first error.
    wrong: Option<Vec<Step>>,
}

/// The place of a value in the tree: the place around it, and the last step.
enum Place<'a> {
    Root,
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn path(&self) -> Vec<Step> {
        let (around, step) = match self {
            Self::Root => return Vec::new(),
            Self::Member(around, key) => (around, Step::Key((*key).to_owned())),
            Self::Item(around, index) => (around, Step::Index(*index)),
        };
        let mut path = around.path();
        path.push(step);
        path
    }
}

#[derive(Clone, Copy)]
struct Reader<'v, 'a> {
    value: &'v Value,
    place: &'a Place<'a>,
    account: &'a RefCell<Account>,
}

impl<'v> Reader<'v, '_> {
    /// Reads with a seed, and records the place of the first error.
    fn read<S: DeserializeSeed<'v>>(self, seed: S) -> Result<S::Value, Error> {
        let read = seed.deserialize(self);
        if read.is_err() {
            self.is_wrong();
        }
        read
    }

    fn is_wrong(&self) {
        let wrong = &mut self.account.borrow_mut().wrong;
        wrong.get_or_insert_with(|| self.place.path());
    }

    fn members<V: Visitor<'v>>(
        self,
        map: &'v serde_json::Map<String, Value>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Members {
            left: map.iter(),
            at: ("", &Value::Null),
            around: self,
        })
    }

    fn items<V: Visitor<'v>>(self, items: &'v [Value], visitor: V) -> Result<V::Value, Error> {
        let mut left = Items {
            left: items.iter().enumerate(),
            around: self,
        };
        let read = visitor.visit_seq(&mut left)?;
        match left.left.len() {
            0 => Ok(read),
            _ => Err(Error::invalid_length(
                items.len(),
                &"fewer elements in array",
            )),
        }
    }
}

/// Returns the error that a value is not what is expected.
fn mistyped(value: &Value, expected: &dyn Expected) -> Error {
    let unexpected = match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(b) => Unexpected::Bool(*b),
        Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
            (Some(n), ..) => Unexpected::Unsigned(n),
            (_, Some(n), _) => Unexpected::Signed(n),
            (.., n) => Unexpected::Float(n.unwrap_or(f64::NAN)),
        },
        Value::String(s) => Unexpected::Str(s),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    };
    Error::invalid_type(unexpected, expected)
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.items(items, visitor),
            Value::Object(map) => self.members(map, visitor),
        }
    }

    // serde would accept a list as the fields of a struct in their order. That would add code for each type.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(map) => self.members(map, visitor),
            other => Err(mistyped(other, &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => self.items(items, visitor),
            other => Err(mistyped(other, &visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, content) = match self.value {
            Value::String(name) => (name, None),
            Value::Object(map) => match (map.iter().next(), map.len()) {
                (Some((name, content)), 1) => (name, Some(content)),
                _ => {
                    let expected = &"map with a single key";
                    return Err(Error::invalid_value(Unexpected::Map, expected));
                }
            },
            other => return Err(mistyped(other, &"string or map")),
        };
        visitor.visit_enum(Variant {
            name,
            content,
            around: self,
        })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let path = self.place.path();
        self.account.borrow_mut().unread.push(path);
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct identifier
    }
}

struct Members<'v, 'a> {
    left: serde_json::map::Iter<'v>,
    /// The member whose key was read.
    at: (&'v str, &'v Value),
    around: Reader<'v, 'a>,
}

impl<'v> MapAccess<'v> for Members<'v, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'v>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.at = (key, value);
        let read = seed.deserialize(Key(key));
        if read.is_err() {
            let place = Place::Member(self.around.place, key);
            Reader {
                place: &place,
                ..self.around
            }
            .is_wrong();
        }
        read.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'v>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (key, value) = self.at;
        let place = Place::Member(self.around.place, key);
        let reader = Reader {
            value,
            place: &place,
            account: self.around.account,
        };
        reader.read(seed)
    }
}

/// The key of a member. A key that is no text is written as one.
#[derive(Clone, Copy)]
struct Key<'v>(&'v str);

/// Reads the key as a number.
macro_rules! number {
    ($($method:ident $visit:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse() {
                Ok(number) => visitor.$visit(number),
                Err(_) => Err(Error::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        serde::de::value::BorrowedStrDeserializer::new(self.0)
            .deserialize_enum(name, variants, visitor)
    }

    number! {
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

struct Items<'v, 'a> {
    left: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    around: Reader<'v, 'a>,
}

impl<'v> SeqAccess<'v> for &mut Items<'v, '_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'v>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((index, value)) = self.left.next() else {
            return Ok(None);
        };
        let place = Place::Item(self.around.place, index);
        let reader = Reader {
            value,
            place: &place,
            account: self.around.account,
        };
        reader.read(seed).map(Some)
    }
}

/// A variant of an enum: its name, and what it holds.
struct Variant<'v, 'a> {
    name: &'v str,
    content: Option<&'v Value>,
    around: Reader<'v, 'a>,
}

impl<'v, 'a> EnumAccess<'v> for Variant<'v, 'a> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'v>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        Ok((seed.deserialize(Key(self.name))?, self))
    }
}

impl<'v> Variant<'v, '_> {
    /// Reads what the variant holds.
    fn content<T>(
        &self,
        read: impl FnOnce(Reader<'v, '_>) -> Result<T, Error>,
        expected: &str,
    ) -> Result<T, Error> {
        let Some(value) = self.content else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &expected));
        };
        let place = Place::Member(self.around.place, self.name);
        let reader = Reader {
            value,
            place: &place,
            account: self.around.account,
        };
        let read = read(reader);
        if read.is_err() {
            reader.is_wrong();
        }
        read
    }
}

impl<'v> VariantAccess<'v> for Variant<'v, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None | Some(Value::Null) => Ok(()),
            Some(value) => Err(mistyped(value, &"unit variant")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'v>>(self, seed: S) -> Result<S::Value, Error> {
        self.content(|reader| seed.deserialize(reader), "newtype variant")
    }

    fn tuple_variant<V: Visitor<'v>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content(|reader| reader.deserialize_seq(visitor), "tuple variant")
    }

    fn struct_variant<V: Visitor<'v>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content(|reader| reader.deserialize_map(visitor), "struct variant")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(String);

    #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Word {
        One,
        Two,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    enum Shape {
        Nothing,
        Number(u32),
        Pair(i64, Name),
        Fields { a: Option<bool>, b: Vec<f64> },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Whole {
        shapes: Vec<Shape>,
        names: BTreeMap<Name, Word>,
        words: BTreeMap<Word, i8>,
        numbers: BTreeMap<i32, (u8, char)>,
        any: Value,
    }

    fn whole() -> Value {
        json!({"shapes": ["Nothing", {"Number": 7}, {"Pair": [-1, "x"]}, {"Fields": {"a": null, "b": [1, 1.5]}}],
            "names": {"n": "Two"}, "words": {"One": -128}, "numbers": {"-3": [255, "ä"]},
            "any": {"z": [null, true, -1, 18_446_744_073_709_551_615_u64, 0.5, "t"], "a": {}}})
    }

    #[test]
    fn every_form_is_read_as_serde_json_reads_it() {
        let read: Whole = from_value(&whole()).unwrap();
        assert_eq!(read, serde_json::from_value(whole()).unwrap());
        assert_eq!(read.any.to_string(), whole()["any"].to_string());
        assert_eq!(
            from_slice::<Whole>(whole().to_string().as_bytes()).unwrap(),
            read
        );
        assert!(from_slice::<Whole>(b"{").is_err());
    }

    #[track_caller]
    fn check(pointer: &str, wrong: Value, expected: &str) {
        let mut value = whole();
        *value.pointer_mut(pointer).unwrap() = wrong;
        let error = from_value::<Whole>(&value).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_error_names_its_place() {
        let text = r#"invalid type: string "x", expected "#;
        check("/shapes", json!("x"), &format!("shapes: {text}a sequence"));
        check(
            "/shapes/1/Number",
            json!("x"),
            &format!("shapes[1].Number: {text}u32"),
        );
        check(
            "/shapes/3/Fields/b/1",
            json!("x"),
            &format!("shapes[3].Fields.b[1]: {text}f64"),
        );
        check(
            "/shapes/2/Pair",
            json!([1, "y", 2]),
            "shapes[2].Pair: invalid length 3, expected fewer elements in array",
        );
        check(
            "/shapes/0",
            json!("Other"),
            "shapes[0]: unknown variant `Other`, expected one of `Nothing`, `Number`, `Pair`, `Fields`",
        );
        check(
            "/shapes/0",
            json!({"Nothing": 1}),
            "shapes[0]: invalid type: integer `1`, expected unit variant",
        );
        check(
            "/shapes/1",
            json!("Number"),
            "shapes[1]: invalid type: unit variant, expected newtype variant",
        );
        check(
            "/shapes/1",
            json!({"Number": 1, "Pair": 2}),
            "shapes[1]: invalid value: map, expected map with a single key",
        );
        check(
            "/shapes/1",
            json!(1),
            "shapes[1]: invalid type: integer `1`, expected string or map",
        );
        check(
            "/numbers",
            json!({"x": 1}),
            &format!("numbers.x: {text}i32"),
        );
        check(
            "",
            json!([[], {}, {}, {}, null]),
            "invalid type: sequence, expected struct Whole",
        );
    }

    #[derive(Debug, Deserialize)]
    struct Known {
        #[serde(rename = "known")]
        _known: Option<Word>,
    }

    #[test]
    fn fields_that_the_type_does_not_read_are_named() {
        let value = json!([{"known": "One", "x": {"y": 1}}, {"z": null}]);
        let (_, unread) = read::<Vec<Known>>(&value).unwrap();
        let key = |key: &str| Step::Key(key.to_owned());
        assert_eq!(
            unread,
            [[Step::Index(0), key("x")], [Step::Index(1), key("z")]]
        );
    }
}
