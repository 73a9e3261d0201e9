//! A profile from a file: the OCI form, or Docker's with its `archMap`. Pure.
//!
//! Invariant: anything in the file that is not understood refuses the container; nothing is left
//! out silently.

use serde_json::{Map, Value, json};

use super::{ABIS, compile, strings};

/// `linux.seccomp` of the file's text.
///
/// # Errors
/// Returns the reason when the text is not a JSON object, holds an unknown key or value, or cannot be compiled.
pub fn profile(text: &[u8]) -> Result<Value, String> {
    let file: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let Value::Object(mut profile) = file else {
        return Err("it is no JSON object".into());
    };
    known(
        &profile,
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
    if let Some(map) = profile
        .remove("archMap")
        .filter(|_| !profile.contains_key("architectures"))
    {
        profile.insert("architectures".into(), architectures(&map));
    }
    let entries = profile
        .get("syscalls")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let entries: Vec<Value> = entries
        .iter()
        .enumerate()
        .map(|(n, e)| entry(n, e))
        .collect::<Result<_, _>>()?;
    profile.insert("syscalls".into(), entries.into());
    let profile = Value::Object(profile);
    compile(&profile).map(|_| profile)
}

fn known(object: &Map<String, Value>, names: &[&str], at: &str) -> Result<(), String> {
    match object.keys().find(|k| !names.contains(&k.as_str())) {
        Some(key) => Err(format!(
            "{at}{key} is not known; it holds {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}

/// The architecture of the entry for this machine, and its sub-architectures.
fn architectures(map: &Value) -> Value {
    let entries = || map.as_array().into_iter().flatten();
    let own = entries().find(|e| e["architecture"] == ABIS[0].name);
    json!(own.map_or(vec![], |e| {
        strings(&e["subArchitectures"])
            .chain([ABIS[0].name])
            .collect::<Vec<_>>()
    }))
}

fn entry(n: usize, entry: &Value) -> Result<Value, String> {
    let at = format!("syscalls[{n}].");
    let Value::Object(mut entry) = entry.clone() else {
        return Err(format!("syscalls[{n}] is no object"));
    };
    known(
        &entry,
        &[
            "names", "action", "errnoRet", "args", "comment", "includes", "excludes",
        ],
        &at,
    )?;
    entry.remove("comment");
    for key in ["includes", "excludes"] {
        // Whether these conditions hold would have to be decided for each container, so an entry
        // with conditions is refused; containerd ignores the conditions.
        if entry
            .remove(key)
            .is_some_and(|v| v.as_object().is_none_or(|o| !o.is_empty()))
        {
            return Err(format!(
                "{at}{key} is Docker's and not supported: write the entry for the containers that it is meant for"
            ));
        }
    }
    if let Some(Value::Array(args)) = entry.get("args") {
        args.iter().try_for_each(|a| {
            a.as_object().map_or(Ok(()), |a| {
                known(a, &["index", "value", "valueTwo", "op"], &at)
            })
        })?;
    }
    // runc's decoder wants a list.
    entry.retain(|_, v| !v.is_null());
    Ok(Value::Object(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: Value, expected: Result<Value, &str>) {
        match (profile(file.to_string().as_bytes()), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
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
        check(entry(json!(1)), Err("syscalls[0] is no object"));
        assert!(profile(b"{").is_err());
    }
}
