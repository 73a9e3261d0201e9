use super::*;
use crate::api::PodPhase;
use crate::workloads::observed::ObservedContainer;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(name: &str) -> ObservedPod {
    ObservedPod {
        name: name.into(),
        uid: name.into(),
        phase: PodPhase::Running,
        is_ready: true,
        is_in_table: true,
        ready_changed: Some(at(0)),
        ..ObservedPod::default()
    }
}

fn ended(name: &str, second: i64) -> ObservedPod {
    ObservedPod {
        phase: PodPhase::Failed,
        is_ready: false,
        created: at(second - 1),
        containers: vec![ObservedContainer {
            finished_at: Some(at(second)),
            ..ObservedContainer::default()
        }],
        ..pod(name)
    }
}

fn deleted(name: &str) -> ObservedPod {
    ObservedPod {
        is_deleted: true,
        ..pod(name)
    }
}

fn plan_at(replicas: i32, pods: &[ObservedPod], second: i64) -> ReplicaSetPlan {
    let none = ReplacementDelays::default();
    plan(replicas, pods, Duration::ZERO, &none, at(second))
}

#[track_caller]
fn check(replicas: i32, pods: &[ObservedPod], create: usize, delete: &[&str]) {
    let plan = plan_at(replicas, pods, 100);
    let uids: Vec<&str> = plan.delete.iter().map(PodUid::as_str).collect();
    assert_eq!((plan.create, uids.as_slice()), (create, delete));
}

#[test]
fn missing_pods_are_made_and_surplus_pods_are_ended() {
    check(3, &[pod("a")], 2, &[]);
    check(1, &[pod("b"), pod("a")], 0, &["b"]);
    check(0, &[pod("a")], 0, &["a"]);
    check(1, &[pod("a")], 0, &[]);
    check(-1, &[], 0, &[]);
    check(9_000, &[], 500, &[]);
}

#[test]
fn a_pod_that_is_ending_is_replaced_beside_it() {
    check(2, &[pod("a"), deleted("b")], 1, &[]);
    check(1, &[pod("a"), deleted("b")], 0, &[]);
}

#[test]
fn counts_are_of_active_pods_and_of_those_that_leave() {
    let mut gone = deleted("c");
    gone.phase = PodPhase::Succeeded;
    let mut late = pod("d");
    late.ready_changed = Some(at(95));
    let mut unknown = pod("e");
    unknown.is_in_table = false;
    let pods = [pod("a"), deleted("b"), gone, late, unknown, ended("f", 50)];
    let counts = PodCounts::of(&pods, Duration::from_secs(10), at(100));
    let expected = PodCounts {
        active: 3,
        ready: 3,
        available: 1,
        terminating: 1,
        leaving: 2,
        next_available_at: Some(at(105)),
    };
    assert_eq!(counts, expected);
}

#[test]
fn an_ended_pod_is_replaced_after_a_delay_that_doubles() {
    let mut delays = ReplacementDelays::default();
    let mut pods = Vec::new();
    let mut now = 1_000;
    for delay in [5, 10, 20, 40, 80, 160, 300, 300] {
        pods.push(ended(&format!("p{now}"), now));
        let held = plan(1, &pods, Duration::ZERO, &delays, at(now));
        assert_eq!((held.create, held.wake_at), (0, Some(at(now + delay))));
        let again = plan(1, &pods, Duration::ZERO, &held.delays, at(now + delay - 1));
        assert_eq!((again.create, &again.delays), (0, &held.delays));
        let released = plan(1, &pods, Duration::ZERO, &held.delays, at(now + delay));
        assert_eq!((released.create, released.wake_at), (1, None));
        delays = released.delays;
        now += delay;
    }
    // Ten calm minutes later the delay is short again.
    now += 700;
    pods.push(ended("last", now));
    let held = plan(1, &pods, Duration::ZERO, &delays, at(now));
    assert_eq!(held.wake_at, Some(at(now + 5)));
}

#[test]
fn a_delay_holds_no_more_than_the_replacements() {
    let pods = [ended("a", 100), pod("b")];
    let plan = plan_at(4, &pods, 100);
    assert_eq!(plan.create, 2);
    let text = serde_json::to_string(&plan.delays).unwrap();
    assert_eq!(
        serde_json::from_str::<ReplacementDelays>(&text).unwrap(),
        plan.delays
    );
}

#[test]
fn three_ended_pods_are_kept() {
    let pods: Vec<ObservedPod> = (1..=5).map(|n| ended(&format!("p{n}"), 10 * n)).collect();
    let removed: Vec<PodUid> = plan_at(1, &pods, 1_000).remove;
    assert_eq!(removed, [PodUid::from("p2"), PodUid::from("p1")]);
}

#[test]
fn a_failure_stays_until_a_plan_succeeds() {
    let plan = plan_at(2, &[pod("a")], 100);
    let first = SetFailure::after(None, &plan, Some("no memory"), at(100)).unwrap();
    assert_eq!(first.reason, "FailedCreate");
    let second = SetFailure::after(Some(first.clone()), &plan, Some("no port"), at(200));
    assert_eq!(second.as_ref(), Some(&first));
    assert_eq!(SetFailure::after(second, &plan, None, at(300)), None);
    let plan = plan_at(0, &[pod("a")], 100);
    let failure = SetFailure::after(None, &plan, Some("busy"), at(100)).unwrap();
    assert_eq!(failure.reason, "FailedDelete");
}

#[test]
fn the_status_has_upstreams_numbers() {
    let mut labeled = pod("a");
    labeled.labels.insert("app".into(), "web".into());
    let pods = [labeled, pod("b"), deleted("c")];
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let counts = PodCounts::of(&pods, Duration::ZERO, at(100));
    let failure = SetFailure {
        reason: "FailedCreate".into(),
        message: "no memory".into(),
        since: at(0),
    };
    let status = ReplicaSetStatus::of(&pods, &labels, counts, Some(&failure), 3);
    let expected = serde_json::json!({
        "replicas": 2,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "terminatingReplicas": 1,
        "observedGeneration": 3,
        "conditions": [{
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "reason": "FailedCreate",
            "message": "no memory",
        }],
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), expected);
}

#[test]
fn events_have_upstreams_words() {
    assert_eq!(created_event("web-x").message, "Created pod: web-x");
    assert_eq!(deleted_event("web-x").message, "Deleted pod: web-x");
    assert_eq!(
        create_failed_event("no memory").message,
        "Error creating: no memory"
    );
    assert_eq!(delete_failed_event("busy").message, "Error deleting: busy");
}
