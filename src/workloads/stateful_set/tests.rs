//! Rules of StatefulSets that no vector shows.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::*;
use crate::api::PodPhase;
use crate::api::workload::{
    ClaimRetentionPolicy, ClaimTemplate, IntOrPercent, Ordinals, RollingUpdateStatefulSet,
    StatefulSetSpec,
};
use crate::workloads::controller_revisions::{REVISION_LABEL, WantedTemplate};
use crate::workloads::event::EventKind;

/// Second at which the revision `db-new` was taken up.
pub(super) const TAKEN_UP: i64 = 100;
/// Second at which the steps run.
pub(super) const NOW: i64 = 200;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A StatefulSet `db` whose template was changed from `old` to `new`.
pub(super) struct Fixture {
    pub spec: StatefulSetSpec,
    pub state: StatefulSetState,
    pub pods: Vec<ObservedPod>,
    pub claims: BTreeSet<String>,
    pub taken_names: BTreeSet<String>,
    pub images_ready: bool,
    pub is_deleted: bool,
    pub mends_stuck_pods: bool,
    pub max_unavailable_gate: bool,
    pub now: Timestamp,
}

impl Fixture {
    pub fn new(replicas: i32) -> Self {
        let mut spec = StatefulSetSpec {
            replicas,
            revision_history_limit: 10,
            ..StatefulSetSpec::default()
        };
        spec.update_strategy.type_ = "RollingUpdate".to_owned();
        let mut fixture = Self {
            spec,
            state: StatefulSetState::default(),
            pods: Vec::new(),
            claims: BTreeSet::new(),
            taken_names: BTreeSet::new(),
            images_ready: true,
            is_deleted: false,
            mends_stuck_pods: true,
            max_unavailable_gate: false,
            now: at(NOW),
        };
        fixture.partition(0);
        fixture.take_up("old", 0);
        fixture.take_up("new", TAKEN_UP);
        fixture.state.current_revision = "db-old".to_owned();
        fixture
    }

    pub fn take_up(&mut self, template: &str, second: i64) {
        let wanted = WantedTemplate {
            workload: "db",
            template,
            hash: template,
            annotations: &BTreeMap::new(),
        };
        let revisions = &mut self.state.revisions;
        revisions.take_up(&wanted, at(second), |_| false).unwrap();
    }

    pub fn partition(&mut self, partition: i32) {
        self.spec.update_strategy.rolling_update = Some(RollingUpdateStatefulSet {
            partition: Some(partition),
            max_unavailable: None,
        });
    }

    /// Adds a pod that has been ready or not ready since that second.
    pub fn pod(
        &mut self,
        ordinal: i32,
        revision: &str,
        is_ready: bool,
        since: i64,
    ) -> &mut ObservedPod {
        self.pods.push(ObservedPod {
            name: format!("db-{ordinal}"),
            labels: BTreeMap::from([(REVISION_LABEL.to_owned(), format!("db-{revision}"))]),
            phase: PodPhase::Running,
            is_ready,
            ready_changed: Some(at(since)),
            is_in_table: true,
            ..ObservedPod::default()
        });
        self.pods.last_mut().unwrap()
    }

    pub fn claims(&mut self, templates: &[&str], when_scaled: &str, when_deleted: &str) {
        let template = |name: &&str| {
            let mut template = ClaimTemplate::default();
            template.metadata.name = (*name).to_owned();
            template
        };
        self.spec.volume_claim_templates = templates.iter().map(template).collect();
        self.spec.persistent_volume_claim_retention_policy = Some(ClaimRetentionPolicy {
            when_deleted: when_deleted.to_owned(),
            when_scaled: when_scaled.to_owned(),
        });
    }

    pub fn step(&self) -> StatefulSetOutput {
        step(&StatefulSetInput {
            name: "db",
            spec: &self.spec,
            generation: 7,
            is_deleted: self.is_deleted,
            state: &self.state,
            pods: &self.pods,
            claims: &self.claims,
            taken_names: &self.taken_names,
            images_ready: self.images_ready,
            mends_stuck_pods: self.mends_stuck_pods,
            max_unavailable_gate: self.max_unavailable_gate,
            now: self.now,
        })
    }

