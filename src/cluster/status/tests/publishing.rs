//! The requests of a pod, by what the API server answers.

use super::*;

fn begin(publication: &mut Publication, sample: &Sample, millis: u64, resync: bool) -> bool {
    let begun = publication.begin(at(millis), wall(), &sample.view(), resync);
    assert!(matches!(
        begun,
        None | Some(Request {
            method: Method::Get,
            body: None,
            ..
        })
    ));
    begun.is_some()
}

fn answer(publication: &mut Publication, sample: &Sample, answer: Answer) -> Next {
    publication.answered(at(0), wall(), &sample.view(), &answer)
}

fn error(code: u16) -> Answer {
    Answer::new(code, Value::Null)
}

fn is_patch(next: &Next) -> bool {
    matches!(
        next,
        Next::Send(Request {
            method: Method::Patch,
            ..
        })
    )
}

/// A publication of which the API server has the status, and its pod.
fn published() -> (Publication, Sample) {
    let (mut publication, sample) = under_way("PATCH");
    let stored = api_object("u", &sample.form());
    let next = answer(&mut publication, &sample, Answer::new(200, stored));
    assert_eq!(next, Next::Published);
    (publication, sample)
}

#[test]
fn the_paths_are_those_of_the_api() {
    let sample = Sample::new("Never", &succeeded()).stage(WorkerStage::Finished);
    let mut publication = Publication::default();
    let get = publication.begin(at(0), wall(), &sample.view(), false);
    assert_eq!(get.unwrap().path, "/api/v1/namespaces/rec/pods/p");
    let pending = deleted(api_object("u", &json!({"phase": "Pending"})));
    let Next::Send(patch) = answer(&mut publication, &sample, Answer::new(200, pending)) else {
        panic!("no patch")
    };
    assert_eq!(patch.path, "/api/v1/namespaces/rec/pods/p/status");
    let stored = deleted(api_object("u", &sample.form()));
    let Next::Send(delete) = answer(&mut publication, &sample, Answer::new(200, stored)) else {
        panic!("no deletion")
    };
    assert_eq!(delete.path, "/api/v1/namespaces/rec/pods/p");
}

#[test]
fn each_change_is_published_once_and_at_once() {
    let (mut publication, sample) = published();
    assert!(!begin(&mut publication, &sample, 0, false));
    let next = sample.clone().changed(WorkerStage::Running);
    assert!(begin(&mut publication, &next, 0, false));
    assert!(!begin(&mut publication, &next, 0, true), "one at a time");
    let same = Answer::new(200, api_object("u", &next.form()));
    assert_eq!(answer(&mut publication, &next, same), Next::Published);
    let stopped = next.clone().stage(WorkerStage::Stopped);
    assert!(begin(&mut publication, &stopped, 0, false), "another stage");
    let (mut publication, _) = published();
    let generation = Sample {
        generation: Some(2),
        ..sample
    };
    assert!(begin(&mut publication, &generation, 0, false), "edited");
}

#[test]
fn a_copy_that_differs_is_published_at_a_resync() {
    let (mut publication, mut sample) = published();
    sample.copy = Some(api_object("u", &sample.form()));
    assert!(!begin(&mut publication, &sample, 0, true), "it is equal");
    sample.copy = Some(api_object("u", &json!({"phase": "Pending"})));
    assert!(!begin(&mut publication, &sample, 0, false));
    assert!(begin(&mut publication, &sample, 0, true));
    let (mut publication, mut sample) = published();
    sample.copy = Some(api_object("v", &json!({"phase": "Pending"})));
    assert!(!begin(&mut publication, &sample, 0, true), "another pod's");
}

#[test]
fn a_change_during_a_patch_is_published_after_it() {
    let (mut publication, sample) = under_way("PATCH");
    let new = sample.clone().changed(WorkerStage::Running);
    let stored = Answer::new(200, api_object("u", &sample.form()));
    assert_eq!(answer(&mut publication, &new, stored), Next::Published);
    assert!(begin(&mut publication, &new, 0, false));
}

