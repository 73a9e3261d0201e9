//! The node, as controllers ask for it: images, room, labels, and new UIDs.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::images_ahead::{ImagesAhead, Pulled};
use super::outlet::pod_of;
use crate::api::pod::PodSpec;
use crate::api::{Pod, PodUid};
use crate::base::clock::Moment;
use crate::base::cron::Zones;
use crate::base::live::Live;
use crate::pods::admission::{self, Taken};
use crate::pods::manager::PodManager;
use crate::pods::status::StatusManager;
use crate::pods::workers::PodWorkers;
use crate::workloads::world::{ImagesState, Node, Room};

/// The node as it is now.
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// Resources and labels of the node.
    pub node: Live<admission::Node>,
    /// The order under which no pod starts, if there is one.
    pub closed: Live<Option<admission::Closed>>,
    /// Returns the node's present huge pages in bytes, by resource name.
    pub huge_pages: fn() -> BTreeMap<String, i64>,
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The statuses of pods.
    pub statuses: Arc<StatusManager>,
    /// The workers of pods, which know the pods that are ending.
    pub workers: Arc<PodWorkers>,
    /// The images that are pulled ahead.
    pub images: ImagesAhead,
    /// The time zones of the node, which are read when the first CronJob asks for them.
    pub zones: OnceLock<Zones>,
}

impl NodeView {
    /// Forgets the templates whose images nobody needs ahead.
    pub(super) fn retain_images(&self, is_needed: impl Fn(&str) -> bool) {
        self.images.retain(is_needed);
    }

    /// Returns the labels of the node; None as long as they are not known.
    pub(super) fn labels(&self) -> Option<BTreeMap<String, String>> {
        let node = self.node.get();
        (!node.awaits_labels).then_some(node.labels)
    }

    fn admit(&self, pod: &Pod, taken: &Taken) -> Result<(), admission::Rejection> {
        let node = admission::Node {
            huge_pages: (self.huge_pages)(),
            ..self.node.get()
        };
        admission::admit(pod, &node, taken)
    }

    /// Returns the pods that use the node: those that should run and have not ended, and those that are ending.
    fn using(&self) -> Vec<Arc<Pod>> {
        let has_ended = |pod: &Arc<Pod>| {
            let status = self.statuses.get(pod.uid());
            status.is_some_and(|status| status.phase.is_terminal())
        };
        let mut using = self.pods.all_granted();
        using.retain(|pod| !has_ended(pod));
        for ending in self.workers.ending() {
            if !using.iter().any(|pod| pod.uid() == ending.uid()) {
                using.push(ending);
            }
        }
        using
    }
}

impl Node for NodeView {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_selected_by(&self, spec: &PodSpec) -> Option<bool> {
        let node = self.node.get();
        let is_selected = admission::is_selected(spec, &node);
        (is_selected || !node.awaits_labels).then_some(is_selected)
    }

    fn images(&self, key: &str, pod: &Value, now: Timestamp) -> ImagesState {
        let pod = match pod_of(pod, &self.name) {
            Ok(pod) => Arc::new(pod),
            Err(e) => {
                return ImagesState::Failed {
                    message: e.to_string(),
                };
            }
        };
        let boot = Moment::now();
        match self.images.ask(key, &pod, boot) {
            Pulled::Ready => ImagesState::Ready,
            Pulled::Failed { message, .. } => ImagesState::Failed { message },
            Pulled::Pulling { progressed_at } => ImagesState::Pulling {
                progressed_at: ago(now, boot.since(progressed_at)),
            },
        }
    }

    fn room_for(&self, pod: &Value, leaving: &[PodUid]) -> Room {
        let pod = match pod_of(pod, &self.name) {
            Ok(pod) => pod,
            Err(e) => return Room::Never(e.to_string()),
        };
        let using = self.using();
        let all = Taken::by(using.iter().map(AsRef::as_ref));
        let Err(lacks) = self.admit(&pod, &all) else {
            return Room::Beside;
        };
        let staying = using.iter().filter(|pod| !leaving.contains(pod.uid()));
        match self.admit(&pod, &Taken::by(staying.map(AsRef::as_ref))) {
            Ok(()) => Room::InPlace(lacks.message),
            Err(why) => Room::Never(why.message),
        }
    }

    fn pod_names(&self, namespace: &str, except: &BTreeSet<PodUid>) -> BTreeSet<String> {
        let is_other =
            |pod: &Arc<Pod>| pod.metadata.namespace == namespace && !except.contains(pod.uid());
        let others = self.pods.all().into_iter().filter(is_other);
        others.map(|pod| pod.metadata.name.clone()).collect()
    }

    fn zones(&self) -> &Zones {
        self.zones.get_or_init(Zones::of_node)
    }

    fn takes_pods(&self) -> bool {
        self.closed.get().is_none()
    }

    fn new_uid(&self) -> PodUid {
        random_uid()
    }
}

/// Returns a random UID in the form of an API server (RFC 9562, version 4).
fn random_uid() -> PodUid {
    let mut bytes = [0_u8; 16];
    for half in bytes.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().build_hasher().finish().to_ne_bytes());
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-").as_str().into()
}

fn ago(now: Timestamp, age: Duration) -> Timestamp {
    now.checked_sub(age).unwrap_or(Timestamp::MIN)
}
