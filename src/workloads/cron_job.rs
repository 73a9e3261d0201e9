//! The controller of CronJobs: which Jobs it starts and removes, and when it looks again (cronjob_controllerv2.go;
//! workloads 7.8 to 7.17).
//!
//! Invariants: pure. Each scheduled time has at most one Job, whose name is made of that time. The state names a
//! start before the Job exists, so a daemon that is killed in between starts it once, and not twice.

mod advice;
mod clock;
mod history;
mod missed;
mod state;

use jiff::Timestamp;

use crate::api::workload::{ConcurrencyPolicy, CronJobSpec};

use super::event::ControllerEvent;
use crate::base::cron::{self, Schedule, Zones, quote, rfc3339_in};

pub use advice::{CronJobAdvice, advice};
pub use clock::{PATIENCE, WallClock};
pub use missed::{LOOK_DELAY, MissedTimes, NoInterval, Recent, most_recent, next_look};
pub use state::{CronJobState, JobStart};

/// The annotation of a Job that has its scheduled time, in the zone of the CronJob (workloads 7.11).
pub const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

const FORBIDDEN: &str =
    "Not starting job because prior execution is running and concurrency policy is Forbid";

/// A Job that exists, as the controller of its CronJob sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildJob {
    /// `metadata.name`.
    pub name: String,
    /// True if the CronJob owns the Job. Another Job only takes its name away.
    pub is_ours: bool,
    /// The scheduled time, from the annotation [`SCHEDULED_TIMESTAMP`]; None for a Job that a person made from the
    /// CronJob.
    pub scheduled_at: Option<Timestamp>,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// How the Job ended; None while it has not.
    pub end: Option<JobEnd>,
    /// True if the Job is being removed and its pods may still terminate.
    pub is_deleted: bool,
}

/// How a Job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// The condition Complete, with `status.completionTime`.
    Complete(Option<Timestamp>),
    /// The condition Failed.
    Failed,
}

impl JobEnd {
    /// Returns the type of the condition.
    fn condition(self) -> &'static str {
        match self {
            Self::Complete(_) => "Complete",
            Self::Failed => "Failed",
        }
    }
}

/// The CronJob, its Jobs and its clock, as the controller looks at them.
#[derive(Clone, Copy, Debug)]
pub struct CronJobInput<'a> {
    /// `metadata.name` of the CronJob.
    pub name: &'a str,
    /// Spec of the CronJob.
    pub spec: &'a CronJobSpec,
    /// The state that the last look returned; the default if there was no look yet, or if the state was lost.
    pub state: &'a CronJobState,
    /// All Jobs of the CronJob, and all others of its namespace.
    pub jobs: &'a [ChildJob],
    /// The wall clock, which schedules follow.
    pub clock: WallClock,
    /// The time zones of the node.
    pub zones: &'a Zones,
    /// False if the pods of a new Job have no room beside those that terminate. `Replace` then waits for their end
    /// (workloads 7.12, 3.21).
    pub has_room_beside: bool,
}

/// The decision of a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CronJobStep {
    /// Names of the Jobs to remove, in this order.
    pub delete: Vec<String>,
    /// The Job to create, after the removals.
    pub create: Option<NewJob>,
    /// The new state.
    pub state: CronJobState,
    /// Events in their order. `SuccessfulDelete` and `SuccessfulCreate` are true after the actions.
    pub events: Vec<ControllerEvent>,
    /// Time on the wall clock at which to look again; None if only a change makes another look necessary.
    pub next_look: Option<Timestamp>,
}

/// A Job to create from the template of the CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// `metadata.name`.
    pub name: String,
    /// The scheduled time.
    pub scheduled_at: Timestamp,
    /// Value of the annotation [`SCHEDULED_TIMESTAMP`].
    pub scheduled_timestamp: String,
}

/// Returns the name of the Job of a scheduled time: that of the CronJob and the minutes since 1970 (workloads 7.11).
pub fn job_name(cron_job: &str, scheduled_at: Timestamp) -> String {
    format!("{cron_job}-{}", scheduled_at.as_second() / 60)
}