    #[track_caller]
    fn check(&self, actions: &[&str], wait: &str) {
        let output = self.step();
        assert_eq!(words(&output), actions);
        assert_eq!(output.wait.to_string(), wait);
    }
}

/// The actions of a step in words.
pub(super) fn words(output: &StatefulSetOutput) -> Vec<String> {
    let creates = output.creates.iter();
    let creates = creates.map(|it| format!("create {} at {}", it.identity.name, it.revision));
    let deletes = output.deletes.iter();
    let deletes = deletes.map(|it| format!("delete {}: {}", it.pod, it.reason.as_str()));
    creates.chain(deletes).collect()
}

const STUCK: &str = "delete db-1: it is not ready and holds up the update";

#[test]
fn an_outdated_pod_that_was_never_ready_is_replaced_before_the_others() {
    #[track_caller]
    fn check(change: impl Fn(&mut Fixture), is_mended: bool) {
        let mut set = Fixture::new(3);
        set.pod(0, "old", true, 0);
        set.pod(1, "old", false, 50);
        set.pod(2, "old", true, 0);
        change(&mut set);
        let output = set.step();
        let expected: &[&str] = if is_mended { &[STUCK] } else { &[] };
        assert_eq!(words(&output), expected);
        assert_eq!(output.events.len(), expected.len());
    }
    check(|_| {}, true);
    check(|set| set.pods[1].ready_changed = None, true);
    check(|set| set.pods[1].ready_changed = Some(at(TAKEN_UP)), true);
    check(
        |set| set.pods[1].ready_changed = Some(at(TAKEN_UP + 1)),
        false,
    );
    check(|set| set.mends_stuck_pods = false, false);
    check(|set| set.images_ready = false, false);
    check(|set| set.pods[1].is_deleted = true, false);
    check(|set| set.partition(2), false);
    check(
        |set| set.spec.update_strategy.type_ = "OnDelete".to_owned(),
        false,
    );
    let updated = || BTreeMap::from([(REVISION_LABEL.to_owned(), "db-new".to_owned())]);
    check(|set| set.pods[1].labels = updated(), false);
    // A ready pod that is not available yet goes on to be waited for.
    check(
        |set| {
            set.spec.min_ready_seconds = 1000;
            set.pods[1].is_ready = true;
        },
        false,
    );
}

#[test]
fn a_stuck_pod_comes_again_at_the_new_revision() {
    let mut set = Fixture::new(2);
    set.pod(0, "old", false, 0);
    set.pod(1, "old", true, 0);
    let output = set.step();
    assert_eq!(output.status.current_replicas, 1);
    let event = &output.events[0];
    assert_eq!(
        (event.kind, event.reason),
        (EventKind::Normal, "ReplacingStuckPod")
    );
    assert_eq!(
        event.message,
        "Pod db-0 in StatefulSet db has not been ready since revision db-new exists: replacing it before the others"
    );
    set.pods.remove(0);
    set.check(
        &["create db-0 at db-new"],
        "waits for pod db-0 to become ready",
    );
}

#[test]
fn an_old_pod_stays_until_the_images_of_the_new_revision_are_there() {
    let mut set = Fixture::new(1);
    set.pod(0, "old", true, 0);
    set.images_ready = false;
    let waits = "waits for the images of revision db-new before pod db-0 is replaced";
    set.check(&[], waits);
    set.spec.pod_management_policy = "Parallel".to_owned();
    set.check(&[], waits);
    set.images_ready = true;
    set.check(
        &["delete db-0: it is not from the newest revision"],
        "waits for pod db-0 to end",
    );
    // An old pod that is not ready stays as well, and one that has ended has nothing to lose.
    set.images_ready = false;
    set.spec.pod_management_policy = String::new();
    set.pods[0].is_ready = false;
    set.check(&[], waits);
    set.pods[0].phase = PodPhase::Failed;
    set.check(&["delete db-0: it has ended"], "waits for pod db-0 to end");
    set.spec.pod_management_policy = "Parallel".to_owned();
    set.check(&["delete db-0: it has ended"], "waits for pod db-0 to end");
}

