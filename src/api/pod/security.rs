//! The security contexts of pods and containers: users, capabilities, profiles, kernel parameters.

use serde::{Deserialize, Serialize};

/// `spec.securityContext` of a pod: its own settings, and defaults for every container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSecurityContext {
    /// Numeric id of the user that the containers run as, 0–2147483647.
    pub run_as_user: Option<i64>,
    /// Numeric id of the containers' primary group, 0–2147483647.
    pub run_as_group: Option<i64>,
    /// True if a container may not start as user 0.
    pub run_as_non_root: Option<bool>,
    /// Extra groups of each container's first process.
    pub supplemental_groups: Vec<i64>,
    /// Rule for the groups that the image gives its user. `Merge` (default) adds these groups to `supplementalGroups`;
    /// `Strict` leaves them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<String>,
    /// Group of every volume except hostPath volumes, and an extra group of each container; 0–2147483647.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// Rule for changing the group of the volumes' files: `Always` (default), or `OnRootMismatch`, which skips a
    /// volume whose root directory has the group already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<String>,
    /// Seccomp profile of the containers; default `Unconfined`.
    pub seccomp_profile: Option<SeccompProfile>,
    /// AppArmor profile of the containers. The default is the runtime's own profile if the node has loaded that
    /// profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
    /// Kernel parameters that are set in the pod's own namespaces.
    pub sysctls: Vec<Sysctl>,
}

/// `sysctls[]`: a kernel parameter with its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sysctl {
    /// Name of the parameter, with dots or slashes between its parts.
    pub name: String,
    /// Value of the parameter, as the kernel reads it.
    pub value: String,
}

/// `seccompProfile` of a pod or a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompProfile {
    /// Type of the profile: `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Path of the profile for the type `Localhost`, relative to the seccomp directory of podprobe's root and without
    /// `..`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

/// `appArmorProfile` of a pod or a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppArmorProfile {
    /// Type of the profile: `Unconfined`, `RuntimeDefault` or `Localhost`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Name of the profile for the type `Localhost`. The profile must be loaded on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

/// `securityContext` of a container. Each field replaces the field of the same name in the pod's security context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// Added to and dropped from containerd's default set; names in any case, with or without `CAP_`, or `ALL`.
    pub capabilities: Capabilities,
    /// True if the container gets all capabilities and all devices. No path is masked for such a container.
    pub privileged: Option<bool>,
    /// Numeric id of the user that the container runs as.
    pub run_as_user: Option<i64>,
    /// Numeric id of the container's primary group.
    pub run_as_group: Option<i64>,
    /// True if the container may not start as user 0.
    pub run_as_non_root: Option<bool>,
    /// True if the root file system is mounted read-only.
    pub read_only_root_filesystem: Option<bool>,
    /// True if processes may gain privileges; false sets no_new_privs.
    pub allow_privilege_escalation: Option<bool>,
    /// Seccomp profile of the container; default that of the pod. A privileged container has none.
    pub seccomp_profile: Option<SeccompProfile>,
    /// AppArmor profile of the container; default that of the pod. A privileged container has a profile only if this
    /// field names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
}

/// `capabilities` of a container: changes to the default set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Capabilities to add. They are added after the drops.
    pub add: Vec<String>,
    /// Capabilities to drop.
    pub drop: Vec<String>,
}
