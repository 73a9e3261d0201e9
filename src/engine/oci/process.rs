//! The object `process`: the program that a container runs, with its user, environment and privileges.

use serde::{Deserialize, Serialize};

/// The object `process`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// True if the standard streams are a terminal.
    pub terminal: bool,
    /// Size of the terminal; None does not set a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_size: Option<ConsoleSize>,
    /// User and group ids of the program.
    pub user: User,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Environment variables, each as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Working directory in the container.
    pub cwd: String,
    /// Capabilities of the program.
    pub capabilities: Capabilities,
    /// Resource limits.
    pub rlimits: Vec<Rlimit>,
    /// True if the program cannot gain privileges by an execve.
    pub no_new_privileges: bool,
    /// Score from -1000 to 1000: the higher it is, the earlier the kernel kills the program when memory runs out. None
    /// leaves the score as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i64>,
    /// Name of an AppArmor profile; None sets no profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apparmor_profile: Option<String>,
    /// SELinux label of the program; None sets no label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_label: Option<String>,
}

/// The object `process.consoleSize`: size of the terminal in characters.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConsoleSize {
    /// Number of lines.
    pub height: u64,
    /// Number of columns.
    pub width: u64,
}

/// The object `process.user`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Umask: the permission bits that new files do not get; None means 022.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Ids of the supplementary groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// The object `process.capabilities`: five sets of `CAP_…` names.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// The bounding set: the program can never gain a capability that is not in it.
    pub bounding: Vec<String>,
    /// The effective set: capabilities that are in force.
    pub effective: Vec<String>,
    /// The permitted set: capabilities that the program may put in force.
    pub permitted: Vec<String>,
    /// The inheritable set: capabilities that survive an execve of a file that names them.
    pub inheritable: Vec<String>,
    /// The ambient set: capabilities that survive any execve.
    pub ambient: Vec<String>,
}

/// An entry of `process.rlimits`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Rlimit {
    /// Name of the limit, `RLIMIT_…`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The limit that is in force.
    pub soft: u64,
    /// The highest value to which the process may raise the limit.
    pub hard: u64,
}
