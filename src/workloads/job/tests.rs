//! Rules of Jobs that take several steps to see.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::test_node::{TestNode, indexed, names};
use super::*;
use crate::workloads::EventKind;

/// The conditions that are True or False, as `Type=True`.
fn conditions(step: &JobStep) -> Vec<String> {
    let text = |it: &JobCondition| format!("{:?}={}", it.type_, it.status);
    step.status.conditions.iter().map(text).collect()
}

fn events(step: &JobStep) -> Vec<&'static str> {
    step.events.iter().map(|event| event.reason).collect()
}

fn deleted(step: &JobStep) -> Vec<(&str, DeletionReason)> {
    let pair = |it: &'_ PodDeletion| it.reason;
    let deletions = step.deletions.iter();
    deletions
        .map(|it| (it.pod.name.as_str(), pair(it)))
        .collect()
}

fn wakes_in(node: &TestNode, step: &JobStep) -> Option<i64> {
    let wait = |time: Timestamp| time.duration_since(node.now).as_secs();
    step.wake_at.map(wait)
}

/// A node whose Job has made its first pods.
fn started(spec: Value) -> TestNode {
    let mut node = TestNode::new(spec);
    node.step();
    node
}

/// A node whose Job of one pod is complete.
fn completed(spec: Value) -> TestNode {
    let mut node = started(spec);
    node.end("a", 0);
    node.step();
    assert!(node.state.is_finished());
    node
}

#[test]
fn a_suspended_job_ends_its_pods_and_counts_none() {
    let mut node = started(json!({"backoffLimit": 0, "podReplacementPolicy": "Failed"}));
    node.spec.suspend = Some(true);
    let step = node.step();
    assert_eq!(deleted(&step), [("a", DeletionReason::Suspended)]);
    assert_eq!((step.status.active, step.status.terminating), (0, 1));
    node.end("a", 137);
    let step = node.step();
    assert_eq!((step.status.failed, events(&step)), (0, vec![]));
    assert_eq!(names(&step.removable), ["a"]);
    assert_eq!(conditions(&step), ["Suspended=True"]);
}

