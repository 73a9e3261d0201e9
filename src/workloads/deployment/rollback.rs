//! Ways back to an earlier revision: by `undo`, by annotation, and by the Deployment itself (deployment/rollback.go,
//! kubectl polymorphichelpers/rollback.go; workloads 3.18, 3.25).
//!
//! Invariants: a way back is an undo among the overrides, and the next step rolls it out like any template. A
//! Deployment goes back by itself only once for each template of its file, and only to a set that was complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::DeploymentInput;
use super::conditions::TIMED_OUT;
use super::state::{DeploymentState, SetRecord};
use super::status::{DeploymentCondition, PROGRESSING, ROLLED_BACK};
use super::sync::Sync;
use crate::workloads::event::ControllerEvent;
use crate::workloads::overrides::{BadRevision, ON_PROGRESS_DEADLINE, Undo, VerbError};
use crate::workloads::revisions::ROLLBACK_TO;

/// The reaction to a rollout that makes no progress until its deadline (workloads 3.25).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadline {
    /// The condition Progressing says so.
    #[default]
    Report,
    /// The Deployment goes back to the newest revision that was complete.
    Rollback,
}

impl OnDeadline {
    /// Returns the value of this word of the annotation or the configuration.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "report" => Some(Self::Report),
            "rollback" => Some(Self::Rollback),
            _ => None,
        }
    }

    /// Returns what the annotations of a Deployment say, or `default`. An unknown word is no answer.
    pub fn of(annotations: &BTreeMap<String, String>, default: Self) -> Self {
        let word = annotations.get(ON_PROGRESS_DEADLINE);
        word.and_then(|word| Self::named(word)).unwrap_or(default)
    }
}

/// The revision to which `rollout undo` goes back.
#[derive(Clone, Debug, PartialEq)]
pub struct UndoTarget {
    /// Name of the revision's set.
    pub set: String,
    /// The undo for [`crate::workloads::overrides::Overrides::undo`].
    pub undo: Undo,
}

/// Finds the revision to which `rollout undo` goes back; 0 means the revision before. `current` is the name of the set
/// whose template is in force.
///
/// # Errors
///
/// Returns an error with kubectl's words if there is no such revision, the Deployment is paused, or the revision has
/// the template that is in force.
pub fn undo_target(
    name: &str,
    state: &DeploymentState,
    is_paused: bool,
    current: Option<&str>,
    to_revision: i64,
    now: jiff::Timestamp,
) -> Result<UndoTarget, VerbError> {
    let set = match to_revision {
        0 => state
            .previous()
            .ok_or_else(|| VerbError::NoHistory(name.into()))?,
        number => {
            let set = state.revision(number).filter(|_| number > 0);
            set.ok_or(VerbError::UnknownRevision(number))?
        }
    };
    if is_paused {
        return Err(VerbError::UndoPaused);
    }
    if current == Some(set.name.as_str()) {
        return Err(VerbError::SameTemplate(to_revision));
    }
    Ok(UndoTarget {
        set: set.name.clone(),
        undo: set.undo(now),
    })
}

/// True if a rollout is late, the Deployment wants to go back then, and has not done so yet.
pub fn wants_way_back(input: &DeploymentInput, state: &DeploymentState) -> bool {
    let is_late = state.status.reason(PROGRESSING) == TIMED_OUT;
    let wanted = OnDeadline::of(input.annotations, input.on_deadline);
    is_late && wanted == OnDeadline::Rollback && state.overrides.bad().is_none()
}

impl DeploymentState {
    /// Returns the set with the second highest revision number.
    fn previous(&self) -> Option<&SetRecord> {
        match self.last_revision() {
            0 => None,
            number => self.revision(number),
        }
    }
}

impl SetRecord {
    fn undo(&self, now: jiff::Timestamp) -> Undo {
        Undo {
            revision: self.revision,
            template: Arc::clone(&self.template),
            annotations: Some(self.annotations.clone()),
            since: now,
            bad: None,
        }
    }