#[test]
fn two_pods_beyond_the_range_that_are_not_ready_do_not_wait_for_each_other() {
    let mut set = Fixture::new(1);
    set.pod(0, "new", true, 0);
    set.pod(1, "new", false, 0);
    set.pod(2, "new", false, 0);
    set.check(
        &["delete db-2: fewer pods are wanted"],
        "waits for pod db-2 to end",
    );
    set.mends_stuck_pods = false;
    set.check(&[], "waits for pod db-1 to become ready");
}

#[test]
fn a_pod_beyond_the_range_that_is_well_does_not_wait_for_one_that_is_not() {
    let mut set = Fixture::new(0);
    set.mends_stuck_pods = false;
    set.pod(0, "new", false, 0);
    set.pod(1, "new", true, NOW - 10);
    set.check(
        &["delete db-1: fewer pods are wanted"],
        "waits for pod db-1 to end",
    );
    set.spec.min_ready_seconds = 60;
    set.check(&[], "waits for pod db-0 to become ready");
}

#[test]
fn a_ready_pod_that_is_not_running_holds_the_next_one_up() {
    let mut set = Fixture::new(2);
    set.pod(0, "new", true, 0).phase = PodPhase::Pending;
    let output = set.step();
    assert_eq!(words(&output), [""; 0]);
    assert_eq!(output.status.ready_replicas, 0);
    assert_eq!(output.status.available_replicas, 0);
}

#[test]
fn the_partition_counts_from_the_first_number() {
    let mut set = Fixture::new(2);
    set.spec.ordinals = Some(Ordinals { start: 5 });
    set.partition(1);
    set.pod(5, "old", true, 0);
    set.pod(6, "new", true, 0);
    set.check(&[], "keeps 1 outdated pod below number 6 (partition)");
    set.pods.clear();
    set.check(
        &["create db-5 at db-old"],
        "waits for pod db-5 to become ready",
    );
}

#[test]
fn an_update_by_hand_is_never_complete() {
    let mut set = Fixture::new(1);
    set.pod(0, "new", true, 0);
    assert_eq!(set.step().status.current_revision, "db-new");
    set.spec.update_strategy.type_ = "OnDelete".to_owned();
    assert_eq!(set.step().status.current_revision, "db-old");
}

#[test]
fn the_budget_of_the_gate_ends_at_the_partition() {
    let mut set = Fixture::new(3);
    set.max_unavailable_gate = true;
    set.partition(2);
    let settings = set.spec.update_strategy.rolling_update.as_mut();
    settings.unwrap().max_unavailable = Some(IntOrPercent::Int(3));
    for ordinal in 0..3 {
        set.pod(ordinal, "old", true, 0);
    }
    set.check(
        &["delete db-2: it is not from the newest revision"],
        "waits for pod db-2 to end",
    );
}

#[test]
fn pods_of_others_are_left_alone() {
    let mut set = Fixture::new(0);
    set.pod(0, "new", true, 0).name = "db-00".to_owned();
    set.pod(0, "new", true, 0).name = "web-0".to_owned();
    let output = set.step();
    assert_eq!(words(&output), [""; 0]);
    assert_eq!(output.status.replicas, 0);
}

#[test]
fn a_name_that_another_pod_has_is_waited_for() {
    let mut set = Fixture::new(3);
    set.taken_names.insert("db-1".to_owned());
    set.pod(0, "new", true, 0);
    set.check(
        &[],
        "waits for the name db-1, which a pod of another owner has",
    );
    set.spec.pod_management_policy = "Parallel".to_owned();
    let waits = "waits for the name db-1, which a pod of another owner has";
    set.check(&["create db-2 at db-new"], waits);
    assert_eq!(set.step().status.replicas, 2);
}

