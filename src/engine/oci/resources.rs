//! The object `linux.resources`: the resources that a container may use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The object `linux.resources`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Weight and limit of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Limits of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Names of files of cgroup v2, and the content to write into each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
    /// Limits of huge pages, one for each page size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Rules for access to devices. For each kind of access the last rule that matches a device decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRule>,
}

/// The object `linux.resources.cpu`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Weight relative to other cgroups, on the scale of cgroup v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<i64>,
    /// Processor time in microseconds that the container may use in each period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<i64>,
    /// Length of a period in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<i64>,
}

/// The object `linux.resources.memory`. All sizes are in bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Limit of memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Limit of memory and swap together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<i64>,
}

/// An entry of `linux.resources.hugepageLimits`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HugepageLimit {
    /// Page size in the kernel's notation, such as `2MB`.
    pub page_size: String,
    /// Limit of all pages of this size together, in bytes.
    pub limit: u64,
}

/// An entry of `linux.resources.devices`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRule {
    /// True if the rule allows access, false if it forbids it.
    pub allow: bool,
    /// Type of device: `a`, `b`, `c` or `u`; None means every type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Major number; None and -1 mean every number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number; None and -1 mean every number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Kinds of access, as letters of `rwm`; None means all three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}
