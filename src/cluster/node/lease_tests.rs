//! Tests of the Lease, most of them against recorded exchanges.

use super::*;
use crate::cluster::node::recorded::{answer, assert_request, exchanges, wall};

const SECOND: Duration = Duration::from_secs(1);

/// A moment of the recording.
fn moment(t_ms: &Value) -> Moment {
    Moment::from_boot(Duration::from_millis(1_000_000 + t_ms.as_u64().unwrap()))
}

/// The recorded exchanges between two times.
fn between(from: u64, to: u64) -> Vec<Value> {
    let is_in = |e: &Value| (from..=to).contains(&e["t_ms"].as_u64().unwrap());
    exchanges("lease").into_iter().filter(is_in).collect()
}

/// The wall-clock time of a recorded request.
fn time_of(exchange: &Value) -> SystemTime {
    let sent = exchange["req_body"]["spec"]["renewTime"].as_str();
    wall(sent.unwrap_or("2026-11-21T23:35:33Z"))
}

/// The request that the Lease sends at the time of a recorded one, `None` while it waits.
fn request(lease: &Lease, exchange: &Value, uid: Option<&str>) -> Option<Request> {
    match lease.next(moment(&exchange["t_ms"]), time_of(exchange), uid) {
        Step::Send(request) => Some(request),
        Step::Wait(_) => None,
    }
}

/// Asserts that a request does what the kubelet's recorded one did. The kubelet replaces the whole Lease to renew it.
#[track_caller]
fn assert_same(request: &Request, exchange: &Value) {
    assert_eq!(request.path, exchange["path"].as_str().unwrap());
    if request.method != Method::Patch {
        return assert_request(request, exchange);
    }
    assert_eq!("PUT", exchange["method"]);
    let recorded = &exchange["req_body"];
    let patch = json!({
        "metadata": {"resourceVersion": recorded["metadata"]["resourceVersion"]},
        "spec": {"renewTime": recorded["spec"]["renewTime"]},
    });
    assert_eq!(request.body.as_ref(), Some(&patch));
}

/// Asserts that the Lease sends what the kubelet sent, and hands the recorded answers over.
#[track_caller]
fn replay(lease: &mut Lease, recorded: &[Value], uid: &str) {
    for exchange in recorded {
        let request = request(lease, exchange, Some(uid)).expect("a request");
        assert_same(&request, exchange);
        lease.answered(moment(&exchange["t_ms"]), &answer(exchange), 0.0);
    }
}

/// A Lease that is about to do what the recorded PUT did, after a renewal that has succeeded.
fn about_to_renew(put: &Value) -> Lease {
    let mut lease = Lease::new("node1");
    let before = Answer::new(200, put["req_body"].clone());
    let earlier = moment(&put["t_ms"]) - RENEW_PERIOD;
    lease.answered(earlier, &before, 0.0);
    lease.answered(earlier, &before, 0.0);
    lease
}

const UID: &str = "6b03b4d0-4983-45a9-a817-06b498a9eafa";

#[test]
fn a_lease_is_created_once_there_is_a_node_and_renewed() {
    let recorded = between(0, 60_000);
    let mut lease = Lease::new("node1");
    assert_request(&request(&lease, &recorded[0], None).unwrap(), &recorded[0]);
    lease.answered(moment(&recorded[0]["t_ms"]), &answer(&recorded[0]), 0.0);
    assert_eq!(request(&lease, &recorded[1], None), None);
    // The kubelet asks once more before it creates the Lease.
    replay(&mut lease, &recorded[2..5], UID);
}

#[test]
fn a_lease_that_has_changed_is_read_and_renewed_at_once() {
    let recorded = between(286_000, 297_000);
    replay(&mut about_to_renew(&recorded[0]), &recorded, UID);
}

#[test]
fn a_lease_that_was_deleted_is_created_again() {
    let recorded = between(796_000, 807_000);
    let mut lease = about_to_renew(&recorded[0]);
    replay(&mut lease, &recorded[..3], UID);
    // The kubelet renews what it has just created.
    assert_eq!(request(&lease, &recorded[3], Some(UID)), None);
    let mut last = recorded[4].clone();
    last["req_body"]["metadata"]["resourceVersion"] = "1135".into();
    replay(&mut lease, &[last], UID);
}

#[test]
fn a_lease_waits_for_the_node_that_was_deleted() {
    let recorded = between(891_000, 940_000);
    let mut lease = about_to_renew(&recorded[0]);
    replay(&mut lease, &recorded[..2], UID);
    let (post, put) = (&recorded[recorded.len() - 2], recorded.last().unwrap());
    assert_eq!(request(&lease, post, None), None);
    let new_uid = "0b85fa2a-a855-4548-80f7-181cbb214a3b";
    replay(&mut lease, &[post.clone(), put.clone()], new_uid);
}

#[test]
fn without_a_connection_five_tries_are_followed_by_gets() {
    let recorded = between(568_000, 612_000);
    let mut lease = about_to_renew(&recorded[0]);
    replay(&mut lease, &recorded[..6], UID);
    let mut now = moment(&recorded[5]["t_ms"]);
    for delay in [200, 400, 800, 1600, 3200, 6400, 7000] {
        let until = now + Duration::from_millis(delay);
        let step = lease.next(now, SystemTime::UNIX_EPOCH, Some(UID));
        assert_eq!(step, Step::Wait(until));
        now = until;
        lease.answered(now, &Answer::NoConnection, 0.0);
    }
    let gets = recorded.iter().position(|e| e["status"] == 200).unwrap();
    replay(&mut lease, &recorded[gets..gets + 2], UID);
}

