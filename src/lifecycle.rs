//! Hooks of a container: what runs before it is told to stop, and after it has started (kubelet-probes 8.5).
//!
//! Invariants: a hook never decides whether its container starts or stops; it only delays it, and no longer than it is
//! given. The order of hook, signal and kill is [`crate::pod_workers`]'.

use std::time::Duration;

use crate::api::{Container, Pod};
use crate::runtime::{Cancel, ContainerId};

/// A container that a hook is about.
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
    /// Before the container is told to stop; returns when the hook has ended, at the latest after `grace` or soon after
    /// `cancel`. The time it takes is taken off the grace period.
    ///
    /// # Errors
    /// The hook failed; the text becomes an event, and the container is stopped all the same.
    fn pre_stop(
        &self,
        subject: HookSubject<'_>,
        grace: Duration,
        cancel: &Cancel,
    ) -> Result<(), String>;

    /// After the container has started; its start counts as done when the hook has ended.
    ///
    /// # Errors
    /// The hook failed; the text becomes an event, and the container is killed.
    fn post_start(&self, subject: HookSubject<'_>, cancel: &Cancel) -> Result<(), String>;
}

/// No container has hooks: validation refuses `lifecycle`.
pub struct NoHooks;

impl Hooks for NoHooks {
    fn pre_stop(&self, _: HookSubject<'_>, _: Duration, _: &Cancel) -> Result<(), String> {
        Ok(())
    }

    fn post_start(&self, _: HookSubject<'_>, _: &Cancel) -> Result<(), String> {
        Ok(())
    }
}