#[test]
fn a_job_does_not_fail_by_a_pod_that_it_suspended() {
    let mut node = started(json!({"podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    ]}}));
    node.spec.suspend = Some(true);
    node.step();
    node.end("a", 143);
    assert_eq!(conditions(&node.step()), ["Suspended=True"]);
    node.spec.suspend = None;
    assert_eq!(conditions(&node.step()), ["Suspended=False"]);
    node.end("b", 1);
    let step = node.step();
    assert_eq!(
        conditions(&step),
        ["Suspended=False", "FailureTarget=True", "Failed=True"]
    );
}

#[test]
fn the_deadline_counts_from_the_resumption() {
    let mut node = started(json!({"activeDeadlineSeconds": 100}));
    node.wait(90);
    node.spec.suspend = Some(true);
    let step = node.step();
    assert_eq!((step.status.start_time, step.wake_at), (None, None));
    node.end("a", 143);
    node.wait(1000);
    assert_eq!(node.step().wake_at, None);
    node.spec.suspend = Some(false);
    let step = node.step();
    assert_eq!(events(&step), ["Resumed"]);
    assert_eq!(
        (step.creations.len(), wakes_in(&node, &step)),
        (1, Some(100))
    );
    assert_eq!(node.state.start, Some(node.now));
    node.wait(99);
    assert_eq!(deleted(&node.step()), []);
    node.wait(1);
    let step = node.step();
    assert_eq!(deleted(&step), [("b", DeletionReason::JobFailed)]);
    assert_eq!((step.wake_at, step.status.failed), (None, 1));
}

#[test]
fn a_job_that_begins_suspended_has_no_start() {
    let mut node = TestNode::new(json!({"suspend": true, "activeDeadlineSeconds": 0}));
    let step = node.step();
    assert_eq!((step.creations.len(), step.status.start_time), (0, None));
    assert_eq!(events(&step), ["Suspended"]);
    assert_eq!(events(&node.step()), Vec::<&str>::new(), "it is told once");
}

#[test]
fn a_pod_that_is_being_deleted_is_replaced_after_the_back_off_beside_it() {
    let mut node = started(json!({}));
    node.delete("a");
    let step = node.step();
    assert_eq!(
        (step.creations.len(), wakes_in(&node, &step)),
        (0, Some(10))
    );
    assert_eq!((step.status.failed, step.status.terminating), (1, 1));
    node.sleep(&step);
    assert_eq!(node.step().creations.len(), 1);
    node.end("a", 1);
    let step = node.step();
    assert_eq!(step.status.failed, 1, "it is counted once");
    assert_eq!(names(&step.removable), ["a"]);
}

#[test]
fn with_policy_failed_a_pod_is_replaced_when_it_has_ended() {
    let mut node = started(json!({"podReplacementPolicy": "Failed"}));
    node.delete("a");
    let step = node.step();
    assert_eq!((step.creations.len(), step.wake_at), (0, None));
    assert_eq!((step.status.failed, step.status.terminating), (0, 1));
    node.wait(60);
    node.end("a", 1);
    let step = node.step();
    assert_eq!((step.status.failed, wakes_in(&node, &step)), (1, Some(10)));
    node.sleep(&step);
    assert_eq!(node.step().creations.len(), 1);
}

#[test]
fn with_policy_failed_an_index_is_taken_until_its_pod_has_ended() {
    let mut node = started(indexed(2, 4, json!({"podReplacementPolicy": "Failed"})));
    node.delete("a");
    assert_eq!(node.step().creations, []);
    node.spec.parallelism = Some(3);
    node.step();
    assert_eq!(node.active_indexes(), ["1", "2"], "index 0 still ends");
}

#[test]
fn a_deletion_that_is_written_is_done_after_a_crash() {
    let mut node = started(json!({"parallelism": 2, "completions": 4}));
    node.spec.parallelism = Some(1);
    let step = node.decide();
    assert_eq!(deleted(&step), [("a", DeletionReason::TooMany)]);
    node.write(&step);
    node.spec.parallelism = Some(2);
    let step = node.step();
    assert_eq!(deleted(&step), [("a", DeletionReason::TooMany)]);
    assert_eq!(node.active(), ["b", "c"], "a does not count any more");
    node.end("a", 0);
    let step = node.step();
    assert_eq!((step.status.succeeded, step.status.failed), (0, 0));
    assert_eq!(names(&step.removable), ["a"]);
    node.remove(&step.removable);
    node.step();
    assert_eq!(
        (node.state.deletions.len(), node.state.settled.len()),
        (0, 0)
    );
}

#[test]
fn a_pod_is_counted_once_although_its_record_stays() {
    let mut node = started(json!({"parallelism": 1, "completions": 3}));
    node.end("a", 0);
    assert_eq!(node.step().status.succeeded, 1);
    assert_eq!(node.step().status.succeeded, 1);
    assert_eq!(
        node.decide().removable,
        [],
        "its log stays until the Job goes"
    );
    node.end("b", 0);
    assert_eq!(node.step().status.succeeded, 2);
}

#[test]
fn the_back_off_outlives_the_daemon() {
    let mut node = started(json!({"completions": 1}));
    for (pod, wait) in [("a", 10), ("b", 20), ("c", 40)] {
        node.end(pod, 1);
        let step = node.step();
        assert_eq!(wakes_in(&node, &step), Some(wait));
        assert_eq!(step.status.active, 0);
        node.sleep(&step);
        assert_eq!(node.step().creations.len(), 1);
    }
    assert_eq!(node.state.back_off.failures, 3);
}

#[test]
fn the_earlier_of_deadline_and_back_off_wakes() {
    let mut node = started(json!({"activeDeadlineSeconds": 7}));
    node.end("a", 1);
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(7));
    node.spec.active_deadline_seconds = Some(70);
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(10));
}

#[test]
fn a_finished_job_never_runs_again() {
    let mut node = completed(json!({}));
    assert!(node.state.completion.is_some());
    node.pods.clear();
    let step = node.step();
    assert_eq!((step.creations.len(), step.wake_at), (0, None));
    node.spec.parallelism = Some(5);
    node.spec.completions = Some(5);
    let step = node.step();
    assert_eq!((step.creations, step.events), (vec![], vec![]));
    assert_eq!(
        conditions(&node.decide()),
        ["SuccessCriteriaMet=True", "Complete=True"]
    );
}

#[test]
fn a_failed_job_has_no_completion_time() {
    let mut node = started(json!({"backoffLimit": 0}));
    node.end("a", 1);
    let step = node.step();
    assert_eq!(conditions(&step), ["FailureTarget=True", "Failed=True"]);
    assert_eq!(step.status.completion_time, None);
    assert!(step.state.finish_time().is_some());
}

#[test]
fn a_job_goes_some_time_after_its_end_and_leaves_a_stub() {
    let mut node = completed(json!({"ttlSecondsAfterFinished": 60}));
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(60));
    node.wait(59);
    let step = node.step();
    assert_eq!(
        (names(&step.removable), step.state.is_removed),
        (vec![], false)
    );
    node.wait(1);
    let step = node.step();
    assert_eq!(
        (names(&step.removable), step.state.is_removed),
        (vec!["a"], true)
    );
    assert_eq!(step.wake_at, None);
    let step = node.step();
    assert_eq!(names(&step.removable), ["a"], "a crash loses no removal");
    node.remove(&step.removable);
    let step = node.step();
    assert_eq!((step.creations, step.wake_at), (vec![], None));
    assert!(step.state.is_removed && step.state.is_finished());
}

