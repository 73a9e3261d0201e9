//! Tests of evictions on a real disk. Opening the evictions again stands for the restart after a kill.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::source::SEEN_ANNOTATION;
use crate::test_pods;

const CEILING: Duration = Duration::from_secs(300);
const UID: &str = "u";

fn at(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

fn pod(policy: &str) -> Pod {
    let spec = json!({ "restartPolicy": policy });
    test_pods::pod("p").uid(UID).spec(spec).build()
}

struct Node {
    dir: tempfile::TempDir,
    evictions: Evictions,
    woken: crossbeam_channel::Receiver<()>,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = Layout::new(dir.path()).pod_data(&UID.into());
        std::fs::create_dir_all(data).unwrap();
        let (wake, woken) = crossbeam_channel::bounded(1);
        let evictions = open(dir.path(), wake);
        Self {
            dir,
            evictions,
            woken,
        }
    }

    /// Kills the daemon and starts the next one.
    fn crash(&mut self) {
        let (wake, woken) = crossbeam_channel::bounded(1);
        self.evictions = open(self.dir.path(), wake);
        self.woken = woken;
    }

    /// Returns three flags: the pod is evicted, it must end, and it may start anew.
    fn seen(&self, now: u64) -> (bool, bool, bool) {
        let (e, uid, now) = (&self.evictions, UID.into(), at(now));
        let is_evicted = e.is_evicted(&uid, now);
        assert_eq!(e.ended_by(&uid, now).is_some(), is_evicted);
        assert_eq!(e.over(&uid, now).is_some(), !e.due(now).is_empty());
        (
            is_evicted,
            e.ending().contains(&uid),
            e.over(&uid, now).is_some(),
        )
    }
}

fn open(root: &std::path::Path, wake: Sender<()>) -> Evictions {
    Evictions::open(&Layout::new(root), &[UID.into()], CEILING, wake)
}

const NOT_EVICTED: (bool, bool, bool) = (false, false, false);
const ENDING: (bool, bool, bool) = (true, true, false);
const WAITING: (bool, bool, bool) = (true, false, false);
const OVER: (bool, bool, bool) = (false, false, true);

#[test]
fn an_evicted_pod_ends_waits_and_starts_anew_wherever_the_daemon_is_killed() {
    let mut node = Node::new();
    let (uid, pod) = (PodUid::from(UID), pod("Always"));
    let check = |node: &mut Node, now, expected| {
        assert_eq!(node.seen(now), expected);
        node.crash();
        assert_eq!(node.seen(now), expected, "after a crash");
    };
    check(&mut node, 100, NOT_EVICTED);
    assert_eq!(node.evictions.total(), 0);
    node.evictions.evict(&uid, "why");
    assert_eq!(node.evictions.total(), 1);
    assert!(node.woken.try_recv().is_ok());
    check(&mut node, 100, ENDING);
    node.evictions.ended(&pod, at(103));
    check(&mut node, 112, WAITING);
    node.evictions.ended(&pod, at(112));
    check(&mut node, 112, WAITING);
    check(&mut node, 113, OVER);
    assert_eq!(
        node.evictions.over(&uid, at(113)).unwrap(),
        "the pod was evicted: why"
    );
    node.evictions.begin_anew(&uid, at(113)).unwrap();
    check(&mut node, 113, NOT_EVICTED);
}

#[test]
fn each_wait_is_longer_than_the_one_before_also_over_a_crash_while_it_waits() {
    let mut node = Node::new();
    let (uid, pod) = (PodUid::from(UID), pod("OnFailure"));
    let mut now = 100;
    for (delay, crash) in [(10, false), (20, true), (40, false)] {
        node.evictions.evict(&uid, "why");
        node.evictions.ended(&pod, at(now));
        if crash {
            node.crash();
        }
        assert_eq!(node.seen(now + delay - 1), WAITING);
        now += delay;
        assert_eq!(node.seen(now), OVER);
        node.evictions.begin_anew(&uid, at(now)).unwrap();
    }
}

