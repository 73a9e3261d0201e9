//! Rules of DaemonSets that no vector shows.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::api::PodPhase;
use crate::api::workload::{IntOrPercent, RollingUpdateDaemonSet};
use crate::workloads::controller_revisions::{REVISION_LABEL, WantedTemplate};

/// Second at which the steps run.
const NOW: i64 = 200;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A DaemonSet `log` whose template was changed from `old` to `new`.
pub(super) struct Fixture {
    pub spec: DaemonSetSpec,
    pub state: DaemonSetState,
    pub pods: Vec<ObservedPod>,
    pub fit: NodeFit<'static>,
    pub generation: i64,
    pub surge_blocked: Option<&'static str>,
    pub images_ready: bool,
    pub now: Timestamp,
}

impl Fixture {
    pub fn new() -> Self {
        let mut fixture = Self {
            spec: DaemonSetSpec {
                revision_history_limit: 10,
                ..DaemonSetSpec::default()
            },
            state: DaemonSetState::default(),
            pods: Vec::new(),
            fit: NodeFit::Runs,
            generation: 7,
            surge_blocked: None,
            images_ready: true,
            now: at(NOW),
        };
        fixture.spec.update_strategy.type_ = "RollingUpdate".to_owned();
        fixture.limits(0, 1);
        fixture.take_up("old");
        fixture.take_up("new");
        fixture
    }

    pub fn take_up(&mut self, template: &str) {
        let wanted = WantedTemplate {
            workload: "log",
            template,
            hash: template,
            annotations: &BTreeMap::new(),
        };
        let revisions = &mut self.state.revisions;
        revisions
            .take_up(&wanted, self.now, |it| it == template)
            .unwrap();
    }

    pub fn limits(&mut self, surge: i32, unavailable: i32) {
        self.spec.update_strategy.rolling_update = Some(RollingUpdateDaemonSet {
            max_surge: Some(IntOrPercent::Int(surge)),
            max_unavailable: Some(IntOrPercent::Int(unavailable)),
        });
    }

    /// Adds a running pod with the name of its revision.
    pub fn pod(&mut self, revision: &str, is_ready: bool) -> &mut ObservedPod {
        self.pods.push(ObservedPod {
            name: revision.to_owned(),
            labels: BTreeMap::from([(REVISION_LABEL.to_owned(), revision.to_owned())]),
            phase: PodPhase::Running,
            is_ready,
            ready_changed: Some(at(100)),
            is_in_table: true,
            ..ObservedPod::default()
        });
        self.pods.last_mut().unwrap()
    }

    pub fn step(&self) -> DaemonSetOutput {
        step(&DaemonSetInput {
            namespace: "default",
            node: "edge",
            spec: &self.spec,
            generation: self.generation,
            fit: self.fit,
            state: &self.state,
            pods: &self.pods,
            surge_blocked: self.surge_blocked,
            images_ready: self.images_ready,
            now: self.now,
        })
    }

    /// Compares the actions in words, and what is waited for.
    #[track_caller]
    fn check(&self, actions: &[&str], wait: &str) {
        let output = self.step();
        let deletes = output.deletes.iter();
        let mut words: Vec<String> = deletes
            .map(|it| format!("delete {}: {}", it.pod, it.reason.as_str()))
            .collect();
        if output.creates {
            words.insert(0, "create".to_owned());
        }
        assert_eq!(words, actions);
        assert_eq!(output.wait.to_string(), wait);
    }
}

const OUTDATED: &str = "delete old: it is not from the newest revision";
const WAITS_FOR_END: &str = "waits for pod old to end";
const WAITS_FOR_IMAGES: &str =
    "waits for the images of revision log-new before pod old is replaced";