#[test]
fn another_pod_of_the_name_is_not_deleted() {
    let finished = Sample::new("Never", &succeeded()).stage(WorkerStage::Finished);
    let mut publication = Publication::default();
    assert!(begin(&mut publication, &finished, 0, false));
    let present = Answer::new(200, api_object("u", &finished.form()));
    let next = answer(&mut publication, &finished, present);
    assert_eq!(next, Next::Published);
    let copy = |uid| Some(deleted(api_object(uid, &finished.form())));
    let [other, own] = ["v", "u"].map(|uid| Sample {
        copy: copy(uid),
        ..finished.clone()
    });
    assert!(!begin(&mut publication, &other, 0, true));
    assert!(begin(&mut publication, &own, 0, true));
}

#[test]
fn a_resync_is_due_each_ten_seconds() {
    let mut resync = Resync::new(at(0));
    assert!(!resync.is_due(at(9_999)));
    assert!(resync.is_due(at(10_001)));
    assert!(!resync.is_due(at(20_000)));
    assert_eq!(resync.at(), at(20_001));
}

#[test]
fn the_first_empty_view_is_not_published() {
    let empty = Sample::new("Always", &json!({"phase": "Pending"}));
    assert!(!begin(&mut Publication::default(), &empty, 0, true));
    let finished = empty.clone().stage(WorkerStage::Finished);
    assert!(begin(&mut Publication::default(), &finished, 0, false));
    let rejected = Sample::new("Always", &json!({"phase": "Failed", "reason": "OutOfcpu"}));
    assert!(begin(&mut Publication::default(), &rejected, 0, false));
    let container = json!([{"name": "c", "state": {"waiting": {}}}]);
    for (field, value) in [
        ("phase", json!("Running")),
        ("reason", json!("Waiting")),
        ("conditions", running()["conditions"].clone()),
        ("containerStatuses", container.clone()),
        ("initContainerStatuses", container),
    ] {
        let mut status = json!({"phase": "Pending"});
        status[field] = value;
        let known = Sample::new("Always", &status);
        let begun = begin(&mut Publication::default(), &known, 0, false);
        assert!(begun, "{field}");
    }
}

#[test]
fn a_mirror_pod_that_does_not_exist_yet_has_no_status() {
    let mut sample = Sample::new("Always", &running());
    sample.uid = String::new();
    assert!(!begin(&mut Publication::default(), &sample, 0, false));
}

#[test]
fn a_pod_with_another_uid_is_forgotten() {
    for method in ["GET", "PATCH"] {
        let (mut publication, sample) = under_way(method);
        let other = Answer::new(200, api_object("v", &running()));
        assert_eq!(answer(&mut publication, &sample, other), Next::Gone);
        assert!(!begin(&mut publication, &sample, 0, false));
        let new = Sample {
            uid: "v".into(),
            ..sample
        };
        assert!(begin(&mut publication, &new, 0, false), "a new mirror pod");
    }
}

#[test]
fn a_refused_status_is_not_sent_again() {
    for code in [400, 413, 415, 422] {
        let (mut publication, mut sample) = under_way("PATCH");
        let next = answer(&mut publication, &sample, error(code));
        assert_eq!(next, Next::Refused(code));
        sample.copy = Some(api_object("u", &json!({"phase": "Pending"})));
        assert!(!begin(&mut publication, &sample, 0, false));
        assert!(!begin(&mut publication, &sample, 0, true));
        let new = sample.changed(WorkerStage::Running);
        assert!(begin(&mut publication, &new, 0, false));
    }
}

