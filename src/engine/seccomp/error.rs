//! Reasons why a seccomp profile cannot be applied exactly. Each text follows "cannot apply seccomp profile: ".

use serde_json::{Number, Value};

use super::bpf::MAX_LENGTH;

/// Reason why a profile cannot be compiled into a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeccompError {
    /// The specification does not know this action. A missing action is `null`.
    #[error("{0} is no action")]
    Action(Value),
    /// The action needs a listener: a process that answers in place of the kernel.
    #[error("SCMP_ACT_NOTIFY needs a listener, which is not supported")]
    Listener,
    /// The error number of an action is not one that the kernel accepts.
    #[error("errnoRet {0} is no error number")]
    ErrorNumber(Number),
    /// The flag is unknown, or needs a listener (a process that answers in place of the kernel).
    #[error("flag {0} is not supported")]
    Flag(String),
    /// The specification does not know this operator. A missing operator is `null`.
    #[error("{0} is no operator")]
    Operator(Value),
    /// A number in a condition is negative, or not a whole number.
    #[error("{key} {number} of an argument is no number")]
    Argument {
        /// Name of the number: `index`, `value` or `valueTwo`.
        key: &'static str,
        /// The number as it stands in the profile.
        number: Number,
    },
    /// The index of an argument is larger than 5: system calls have six arguments.
    #[error("a system call has no argument {0}")]
    Index(u64),
    /// The program has more instructions than the kernel accepts.
    #[error("it is too large: {0} instructions, of which the kernel takes {MAX_LENGTH}")]
    TooLarge(usize),
}
