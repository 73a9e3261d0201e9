//! The settings of controllers, from the configuration.

use std::str::FromStr;

use super::deployment::OnDeadline;

/// The settings of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Reaction of a Deployment to an exceeded deadline, unless its annotation says otherwise (workloads 3.25).
    pub on_progress_deadline: OnDeadline,
}

/// A text names nothing that a Deployment can do at its deadline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not known here; it is report or rollback")]
pub struct OnDeadlineError(String);

impl FromStr for OnDeadline {
    type Err = OnDeadlineError;

    fn from_str(text: &str) -> Result<Self, OnDeadlineError> {
        match text {
            "" => Ok(Self::Report),
            _ => Self::named(text).ok_or_else(|| OnDeadlineError(text.to_owned())),
        }
    }
}
