//! The status of every pod. The files of this module decide phase, conditions and container statuses. The manager holds
//! the statuses.

mod ages;
mod conditions;
mod container_statuses;
mod generate;
mod kept;
mod manager;
mod phase;

pub use ages::Ages;
pub use conditions::{TooManyConditions, conditions_of_others, containers_ready};
pub use container_statuses::{StartFailure, counted_on, newest_number, taken_over};
pub use generate::{
    DELETED, EVICTED, EndedBy, Inputs, TERMINATED, generate, is_of_ended, qos_class,
};
pub use kept::KeptStatuses;
pub use manager::{StatusManager, finished};

pub use phase::{PhaseInputs, phase};