#[test]
fn a_huge_number_of_pods_is_made_in_portions() {
    let mut set = Fixture::new(i32::MAX);
    set.spec.pod_management_policy = "Parallel".to_owned();
    let output = set.step();
    assert_eq!(output.creates.len(), 500);
    assert_eq!(output.creates[499].identity.name, "db-499");
    set.pod(0, "new", false, 0);
    assert_eq!(set.step().creates[499].identity.name, "db-500");
}

#[test]
fn an_outdated_pod_that_has_ended_is_deleted_once() {
    let mut set = Fixture::new(1);
    set.spec.pod_management_policy = "Parallel".to_owned();
    set.pod(0, "old", false, 0).phase = PodPhase::Failed;
    set.check(&["delete db-0: it has ended"], "waits for pod db-0 to end");
}

#[test]
fn a_set_says_what_it_waits_for_when_nothing_can_be_done() {
    let mut set = Fixture::new(2);
    set.pod(0, "old", true, 0);
    set.pod(1, "new", true, 0);
    set.partition(1);
    set.check(&[], "keeps 1 outdated pod below number 1 (partition)");
    set.spec.update_strategy.type_ = "OnDelete".to_owned();
    set.check(
        &[],
        "waits for a person to delete 1 outdated pod (OnDelete)",
    );
    set.pods[0].is_ready = false;
    set.spec.pod_management_policy = "Parallel".to_owned();
    set.check(&[], "waits for pod db-0 to become ready");
    set.is_deleted = true;
    set.check(&[], "is being deleted");
    let mut done = Fixture::new(1);
    done.pod(0, "new", true, 0);
    done.check(&[], "waits for nothing");
    done.pod(1, "new", true, 0).is_deleted = true;
    done.check(&[], "waits for pod db-1 to end");
    done.spec.pod_management_policy = "Parallel".to_owned();
    done.check(&[], "waits for pod db-1 to end");
}

#[test]
fn the_next_step_is_due_when_a_ready_pod_becomes_available() {
    let mut set = Fixture::new(3);
    set.pod(0, "new", true, NOW - 60);
    set.pod(1, "new", true, NOW - 10);
    set.pod(2, "new", true, NOW - 20);
    assert_eq!(set.step().wake_at, None);
    set.spec.min_ready_seconds = 60;
    let output = set.step();
    assert_eq!(output.wake_at, Some(at(NOW + 40)));
    assert_eq!(output.status.available_replicas, 1);
    set.check(
        &[],
        "waits for pod db-1, which is ready, to become available at 1970-01-01T00:04:10Z (minReadySeconds)",
    );
    set.pods[1].is_in_table = false;
    set.check(
        &[],
        "waits for the services to send to pod db-1, which is ready",
    );
}

#[test]
fn a_set_without_revisions_waits_for_its_template() {
    let mut set = Fixture::new(1);
    set.state = StatefulSetState::default();
    assert_eq!(set.step(), StatefulSetOutput::default());
}

#[test]
fn a_lost_current_revision_is_the_newest_one() {
    let mut set = Fixture::new(1);
    set.state.current_revision = "db-lost".to_owned();
    set.partition(1);
    set.check(
        &["create db-0 at db-new"],
        "waits for pod db-0 to become ready",
    );
    assert_eq!(set.step().state.current_revision, "db-new");
}

#[test]
fn a_missing_pod_comes_at_the_new_revision_with_on_delete() {
    let mut set = Fixture::new(1);
    set.state.current_replicas = 1;
    set.spec.update_strategy.rolling_update = None;
    let waits = "waits for pod db-0 to become ready";
    set.check(&["create db-0 at db-old"], waits);
    set.spec.update_strategy.type_ = "OnDelete".to_owned();
    set.check(&["create db-0 at db-new"], waits);
}

