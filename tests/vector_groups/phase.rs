//! phase.json: the phase of a pod from its container statuses (kubelet-probes 9.1).

use podprobe::api::pod::PodSpec;
use podprobe::api::{ContainerStatus, PodPhase};
use podprobe::pods::status::{PhaseInputs, phase};
use serde::Deserialize;
use serde_json::{Value, json};

use super::world::{api_state, entry};
use super::{AS_TOLD, Case, Group, Run, Verdict, fields, group, same};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("cases", Run::Each(case)),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PhaseCase {
    spec: Value,
    all_statuses: Vec<Status>,
    pod_is_terminal: bool,
    pod_has_initialized: bool,
    static_pod: bool,
    expect_phase: PodPhase,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Status {
    name: String,
    state: String,
    exit_code: Option<i32>,
    reason: Option<String>,
    started: Option<bool>,
    last: Option<Last>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Last {
    exit_code: i32,
    reason: Option<String>,
}

impl Status {
    fn typed(self) -> Result<ContainerStatus, String> {
        let state = api_state(
            &self.state,
            self.exit_code.unwrap_or(0),
            self.reason.as_deref().unwrap_or_default(),
        )?;
        let mut status = entry(&self.name, "", state, self.started);
        if let Some(last) = self.last {
            let last = json!({"terminated": {"exitCode": last.exit_code, "reason": last.reason.unwrap_or_default()}});
            status.last_state = fields(&last)?;
        }
        Ok(status)
    }
}

fn case(case: &Case) -> Verdict {
    let case: PhaseCase = case.fields()?;
    let spec = spec(&case.spec)?;
    let statuses = case
        .all_statuses
        .into_iter()
        .map(Status::typed)
        .collect::<Result<Vec<_>, _>>()?;
    let facts = PhaseInputs {
        pod_is_terminal: case.pod_is_terminal,
        has_initialized: case.pod_has_initialized,
        static_pod: case.static_pod,
    };
    same("phase", case.expect_phase, phase(&spec, &statuses, facts))?;
    AS_TOLD
}

/// A pod spec as the API has it; a field that nothing reads fails.
fn spec(told: &Value) -> Result<PodSpec, String> {
    let mut unread = None;
    let spec = serde_ignored::deserialize(told, |path| unread = Some(path.to_string()))
        .map_err(|e| e.to_string())?;
    unread.map_or(Ok(spec), |path| {
        Err(format!("unknown field \"{path}\" of the spec"))
    })
}