#[test]
fn a_status_that_would_be_refused_waits_for_the_next() {
    let (mut publication, sample) = under_way("GET");
    let present = Answer::new(200, api_object("u", &ended("Running", 0)));
    let next = answer(&mut publication, &sample, present.clone());
    let Next::Held(revived) = next else {
        panic!("{next:?}")
    };
    assert_eq!(revived.container, "c");
    assert!(!begin(&mut publication, &sample, 0, true));
    let mut new = Sample::new("Never", &ended("Running", 7));
    new.version = 2;
    assert!(begin(&mut publication, &new, 0, false));
    assert!(is_patch(&answer(&mut publication, &new, present)));
}

#[test]
fn a_failure_is_retried_with_a_growing_delay() {
    for code in [401, 408, 409, 429, 500, 503, 504] {
        let (mut publication, sample) = under_way("PATCH");
        let next = answer(&mut publication, &sample, error(code));
        assert_eq!(next, Next::Retry(at(100)), "{code}");
    }
    let (mut publication, sample) = under_way("GET");
    let delays = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
    for delay in delays {
        let next = answer(&mut publication, &sample, Answer::NoConnection);
        assert_eq!(next, Next::Retry(at(delay)));
        assert_eq!(publication.retry_at(), Some(at(delay)));
        let new = sample.clone().changed(WorkerStage::Running);
        assert!(!begin(&mut publication, &new, delay - 1, true));
        assert!(begin(&mut publication, &sample, delay, false));
        assert_eq!(publication.retry_at(), None, "it is under way");
    }
    let present = Answer::new(200, api_object("u", &sample.form()));
    assert_eq!(answer(&mut publication, &sample, present), Next::Published);
    assert_eq!(publication.retry_at(), None);
    let new = sample.changed(WorkerStage::Running);
    assert!(begin(&mut publication, &new, 0, false));
    let next = answer(&mut publication, &new, Answer::NoConnection);
    assert_eq!(next, Next::Retry(at(100)), "it begins anew");
}

#[test]
fn the_delay_that_the_api_server_asks_for_is_kept_up_to_a_minute() {
    let check = |asked, expected| {
        let (mut publication, sample) = under_way("GET");
        let answered = Answer::Status {
            code: 429,
            body: Value::Null,
            retry_after: Some(Duration::from_secs(asked)),
        };
        let next = answer(&mut publication, &sample, answered);
        assert_eq!(next, Next::Retry(at(expected)));
    };
    check(0, 100);
    check(1, 1000);
    check(3600, 60_000);
}

/// The authorizer of the API server may be behind the watch that has shown the pod.
#[test]
fn a_pod_that_the_watch_has_is_asked_for_again_after_403() {
    let (mut publication, mut sample) = under_way("GET");
    sample.copy = Some(api_object("u", &json!({"phase": "Pending"})));
    for delay in [100, 200, 400, 800, 1600] {
        let next = answer(&mut publication, &sample, error(403));
        assert_eq!(next, Next::Retry(at(delay)));
        assert!(begin(&mut publication, &sample, delay, false));
    }
    let next = answer(&mut publication, &sample, error(403));
    assert_eq!(next, Next::Gone);
    assert!(
        begin(&mut publication, &sample, 0, true),
        "at the next resync"
    );
}

#[test]
fn a_pod_is_deleted_once_all_is_done() {
    let check = |sample: &Sample, present: Value, expected: bool| {
        let mut publication = Publication::default();
        assert!(begin(&mut publication, sample, 0, false));
        let next = answer(&mut publication, sample, Answer::new(200, present));
        assert_eq!(
            matches!(
                next,
                Next::Send(Request {
                    method: Method::Delete,
                    ..
                })
            ),
            expected,
            "{next:?}"
        );
    };
    let finished = Sample::new("Never", &succeeded()).stage(WorkerStage::Finished);
    let gone = deleted(api_object("u", &finished.form()));
    check(&finished, gone.clone(), true);
    check(&finished, api_object("u", &finished.form()), false);
    check(
        &finished.clone().stage(WorkerStage::Stopped),
        gone.clone(),
        false,
    );
    let mut mirror = Sample {
        mirror: true,
        ..finished.clone()
    };
    check(&mirror, gone.clone(), false);
    mirror.mirror = false;
    mirror.status.phase = PodPhase::Running;
    check(
        &mirror,
        deleted(api_object("u", &ended("Running", 0))),
        false,
    );
}