#[test]
fn with_policy_never_it_stays_evicted_and_gives_up_its_place() {
    let mut node = Node::new();
    let uid = PodUid::from(UID);
    node.evictions.evict(&uid, "why");
    assert!(node.evictions.comes_back(&uid));
    node.evictions.ended(&pod("Never"), at(100));
    for _ in 0..2 {
        assert_eq!(node.seen(999_999), WAITING);
        assert!(!node.evictions.comes_back(&uid));
        node.crash();
    }
    // the pod's file was removed and came back
    node.evictions.release(&uid, at(100));
    assert_eq!(node.seen(100), OVER);
}

#[test]
fn a_pod_whose_file_goes_while_it_is_being_ended_ends_first() {
    let node = Node::new();
    let uid = PodUid::from(UID);
    node.evictions.evict(&uid, "why");
    node.evictions.release(&uid, at(100));
    assert_eq!(node.seen(100), ENDING);
}

#[test]
fn what_is_removed_is_forgotten() {
    let mut node = Node::new();
    let uid = PodUid::from(UID);
    node.evictions.evict(&uid, "why");
    node.evictions.forget(&uid);
    node.crash();
    assert_eq!(node.seen(100), NOT_EVICTED);
    node.evictions.evict(&uid, "why");
    node.evictions.retain(&HashSet::from([uid]), at(100));
    assert_eq!(node.seen(100), ENDING);
    node.evictions.retain(&HashSet::new(), at(100));
    assert_eq!(node.seen(100), NOT_EVICTED);
}

#[test]
fn a_record_that_cannot_be_written_or_read_costs_no_pod() {
    let mut node = Node::new();
    let uid = PodUid::from(UID);
    let path = Layout::new(node.dir.path()).eviction(&uid);
    std::fs::write(&path, "{").unwrap();
    node.crash();
    assert_eq!(node.seen(100), NOT_EVICTED);
    std::fs::create_dir_all(path.with_extension("json.tmp")).unwrap();
    node.evictions.evict(&uid, "why");
    assert_eq!(node.seen(100), ENDING);
}

/// Makes a pod with a fixed UID, which stays the same when its file changes.
fn with_image(image: &str) -> Pod {
    let spec = json!({"containers": [{"name": "c", "image": image}]});
    let mut pod = test_pods::pod("p").uid(UID).spec(spec).build();
    pod.raw
        .edit(|raw| raw["metadata"]["annotations"] = json!({ SEEN_ANNOTATION: "first" }));
    pod
}

/// Returns the pod as the next daemon reads it from the same file at a later time.
fn read_again(image: &str) -> Pod {
    let mut pod = with_image(image);
    pod.raw
        .edit(|raw| raw["metadata"]["annotations"] = json!({ SEEN_ANNOTATION: "later" }));
    pod
}

fn delete(node: &Node, grace: Option<i64>) {
    let deleted = node.evictions.delete(&with_image("a"), "gone. ", grace);
    deleted.unwrap();
    assert!(node.woken.try_recv().is_ok());
}

#[test]
fn a_deleted_pod_stays_so_until_its_file_changes_whatever_happens_to_the_daemon() {
    let mut node = Node::new();
    let is_deleted = |node: &Node| {
        let by = node.evictions.ended_by(&UID.into(), at(100)).unwrap();
        (by.reason, by.message.as_str(), by.comes_back) == ("Deleted", "gone. ", false)
    };
    delete(&node, None);
    for _ in 0..2 {
        assert_eq!(node.seen(100), (true, true, false));
        assert!(is_deleted(&node));
        node.crash();
    }
    node.evictions.ended(&with_image("a"), at(101));
    for _ in 0..2 {
        node.evictions.seen(&read_again("a"), at(102));
        assert_eq!(node.seen(100_000), (true, false, false));
        assert!(!node.evictions.comes_back(&UID.into()));
        node.crash();
    }
    for _ in 0..2 {
        node.evictions.seen(&with_image("b"), at(103));
        assert_eq!(node.seen(103), (false, false, true));
        let why = "the pod was deleted, and its file has changed since";
        assert_eq!(
            node.evictions.over(&UID.into(), at(103)).as_deref(),
            Some(why)
        );
        node.crash();
    }
    node.evictions.seen(&with_image("b"), at(104));
    node.evictions.begin_anew(&UID.into(), at(104)).unwrap();
    node.crash();
    assert_eq!(node.seen(105), NOT_EVICTED);
}

