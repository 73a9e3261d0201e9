//! One look of the controller, its clock, and a daemon that is killed between any two writes.

use super::*;
use crate::time_zones::{BERLIN, Random, time, with_rule};

/// A node with one CronJob, whose Jobs and state are on a disk.
struct Node {
    spec: CronJobSpec,
    zones: Zones,
    state: CronJobState,
    jobs: Vec<ChildJob>,
    /// Scheduled times of all Jobs that were ever created.
    started: Vec<Timestamp>,
    clock: WallClock,
    has_room_beside: bool,
}

impl Node {
    fn new(schedule: &str, now: &str) -> Self {
        Self {
            spec: CronJobSpec {
                schedule: schedule.to_owned(),
                successful_jobs_history_limit: Some(3),
                failed_jobs_history_limit: Some(1),
                ..CronJobSpec::default()
            },
            zones: with_rule("UTC0"),
            state: CronJobState::default(),
            jobs: Vec::new(),
            started: Vec::new(),
            clock: trusted(now),
            has_room_beside: true,
        }
    }

    fn with_policy(mut self, policy: &str) -> Self {
        self.spec.concurrency_policy = policy.to_owned();
        self
    }

    fn with_last(mut self, last: &str) -> Self {
        self.state.first_seen = Some(time("2026-01-01T00:00:00Z"));
        self.state.last_schedule_time = Some(time(last));
        self
    }

    fn with_job(mut self, scheduled_at: &str) -> Self {
        let scheduled_at = time(scheduled_at);
        self.jobs.push(ChildJob {
            name: job_name("cj", scheduled_at),
            is_ours: true,
            scheduled_at: Some(scheduled_at),
            ..ChildJob::default()
        });
        self
    }

    fn step(&self) -> CronJobStep {
        step(&CronJobInput {
            name: "cj",
            spec: &self.spec,
            state: &self.state,
            jobs: &self.jobs,
            clock: self.clock,
            zones: &self.zones,
            has_room_beside: self.has_room_beside,
        })
    }

    /// Steps, writes and acts until nothing changes, or until so many writes have been made. Returns false if the
    /// daemon was killed by that.
    fn run(&mut self, mut writes: u64) -> bool {
        loop {
            let step = self.step();
            let is_settled = step.state == self.state && step.delete.is_empty();
            if is_settled && step.create.is_none() {
                return true;
            }
            let may_write = &mut writes;
            let mut killed = || {
                *may_write = may_write.saturating_sub(1);
                *may_write == 0
            };
            if killed() {
                return false;
            }
            self.state = step.state;
            for name in step.delete {
                if killed() {
                    return false;
                }
                self.jobs.retain(|job| job.name != name);
            }
            if let Some(job) = step.create {
                if killed() {
                    return false;
                }
                self.create(job);
            }
        }
    }

    fn create(&mut self, job: NewJob) {
        assert!(self.jobs.iter().all(|other| other.name != job.name));
        self.started.push(job.scheduled_at);
        self.jobs.push(ChildJob {
            name: job.name,
            is_ours: true,
            scheduled_at: Some(job.scheduled_at),
            ..ChildJob::default()
        });
    }

    /// Sets the clock, looks, and ends what runs. Returns the times of the Jobs that were created.
    fn look(&mut self, now: &str) -> Vec<String> {
        self.clock = trusted(now);
        let before = self.started.len();
        assert!(self.run(u64::MAX));
        self.end_all();
        let new = &self.started[before..];
        new.iter().map(ToString::to_string).collect()
    }

    fn end_all(&mut self) {
        for job in &mut self.jobs {
            job.end.get_or_insert(JobEnd::Complete(None));
        }
    }
}

fn trusted(now: &str) -> WallClock {
    WallClock {
        now: time(now),
        is_trusted: true,
    }
}

fn reasons(step: &CronJobStep) -> Vec<&'static str> {
    step.events.iter().map(|event| event.reason).collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_first_look_makes_no_run_up_and_writes_down_when_it_was() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z");
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    assert_eq!(node.state.first_seen, Some(time("2026-11-23T10:30:00Z")));
    let look = node.step().next_look;
    assert_eq!(look, Some(time("2026-11-23T11:00:00.1Z")));
    // A restart is no new creation (workloads 7.17).
    assert_eq!(
        node.look("2026-11-23T11:00:00.1Z"),
        ["2026-11-23T11:00:00Z"]
    );
    assert_eq!(node.state.first_seen, Some(time("2026-11-23T10:30:00Z")));
}

