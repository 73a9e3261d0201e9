//! The report of a probe that a person has run by hand.

use serde::{Deserialize, Serialize};

use crate::base::text::{head, micros};
use crate::pods::history::RunOutcome;
use crate::pods::prober::outcome::Outcome;
use crate::pods::prober::trace::Step;

/// Number of bytes of the probe's output that are shown.
pub const MAX_SHOWN: usize = 4096;

/// The report of a probe that a person has run by hand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// The steps of the run, in order.
    pub steps: Vec<Step>,
    /// The outcome of the run.
    pub outcome: RunOutcome,
    /// The phase that the run reached.
    pub phase: String,
    /// The output, failure text or error of the run; at most [`MAX_SHOWN`] bytes.
    pub output: String,
    /// The time that the last try took, in microseconds.
    pub micros: u64,
}

impl ProbeReport {
    /// Makes the report of a run with this outcome and these steps.
    pub fn new(outcome: &Outcome, steps: Vec<Step>) -> Self {
        let said = outcome.error.as_deref().unwrap_or(&outcome.output);
        Self {
            steps,
            outcome: outcome.into(),
            phase: outcome.phase.to_string(),
            output: head(said, MAX_SHOWN).to_owned(),
            micros: micros(outcome.duration),
        }
    }
}
