//! Why a seccomp profile cannot be applied exactly. Each text follows "cannot apply seccomp profile: ".

use serde_json::{Number, Value};

use super::bpf::MAX_LENGTH;

/// A reason for which a profile has no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeccompError {
    /// The action is no word of the specification; a missing one is `null`.
    #[error("{0} is no action")]
    Action(Value),
    /// The action needs a process that answers.
    #[error("SCMP_ACT_NOTIFY needs a listener, which is not supported")]
    Listener,
    /// The error number of an action is none that the kernel takes.
    #[error("errnoRet {0} is no error number")]
    ErrorNumber(Number),
    /// The flag is unknown, or needs a listener.
    #[error("flag {0} is not supported")]
    Flag(String),
    /// The operator is no word of the specification; a missing one is `null`.
    #[error("{0} is no operator")]
    Operator(Value),
    /// A number of a condition is negative or no whole one.
    #[error("{key} {number} of an argument is no number")]
    Argument {
        /// Name of the number.
        key: &'static str,
        /// The number as it was written.
        number: Number,
    },
    /// System calls have six arguments.
    #[error("a system call has no argument {0}")]
    Index(u64),
    /// The kernel takes no program of that many instructions.
    #[error("it is too large: {0} instructions, of which the kernel takes {MAX_LENGTH}")]
    TooLarge(usize),
}
