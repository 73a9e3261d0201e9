//! Keeps the filters of the profiles in use, so that a probe compiles none. Most containers of a
//! node have the same one or two profiles.

use std::sync::Mutex;

use serde_json::Value;

use super::{Filter, compile};

use crate::base::locks::Locked;

/// How many profiles are kept, the last used first; one has about 50 KB.
const KEPT: usize = 4;

static FILTERS: Mutex<Vec<(Value, Filter)>> = Mutex::new(Vec::new());

/// Compiles a profile as [`compile`] does, but keeps the filters of profiles in use. Profiles are compared as a whole.
///
/// # Errors
/// Returns the error of [`compile`].
pub fn compiled(profile: &Value) -> Result<Filter, String> {
    let mut kept = FILTERS.locked();
    let found = match kept.iter().position(|(p, _)| p == profile) {
        Some(n) => kept.remove(n),
        None => (profile.clone(), compile(profile)?),
    };
    let filter = found.1.clone();
    kept.truncate(KEPT - 1);
    kept.insert(0, found);
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// More profiles than are kept, in an order that drops and finds them.
    #[test]
    fn each_profile_has_its_own_filter() {
        for errno in [1, 2, 3, 1, 4, 5, 6, 1, 2, 6, 6] {
            let profile = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                { "names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno }] });
            assert_eq!(compiled(&profile), compile(&profile));
        }
        assert!(compiled(&json!({})).is_err());
        compiled(&json!({ "defaultAction": "SCMP_ACT_LOG" })).unwrap();
        assert!(FILTERS.lock().unwrap().len() <= KEPT);
    }
}
