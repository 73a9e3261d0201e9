//! What a probe that a person asked for did.

use serde::{Deserialize, Serialize};

use super::history::RunOutcome;
use crate::base::text::{head, micros};
use crate::pods::prober::outcome::Outcome;
use crate::pods::prober::trace::Step;

/// Bytes shown of what the probe said.
pub const MAX_SHOWN: usize = 4096;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeReport {
    /// The steps of the run, in order.
    pub steps: Vec<Step>,
    /// The outcome of the run.
    pub outcome: RunOutcome,
    /// The phase that the run reached.
    pub phase: String,
    /// Output, failure text or error; at most [`MAX_SHOWN`] bytes.
    pub output: String,
    /// How long the last try took, in microseconds.
    pub micros: u64,
}

impl ProbeReport {
    /// The report of a run with that outcome.
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
