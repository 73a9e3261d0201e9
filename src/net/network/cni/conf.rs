//! Parses the configurations of CNI networks and reports the errors in them (cni-plugins 2). Pure.
//!
//! Invariant: a [`NetworkList`] has a valid name, at least one version and at least one plugin.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::error::ConfProblem;
use crate::api::field::FieldError;
use crate::base::spelling::nearest;

/// The versions of the specification that podprobe supports.
pub const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

/// The greatest length of a network's name, in bytes. The name is part of a file name in the cache.
const LONGEST_NAME: usize = 160;

/// A version of the specification: an entry of [`VERSIONS`]. Versions are ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(usize);

impl Version {
    /// The first version. A configuration without a version has this version.
    pub const FIRST: Self = Self(0);
    /// The first version in which a result has lists of interfaces and addresses.
    pub const LISTS: Self = Self(2);
    /// The first version that has CHECK, and that passes the result of ADD to DEL.
    pub const CHECK: Self = Self(4);
    /// The first version in which addresses do not name their family.
    pub const PLAIN: Self = Self(5);
    /// The first version with STATUS and GC.
    pub const STATUS: Self = Self(6);

    /// Returns the version with this name.
    pub fn parse(text: &str) -> Option<Self> {
        VERSIONS.iter().position(|v| *v == text).map(Self)
    }

    /// Returns the version's name in [`VERSIONS`].
    pub fn as_str(self) -> &'static str {
        VERSIONS[self.0]
    }
}

/// A CNI network: its name, and its plugins in the order of ADD.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkList {
    /// The name of the network, which is unique on the node.
    pub name: String,
    /// The versions that both the configuration and podprobe support, oldest first.
    pub versions: Vec<Version>,
    /// True if CHECK must not be called.
    pub disable_check: bool,
    /// True if GC must not be called.
    pub disable_gc: bool,
    /// True if the network has only the plugins in this list. If false, the files in the directory with the
    /// network's name add further plugins.
    pub only_inlined: bool,
    /// The plugins in the order of ADD. After the plugins from files are added, this list is never empty.
    pub plugins: Vec<Plugin>,
}

/// A plugin in the list of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// The name of the plugin's program, from the field `type`.
    pub kind: String,
    /// The names of the capabilities that the configuration switches on.
    pub capabilities: BTreeSet<String>,
    /// The complete configuration of the plugin.
    pub conf: Map<String, Value>,
}

impl NetworkList {
    /// Returns the configuration list as the cache stores it: with every plugin, and with `version` as the only
    /// version.
    pub fn with_version(&self, version: Version) -> Value {
        let plugins: Vec<&Map<String, Value>> = self.plugins.iter().map(|p| &p.conf).collect();
        json!({
            "cniVersion": version.as_str(),
            "name": self.name,
            "disableCheck": self.disable_check,
            "disableGC": self.disable_gc,
            "loadOnlyInlinedPlugins": true,
            "plugins": plugins,
        })
    }
}

/// Reads the content of a `.conflist` file, which is a configuration list. The plugins of this list may be in
/// other files.
///
/// # Errors
/// Returns [`ConfProblem`] with everything that is wrong with the list.
pub fn parse_list(text: &[u8]) -> Result<NetworkList, ConfProblem> {
    let root = object(text)?;
    if root.contains_key("type") && !root.contains_key("plugins") {
        let detail = "this is the configuration of one plugin: put it into the list \"plugins\", or rename the file so that it ends in .conf";
        return Err(FieldError::forbidden("type", detail).into());
    }
    read_list(&root)
}

/// Reads the content of a `.conf` or `.json` file, which is the configuration of one plugin. Returns a
/// network with this plugin only.
///
/// # Errors
/// Returns [`ConfProblem`] with everything that is wrong with the configuration.
pub fn parse_single(text: &[u8]) -> Result<NetworkList, ConfProblem> {
    let root = object(text)?;
    if root.contains_key("plugins") && !root.contains_key("type") {
        let detail = "this is a list of plugins: rename the file so that it ends in .conflist";
        return Err(FieldError::forbidden("plugins", detail).into());
    }
    let mut errors = Vec::new();
    let (name, versions) = (name(&root, &mut errors), versions(&root, &mut errors));
    let plugin = plugin(&root, "", &mut errors);
    done(
        NetworkList {
            name,
            versions,
            disable_check: false,
            disable_gc: false,
            only_inlined: true,
            plugins: plugin.into_iter().collect(),
        },
        errors,
    )
}

