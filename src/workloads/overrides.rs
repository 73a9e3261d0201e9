//! Overrides: what a person changed with `scale`, `pause`, `resume`, `undo` and `restart`, kept beside the object and
//! laid over its file before a controller sees it (workloads 8.4, 8.5).
//!
//! Invariants: pure. Files win: an override goes when the file changes the field that it overrides, and stays when the
//! file changes something else. A rollback that a controller began by itself is an undo as well, so a restart of the
//! daemon keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::names::fnv1a_32;
use super::revisions::is_copied;
use crate::api::raw_object::RawObject;
use crate::api::workload::Workload;

/// Annotation that `restart` puts into the template.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation that says what happens to a rollout that makes no progress until its deadline (workloads 3.25).
pub const ON_PROGRESS_DEADLINE: &str = "podprobe.io/on-progress-deadline";

/// The overrides of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// The file's fields that can be overridden, as they were last seen. None until [`Overrides::follow`] saw a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FileMarks>,
    /// Number of pods in the place of the file's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Override<i32>>,
    /// The value of `spec.paused` in the place of the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<Override<bool>>,
    /// Time of the last restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    restarted_at: Option<Timestamp>,
    /// The earlier revision whose template is in the place of the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<Undo>,
}

/// A value in the place of the file's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Override<T> {
    value: T,
    since: Timestamp,
}

/// The file's fields that can be overridden.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileMarks {
    /// Hash of the template as it is written. Defaults do not count, so an upgrade of podprobe changes nothing.
    template: String,
    replicas: Option<i64>,
    paused: bool,
}

/// An earlier revision whose template is in the place of the file's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undo {
    /// Number that the revision had.
    pub revision: i64,
    /// Template of the revision, as it was written.
    #[serde(deserialize_with = "read_raw")]
    pub template: Arc<RawObject>,
    /// Annotations of the revision, which take the place of the object's own as `kubectl rollout undo` does it; None
    /// keeps the object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Time at which the undo began.
    pub since: Timestamp,
    /// The revision that made no progress, if a controller began the undo by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<BadRevision>,
}

/// A revision that made no progress until its deadline. It is not tried again until the file changes its template, or a
/// person asks for it (workloads 3.25).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BadRevision {
    /// Number of the revision.
    pub revision: i64,
    /// Name of the set.
    pub set: String,
    /// `pod-template-hash` of the set.
    pub hash: String,
}

/// A kind of override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideKind {
    /// The number of pods.
    Scale,
    /// Paused or not paused.
    Pause,
    /// A restart.
    Restart,
    /// The template of an earlier revision.
    Undo,
}

impl OverrideKind {
    /// Returns the field of the object that is overridden.
    pub fn field(self) -> &'static str {
        match self {
            Self::Scale => "spec.replicas",
            Self::Pause => "spec.paused",
            Self::Restart | Self::Undo => "spec.template",
        }
    }
}

/// The reason why a verb does nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum VerbError {
    /// The number of pods is negative.
    #[error("replicas must not be negative: {0}")]
    Negative(i32),
    /// Kubectl's words for a second pause.
    #[error("is already paused")]
    AlreadyPaused,
    /// Kubectl's words for a second resume.
    #[error("is not paused")]
    NotPaused,
    /// Kubectl's words for the restart of a paused object.
    #[error("can't restart paused deployment (run rollout resume first)")]
    RestartPaused,
    /// Kubectl's words for the undo of a paused object.
    #[error(
        "you cannot rollback a paused deployment; resume it first with 'podprobe rollout resume' and try again"
    )]
    UndoPaused,
    /// Kubectl's words for an unknown revision.
    #[error("unable to find specified revision {0} in history")]
    UnknownRevision(i64),
    /// Kubectl's words for an undo of the only revision.
    #[error("no rollout history found for deployment \"{0}\"")]
    NoHistory(String),
    /// Kubectl's words for an undo that changes nothing.
    #[error("skipped rollback (current template already matches revision {0})")]
    SameTemplate(i64),
    /// Nothing was rolled back.
    #[error("nothing was rolled back, so there is nothing to try again")]
    NothingToRetry,
}

impl Overrides {
    /// Looks at the object's file, and drops the overrides whose field the file has changed. Returns what was dropped.
    /// Must be called before [`effective`] whenever the file may have changed.
    pub fn follow(&mut self, file: &Workload) -> Vec<OverrideKind> {
        let marks = FileMarks::of(file);
        let mut dropped = Vec::new();
        if let Some(before) = self.file.as_ref() {
            if before.replicas != marks.replicas && self.replicas.take().is_some() {
                dropped.push(OverrideKind::Scale);
            }
            if before.paused != marks.paused && self.paused.take().is_some() {
                dropped.push(OverrideKind::Pause);
            }
            if before.template != marks.template {
                dropped.extend(self.drop_template());
            }
        }
        self.file = Some(marks);
        dropped
    }

