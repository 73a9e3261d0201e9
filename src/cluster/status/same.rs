//! Equality of two values of a status: how the API server has stored a value does not make it another value.

use serde_json::Value;

use super::Object;
use crate::api::quantity::Quantity;

static NULL: Value = Value::Null;

/// True if both values mean the same. A field that is null is a field that is missing, and quantities are compared by
/// their amounts.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).all(|key| {
            let (a, b) = (field(a, key), field(b, key));
            match key.as_str() {
                "allocatedResources" | "limits" | "requests" => same_amounts(a, b),
                _ => same(a, b),
            }
        }),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}

/// Returns a field of an object; null if the object does not have it.
fn field<'a>(object: &'a Object, key: &str) -> &'a Value {
    object.get(key).unwrap_or(&NULL)
}

/// True if two objects have the same quantities.
fn same_amounts(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return a == b;
    };
    let amount = |v: &Value| v.as_str().and_then(|v| Quantity(v.to_owned()).parse().ok());
    let equal = |(key, a): (&String, &Value)| {
        b.get(key)
            .is_some_and(|b| a == b || amount(a).is_some_and(|a| amount(b) == Some(a)))
    };
    a.len() == b.len() && a.iter().all(equal)
}