#[test]
fn a_file_that_changes_while_its_pod_ends_starts_it_anew_afterwards() {
    let node = Node::new();
    delete(&node, None);
    node.evictions.seen(&with_image("b"), at(100));
    assert_eq!(node.seen(100), (true, true, false));
    node.evictions.ended(&with_image("b"), at(101));
    assert_eq!(node.seen(101), (false, false, true));
    // the file changes and changes back to the content that was deleted
    let node = Node::new();
    delete(&node, None);
    node.evictions.seen(&with_image("b"), at(100));
    node.evictions.seen(&with_image("a"), at(100));
    node.evictions.ended(&with_image("a"), at(101));
    assert_eq!(node.seen(101), (true, false, false));
}

#[test]
fn a_deleted_pod_has_the_grace_that_the_person_gives_and_is_not_evicted() {
    let grace = |given| {
        let node = Node::new();
        delete(&node, given);
        node.evictions.grace(&UID.into(), 30, at(100))
    };
    assert_eq!([grace(None), grace(Some(0)), grace(Some(90))], [30, 0, 90]);
    let node = Node::new();
    delete(&node, None);
    node.evictions.evict(&UID.into(), "full. ");
    assert_eq!(node.evictions.total(), 0);
    let by = node.evictions.ended_by(&UID.into(), at(100)).unwrap();
    assert_eq!(by.reason, "Deleted");
    let evicted = Node::new();
    evicted.evictions.evict(&UID.into(), "full. ");
    assert_eq!(evicted.evictions.grace(&UID.into(), 30, at(100)), 1);
    assert_eq!(Node::new().evictions.grace(&UID.into(), 30, at(100)), 30);
}

#[test]
fn an_evicted_pod_that_is_deleted_does_not_come_back() {
    let node = Node::new();
    node.evictions.evict(&UID.into(), "full. ");
    node.evictions.ended(&with_image("a"), at(100));
    let _ = node.woken.try_recv();
    delete(&node, None);
    assert_eq!(node.seen(100_000), (true, false, false));
}

/// A deletion that cannot be written to the disk fails, because the next daemon would not know of the deletion.
#[test]
fn a_deletion_that_the_disk_does_not_take_is_an_error() {
    let node = Node::new();
    let data = Layout::new(node.dir.path()).pod_data(&UID.into());
    std::fs::remove_dir(&data).unwrap();
    std::fs::write(&data, "no directory").unwrap();
    let refused = node.evictions.delete(&with_image("a"), "gone. ", None);
    assert!(refused.is_err());
    assert_eq!(node.seen(100), NOT_EVICTED);
}

/// An edit of the pod's file is not lost if the sync loop reads the file while the worker writes the end of the pod to
/// the disk.
#[test]
fn an_edit_that_comes_while_an_end_is_written_is_not_lost() {
    let node = Node::new();
    let evictions = std::sync::Arc::new(open(node.dir.path(), crossbeam_channel::bounded(1).0));
    let (uid, pod) = (PodUid::from(UID), pod("Always"));
    evictions.delete(&pod, "deleted", None).unwrap();
    let spec = json!({"restartPolicy": "Always", "hostname": "other"});
    let edited = test_pods::pod("p").uid(UID).spec(spec).build();
    let meanwhile = evictions.clone();
    let edit = move || meanwhile.seen(&edited, at(100));
    evictions.during_the_next_write(edit);
    evictions.ended(&pod, at(100));
    assert_eq!(
        evictions.due(at(100)),
        std::slice::from_ref(&uid),
        "it starts anew"
    );
    let next = open(node.dir.path(), crossbeam_channel::bounded(1).0);
    assert_eq!(next.due(at(100)), [uid], "also under the next daemon");
}