    /// Notes what the file has, if that is not known yet. Otherwise the first edit of the file would drop nothing.
    pub fn know(&mut self, file: &Workload) {
        if self.file.is_none() {
            self.file = Some(FileMarks::of(file));
        }
    }

    fn drop_template(&mut self) -> Vec<OverrideKind> {
        let restart = self.restarted_at.take().map(|_| OverrideKind::Restart);
        let undo = self.undo.take().map(|_| OverrideKind::Undo);
        restart.into_iter().chain(undo).collect()
    }

    /// Sets the number of pods (`scale`). The file's own number needs no override.
    ///
    /// # Errors
    ///
    /// Returns an error for a negative number.
    pub fn scale(&mut self, replicas: i32, now: Timestamp) -> Result<(), VerbError> {
        if replicas < 0 {
            return Err(VerbError::Negative(replicas));
        }
        let file = self.file.as_ref().and_then(|it| it.replicas);
        let is_files = file == Some(i64::from(replicas));
        self.replicas = (!is_files).then_some(Override {
            value: replicas,
            since: now,
        });
        Ok(())
    }

    /// Pauses or resumes rollouts (`rollout pause`, `rollout resume`). `is_paused` is the value that is in force now.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing would change.
    pub fn pause(&mut self, pause: bool, is_paused: bool, now: Timestamp) -> Result<(), VerbError> {
        match (pause, is_paused) {
            (true, true) => return Err(VerbError::AlreadyPaused),
            (false, false) => return Err(VerbError::NotPaused),
            _ => {}
        }
        let file = self.file.as_ref().is_some_and(|it| it.paused);
        self.paused = (pause != file).then_some(Override {
            value: pause,
            since: now,
        });
        Ok(())
    }

    /// Restarts the pods by a rollout (`rollout restart`). A template that an undo put into force is restarted, not the
    /// file's.
    ///
    /// # Errors
    ///
    /// Returns an error if the object is paused.
    pub fn restart(&mut self, is_paused: bool, now: Timestamp) -> Result<(), VerbError> {
        if is_paused {
            return Err(VerbError::RestartPaused);
        }
        self.restarted_at = Some(now);
        Ok(())
    }

    /// Puts the template of an earlier revision into force. A restart from before is part of the revision, or gone.
    pub fn undo(&mut self, undo: Undo) {
        self.restarted_at = None;
        // The file's own template needs no override: the file is in force again.
        let is_files = undo.bad.is_none()
            && self.file.as_ref().map(|it| it.template.as_str())
                == Some(fingerprint(&undo.template).as_str());
        self.undo = (!is_files).then_some(undo);
    }

    /// Puts the file's template into force again after a rollback that a controller began by itself. Returns false if
    /// there was none.
    pub(super) fn retry(&mut self) -> bool {
        let is_automatic = self.bad().is_some();
        if is_automatic {
            self.drop_template();
        }
        is_automatic
    }

    /// Returns the undo that is in force.
    pub fn undone(&self) -> Option<&Undo> {
        self.undo.as_ref()
    }

    /// Returns the revision that made no progress and was rolled back without a person.
    pub fn bad(&self) -> Option<&BadRevision> {
        self.undo.as_ref()?.bad.as_ref()
    }

    /// Returns the number of pods in the place of the file's.
    pub fn replicas(&self) -> Option<i32> {
        self.replicas.as_ref().map(|it| it.value)
    }

    /// Returns the value of `spec.paused` in the place of the file's.
    pub fn paused(&self) -> Option<bool> {
        self.paused.as_ref().map(|it| it.value)
    }

    /// Returns a line for each override, as `describe` shows it.
    pub fn lines(&self) -> Vec<String> {
        let replicas = self.replicas.as_ref().map(|it| {
            let file = self.file.as_ref().and_then(|file| file.replicas);
            let file = file.map_or(String::new(), |file| format!(", the file has {file}"));
            format!("replicas {}{file} (scale, {:.0})", it.value, it.since)
        });
        let paused = self.paused.as_ref().map(|it| {
            let verb = if it.value { "pause" } else { "resume" };
            format!("paused {} (rollout {verb}, {:.0})", it.value, it.since)
        });
        let undo = self.undo.as_ref().map(Undo::line);
        let restart = self
            .restarted_at
            .map(|at| format!("restarted (rollout restart, {at:.0})"));
        [replicas, paused, undo, restart]
            .into_iter()
            .flatten()
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.replicas.is_none()
            && self.paused.is_none()
            && self.restarted_at.is_none()
            && self.undo.is_none()
    }
}

