//! The differences of two statuses.

use super::*;

#[track_caller]
fn check(old: Value, new: Value, expected: Value) {
    let body = patch("u", &object(&old), &object(&new));
    let body = body.map_or(Value::Null, |mut body| {
        assert_eq!(body["metadata"], json!({"uid": "u"}));
        body["status"].take()
    });
    assert_eq!(body, expected);
}

#[test]
fn an_empty_list_of_conditions_is_never_sent() {
    check(json!({}), json!({"conditions": []}), Value::Null);
    check(json!({"conditions": []}), json!({}), Value::Null);
    check(
        json!({"conditions": []}),
        json!({"conditions": [], "phase": "Failed"}),
        json!({"phase": "Failed"}),
    );
    let some = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    check(
        some.clone(),
        json!({"conditions": []}),
        json!({"conditions": null}),
    );
    check(some, json!({}), json!({"conditions": null}));
}

#[test]
fn null_is_a_missing_field_and_quantities_are_amounts() {
    let status = |cpu: &str, time: Value| {
        json!({"startTime": time, "containerStatuses": [{"name": "c", "x": time,
            "allocatedResources": {"cpu": cpu}, "resources": {"limits": {"cpu": cpu}}}]})
    };
    check(
        status("0.01", Value::Null),
        status("10m", Value::Null),
        Value::Null,
    );
    let without = json!({"containerStatuses": [{"name": "c",
        "allocatedResources": {"cpu": "10m"}, "resources": {"limits": {"cpu": "10m"}}}]});
    check(status("10m", Value::Null), without.clone(), Value::Null);
    let more = status("11m", Value::Null)["containerStatuses"].clone();
    check(
        without,
        status("11m", Value::Null),
        json!({"containerStatuses": more}),
    );
}

#[test]
fn a_resource_more_is_a_difference() {
    let status = |limits: Value| json!({"containerStatuses": [{"name": "c", "resources": {"limits": limits}}]});
    let more = status(json!({"cpu": "1", "memory": "1Mi"}));
    check(status(json!({"cpu": "1"})), more.clone(), more);
}

#[test]
fn an_address_that_changes_goes_with_the_primary_one() {
    let status = |ips: &[&str]| {
        let list: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"podIP": ips[0], "podIPs": list})
    };
    check(
        status(&["10.0.0.1"]),
        status(&["10.0.0.2"]),
        json!({"podIP": "10.0.0.2", "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
            "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}]}),
    );
    check(
        status(&["10.0.0.1"]),
        status(&["10.0.0.1", "fd00::1"]),
        json!({"podIP": "10.0.0.1",
            "$setElementOrder/podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "podIPs": [{"ip": "fd00::1"}]}),
    );
}