#[test]
fn the_step_that_finishes_a_job_names_the_time_of_its_removal() {
    let mut node = started(json!({"ttlSecondsAfterFinished": 0}));
    node.end("a", 0);
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(0));
    assert_eq!((step.removable.len(), step.state.is_removed), (0, false));
    assert!(node.step().state.is_removed);
}

#[test]
fn a_finish_time_in_the_future_waits() {
    let mut node = completed(json!({"ttlSecondsAfterFinished": 60}));
    node.now -= SignedDuration::from_secs(1000);
    let step = node.step();
    assert_eq!(
        (wakes_in(&node, &step), step.state.is_removed),
        (Some(1060), false)
    );
}

#[test]
fn the_pod_of_a_failed_job_keeps_its_log() {
    let mut node = started(json!({"activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 9}));
    node.wait(5);
    assert_eq!(deleted(&node.step()), [("a", DeletionReason::JobFailed)]);
    node.end("a", 143);
    let step = node.step();
    assert_eq!(conditions(&step), ["FailureTarget=True", "Failed=True"]);
    assert_eq!((names(&step.removable), step.status.failed), (vec![], 1));
    node.wait(9);
    assert_eq!(names(&node.step().removable), ["a"]);
}

#[test]
fn the_rest_of_a_job_whose_success_policy_is_met_goes_uncounted() {
    let policy = json!({"successPolicy": {"rules": [{"succeededCount": 1}]}});
    let mut node = started(indexed(2, 2, policy));
    node.end("b", 0);
    let step = node.step();
    assert_eq!(deleted(&step), [("a", DeletionReason::JobSucceeded)]);
    assert_eq!(conditions(&step), ["SuccessCriteriaMet=True"]);
    assert_eq!((step.status.completion_time, events(&step)), (None, vec![]));
    node.end("a", 143);
    let step = node.step();
    assert_eq!(
        conditions(&step),
        ["SuccessCriteriaMet=True", "Complete=True"]
    );
    assert_eq!((step.status.succeeded, step.status.failed), (1, 0));
    assert_eq!(
        (names(&step.removable), events(&step)),
        (vec!["a"], vec!["Completed"])
    );
}

#[test]
fn too_many_successes_are_told() {
    let mut node = started(json!({"parallelism": 2, "completions": 2}));
    node.spec.completions = Some(1);
    node.end("a", 0);
    node.end("b", 0);
    let step = node.step();
    assert_eq!(events(&step), ["TooManySucceededPods", "Completed"]);
    assert_eq!(step.events[0].kind, EventKind::Warning);
}

#[test]
fn each_index_has_its_own_back_off() {
    let mut node = started(indexed(2, 3, json!({"backoffLimitPerIndex": 5})));
    node.end("a", 1);
    let step = node.step();
    assert_eq!(
        (step.creations.len(), wakes_in(&node, &step)),
        (0, Some(10))
    );
    assert_eq!(step.status.failed, 0, "not counted before it is replaced");
    node.sleep(&step);
    assert_eq!(
        node.step().creations,
        [PodCreation {
            index: Some(0),
            failures: Some(IndexFailures {
                counted: 1,
                ignored: 0
            }),
        }]
    );
    assert_eq!(node.step().status.failed, 1);
    node.end("c", 1);
    node.end("b", 0);
    let step = node.step();
    assert_eq!(
        step.creations,
        [PodCreation {
            index: Some(2),
            failures: Some(IndexFailures::default()),
        }],
        "index 0 waits, index 2 does not"
    );
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(20));
}

#[test]
fn a_failed_pod_stays_until_its_index_is_tried_again() {
    let mut node = started(indexed(1, 1, json!({"backoffLimitPerIndex": 5})));
    node.delete("a");
    node.end("a", 1);
    let step = node.step();
    assert_eq!(names(&step.removable), Vec::<&str>::new());
    node.sleep(&step);
    assert_eq!(node.step().creations.len(), 1);
    assert_eq!(names(&node.step().removable), ["a"]);
}

#[test]
fn ignored_failures_lengthen_the_back_off_of_an_index_only() {
    let policy = json!({"backoffLimitPerIndex": 0, "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    ]}});
    let mut node = started(indexed(1, 1, policy));
    for (pod, ignored, wait) in [("a", 1, 10), ("b", 2, 20)] {
        node.end(pod, 3);
        let step = node.step();
        assert_eq!(wakes_in(&node, &step), Some(wait));
        node.sleep(&step);
        let failures = Some(IndexFailures {
            counted: 0,
            ignored,
        });
        assert_eq!(
            node.step().creations,
            [PodCreation {
                index: Some(0),
                failures
            }]
        );
    }
    node.end("c", 1);
    let step = node.step();
    assert_eq!(step.status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(conditions(&step), ["FailureTarget=True", "Failed=True"]);
}

#[test]
fn a_rule_can_fail_an_index_at_once() {
    let policy = json!({"backoffLimitPerIndex": 9, "podFailurePolicy": {"rules": [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3]}},
    ]}});
    let mut node = started(indexed(1, 2, policy));
    node.end("a", 3);
    let step = node.step();
    assert_eq!(step.status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(node.active_indexes(), ["1"]);
    node.end("b", 0);
    assert_eq!(events(&node.step()), ["FailedIndexes"]);
}

#[test]
fn fewer_completions_forget_the_indexes_beyond() {
    let mut node = started(indexed(4, 4, json!({})));
    node.end("d", 0);
    assert_eq!(node.step().status.completed_indexes, "3");
    node.spec.parallelism = Some(3);
    node.spec.completions = Some(3);
    let step = node.step();
    assert_eq!(
        (
            step.status.succeeded,
            step.status.completed_indexes.as_str()
        ),
        (0, "")
    );
    node.spec.parallelism = Some(2);
    node.spec.completions = Some(2);
    assert_eq!(deleted(&node.step()), [("c", DeletionReason::InvalidIndex)]);
}

#[test]
fn repeated_indexes_leave_the_pod_that_is_furthest() {
    let mut node = started(indexed(2, 2, json!({})));
    node.create(&PodCreation {
        index: Some(0),
        failures: None,
    });
    node.pod("c").is_ready = true;
    let step = node.step();
    assert_eq!(deleted(&step), [("a", DeletionReason::RepeatedIndex)]);
    node.end("a", 0);
    let step = node.step();
    assert_eq!(
        step.status.succeeded, 0,
        "it was deleted before it succeeded"
    );
}

#[test]
fn a_deleted_job_ends_its_pods_and_starts_none() {
    let mut node = started(json!({"parallelism": 2, "completions": 5}));
    node.end("a", 0);
    node.is_deleted = true;
    let step = node.step();
    assert_eq!(deleted(&step), [("b", DeletionReason::JobDeleted)]);
    assert_eq!(
        (step.creations.len(), names(&step.removable)),
        (0, vec!["a"])
    );
    node.remove(&step.removable);
    node.end("b", 143);
    let step = node.step();
    assert_eq!(
        (step.creations.len(), names(&step.removable)),
        (0, vec!["b"])
    );
    assert_eq!(step.status.failed, 0);
}

#[test]
fn a_deleted_job_that_was_finished_goes_with_its_pods() {
    let mut node = completed(json!({"ttlSecondsAfterFinished": 60}));
    node.is_deleted = true;
    let step = node.step();
    assert_eq!((names(&step.removable), step.wake_at), (vec!["a"], None));
    assert!(!step.state.is_removed);
}

#[test]
fn an_unknown_completion_mode_does_nothing() {
    let mut node = TestNode::new(json!({"completionMode": "Random"}));
    let step = node.step();
    assert_eq!(
        (events(&step), step.creations),
        (vec!["UnknownCompletionMode"], vec![])
    );
    assert_eq!(step.status.start_time, None);
}

#[test]
fn a_lost_state_is_made_again_from_the_pods() {
    let mut node =
        started(json!({"parallelism": 1, "completions": 3, "activeDeadlineSeconds": 50}));
    let start = node.state.start;
    node.end("a", 0);
    node.wait(10);
    node.step();
    node.state = rebuild(&node.spec, &node.pods);
    assert_eq!(node.state.start, start);
    let step = node.step();
    assert_eq!((step.status.succeeded, step.creations.len()), (1, 0));
    assert_eq!(wakes_in(&node, &step), Some(40));
    node.spec.suspend = Some(true);
    assert_eq!(rebuild(&node.spec, &node.pods).start, None);
    assert_eq!(rebuild(&JobSpec::default(), &[]), JobState::default());
}

#[test]
fn a_step_that_is_taken_twice_counts_once() {
    let mut node = started(json!({"parallelism": 2, "completions": 4}));
    node.end("a", 1);
    let first = node.decide();
    node.write(&first);
    let second = node.decide();
    assert_eq!(
        (first.status, first.wake_at),
        (second.status, second.wake_at)
    );
    assert_eq!(first.state, second.state);
}

#[test]
fn a_status_has_the_form_of_the_api() {
    let node = completed(json!({}));
    let status = serde_json::to_value(node.decide().status).unwrap();
    let time = "1970-01-12T13:46:40Z";
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
            "lastProbeTime": time, "lastTransitionTime": time,
        })
    };
    assert_eq!(
        status,
        json!({
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            "startTime": time, "completionTime": time,
            "succeeded": 1, "terminating": 0, "ready": 0,
        })
    );
}