#[test]
fn every_counts_from_the_first_look_also_after_a_restart() {
    let mut node = Node::new("@every 90m", "2026-11-23T10:30:00Z");
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T11:59:59Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T12:00:00Z"), ["2026-11-23T12:00:00Z"]);
}

#[test]
fn a_changed_schedule_counts_from_the_last_run() {
    let mut node = Node::new("0 0 1 1 *", "2026-11-23T10:30:00Z").with_last("2026-11-23T08:00:00Z");
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    node.spec.schedule = "0 * * * *".to_owned();
    assert_eq!(node.look("2026-11-23T10:30:00Z"), ["2026-11-23T10:00:00Z"]);
}

#[test]
fn a_suspended_cron_job_makes_one_run_up_when_it_is_resumed() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z").with_last("2026-11-23T08:00:00Z");
    node.spec.suspend = Some(true);
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    assert_eq!(node.step().next_look, None);
    node.spec.suspend = Some(false);
    assert_eq!(node.look("2026-11-23T10:30:00Z"), ["2026-11-23T10:00:00Z"]);
}

#[test]
fn a_job_of_a_schedule_is_active_although_the_state_was_lost() {
    let node = Node::new("0 * * * *", "2026-11-23T12:00:00Z")
        .with_policy("Forbid")
        .with_job("2026-11-23T10:00:00Z");
    let step = node.step();
    assert_eq!(step.state.active, ["cj-29923800"]);
    assert_eq!(
        step.state.last_schedule_time,
        Some(time("2026-11-23T10:00:00Z"))
    );
    assert_eq!(reasons(&step), ["JobAlreadyActive"]);
    assert_eq!(step.create, None);
}

#[test]
fn a_lost_state_counts_from_the_newest_job() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z")
        .with_job("2026-11-23T09:00:00Z")
        .with_job("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:20:00Z")
        .with_job("2026-11-24T00:00:00Z");
    // A foreign Job and a Job whose time has not come say nothing.
    node.jobs[2].is_ours = false;
    node.end_all();
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    let last = node.state.last_schedule_time;
    assert_eq!(last, Some(time("2026-11-23T10:00:00Z")));
    assert_eq!(node.look("2026-11-23T12:10:00Z"), ["2026-11-23T12:00:00Z"]);
}

#[test]
fn forbid_runs_late_when_the_old_job_ends() {
    let mut node = Node::new("0 * * * *", "2026-11-23T11:00:00Z")
        .with_policy("Forbid")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    assert_eq!(node.step().create, None);
    node.end_all();
    node.spec.starting_deadline_seconds = Some(60);
    assert_eq!(node.look("2026-11-23T11:30:00Z"), NOTHING);
    node.spec.starting_deadline_seconds = None;
    assert_eq!(node.look("2026-11-23T11:30:00Z"), ["2026-11-23T11:00:00Z"]);
}

#[test]
fn replace_waits_for_the_end_where_there_is_no_room_beside() {
    let mut node = Node::new("0 * * * *", "2026-11-23T11:00:00Z")
        .with_policy("Replace")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    node.has_room_beside = false;
    let step = node.step();
    assert_eq!(step.delete, ["cj-29923800"]);
    assert_eq!(step.create, None);
    assert_eq!(step.state.active, NOTHING);
    node.state = step.state;
    node.jobs[0].is_deleted = true;
    let step = node.step();
    assert_eq!((step.create, reasons(&node.step())), (None, vec![]));
    // A Job that has ended has no pods that terminate.
    let mut ended = node.jobs.clone();
    std::mem::swap(&mut ended, &mut node.jobs);
    node.end_all();
    assert!(node.step().create.is_some());
    node.jobs.clear();
    assert!(node.step().create.is_some());
    node.jobs = ended;
    node.has_room_beside = true;
    assert!(node.step().create.is_some());
}

