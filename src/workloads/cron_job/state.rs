//! What is kept on disk of a CronJob (workloads 7.16, 7.17, 9.3, 9.5).
//!
//! Invariants: all times are those of the wall clock, except the time of the last success, which is that of its Job.
//! A lost state is rebuilt from the Jobs, and makes no run up that nobody knows of.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::clock::is_on_line;
use super::{ChildJob, NewJob};

/// The record of a CronJob that is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobState {
    /// Time at which the file was first seen by a clock that was trusted, in place of a creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<Timestamp>,
    /// `status.lastScheduleTime`: the scheduled time of the last Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Timestamp>,
    /// `status.lastSuccessfulTime`: the end of the last Job that was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Timestamp>,
    /// `status.active`: names of the Jobs that run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<String>,
    /// Time after which scheduled times count, where the clock has shown that `lastScheduleTime` and `firstSeen` are
    /// from another line of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_changed: Option<Timestamp>,
    /// The start whose Job has not been seen yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting: Option<JobStart>,
}

/// A start of a Job that is written down before the Job exists, with what is restored if it never comes to exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobStart {
    /// Name of the Job.
    pub job: String,
    /// `lastScheduleTime` before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Timestamp>,
    /// `clockChanged` before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_changed: Option<Timestamp>,
}

impl CronJobState {
    /// Returns the time after which scheduled times count (workloads 7.8).
    pub(super) fn counts_from(&self, now: Timestamp) -> Timestamp {
        let written = self.last_schedule_time.or(self.first_seen);
        self.clock_changed.or(written).unwrap_or(now)
    }

    /// Writes a start down. A Job that exists already needs no second start, and one that has ended does not run again.
    pub(super) fn start(&mut self, job: &NewJob, existing: Option<&ChildJob>) {
        self.starting = existing.is_none().then(|| JobStart {
            job: job.name.clone(),
            last_schedule_time: self.last_schedule_time,
            clock_changed: self.clock_changed,
        });
        if existing.is_none_or(|existing| existing.end.is_none()) {
            self.active.push(job.name.clone());
        }
        self.last_schedule_time = Some(job.scheduled_at);
        self.clock_changed = None;
    }

    /// Takes the start back unless its Job exists.
    pub(super) fn take_back_start(&mut self, exists: impl FnOnce(&str) -> bool) {
        let Some(start) = self.starting.take() else {
            return;
        };
        if !exists(&start.job) {
            self.active.retain(|name| *name != start.job);
            self.last_schedule_time = start.last_schedule_time;
            self.clock_changed = start.clock_changed;
        }
    }

    /// Brings the times in line with a clock that is trusted.
    pub(super) fn settle(&mut self, now: Timestamp, jobs: &[ChildJob]) {
        if self.last_schedule_time.is_none() {
            self.last_schedule_time = newest_scheduled(now, jobs);
        }
        let first_seen = *self.first_seen.get_or_insert(now);
        let written = self.last_schedule_time.unwrap_or(first_seen);
        if is_on_line(written, now) {
            self.clock_changed = None;
        } else if !self.clock_changed.is_some_and(|time| is_on_line(time, now)) {
            self.clock_changed = Some(now);
        }
    }
}

/// Returns the newest scheduled time of the Jobs, for a state that was lost (workloads 9.5).
fn newest_scheduled(now: Timestamp, jobs: &[ChildJob]) -> Option<Timestamp> {
    let ours = jobs.iter().filter(|job| job.is_ours);
    let times = ours.filter_map(|job| job.scheduled_at);
    times.filter(|time| *time <= now).max()
}
