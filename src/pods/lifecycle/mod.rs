//! Hooks of a container: handlers that run after the container has started, and before it gets the stop signal
//! (kubelet-probes 8.5).
//!
//! Invariants: a hook never decides whether its container starts or stops. A hook only delays the container, at most by
//! the hook's time limit. The order of hook, signal and kill is decided by [`crate::pods::workers`]. When a hook
//! returns, none of its processes and sockets is left. The output of a hook is bounded. No event shows the output,
//! because the output may be a secret (deviations: hook-cause).
//!
//! ```text
//! workers ─▶ runner ─▶ exec | http | sleep       message: the kubelet's texts
//! ```

mod exec;
mod http;
mod message;
mod runner;

use std::time::Duration;

use crate::api::{Container, HookKind, Pod};
use crate::base::cancel::Cancel;
use crate::engine::runtime::ContainerId;

pub use runner::HandlerRunner;

/// The container for which a hook runs.
#[derive(Clone, Copy, Debug)]
pub struct HookSubject<'a> {
    /// The pod of the container.
    pub pod: &'a Pod,
    /// The spec of the container.
    pub container: &'a Container,
    /// The id of the container's instance.
    pub id: &'a ContainerId,
}

/// The reason why a hook did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// The hook failed, or its time ran out.
    Failed(Failure),
    /// The hook's caller cancelled the hook.
    Cancelled,
}

/// The failure of a hook, as texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kubelet's text, for the log and for the state of the container. The text may contain the hook's output.
    pub text: String,
    /// The cause without the hook's output, for events.
    pub cause: String,
}

impl From<String> for Failure {
    /// Makes the failure of a hook without output.
    fn from(text: String) -> Self {
        Self {
            cause: text.clone(),
            text,
        }
    }
}

impl HookError {
    /// Returns the reason and the text of the event, or `None` if there is no event. The text begins as the kubelet's
    /// text and continues with the cause, without the hook's output.
    pub fn event(&self, kind: HookKind) -> Option<(&'static str, String)> {
        let Self::Failed(Failure { cause, .. }) = self else {
            return None;
        };
        Some(match kind {
            HookKind::PostStart => {
                let text = format!("PostStartHook failed: {cause}");
                ("FailedPostStartHook", text)
            }
            HookKind::PreStop => ("FailedPreStopHook", format!("PreStopHook failed: {cause}")),
        })
    }
}

/// Runs hooks. Pod workers call these functions on their own threads, which a hook may block.
pub trait Hooks: Send + Sync {
    /// Runs the hook before the container gets the stop signal. Returns when the hook has ended, at the latest after
    /// `grace` or soon after `cancel`. The hook's time counts against the grace period. `ran` is the time for which an
    /// earlier daemon has run the hook: only what is left of a sleep is slept, and any other hook runs again.
    ///
    /// # Errors
    /// Returns [`HookError`] if the hook failed or was cancelled. The container is stopped anyway.
    fn pre_stop(
        &self,
        subject: HookSubject<'_>,
        grace: Duration,
        ran: Duration,
        cancel: &Cancel,
    ) -> Result<(), HookError>;

    /// Runs the hook after the container has started. The start is complete only when the hook has ended. The hook has
    /// no time limit of its own. The function returns soon after `cancel`.
    ///
    /// # Errors
    /// Returns [`HookError`] if the hook failed or was cancelled. The container is then killed.
    fn post_start(&self, subject: HookSubject<'_>, cancel: &Cancel) -> Result<(), HookError>;
}

#[cfg(test)]
mod tests;
