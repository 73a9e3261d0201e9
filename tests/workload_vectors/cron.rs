//! Vectors of CronJobs: the parser of schedules, the search for the next time, missed times, and one look of the
//! controller.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use podprobe::api::workload::CronJobSpec;
use podprobe::base::cron::{Schedule, Values, Zones, rfc3339_in};
use podprobe::workloads::cron_job::{
    self, ChildJob, CronJobInput, CronJobState, CronJobStep, JobEnd, MissedTimes, NoInterval,
    WallClock, job_name, most_recent, next_look,
};
use podprobe::workloads::{ControllerEvent, EventKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A function that runs one case.
type Run = fn(&Value) -> Result<(), String>;

/// The groups with the function that runs one case.
pub const GROUPS: &[(&str, Run)] = &[
    ("cron-parse", parse),
    ("cron-next", next),
    ("cron-missed", missed),
    ("cron-sync", sync),
    ("cron-names", name),
];

/// The zones of the node, where schedules without a zone are in UTC.
fn zones() -> &'static Zones {
    static ZONES: LazyLock<Zones> =
        LazyLock::new(|| Zones::new(TimeZoneDatabase::from_env(), TimeZone::UTC));
    &ZONES
}

fn read<T: DeserializeOwned>(case: &Value) -> Result<T, String> {
    T::deserialize(case).map_err(|e| format!("cannot read the case: {e}"))
}

#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{what}: expected {expected:?}, got {got:?}"))
}

