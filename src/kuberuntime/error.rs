//! Why a container does not start, in the kubelet's words.

use std::fmt;

use crate::images::ImageError;
use crate::runtime::{RuntimeError, RuntimeErrorKind};

/// A value of `state.waiting.reason` (kubelet-probes 8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartErrorReason {
    /// Held back by the crash-loop back-off.
    CrashLoopBackOff,
    /// The image is not on the node; nothing is pulled.
    ErrImageNeverPull,
    /// The image is there and cannot be read.
    ImageInspectError,
    /// Not an image reference.
    InvalidImageName,
    /// The spec cannot become a container (unknown user, missing volume, …).
    CreateContainerConfigError,
    /// The runtime could not create it.
    CreateContainerError,
    /// It was created and did not start (missing binary, …).
    RunContainerError,
    /// Its postStart hook failed, and it was killed.
    PostStartHookError,
}

impl StartErrorReason {
    /// The kubelet's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::ImageInspectError => "ImageInspectError",
            Self::InvalidImageName => "InvalidImageName",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::PostStartHookError => "PostStartHookError",
        }
    }
}

/// A step of a container's start that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// Becomes `state.waiting.reason`.
    pub reason: StartErrorReason,
    /// Becomes `state.waiting.message`; says what to do where there is something to do.
    pub message: String,
}

impl StartError {
    /// An error of that reason.
    pub fn new(reason: StartErrorReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(super) fn config(message: impl Into<String>) -> Self {
        Self::new(StartErrorReason::CreateContainerConfigError, message)
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

impl From<ImageError> for StartError {
    fn from(e: ImageError) -> Self {
        let reason = match &e {
            ImageError::NotFound { .. } => StartErrorReason::ErrImageNeverPull,
            ImageError::InvalidName { .. } => StartErrorReason::InvalidImageName,
            _ => StartErrorReason::ImageInspectError,
        };
        Self::new(reason, e.to_string())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
