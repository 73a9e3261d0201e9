//! Changes of workloads that verbs ask for.
//!
//! Invariants: pure. A change is an override of the file, which is kept beside it and shown, until the file itself changes
//! what was overridden (workloads 8.4). Files win.

use std::collections::BTreeMap;

use serde_json::Value;

use super::controller_revisions::{ControllerRevisions, Undo as RevisionUndo};
use super::deployment::{DeploymentState, undo_target};
use super::overrides::{Overrides, Undo, VerbError};
use super::state::{ControllerState, CronJobRecord, WorkloadState};
use super::step::made_job;
use super::template;
use super::view::{Change, ChangeError, ChangeRequest};
use super::world::{Wanted, World};
use crate::api::raw_object::RawObject;
use crate::api::workload::{WorkloadKey, WorkloadKind, WorkloadSpec};

/// Annotation of a Job that a person has made from a CronJob.
const INSTANTIATE: (&str, &str) = ("cronjob.kubernetes.io/instantiate", "manual");

/// The results of a change.
#[derive(Debug)]
pub struct Made {
    /// The state to write.
    pub state: WorkloadState,
    /// kubectl's word for what was done.
    pub done: String,
}

/// Decides what a change leads to.
///
/// # Errors
/// Returns [`ChangeError`] if there is no such workload, or if it does not allow the change.
pub fn change(
    world: &World<'_>,
    wanted: Option<&Wanted>,
    state: Option<&WorkloadState>,
    asked: &ChangeRequest,
) -> Result<Made, ChangeError> {
    let key = &asked.workload;
    let (Some(wanted), Some(state)) = (wanted, state) else {
        return Err(not_found(key));
    };
    let mut state = state.follow(&wanted.workload);
    let done = Changing { world, wanted, key }.apply(&mut state, &asked.change)?;
    Ok(Made { state, done })
}

fn not_found(key: &WorkloadKey) -> ChangeError {
    ChangeError::NotFound {
        kind: format!("{}s", key.kind.resource()),
        group: key.kind.group().to_owned(),
        name: key.name.clone(),
    }
}

fn refused(why: impl ToString) -> ChangeError {
    ChangeError::Refused(why.to_string())
}

impl From<VerbError> for ChangeError {
    fn from(why: VerbError) -> Self {
        refused(why)
    }
}

/// A change of one workload under way.
struct Changing<'a> {
    world: &'a World<'a>,
    wanted: &'a Wanted,
    key: &'a WorkloadKey,
}

