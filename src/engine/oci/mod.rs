//! Types for `config.json`, the configuration of a container in the form of the OCI runtime specification. The types
//! have only the fields that podprobe writes or reads.
//!
//! The crate `oci-spec` is not used. Every field in it is an `Option` behind a getter, and its builders and macros
//! weigh more than the twenty structs of this module.
//!
//! Invariants:
//! - Names and forms are the specification's. The fields stand in the order in which they are written.
//! - Every field that the specification makes optional has its default. A container outlives an upgrade, so podprobe
//!   reads every file that an older podprobe has written.
//! - Unknown fields are ignored. Code that must not ignore them examines the JSON text itself, as `shims/embedded`
//!   does.

mod process;
mod resources;
mod seccomp;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use process::{Capabilities, ConsoleSize, Process, Rlimit, User};
pub use resources::{Cpu, DeviceRule, HugepageLimit, Memory, Resources};
pub use seccomp::{Seccomp, SeccompArg, Syscall};

/// Parses a text that a person may have written, as the runtimes in Go do: the last of two equal keys counts, and a
/// null counts as a key that is absent.
///
/// # Errors
/// Returns the parser's error if the text is no JSON.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    let mut value = serde_json::from_slice(text)?;
    drop_nulls(&mut value);
    Ok(value)
}

/// Removes the keys with null from all objects. A null in a list stays, because it is an entry.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, v| !v.is_null());
            object.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// A whole `config.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the OCI specification.
    #[serde(default)]
    pub oci_version: String,
    /// Program that runs in the container.
    pub process: Process,
    /// Root file system of the container.
    #[serde(default)]
    pub root: Root,
    /// Mounts, in the order in which they are made.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Annotations: names and values for tools, without an effect on the container.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Settings that exist on Linux only.
    #[serde(default)]
    pub linux: Linux,
}

/// The object `root`: the root file system of a container.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Root {
    /// Path of the directory. A relative path starts at the bundle.
    pub path: PathBuf,
    /// True if the container cannot write to its root file system.
    pub readonly: bool,
}

impl Default for Root {
    fn default() -> Self {
        Self {
            path: "rootfs".into(),
            readonly: false,
        }
    }
}

/// An entry of `mounts`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Absolute path in the container.
    pub destination: String,
    /// Type of the file system, or `bind`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Path on the node for a bind mount, else any name.
    pub source: PathBuf,
    /// Options as in mount(8).
    pub options: Vec<String>,
    /// Mapping of user ids. Only its presence matters; the content is not read.
    #[serde(skip_serializing)]
    pub uid_mappings: Option<IgnoredAny>,
    /// Mapping of group ids. Only its presence matters; the content is not read.
    #[serde(skip_serializing)]
    pub gid_mappings: Option<IgnoredAny>,
}

/// The object `linux`: the settings that exist on Linux only.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Linux {
    /// Limits of the resources that the container uses.
    pub resources: Resources,
    /// Absolute path of the container's cgroup in each hierarchy; None means a default path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroups_path: Option<String>,
    /// Namespaces of the container; every type that is not in this list is shared with the node.
    pub namespaces: Vec<Namespace>,
    /// Filter for system calls; None allows all system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp: Option<Seccomp>,
    /// Propagation of the root's mount, as a word of mount(8) such as `rslave`; None means private.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs_propagation: Option<String>,
    /// Devices that the container has in addition to the standard devices of every container; None means no more
    /// devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<Device>>,
    /// Paths that the container cannot see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_paths: Option<Vec<String>>,
    /// Paths that the container cannot write to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly_paths: Option<Vec<String>>,
}

/// An entry of `linux.namespaces`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Namespace {
    /// Type of the namespace as a word of the specification, such as `network`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// File of the namespace to join; None makes a new namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

impl Namespace {
    /// Returns true if the container joins an existing process namespace.
    pub fn joins_processes(all: &[Self]) -> bool {
        all.iter().any(|n| n.kind == "pid" && n.path.is_some())
    }
}

/// An entry of `linux.devices`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Absolute path in the container.
    pub path: String,
    /// Type of the device: `b`, `c` or `u`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Major number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<u64>,
    /// Minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<u64>,
    /// Permission bits of the device file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the device file.
    pub gid: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with every field that podprobe writes, in the form that podprobe has always written.
    const WHOLE: &str = concat!(
        r#"{"ociVersion":"1.0.2","process":{"terminal":false,"user":{"uid":0,"gid":7,"additionalGids":[7]},"#,
        r#""args":["/entry"],"env":["HOME=/"],"cwd":"/","capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],"#,
        r#""permitted":["CAP_KILL"],"inheritable":[],"ambient":[]},"rlimits":[{"type":"RLIMIT_NOFILE","soft":1024,"hard":4096}],"#,
        r#""noNewPrivileges":true,"oomScoreAdj":-997,"apparmorProfile":"mine"},"root":{"path":"/r","readonly":true},"#,
        r#""mounts":[{"destination":"/v","type":"bind","source":"/s","options":["rbind","rw"]}],"annotations":{"a":"b"},"#,
        r#""linux":{"resources":{"cpu":{"shares":2,"quota":1000,"period":100000},"memory":{"limit":4096,"swap":8192},"#,
        r#""unified":{"memory.oom.group":"1"},"hugepageLimits":[{"pageSize":"2MB","limit":0}],"#,
        r#""devices":[{"allow":false,"access":"rwm"}]},"cgroupsPath":"/p/c-0","namespaces":[{"type":"mount"},"#,
        r#"{"type":"pid","path":"/n"}],"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86"],"#,
        r#""syscalls":[{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":2114060288,"valueTwo":0,"#,
        r#""op":"SCMP_CMP_MASKED_EQ"}]},{"names":["clone3"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]},"#,
        r#""rootfsPropagation":"rslave","devices":[{"path":"/dev/sda","type":"b","major":8,"minor":0,"fileMode":432,"uid":0,"gid":6}],"#,
        r#""maskedPaths":[],"readonlyPaths":["/proc/bus"]}}"#,
    );

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let spec: Spec = serde_json::from_str(WHOLE).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), WHOLE);
    }

    #[test]
    fn what_the_specification_lets_be_absent_has_its_default() {
        let least = r#"{"process":{},"linux":{"namespaces":[{"type":"mount"}]},"hooks":{}}"#;
        let spec: Spec = serde_json::from_str(least).unwrap();
        assert_eq!(spec.root.path, std::path::Path::new("rootfs"));
        assert!(
            spec.linux.seccomp.is_none() && !Namespace::joins_processes(&spec.linux.namespaces)
        );
        assert!(serde_json::from_str::<Spec>("{}").is_err());
    }
}
