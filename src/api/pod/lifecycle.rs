//! The hooks of a container, and the signal that ends it.

use serde::{Deserialize, Serialize};

use super::actions::{ExecAction, HttpGetAction, SleepAction, TcpSocketAction};

/// `lifecycle` (kubelet-probes 8.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Runs after the container has started. If it fails, the container is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post_start: Option<Hook>,
    /// Runs before the container is told to stop, within the grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<Hook>,
    /// `SIGUSR1`, `SIGRTMIN+3`; replaces the stop signal of the image. Needs `spec.os.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// The two hooks of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// After the start.
    PostStart,
    /// Before the stop signal.
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
    /// Run a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// GET a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Valid, but it always fails: the API keeps the field for old objects only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepAction>,
}