#[test]
fn a_pod_that_succeeds_while_it_is_being_deleted_has_not_failed() {
    let mut node = started(json!({}));
    node.delete("a");
    node.end("a", 0);
    let step = node.step();
    assert_eq!((step.status.succeeded, step.status.failed), (1, 0));
}

#[test]
fn a_pod_without_a_valid_index_counts_for_nothing() {
    let mut node = started(indexed(1, 2, json!({"backoffLimit": 0})));
    node.create(&PodCreation {
        index: Some(9),
        failures: None,
    });
    node.end("b", 1);
    let step = node.step();
    assert_eq!((step.status.failed, step.wake_at), (0, None));
    assert_eq!(step.state.back_off.failures, 0);
}

#[test]
fn an_ignored_failure_exceeds_no_limit() {
    let policy = json!({"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    ]});
    let mut node = started(json!({"backoffLimit": 0, "podFailurePolicy": policy}));
    node.end("a", 3);
    let step = node.step();
    assert_eq!((conditions(&step), step.status.failed), (vec![], 0));
    assert_eq!(wakes_in(&node, &step), Some(10), "but it is waited for");
}

#[test]
fn rules_are_asked_about_failed_pods_only() {
    let policy = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
    ]});
    let mut node = started(json!({"podFailurePolicy": policy}));
    node.pod("a").containers[0].exit_code = Some(3);
    assert_eq!(conditions(&node.step()), Vec::<String>::new());
}