impl Changing<'_> {
    fn apply(&self, state: &mut WorkloadState, change: &Change) -> Result<String, ChangeError> {
        match change {
            Change::Scale {
                replicas,
                current_replicas,
            } => self.scale(state, *replicas, *current_replicas),
            Change::Pause => self.pause(state, true),
            Change::Resume => self.pause(state, false),
            Change::Restart => self.restart(state),
            Change::Undo { to_revision } => self.undo(state, to_revision.unwrap_or(0)),
            Change::Retry => self.retry(state),
            Change::Rerun => self.rerun(state),
            Change::CreateJob { name } => self.create_job(state, name),
            Change::DeleteJob { name } => self.delete_job(state, name),
        }
    }

    fn overrides<'s>(
        &self,
        state: &'s mut WorkloadState,
        verb: &str,
    ) -> Result<&'s mut Overrides, ChangeError> {
        let kind = self.key.kind.resource();
        let error = || refused(format!("{kind}s have no {verb}"));
        state.overrides_mut().ok_or_else(error)
    }

    /// Returns the number of pods that the workload has now, with what was overridden.
    fn replicas(&self, overrides: &Overrides) -> Option<i32> {
        let written = match &self.wanted.workload.spec {
            WorkloadSpec::Deployment(spec) => spec.replicas,
            WorkloadSpec::ReplicaSet(spec) | WorkloadSpec::ReplicationController(spec) => {
                spec.replicas
            }
            WorkloadSpec::StatefulSet(spec) => spec.replicas,
            _ => return None,
        };
        Some(overrides.replicas().unwrap_or(written))
    }

    fn scale(
        &self,
        state: &mut WorkloadState,
        replicas: i32,
        current: Option<i32>,
    ) -> Result<String, ChangeError> {
        let now = self.world.wall.now;
        let overrides = self.overrides(state, "number of replicas")?;
        let Some(is) = self.replicas(overrides) else {
            let kind = self.key.kind.resource();
            return Err(refused(format!("{kind}s have no number of replicas")));
        };
        if let Some(current) = current.filter(|current| *current != is) {
            return Err(refused(format!(
                "Expected replicas to be {current}, was {is}"
            )));
        }
        overrides.scale(replicas, now)?;
        Ok("scaled".into())
    }

    fn only_deployments(&self, verb: &str) -> Result<(), ChangeError> {
        match self.key.kind {
            WorkloadKind::Deployment => Ok(()),
            kind => Err(refused(format!(
                "{} {verb} is not supported",
                kind.resource()
            ))),
        }
    }

    fn is_paused(&self, overrides: &Overrides) -> bool {
        let WorkloadSpec::Deployment(spec) = &self.wanted.workload.spec else {
            return false;
        };
        overrides.paused().unwrap_or(spec.paused)
    }

    fn pause(&self, state: &mut WorkloadState, pause: bool) -> Result<String, ChangeError> {
        self.only_deployments(if pause { "pausing" } else { "resuming" })?;
        let now = self.world.wall.now;
        let overrides = self.overrides(state, "pause")?;
        let is_paused = self.is_paused(overrides);
        overrides.pause(pause, is_paused, now)?;
        Ok(if pause { "paused" } else { "resumed" }.into())
    }

    fn restart(&self, state: &mut WorkloadState) -> Result<String, ChangeError> {
        let kinds = [
            WorkloadKind::Deployment,
            WorkloadKind::DaemonSet,
            WorkloadKind::StatefulSet,
        ];
        if !kinds.contains(&self.key.kind) {
            let kind = self.key.kind.resource();
            return Err(refused(format!("{kind} restarting is not supported")));
        }
        let now = self.world.wall.now;
        let overrides = self.overrides(state, "restart")?;
        let is_paused = self.is_paused(overrides);
        overrides.restart(is_paused, now)?;
        Ok("restarted".into())
    }

    fn undo(&self, state: &mut WorkloadState, revision: i64) -> Result<String, ChangeError> {
        let (wall, wanted) = (self.world.wall.now, self.wanted);
        match &mut state.controller {
            ControllerState::Deployment(of) => {
                let is_paused = self.is_paused(&of.overrides);
                let current = current_set(of);
                let target = undo_target(
                    &self.key.name,
                    of,
                    is_paused,
                    current.as_deref(),
                    revision,
                    wall,
                );
                match target {
                    Ok(target) => of.overrides.undo(target.undo),
                    Err(why @ VerbError::SameTemplate(_)) => return Ok(why.to_string()),
                    Err(why) => return Err(why.into()),
                }
                Ok("rolled back".into())
            }
            ControllerState::DaemonSet(of) => {
                let undone = undo_revision(&of.state.revisions, revision, wall)?;
                Ok(undone.apply(&mut of.overrides))
            }
            ControllerState::StatefulSet(of) => {
                let undone = undo_revision(&of.state.revisions, revision, wall)?;
                Ok(undone.apply(&mut of.overrides))
            }
            _ => {
                let kind = wanted.workload.kind();
                Err(refused(format!(
                    "no rollbacker has been implemented for {kind:?}"
                )))
            }
        }
    }

    fn retry(&self, state: &mut WorkloadState) -> Result<String, ChangeError> {
        match &mut state.controller {
            ControllerState::Deployment(of) => of.retry()?,
            _ => return Err(refused("only a Deployment goes back by itself")),
        }
        Ok("is tried again".into())
    }

    fn rerun(&self, state: &mut WorkloadState) -> Result<String, ChangeError> {
        let ControllerState::Job(of) = &mut state.controller else {
            return Err(refused("only a Job runs again"));
        };
        if !of.is_held && !of.state.is_finished() && !of.state.is_removed {
            return Err(refused("the job has not ended; delete it first, or wait"));
        }
        // The pods of the earlier run are settled: they neither count nor hold the new run up.
        let settled = std::mem::take(&mut of.state.settled);
        *of = Default::default();
        of.state.settled = settled;
        state.generation = state.generation.saturating_add(1);
        Ok("runs again".into())
    }

    fn create_job(&self, state: &mut WorkloadState, name: &str) -> Result<String, ChangeError> {
        let of = self.cron_job(state)?;
        if of.jobs.iter().any(|job| job.name() == name) {
            return Err(refused(format!("jobs.batch {name:?} already exists")));
        }
        of.jobs.push(made_job(
            self.wanted,
            self.world.wall.now,
            name,
            INSTANTIATE,
        ));
        Ok("created".into())
    }

    fn delete_job(&self, state: &mut WorkloadState, name: &str) -> Result<String, ChangeError> {
        let of = self.cron_job(state)?;
        let job = of.jobs.iter_mut().find(|job| job.name() == name);
        let Some(job) = job else {
            return Err(ChangeError::NotFound {
                kind: "jobs".into(),
                group: "batch".into(),
                name: name.to_owned(),
            });
        };
        job.is_deleted = true;
        Ok("deleted".into())
    }

    fn cron_job<'s>(
        &self,
        state: &'s mut WorkloadState,
    ) -> Result<&'s mut CronJobRecord, ChangeError> {
        match &mut state.controller {
            ControllerState::CronJob(of) => Ok(of),
            _ => Err(refused("only a CronJob has jobs")),
        }
    }
}

/// Returns the name of the set with the highest revision: its template is in force.
fn current_set(of: &DeploymentState) -> Option<String> {
    let newest = of.sets.iter().max_by_key(|set| set.revision);
    newest.map(|set| set.name.clone())
}

/// The result of an undo of a StatefulSet or DaemonSet.
enum Undone {
    Skipped(String),
    To(Undo),
}

impl Undone {
    fn apply(self, overrides: &mut Overrides) -> String {
        match self {
            Self::Skipped(text) => text,
            Self::To(undo) => {
                overrides.undo(undo);
                "rolled back".into()
            }
        }
    }
}

fn undo_revision(
    revisions: &ControllerRevisions,
    revision: i64,
    since: jiff::Timestamp,
) -> Result<Undone, ChangeError> {
    let newest = revisions
        .newest()
        .map(|it| it.template.clone())
        .unwrap_or_default();
    let newest: Value = serde_json::from_slice(newest.as_bytes()).unwrap_or_default();
    let canonical = template::canonical(&newest);
    let is_current = |text: &str| {
        let written = serde_json::from_slice::<Value>(text.as_bytes());
        written.is_ok_and(|written| template::canonical(&written) == canonical)
    };
    let undo = revisions.undo(revision, is_current).map_err(refused)?;
    let RevisionUndo::To(target) = undo else {
        return Ok(Undone::Skipped(undo.to_string()));
    };
    let template: Value = serde_json::from_slice(target.template.as_bytes()).map_err(refused)?;
    Ok(Undone::To(Undo {
        revision: target.revision,
        template: std::sync::Arc::new(RawObject::new(&template)),
        annotations: None::<BTreeMap<String, String>>,
        since,
        bad: None,
    }))
}
