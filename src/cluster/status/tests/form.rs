//! The form of a status.

use super::*;

#[test]
fn what_is_empty_is_left_out() {
    let mut sample = Sample::new("Always", &json!({"phase": "Pending"}));
    sample.generation = None;
    sample.host_ips = Vec::new();
    assert_eq!(sample.form(), json!({"phase": "Pending"}));
}

#[test]
fn a_mirror_pod_has_no_observed_generation() {
    let mut sample = Sample::new("Always", &running());
    let form = sample.form();
    assert_eq!(form["observedGeneration"], 1);
    assert_eq!(form["conditions"][0]["observedGeneration"], 1);
    sample.mirror = true;
    let form = sample.form();
    assert_eq!(form["observedGeneration"], Value::Null);
    assert_eq!(form["conditions"][0]["observedGeneration"], Value::Null);
}

#[test]
fn both_addresses_of_a_node_are_shown_primary_first() {
    let mut sample = Sample::new("Always", &running());
    sample.host_ips.push("2001:db8::2".into());
    let form = sample.form();
    assert_eq!(form["hostIP"], NODE);
    assert_eq!(
        form["hostIPs"],
        json!([{"ip": NODE}, {"ip": "2001:db8::2"}])
    );
}

#[test]
fn the_times_of_an_end_are_null_when_they_are_not_known() {
    let form = Sample::new("Always", &ended("Failed", 1)).form();
    let state = &form["containerStatuses"][0]["state"];
    let expected = json!({"terminated": {"exitCode": 1, "startedAt": null, "finishedAt": null}});
    assert_eq!(*state, expected);
    assert_eq!(form["containerStatuses"][0]["lastState"], json!({}));
}

#[test]
fn empty_lists_of_resources_are_left_out() {
    let mut sample = Sample::new("Always", &running());
    sample.status.container_statuses[0].resources = Some(Default::default());
    let form = sample.form();
    assert_eq!(form["containerStatuses"][0]["resources"], json!({}));
}

#[track_caller]
fn check_user(user: Value, expected: Value) {
    let mut status = running();
    status["containerStatuses"][0]["user"] = user;
    let form = Sample::new("Always", &status).form();
    assert_eq!(form["containerStatuses"][0]["user"], expected);
}

#[test]
fn a_user_that_the_api_server_refuses_is_left_out() {
    let linux = |uid: u64, gid: u64, groups: &[u64]| json!({"linux": {"uid": uid, "gid": gid, "supplementalGroups": groups}});
    check_user(linux(0, 2147483647, &[7]), linux(0, 2147483647, &[7]));
    check_user(linux(4294967294, 0, &[]), Value::Null);
    check_user(linux(0, 2147483648, &[7]), Value::Null);
    check_user(linux(1, 2, &[3, 4294967294]), linux(1, 2, &[3]));
    check_user(
        linux(1, 2, &[4294967294]),
        json!({"linux": {"uid": 1, "gid": 2}}),
    );
}

#[test]
fn conditions_of_others_are_left_out_and_shared_ones_are_not() {
    let mut status = running();
    status["conditions"] = json!([
        {"type": "example.com/gate", "status": "True", "lastTransitionTime": null},
        {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": null}]);
    let form = Sample::new("Always", &status).form();
    let conditions = form["conditions"].as_array().unwrap().iter();
    let types: Vec<_> = conditions.map(|c| &c["type"]).collect();
    assert_eq!(types, ["DisruptionTarget"]);
}
