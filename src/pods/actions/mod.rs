//! Decides what a sync of a pod starts and kills, and when (kubelet-probes 8).
//!
//! Invariants: this module is pure. It starts and kills nothing, does not wait, lock or log, and reads no clock. Its
//! inputs are the spec, the runtime's status and the cached probe results. Its outputs are data that
//! [`crate::pods::workers`] carries out.

mod backoff;
mod compute;
mod grace;
mod init;
mod order;
mod pod_actions;
mod regular;
mod resize;
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
pub use resize::{NoRoom, Resize, ResizeState, ToResize, in_effect, plan as plan_resize};
pub use restart::on_request as restart_on_request;
pub use restart::{CannotRestart, restarts_all, should_be_restarted, should_restart_after};
pub use restart_all::{
    ALL_CONTAINERS_RESTARTING, RESTARTING_ALL_CONTAINERS, ToRemove, may_restart_all,
    restart_all_asked_by, restart_all_going_on, restart_all_wanted,
};
