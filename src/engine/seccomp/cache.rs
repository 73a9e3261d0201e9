//! Keeps the compiled filters of the last profiles, so that a probe need not compile its filter. Most containers of a
//! node have the same one or two profiles.

use std::sync::Mutex;

use super::{Filter, SeccompError, compile};
use crate::base::locks::Locked;
use crate::engine::oci::Seccomp;

/// Number of profiles whose filters are kept, the last used profile first. Each filter needs about 50 KB.
const KEPT: usize = 4;

static FILTERS: Mutex<Vec<(Seccomp, Filter)>> = Mutex::new(Vec::new());

/// Returns the filter of a profile, as [`compile`] does. Keeps the filters of the last profiles. Two profiles are the
/// same if all their fields are equal.
///
/// # Errors
/// Returns the error of [`compile`].
pub fn compiled(profile: &Seccomp) -> Result<Filter, SeccompError> {
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
    use serde_json::{Value, json};

    use super::*;

    fn of(profile: Value) -> Seccomp {
        serde_json::from_value(profile).unwrap()
    }

    /// Each profile gets its own filter. The test uses more profiles than are kept, so some filters are dropped and
    /// other filters are found again.
    #[test]
    fn each_profile_has_its_own_filter() {
        for errno in [1, 2, 3, 1, 4, 5, 6, 1, 2, 6, 6] {
            let profile = of(json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                { "names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno }] }));
            assert_eq!(compiled(&profile), compile(&profile));
        }
        assert!(compiled(&of(json!({}))).is_err());
        compiled(&of(json!({ "defaultAction": "SCMP_ACT_LOG" }))).unwrap();
        assert!(FILTERS.lock().unwrap().len() <= KEPT);
    }
}