/// The schedule in a zone, as the controller puts it together.
fn schedule_in(schedule: &str, zone: Option<&str>) -> Result<Schedule, String> {
    let text = match zone {
        Some(zone) => format!("TZ={zone} {schedule}"),
        None => schedule.to_owned(),
    };
    Schedule::parse(&text, zones()).map_err(|e| e.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseCase {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "note")]
    _note: Option<String>,
    schedule: String,
    expect: Parsed,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct Parsed {
    minute: Option<Vec<u8>>,
    hour: Option<Vec<u8>>,
    day_of_month: Option<Vec<u8>>,
    day_of_month_star: Option<bool>,
    month: Option<Vec<u8>>,
    day_of_week: Option<Vec<u8>>,
    day_of_week_star: Option<bool>,
    every_seconds: Option<i64>,
    error: Option<String>,
}

fn parse(case: &Value) -> Result<(), String> {
    let case: ParseCase = read(case)?;
    let list = |values: Values| Some(values.iter().collect());
    let got = match Schedule::parse(&case.schedule, zones()) {
        Ok(Schedule::Spec(spec)) => Parsed {
            minute: list(spec.minute),
            hour: list(spec.hour),
            day_of_month: list(spec.day_of_month),
            day_of_month_star: Some(spec.day_of_month.is_star()),
            month: list(spec.month),
            day_of_week: list(spec.day_of_week),
            day_of_week_star: Some(spec.day_of_week.is_star()),
            ..Parsed::default()
        },
        Ok(Schedule::Every(seconds)) => Parsed {
            every_seconds: Some(seconds),
            ..Parsed::default()
        },
        Err(error) => Parsed {
            error: Some(error.to_string()),
            ..Parsed::default()
        },
    };
    same("schedule", case.expect, got)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NextCase {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "note")]
    _note: Option<String>,
    schedule: String,
    zone: String,
    after: Timestamp,
    count: usize,
    #[serde(default)]
    upstream_hangs: bool,
    expect: Times,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Times {
    #[serde(default)]
    utc: Vec<String>,
    #[serde(default)]
    local: Vec<String>,
    #[serde(default)]
    upstream_hangs: bool,
}

fn next(case: &Value) -> Result<(), String> {
    let case: NextCase = read(case)?;
    let schedule = schedule_in(&case.schedule, Some(&case.zone))?;
    let zone = zones().find(&case.zone).map_err(|e| e.to_string())?;
    let (mut utc, mut local) = (Vec::new(), Vec::new());
    let mut after = case.after;
    for _ in 0..case.count {
        let Some(time) = schedule.next(after) else {
            utc.push("never".to_owned());
            local.push("never".to_owned());
            break;
        };
        if time <= after {
            return Err(format!("{time} is not after {after}"));
        }
        utc.push(rfc3339_in(time, &TimeZone::UTC));
        local.push(rfc3339_in(time, &zone));
        after = time;
    }
    // Where upstream does not return, only what it found before is known.
    if case.upstream_hangs || case.expect.upstream_hangs {
        utc.truncate(case.expect.utc.len());
        local.truncate(case.expect.local.len());
    }
    same("utc", case.expect.utc, utc)?;
    same("local", case.expect.local, local)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MissedCase {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "from")]
    _from: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    op: String,
    #[serde(rename = "in")]
    input: MissedInput,
    expect: MissedResult,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MissedInput {
    schedule: String,
    now: Timestamp,
    created: Timestamp,
    last_schedule: Option<Timestamp>,
    deadline: Option<i64>,
    time_zone: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MissedResult {
    earliest: Timestamp,
    missed: String,
    most_recent: Option<Timestamp>,
    due: Option<Timestamp>,
    #[serde(default)]
    events: Vec<String>,
    look_again_in_milliseconds: Option<i128>,
    error: Option<String>,
}

fn missed(case: &Value) -> Result<(), String> {
    let case: MissedCase = read(case)?;
    same("op", "missed", &case.op)?;
    let input = case.input;
    let schedule = schedule_in(&input.schedule, input.time_zone.as_deref())?;
    let from = input.last_schedule.unwrap_or(input.created);
    let recent = most_recent(&schedule, from, input.deadline, input.now);
    let look = next_look(&schedule, from, input.now);
    let got = match recent {
        Ok(recent) => MissedResult {
            earliest: recent.earliest,
            missed: word(recent.missed).to_owned(),
            most_recent: recent.most_recent,
            due: recent.most_recent,
            events: recent.warning().iter().map(event_line).collect(),
            look_again_in_milliseconds: milliseconds(look, input.now, &case.expect),
            error: None,
        },
        Err(error @ NoInterval { earliest }) => MissedResult {
            earliest,
            missed: word(MissedTimes::None).to_owned(),
            most_recent: None,
            due: None,
            events: Vec::new(),
            look_again_in_milliseconds: milliseconds(look, input.now, &case.expect),
            error: Some(error.to_string()),
        },
    };
    same("missed", case.expect, got)
}

fn word(missed: MissedTimes) -> &'static str {
    match missed {
        MissedTimes::None => "none",
        MissedTimes::Few => "few",
        MissedTimes::Many => "many",
    }
}

/// The time until the next look. Where a schedule does not come again upstream counts to the year 1, which is
/// negative.
fn milliseconds(look: Option<Timestamp>, now: Timestamp, expect: &MissedResult) -> Option<i128> {
    let expected = expect.look_again_in_milliseconds;
    match look {
        Some(look) => Some(look.duration_since(now).as_millis()),
        None => expected.filter(|expected| *expected < 0),
    }
}

fn event_line(event: &ControllerEvent) -> String {
    let kind = match event.kind {
        EventKind::Normal => "Normal",
        EventKind::Warning => "Warning",
    };
    format!("{kind} {} {}", event.reason, event.message)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SyncCase {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "from")]
    _from: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
    op: String,
    #[serde(rename = "in")]
    input: SyncInput,
    expect: SyncResult,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SyncInput {
    schedule: String,
    now: Timestamp,
    created: Timestamp,
    last_schedule: Option<Timestamp>,
    last_successful: Option<Timestamp>,
    deadline: Option<i64>,
    time_zone: Option<String>,
    policy: Option<String>,
    suspend: Option<bool>,
    successful_limit: Option<i32>,
    failed_limit: Option<i32>,
    #[serde(default)]
    jobs: Vec<SyncJob>,
    /// Names in `status.active` whose Jobs are not there.
    #[serde(default)]
    missing_active: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SyncJob {
    name: String,
    state: String,
    /// True if the Job is in `status.active`.
    #[serde(default)]
    active: bool,
    started_at: Option<String>,
    finished_at: Option<String>,
    #[serde(default)]
    not_ours: bool,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SyncResult {
    active: Vec<String>,
    create: Vec<String>,
    delete: Vec<String>,
    #[serde(default)]
    events: Vec<String>,
    last_schedule_time: Option<Timestamp>,
    last_successful_time: Option<Timestamp>,
    look_again_in_milliseconds: Option<i128>,
    scheduled_timestamp: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

fn sync(case: &Value) -> Result<(), String> {
    let case: SyncCase = read(case)?;
    same("op", "sync", &case.op)?;
    let input = case.input;
    let jobs = input
        .jobs
        .iter()
        .map(child)
        .collect::<Result<Vec<_>, _>>()?;
    let got = cron_job::step(&CronJobInput {
        name: "cj",
        spec: &spec_of(&input)?,
        state: &state_of(&input),
        jobs: &jobs,
        clock: WallClock {
            now: input.now,
            is_trusted: true,
        },
        zones: zones(),
        has_room_beside: true,
    });
    same("step", case.expect, result(got, input.now))
}

fn spec_of(input: &SyncInput) -> Result<CronJobSpec, String> {
    let policy = input.policy.as_deref().unwrap_or("Allow");
    if !["Allow", "Forbid", "Replace"].contains(&policy) {
        return Err(format!("unknown policy {policy}"));
    }
    Ok(CronJobSpec {
        schedule: input.schedule.clone(),
        time_zone: input.time_zone.clone(),
        starting_deadline_seconds: input.deadline,
        concurrency_policy: policy.to_owned(),
        suspend: input.suspend,
        successful_jobs_history_limit: input.successful_limit,
        failed_jobs_history_limit: input.failed_limit,
        ..CronJobSpec::default()
    })
}

fn state_of(input: &SyncInput) -> CronJobState {
    let active = input.jobs.iter().filter(|job| job.active);
    let active = active.map(|job| &job.name).chain(&input.missing_active);
    CronJobState {
        first_seen: Some(input.created),
        last_schedule_time: input.last_schedule,
        last_successful_time: input.last_successful,
        active: active.cloned().collect(),
        ..CronJobState::default()
    }
}

/// A Job without the annotation of its time: whether it is active is what `status.active` says, as upstream.
fn child(job: &SyncJob) -> Result<ChildJob, String> {
    let time = |text: &Option<String>| match text.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text
            .parse::<Timestamp>()
            .map(Some)
            .map_err(|e| e.to_string()),
    };
    let end = match job.state.as_str() {
        "running" => None,
        "failed" => Some(JobEnd::Failed),
        "complete" => Some(JobEnd::Complete(time(&job.finished_at)?)),
        other => return Err(format!("unknown state {other}")),
    };
    Ok(ChildJob {
        name: job.name.clone(),
        is_ours: !job.not_ours,
        scheduled_at: None,
        started_at: time(&job.started_at)?,
        end,
        is_deleted: false,
    })
}

fn result(step: CronJobStep, now: Timestamp) -> SyncResult {
    let until = step.next_look.map(|look| look.duration_since(now));
    SyncResult {
        active: step.state.active,
        create: step.create.iter().map(|job| job.name.clone()).collect(),
        delete: step.delete,
        events: step.events.iter().map(event_line).collect(),
        last_schedule_time: step.state.last_schedule_time,
        last_successful_time: step.state.last_successful_time,
        look_again_in_milliseconds: until.map(|until| until.as_millis()),
        scheduled_timestamp: step.create.map(|job| job.scheduled_timestamp),
        error: None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NameCase {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "note")]
    _note: Option<String>,
    op: String,
    #[serde(rename = "in")]
    input: NameInput,
    expect: Name,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NameInput {
    name: String,
    now: Timestamp,
    #[serde(rename = "created")]
    _created: Option<Timestamp>,
    #[serde(rename = "schedule")]
    _schedule: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

fn name(case: &Value) -> Result<(), String> {
    let case: NameCase = read(case)?;
    same("op", "name", &case.op)?;
    let name = job_name(&case.input.name, case.input.now);
    same("name", case.expect, Name { name })
}