/// Reads one plugin from the content of a file in the directory with the network's name.
///
/// # Errors
/// Returns [`ConfProblem`] with everything that is wrong with the plugin's configuration.
pub fn parse_plugin(text: &[u8]) -> Result<Plugin, ConfProblem> {
    let mut errors = Vec::new();
    let plugin = plugin(&object(text)?, "", &mut errors);
    plugin.ok_or(ConfProblem::Fields(errors))
}

fn read_list(root: &Map<String, Value>) -> Result<NetworkList, ConfProblem> {
    let mut errors = Vec::new();
    let list = NetworkList {
        name: name(root, &mut errors),
        versions: versions(root, &mut errors),
        disable_check: flag(root, "disableCheck", &mut errors),
        disable_gc: flag(root, "disableGC", &mut errors),
        only_inlined: flag(root, "loadOnlyInlinedPlugins", &mut errors),
        plugins: plugins(root, &mut errors),
    };
    done(list, errors)
}

fn done(list: NetworkList, errors: Vec<FieldError>) -> Result<NetworkList, ConfProblem> {
    if errors.is_empty() {
        Ok(list)
    } else {
        Err(ConfProblem::Fields(errors))
    }
}

fn object(text: &[u8]) -> Result<Map<String, Value>, ConfProblem> {
    if text.trim_ascii().is_empty() {
        return Err(ConfProblem::Empty);
    }
    match serde_json::from_slice(text).map_err(ConfProblem::Syntax)? {
        Value::Object(root) => Ok(root),
        other => Err(ConfProblem::NoObject(kind_of(&other))),
    }
}

/// Returns the name of a JSON value's type, for error texts.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns a field that must be a string. Returns None if the field is missing. If the field has another
/// type, adds an error and returns an empty string.
fn string<'a>(
    object: &'a Map<String, Value>,
    key: &str,
    at: &str,
    errors: &mut Vec<FieldError>,
) -> Option<&'a str> {
    match object.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(other) => {
            let detail = format!("must be a string, not {}", kind_of(other));
            errors.push(FieldError::invalid(at, other.clone(), detail));
            Some("")
        }
    }
}

/// Returns a hint for an error text if the object has a key that looks like the key `missing`. Otherwise returns
/// an empty string.
fn meant(object: &Map<String, Value>, missing: &str) -> String {
    match nearest(missing, object.keys().map(String::as_str)) {
        Some(key) if key != missing => format!("; it has \"{key}\": keys are case-sensitive"),
        _ => String::new(),
    }
}

fn name(root: &Map<String, Value>, errors: &mut Vec<FieldError>) -> String {
    let before = errors.len();
    let name = string(root, "name", "name", errors).unwrap_or_default();
    if errors.len() > before {
        return String::new();
    }
    if name.is_empty() {
        let detail = format!("the name of the network{}", meant(root, "name"));
        errors.push(FieldError::required("name", detail));
    } else if !is_name(name) {
        let detail = "must begin with a letter or digit and have only letters, digits, '_', '.' and '-' after it";
        errors.push(FieldError::invalid("name", name, detail));
    } else if name.len() > LONGEST_NAME {
        let detail = format!("must have at most {LONGEST_NAME} characters");
        errors.push(FieldError::invalid("name", name, detail));
    }
    name.to_owned()
}

/// Tells whether a name is valid by the rules of libcni for networks and containers.
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(inner)
}

/// Reads the versions from `cniVersion` and `cniVersions` (cni-plugins 2.3).
fn versions(root: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Vec<Version> {
    let before = errors.len();
    let one = string(root, "cniVersion", "cniVersion", errors);
    let Some(several) = root.get("cniVersions") else {
        if errors.len() > before {
            return Vec::new();
        }
        let Some(text) = one.filter(|text| !text.is_empty()) else {
            return vec![Version::FIRST];
        };
        return match Version::parse(text) {
            Some(version) => vec![version],
            None => {
                errors.push(FieldError::not_supported("cniVersion", text, &VERSIONS));
                Vec::new()
            }
        };
    };
    let mut found = version_list(several, errors);
    found.extend(one.and_then(Version::parse));
    found.sort_unstable();
    found.dedup();
    if found.is_empty() && errors.len() == before {
        let known = FieldError::not_supported("cniVersions", several.clone(), &VERSIONS);
        errors.push(known);
    }
    found
}

/// Reads the list `cniVersions`. Versions that podprobe does not know are left out.
fn version_list(several: &Value, errors: &mut Vec<FieldError>) -> Vec<Version> {
    let Some(items) = several.as_array() else {
        let detail = "must be a list of strings";
        errors.push(FieldError::invalid("cniVersions", several.clone(), detail));
        return Vec::new();
    };
    let mut found = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let numbers = |text: &str| text.split('.').all(|n| n.parse::<u32>().is_ok());
        match item.as_str().filter(|text| numbers(text)) {
            Some(text) => found.extend(Version::parse(text)),
            None => {
                let at = format!("cniVersions[{i}]");
                let detail = "must be a string such as \"1.1.0\"";
                errors.push(FieldError::invalid(at, item.clone(), detail));
            }
        }
    }
    found
}

