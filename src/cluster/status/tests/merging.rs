//! A status over that of the API server.

use super::*;

fn types(status: &Value) -> Vec<&str> {
    let conditions = status["conditions"].as_array().unwrap().iter();
    conditions.map(|c| c["type"].as_str().unwrap()).collect()
}

#[test]
fn what_others_have_set_stays() {
    let present = json!({"phase": "Pending", "qosClass": "Burstable", "resize": "Proposed",
        "resourceClaimStatuses": [{"name": "r"}],
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "example.com/gate", "status": "True", "lastProbeTime": null},
            {"type": "PodResizePending", "status": "True"},
            {"type": "DisruptionTarget", "status": "True"}]});
    let mut sample = Sample::new("Always", &running());
    sample.status.qos_class = String::new();
    let merged = sample.merged(&present, Deletion::None).unwrap();
    assert_eq!(
        types(&merged),
        [
            "example.com/gate",
            "DisruptionTarget",
            "Ready",
            "ContainersReady"
        ]
    );
    assert_eq!(merged["qosClass"], "Burstable");
    assert_eq!(merged["resize"], "Proposed");
    assert_eq!(merged["resourceClaimStatuses"], json!([{"name": "r"}]));
    let sent = sample.sent(&present, Deletion::None);
    let conditions = sent["conditions"].as_array().unwrap();
    let gone = json!({"$patch": "delete", "type": "PodResizePending"});
    assert!(conditions.contains(&gone), "{sent}");
}

/// Others may say so of a pod that runs. The node says it of one that it has ended, when nothing of it runs any more.
#[test]
fn the_end_by_the_node_is_told_with_the_phase() {
    let of_others = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "lastProbeTime": null, "lastTransitionTime": "2026-11-21T23:37:00Z"});
    let present = json!({"phase": "Running", "conditions": [of_others]});
    let reason = |status: &Value| {
        let merged = Sample::new("Always", status).merged(&present, Deletion::None);
        let merged = merged.unwrap();
        let all = merged["conditions"].as_array().unwrap();
        let mut found = all.iter().filter(|c| c["type"] == "DisruptionTarget");
        let reason = found.next().unwrap()["reason"].clone();
        assert!(found.next().is_none());
        reason
    };
    let own = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
        "lastTransitionTime": "2026-11-21T23:38:00Z"});
    let mut status = running();
    status["conditions"].as_array_mut().unwrap().push(own);
    assert_eq!(reason(&status), "EvictionByEvictionAPI");
    status["phase"] = "Failed".into();
    status["containerStatuses"] = json!([]);
    assert_eq!(reason(&status), "TerminationByKubelet");
}

#[test]
fn the_condition_of_the_scheduler_is_not_overwritten() {
    let scheduled = json!({"type": "PodScheduled", "status": "True", "reason": "ByHand",
        "lastProbeTime": null, "lastTransitionTime": "2026-11-21T23:37:00Z"});
    let present = json!({"phase": "Pending", "conditions": [scheduled]});
    let mut status = running();
    let own = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T23:37:12Z"});
    status["conditions"].as_array_mut().unwrap().push(own);
    let sent = Sample::new("Always", &status).sent(&present, Deletion::None);
    let expected = json!({"type": "PodScheduled", "observedGeneration": 1});
    assert_eq!(sent["conditions"][2], expected);
    let rejected = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "m"});
    let sample = Sample::new("Always", &rejected).stage(WorkerStage::Stopped);
    let sent = sample.sent(&present, Deletion::None);
    assert_eq!(
        sent,
        json!({"phase": "Failed", "reason": "OutOfcpu", "message": "m", "hostIP": NODE,
            "hostIPs": [{"ip": NODE}], "observedGeneration": 1})
    );
}

#[test]
fn what_the_node_knows_of_its_own_is_sent() {
    let mut status = running();
    status["initContainerStatuses"] = status["containerStatuses"].clone();
    let sample = Sample::new("Always", &status);
    let sent = sample.sent(&json!({"phase": "Pending"}), Deletion::None);
    assert_eq!(sent["qosClass"], "BestEffort");
    assert_eq!(sent["initContainerStatuses"][0]["name"], "c");
    let present = sample.merged(&json!({}), Deletion::None).unwrap();
    let sample = Sample::new("Always", &running());
    let sent = sample.sent(&present, Deletion::None);
    assert_eq!(sent, json!({"initContainerStatuses": null}));
}