#[test]
fn the_second_run_in_a_minute_is_dropped_while_the_first_one_runs() {
    let node = Node::new("@every 5s", "2026-11-23T10:00:05Z")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    let step = node.step();
    assert_eq!(step.create, None);
    assert_eq!(step.state.active, ["cj-29923800"]);
    let last = step.state.last_schedule_time;
    assert_eq!(last, Some(time("2026-11-23T10:00:00Z")));
    assert_eq!(step.next_look, Some(time("2026-11-23T10:00:10.1Z")));
}

/// Each run of a schedule of seconds that is dropped finds the Job of its minute, which has ended.
#[test]
fn the_end_of_a_job_is_said_once_though_later_runs_of_its_minute_are_dropped() {
    let mut node = Node::new("@every 5s", "2026-11-23T10:00:05Z")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    node.state.active = vec![node.jobs[0].name.clone()];
    node.end_all();
    let mut seen = 0;
    for second in 5..60 {
        node.clock = trusted(&format!("2026-11-23T10:00:{second:02}Z"));
        let step = node.step();
        let reasons = reasons(&step);
        seen += reasons.iter().filter(|r| **r == "SawCompletedJob").count();
        assert_eq!((&step.create, &step.state.active[..]), (&None, &[][..]));
        node.state = step.state;
    }
    assert_eq!(seen, 1);
}

#[test]
fn a_job_that_has_the_name_already_is_taken_for_the_new_one() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:00:05Z")
        .with_last("2026-11-23T09:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    node.jobs[0].scheduled_at = None;
    let step = node.step();
    assert_eq!(step.create, None);
    assert_eq!(step.state.active, ["cj-29923800"]);
    assert_eq!(step.state.starting, None);
}

#[test]
fn foreign_jobs_are_not_removed() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z").with_job("2026-11-23T09:00:00Z");
    node.spec.successful_jobs_history_limit = Some(0);
    node.jobs[0].is_ours = false;
    node.end_all();
    assert_eq!(node.step().delete, NOTHING);
}

#[test]
fn a_job_that_is_being_removed_is_missing() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T10:00:00Z");
    node.state = node.step().state;
    node.jobs[0].is_deleted = true;
    let step = node.step();
    assert_eq!(reasons(&step), ["MissingJob"]);
    assert_eq!(step.state.active, NOTHING);
    // It is not removed again as history.
    node.spec.successful_jobs_history_limit = Some(0);
    node.end_all();
    assert_eq!(node.step().delete, NOTHING);
}

#[test]
fn a_deadline_of_0_still_starts_the_job_at_the_planned_look() {
    let mut node = Node::new("0 * * * *", "2026-11-23T10:30:00Z").with_last("2026-11-23T10:00:00Z");
    node.spec.starting_deadline_seconds = Some(0);
    assert_eq!(
        node.look("2026-11-23T11:00:00.1Z"),
        ["2026-11-23T11:00:00Z"]
    );
    assert_eq!(node.look("2026-11-23T12:00:01.1Z"), NOTHING);
}

#[test]
fn unknown_zones_and_schedules_are_said_and_nothing_is_started() {
    let mut node = Node::new("0 * * *\t", "2026-11-23T10:30:00Z").with_last("2026-11-23T08:00:00Z");
    let message = |node: &Node| {
        let step = node.step();
        assert_eq!((step.create, step.next_look), (None, None));
        step.events[0].message.clone()
    };
    assert_eq!(
        message(&node),
        r#"unparseable schedule: "0 * * *\t" : expected exactly 5 fields, found 4: [0 * * *]"#
    );
    node.spec.time_zone = Some("Europe/Berlin".to_owned());
    node.spec.suspend = Some(true);
    assert_eq!(
        message(&node),
        "invalid timeZone: \"Europe/Berlin\": unknown time zone Europe/Berlin: this node has no \
         zoneinfo and knows only UTC; install tzdata, or use the time zone UTC"
    );
}

#[test]
fn a_schedule_without_a_zone_follows_the_nodes_zone_and_its_annotation_utc() {
    let mut node = Node::new("0 2 * * *", "2026-11-23T01:00:00Z").with_last("2026-11-22T01:00:00Z");
    node.zones = with_rule(BERLIN);
    let job = node.step().create.unwrap();
    assert_eq!(job.scheduled_timestamp, "2026-11-23T01:00:00Z");
    node.spec.time_zone = Some("UTC".to_owned());
    assert_eq!(
        node.step().create.unwrap().scheduled_at,
        time("2026-11-22T02:00:00Z")
    );
}

