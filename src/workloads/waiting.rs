//! What a Deployment waits for, in one sentence for `describe`, and the texts of `rollout status`.
//!
//! Invariants: pure. The sentence says why the rollout does not go on, since when, and which old pods it keeps. The
//! texts of `rollout status` are kubectl's.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

use super::deployment::{
    DeploymentInput, DeploymentState, ImagesState, PROGRESSING, SetRecord, SurgeAllowance,
    wants_way_back,
};
use super::numbers::Fenceposts;
use super::replica_set::PodCounts;
use crate::api::workload::StrategyType;

/// Value of `progressDeadlineSeconds` that means no deadline.
const NO_DEADLINE: i32 = i32::MAX;
/// Most names of pods in the sentence.
const MOST_NAMES: usize = 3;

/// Names of the pods of old sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct OldPods<'a> {
    /// Pods that have not ended and are not ending.
    pub kept: &'a [&'a str],
    /// Pods that are ending.
    pub ending: &'a [&'a str],
}

/// Returns what a Deployment waits for; None if it waits for nothing.
pub fn waiting(
    input: &DeploymentInput,
    state: &DeploymentState,
    old_pods: OldPods,
) -> Option<String> {
    let view = View {
        input,
        state,
        old_pods,
    };
    let parts = match () {
        () if input.spec.paused => vec![view.paused()],
        () if view.is_complete() => vec![view.rolled_back()],
        () => vec![
            view.rolled_back(),
            view.no_way_back(),
            view.obstacle(),
            view.new_pods(),
            pods_that(old_pods.kept, "kept", "kept"),
            pods_that(old_pods.ending, "is ending", "are ending"),
        ],
    };
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

struct View<'a> {
    input: &'a DeploymentInput<'a>,
    state: &'a DeploymentState,
    old_pods: OldPods<'a>,
}

impl View<'_> {
    fn is_complete(&self) -> bool {
        let (replicas, generation) = (self.input.spec.replicas, self.input.generation);
        let has_old = self
            .input
            .sets
            .iter()
            .any(|set| !set.is_current && set.pods.active > 0);
        self.state.status.is_complete(replicas, generation) && !has_old
    }

    fn new_set(&self) -> Option<&SetRecord> {
        let is_current = |set: &&SetRecord| {
            let mut observed = self.input.sets.iter();
            observed.any(|it| it.is_current && it.name == set.name)
        };
        self.state.sets.iter().find(is_current)
    }

    fn new_counts(&self) -> PodCounts {
        let name = self.new_set().map(|set| set.name.as_str());
        let mut observed = self.input.sets.iter();
        let set = observed.find(|it| Some(it.name.as_str()) == name);
        set.map(|it| it.pods).unwrap_or_default()
    }

    fn paused(&self) -> Option<String> {
        let since = self
            .since("DeploymentPaused")
            .map(|age| format!(" for {age}"));
        let since = since.unwrap_or_default();
        Some(format!(
            "paused{since}: a new template waits for rollout resume"
        ))
    }

    fn rolled_back(&self) -> Option<String> {
        let bad = self.state.overrides.bad()?;
        let to = self.state.overrides.undone()?.revision;
        Some(format!(
            "revision {} made no progress and was rolled back to revision {to}: change the template in the file, or use rollout retry",
            bad.revision
        ))
    }

    /// Returns why a rollout that is late is not rolled back, although the Deployment wants that.
    fn no_way_back(&self) -> Option<String> {
        wants_way_back(self.input, self.state).then(|| {
            "the deadline is over, and no earlier revision was complete that it could be rolled back to".into()
        })
    }

    /// Returns what the node has against a new pod, or the old pods for which Recreate waits.
    fn obstacle(&self) -> Option<String> {
        let spec = self.input.spec;
        let surge = Fenceposts::of(spec).max_surge;
        if self.new_counts().available >= spec.replicas {
            return None;
        }
        match (&self.input.node.surge, &self.input.node.images) {
            (SurgeAllowance::DoesNotFit(words), _) => {
                Some(format!("a new pod does not fit: {words}"))
            }
            (_, ImagesState::Failed { message, .. }) => Some(format!(
                "images of the new pods cannot be pulled: {message}"
            )),
            (_, ImagesState::Pulling { progressed_at }) => Some(self.pulling(*progressed_at)),
            _ if self.waits_for_old_pods() => {
                Some("new pods wait until old ones have ended".into())
            }
            (SurgeAllowance::None { message, .. }, _) if surge > 0 => {
                Some(format!("surge {surge} lowered to 0: {message}"))
            }
            _ => None,
        }
    }

    fn pulling(&self, progressed_at: Option<Timestamp>) -> String {
        let last = progressed_at.map(|at| format!(", last progress {} ago", self.age(at)));
        format!(
            "images of the new pods are being pulled{}",
            last.unwrap_or_default()
        )
    }

    /// True if a rollout of the strategy Recreate has ended its old sets and their pods are still there.
    fn waits_for_old_pods(&self) -> bool {
        let is_recreate = self.input.spec.strategy.strategy_type() == StrategyType::Recreate;
        let has_old = [self.old_pods.kept, self.old_pods.ending] != [&[] as &[&str]; 2];
        is_recreate && self.new_counts().active == 0 && has_old
    }

    /// Returns how many new pods are there, and for how long it has been so many.
    fn new_pods(&self) -> Option<String> {
        let (counts, spec) = (self.new_counts(), self.input.spec);
        let word = match spec.min_ready_seconds {
            0 => "ready",
            _ => "available",
        };
        let deadline = spec.progress_deadline_seconds;
        let time = match self.progressing_for() {
            Some(age) if deadline != NO_DEADLINE => format!(" for {age} of {deadline} s"),
            Some(age) => format!(" for {age}"),
            None => String::new(),
        };
        Some(format!(
            "{} of {} new pods {word}{time}",
            counts.available, spec.replicas
        ))
    }

    fn progressing_for(&self) -> Option<String> {
        let condition = self.state.status.condition(PROGRESSING)?;
        Some(self.age(condition.last_update_time))
    }

    fn since(&self, reason: &str) -> Option<String> {
        let is_it = self.state.status.reason(PROGRESSING) == reason;
        self.progressing_for().filter(|_| is_it)
    }

    fn age(&self, since: Timestamp) -> String {
        let age = self.input.now.duration_since(since);
        let age = Duration::try_from(age).unwrap_or_default();
        format!("{} s", age.as_secs())
    }
}

