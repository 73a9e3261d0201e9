//! `linux.resources`: what a container may use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `linux.resources`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Files of cgroup v2 and their content.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
    /// Huge pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Rules on devices; for each kind of access the last one that names a device decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRule>,
}

/// `linux.resources.cpu`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Weight beside other cgroups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<i64>,
    /// Microseconds of each period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<i64>,
    /// Length of a period in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<i64>,
}

/// `linux.resources.memory`, in bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Limit of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Limit of memory and swap together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<i64>,
}

/// An entry of `linux.resources.hugepageLimits`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HugepageLimit {
    /// Size of a page as the kernel writes it: `2MB`.
    pub page_size: String,
    /// Bytes.
    pub limit: u64,
}

/// An entry of `linux.resources.devices`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRule {
    /// The rule allows, else it forbids.
    pub allow: bool,
    /// Letter `a`, `b`, `c` or `u`; absent is every type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Major number; absent and -1 are every number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number; absent and -1 are every number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Letters of `rwm`; absent is all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}
