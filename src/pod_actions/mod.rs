//! What to start and what to kill, and when: the decisions of a pod's sync (kubelet-probes 8).
//!
//! Invariants: pure. Nothing here starts, kills, waits, locks, logs or reads a clock; inputs are the spec, what the
//! runtime said and the cached probe results, outputs are data that [`crate::pod_workers`] carries out.

mod backoff;
mod compute;
mod grace;
mod restart;

pub use backoff::{BackOff, BackOffKey, Held};
pub(crate) use compute::sandbox_needed;
pub use compute::{Inputs, KillReason, PodActions, ToKill, compute, spec_hash};
pub use grace::{MINIMUM_GRACE_SECONDS, kill_grace_period, pod_grace_period};
pub use restart::{should_be_restarted, should_restart_after};

#[cfg(test)]
pub(crate) use compute::tests as tests_support;