#[test]
fn a_zone_in_the_schedule_goes_before_the_field() {
    let mut spec = CronJobSpec {
        schedule: "TZ=Local 0 0 * * *".to_owned(),
        time_zone: Some("UTC".to_owned()),
        ..CronJobSpec::default()
    };
    let zones = with_rule(BERLIN);
    let zone = |spec: &CronJobSpec| match parse(spec, &zones) {
        Ok(Schedule::Spec(schedule)) => schedule.zone,
        other => panic!("{other:?}"),
    };
    assert_eq!(zone(&spec), *zones.local());
    spec.schedule = "0 0 * * *".to_owned();
    assert_eq!(zone(&spec), jiff::tz::TimeZone::UTC);
    spec.time_zone = None;
    assert_eq!(zone(&spec), *zones.local());
}

// The clock (workloads 7.16).

#[test]
fn nothing_is_started_by_a_clock_that_is_not_trusted() {
    let mut node = Node::new("* * * * *", "1970-01-01T00:04:00Z").with_last("2026-11-23T10:00:00Z");
    node.clock.is_trusted = false;
    let step = node.step();
    assert_eq!((step.create, step.next_look), (None, None));
    assert_eq!(step.state, node.state);
    // The clock is set: the outage of two hours makes one run up.
    assert_eq!(node.look("2026-11-23T12:00:30Z"), ["2026-11-23T12:00:00Z"]);
}

#[test]
fn a_file_is_first_seen_by_a_clock_that_is_trusted() {
    let mut node = Node::new("0 * * * *", "1970-01-01T00:00:30Z");
    node.clock.is_trusted = false;
    assert!(node.run(u64::MAX));
    assert_eq!(node.state.first_seen, None);
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T11:00:00Z"), ["2026-11-23T11:00:00Z"]);
}

#[test]
fn a_clock_that_is_set_after_five_minutes_of_1970_makes_no_run_up() {
    let mut node = Node::new("*/10 * * * *", "1970-01-01T00:05:00Z");
    assert_eq!(node.look("1970-01-01T00:05:00Z"), NOTHING);
    assert_eq!(node.look("1970-01-01T00:10:00Z"), ["1970-01-01T00:10:00Z"]);
    assert_eq!(node.look("2026-11-23T10:05:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:06:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:10:00Z"), ["2026-11-23T10:10:00Z"]);
    assert_eq!(node.state.clock_changed, None);
}

#[test]
fn a_creation_in_1970_counts_as_the_moment_at_which_the_clock_was_set() {
    let mut node = Node::new("0 * * * *", "1970-01-01T00:05:00Z");
    assert_eq!(node.look("1970-01-01T00:05:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:30:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T11:00:00Z"), ["2026-11-23T11:00:00Z"]);
}

#[test]
fn a_run_that_was_due_before_a_boot_in_1970_is_made_up_when_the_clock_is_set() {
    let mut node = Node::new("0 0 * * *", "1970-01-01T00:06:00Z").with_last("2026-11-23T00:00:00Z");
    assert_eq!(node.look("1970-01-01T00:06:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-24T08:00:00Z"), ["2026-11-24T00:00:00Z"]);
}

#[test]
fn a_clock_that_jumps_a_year_ahead_starts_one_job() {
    let mut node =
        Node::new("*/5 * * * *", "2026-11-23T10:01:00Z").with_last("2026-11-23T10:00:00Z");
    assert_eq!(node.look("2027-11-23T10:01:00Z"), ["2027-11-23T10:00:00Z"]);
    assert_eq!(node.look("2027-11-23T10:01:30Z"), NOTHING);
}