#[test]
fn old_revisions_go_and_those_in_use_stay() {
    let mut set = Fixture::new(1);
    set.spec.revision_history_limit = 1;
    for template in ["x", "y", "z"] {
        set.take_up(template, NOW);
    }
    set.pod(0, "x", false, NOW);
    let left = set.step().state.revisions;
    let names: Vec<&str> = left.all().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["db-old", "db-x", "db-y", "db-z"]);
}

#[test]
fn the_status_has_the_names_of_the_api() {
    let mut set = Fixture::new(1);
    set.pod(0, "old", true, 0);
    let status = serde_json::to_value(set.step().status).unwrap();
    let expected = serde_json::json!({
        "observedGeneration": 7, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "currentRevision": "db-old", "updateRevision": "db-new", "collisionCount": 0
    });
    assert_eq!(status, expected);
}

#[test]
fn more_deletions_than_current_pods_do_not_make_the_number_negative() {
    let mut set = Fixture::new(1);
    set.take_up("newer", NOW);
    set.pod(0, "new", true, 0);
    let output = set.step();
    assert_eq!(output.deletes.len(), 1);
    assert_eq!(output.status.current_replicas, 0);
}

#[test]
fn claims_are_made_for_new_and_pending_pods() {
    let mut set = Fixture::new(2);
    set.spec.pod_management_policy = "Parallel".to_owned();
    set.claims(&["data", "log"], "Retain", "Retain");
    set.spec.volume_claim_templates[0]
        .metadata
        .labels
        .insert("app".to_owned(), "x".to_owned());
    let selector = &mut set.spec.selector.match_labels;
    selector.insert("app".to_owned(), "db".to_owned());
    set.pod(0, "new", false, 0).phase = PodPhase::Pending;
    set.claims.insert("data-db-0".to_owned());
    let made = set.step().claims_to_make;
    let names: Vec<&str> = made.iter().map(|it| it.claim.as_str()).collect();
    assert_eq!(names, ["log-db-0", "data-db-1", "log-db-1"]);
    assert_eq!(made[1].pod, "db-1");
    assert_eq!(made[1].labels, set.spec.selector.match_labels);
    set.is_deleted = true;
    assert_eq!(set.step().claims_to_make, []);
    set.is_deleted = false;
    set.pods[0].is_deleted = true;
    assert_eq!(set.step().claims_to_make.len(), 2);
    set.pods[0].is_deleted = false;
    set.pods[0].phase = PodPhase::Running;
    assert_eq!(set.step().claims_to_make.len(), 2);
}

/// Runs a step, writes its state down, and returns the claims that go.
fn removed(set: &mut Fixture) -> Vec<String> {
    let output = set.step();
    set.state = output.state;
    output.claims_to_remove
}

#[test]
fn claims_of_pods_beyond_the_range_go_after_their_pods() {
    #[track_caller]
    fn check(when_scaled: &str, expected: &[&str]) {
        let mut set = Fixture::new(1);
        set.claims(&["data", "log"], when_scaled, "Retain");
        for claim in ["data-db-0", "data-db-1", "log-db-1", "data-db-2"] {
            set.claims.insert(claim.to_owned());
        }
        set.pod(0, "new", true, 0);
        set.pod(1, "new", true, 0);
        assert_eq!(removed(&mut set), [""; 0]);
        set.pods.pop();
        // A crash before the claims are moved must not lose them.
        assert_eq!(removed(&mut set), expected);
        assert_eq!(removed(&mut set), expected);
        set.claims.retain(|it| !it.ends_with("db-1"));
        assert_eq!(removed(&mut set), [""; 0]);
        assert_eq!(set.state.claim_owners, BTreeMap::new());
    }
    check("Delete", &["data-db-1", "log-db-1"]);
    check("Retain", &[]);
}

