//! The security contexts of pods and containers: users, capabilities, profiles, kernel parameters.

use serde::{Deserialize, Serialize};

/// `spec.securityContext`: defaults for every container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSecurityContext {
    /// Numeric user, 0–2147483647.
    pub run_as_user: Option<i64>,
    /// Numeric group, 0–2147483647.
    pub run_as_group: Option<i64>,
    /// Refuses to start a container whose user is 0.
    pub run_as_non_root: Option<bool>,
    /// Further groups of each container's first process.
    pub supplemental_groups: Vec<i64>,
    /// `Merge` (default): the groups that the image gives its user come to them. `Strict`: they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<String>,
    /// The group of every volume but hostPath, and a further group of each container; 0–2147483647.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// `Always` (default), or `OnRootMismatch`: a volume whose root has the group is left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<String>,
    /// Default `Unconfined`.
    pub seccomp_profile: Option<SeccompProfile>,
    /// Default: the runtime's own where the node has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
    /// Kernel parameters of the pod's own namespaces.
    pub sysctls: Vec<Sysctl>,
}

/// `sysctls[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sysctl {
    /// Name of the parameter, with dots or slashes between its parts.
    pub name: String,
    /// Value of the parameter, as the kernel takes it.
    pub value: String,
}

/// `seccompProfile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompProfile {
    /// `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Localhost`: path of the profile below the seccomp directory of the root, without `..`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

/// `appArmorProfile`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppArmorProfile {
    /// `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Localhost`: the name of a profile that is loaded on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

/// `securityContext` of a container; each field wins over the pod's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// Added to and dropped from containerd's default set; names in any case, with or without `CAP_`, or `ALL`.
    pub capabilities: Capabilities,
    /// True gives the container all capabilities and all devices, and masks nothing.
    pub privileged: Option<bool>,
    /// Numeric user.
    pub run_as_user: Option<i64>,
    /// Numeric group.
    pub run_as_group: Option<i64>,
    /// Refuses user 0.
    pub run_as_non_root: Option<bool>,
    /// The root file system is mounted read-only.
    pub read_only_root_filesystem: Option<bool>,
    /// false sets no_new_privs.
    pub allow_privilege_escalation: Option<bool>,
    /// Default the pod's; a privileged container has none.
    pub seccomp_profile: Option<SeccompProfile>,
    /// Default the pod's; a privileged container has only one that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
}

/// `capabilities`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Added, after the drops.
    pub add: Vec<String>,
    /// Dropped.
    pub drop: Vec<String>,
}