#[test]
fn a_clock_that_jumps_a_year_back_does_not_silence_the_job() {
    let mut node =
        Node::new("*/5 * * * *", "2027-11-23T10:00:00Z").with_last("2027-11-23T10:00:00Z");
    assert_eq!(node.look("2026-11-23T10:01:00Z"), NOTHING);
    let look = node.step().next_look;
    assert_eq!(look, Some(time("2026-11-23T10:05:00.1Z")));
    assert_eq!(
        node.look("2026-11-23T10:05:00.1Z"),
        ["2026-11-23T10:05:00Z"]
    );
    assert_eq!(
        node.look("2026-11-23T10:10:00.1Z"),
        ["2026-11-23T10:10:00Z"]
    );
}

#[test]
fn a_clock_that_is_put_back_again_does_not_silence_the_job() {
    let mut node =
        Node::new("*/5 * * * *", "2027-11-23T10:00:00Z").with_last("2027-11-23T10:00:00Z");
    assert_eq!(node.look("2026-11-23T10:01:00Z"), NOTHING);
    assert_eq!(node.look("2026-10-23T10:01:00Z"), NOTHING);
    assert_eq!(node.look("2026-10-23T10:05:00Z"), ["2026-10-23T10:05:00Z"]);
}

#[test]
fn a_clock_that_is_put_back_a_little_starts_no_job_twice() {
    let mut node =
        Node::new("*/5 * * * *", "2026-11-23T10:00:00Z").with_last("2026-11-23T10:00:00Z");
    node.spec.successful_jobs_history_limit = Some(0);
    assert_eq!(node.look("2026-11-23T09:59:59.9Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:00:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:04:59Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:05:00Z"), ["2026-11-23T10:05:00Z"]);
}

#[test]
fn a_clock_that_was_put_back_makes_up_what_an_outage_missed() {
    let mut node =
        Node::new("*/5 * * * *", "2026-11-23T10:00:00Z").with_last("2026-11-23T11:00:00Z");
    assert_eq!(node.look("2026-11-23T10:01:00Z"), NOTHING);
    assert_eq!(node.look("2026-11-23T10:12:00Z"), ["2026-11-23T10:10:00Z"]);
}

#[test]
fn on_both_days_on_which_the_clock_is_changed_the_jobs_have_names_of_their_own() {
    let mut node =
        Node::new("30 2 * * *", "2026-10-25T00:30:00Z").with_last("2026-10-24T00:30:00Z");
    node.zones = with_rule(BERLIN);
    assert_eq!(
        node.look("2026-10-25T00:30:00.1Z"),
        ["2026-10-25T00:30:00Z"]
    );
    assert_eq!(
        node.look("2026-10-25T01:30:00.1Z"),
        ["2026-10-25T01:30:00Z"]
    );
    assert_eq!(
        node.look("2026-10-26T01:30:00.1Z"),
        ["2026-10-26T01:30:00Z"]
    );
    let mut node =
        Node::new("30 2 * * *", "2026-03-28T01:30:00Z").with_last("2026-03-28T01:30:00Z");
    node.zones = with_rule(BERLIN);
    assert_eq!(node.look("2026-03-29T12:00:00Z"), NOTHING);
    assert_eq!(node.look("2026-03-30T00:30:00Z"), ["2026-03-30T00:30:00Z"]);
}

// A daemon that is killed.

#[test]
fn a_start_whose_job_never_came_to_exist_is_decided_anew() {
    let mut node = Node::new("0 * * * *", "2026-11-23T11:00:00Z").with_last("2026-11-23T10:00:00Z");
    let step = node.step();
    assert_eq!(step.state.active, ["cj-29923860"]);
    node.state = step.state;
    let again = node.step();
    assert_eq!((&again.state, &again.create), (&node.state, &step.create));
    assert_eq!(reasons(&again), ["SuccessfulCreate"]);
    // A later time takes its place, and a person may forbid it.
    node.clock = trusted("2026-11-23T12:00:00Z");
    let job = node.step().create.unwrap();
    assert_eq!(job.scheduled_at, time("2026-11-23T12:00:00Z"));
    node.spec.suspend = Some(true);
    let step = node.step();
    assert_eq!(step.create, None);
    assert_eq!(step.state.active, NOTHING);
    assert_eq!(
        step.state.last_schedule_time,
        Some(time("2026-11-23T10:00:00Z"))
    );
}

