//! Parses the output of plugins (cni-plugins 6): results, addresses, errors, versions. Pure.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::INTERFACE;
use super::conf::Version;
use super::error::{Cause, ResultError};

/// The number of bytes of a plugin's output that are shown at most.
const SHOWN: usize = 512;

/// The number of bytes of a plugin's message that are shown at most.
const MESSAGE: usize = 2048;

/// Reads a result of ADD. A result without a version gets the version of the request.
///
/// # Errors
/// Returns [`Cause`] if the output is no result.
pub(super) fn parse(stdout: &[u8], version: Version) -> Result<Value, Cause> {
    let bad = |why: ResultError| Cause::BadResult {
        why,
        stdout: head(stdout),
    };
    if stdout.trim_ascii().is_empty() {
        return Err(bad(ResultError::Nothing));
    }
    let value = serde_json::from_slice(stdout);
    let value: Value = value.map_err(|e| bad(ResultError::Syntax(e)))?;
    let Value::Object(mut result) = value else {
        return Err(bad(ResultError::NoObject));
    };
    if result
        .get("code")
        .and_then(Value::as_u64)
        .is_some_and(|c| c != 0)
    {
        return Err(reported(&result, &[]));
    }
    let missing = |v: &Value| v.as_str() == Some("") || v.is_null();
    if result.get("cniVersion").is_none_or(missing) {
        result.insert("cniVersion".into(), version.as_str().into());
    }
    let written = version_of(&result);
    let written = written.ok_or_else(|| bad(ResultError::UnknownVersion))?;
    match (written < Version::LISTS) == (version < Version::LISTS) {
        true => Ok(converted(result, version).into()),
        false => Err(bad(ResultError::OtherVersion {
            written: written.as_str(),
            asked: version.as_str(),
        })),
    }
}

/// Converts a result to the version of the request. Some plugins answer in the newest version that they support,
/// but the next plugin understands only the version of the request.
fn converted(mut result: Map<String, Value>, version: Version) -> Map<String, Value> {
    result.insert("cniVersion".into(), version.as_str().into());
    let ips = result.get_mut("ips").and_then(Value::as_array_mut);
    let families = (Version::LISTS..Version::PLAIN).contains(&version);
    for ip in ips.into_iter().flatten().filter(|_| families) {
        if let Ok(address) = address(&ip["address"]) {
            ip["version"] = if address.is_ipv4() { "4" } else { "6" }.into();
        }
    }
    result
}

fn version_of(result: &Map<String, Value>) -> Option<Version> {
    Version::parse(result.get("cniVersion")?.as_str()?)
}

/// Returns the addresses of the sandbox's interface, primary first. The primary address is the first IPv4
/// address, as in containerd.
///
/// # Errors
/// Returns [`ResultError`] if there are no addresses, or if an address is not valid.
pub(super) fn addresses(result: &Value) -> Result<Vec<IpAddr>, ResultError> {
    let result = result.as_object();
    let result = result.ok_or(ResultError::AddressesOfNoObject)?;
    let mut found = match version_of(result) {
        Some(version) if version < Version::LISTS => early(result)?,
        _ => listed(result)?,
    };
    if found.is_empty() {
        return Err(ResultError::NoAddress);
    }
    if let Some(at) = found.iter().position(IpAddr::is_ipv4) {
        let primary = found.remove(at);
        found.insert(0, primary);
    }
    Ok(found)
}

/// Reads the addresses in a result of version 0.1.0 or 0.2.0.
fn early(result: &Map<String, Value>) -> Result<Vec<IpAddr>, ResultError> {
    let entries = ["ip4", "ip6"].into_iter().filter_map(|key| result.get(key));
    let texts = entries.filter(|v| !v.is_null()).map(|v| &v["ip"]);
    texts.map(address).collect()
}

/// Reads the addresses in a result of version 0.3.0 or later. An address counts if it belongs to the pod's
/// interface, or if it names no interface.
fn listed(result: &Map<String, Value>) -> Result<Vec<IpAddr>, ResultError> {
    let empty = Vec::new();
    let list = |key| result.get(key).and_then(Value::as_array).unwrap_or(&empty);
    let mut found = Vec::new();
    for (i, ip) in list("ips").iter().enumerate() {
        let ours = match &ip["interface"] {
            Value::Null => true,
            index => {
                let index = index.as_u64().and_then(|i| usize::try_from(i).ok());
                let interface = index.and_then(|i| list("interfaces").get(i));
                interface.ok_or(ResultError::NoInterface(i))?["name"] == INTERFACE
            }
        };
        if ours {
            found.push(address(&ip["address"])?);
        }
    }
    Ok(found)
}

/// Reads an address with its prefix length, such as `10.1.0.5/16`.
fn address(value: &Value) -> Result<IpAddr, ResultError> {
    let text = value.as_str().unwrap_or_default();
    let address = text.split_once('/').and_then(|(ip, prefix)| {
        let ip: IpAddr = ip.parse().ok()?;
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        (prefix.parse::<u8>().ok()? <= longest).then_some(ip)
    });
    address.ok_or_else(|| ResultError::Address(value.clone()))
}

/// Returns the cause of a plugin's failure: the error that the plugin wrote as JSON, or else its output.
/// `ended` says how the plugin ended.
pub(super) fn failure(ended: String, stdout: &[u8], stderr: &[u8]) -> Cause {
    match serde_json::from_slice(stdout) {
        Ok(Value::Object(error)) if error.contains_key("code") || error.contains_key("msg") => {
            reported(&error, stderr)
        }
        _ => Cause::Failed {
            ended,
            stdout: head(stdout),
            stderr: tail(stderr),
        },
    }
}

fn reported(error: &Map<String, Value>, stderr: &[u8]) -> Cause {
    let text = |key| {
        let text = error.get(key).and_then(Value::as_str).unwrap_or_default();
        cut(text.as_bytes(), MESSAGE, false)
    };
    Cause::Reported {
        code: error
            .get("code")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        msg: text("msg"),
        details: text("details"),
        stderr: tail(stderr),
    }
}

/// Returns the versions that a plugin supports, from its answer to VERSION. Returns None if the output is no
/// answer to VERSION.
pub(super) fn supported(stdout: &[u8]) -> Option<Vec<String>> {
    let answer: Map<String, Value> = serde_json::from_slice(stdout).ok()?;
    match answer.get("supportedVersions").and_then(Value::as_array) {
        Some(list) => Some(
            list.iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect(),
        ),
        // In version 0.2.0 the answer to VERSION had no list of versions yet.
        None if answer.get("cniVersion")? == "0.2.0" => Some(vec!["0.1.0".into(), "0.2.0".into()]),
        None => None,
    }
}

pub(super) fn head(output: &[u8]) -> String {
    cut(output, SHOWN, false)
}

pub(super) fn tail(output: &[u8]) -> String {
    cut(output, SHOWN, true)
}

/// Returns at most `most` bytes of an output, on one line: the end of the output if `end` is true, else the
/// beginning.
fn cut(output: &[u8], most: usize, end: bool) -> String {
    let output = output.trim_ascii();
    let shown = match output.len() > most {
        true if end => &output[output.len() - most..],
        true => &output[..most],
        false => output,
    };
    let text: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match output.len() > most {
        true if end => format!("…{text}"),
        true => format!("{text}…"),
        false => text,
    }
}

#[cfg(test)]
#[path = "result/tests.rs"]
mod tests;