/// Returns a boolean field. Accepts the strings that libcni accepts as booleans, too.
fn flag(root: &Map<String, Value>, key: &str, errors: &mut Vec<FieldError>) -> bool {
    match root.get(key) {
        None => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => true,
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => false,
        Some(other) => {
            errors.push(FieldError::invalid(
                key,
                other.clone(),
                "must be true or false",
            ));
            false
        }
    }
}

fn plugins(root: &Map<String, Value>, errors: &mut Vec<FieldError>) -> Vec<Plugin> {
    let items = match root.get("plugins") {
        // A list without plugins is allowed, because the plugins may be in files of their own, unless
        // `loadOnlyInlinedPlugins` is true.
        None if root.get("loadOnlyInlinedPlugins") != Some(&Value::Bool(true)) => {
            return Vec::new();
        }
        None => {
            let detail = "loadOnlyInlinedPlugins is true, so the plugins must be in this list";
            errors.push(FieldError::required("plugins", detail));
            return Vec::new();
        }
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(Value::Array(_)) => {
            errors.push(FieldError::required("plugins", "at least one plugin"));
            return Vec::new();
        }
        Some(other) => {
            let detail = format!("must be a list of objects, not {}", kind_of(other));
            errors.push(FieldError::invalid("plugins", other.clone(), detail));
            return Vec::new();
        }
    };
    let read = |(i, item): (usize, &Value)| {
        let at = format!("plugins[{i}]");
        match item {
            Value::Object(conf) => plugin(conf, &format!("{at}."), errors),
            other => {
                let detail = format!("must be an object, not {}", kind_of(other));
                errors.push(FieldError::invalid(at, other.clone(), detail));
                None
            }
        }
    };
    items.iter().enumerate().filter_map(read).collect()
}

/// Reads the configuration of one plugin. `prefix` is the path of the object `conf` with a dot at the end of this
/// path, or empty.
fn plugin(conf: &Map<String, Value>, prefix: &str, errors: &mut Vec<FieldError>) -> Option<Plugin> {
    let before = errors.len();
    let at = format!("{prefix}type");
    let kind = string(conf, "type", &at, errors);
    if errors.len() == before {
        check_type(kind.unwrap_or_default(), &at, conf, errors);
    }
    let capabilities = capabilities(conf, prefix, errors);
    let ok = errors.len() == before;
    ok.then(|| Plugin {
        kind: kind.unwrap_or_default().to_owned(),
        capabilities,
        conf: conf.clone(),
    })
}

fn check_type(kind: &str, at: &str, conf: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    if kind.is_empty() {
        let detail = format!("the name of the plugin's program{}", meant(conf, "type"));
        errors.push(FieldError::required(at, detail));
    } else if kind.contains(['/', '\\', '\0']) || kind == "." || kind == ".." {
        let detail = "must be the name of a program in the plugin directories, without a path";
        errors.push(FieldError::invalid(at, kind, detail));
    }
}

fn capabilities(
    conf: &Map<String, Value>,
    prefix: &str,
    errors: &mut Vec<FieldError>,
) -> BTreeSet<String> {
    let at = format!("{prefix}capabilities");
    let entries = match conf.get("capabilities") {
        None | Some(Value::Null) => return BTreeSet::new(),
        Some(Value::Object(entries)) => entries,
        Some(other) => {
            let detail = "must be an object such as {\"portMappings\": true}";
            errors.push(FieldError::invalid(at, other.clone(), detail));
            return BTreeSet::new();
        }
    };
    let mut found = BTreeSet::new();
    for (name, on) in entries {
        match on.as_bool() {
            Some(true) => _ = found.insert(name.clone()),
            Some(false) => {}
            None => {
                let at = format!("{at}.{name}");
                errors.push(FieldError::invalid(at, on.clone(), "must be true or false"));
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "conf/tests.rs"]
mod tests;
