//! The object `linux.seccomp`: the filter that decides which system calls a container may make.
//!
//! Invariant: a person may have written the profile, so each list may be null. A word or number that the specification
//! does not know is kept as it was written, so that an error can quote it.

use serde::{Deserialize, Serialize};
use serde_json::Number;

/// The object `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seccomp {
    /// Action for system calls that no entry of `syscalls` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_action: Option<String>,
    /// Error number that the default action returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<Number>,
    /// Architectures that the filter covers besides the machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architectures: Option<Vec<String>>,
    /// Flags for seccomp(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Entries that name system calls, each with an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<Vec<Syscall>>,
}

/// An entry of `linux.seccomp.syscalls`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Syscall {
    /// Names of the system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Action for these system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Error number that the action returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<Number>,
    /// Conditions on the arguments of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<SeccompArg>>,
}

/// An entry of `linux.seccomp.syscalls[].args`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArg {
    /// Index of the argument, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Number>,
    /// Number that the argument is compared with; for a masked comparison it is the mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// Number that the masked argument is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_two: Option<Number>,
    /// Comparison operator, `SCMP_CMP_…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
}
