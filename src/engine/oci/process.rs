//! `process`: the program that a container runs, and what it is given.

use serde::{Deserialize, Serialize};

/// `process`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// The standard streams are a terminal.
    pub terminal: bool,
    /// Size of the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_size: Option<ConsoleSize>,
    /// Ids that the program runs with.
    pub user: User,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Environment, `NAME=VALUE` each.
    pub env: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Resource limits.
    pub rlimits: Vec<Rlimit>,
    /// No privilege can be gained by an execve.
    pub no_new_privileges: bool,
    /// Readiness of the kernel to kill the program when memory runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i64>,
    /// Name of an AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apparmor_profile: Option<String>,
    /// Label of SELinux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_label: Option<String>,
}

/// `process.consoleSize`, in characters.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConsoleSize {
    /// Lines.
    pub height: u64,
    /// Columns.
    pub width: u64,
}

/// `process.user`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Mask of the permissions of new files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Supplementary groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// `process.capabilities`: five sets of `CAP_…` names.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Capabilities beside which none can ever be gained.
    pub bounding: Vec<String>,
    /// Capabilities in force.
    pub effective: Vec<String>,
    /// Capabilities that can be in force.
    pub permitted: Vec<String>,
    /// Capabilities that survive an execve of a file that names them.
    pub inheritable: Vec<String>,
    /// Capabilities that survive any execve.
    pub ambient: Vec<String>,
}

/// An entry of `process.rlimits`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Rlimit {
    /// Name, `RLIMIT_…`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The limit in force.
    pub soft: u64,
    /// The most that the process may raise it to.
    pub hard: u64,
}