impl Undo {
    fn line(&self) -> String {
        let why = match &self.bad {
            Some(bad) => format!("revision {} made no progress", bad.revision),
            None => "rollout undo".to_owned(),
        };
        format!(
            "template of revision {} ({why}, {:.0})",
            self.revision, self.since
        )
    }
}

impl FileMarks {
    fn of(file: &Workload) -> Self {
        let field = |path| file.raw.at(path);
        Self {
            template: fingerprint(&file.template().written),
            replicas: field("/spec/replicas").and_then(|it| it.as_i64()),
            paused: field("/spec/paused")
                .and_then(|it| it.as_bool())
                .unwrap_or_default(),
        }
    }
}

/// Returns the object that a controller must act on: the file's, with the overrides laid over it. None if there are no
/// overrides. The object must be decoded again, which fills in its defaults.
pub fn effective(file: &Workload, overrides: &Overrides) -> Option<RawObject> {
    if overrides.is_empty() {
        return None;
    }
    let mut object = map_of(file.raw.value());
    let mut spec = take_member(&mut object, "spec");
    if let Some(replicas) = overrides.replicas() {
        spec.insert("replicas".into(), replicas.into());
    }
    if let Some(paused) = overrides.paused() {
        spec.insert("paused".into(), paused.into());
    }
    if overrides.undo.is_some() || overrides.restarted_at.is_some() {
        spec.insert("template".into(), effective_template(file, overrides));
    }
    object.insert("spec".into(), spec.into());
    if let Some(annotations) = overrides.undone().and_then(|it| it.annotations.as_ref()) {
        let annotations = annotations_after_undo(&file.metadata.annotations, annotations);
        let mut metadata = take_member(&mut object, "metadata");
        metadata.insert("annotations".into(), json!(annotations));
        object.insert("metadata".into(), metadata.into());
    }
    Some(RawObject::new(&object.into()))
}

/// Returns the template that is in force, as it was written: pods are made of the written text, and so are hashes.
fn effective_template(file: &Workload, overrides: &Overrides) -> Value {
    let mut template = match overrides.undone() {
        Some(undo) => map_of(undo.template.value()),
        None => map_of(file.template().written.value()),
    };
    if let Some(at) = overrides.restarted_at {
        let mut metadata = take_member(&mut template, "metadata");
        let mut annotations = take_member(&mut metadata, "annotations");
        annotations.insert(RESTARTED_AT.into(), format!("{at:.0}").into());
        metadata.insert("annotations".into(), annotations.into());
        template.insert("metadata".into(), metadata.into());
    }
    template.into()
}

/// Returns the annotations of an object after an undo: those of the revision, and those that belong to the object alone
/// (kubectl polymorphichelpers/rollback.go). What happens at the deadline is a setting of the object and stays.
fn annotations_after_undo(
    own: &BTreeMap<String, String>,
    revision: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let stays = |key: &str| !is_copied(key) || key == ON_PROGRESS_DEADLINE;
    let own = own.iter().filter(|(key, _)| stays(key));
    let others = revision.iter().filter(|(key, _)| !stays(key));
    let all = own.chain(others);
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns the members of an object; any other value has none.
fn map_of(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Takes the members of an object's member. The member keeps its place in the object.
fn take_member(object: &mut Map<String, Value>, key: &str) -> Map<String, Value> {
    map_of(object.get_mut(key).map(Value::take).unwrap_or_default())
}

/// Returns a hash of a written object in which the order of members does not count.
fn fingerprint(raw: &RawObject) -> String {
    let mut text = String::new();
    write_sorted(&raw.value(), &mut text);
    format!("{:08x}", fnv1a_32(text.bytes()))
}

fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (key, value) in sorted {
                out.push_str(&json!(key).to_string());
                write_sorted(value, out);
            }
            out.push('}');
        }
        Value::Array(entries) => {
            out.push('[');
            entries.iter().for_each(|entry| write_sorted(entry, out));
            out.push(']');
        }
        other => {
            out.push_str(&other.to_string());
            out.push(',');
        }
    }
}

/// Reads a raw object, for the states of controllers.
pub(super) fn read_raw<'de, D: Deserializer<'de>>(reader: D) -> Result<Arc<RawObject>, D::Error> {
    Value::deserialize(reader).map(|value| Arc::new(RawObject::new(&value)))
}

#[cfg(test)]
mod tests;