#[test]
fn a_held_pod_ends_keeps_its_place_and_starts_when_the_node_takes_pods_again() {
    let mut node = Node::new();
    let pod = with_image("a");
    node.evictions.hold(&pod, HeldFor::Drain, Some(7));
    assert!(node.woken.try_recv().is_ok());
    for _ in 0..2 {
        assert_eq!(node.seen(100), (true, true, false));
        assert_eq!(node.evictions.grace(pod.uid(), 30, at(100)), 7);
        assert!(node.evictions.keeps_volumes(pod.uid()));
        node.crash();
    }
    node.evictions.ended(&pod, at(101));
    for _ in 0..2 {
        assert_eq!(node.seen(100_000), (true, false, false));
        assert!(node.evictions.comes_back(pod.uid()));
        let by = node.evictions.ended_by(pod.uid(), at(100)).unwrap();
        assert_eq!((by.reason, by.comes_back), ("NodeDrained", true));
        node.crash();
    }
    node.evictions.release_held(HeldFor::Shutdown, at(102));
    assert_eq!(node.seen(102), (true, false, false), "another order");
    node.evictions.release_held(HeldFor::Drain, at(102));
    assert_eq!(node.seen(102), (false, false, true));
    node.evictions.begin_anew(pod.uid(), at(102)).unwrap();
    node.crash();
    assert_eq!(node.seen(103), NOT_EVICTED);
    assert!(!node.evictions.keeps_volumes(pod.uid()));
}

#[test]
fn a_pod_that_still_ends_when_the_node_takes_pods_again_starts_afterwards() {
    let node = Node::new();
    let pod = with_image("a");
    node.evictions.hold(&pod, HeldFor::Drain, None);
    assert_eq!(node.evictions.grace(pod.uid(), 30, at(100)), 30);
    node.evictions.release_held(HeldFor::Drain, at(100));
    assert_eq!(node.seen(100), (true, true, false));
    node.evictions.ended(&pod, at(101));
    assert_eq!(node.seen(101), (false, false, true));
}

#[test]
fn a_pod_that_a_person_has_deleted_is_not_held() {
    let node = Node::new();
    delete(&node, None);
    node.evictions.hold(&with_image("a"), HeldFor::Drain, None);
    node.evictions.ended(&with_image("a"), at(101));
    node.evictions.release_held(HeldFor::Drain, at(102));
    assert_eq!(node.seen(102), (true, false, false));
    let by = node.evictions.ended_by(&UID.into(), at(102)).unwrap();
    assert_eq!(by.reason, "Deleted");
}

/// The worker has found the old order to be over, and is about to start the pod.
#[test]
fn an_order_that_comes_while_its_pod_starts_anew_is_not_lost() {
    let mut node = Node::new();
    let pod = with_image("a");
    node.evictions.hold(&pod, HeldFor::Drain, None);
    node.evictions.ended(&pod, at(100));
    node.evictions.release_held(HeldFor::Drain, at(101));
    assert!(node.evictions.over(pod.uid(), at(101)).is_some());
    node.evictions.hold(&pod, HeldFor::Drain, None);
    assert!(!node.evictions.begin_anew(pod.uid(), at(102)).unwrap());
    for _ in 0..2 {
        assert_eq!(node.seen(102), (true, true, false));
        assert!(node.evictions.keeps_volumes(pod.uid()));
        node.crash();
    }
}

#[test]
fn a_later_order_shortens_the_time_of_a_pod_that_ends_and_never_lengthens_it() {
    let node = Node::new();
    let mut pod = with_image("a");
    Arc::make_mut(&mut pod.spec).termination_grace_period_seconds = Some(60);
    let hold = |grace| node.evictions.hold(&pod, HeldFor::Drain, grace);
    let grace = || node.evictions.grace(pod.uid(), 60, at(100));
    assert!(!hold(None), "it ends only now");
    assert_eq!((hold(Some(90)), grace()), (false, 60));
    assert_eq!((hold(Some(7)), grace()), (true, 7));
    assert_eq!((hold(None), grace()), (false, 7));
    node.evictions.ended(&pod, at(101));
    assert!(!hold(Some(1)), "it has ended");
    assert_eq!(node.seen(102), (true, false, false));
}