/// Decides what a CronJob does now.
///
/// The caller works in this order: it writes the state to the disk if it has changed, removes the Jobs of `delete`,
/// creates the Job of `create` durably, emits the events, and then steps again, since its Jobs have changed. It may
/// be killed at any point:
///
/// - before the state is written, nothing has happened, and the next look decides the same;
/// - after it, the state names the start ([`CronJobState::starting`]). The next look does not find the Job, takes the
///   start back, and decides anew by the rules of that time: it creates the same Job, or a later one, or none if the
///   deadline has passed or a person has suspended the CronJob;
/// - after the Job was created, the next look finds it, and clears `starting`. Until then no Job may leave the list
///   that the controller sees: a caller steps the CronJob before the removal of Jobs by their time to live.
///
/// The caller steps also when the file, a Job of the CronJob or the trust in the clock changes, when the wall clock
/// is set, and at `next_look`.
pub fn step(input: &CronJobInput) -> CronJobStep {
    let mut look = Look {
        input,
        step: CronJobStep {
            state: input.state.clone(),
            ..CronJobStep::default()
        },
    };
    look.take_back_start();
    look.clean_up_history();
    look.count_active();
    if input.clock.is_trusted {
        look.step.state.settle(input.clock.now, input.jobs);
    }
    look.step.next_look = look.start_what_is_due();
    look.step
}

/// A look under way.
struct Look<'a> {
    input: &'a CronJobInput<'a>,
    step: CronJobStep,
}

