//! A node without containers, for tests of steps: pods become ready or end when the test says so, and the test may kill
//! the controllers between any two writes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::*;
use crate::api::PodPhase;
use crate::api::decode::made_workload;
use crate::api::pod::PodSpec;
use crate::base::cron::Zones;
use crate::workloads::cron_job::WallClock;
use crate::workloads::observed::{ObservedContainer, later};
use crate::workloads::settings::Settings;
use crate::workloads::world::Node;

/// A node that answers as the test says.
pub(crate) struct FakeNode {
    zones: Zones,
    uids: Cell<u32>,
    pub(crate) images: RefCell<ImagesState>,
    pub(crate) room: RefCell<Room>,
    pub(crate) is_selected: Cell<Option<bool>>,
    pub(crate) takes_pods: Cell<bool>,
    /// Names of pods that no workload of the test has.
    pub(crate) other_pods: RefCell<BTreeSet<String>>,
}

impl Default for FakeNode {
    fn default() -> Self {
        Self {
            zones: Zones::of_node(),
            uids: Cell::new(0),
            images: RefCell::new(ImagesState::Ready),
            room: RefCell::new(Room::Beside),
            is_selected: Cell::new(Some(true)),
            takes_pods: Cell::new(true),
            other_pods: RefCell::default(),
        }
    }
}

impl Node for FakeNode {
    fn name(&self) -> &str {
        "edge"
    }
    fn is_selected_by(&self, _: &PodSpec) -> Option<bool> {
        self.is_selected.get()
    }
    fn images(&self, _: &str, _: &Value, _: Timestamp) -> ImagesState {
        self.images.borrow().clone()
    }
    fn room_for(&self, _: &Value, _: &[PodUid]) -> Room {
        self.room.borrow().clone()
    }
    fn pod_names(&self, _: &str, _: &BTreeSet<PodUid>) -> BTreeSet<String> {
        self.other_pods.borrow().clone()
    }
    fn zones(&self) -> &Zones {
        &self.zones
    }
    fn takes_pods(&self) -> bool {
        self.takes_pods.get()
    }
    fn new_uid(&self) -> PodUid {
        self.uids.set(self.uids.get() + 1);
        format!(
            "{:08x}-0000-4000-8000-000000000000",
            self.uids.get().wrapping_mul(0x9e37_79b9)
        )
        .as_str()
        .into()
    }
}

/// A single workload on a fake node, with the contents of the disk.
pub(crate) struct TestWorld {
    pub(crate) node: FakeNode,
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) wanted: Option<Wanted>,
    key: WorkloadKey,
    pub(crate) state: Option<WorkloadState>,
    pub(crate) pods: BTreeMap<PodUid, KnownPod>,
    /// The last step.
    pub(crate) last: Step,
    pub(crate) events: Vec<String>,
}

impl TestWorld {
    /// Makes a world with this workload, at its first step.
    pub(crate) fn new(object: Value) -> Self {
        let workload = workload(&object);
        let key = workload.key();
        let mut world = Self {
            node: FakeNode::default(),
            settings: Settings::default(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            wanted: None,
            key,
            state: None,
            pods: BTreeMap::new(),
            last: Step::default(),
            events: Vec::new(),
        };
        world.edit(object);
        world
    }

    /// Puts another version into the file.
    pub(crate) fn edit(&mut self, object: Value) {
        self.wanted = Some(Wanted {
            workload: Arc::new(workload(&object)),
            file: "/pods/a.yaml".into(),
            warnings: Vec::new(),
            file_error: None,
            life: 1,
        });
    }

    fn world(&self) -> World<'_> {
        World {
            now: self.now,
            wall: trusted(self.now),
            node: &self.node,
            settings: self.settings,
        }
    }

