//! Reads a type from a JSON value. Records the fields that no type has read, and the place of a type error.
//!
//! A single deserializer does both tasks. There is a crate for each task, but each of these crates wraps every visitor
//! of every API type once more. With the crates, the static file was 350 KB larger.

use std::cell::RefCell;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

use crate::api::field::Step;

/// The error of a value that its type refuses.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub(super) struct TypeError {
    /// Path of the value.
    pub(super) path: Vec<Step>,
    pub(super) cause: Error,
}

/// Reads a `T` from the value. Returns the `T` with the paths of the fields that the type does not read.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<(T, Vec<Vec<Step>>), TypeError> {
    let account = RefCell::default();
    let read = T::deserialize(Tracked {
        value,
        account: &account,
    });
    let Account { unread, wrong, .. } = account.into_inner();
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
    /// Path of the value that is being read.
    path: Vec<Step>,
    unread: Vec<Vec<Step>>,
    /// Path of the value with the first error.
    wrong: Option<Vec<Step>>,
}

impl Account {
    /// Records the place of the first error.
    fn wrong_here(&mut self) {
        if self.wrong.is_none() {
            self.wrong = Some(self.path.clone());
        }
    }
}

struct Tracked<'v, 'a> {
    value: &'v Value,
    account: &'a RefCell<Account>,
}

impl<'v, 'a> Tracked<'v, 'a> {
    /// Reads the value inside of `step`.
    fn inside<S: DeserializeSeed<'v>>(self, step: Step, seed: S) -> Result<S::Value, Error> {
        let account = self.account;
        account.borrow_mut().path.push(step);
        let read = seed.deserialize(self);
        let mut account = account.borrow_mut();
        if read.is_err() {
            account.wrong_here();
        }
        account.path.pop();
        read
    }

    fn members(self, map: &'v serde_json::Map<String, Value>) -> Members<'v, 'a> {
        Members {
            left: map.iter(),
            value: &Value::Null,
            key: "",
            account: self.account,
        }
    }

    fn items<V: Visitor<'v>>(self, items: &'v [Value], visitor: V) -> Result<V::Value, Error> {
        let mut left = Items {
            left: items.iter().enumerate(),
            account: self.account,
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

/// Returns the error that the visitor cannot read a value of this type.
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

impl<'de> Deserializer<'de> for Tracked<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(map) => visitor.visit_map(self.members(map)),
            Value::Array(items) => self.items(items, visitor),
            plain => plain.deserialize_any(visitor),
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
            Value::Object(map) => visitor.visit_map(self.members(map)),
            other => Err(mistyped(other, &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => self.items(items, visitor),
            other => Err(mistyped(other, &visitor)),
        }
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
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut account = self.account.borrow_mut();
        let path = account.path.clone();
        account.unread.push(path);
        drop(account);
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct tuple tuple_struct identifier
    }
}

struct Members<'v, 'a> {
    left: serde_json::map::Iter<'v>,
    key: &'v str,
    value: &'v Value,
    account: &'a RefCell<Account>,
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
        (self.key, self.value) = (key, value);
        let read = seed.deserialize(BorrowedStrDeserializer::new(key));
        if read.is_err() {
            let mut account = self.account.borrow_mut();
            account.path.push(Step::Key(key.clone()));
            account.wrong_here();
            account.path.pop();
        }
        read.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'v>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (value, account) = (self.value, self.account);
        Tracked { value, account }.inside(Step::Key(self.key.to_owned()), seed)
    }
}

struct Items<'v, 'a> {
    left: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    account: &'a RefCell<Account>,
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
        let account = self.account;
        Tracked { value, account }
            .inside(Step::Index(index), seed)
            .map(Some)
    }
}