impl Look<'_> {
    fn children(&self) -> impl Iterator<Item = &ChildJob> {
        self.input.jobs.iter().filter(|job| job.is_ours)
    }

    fn normal(&mut self, reason: &'static str, message: impl Into<String>) {
        let event = ControllerEvent::normal(reason, message);
        self.step.events.push(event);
    }

    fn warning(&mut self, reason: &'static str, message: impl Into<String>) {
        let event = ControllerEvent::warning(reason, message);
        self.step.events.push(event);
    }

    /// Takes a start back whose Job was never created, because the daemon was killed or the creation failed.
    fn take_back_start(&mut self) {
        let jobs = self.input.jobs;
        self.step.state.take_back_start(|start| {
            let mut ours = jobs.iter().filter(|job| job.is_ours);
            ours.any(|job| job.name == start)
        });
    }

    fn clean_up_history(&mut self) {
        for name in history::surplus(self.input.spec, self.input.jobs) {
            self.delete(name);
        }
    }

    fn delete(&mut self, name: String) {
        self.step.state.active.retain(|active| *active != name);
        self.normal("SuccessfulDelete", format!("Deleted job {name}"));
        self.step.delete.push(name);
    }

    /// Brings the list of active Jobs in line with the Jobs that are there (workloads 7.12).
    fn count_active(&mut self) {
        for job in self.input.jobs.iter().filter(|job| job.is_ours) {
            match job.end {
                Some(end) => self.see_end(job, end),
                None if job.is_deleted => {}
                None => self.see_running(job),
            }
        }
        self.forget_missing();
    }

    /// Takes a running Job into the list if it has a scheduled time. Upstream waits for the status that it wrote
    /// itself, so that a Job whose status was lost does not hold up `Forbid`.
    fn see_running(&mut self, job: &ChildJob) {
        if self.step.state.active.contains(&job.name) {
            return;
        }
        match job.scheduled_at {
            Some(_) => self.step.state.active.push(job.name.clone()),
            None => self.warning(
                "UnexpectedJob",
                format!(
                    "Saw a job that the controller did not create or forgot: {}",
                    job.name
                ),
            ),
        }
    }

    fn see_end(&mut self, job: &ChildJob, end: JobEnd) {
        if self.step.state.active.contains(&job.name) {
            self.step.state.active.retain(|name| *name != job.name);
            let (name, condition) = (&job.name, end.condition());
            self.normal(
                "SawCompletedJob",
                format!("Saw completed job: {name}, condition: {condition}"),
            );
        }
        if let JobEnd::Complete(completed_at) = end {
            let last = &mut self.step.state.last_successful_time;
            *last = completed_at.max(*last);
        }
    }

    fn forget_missing(&mut self) {
        let is_there = |name: &str| {
            let mut jobs = self.children().filter(|job| !job.is_deleted);
            jobs.any(|job| job.name == name)
        };
        let active = self.step.state.active.clone();
        let (active, missing): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|name| is_there(name));
        self.step.state.active = active;
        for name in missing {
            self.normal("MissingJob", format!("Active job went missing: {name}"));
        }
    }

    /// Starts the Job of the most recent time that is due, and returns the time of the next look.
    fn start_what_is_due(&mut self) -> Option<Timestamp> {
        let zone = self.zone_of_annotation()?;
        if self.input.spec.is_suspended() {
            return None;
        }
        let schedule = self.parse_schedule()?;
        if !self.input.clock.is_trusted {
            return None;
        }
        let Some(due) = self.due(&schedule)? else {
            return self.next_look(&schedule);
        };
        let job = NewJob {
            name: job_name(self.input.name, due),
            scheduled_at: due,
            scheduled_timestamp: rfc3339_in(due, &zone),
        };
        if self.may_start(&job) {
            self.start(job)?;
        }
        self.next_look(&schedule)
    }

    fn zone_of_annotation(&mut self) -> Option<jiff::tz::TimeZone> {
        let name = self.input.spec.time_zone.as_deref().unwrap_or_default();
        match self.input.zones.find(name) {
            Ok(zone) => Some(zone),
            Err(error) => {
                let message = format!("invalid timeZone: {}: {error}", quote(name));
                self.warning("UnknownTimeZone", message);
                None
            }
        }
    }

    fn parse_schedule(&mut self) -> Option<Schedule> {
        let written = &self.input.spec.schedule;
        if written.contains("TZ") {
            self.warning("UnsupportedSchedule", unsupported(written));
        }
        let parsed = parse(self.input.spec, self.input.zones);
        if let Err(error) = &parsed {
            let message = format!("unparseable schedule: {} : {error}", quote(written));
            self.warning("UnparseableSchedule", message);
        }
        parsed.ok()
    }

    /// Returns the time that is due, if one is. None if the schedule never comes.
    fn due(&mut self, schedule: &Schedule) -> Option<Option<Timestamp>> {
        // With 0 upstream never starts a Job, because it looks 100 ms late (workloads 7.10).
        let deadline = self.input.spec.starting_deadline_seconds;
        let deadline = deadline.map(|seconds| seconds.max(1));
        let (from, now) = (self.counts_from(), self.input.clock.now);
        match missed::most_recent(schedule, from, deadline, now) {
            Ok(recent) => {
                self.step.events.extend(recent.warning());
                Some(recent.most_recent)
            }
            Err(error) => {
                let schedule = &self.input.spec.schedule;
                let message = format!("invalid schedule: {schedule} : {error}");
                self.warning("InvalidSchedule", message);
                None
            }
        }
    }

    fn counts_from(&self) -> Timestamp {
        self.step.state.counts_from(self.input.clock.now)
    }

    fn next_look(&self, schedule: &Schedule) -> Option<Timestamp> {
        missed::next_look(schedule, self.counts_from(), self.input.clock.now)
    }

    /// True if nothing holds the Job up. Removes active Jobs that it replaces.
    fn may_start(&mut self, job: &NewJob) -> bool {
        if self.step.state.active.contains(&job.name) {
            return false;
        }
        match self.input.spec.concurrency() {
            ConcurrencyPolicy::Allow => true,
            ConcurrencyPolicy::Forbid if self.step.state.active.is_empty() => true,
            ConcurrencyPolicy::Forbid => {
                self.normal("JobAlreadyActive", FORBIDDEN);
                false
            }
            ConcurrencyPolicy::Replace => self.replace_active(),
        }
    }

    /// Removes the active Jobs. Returns false if the new one must wait for the end of their pods.
    fn replace_active(&mut self) -> bool {
        let active = self.step.state.active.clone();
        let mut is_any_ending = !active.is_empty();
        for name in active {
            self.delete(name);
        }
        is_any_ending |= self
            .children()
            .any(|job| job.is_deleted && job.end.is_none());
        self.input.has_room_beside || !is_any_ending
    }

    /// Starts a Job. A Job that has its name already is taken for it. Returns None if that Job is not ours; upstream
    /// does not look again then.
    fn start(&mut self, job: NewJob) -> Option<()> {
        let mut jobs = self.input.jobs.iter();
        let existing = jobs.find(|existing| existing.name == job.name);
        if existing.is_some_and(|existing| !existing.is_ours) {
            return None;
        }
        self.step.state.start(&job, existing);
        if existing.is_none() {
            self.normal("SuccessfulCreate", format!("Created job {}", job.name));
            self.step.create = Some(job);
        }
        Some(())
    }
}

/// Reads the schedule of a CronJob in its zone. A zone in the schedule itself goes first.
///
/// # Errors
/// Returns a [`cron::ScheduleError`] for a schedule that upstream refuses.
pub fn parse(spec: &CronJobSpec, zones: &Zones) -> Result<Schedule, cron::ScheduleError> {
    match &spec.time_zone {
        Some(zone) if !spec.schedule.contains("TZ") => {
            Schedule::parse(&format!("TZ={zone} {}", spec.schedule), zones)
        }
        _ => Schedule::parse(&spec.schedule, zones),
    }
}

/// Returns the scheduled time after another time. None if the CronJob is suspended, or if its schedule has no such time.
pub fn next_time(spec: &CronJobSpec, zones: &Zones, after: Timestamp) -> Option<Timestamp> {
    let schedule = parse(spec, zones).ok()?;
    schedule.next(after).filter(|_| !spec.is_suspended())
}

fn unsupported(schedule: &str) -> String {
    format!(
        "CRON_TZ or TZ used in schedule {} is not officially supported, see \
         https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
        quote(schedule)
    )
}

#[cfg(test)]
mod tests;