#[test]
fn the_start_time_never_changes() {
    let present = json!({"phase": "Running", "startTime": "2026-11-20T00:00:00Z"});
    let sample = Sample::new("Always", &running());
    let merged = sample.merged(&present, Deletion::None).unwrap();
    assert_eq!(merged["startTime"], "2026-11-20T00:00:00Z");
    let merged = sample.merged(&json!({}), Deletion::None).unwrap();
    assert_eq!(merged["startTime"], "2026-11-21T23:37:12Z");
}

#[test]
fn a_transition_time_that_is_not_known_is_taken_over() {
    let mut sample = Sample::new("Always", &running());
    sample.status.conditions[0].last_transition_time = None;
    let time = |status: &str| {
        let before = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-11-20T00:00:00Z"});
        let present = json!({"conditions": [before]});
        let merged = sample.merged(&present, Deletion::None).unwrap();
        merged["conditions"][0]["lastTransitionTime"].clone()
    };
    assert_eq!(time("True"), "2026-11-20T00:00:00Z");
    assert_eq!(time("False"), "2026-11-21T23:59:59Z");
}

/// Otherwise the two would differ for ever: the API server keeps a generation that is not sent.
#[test]
fn a_generation_that_is_not_known_is_taken_over() {
    let mut sample = Sample::new("Always", &running());
    sample.generation = None;
    let present = json!({"observedGeneration": 4,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 4}]});
    let merged = sample.merged(&present, Deletion::None).unwrap();
    assert_eq!(merged["observedGeneration"], 4);
    assert_eq!(merged["conditions"][0]["observedGeneration"], 4);
    assert_eq!(merged["conditions"][1]["observedGeneration"], Value::Null);
}

#[track_caller]
fn check_phase(sample: &Sample, present: &str, deletion: Deletion, expected: [&str; 2]) {
    let present = json!({"phase": present, "reason": "Before"});
    let merged = sample.merged(&present, deletion).unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let got = [&merged["phase"], &merged["reason"]].map(text);
    assert_eq!(got, expected.map(str::to_owned));
    let is_over = ["Failed", "Succeeded"];
    let over = is_over.contains(&expected[0]) || sample.status.phase.is_terminal();
    let ready = &merged["conditions"][0];
    assert_eq!(ready["status"], ["True", "False"][usize::from(over)]);
    assert_eq!(ready["reason"].is_null(), !over);
}

#[test]
fn a_terminal_phase_waits_until_no_container_can_run() {
    let failed = Sample::new("Always", &ended("Failed", 1));
    let none = Deletion::None;
    check_phase(&failed, "Running", none, ["Running", "Before"]);
    let stopped = failed.clone().stage(WorkerStage::Stopped);
    check_phase(&stopped, "Running", none, ["Failed", ""]);
    let mirror = Sample {
        mirror: true,
        ..failed
    };
    check_phase(&mirror, "Running", none, ["Running", "Before"]);
}

#[test]
fn a_terminal_phase_stays_but_that_of_a_mirror_pod() {
    let again = Sample::new("Always", &running());
    check_phase(&again, "Failed", Deletion::None, ["Failed", "Before"]);
    let mirror = Sample {
        mirror: true,
        ..again
    };
    check_phase(&mirror, "Failed", Deletion::None, ["Running", ""]);
}

#[test]
fn a_deleted_pod_ends_in_a_terminal_phase_by_its_exit_codes() {
    let asked = Deletion::Requested;
    let check = |code, expected| {
        let still = Sample::new("Always", &ended("Running", code));
        check_phase(&still, "Running", asked, ["Running", ""]);
        let stopped = still.clone().stage(WorkerStage::Stopped);
        check_phase(&stopped, "Running", asked, [expected, ""]);
        check_phase(&stopped, "Running", Deletion::None, ["Running", ""]);
        let mirror = Sample {
            mirror: true,
            ..stopped
        };
        check_phase(&mirror, "Running", asked, ["Running", ""]);
    };
    check(0, "Succeeded");
    check(137, "Failed");
    let over = Sample::new("Always", &ended("Failed", 0)).stage(WorkerStage::Stopped);
    check_phase(&over, "Running", asked, ["Failed", ""]);
}

