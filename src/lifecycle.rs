//! Hooks of a container: what runs before it is told to stop, and after it has started (kubelet-probes 8.5).
//!
//! Invariants: a hook never decides whether its container starts or stops; it only delays it, at
//! most for the time it is given. [`crate::pod_workers`] decides the order of hook, signal and
//! kill.

use std::time::Duration;

use crate::api::{Container, Pod};
use crate::runtime::{Cancel, ContainerId};

/// The container that a hook runs for.
#[derive(Clone, Copy, Debug)]
pub struct HookSubject<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// Its spec.
    pub container: &'a Container,
    /// The instance.
    pub id: &'a ContainerId,
}

/// Runs hooks. Called on threads of pod workers, which it may block.
pub trait Hooks: Send + Sync {
    /// Runs the hook before the container is told to stop. Returns when the hook has ended, at the
    /// latest after `grace` or soon after `cancel`. The time it takes counts against the grace
    /// period.
    ///
    /// # Errors
    /// The hook failed; the text becomes an event, and the container is stopped anyway.
    fn pre_stop(
        &self,
        subject: HookSubject<'_>,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), String>;

    /// Runs the hook after the container has started. The start counts as done when the hook has
    /// ended.
    ///
    /// # Errors
    /// The hook failed; the text becomes an event, and the container is killed.
    fn post_start(&self, subject: HookSubject<'_>, cancel: &Cancel) -> Result<(), String>;
}

/// Runs no hooks: validation refuses `lifecycle`, so no container has one.
pub struct NoHooks;

impl Hooks for NoHooks {
    fn pre_stop(&self, _: HookSubject<'_>, _: Duration, _: &Cancel) -> Result<(), String> {
        Ok(())
    }

    fn post_start(&self, _: HookSubject<'_>, _: &Cancel) -> Result<(), String> {
        Ok(())
    }
}
