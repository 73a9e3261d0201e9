//! The hooks of a container, and the signal that ends it.

use serde::{Deserialize, Serialize};

use super::actions::{ExecAction, HttpGetAction, SleepAction, TcpSocketAction};

/// `lifecycle` of a container: its hooks and its stop signal (kubelet-probes 8.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Hook that runs after the container has started. If the hook fails, the container is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<Hook>,
    /// Hook that runs before the container gets its stop signal. The time that the hook takes counts in the grace
    /// period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<Hook>,
    /// Signal that ends the container, such as `SIGUSR1` or `SIGRTMIN+3`. The signal replaces the stop signal of the
    /// image. A pod that sets the signal must also set `spec.os.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// The kind of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// The hook runs after the container's start.
    PostStart,
    /// The hook runs before the container's stop signal.
    PreStop,
}

impl HookKind {
    /// Both kinds, in the order of the API's errors.
    pub const ALL: [Self; 2] = [Self::PostStart, Self::PreStop];

    /// Returns the name of the hook's field in `lifecycle`.
    pub fn field(self) -> &'static str {
        match self {
            Self::PostStart => "postStart",
            Self::PreStop => "preStop",
        }
    }
}

/// A hook: exactly one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hook {
    /// Action that runs a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// Action that sends an HTTP GET to a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Action that opens a TCP connection. This action is valid, but always fails: the API keeps the field for old
    /// objects only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Action that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepAction>,
}