#[test]
fn an_old_pod_stays_until_the_images_of_the_new_revision_are_there() {
    #[track_caller]
    fn check(surge: i32, change: impl Fn(&mut Fixture), waits: bool) {
        let mut set = Fixture::new();
        set.limits(surge, 1 - surge);
        set.pod("old", true);
        change(&mut set);
        set.check(&[OUTDATED], WAITS_FOR_END);
        set.images_ready = false;
        if waits {
            set.check(&[], WAITS_FOR_IMAGES);
        } else {
            set.check(&[OUTDATED], WAITS_FOR_END);
        }
    }
    check(0, |_| {}, true);
    check(0, |set| set.pods[0].is_ready = false, true);
    // An old pod that has failed and is in back-off loses nothing.
    check(
        0,
        |set| {
            set.pods[0].phase = PodPhase::Failed;
            set.pods[0].is_ready = false;
            set.state.failed_pods = Some(FailedPodBackOff::next(None, 7, set.now));
        },
        false,
    );
    check(1, |set| set.pod("new", true).created = at(150), true);
    check(
        1,
        |set| {
            set.pods[0].is_ready = false;
            set.pod("new", false).created = at(150);
        },
        true,
    );
}

#[test]
fn surge_that_cannot_be_is_a_gap() {
    let mut set = Fixture::new();
    set.limits(1, 0);
    set.pod("old", true);
    set.check(&["create"], "waits for a new pod to become ready");
    assert_eq!(set.step().surge_note, None);
    set.surge_blocked = Some("hostPort 80 is held by the old pod");
    set.check(&[OUTDATED], WAITS_FOR_END);
    let note = set.step().surge_note;
    assert_eq!(
        note.unwrap(),
        "surge 1 lowered to 0: hostPort 80 is held by the old pod"
    );
    // A pod that is being deleted still holds the port.
    set.pods[0].is_deleted = true;
    set.check(&[], WAITS_FOR_END);
    set.pods[0].phase = PodPhase::Failed;
    set.check(&["create"], "waits for a new pod to become ready");
    set.limits(0, 1);
    assert_eq!(set.step().surge_note, None);
}

#[test]
fn failed_pods_are_replaced_after_a_back_off() {
    let mut set = Fixture::new();
    set.pod("new", false).phase = PodPhase::Failed;
    set.pod("new", false).phase = PodPhase::Failed;
    set.pods[1].name = "other".to_owned();
    // Two pods at once: the second one waits for the back-off of the first.
    let output = set.step();
    assert_eq!(output.deletes.len(), 1);
    assert_eq!(output.wake_at, Some(at(NOW + 1)));
    set.state = output.state;
    set.pods.remove(0);
    set.check(
        &[],
        "waits until 1970-01-01T00:03:21Z before failed pod other is replaced",
    );
    set.now = at(NOW + 1);
    let output = set.step();
    assert_eq!(output.deletes.len(), 1);
    assert_eq!(output.state.failed_pods.unwrap().delay_seconds, 2);
    set.state = output.state;
    set.check(
        &[],
        "waits until 1970-01-01T00:03:23Z before failed pod other is replaced",
    );
    set.generation = 8;
    assert_eq!(set.step().deletes.len(), 1);
}

#[test]
fn failed_pods_do_not_pile_up_beside_new_ones() {
    let mut set = Fixture::new();
    set.limits(1, 0);
    set.state.failed_pods = Some(FailedPodBackOff::next(None, 7, set.now));
    for failed in 0..3 {
        assert!(set.step().creates, "{failed} failed");
        let pod = set.pod("new", false);
        pod.phase = PodPhase::Failed;
        pod.name = failed.to_string();
    }
    assert!(!set.step().creates);
}

#[test]
fn a_node_that_does_not_match_is_said() {
    let mut set = Fixture::new();
    let reason = "nodeSelector does not match";
    set.fit = NodeFit::Leaves { reason };
    set.check(&[], "has 0 of 1 pods: nodeSelector does not match");
    assert_eq!(set.step().status.desired_number_scheduled, 0);
    set.pod("new", true);
    set.check(
        &["delete new: it may not run on this node"],
        "waits for pod new to end",
    );
    let status = set.step().status;
    assert_eq!(
        (status.number_misscheduled, status.number_unavailable),
        (1, 0)
    );
    assert_eq!(
        (status.current_number_scheduled, status.number_ready),
        (0, 0)
    );
    set.fit = NodeFit::Stays { reason };
    set.check(&[], "waits for nothing");
    set.pods.clear();
    set.check(&[], "has 0 of 1 pods: nodeSelector does not match");
}