/// Without it, a pod of the policy Always would stay for ever.
#[test]
fn a_terminal_phase_is_published_before_the_deletion() {
    let sample = Sample::new("Always", &ended("Running", 137)).stage(WorkerStage::Finished);
    let mut publication = Publication::default();
    assert!(begin(&mut publication, &sample, 0, false));
    let mut present = deleted(api_object("u", &ended("Running", 137)));
    let next = answer(&mut publication, &sample, Answer::new(200, present.clone()));
    let Next::Send(Request {
        method: Method::Patch,
        body: Some(body),
        ..
    }) = next
    else {
        panic!("{next:?}")
    };
    assert_eq!(body["status"]["phase"], "Failed");
    present["status"]["phase"] = "Failed".into();
    let next = answer(&mut publication, &sample, Answer::new(200, present));
    assert!(
        matches!(
            next,
            Next::Send(Request {
                method: Method::Delete,
                ..
            })
        ),
        "{next:?}"
    );
}

#[test]
fn a_deletion_that_fails_is_tried_again() {
    let (mut publication, sample) = under_way("DELETE");
    let next = answer(&mut publication, &sample, error(503));
    assert_eq!(next, Next::Retry(at(100)));
    assert!(begin(&mut publication, &sample, 100, false));
    let present = deleted(api_object("u", &sample.form()));
    let next = answer(&mut publication, &sample, Answer::new(200, present.clone()));
    assert!(
        matches!(
            next,
            Next::Send(Request {
                method: Method::Delete,
                ..
            })
        ),
        "{next:?}"
    );
    assert_eq!(answer(&mut publication, &sample, error(404)), Next::Gone);
    let copy = Sample {
        copy: Some(present),
        ..sample
    };
    assert!(
        begin(&mut publication, &copy, 0, true),
        "the watch still has it"
    );
}

/// A status that is refused does not keep its pod from being deleted.
#[test]
fn a_pod_is_deleted_although_its_status_is_refused() {
    let alive = Sample::new("Never", &running()).stage(WorkerStage::Finished);
    let present = deleted(api_object("u", &ended("Succeeded", 0)));
    let mut publication = Publication::default();
    assert!(begin(&mut publication, &alive, 0, false));
    let next = answer(&mut publication, &alive, Answer::new(200, present.clone()));
    assert!(
        matches!(
            next,
            Next::Send(Request {
                method: Method::Delete,
                ..
            })
        ),
        "{next:?}"
    );
    let (mut publication, _) = under_way("GET");
    let living = deleted(api_object("u", &ended("Running", 0)));
    let next = answer(&mut publication, &alive, Answer::new(200, living));
    assert!(matches!(next, Next::Held(_)), "{next:?}");

    let mut publication = Publication::default();
    assert!(begin(&mut publication, &alive, 0, false));
    let pending = api_object("u", &json!({"phase": "Pending"}));
    let next = answer(&mut publication, &alive, Answer::new(200, pending));
    assert!(is_patch(&next), "{next:?}");
    assert_eq!(
        answer(&mut publication, &alive, error(422)),
        Next::Refused(422)
    );
    let present = deleted(api_object("u", &json!({"phase": "Failed"})));
    let listed = Sample {
        copy: Some(present.clone()),
        ..alive
    };
    assert!(!begin(&mut publication, &listed, 0, false));
    assert!(begin(&mut publication, &listed, 0, true));
    let next = answer(&mut publication, &listed, Answer::new(200, present));
    assert!(
        matches!(
            next,
            Next::Send(Request {
                method: Method::Delete,
                ..
            })
        ),
        "{next:?}"
    );
}