#[test]
fn a_start_that_was_taken_back_knows_of_a_changed_clock() {
    let mut node = Node::new("0 * * * *", "2026-11-23T11:00:00Z").with_last("2027-11-23T10:00:00Z");
    node.state.clock_changed = Some(time("2026-11-23T10:30:00Z"));
    node.state = node.step().state;
    assert_eq!(node.state.clock_changed, None);
    assert!(node.step().create.is_some());
}

#[test]
fn a_job_whose_name_is_taken_by_a_foreign_one_is_not_started() {
    let mut node = Node::new("0 * * * *", "2026-11-23T11:00:00Z")
        .with_last("2026-11-23T10:00:00Z")
        .with_job("2026-11-23T11:00:00Z");
    node.jobs[0].is_ours = false;
    let step = node.step();
    assert_eq!((step.create, step.next_look), (None, None));
    assert_eq!(step.state, node.state);
    // Also where a start of ours was written down before.
    let jobs = std::mem::take(&mut node.jobs);
    let before = node.state.clone();
    node.state = node.step().state;
    assert!(node.state.starting.is_some());
    node.jobs = jobs;
    assert_eq!(node.step().state, before);
}

#[test]
fn each_time_has_exactly_one_job_although_the_daemon_is_killed_between_any_two_writes() {
    let mut random = Random(2_463_534_242);
    for (policy, limit) in [
        ("Allow", 0),
        ("Allow", 3),
        ("Forbid", 0),
        ("Replace", 0),
        ("Replace", 2),
    ] {
        let mut node = Node::new("*/5 * * * *", "2026-11-23T00:01:00Z").with_policy(policy);
        node.spec.successful_jobs_history_limit = Some(limit);
        assert!(node.run(u64::MAX));
        for _ in 0..1500 {
            let now = node
                .clock
                .now
                .checked_add(jiff::SignedDuration::from_mins(1));
            node.clock.now = now.unwrap();
            while !node.run(1 + random.below(6)) {}
            if policy != "Replace" || random.below(3) == 0 {
                node.end_all();
            }
            // Between two looks anybody may remove Jobs that have ended.
            if random.below(4) == 0 && node.run(u64::MAX) {
                node.jobs.retain(|job| job.end.is_none());
            }
        }
        assert_eq!(node.started.len(), 300, "{policy}");
        assert!(node.started.is_sorted_by(|a, b| a < b), "{policy}");
    }
}

#[test]
fn the_state_is_read_back_as_it_was_written() {
    let node = Node::new("0 * * * *", "2026-11-23T11:00:00Z").with_last("2026-11-23T10:00:00Z");
    let state = node.step().state;
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"firstSeen":"2026-01-01T00:00:00Z","lastScheduleTime":"2026-11-23T11:00:00Z","#,
            r#""active":["cj-29923860"],"starting":{"job":"cj-29923860","#,
            r#""lastScheduleTime":"2026-11-23T10:00:00Z"}}"#
        )
    );
    assert_eq!(serde_json::from_str::<CronJobState>(&text).unwrap(), state);
    let empty: CronJobState = serde_json::from_str("{}").unwrap();
    assert_eq!(empty, CronJobState::default());
}

#[test]
fn a_person_is_warned_of_what_a_valid_cron_job_will_not_do() {
    let check = |schedule: &str, deadline, expected: &[&str]| {
        let spec = CronJobSpec {
            schedule: schedule.to_owned(),
            starting_deadline_seconds: deadline,
            ..CronJobSpec::default()
        };
        let now = time("2026-01-01T00:00:00Z");
        let advice = advice(&spec, &with_rule(BERLIN), now);
        let texts: Vec<String> = advice.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    };
    check("0 3 * * *", Some(10), &[]);
    check("@every 60s", None, &[]);
    check("7", None, &[]);
    check(
        "0 0 30 2 *",
        Some(9),
        &[
            "the schedule does not come within five years",
            "startingDeadlineSeconds 9 is short: a run is missed when the node is busy for so long; use at least 10",
        ],
    );
    check(
        "@every 59s",
        None,
        &["the schedule comes every 59 seconds, but at most one Job a minute is started"],
    );
    check(
        "30 2 * * *",
        None,
        &["the clock is changed: 2026-03-29: 02:30 is skipped; 2026-10-25: 02:30 runs twice"],
    );
}