    /// Makes one step, carries it out, and returns true if it did something. With `dies_after` only so many writes are
    /// done before the daemon is killed.
    pub(crate) fn step_once(&mut self, dies_after: usize) -> bool {
        let pods: Vec<KnownPod> = self.pods.values().cloned().collect();
        let last = match &self.state {
            Some(state) => LastState::Known(state),
            None => LastState::New,
        };
        let made = step(&self.world(), &self.key, self.wanted.as_ref(), last, &pods);
        let mut writes = 0;
        let mut may_write = || {
            writes += 1;
            writes <= dies_after
        };
        let is_new = match (&made.state, &self.state) {
            (Some(new), Some(old)) => new.must_be_written(old),
            (new, old) => new.is_some() != old.is_some(),
        };
        let does = is_new || !made.create.is_empty() || !made.delete.is_empty();
        if is_new && !may_write() {
            return does;
        }
        self.state = made.state.clone();
        for uid in &made.delete {
            if !may_write() {
                return does;
            }
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.record.deleted_at.get_or_insert(self.now);
                pod.observed.is_deleted = true;
                pod.observed.deleted_at = pod.record.deleted_at;
            }
        }
        for record in &made.create {
            if !may_write() {
                return does;
            }
            let observed = observed(record);
            let record = record.clone();
            let pod = KnownPod { record, observed };
            self.pods.insert(pod.record.uid.clone(), pod);
        }
        let events = made.events.iter();
        self.events
            .extend(events.map(|(_, event)| format!("{} {}", event.reason, event.message)));
        self.last = made;
        does
    }

    /// Steps until nothing more is to be done now.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100 {
            if !self.step_once(usize::MAX) {
                return;
            }
        }
        panic!("it never settles: {:?}", self.last);
    }

    /// Lets a time pass.
    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now = later(self.now, Duration::from_secs(seconds));
    }

    /// Makes the pods ready that have this image and run.
    pub(crate) fn ready(&mut self, image: &str) {
        let now = self.now;
        let of_image = |pod: &&mut KnownPod| image_of(&pod.record) == image;
        for pod in self.pods.values_mut().filter(of_image) {
            if pod.observed.is_active() && !pod.observed.is_ready {
                pod.observed.phase = PodPhase::Running;
                pod.observed.is_ready = true;
                pod.observed.is_in_table = true;
                pod.observed.ready_changed = Some(now);
            }
        }
    }

    /// Ends the pods that run, with this exit code.
    pub(crate) fn end(&mut self, code: i32) {
        let now = self.now;
        for pod in self
            .pods
            .values_mut()
            .filter(|pod| pod.observed.is_active())
        {
            pod.observed.phase = match code {
                0 => PodPhase::Succeeded,
                _ => PodPhase::Failed,
            };
            pod.observed.is_ready = false;
            pod.observed.containers = vec![ObservedContainer {
                name: "c".into(),
                exit_code: Some(code),
                finished_at: Some(now),
                ..ObservedContainer::default()
            }];
        }
    }

    /// Removes the pods that are being deleted.
    pub(crate) fn remove_deleted(&mut self) {
        self.pods.retain(|_, pod| pod.record.deleted_at.is_none());
    }

    /// Returns the number of pods of an image that have not ended and are not being deleted, and how many of them are
    /// ready.
    pub(crate) fn count(&self, image: &str) -> (usize, usize) {
        let of_image = |pod: &&KnownPod| image_of(&pod.record) == image && pod.observed.is_active();
        let pods = self.pods.values().filter(of_image);
        let ready = pods.clone().filter(|pod| pod.observed.is_ready).count();
        (pods.count(), ready)
    }

    /// Returns the object of the first view.
    pub(crate) fn object(&self) -> &Value {
        &self.last.views[0].object
    }
}

/// Returns a wall clock that is trusted.
pub(crate) fn trusted(now: Timestamp) -> WallClock {
    let is_trusted = true;
    WallClock { now, is_trusted }
}

/// Returns the image of a pod's container.
pub(crate) fn image_of(record: &PodRecord) -> &str {
    record.object["spec"]["containers"][0]["image"]
        .as_str()
        .unwrap_or_default()
}

fn observed(record: &PodRecord) -> ObservedPod {
    let texts = |field: &str| {
        serde_json::from_value(record.object["metadata"][field].clone()).unwrap_or_default()
    };
    ObservedPod {
        name: record.name.clone(),
        uid: record.uid.clone(),
        labels: texts("labels"),
        annotations: texts("annotations"),
        created: record.created,
        ..ObservedPod::default()
    }
}

/// Reads a workload of a valid object.
pub(crate) fn workload(object: &Value) -> Workload {
    made_workload(object.clone()).unwrap()
}
