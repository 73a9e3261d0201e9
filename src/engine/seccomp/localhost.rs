//! Reads a profile from a file, in the OCI form or in Docker's form with `archMap`. Pure.
//!
//! Invariant: a profile is refused if it has anything that podprobe does not understand. Nothing is left out silently.

use std::io;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ABIS, SeccompError, compile, listed};
use crate::base::json;
use crate::engine::oci::{self, Seccomp};

/// Reason why a file is not a profile, or cannot be applied exactly.
#[derive(Debug, thiserror::Error)]
pub enum LocalhostError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The text is not JSON, or a value does not have the type that the specification demands.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The JSON is not an object.
    #[error("it is no JSON object")]
    NoObject,
    /// A key has no meaning at its place in the profile.
    #[error("{at}{key} is not known; it holds {}", known.join(", "))]
    UnknownKey {
        /// The keys that lead to the unknown key, with a dot at the end of the text. Empty at the top of the profile.
        at: String,
        /// The unknown key.
        key: String,
        /// Keys that have a meaning at this place in the profile.
        known: &'static [&'static str],
    },
    /// An entry of `syscalls` is meant only for some containers: it has conditions of Docker's that select them.
    #[error(
        "{at}{key} is Docker's and not supported: write the entry for the containers that it is meant for"
    )]
    Conditional {
        /// The entry that has the key, with a dot at the end of the text, as in `syscalls[0].`.
        at: String,
        /// The key: `includes` or `excludes`.
        key: &'static str,
    },
    /// The profile cannot be compiled into a filter.
    #[error(transparent)]
    Profile(#[from] SeccompError),
}

/// The part `archMap` of a profile in Docker's form: the architectures for each kind of machine.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ByMachine {
    arch_map: Option<Vec<Machine>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Machine {
    architecture: String,
    sub_architectures: Option<Vec<String>>,
}

/// Returns the profile (`linux.seccomp`) that the text of a file holds.
///
/// # Errors
/// Returns [`LocalhostError`] if the text is not a JSON object, has an unknown key or value, or cannot be compiled.
pub fn profile(text: &[u8]) -> Result<Seccomp, LocalhostError> {
    let file = oci::parse(text)?;
    check(&file)?;
    let mut profile: Seccomp = json::from_value(&file)?;
    if profile.architectures.is_none() {
        let by: ByMachine = json::from_value(&file)?;
        profile.architectures = by.arch_map.map(|map| architectures(&map));
    }
    profile.syscalls.get_or_insert_default();
    compile(&profile)?;
    Ok(profile)
}

/// Returns an error for keys and values that a [`Seccomp`] would ignore or misread.
fn check(file: &Value) -> Result<(), LocalhostError> {
    let Value::Object(profile) = file else {
        return Err(LocalhostError::NoObject);
    };
    known(
        profile,
        &[
            "defaultAction",
            "defaultErrnoRet",
            "architectures",
            "archMap",
            "flags",
            "syscalls",
        ],
        "",
    )?;
    let entries = profile.get("syscalls").and_then(Value::as_array);
    let mut entries = entries.into_iter().flatten().enumerate();
    entries.try_for_each(|(n, entry)| check_entry(n, entry))
}

fn known(
    object: &Map<String, Value>,
    known: &'static [&'static str],
    at: &str,
) -> Result<(), LocalhostError> {
    match object.keys().find(|k| !known.contains(&k.as_str())) {
        Some(key) => Err(LocalhostError::UnknownKey {
            at: at.to_owned(),
            key: key.clone(),
            known,
        }),
        None => Ok(()),
    }
}

/// Returns the architectures of this machine's entry in `archMap`: the sub-architectures, and after them the machine's
/// own.
fn architectures(map: &[Machine]) -> Vec<String> {
    let own = map.iter().find(|m| m.architecture == ABIS[0].name);
    own.map_or(vec![], |own| {
        let mut all = listed(&own.sub_architectures).to_vec();
        all.push(own.architecture.clone());
        all
    })
}

