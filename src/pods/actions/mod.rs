//! What to start and what to kill, and when: the decisions of a pod's sync (kubelet-probes 8).
//!
//! Invariants: pure. Nothing here starts, kills, waits, locks, logs or reads a clock; its inputs
//! are the spec, the runtime's status and the cached probe results; its outputs are data that
//! [`crate::pods::workers`] carries out.

mod backoff;
mod compute;
mod grace;
mod init;
mod order;
mod pod_actions;
mod regular;
mod restart;
mod restart_all;
#[cfg(test)]
mod walk;

pub use backoff::{BackOff, BackOffKey, Held};
pub(crate) use compute::sandbox_needed;
pub use compute::{compute, ended_before};
pub use grace::{
    MINIMUM_GRACE_SECONDS, grace_of, kill_grace_period, left_of, pod_grace_period, stop_grace,
};
pub use init::has_initialized;
pub use order::ends_after;
pub use pod_actions::{Inputs, KillReason, PodActions, ToKill};
pub use restart::on_request as restart_on_request;
pub use restart::{CannotRestart, restarts_all, should_be_restarted, should_restart_after};
pub use restart_all::{
    ALL_CONTAINERS_RESTARTING, RESTARTING_ALL_CONTAINERS, ToRemove, may_restart_all,
    restart_all_asked_by, restart_all_going_on, restart_all_wanted,
};
