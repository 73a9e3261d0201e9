//! The environment and the standard input of a plugin (cni-plugins 3). Pure.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::INTERFACE;
use super::conf::{Plugin, Version};
use super::error::Command;
use crate::api::service::Protocol;
use crate::net::network::{Bandwidth, PortMapping, SandboxNetwork};

/// The burst for bandwidth plugins, in bits. Containerd uses this value, too.
const BURST: u64 = u32::MAX as u64;

/// The directories that may hold iptables, tc and ip. The directories that the daemon's PATH lacks are added to
/// the PATH of plugins.
const USUAL_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The data about a sandbox that a call passes to the plugins. All fields are empty in calls without a sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attachment {
    /// The value of `CNI_CONTAINERID`.
    pub(super) container_id: String,
    /// The value of `CNI_NETNS`; empty if the namespace is gone.
    pub(super) netns: PathBuf,
    /// The names and values in `CNI_ARGS`.
    pub(super) args: Vec<(String, String)>,
    /// The values for the capabilities of plugins, by the name of the capability.
    pub(super) capabilities: Map<String, Value>,
}

impl Attachment {
    /// Makes the attachment of a sandbox.
    ///
    /// # Errors
    /// Returns the name of an argument whose value has a character that cannot be passed.
    pub(super) fn of(sandbox: &SandboxNetwork<'_>, netns: PathBuf) -> Result<Self, &'static str> {
        Ok(Self {
            container_id: sandbox.id.to_owned(),
            netns,
            args: args(sandbox)?,
            capabilities: capabilities(sandbox.ports, sandbox.bandwidth),
        })
    }
}

/// Returns the arguments that every Kubernetes container runtime passes to plugins.
fn args(sandbox: &SandboxNetwork<'_>) -> Result<Vec<(String, String)>, &'static str> {
    let args = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", sandbox.namespace),
        ("K8S_POD_NAME", sandbox.name),
        ("K8S_POD_INFRA_CONTAINER_ID", sandbox.id),
        ("K8S_POD_UID", sandbox.uid),
    ];
    // The format of `CNI_ARGS` has no quotation marks, so a part of a value with such a character would become an
    // argument of its own.
    match args
        .iter()
        .find(|(_, value)| value.contains([';', '=', '\0']))
    {
        Some((key, _)) => Err(key),
        None => Ok(args.map(|(key, value)| (key.into(), value.into())).into()),
    }
}

fn capabilities(ports: &[PortMapping], bandwidth: Bandwidth) -> Map<String, Value> {
    let mut found = Map::new();
    if !ports.is_empty() {
        let ports = ports.iter().map(port).collect();
        found.insert("portMappings".into(), Value::Array(ports));
    }
    let mut limits = Map::new();
    for (name, rate) in [("ingress", bandwidth.ingress), ("egress", bandwidth.egress)] {
        if let Some(rate) = rate {
            limits.insert(format!("{name}Rate"), rate.into());
            limits.insert(format!("{name}Burst"), BURST.into());
        }
    }
    if !limits.is_empty() {
        found.insert("bandwidth".into(), limits.into());
    }
    found
}

fn port(mapping: &PortMapping) -> Value {
    let protocol = match mapping.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    let mut port = json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": protocol,
    });
    if let Some(address) = mapping.host_ip {
        port["hostIP"] = address.to_string().into();
    }
    port
}

/// Makes the input of a plugin: its configuration, with the changes that the specification demands. `previous` is
/// the result of the plugin that ran before, or the result of the whole ADD.
pub(super) fn input(
    plugin: &Plugin,
    network: &str,
    version: Version,
    previous: Option<&Value>,
    attachment: &Attachment,
) -> Vec<u8> {
    let mut conf = base(plugin, network, version);
    let values = attachment.capabilities.iter();
    let asked: Map<String, Value> = values
        .filter(|(name, _)| plugin.capabilities.contains(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !asked.is_empty() {
        conf.insert("runtimeConfig".into(), asked.into());
    }
    if let Some(previous) = previous {
        conf.insert("prevResult".into(), previous.clone());
    }
    bytes(conf)
}

/// Makes the input of a plugin for STATUS.
pub(super) fn status_input(plugin: &Plugin, network: &str, version: Version) -> Vec<u8> {
    bytes(base(plugin, network, version))
}

/// Makes the input of a plugin for GC: its configuration, and the ids of the sandboxes that still exist.
pub(super) fn gc_input(
    plugin: &Plugin,
    network: &str,
    version: Version,
    valid: &[&str],
) -> Vec<u8> {
    let mut conf = base(plugin, network, version);
    let valid: Vec<Value> = valid
        .iter()
        .map(|id| json!({"containerID": id, "ifname": INTERFACE}))
        .collect();
    // libcni writes this second name as well. The second name comes from a draft of the specification.
    conf.insert("cni.dev/valid-attachments".into(), valid.clone().into());
    conf.insert("cni.dev/attachments".into(), valid.into());
    bytes(conf)
}

/// Makes the input of a plugin for VERSION.
pub(super) fn version_input() -> Vec<u8> {
    bytes(Map::from_iter([(
        "cniVersion".to_owned(),
        Value::from(super::conf::VERSIONS[super::conf::VERSIONS.len() - 1]),
    )]))
}

fn base(plugin: &Plugin, network: &str, version: Version) -> Map<String, Value> {
    let mut conf = plugin.conf.clone();
    conf.retain(|key, _| {
        !["capabilities", "prevResult"].contains(&key.as_str()) && !key.starts_with("cni.dev/")
    });
    conf.insert("cniVersion".into(), version.as_str().into());
    conf.insert("name".into(), network.into());
    conf
}

fn bytes(conf: Map<String, Value>) -> Vec<u8> {
    Value::Object(conf).to_string().into_bytes()
}

/// Makes the complete environment of a plugin. `path` is the daemon's PATH.
pub(super) fn environment(
    command: Command,
    attachment: &Attachment,
    bin_dirs: &[PathBuf],
    path: Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let args: Vec<String> = attachment
        .args
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut found = vec![
        ("PATH", whole_path(path.as_deref())),
        ("CNI_COMMAND", command.as_str().into()),
        ("CNI_PATH", joined(bin_dirs.iter().map(PathBuf::as_path))),
    ];
    if command == Command::Version {
        // Plugins that were built with the first versions of the library expect these variables for every
        // command.
        found.extend([
            ("CNI_NETNS", "dummy".into()),
            ("CNI_IFNAME", "dummy".into()),
        ]);
    }
    if !attachment.container_id.is_empty() {
        found.extend([
            ("CNI_CONTAINERID", attachment.container_id.clone().into()),
            ("CNI_NETNS", attachment.netns.clone().into()),
            ("CNI_IFNAME", INTERFACE.into()),
            ("CNI_ARGS", args.join(";").into()),
        ]);
    }
    found
}

fn whole_path(own: Option<&OsStr>) -> OsString {
    let own: Vec<PathBuf> = own
        .map(|p| std::env::split_paths(p).collect())
        .unwrap_or_default();
    let own = own.iter().map(PathBuf::as_path).filter(|p| p.is_absolute());
    let mut all: Vec<&Path> = own.collect();
    for dir in USUAL_PATH.map(Path::new) {
        if !all.contains(&dir) {
            all.push(dir);
        }
    }
    joined(all.into_iter())
}

fn joined<'a>(dirs: impl Iterator<Item = &'a Path>) -> OsString {
    let mut found = OsString::new();
    for dir in dirs {
        if !found.is_empty() {
            found.push(":");
        }
        found.push(dir);
    }
    found
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
