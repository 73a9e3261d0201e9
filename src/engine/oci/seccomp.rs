//! `linux.seccomp`: which system calls a container may make.
//!
//! Invariant: a profile may be a person's, so each list may be null, and what is no word or number of the specification is
//! kept as it was written, for an error that names it.

use serde::{Deserialize, Serialize};
use serde_json::Number;

/// `linux.seccomp`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seccomp {
    /// Action for calls that no entry names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_action: Option<String>,
    /// Error number of that action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_errno_ret: Option<Number>,
    /// Architectures beside the machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architectures: Option<Vec<String>>,
    /// Flags of seccomp(2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<Vec<String>>,
    /// Entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<Vec<Syscall>>,
}

/// An entry of `linux.seccomp.syscalls`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Syscall {
    /// Names of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Action for these calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Error number of that action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno_ret: Option<Number>,
    /// Conditions on the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<SeccompArg>>,
}

/// An entry of `linux.seccomp.syscalls[].args`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompArg {
    /// Number of the argument, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Number>,
    /// Number that it is compared with, or a mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Number>,
    /// Number that the masked argument is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_two: Option<Number>,
    /// Operator, `SCMP_CMP_…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
}