fn check_entry(n: usize, entry: &Value) -> Result<(), LocalhostError> {
    let at = format!("syscalls[{n}].");
    let Value::Object(entry) = entry else {
        // The reader of the type refuses it.
        return Ok(());
    };
    known(
        entry,
        &[
            "names", "action", "errnoRet", "args", "comment", "includes", "excludes",
        ],
        &at,
    )?;
    for key in ["includes", "excludes"] {
        // The conditions of an entry would have to be decided for each container. So an entry with conditions is
        // refused. containerd ignores such conditions.
        if entry
            .get(key)
            .is_some_and(|v| v.as_object().is_none_or(|o| !o.is_empty()))
        {
            return Err(LocalhostError::Conditional { at, key });
        }
    }
    let args = entry.get("args").and_then(Value::as_array);
    let mut args = args.into_iter().flatten().filter_map(Value::as_object);
    args.try_for_each(|a| known(a, &["index", "value", "valueTwo", "op"], &at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(file: Value, expected: Result<Value, &str>) {
        match (profile(file.to_string().as_bytes()), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(json!(got), expected),
            (Err(got), Err(expected)) => assert!(got.to_string().contains(expected), "{got}"),
            (got, expected) => panic!("{got:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_file_is_taken_as_it_is_or_not_at_all() {
        let plain = json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ALLOW" }] });
        check(plain.clone(), Ok(plain.clone()));
        let docker = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "archMap": [{ "architecture": "SCMP_ARCH_MIPS" }, { "architecture": ABIS[0].name, "subArchitectures": ["SCMP_ARCH_X32"] }],
            "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": null, "comment": "", "includes": {}, "excludes": {} }],
        });
        let mut with = plain.clone();
        with["architectures"] = json!(["SCMP_ARCH_X32", ABIS[0].name]);
        check(docker, Ok(with));
        let entry = |e: Value| json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": [e] });
        check(json!([]), Err("no JSON object"));
        check(
            json!({ "defaultAction": "SCMP_ACT_ALOW" }),
            Err("is no action"),
        );
        check(
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "sycalls": [] }),
            Err("sycalls is not known"),
        );
        check(
            entry(json!({ "name": "read", "action": "SCMP_ACT_ALLOW" })),
            Err("syscalls[0].name is not known"),
        );
        check(
            entry(
                json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": { "caps": ["CAP_SYS_ADMIN"] } }),
            ),
            Err("includes"),
        );
        check(
            entry(json!({ "names": ["read"], "action": "SCMP_ACT_NOTIFY" })),
            Err("listener"),
        );
        check(
            entry(json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{ "idx": 0 }] })),
            Err("idx is not known"),
        );
        check(
            entry(json!(1)),
            Err("syscalls[0]: invalid type: integer `1`, expected struct Syscall"),
        );
        let arg = |arg: Value| {
            entry(json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [arg] }))
        };
        check(
            arg(json!([0, 5, 0, "SCMP_CMP_EQ"])),
            Err("syscalls[0].args[0]: invalid type: sequence, expected struct SeccompArg"),
        );
        check(
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "archMap": [[ABIS[0].name, []]] }),
            Err("archMap[0]: invalid type: sequence, expected struct Machine"),
        );
        check(
            arg(json!({ "index": 0, "value": 5, "op": 7 })),
            Err("syscalls[0].args[0].op: invalid type: integer `7`, expected a string"),
        );
    }

    /// A profile is read as containerd and runc read it, which are written in Go: the last of two equal keys counts,
    /// and null counts as a missing value.
    #[test]
    fn the_last_of_two_keys_counts_and_null_is_nothing() {
        let text = br#"{ "defaultAction": "SCMP_ACT_KILL", "defaultAction": "SCMP_ACT_ALLOW", "architectures": null, "syscalls": null }"#;
        let expected = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [] });
        assert_eq!(json!(profile(text).unwrap()), expected);
        assert!(profile(b"{").is_err());
    }
}