/// Returns a part of the sentence about some old pods; None if there are none.
fn pods_that(pods: &[&str], one: &str, several: &str) -> Option<String> {
    let named = pods.iter().take(MOST_NAMES).copied();
    let names = named.collect::<Vec<&str>>().join(", ");
    match pods.len() {
        0 => None,
        1 => Some(format!("old pod {names} {one}")),
        number if number <= MOST_NAMES => Some(format!("old pods {names} {several}")),
        number => Some(format!(
            "old pods {names} and {} more {several}",
            number - MOST_NAMES
        )),
    }
}

/// Answer of `rollout status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutStatus {
    /// Kubectl's line, without its line break.
    pub text: String,
    /// True if the rollout has ended well. `--watch` ends then.
    pub is_done: bool,
}

/// The reason why `rollout status` ends with an error.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RolloutError {
    /// The rollout made no progress until its deadline.
    #[error("deployment \"{0}\" exceeded its progress deadline")]
    DeadlineExceeded(String),
    /// The rollout made no progress until its deadline and was rolled back (workloads 3.25).
    #[error(
        "deployment \"{name}\" exceeded its progress deadline with revision {bad} and was rolled back to revision {to}"
    )]
    RolledBack {
        /// Name of the Deployment.
        name: String,
        /// Revision that made no progress.
        bad: i64,
        /// Revision that is in force.
        to: i64,
    },
    /// The revision that was asked for is not the one that is rolled out.
    #[error("desired revision ({wanted}) is different from the running revision ({running})")]
    OtherRevision {
        /// Revision that was asked for.
        wanted: i64,
        /// Revision that is rolled out.
        running: i64,
    },
}

/// Returns the answer of `rollout status` for a Deployment with `replicas` (kubectl
/// polymorphichelpers/rollout_status.go). `revision` is the revision that was asked for; 0 means any.
///
/// # Errors
///
/// Returns an error if the rollout has failed, or another revision is rolled out.
pub fn rollout_status(
    name: &str,
    replicas: i32,
    generation: i64,
    state: &DeploymentState,
    revision: i64,
) -> Result<RolloutStatus, RolloutError> {
    if revision > 0 && revision != state.revision {
        return Err(RolloutError::OtherRevision {
            wanted: revision,
            running: state.revision,
        });
    }
    if generation > state.status.observed_generation {
        return Ok(going_on(
            "Waiting for deployment spec update to be observed...".into(),
        ));
    }
    if let Some((bad, undo)) = state.overrides.bad().zip(state.overrides.undone()) {
        return Err(RolloutError::RolledBack {
            name: name.into(),
            bad: bad.revision,
            to: undo.revision,
        });
    }
    if state.status.reason(PROGRESSING) == "ProgressDeadlineExceeded" {
        return Err(RolloutError::DeadlineExceeded(name.into()));
    }
    Ok(rollout_line(name, replicas, state))
}

fn rollout_line(name: &str, replicas: i32, state: &DeploymentState) -> RolloutStatus {
    let status = &state.status;
    let (updated, available) = (status.updated_replicas, status.available_replicas);
    let old = status.replicas.saturating_sub(updated);
    let waiting = |what: String| {
        going_on(format!(
            "Waiting for deployment \"{name}\" rollout to finish: {what}..."
        ))
    };
    match () {
        () if updated < replicas => waiting(format!(
            "{updated} out of {replicas} new replicas have been updated"
        )),
        () if old > 0 => waiting(format!("{old} old replicas are pending termination")),
        () if available < updated => waiting(format!(
            "{available} of {updated} updated replicas are available"
        )),
        () => RolloutStatus {
            text: format!("deployment \"{name}\" successfully rolled out"),
            is_done: true,
        },
    }
}

fn going_on(text: String) -> RolloutStatus {
    RolloutStatus {
        text,
        is_done: false,
    }
}

#[cfg(test)]
mod tests;
