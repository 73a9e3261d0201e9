//! Tests of the registration, most of them against recorded exchanges.

use serde_json::json;

use super::*;
use crate::cluster::node::recorded::{answer, assert_request, exchanges, facts, ready, wall};

/// A registration with a clock of its own.
struct Link {
    registration: Registration,
    facts: NodeFacts,
    health: Health,
    now: Moment,
    wall: SystemTime,
}

impl Link {
    fn new(at: &str) -> Self {
        Self {
            registration: Registration::new("node1"),
            facts: facts(),
            health: ready(),
            now: Moment::from_boot(Duration::from_secs(1000)),
            wall: wall(at),
        }
    }

    fn next(&mut self) -> Step {
        let r = &mut self.registration;
        r.next(self.now, self.wall, &self.facts, &self.health, 0.0)
    }

    #[track_caller]
    fn request(&mut self) -> Request {
        match self.next() {
            Step::Send(request) => request,
            Step::Wait(until) => panic!("waits {:?}", until.since(self.now)),
        }
    }

    /// The time until the next request.
    #[track_caller]
    fn wait(&mut self) -> Duration {
        match self.next() {
            Step::Wait(until) => until.since(self.now),
            Step::Send(request) => panic!("sends {request:?}"),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.wall += time;
    }

    fn answer(&mut self, answer: &Answer) -> Result<(), NodeError> {
        self.registration.answered(self.now, answer, 0.5)
    }

    /// Answers as the API server would that takes the request: the node with the sent status.
    fn take(&mut self, version: u32) {
        let mut node = self
            .registration
            .node()
            .cloned()
            .unwrap_or_else(|| json!({}));
        let status = self.registration.sent.as_ref().unwrap().status.clone();
        node["metadata"] = json!({"uid": "u", "resourceVersion": version.to_string()});
        node["status"] = status;
        self.answer(&Answer::new(200, node)).unwrap();
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.registration.take_events()
    }

    fn registered(at: &str) -> Self {
        let mut link = Self::new(at);
        link.request();
        link.take(1);
        link.events();
        link
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The exchange at `t_ms`.
fn recorded(t_ms: u64) -> Value {
    let all = exchanges("node");
    all.into_iter().find(|e| e["t_ms"] == t_ms).unwrap()
}

#[test]
fn a_node_is_registered_as_the_kubelet_registers_it() {
    for (t_ms, at, images) in [
        (198, "2026-11-21T23:35:33Z", usize::MAX),
        (912_297, "2026-11-21T23:50:45Z", 2),
    ] {
        let exchange = recorded(t_ms);
        let mut link = Link::new(at);
        link.facts.images.truncate(images);
        link.health.not_ready = vec!["CSINode is not yet initialized".into()];
        assert_request(&link.request(), &exchange);
        link.answer(&answer(&exchange)).unwrap();
        assert_eq!(
            link.registration.uid(),
            exchange["resp_body"]["metadata"]["uid"].as_str()
        );
        assert_eq!(
            link.events(),
            [
                "NodeHasSufficientMemory",
                "NodeHasNoDiskPressure",
                "NodeHasSufficientPID",
                "NodeNotReady"
            ]
        );
    }
}

#[test]
fn a_node_becomes_ready_as_the_kubelets_does() {
    let mut link = Link::new("2026-11-21T23:35:33Z");
    link.health.not_ready = vec!["CSINode is not yet initialized".into()];
    link.request();
    link.answer(&answer(&recorded(198))).unwrap();
    assert!(link.wait() >= 10 * SECOND);
    link.events();
    link.health = ready();
    link.registration.wake(link.now);
    let exchange = recorded(347);
    let mut expected = exchange.clone();
    // The kubelet sends its images again, because it takes an image without names for changed.
    expected["req_body"]["status"]
        .as_object_mut()
        .unwrap()
        .remove("images");
    assert_request(&link.request(), &expected);
    link.answer(&answer(&exchange)).unwrap();
    assert_eq!(link.events(), ["NodeReady"]);
}

#[test]
fn a_node_that_is_there_is_read_and_patched() {
    let mut link = Link::new("2026-11-21T23:48:29Z");
    link.facts.images.truncate(2);
    for t_ms in [776_132, 776_149] {
        let exchange = recorded(t_ms);
        assert_request(&link.request(), &exchange);
        link.answer(&answer(&exchange)).unwrap();
        assert_eq!(link.registration.uid(), None);
    }
    let patch = link.request();
    let exchange = recorded(776_160);
    assert_eq!(patch.path, exchange["path"].as_str().unwrap());
    let status = &patch.body.unwrap()["status"];
    let expected = &exchange["req_body"]["status"];
    for key in ["conditions", "$setElementOrder/conditions", "images"] {
        assert_eq!(status[key], expected[key]);
    }
    link.take(1);
    assert_eq!(link.registration.uid(), Some("u"));
    assert_eq!(link.events(), [""; 0]);
}

#[test]
fn labels_of_a_node_that_is_there_are_set_once() {
    let mut link = Link::new("2026-11-21T23:48:29Z");
    link.facts.labels.insert("site".into(), "north".into());
    link.request();
    link.answer(&answer(&recorded(776_132))).unwrap();
    link.request();
    link.answer(&answer(&recorded(776_149))).unwrap();
    let patch = link.request().body.unwrap();
    assert_eq!(patch["metadata"], json!({"labels": {"site": "north"}}));
    link.take(1);
    link.pass(11 * SECOND);
    let seen =
        json!({"metadata": {"uid": "u", "resourceVersion": "9", "labels": {"site": "south"}}});
    link.registration.observed(link.now, Some(&seen));
    assert_eq!(link.request().body.unwrap().get("metadata"), None);
}

#[test]
fn a_node_that_is_there_and_right_needs_no_patch() {
    let mut link = Link::registered("2026-11-21T23:35:33Z");
    let node = link.registration.node().unwrap().clone();
    link.registration.observed(link.now, None);
    link.request();
    link.answer(&answer(&recorded(776_132))).unwrap();
    let mut there = node;
    let labels = recorded(198)["req_body"]["metadata"].clone();
    there["metadata"]["labels"] = labels["labels"].clone();
    there["metadata"]["annotations"] = labels["annotations"].clone();
    link.request();
    link.answer(&Answer::new(200, there)).unwrap();
    assert_eq!(link.registration.uid(), None);
    assert_eq!(link.wait(), 10 * SECOND);
    assert_eq!(link.registration.uid(), Some("u"));
}

#[test]
fn a_status_is_computed_each_10_s_and_sent_on_change_or_after_5_minutes() {
    let mut link = Link::registered("2026-11-21T23:35:33Z");
    let first = link.wait();
    assert_eq!(
        first,
        Duration::from_millis(10_200),
        "with half of the jitter"
    );
    link.pass(first);
    for _ in 0..29 {
        assert_eq!(link.wait(), 10 * SECOND);
        link.pass(10 * SECOND);
    }
    let patch = link.request().body.unwrap();
    assert!(!is_change(&patch));
    link.take(2);
    link.pass(11 * SECOND);
    link.health.disk_pressure = true;
    let patch = link.request().body.unwrap();
    assert_eq!(patch["status"]["conditions"][1]["status"], "True");
    link.take(3);
    assert_eq!(link.events(), ["NodeHasDiskPressure"]);
}

/// A control plane that has not heard of the node says Unknown. The node says how it is as soon as it sees that.
#[test]
fn a_node_that_was_given_up_says_at_once_how_it_is() {
    let mut link = Link::registered("2026-11-21T23:35:33Z");
    let wait = link.wait();
    let mut seen = link.registration.node().unwrap().clone();
    link.registration.observed(link.now, Some(&seen));
    assert_eq!(link.wait(), wait, "nothing has changed");
    for condition in seen["status"]["conditions"].as_array_mut().unwrap() {
        condition["status"] = "Unknown".into();
    }
    seen["metadata"]["resourceVersion"] = "9".into();
    link.registration.observed(link.now, Some(&seen));
    let patch = link.request().body.unwrap();
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    );
}

#[test]
fn what_fails_is_tried_again_with_growing_delays() {
    let mut link = Link::new("2026-11-21T23:35:33Z");
    for delay in [200, 400, 800, 1600, 3200, 6400, 7000, 7000] {
        let request = link.request();
        assert_eq!(request.method, Method::Post);
        link.answer(&Answer::NoConnection).unwrap();
        let delay = Duration::from_millis(delay);
        link.registration.wake(link.now);
        assert_eq!(link.wait(), delay);
        link.pass(delay);
    }
    link.request();
    let busy = Answer::Status {
        code: 429,
        body: json!("Too many requests"),
        retry_after: Some(30 * SECOND),
    };
    link.answer(&busy).unwrap_err();
    assert_eq!(link.wait(), 30 * SECOND);
    link.pass(30 * SECOND);
    link.request();
    link.take(1);
    link.pass(11 * SECOND);
    link.health.pid_pressure = true;
    link.request();
    link.answer(&Answer::NoConnection).unwrap();
    assert_eq!(link.wait(), BackOff::FIRST);
    assert_eq!(link.events().len(), 4, "those of the registration");
}

#[test]
fn a_node_that_is_deleted_is_registered_again() {
    let mut link = Link::registered("2026-11-21T23:35:33Z");
    link.pass(11 * SECOND);
    link.health.pid_pressure = true;
    link.request();
    link.answer(&answer(&recorded(888_294))).unwrap();
    assert_eq!(link.registration.uid(), None);
    assert_eq!(link.request().method, Method::Post);
    link.take(7);
    link.registration.observed(link.now, None);
    let request = link.request();
    assert_eq!(
        (request.method, request.path.as_str()),
        (Method::Post, "/api/v1/nodes")
    );
}

#[test]
fn a_node_that_comes_and_goes_is_not_asked_for_without_pause() {
    let mut link = Link::new("2026-11-21T23:35:33Z");
    link.request();
    link.answer(&answer(&recorded(776_132))).unwrap();
    link.request();
    link.answer(&answer(&recorded(888_294))).unwrap();
    assert_eq!(link.wait(), 2 * BackOff::FIRST);
}

#[test]
fn a_watch_that_is_behind_changes_nothing() {
    let mut link = Link::registered("2026-11-21T23:35:33Z");
    let seen = |version: &str, unschedulable: bool| json!({"metadata": {"uid": "u", "resourceVersion": version}, "spec": {"unschedulable": unschedulable}});
    link.registration.observed(link.now, Some(&seen("0", true)));
    assert_eq!(link.events(), [""; 0]);
    link.registration.observed(link.now, Some(&seen("5", true)));
    assert_eq!(link.events(), ["NodeNotSchedulable"]);
    link.registration
        .observed(link.now, Some(&seen("6", false)));
    assert_eq!(link.events(), ["NodeSchedulable"]);
    let mut other = seen("1", true);
    other["metadata"]["uid"] = "v".into();
    link.registration.observed(link.now, Some(&other));
    assert_eq!(link.registration.uid(), Some("v"));
}

#[test]
fn errors_say_what_the_credentials_must_be() {
    let mut link = Link::new("2026-11-21T23:35:33Z");
    link.request();
    let refused = Answer::new(403, json!({"message": "nodes \"node1\" is forbidden: no"}));
    assert_eq!(
        link.answer(&refused).unwrap_err().to_string(),
        "cannot write the node node1: the API server forbids it: nodes \"node1\" is forbidden: no; the credentials in the \
         kubeconfig must be those of system:node:node1 in the group system:nodes"
    );
    let unknown = Answer::new(401, json!({"message": "Unauthorized"}));
    assert!(matches!(
        link.answer(&unknown),
        Err(NodeError::Unauthorized { .. })
    ));
    let invalid = Answer::new(422, json!({"message": "wrong"}));
    assert!(matches!(
        link.answer(&invalid),
        Err(NodeError::Refused { code: 422, .. })
    ));
}

/// The answer to the registration comes after what the watch has shown of it.
#[test]
fn what_the_watch_shows_before_the_answer_is_not_lost() {
    for (uid, version, is_seen) in [("u", "2", true), ("u", "0", false), ("old", "2", false)] {
        let mut link = Link::new("2026-01-01T00:00:00Z");
        link.request();
        let labels = json!({"disk": "ssd"});
        let seen = json!({"metadata": {"uid": uid, "resourceVersion": version, "labels": labels}});
        link.registration.observed(link.now, Some(&seen));
        assert_eq!(link.registration.node(), None);
        link.take(1);
        let node = link.registration.node().unwrap();
        let is_labelled = node["metadata"]["labels"]["disk"] == "ssd";
        assert_eq!(is_labelled, is_seen, "{uid} {version}");
    }
    let mut link = Link::registered("2026-01-01T00:00:00Z");
    link.pass(6 * 60 * SECOND);
    link.request();
    let mut seen = link.registration.node().unwrap().clone();
    seen["metadata"]["resourceVersion"] = "9".into();
    seen["metadata"]["labels"] = json!({"disk": "ssd"});
    link.registration.observed(link.now, Some(&seen));
    link.take(3);
    let node = link.registration.node().unwrap();
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
}
