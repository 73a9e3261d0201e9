//! The recorded exchanges of a kubelet with an API server, and the cases that no recording has.

mod form;
mod merging;
mod patching;
mod publishing;
mod recorded;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::api::PodPhase;
use crate::base::clock::{Moment, Time};
use crate::base::json;
use crate::cluster::exchange::{Answer, Method, Request};

const NODE: &str = "192.0.2.2";

fn wall() -> Time {
    json::from_value(&json!("2026-11-21T23:59:59Z")).unwrap()
}

fn at(millis: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(millis))
}

/// Pods with the statuses that a kubelet sent for them, and what the API server then had.
const PATCHES: &str = include_str!("../../../tests/data/cluster/pod-status-patches.jsonl");
/// Requests about pods with the errors that the API server answered, and one deletion.
const ANSWERS: &str = include_str!("../../../tests/data/cluster/pod-status-answers.jsonl");

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn object(value: &Value) -> Object {
    value.as_object().unwrap().clone()
}

/// A pod on this node. Its view is [`Sample::view`].
#[derive(Clone)]
struct Sample {
    spec: PodSpec,
    status: PodStatus,
    uid: String,
    mirror: bool,
    generation: Option<i64>,
    version: u64,
    stage: WorkerStage,
    host_ips: Vec<String>,
    copy: Option<Value>,
}

impl Sample {
    fn new(policy: &str, status: &Value) -> Self {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "c"}]});
        Self {
            spec: json::from_value(&spec).unwrap(),
            status: json::from_value(status).unwrap(),
            uid: "u".into(),
            mirror: false,
            generation: Some(1),
            version: 1,
            stage: WorkerStage::Running,
            host_ips: vec![NODE.into()],
            copy: None,
        }
    }

    fn view(&self) -> PodView<'_> {
        PodView {
            namespace: "rec",
            name: "p",
            uid: &self.uid,
            mirror: self.mirror,
            generation: self.generation,
            spec: &self.spec,
            status: &self.status,
            version: self.version,
            stage: self.stage,
            host_ips: &self.host_ips,
            copy: self.copy.as_ref(),
        }
    }

    fn form(&self) -> Value {
        api_form(&self.view()).into()
    }

    fn merged(&self, present: &Value, deletion: Deletion) -> Result<Value, Revived> {
        let form = api_form(&self.view());
        merge(&self.view(), form, &object(present), deletion, wall()).map(Value::from)
    }

    /// The status of a PATCH; null if there is none.
    fn sent(&self, present: &Value, deletion: Deletion) -> Value {
        let merged = self.merged(present, deletion).unwrap();
        let body = patch(&self.uid, &object(present), &object(&merged));
        body.map_or(Value::Null, |body| body["status"].clone())
    }

    fn stage(mut self, stage: WorkerStage) -> Self {
        self.stage = stage;
        self
    }

    fn changed(mut self, stage: WorkerStage) -> Self {
        self.version += 1;
        self.stage(stage)
    }
}

fn api_object(uid: &str, status: &Value) -> Value {
    json!({"kind": "Pod", "metadata": {"uid": uid}, "status": status})
}

fn deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-11-21T23:40:39Z");
    object
}

fn running() -> Value {
    json!({"phase": "Running", "qosClass": "BestEffort", "startTime": "2026-11-21T23:37:12Z",
        "podIP": "10.244.7.3", "podIPs": [{"ip": "10.244.7.3"}],
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T23:37:13Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-11-21T23:37:13Z"}],
        "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-11-21T23:37:13Z"}},
            "lastState": {}, "ready": true, "restartCount": 0, "image": "i", "imageID": "", "started": true}]})
}

/// A status whose container has ended with this code, in this phase.
fn ended(phase: &str, code: i32) -> Value {
    let mut status = running();
    status["phase"] = phase.into();
    status["containerStatuses"][0]["ready"] = false.into();
    status["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": code}});
    status
}

/// Applies a strategic merge patch of a status, as the API server does.
fn apply(status: &mut Object, changes: &Object) {
    for (key, value) in changes {
        let by = match key.as_str() {
            "conditions" => "type",
            "podIPs" | "hostIPs" => "ip",
            _ => "",
        };
        match (status.get_mut(key), value) {
            _ if key.starts_with('$') => {}
            (_, Value::Null) => {
                status.remove(key);
            }
            (Some(Value::Object(old)), Value::Object(new)) => apply(old, new),
            (Some(Value::Array(old)), Value::Array(new)) if !by.is_empty() => {
                apply_items(old, new, by);
                let order = changes[&format!("$setElementOrder/{key}")]
                    .as_array()
                    .unwrap();
                old.sort_by_key(|item| order.iter().position(|o| o[by] == item[by]));
            }
            _ => {
                status.insert(key.clone(), value.clone());
            }
        }
    }
}

fn apply_items(old: &mut Vec<Value>, new: &[Value], by: &str) {
    for item in new {
        let position = old.iter().position(|o| o[by] == item[by]);
        match position {
            Some(i) if item["$patch"] == "delete" => {
                old.remove(i);
            }
            Some(i) => apply(old[i].as_object_mut().unwrap(), &object(item)),
            None => old.push(item.clone()),
        }
    }
}

/// The status of a pod that has succeeded and needs no more changes.
fn succeeded() -> Value {
    let mut status = ended("Succeeded", 0);
    let condition = |type_: &str| {
        json!({"type": type_, "status": "False", "reason": "PodCompleted",
            "lastTransitionTime": "2026-11-21T23:37:13Z"})
    };
    status["conditions"] = json!([condition("Ready"), condition("ContainersReady")]);
    status
}

/// A publication whose request of that method is under way, and its pod.
fn under_way(method: &str) -> (Publication, Sample) {
    let mut publication = Publication::default();
    let mut sample = Sample::new("Never", &running());
    let mut present = api_object("u", &json!({"phase": "Pending"}));
    if method == "DELETE" {
        sample = Sample::new("Never", &succeeded()).stage(WorkerStage::Finished);
        present = deleted(api_object("u", &sample.form()));
    }
    assert!(
        publication
            .begin(at(0), wall(), &sample.view(), false)
            .is_some()
    );
    if method != "GET" {
        let next = publication.answered(at(0), wall(), &sample.view(), &Answer::new(200, present));
        let as_asked = match next {
            Next::Send(Request {
                method: Method::Patch,
                ..
            }) => method == "PATCH",
            Next::Send(Request {
                method: Method::Delete,
                ..
            }) => method == "DELETE",
            _ => false,
        };
        assert!(as_asked, "{next:?}");
    }
    (publication, sample)
}
