//! The reasons why a container does not start, in the kubelet's words.

use std::fmt;

use crate::base::clock::Moment;
use crate::engine::images::manager::{EnsureError, ImageWaitReason};
use crate::engine::runtime::{RuntimeError, RuntimeErrorKind};
use crate::pods::container_config::ConfigError;

/// A value of `state.waiting.reason` (kubelet-probes 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartErrorReason {
    /// The crash-loop back-off holds the container back.
    CrashLoopBackOff,
    /// The container's image is not available.
    Image(ImageWaitReason),
    /// The spec cannot become a container (unknown user, missing volume, …).
    CreateContainerConfigError,
    /// The runtime could not create the container.
    CreateContainerError,
    /// The container was created but did not start (missing binary, …).
    RunContainerError,
    /// The container's postStart hook failed, and the container was killed.
    PostStartHookError,
}

impl StartErrorReason {
    /// Returns the kubelet's word for the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::Image(reason) => reason.as_str(),
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::PostStartHookError => "PostStartHookError",
        }
    }
}

/// The error of the step that failed when a container was to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The reason, which becomes `state.waiting.reason`.
    pub reason: StartErrorReason,
    /// The text, which becomes `state.waiting.message`. If a person can do something about the error, the text says
    /// what.
    pub message: String,
    /// The time at which another try is worthwhile. `None` means that the time is not known.
    pub retry_at: Option<Moment>,
}

impl StartError {
    /// Makes an error with this reason.
    pub fn new(reason: StartErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_at: None,
        }
    }

    pub(super) fn create(e: RuntimeError) -> Self {
        let reason = match e.kind {
            RuntimeErrorKind::InvalidConfig => StartErrorReason::CreateContainerConfigError,
            _ => StartErrorReason::CreateContainerError,
        };
        Self::new(reason, e.message)
    }

    pub(super) fn run(e: RuntimeError) -> Self {
        Self::new(StartErrorReason::RunContainerError, e.message)
    }
}

impl From<ConfigError> for StartError {
    fn from(e: ConfigError) -> Self {
        Self::new(StartErrorReason::CreateContainerConfigError, e.to_string())
    }
}

impl From<EnsureError> for StartError {
    fn from(e: EnsureError) -> Self {
        Self {
            retry_at: e.retry_at,
            ..Self::new(StartErrorReason::Image(e.reason), e.message)
        }
    }
}

impl fmt::Display for StartError {
    /// Writes the text of the kubelet's event `Error: …`. For an image this is only the reason, because the image's own
    /// event has the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            StartErrorReason::Image(reason) => f.write_str(reason.as_str()),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for StartError {}