/// The failures that the replacement gets, when two pods of an index have failed, each after so many failures.
#[track_caller]
fn check_replaced(failures: [i32; 2], seconds_between: u64, expected: i32) {
    let mut node = started(indexed(1, 1, json!({"backoffLimitPerIndex": 9})));
    node.pods.clear();
    for (name, counted) in ["b", "c"].into_iter().zip(failures) {
        let failures = IndexFailures {
            counted,
            ignored: 0,
        };
        node.create(&PodCreation {
            index: Some(0),
            failures: Some(failures),
        });
        node.end(name, 1);
        node.wait(seconds_between);
    }
    node.wait(600);
    let creations = node.step().creations;
    let got = creations[0].failures.map(|failures| failures.counted);
    assert_eq!(got, Some(expected));
}

#[test]
fn the_later_pod_of_an_index_hands_on_its_failures() {
    check_replaced([1, 2], 5, 3);
    check_replaced([2, 1], 5, 3);
    check_replaced([1, 1], 5, 2);
}

#[test]
fn a_pod_with_more_failures_that_ended_earlier_does_not_hand_them_on() {
    let mut node = started(indexed(1, 1, json!({"backoffLimitPerIndex": 9})));
    node.pods.clear();
    for counted in [1, 2] {
        let failures = Some(IndexFailures {
            counted,
            ignored: 0,
        });
        node.create(&PodCreation {
            index: Some(0),
            failures,
        });
    }
    node.end("c", 1);
    node.wait(5);
    node.end("b", 1);
    node.wait(600);
    let creations = node.step().creations;
    assert_eq!(creations[0].failures.map(|it| it.counted), Some(2));
}