#[test]
fn an_outdated_pod_goes_where_no_new_one_may_come() {
    #[track_caller]
    fn check(surge: IntOrPercent, unavailable: IntOrPercent, is_ready: bool, goes: bool) {
        let mut set = Fixture::new();
        set.fit = NodeFit::Stays { reason: "no" };
        set.spec.update_strategy.rolling_update = Some(RollingUpdateDaemonSet {
            max_surge: Some(surge),
            max_unavailable: Some(unavailable),
        });
        set.pod("old", is_ready);
        let output = set.step();
        assert_eq!((output.deletes.len(), output.creates), (goes.into(), false));
    }
    let percent = |it: &str| IntOrPercent::Text(it.to_owned());
    check(IntOrPercent::Int(1), IntOrPercent::Int(0), true, true);
    check(IntOrPercent::Int(1), IntOrPercent::Int(0), false, true);
    check(IntOrPercent::Int(0), IntOrPercent::Int(1), true, true);
    // A percentage of no node is 0.
    check(percent("1%"), IntOrPercent::Int(0), true, false);
    check(IntOrPercent::Int(0), percent("50%"), true, false);
    check(IntOrPercent::Int(0), percent("50%"), false, true);
}

#[test]
fn limits_that_are_both_zero_or_missing_allow_one_unavailable_pod() {
    #[track_caller]
    fn check(change: impl Fn(&mut Fixture)) {
        let mut set = Fixture::new();
        set.pod("old", true);
        change(&mut set);
        set.check(&[OUTDATED], WAITS_FOR_END);
    }
    check(|set| set.limits(0, 0));
    check(|set| set.spec.update_strategy.rolling_update = None);
    check(|set| set.spec.update_strategy.rolling_update = Some(RollingUpdateDaemonSet::default()));
}

#[test]
fn on_delete_waits_for_a_person_even_with_limits() {
    let mut set = Fixture::new();
    set.limits(1, 0);
    set.spec.update_strategy.type_ = "OnDelete".to_owned();
    set.pod("old", true);
    set.check(
        &[],
        "waits for a person to delete 1 outdated pod (OnDelete)",
    );
    // There is no surge beside a pod that is being deleted.
    set.pods[0].is_deleted = true;
    set.check(&[], WAITS_FOR_END);
}

#[test]
fn with_surge_the_oldest_old_and_the_oldest_new_pod_stay() {
    let mut set = Fixture::new();
    set.limits(1, 0);
    for (name, revision, created) in [
        ("d", "new", 40),
        ("a", "old", 10),
        ("c", "new", 30),
        ("b", "old", 20),
    ] {
        let pod = set.pod(revision, revision == "old");
        pod.name = name.to_owned();
        pod.created = at(created);
    }
    set.check(
        &[
            "delete d: another pod runs in its place",
            "delete b: another pod runs in its place",
        ],
        "waits for pod d to end",
    );
}

#[test]
fn the_status_is_that_of_the_oldest_pod() {
    let mut set = Fixture::new();
    set.limits(1, 0);
    set.spec.min_ready_seconds = 150;
    set.pod("new", false).created = at(50);
    set.pod("old", true).created = at(10);
    let output = set.step();
    assert_eq!(output.wake_at, Some(at(250)));
    let expected = serde_json::json!({
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1,
        "observedGeneration": 7, "numberUnavailable": 1
    });
    assert_eq!(serde_json::to_value(output.status).unwrap(), expected);
    set.pods.remove(1);
    set.pods[0].is_ready = true;
    set.now = at(250);
    let expected = serde_json::json!({
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1,
        "observedGeneration": 7, "updatedNumberScheduled": 1, "numberAvailable": 1
    });
    let output = set.step();
    assert_eq!(serde_json::to_value(output.status).unwrap(), expected);
    assert_eq!(output.wake_at, None);
}

#[test]
fn old_revisions_go_and_those_in_use_stay() {
    let mut set = Fixture::new();
    set.spec.revision_history_limit = 1;
    set.take_up("newer");
    set.pod("old", true).is_deleted = true;
    let left = set.step().state.revisions;
    let names: Vec<&str> = left.all().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["log-old", "log-newer"]);
}

#[test]
fn a_set_without_revisions_waits_for_its_template() {
    let mut set = Fixture::new();
    set.state = DaemonSetState::default();
    assert_eq!(set.step(), DaemonSetOutput::default());
}
