//! Hooks of a container: what runs after it has started, and before it is told to stop
//! (kubelet-probes 8.5).
//!
//! Invariants: a hook never decides whether its container starts or stops; it only delays it, at
//! most for the time it is given. [`crate::pods::workers`] decides the order of hook, signal and
//! kill. When a hook returns, none of its processes and sockets is left. What it wrote is bounded,
//! and is in no event, because it may be a secret (deviations: hook-cause).
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

/// The container that a hook runs for.
#[derive(Clone, Copy, Debug)]
pub struct HookSubject<'a> {
    /// The pod of the container.
    pub pod: &'a Pod,
    /// The spec of the container.
    pub container: &'a Container,
    /// The instance.
    pub id: &'a ContainerId,
}

/// Why a hook did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// The hook failed, or its time was over.
    Failed(Failure),
    /// The hook's caller gave it up.
    Cancelled,
}

/// How a hook failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kubelet's text. It may contain what the hook wrote: it is for the log and for the state of the container.
    pub text: String,
    /// Why, without what the hook wrote: for events.
    pub cause: String,
}

impl From<String> for Failure {
    /// Makes the failure of a hook that has written nothing.
    fn from(text: String) -> Self {
        Self {
            cause: text.clone(),
            text,
        }
    }
}

impl HookError {
    /// The reason and the text of the event; None when there is none. The text begins as the kubelet's and has the cause
    /// behind it, without what the hook wrote.
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

/// Runs hooks. Called on threads of pod workers, which it may block.
pub trait Hooks: Send + Sync {
    /// Runs the hook before the container is told to stop. Returns when the hook has ended, at the
    /// latest after `grace` or soon after `cancel`. The time it takes counts against the grace
    /// period.
    ///
    /// # Errors
    /// Returns an error if the hook failed. The container is stopped anyway.
    fn pre_stop(
        &self,
        subject: HookSubject<'_>,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), HookError>;

    /// Runs the hook after the container has started. The start counts as done when the hook has
    /// ended. It has no limit of its own, and returns soon after `cancel`.
    ///
    /// # Errors
    /// Returns an error if the hook failed. The container is killed then.
    fn post_start(&self, subject: HookSubject<'_>, cancel: &Cancel) -> Result<(), HookError>;
}

#[cfg(test)]
mod tests;