#[test]
fn claims_of_a_pod_that_is_wanted_again_stay() {
    let mut set = Fixture::new(1);
    set.claims(&["data"], "Delete", "Retain");
    set.claims.insert("data-db-1".to_owned());
    set.pod(0, "new", false, 0);
    set.pod(1, "new", true, 0);
    removed(&mut set);
    set.pods.pop();
    // Number 1 waits for number 0, so it is wanted and not there.
    set.spec.replicas = 2;
    assert_eq!(removed(&mut set), [""; 0]);
    set.pods[0].is_ready = true;
    assert_eq!(set.step().creates.len(), 1);
    assert_eq!(removed(&mut set), [""; 0]);
    assert_eq!(set.state.claim_owners, BTreeMap::new());
}

#[test]
fn claims_go_with_the_set_only_if_its_policy_said_so_while_the_pods_were_there() {
    #[track_caller]
    fn check(when_deleted: &str, expected: &[&str]) {
        let mut set = Fixture::new(2);
        set.claims(&["data"], "Retain", when_deleted);
        for claim in ["data-db-0", "data-db-1", "data-db-7"] {
            set.claims.insert(claim.to_owned());
        }
        set.pod(0, "new", true, 0);
        removed(&mut set);
        set.is_deleted = true;
        assert_eq!(removed(&mut set), [""; 0], "a pod is there");
        set.pods.clear();
        assert_eq!(removed(&mut set), expected);
        assert_eq!(removed(&mut set), expected);
    }
    // Number 1 is made in the first step. Number 7 went before.
    check("Delete", &["data-db-0", "data-db-1"]);
    check("Retain", &[]);
}

#[test]
fn claims_stay_while_a_set_without_pods_is_there() {
    let mut set = Fixture::new(1);
    set.claims(&["data"], "Retain", "Delete");
    set.claims.insert("data-db-0".to_owned());
    set.pod(0, "new", true, 0);
    removed(&mut set);
    set.spec.replicas = 0;
    set.pods.clear();
    assert_eq!(removed(&mut set), [""; 0]);
    set.is_deleted = true;
    assert_eq!(removed(&mut set), ["data-db-0"]);
}

#[test]
fn a_set_without_claims_writes_down_no_owners() {
    let mut set = Fixture::new(1);
    set.claims(&[], "Delete", "Delete");
    set.pod(0, "new", true, 0);
    assert_eq!(set.step().state.claim_owners, BTreeMap::new());
}

#[test]
fn events_have_the_words_of_kubernetes() {
    #[track_caller]
    fn check(event: ControllerEvent, reason: &str, message: &str) {
        assert_eq!((event.reason, &*event.message), (reason, message));
        assert_eq!(
            event.kind == EventKind::Warning,
            reason.starts_with("Failed")
        );
    }
    let mut set = Fixture::new(1);
    set.claims(&["data"], "Retain", "Retain");
    let output = set.step();
    let create = &output.creates[0];
    check(
        creation_event("db", create, None),
        "SuccessfulCreate",
        "Create Pod db-0 in StatefulSet db successful",
    );
    check(
        creation_event("db", create, Some("no room")),
        "FailedCreate",
        "Create Pod db-0 in StatefulSet db failed error: no room",
    );
    let claim = &output.claims_to_make[0];
    check(
        claim_event("db", claim, None),
        "SuccessfulCreate",
        "Create Claim data-db-0 Pod db-0 in StatefulSet db success",
    );
    check(
        claim_event("db", claim, Some("disk full")),
        "FailedCreate",
        "Create Claim data-db-0 for Pod db-0 in StatefulSet db failed error: disk full",
    );
    set.pod(0, "old", true, 0);
    let delete = &set.step().deletes[0];
    check(
        deletion_event("db", delete, None),
        "SuccessfulDelete",
        "Delete Pod db-0 in StatefulSet db successful",
    );
    check(
        deletion_event("db", delete, Some("gone")),
        "FailedDelete",
        "Delete Pod db-0 in StatefulSet db failed error: gone",
    );
}