#[test]
fn restarts_of_pods_that_have_ended_do_not_count() {
    let mut node = started(json!({
        "backoffLimit": 2, "parallelism": 2, "completions": 2,
        "template": {"spec": {"restartPolicy": "OnFailure"}},
    }));
    node.pod("a").containers[0].restarts = 9;
    node.end("a", 1);
    assert_eq!(conditions(&node.step()), Vec::<String>::new());
    node.pod("b").containers[0].restarts = 2;
    assert_eq!(conditions(&node.step()), ["FailureTarget=True"]);
}

#[test]
fn as_many_failed_indexes_as_allowed_end_nothing() {
    let limits = json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1});
    let mut node = started(indexed(3, 3, limits));
    node.end("a", 1);
    let step = node.step();
    assert_eq!(step.status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(conditions(&step), Vec::<String>::new());
    node.end("b", 1);
    node.step();
    node.end("c", 143);
    assert_eq!(events(&node.step()), ["MaxFailedIndexesExceeded"]);
}

#[test]
fn a_job_without_failed_indexes_is_complete() {
    let mut node = started(indexed(1, 1, json!({"backoffLimitPerIndex": 0})));
    node.end("a", 0);
    assert_eq!(events(&node.step()), ["Completed"]);
}

#[test]
fn a_success_that_is_decided_stays_decided() {
    let policy = json!({
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "activeDeadlineSeconds": 50,
    });
    let mut node = started(indexed(2, 2, policy));
    node.end("a", 0);
    node.step();
    node.wait(60);
    assert_eq!(conditions(&node.step()), ["SuccessCriteriaMet=True"]);
    node.end("b", 143);
    assert_eq!(events(&node.step()), ["Completed"]);
}

#[test]
fn failed_indexes_come_before_the_success_policy() {
    let policy = json!({
        "backoffLimitPerIndex": 0,
        "successPolicy": {"rules": [{"succeededCount": 1}]},
    });
    let mut node = started(indexed(2, 2, policy));
    node.end("a", 0);
    node.end("b", 1);
    assert_eq!(events(&node.step()), ["FailedIndexes"]);
}

#[test]
fn repeated_indexes_are_part_of_what_is_too_many() {
    let mut node = started(indexed(2, 2, json!({})));
    node.create(&PodCreation {
        index: Some(0),
        failures: None,
    });
    node.spec.parallelism = Some(1);
    let expected = [
        ("a", DeletionReason::RepeatedIndex),
        ("b", DeletionReason::TooMany),
    ];
    assert_eq!(deleted(&node.step()), expected);
}

#[test]
fn an_index_is_tried_again_while_its_deleted_pod_ends() {
    let mut node = started(indexed(1, 2, json!({})));
    node.delete("a");
    let step = node.step();
    node.sleep(&step);
    node.step();
    assert_eq!(node.active_indexes(), ["0"]);
}

#[test]
fn the_index_whose_wait_is_shortest_wakes() {
    let mut node = started(indexed(2, 2, json!({"backoffLimitPerIndex": 3})));
    node.end("a", 1);
    node.wait(4);
    node.end("b", 1);
    let step = node.step();
    assert_eq!(wakes_in(&node, &step), Some(6));
}

#[test]
fn a_step_makes_or_deletes_at_most_500_pods() {
    let mut node = started(json!({"parallelism": 1200}));
    assert_eq!(node.active().len(), 500);
    node.step();
    node.spec.parallelism = Some(0);
    assert_eq!(node.step().deletions.len(), 500);
    assert_eq!(node.active().len(), 500);
}

#[test]
fn another_run_counts_nothing_of_the_run_before() {
    let policy = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}},
    ]});
    let mut node = started(json!({"parallelism": 2, "podFailurePolicy": policy}));
    node.end("a", 3);
    node.step();
    node.end("b", 0);
    node.step();
    assert!(node.state.is_finished());
    node.state = rerun(&node.pods);
    let step = node.step();
    assert_eq!((step.creations.len(), conditions(&step)), (2, vec![]));
    assert_eq!((step.status.failed, step.status.succeeded), (0, 0));
    assert_eq!(names(&step.removable), ["a", "b"]);
}

#[test]
fn another_run_ends_what_still_runs_of_the_run_before() {
    let mut node = started(json!({}));
    node.state = rerun(&node.pods);
    let step = node.step();
    assert_eq!(deleted(&step), [("a", DeletionReason::Rerun)]);
    assert_eq!(
        (node.active(), step.status.failed),
        (vec!["b".to_owned()], 0)
    );
}