#[test]
fn what_can_be_read_but_not_renewed_waits_for_the_next_period() {
    let recorded = between(568_000, 612_000);
    let mut lease = about_to_renew(&recorded[0]);
    let now = moment(&recorded[0]["t_ms"]);
    let failed = Answer::new(500, Value::Null);
    for _ in 0..5 {
        lease.answered(now, &failed, 0.0);
    }
    lease.answered(now, &Answer::new(200, recorded[0]["req_body"].clone()), 0.0);
    for _ in 0..5 {
        assert!(request(&lease, &recorded[0], None).is_some());
        lease.answered(now, &failed, 0.0);
    }
    let step = lease.next(now, SystemTime::UNIX_EPOCH, None);
    assert_eq!(step, Step::Wait(now + RENEW_PERIOD));
}

#[test]
fn a_lease_that_changes_all_the_time_waits_for_the_next_period() {
    let recorded = between(286_000, 297_000);
    let (conflict, read) = (answer(&recorded[0]), answer(&recorded[1]));
    let mut lease = about_to_renew(&recorded[0]);
    let now = moment(&recorded[0]["t_ms"]);
    for _ in 0..4 {
        lease.answered(now, &conflict, 0.0);
        lease.answered(now, &read, 0.0);
    }
    lease.answered(now, &conflict, 0.0);
    let step = lease.next(now, SystemTime::UNIX_EPOCH, None);
    assert_eq!(step, Step::Wait(now + RENEW_PERIOD));
}

#[test]
fn retry_after_is_kept() {
    let put = &between(286_000, 297_000)[0];
    let mut lease = about_to_renew(put);
    let now = moment(&put["t_ms"]);
    let busy = Answer::Status {
        code: 429,
        body: Value::Null,
        retry_after: Some(SECOND),
    };
    lease.answered(now, &busy, 0.0);
    assert_eq!(request(&lease, put, Some(UID)), None);
    let step = lease.next(now + SECOND, time_of(put), Some(UID));
    assert!(matches!(step, Step::Send(r) if r.method == Method::Patch));
}

#[test]
fn the_owner_is_the_node_that_is_registered_now_and_no_other() {
    let put = &between(286_000, 297_000)[0];
    let lease = about_to_renew(put);
    let body = request(&lease, put, Some("new")).unwrap().body.unwrap();
    let owners = body["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["uid"]), (1, &"new".into()));
}

#[test]
fn a_success_begins_everything_anew() {
    let put = &between(286_000, 297_000)[0];
    let body = put["req_body"].clone();
    let mut lease = about_to_renew(put);
    let now = moment(&put["t_ms"]);
    for _ in 0..2 {
        for _ in 0..4 {
            lease.answered(now, &Answer::NoConnection, 0.0);
            assert_eq!(request(&lease, put, None).unwrap().method, Method::Patch);
        }
        // The renewal is due again when the next one is asked for.
        let earlier = now - RENEW_PERIOD;
        lease.answered(earlier, &Answer::new(200, body.clone()), 0.0);
    }
    for _ in 0..5 {
        lease.answered(now, &Answer::NoConnection, 0.0);
    }
    for _ in 0..2 {
        lease.answered(now, &Answer::NoConnection, 0.0);
    }
    lease.answered(now, &Answer::new(200, body.clone()), 0.0);
    lease.answered(now, &Answer::new(200, body), 0.0);
    for _ in 0..6 {
        lease.answered(now, &Answer::NoConnection, 0.0);
    }
    let step = lease.next(now, SystemTime::UNIX_EPOCH, None);
    assert_eq!(step, Step::Wait(now + BackOff::FIRST));
}

#[test]
fn a_lease_that_is_not_found_is_read() {
    let put = &between(286_000, 297_000)[0];
    let mut lease = about_to_renew(put);
    lease.answered(moment(&put["t_ms"]), &Answer::new(404, Value::Null), 0.0);
    assert_eq!(request(&lease, put, None).unwrap().method, Method::Get);
}

#[test]
fn renewals_have_jitter() {
    let put = &between(286_000, 297_000)[0];
    let mut lease = about_to_renew(put);
    let now = moment(&put["t_ms"]);
    lease.answered(now, &Answer::new(200, put["req_body"].clone()), 1.0);
    let step = lease.next(now, SystemTime::UNIX_EPOCH, None);
    assert_eq!(step, Step::Wait(now + Duration::from_millis(10_400)));
}

/// A Lease that is to have more than another time is replaced: its owner is gone, or somebody else has written into it.
#[test]
fn what_is_not_as_it_ought_to_be_is_replaced() {
    let put = &between(286_000, 297_000)[0];
    let whole = &put["req_body"];
    let with = |edit: fn(&mut Value)| {
        let mut base = whole.clone();
        // The API server keeps the managers of fields; they are half of a Lease.
        base["metadata"]["managedFields"] = json!([{"manager": "m"}]);
        edit(&mut base);
        let mut lease = Lease::new("node1");
        let earlier = moment(&put["t_ms"]) - RENEW_PERIOD;
        lease.answered(earlier, &Answer::new(200, base), 0.0);
        request(&lease, put, Some(UID)).unwrap()
    };
    assert_eq!(with(|_| ()).method, Method::Patch);
    for edit in [
        |base: &mut Value| base["metadata"]["ownerReferences"][0]["uid"] = "old".into(),
        |base: &mut Value| base["metadata"]["ownerReferences"] = json!([]),
        |base: &mut Value| base["spec"]["holderIdentity"] = "another".into(),
        |base: &mut Value| base["spec"]["leaseDurationSeconds"] = 4000.into(),
        |base: &mut Value| base["spec"]["strategy"] = "OldestEmulationVersion".into(),
        |base: &mut Value| base["spec"] = Value::Null,
    ] {
        let sent = with(edit);
        assert_eq!(
            (sent.method, sent.body.as_ref()),
            (Method::Put, Some(whole))
        );
    }
}