    fn bad_revision(&self) -> BadRevision {
        BadRevision {
            revision: self.revision,
            set: self.name.clone(),
            hash: self.hash.clone(),
        }
    }
}

impl Sync<'_> {
    /// Forgets what belongs to a rollback that is over: a person or the file has put another template into force.
    pub(super) fn follow_rollbacks(&mut self) {
        if self.state.overrides.bad().is_none() {
            self.state.status.remove(ROLLED_BACK);
        }
        if !self.input.annotations.contains_key(ROLLBACK_TO) {
            self.state.obeyed_rollback = None;
        }
    }

    /// Returns the revision that the annotation asks for, unless that was obeyed. Upstream removes the annotation; here
    /// it stays in the file (getRollbackTo).
    pub(super) fn wanted_rollback(&self) -> Option<i64> {
        let text = self.input.annotations.get(ROLLBACK_TO)?;
        let is_new = self.state.obeyed_rollback.as_ref() != Some(text);
        text.parse().ok().filter(|_| is_new)
    }

    /// Goes back to the revision that the annotation asks for.
    pub(super) fn roll_back_by_annotation(&mut self) {
        if self.new.is_none() {
            let size = self.size_to_grow_to(0);
            self.create_new_set(size);
        }
        let event = self.obey_annotation(self.wanted_rollback().unwrap_or_default());
        self.events.push(event);
        self.state.obeyed_rollback = self.input.annotations.get(ROLLBACK_TO).cloned();
    }

    fn obey_annotation(&mut self, wanted: i64) -> ControllerEvent {
        const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
        let revision = match wanted {
            0 => self.state.last_revision(),
            wanted => wanted,
        };
        if revision == 0 {
            return ControllerEvent::warning(NOT_FOUND, "Unable to find last revision.");
        }
        let name = self.input.name;
        let current = self.new_set().map(|set| set.name.clone());
        match self.state.revision(revision) {
            None => {
                ControllerEvent::warning(NOT_FOUND, "Unable to find the revision to rollback to.")
            }
            Some(set) if Some(&set.name) == current.as_ref() => ControllerEvent::warning(
                "DeploymentRollbackTemplateUnchanged",
                format!(
                    "The rollback revision contains the same template as current deployment \"{name}\""
                ),
            ),
            Some(set) => {
                let (undo, set) = (set.undo(self.input.now), set.name.clone());
                self.go_back(set, undo);
                let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
                ControllerEvent::normal("DeploymentRollback", message)
            }
        }
    }

    fn go_back(&mut self, set: String, undo: Undo) {
        self.state.overrides.undo(undo);
        self.rolled_back_to = Some(set);
    }

    /// Goes back to the newest complete revision if the rollout is late, the Deployment wants that, and it has not gone
    /// back by itself before (workloads 3.25).
    pub(super) fn roll_back_when_late(&mut self) {
        let Some((bad, undo, to)) = self.way_back_when_late() else {
            return;
        };
        let message = format!(
            "Revision {} (ReplicaSet \"{}\") made no progress within {} s and was rolled back to revision {} (ReplicaSet \"{to}\"). It is not tried again until its file has another template, or 'podprobe rollout retry' asks for it",
            bad.revision, bad.set, self.input.spec.progress_deadline_seconds, undo.revision,
        );
        let now = self.input.now;
        // The old revision has a deadline of its own.
        self.state.forget_progress();
        let condition = DeploymentCondition::new(ROLLED_BACK, "True", TIMED_OUT, &message, now);
        self.state.status.replace(condition);
        self.events
            .push(ControllerEvent::warning("DeploymentRollback", message));
        self.go_back(
            to,
            Undo {
                bad: Some(bad),
                ..undo
            },
        );
    }

    fn way_back_when_late(&self) -> Option<(BadRevision, Undo, String)> {
        let new = self.new_set()?;
        if !wants_way_back(self.input, &self.state) {
            return None;
        }
        let to = self.state.set(self.state.last_complete.as_deref()?)?;
        let is_other = to.name != new.name;
        is_other.then(|| (new.bad_revision(), to.undo(self.input.now), to.name.clone()))
    }
}