#[test]
fn a_deleted_pod_has_failed_if_a_container_has_not_ended() {
    let mut sample = Sample::new("Always", &ended("Running", 0)).stage(WorkerStage::Finished);
    let two = json!({"containers": [{"name": "c"}, {"name": "d"}]});
    sample.spec = json::from_value(&two).unwrap();
    check_phase(&sample, "Running", Deletion::Requested, ["Failed", ""]);
    let init = |policy: Value| {
        let init = json!({"name": "i", "restartPolicy": policy});
        json!({"containers": [{"name": "c"}], "initContainers": [init]})
    };
    sample.spec = json::from_value(&init(Value::Null)).unwrap();
    check_phase(&sample, "Running", Deletion::Requested, ["Failed", ""]);
    sample.spec = json::from_value(&init("Always".into())).unwrap();
    check_phase(&sample, "Running", Deletion::Requested, ["Succeeded", ""]);
}

#[test]
fn a_pod_that_has_ended_is_not_ready() {
    let present = json!({"phase": "Running"});
    for (phase, reason) in [("Failed", "PodFailed"), ("Succeeded", "PodCompleted")] {
        let mut sample = Sample::new("Never", &running()).stage(WorkerStage::Stopped);
        sample.status.phase = json::from_value(&phase.into()).unwrap();
        sample.status.conditions[1].status = "False".into();
        sample.status.conditions[1].message = "m".into();
        let merged = sample.merged(&present, Deletion::None).unwrap();
        let condition = |type_: &str, time: &str| {
            json!({"type": type_, "status": "False", "reason": reason, "lastProbeTime": null,
                "observedGeneration": 1, "lastTransitionTime": time})
        };
        let expected = json!([
            condition("Ready", "2026-11-21T23:59:59Z"),
            condition("ContainersReady", "2026-11-21T23:37:13Z")
        ]);
        assert_eq!(merged["conditions"], expected);
    }
}

#[track_caller]
fn check_revived(spec: Value, list: &str, code: i32, after: Value, refused: bool) {
    let mut before = json!({"phase": "Running"});
    before[list] = json!([{"name": "c", "state": {"terminated": {"exitCode": code}}}]);
    let mut status = json!({"phase": "Running"});
    status[list] = after;
    let mut sample = Sample::new("Always", &status);
    sample.spec = json::from_value(&spec).unwrap();
    let merged = sample.merged(&before, Deletion::None);
    assert_eq!(merged.is_err(), refused, "{spec} {code} {merged:?}");
}

#[test]
fn a_container_that_ended_for_good_is_not_sent_alive() {
    const LIST: &str = "containerStatuses";
    const INIT: &str = "initContainerStatuses";
    let spec = |policy: &str| json!({"restartPolicy": policy, "containers": [{"name": "c"}]});
    let alive = || json!([{"name": "c", "state": {"running": {"startedAt": null}}}]);
    let waiting = || json!([{"name": "c", "state": {"waiting": {}}}]);
    let stateless = || json!([{"name": "c"}]);
    for after in [alive, waiting, stateless] {
        check_revived(spec("Never"), LIST, 1, after(), true);
        check_revived(spec("OnFailure"), LIST, 0, after(), true);
        check_revived(spec("OnFailure"), LIST, 1, after(), false);
        check_revived(spec("Always"), LIST, 0, after(), false);
    }
    let over = json!([{"name": "c", "state": {"terminated": {"exitCode": 9}}}]);
    check_revived(spec("Never"), LIST, 1, over, false);
    check_revived(spec("Never"), LIST, 1, json!([]), false);
    let mut own = spec("Always");
    own["containers"][0]["restartPolicy"] = "Never".into();
    check_revived(own, LIST, 1, alive(), false);
    let init = |policy: Value| {
        let init = json!([{"name": "c", "restartPolicy": policy}]);
        json!({"restartPolicy": "OnFailure", "containers": [{"name": "d"}], "initContainers": init})
    };
    check_revived(init(Value::Null), INIT, 0, alive(), true);
    check_revived(init("Always".into()), INIT, 0, alive(), false);
    let rule =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]);
    let own = json!([{"name": "c", "restartPolicy": "Never", "restartPolicyRules": rule}]);
    let all = json!({"restartPolicy": "Never", "containers": own});
    check_revived(all, LIST, 1, alive(), false);
}
