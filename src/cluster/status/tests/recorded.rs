//! The exchanges of a kubelet with an API server that were recorded.

use super::*;

/// Takes out the resources of the whole pod, for which podprobe has no value.
fn without_pod_resources(mut sent: Value) -> Value {
    let status = sent["status"].as_object_mut().unwrap();
    status.remove("resources");
    status.remove("allocatedResources");
    match status.is_empty() {
        true => Value::Null,
        false => sent,
    }
}

#[test]
fn a_patch_is_the_one_that_a_kubelet_sent() {
    let mut seen = 0;
    for pod in lines(PATCHES) {
        let mut present = pod["present"].clone();
        for step in pod["steps"].as_array().unwrap() {
            let uid = pod["uid"].as_str().unwrap();
            let body = patch(uid, &object(&present), &object(&step["stored"]));
            assert_eq!(body.unwrap(), step["sent"], "{}", pod["pod"]);
            present = step["stored"].clone();
            seen += 1;
        }
    }
    assert_eq!(seen, 33);
}

#[test]
fn a_status_of_podprobe_is_sent_as_a_kubelet_sent_it() {
    for pod in lines(PATCHES) {
        let mut present = pod["present"].clone();
        for step in pod["steps"].as_array().unwrap() {
            let mut sample = Sample::new("Always", &step["stored"]);
            sample.uid = pod["uid"].as_str().unwrap().into();
            sample.mirror = pod["mirror"] == true;
            sample.generation = step["generation"].as_i64();
            if sample.status.phase.is_terminal() {
                sample.stage = WorkerStage::Stopped;
            }
            let deletion = match step["deleting"] == true {
                true => Deletion::Requested,
                false => Deletion::None,
            };
            let status = sample.sent(&present, deletion);
            let expected = without_pod_resources(step["sent"].clone());
            assert_eq!(status, expected["status"], "{}", pod["pod"]);
            present = step["stored"].clone();
        }
    }
}

/// Statuses that a kubelet has held back: podprobe's phase is terminal at once, the kubelet sent it one step later.
#[test]
fn a_terminal_phase_is_held_back_as_a_kubelet_held_it() {
    for (name, phase, step) in [("edit", "Failed", 6), ("job1", "Succeeded", 3)] {
        let all = lines(PATCHES);
        let pod = all.iter().find(|p| p["pod"] == name).unwrap();
        let (present, step) = (&pod["steps"][step - 1]["stored"], &pod["steps"][step]);
        let policy = ["Always", "Never"][usize::from(name == "job1")];
        let mut sample = Sample::new(policy, &step["stored"]);
        sample.status.phase = json::from_value(&phase.into()).unwrap();
        sample.status.reason = "DeadlineExceeded".into();
        sample.generation = step["generation"].as_i64();
        assert_eq!(
            sample.sent(present, Deletion::None),
            step["sent"]["status"],
            "{name}"
        );
        let whole = sample.stage(WorkerStage::Stopped);
        let sent = whole.sent(present, Deletion::None);
        assert_eq!(
            (&sent["phase"], &sent["reason"]),
            (&json!(phase), &json!("DeadlineExceeded"))
        );
    }
}

/// A whole life: each request that the kubelet sent for the pod `web` after its GET, and its DELETE at the end.
#[test]
fn a_pod_is_published_and_deleted_as_a_kubelet_did_it() {
    let all = lines(PATCHES);
    let web = &all[0];
    let uid = web["uid"].as_str().unwrap();
    let mut publication = Publication::default();
    let mut present = api_object(uid, &web["present"]);
    let mut sample = Sample::new("Always", &web["present"]);
    for step in web["steps"].as_array().unwrap() {
        sample.status = json::from_value(&step["stored"]).unwrap();
        sample.uid = uid.into();
        sample.generation = step["generation"].as_i64();
        sample.version += 1;
        if sample.status.phase.is_terminal() {
            sample.stage = WorkerStage::Stopped;
        }
        if step["deleting"] == true {
            present = deleted(present);
        }
        let view = sample.view();
        let begun = publication.begin(at(0), wall(), &view, false);
        assert_eq!(begun.unwrap().method, Method::Get);
        let next = publication.answered(at(0), wall(), &view, &Answer::new(200, present.clone()));
        let sent = without_pod_resources(step["sent"].clone());
        present["status"] = step["stored"].clone();
        if sent.is_null() {
            assert_eq!(next, Next::Published);
            continue;
        }
        let Next::Send(Request {
            method: Method::Patch,
            body: Some(body),
            ..
        }) = next
        else {
            panic!("{next:?}")
        };
        assert_eq!(body, sent);
        let next = publication.answered(at(0), wall(), &view, &Answer::new(200, present.clone()));
        assert_eq!(next, Next::Published);
    }
    let sample = sample.changed(WorkerStage::Finished);
    publication.begin(at(0), wall(), &sample.view(), false);
    let next = publication.answered(at(0), wall(), &sample.view(), &Answer::new(200, present));
    let answers = lines(ANSWERS);
    let delete = answers.iter().find(|a| a["code"] == 200).unwrap();
    let Next::Send(Request {
        method: Method::Delete,
        path,
        body,
    }) = next
    else {
        panic!("{next:?}")
    };
    assert_eq!(path, "/api/v1/namespaces/rec/pods/p");
    assert_eq!(body.as_ref(), Some(&delete["sent"]));
    let answer = Answer::new(200, delete["answer"].clone());
    let next = publication.answered(at(0), wall(), &sample.view(), &answer);
    assert_eq!(next, Next::Gone);
}

/// The answers of the API server to requests of a node that it does not carry out.
#[test]
fn a_refusal_leads_to_what_it_means() {
    let expected = [
        ("PATCH", 422, Next::Refused(422)),
        ("PATCH", 422, Next::Gone),
        ("PATCH", 409, Next::Retry(at(100))),
        ("PATCH", 404, Next::Gone),
        ("GET", 404, Next::Gone),
        ("GET", 403, Next::Gone),
        ("DELETE", 409, Next::Gone),
    ];
    let answers = lines(ANSWERS);
    for (answer, (method, code, next)) in answers.iter().zip(expected) {
        assert_eq!(
            (&answer["method"], &answer["code"]),
            (&json!(method), &json!(code))
        );
        let (mut publication, sample) = under_way(method);
        let error = Answer::new(code, answer["answer"].clone());
        let got = publication.answered(at(0), wall(), &sample.view(), &error);
        assert_eq!(got, next, "{method} {code}");
    }
}

/// The patch of every recorded status to every other one gives that other one.
#[test]
fn a_patch_gives_the_wanted_status() {
    let mut statuses = Vec::new();
    for pod in lines(PATCHES) {
        statuses.push(pod["present"].clone());
        let steps = pod["steps"].as_array().unwrap().iter();
        statuses.extend(steps.map(|step| step["stored"].clone()));
    }
    for old in &statuses {
        for new in &statuses {
            let body = patch("u", &object(old), &object(new));
            assert_eq!(body.is_none(), old == new, "{old} {new}");
            let changes = body.map_or(json!({}), |body| body["status"].clone());
            let mut got = object(old);
            apply(&mut got, &object(&changes));
            let got: Value = got.into();
            assert!(same::same(&got, new), "{changes}\n{got}\n{new}");
        }
    }
}
