//! Changes of objects inside of a JSON object.
//!
//! Invariants: pure. A member that is no object is replaced by one.

use serde_json::{Map, Value};

/// Changes the member of a map, which is made an object first if it is none.
pub(super) fn edit_object(
    map: &mut Map<String, Value>,
    member: &str,
    change: impl FnOnce(&mut Map<String, Value>),
) {
    let mut inner = match map.remove(member) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    };
    change(&mut inner);
    map.insert(member.to_owned(), Value::Object(inner));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_is_changed_or_made() {
        #[track_caller]
        fn check(before: Value, after: Value) {
            let mut map = before.as_object().unwrap().clone();
            edit_object(&mut map, "m", |it| {
                it.insert("a".to_owned(), 1.into());
            });
            assert_eq!(Value::Object(map), after);
        }
        check(json!({"m": {"b": 2}}), json!({"m": {"a": 1, "b": 2}}));
        check(json!({"x": 3}), json!({"x": 3, "m": {"a": 1}}));
        check(json!({"m": null}), json!({"m": {"a": 1}}));
    }
}
