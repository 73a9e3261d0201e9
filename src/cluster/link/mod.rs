//! The thread `cluster`: the link between this node and its API server.
//!
//! Invariants: nothing of what runs depends on the link: without a connection the pods run on, and what is to be said waits,
//! within bounds. All requests go over one connection ([`Client`]). Each part of the link decides by itself what it asks
//! next, and has its answer before it asks again. The thread is woken by the connection, by the bell and by the parts'
//! times; it never sleeps for one of them alone.

mod kept;
mod kept_objects;
mod kept_pods;
mod node_labels;
mod objects;
mod occurrences;
mod pod_ranges;
mod reviews;
mod statuses;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crossbeam_channel::Receiver;

use self::kept_pods::KeptPods;
use self::node_labels::NodeLabels;
use self::objects::PodObjects;
use self::occurrences::Occurrences;
use self::pod_ranges::PodRanges;
use self::statuses::{Published, Statuses};
use super::client::{Client, Heard, RequestId, Urgency};
use super::events::Occurrence;
use super::events::correlator::Correlator;
use super::events::queue::{Delivery, Queue};
use super::exchange::{Answer, Request, Step};
use super::mirror_pods::{MirrorAction, MirrorPods, NodeReference};
use super::node::facts::NodeFacts;
use super::node::lease::Lease;
use super::node::registration::Registration;
use super::node::status::Health;
use super::pod_set::ApiPods;
use super::reflector::{Change, Selection};
use super::reviews::QuestionId;
use super::rounds::{Rounds, RoundsThread, Trouble};
use super::watches::Watches;
use crate::api::objects::ObjectKey;
use crate::api::service_account::TokenKey;
use crate::api::{Pod, PodSource, PodUid};
use crate::base::bell::Bell;
use crate::base::change_feed::ChangeFeed;
use crate::base::clock::{Moment, Time, random_fraction};
use crate::base::live::Live;
use crate::base::threads::{Pulse, Roster};
use crate::net::network::{NetworkKind, Networks};
use crate::pods::admission::{self, Rejection};
use crate::pods::events::{EventType, Recorder};
use crate::pods::manager::PodManager;
use crate::pods::sources::Outlet;
use crate::pods::status::StatusManager;
use crate::pods::workers::{PodWorkers, WorkerStage};

pub use node_labels::last_seen as labels_last_seen;
pub use reviews::ReviewDesk;

/// Time after the start for which clients of the server wait for a connection. The server may be asked before the first
/// one is made, and a client is not refused for that.
const FIRST_MOMENTS: Duration = Duration::from_secs(2);
/// Longest wait, so that the pulse of the thread is seen.
const LONGEST: Duration = Duration::from_secs(60);

/// The node, as the link tells of it.
pub trait NodeSource: Send {
    /// The facts of the Node object.
    fn facts(&self) -> NodeFacts;
    /// How the node is.
    fn health(&self) -> Health;
}

/// The parts that the thread works with.
pub struct Deps {
    /// The node.
    pub node: Box<dyn NodeSource>,
    /// Name of the Node object.
    pub node_name: String,
    /// The node against which pods are admitted. It gets the labels of the Node object.
    pub admitting: Live<admission::Node>,
    /// Path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// True if a pod has a directory for its data, because the node has begun to run it.
    pub has_data: Box<dyn Fn(&PodUid) -> bool + Send>,
    /// Directory of what the cluster has given the node.
    pub kept: PathBuf,
    /// Directory of the pods that are kept for a start without the link.
    pub kept_pods: PathBuf,
    /// Directory of the ConfigMaps, Secrets and tokens that are kept for a start without the link.
    pub kept_objects: PathBuf,
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The networks of pods.
    pub networks: Arc<Networks>,
    /// The statuses of pods.
    pub statuses: Arc<StatusManager>,
    /// The workers of pods.
    pub workers: Arc<PodWorkers>,
    /// The feed of changes.
    pub feed: Arc<ChangeFeed>,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// The desk of questions about the server's clients.
    pub reviews: Arc<ReviewDesk>,
    /// The way to the sync loop.
    pub outlet: Outlet,
}

/// Starts the thread `cluster`.
///
/// # Errors
/// Returns an error if there are no descriptors, or if the thread cannot be started.
pub fn spawn(deps: Deps, roster: &Roster) -> io::Result<RoundsThread> {
    RoundsThread::spawn("cluster", roster, |bell, stop| {
        deps.feed.ring(bell.clone());
        deps.workers.ring(bell.clone());
        deps.reviews.ring(bell.clone());
        State::new(deps, stop, bell, Moment::now())
    })
}

/// The objects that a watch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Watched {
    /// The Node object of this node.
    Node,
    /// The pods of this node.
    Pods,
    /// A ConfigMap, Secret or RuntimeClass that pods use.
    Object(ObjectKey),
    /// The services of a namespace, for the variables of its pods.
    Services(String),
}

/// The part of the link that has sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asker {
    Node,
    NodeLabels,
    Lease,
    Event,
    Status(PodUid),
    Mirror(String),
    Object(ObjectKey),
    Token(TokenKey),
    Review(QuestionId),
}

/// The state of the thread.
struct State {
    deps: Deps,
    stop: Receiver<()>,
    bell: Arc<Bell>,
    client: Client,
    /// The part that waits for the answer to each call.
    askers: BTreeMap<RequestId, Asker>,
    registration: Registration,
    lease: Lease,
    labels: NodeLabels,
    pod_ranges: PodRanges,
    watches: Watches<Watched>,
    api_pods: ApiPods,
    kept: KeptPods,
    objects: PodObjects,
    mirrors: MirrorPods,
    statuses: Statuses,
    occurrences: Arc<Occurrences>,
    correlator: Correlator,
    events: Queue,
    facts: NodeFacts,
    health: Health,
    /// The earliest moment that a part of the last round has asked for.
    wake_at: Moment,
    trouble: Trouble,
    /// The moment at which the thread began.
    begun: Moment,
    /// True if the pods that were kept have been handed on.
    has_begun: bool,
    /// True if the thread is to end.
    is_over: bool,
}

impl Rounds for State {
    /// After a panic nothing is known of what is under way, so everything begins anew with another connection. The set of
    /// pods that was handed on stays in force until the new watch has said all pods.
    fn doubt(&mut self, now: Moment) {
        let name = self.deps.node_name.as_str();
        self.client = Client::new(self.deps.kubeconfig.clone(), self.bell.clone(), now);
        self.askers.clear();
        self.deps.reviews.give_up();
        self.registration = Registration::new(name);
        self.lease = Lease::new(name);
        self.watches = Watches::default();
        self.watches.add(Watched::Node, Selection::node(name));
        self.pod_ranges = PodRanges::default();
        self.api_pods = ApiPods::new(name);
        self.objects.doubt();
        self.mirrors = MirrorPods::default();
        self.statuses = Statuses::new(now);
        self.events = Queue::default();
    }

    fn round(&mut self, now: Moment) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(now);
        }
        self.talk(now);
        self.is_over
    }

    fn wait(&self, pulse: &Pulse) {
        pulse.rest(|| self.client.wait(Moment::now(), self.wake_at));
    }
}

impl State {
    fn new(deps: Deps, stop: Receiver<()>, bell: Arc<Bell>, now: Moment) -> Self {
        let name = deps.node_name.as_str();
        let mut watches = Watches::default();
        watches.add(Watched::Node, Selection::node(name));
        // Services and workloads of the API server are none of podprobe's. ConfigMaps and Secrets come one by one.
        deps.outlet.objects.replace(PodSource::Api, Vec::new());
        deps.outlet.workloads.replace(PodSource::Api, Vec::new());
        let occurrences = Occurrences::tap(&deps.recorder, bell.clone());
        Self {
            client: Client::new(deps.kubeconfig.clone(), bell.clone(), now),
            askers: BTreeMap::new(),
            registration: Registration::new(name),
            lease: Lease::new(name),
            labels: NodeLabels::new(deps.admitting.clone(), deps.kept.clone()),
            pod_ranges: PodRanges::default(),
            watches,
            api_pods: ApiPods::new(name),
            kept: KeptPods::open(deps.kept_pods.clone()),
            objects: PodObjects::new(deps.outlet.objects.clone(), deps.kept_objects.clone()),
            mirrors: MirrorPods::default(),
            statuses: Statuses::new(now),
            occurrences,
            correlator: Correlator::new(name),
            events: Queue::default(),
            facts: deps.node.facts(),
            health: deps.node.health(),
            wake_at: now,
            trouble: Trouble::default(),
            begun: now,
            has_begun: false,
            is_over: false,
            deps,
            stop,
            bell,
        }
    }

    /// Takes what has come, and then asks what is to be asked.
    fn talk(&mut self, now: Moment) {
        // Stilled first: a ring from here on belongs to something that this round may not see.
        self.bell.still();
        for (id, heard) in self.client.turn(now) {
            self.hear(now, id, heard);
        }
        let meanwhile = "pods run on without it, and the node tries again";
        self.trouble.tell(&mut self.client, "", meanwhile);
        self.gather_events(now);
        self.wake_at = now + LONGEST;
        if !self.client.is_connected() {
            let patience = self.begun + FIRST_MOMENTS;
            if now < patience {
                self.wake_by([patience]);
            } else {
                self.deps.reviews.give_up();
            }
            return;
        }
        self.ask_for_reviews(now);
        self.look_at_pod_ranges(now);
        for (what, change) in self.watches.tick(now, &mut self.client) {
            self.observe(now, what, change);
        }
        self.ask_for_the_node(now);
        self.look_at_labels(now);
        self.ask_for_objects(now);
        self.ask_for_mirrors(now);
        self.ask_for_statuses(now);
        self.ask_for_events(now);
        let watches = self.watches.deadline();
        self.wake_by(watches);
    }

    fn wake_by(&mut self, at: impl IntoIterator<Item = Moment>) {
        self.wake_at = at.into_iter().fold(self.wake_at, Moment::min);
    }

    fn call(&mut self, now: Moment, asker: Asker, request: &Request) {
        let urgency = match asker {
            Asker::Node | Asker::Lease => Urgency::Heartbeat,
            Asker::NodeLabels
            | Asker::Event
            | Asker::Status(_)
            | Asker::Mirror(_)
            | Asker::Object(_)
            | Asker::Token(_)
            | Asker::Review(_) => Urgency::Usual,
        };
        let id = self.client.call(now, request, urgency);
        self.askers.insert(id, asker);
    }

    /// True if the part waits for an answer.
    fn is_asking(&self, asker: &Asker) -> bool {
        self.askers.values().any(|asking| asking == asker)
    }

    fn hear(&mut self, now: Moment, id: RequestId, heard: Heard) {
        let mut changes = Vec::new();
        let mut each = |what, change| changes.push((what, change));
        let is_of_watch = self
            .watches
            .hear(now, id, &heard, &mut self.client, &mut each);
        for (what, change) in changes {
            self.observe(now, what, change);
        }
        if is_of_watch {
            return;
        }
        if let (Some(asker), Heard::Answer(answer)) = (self.askers.remove(&id), heard) {
            self.answered(now, asker, &answer);
        }
    }

    fn answered(&mut self, now: Moment, asker: Asker, answer: &Answer) {
        let random = random_fraction();
        match asker {
            Asker::Node => {
                if let Err(e) = self.registration.answered(now, answer, random) {
                    log::warn!("{e}");
                }
            }
            Asker::NodeLabels => {
                if let Some(node) = answer.object() {
                    self.registration.observed(now, Some(node));
                }
                if self.labels.answered(now, answer) {
                    self.see_labels();
                    self.hand_on_again(now);
                }
            }
            Asker::Lease => self.lease.answered(now, answer, random),
            Asker::Event => {
                let delivery = self.events.answered(now, answer, random);
                if let Delivery::Refused { code, message } = delivery {
                    log::warn!("the API server refuses an event with {code}: {message}");
                }
            }
            Asker::Mirror(full_name) => {
                if let Err(e) = self.mirrors.answered(now, &full_name, answer) {
                    log::warn!("{e}");
                }
            }
            Asker::Object(key) => self.objects.answered(now, &key, answer),
            Asker::Token(key) => self.objects.token_answered(now, &key, answer, random),
            Asker::Review(id) => self.deps.reviews.answered(now, id, answer),
            Asker::Status(uid) => {
                let Some(pod) = self.published().into_iter().find(|pod| pod.uid == uid) else {
                    return;
                };
                let (wall, ips) = (Time::now(), &self.facts.addresses);
                let next = self.statuses.answered(now, wall, &pod, ips, answer);
                if let Some(request) = next {
                    self.call(now, Asker::Status(uid), &request);
                }
            }
        }
    }

    /// Takes what a watch has brought.
    fn observe(&mut self, now: Moment, what: Watched, change: Change) {
        match what {
            Watched::Pods => self.observe_pods(now, change),
            Watched::Services(namespace) => self.objects.observe_services(&namespace, change),
            Watched::Object(key) => {
                let (watches, client) = (&mut self.watches, &mut self.client);
                self.objects.observe(&key, change, watches, client);
            }
            Watched::Node => match change {
                Change::Added(node) | Change::Modified(node) => {
                    self.registration.observed(now, Some(&node));
                }
                Change::Replaced(nodes) => self.registration.observed(now, nodes.first()),
                Change::Deleted(_) => self.registration.observed(now, None),
            },
        }
    }

    /// Hands the pods on that an earlier daemon was given, before the API server can be asked. If there are none, nothing is
    /// handed on: the first set of a source says that all others are gone.
    fn begin(&mut self, now: Moment) {
        let objects = self.kept.objects();
        if !objects.is_empty() {
            log::info!(
                "{} pods of the API server are known from before",
                objects.len()
            );
            self.take_pods(now, Change::Replaced(objects));
        }
    }

    fn observe_pods(&mut self, now: Moment, change: Change) {
        self.kept.observe(&change);
        self.take_pods(now, change);
    }

    fn take_pods(&mut self, now: Moment, change: Change) {
        self.statuses.observe(&change);
        let changed = self.api_pods.apply(change);
        for (pod, text) in &changed.warnings {
            log::warn!("{pod}: {text}");
        }
        for refused in &changed.refused {
            let text = refused.reason.one_line();
            let (recorder, pod) = (&self.deps.recorder, &refused.pod);
            recorder.record(pod, "", EventType::Warning, "FailedValidation", &text);
        }
        if let Some(set) = changed.set {
            self.hand_on(now, set);
        }
    }

    /// Hands the set of pods on, without those that wait for the labels of the Node.
    fn hand_on(&mut self, now: Moment, mut set: Vec<Arc<Pod>>) {
        set.iter().for_each(|pod| self.take_over_the_end(pod));
        let (watches, client) = (&mut self.watches, &mut self.client);
        self.objects.use_by(now, &set, watches, client);
        let Deps {
            statuses, has_data, ..
        } = &self.deps;
        self.labels.hold(&mut set, |pod| {
            statuses.get(pod.uid()).is_some() || has_data(pod.uid())
        });
        // The order to end may come while the sync loop takes no pods.
        self.is_over |= self.deps.outlet.publish_api(set, &self.stop).is_err();
    }

    /// Hands the set on once more, because the labels of the Node are known better now.
    fn hand_on_again(&mut self, now: Moment) {
        if let Some(set) = self.api_pods.set() {
            self.hand_on(now, set);
        }
    }

    /// A pod that has ended, as the API server knows, does not run again on a node that has forgotten it.
    fn take_over_the_end(&self, pod: &Pod) {
        if self.deps.statuses.get(pod.uid()).is_some() {
            return;
        }
        if let Some(status) = self.statuses.ended(pod.uid()) {
            self.deps.statuses.set(pod, status);
        }
    }

    fn ask_for_the_node(&mut self, now: Moment) {
        if !self.is_asking(&Asker::Node) {
            let wall = SystemTime::now();
            let random = random_fraction();
            // The facts are read from many files, and rounds are many.
            if self.registration.is_due(now) {
                self.facts = self.deps.node.facts();
                self.health = self.deps.node.health();
            }
            let next = self
                .registration
                .next(now, wall, &self.facts, &self.health, random);
            self.take_step(now, Asker::Node, next);
        }
        if !self.is_asking(&Asker::Lease) {
            let next = self
                .lease
                .next(now, SystemTime::now(), self.registration.uid());
            self.take_step(now, Asker::Lease, next);
        }
    }

    /// Takes the labels of the Node. Returns true if they are others than before.
    fn see_labels(&mut self) -> bool {
        let node = self.registration.node();
        let has_changed = node.is_some_and(|node| self.labels.observe(node));
        if has_changed {
            // DaemonSets choose nodes by labels too, and so do the volumes of claims.
            self.deps.feed.wake();
            for pod in self.deps.pods.all() {
                if has_claim(&pod) {
                    self.deps.workers.sync_again(pod.uid());
                }
            }
        }
        has_changed
    }

    /// Takes the labels of the Node, and reads it where pods wait for that.
    fn look_at_labels(&mut self, now: Moment) {
        if self.see_labels() && self.labels.is_waited_for() {
            self.hand_on_again(now);
        }
        if self.registration.node().is_none() || self.is_asking(&Asker::NodeLabels) {
            return;
        }
        if let Some(request) = self.labels.next(now) {
            self.call(now, Asker::NodeLabels, &request);
        }
        let deadline = self.labels.deadline();
        self.wake_by(deadline);
    }

    /// Takes the ranges of pod addresses that the control plane gives, and asks for the pods once these are known.
    fn look_at_pod_ranges(&mut self, now: Moment) {
        let next = self.pod_ranges.next(now, self.registration.node());
        let is_over = matches!(
            &next,
            pod_ranges::Next::Give(_) | pod_ranges::Next::Refuse(_)
        );
        let ranges = self.deps.networks.pod_cidrs();
        match next {
            pod_ranges::Next::Give(given) => match ranges.give(given) {
                Ok(true) => log::info!("new pods get addresses in {ranges}"),
                Ok(false) => {}
                Err(e) => log::warn!(
                    "cannot keep podCIDRs of the node: {e}; pods get addresses in {ranges}"
                ),
            },
            pod_ranges::Next::Refuse(e) => {
                log::warn!(
                    "podCIDRs of the node are not used: {e}; pods get addresses in {ranges}"
                );
            }
            pod_ranges::Next::Wait(until) => self.wake_at = self.wake_at.min(until),
            pod_ranges::Next::Nothing => {}
        }
        if self.watches.has(&Watched::Pods) {
            return;
        }
        let is_at_bridge = self.deps.networks.kind() == NetworkKind::Bridge;
        if is_over || ranges.are_known() || !is_at_bridge {
            let pods = Selection::pods_of_node(&self.deps.node_name);
            self.watches.add(Watched::Pods, pods);
        }
    }

    fn take_step(&mut self, now: Moment, asker: Asker, step: Step) {
        match step {
            Step::Send(request) => self.call(now, asker, &request),
            Step::Wait(until) => self.wake_by([until]),
        }
    }

    fn ask_for_objects(&mut self, now: Moment) {
        for (key, request) in self.objects.read_due(now) {
            self.call(now, Asker::Object(key), &request);
        }
        for (key, request) in self.objects.tokens_due(now) {
            self.call(now, Asker::Token(key), &request);
        }
        let (watches, client) = (&mut self.watches, &mut self.client);
        self.objects.forget_services(now, watches, client);
        let deadline = self.objects.deadline();
        self.wake_by(deadline);
    }

    fn ask_for_reviews(&mut self, now: Moment) {
        for (id, request) in self.deps.reviews.next(now) {
            self.call(now, Asker::Review(id), &request);
        }
        let deadline = self.deps.reviews.deadline();
        self.wake_by(deadline);
    }

    fn ask_for_mirrors(&mut self, now: Moment) {
        if !self.watches.is_synced(&Watched::Pods) {
            return;
        }
        let node = self.registration.uid().map(|uid| NodeReference {
            name: self.deps.node_name.clone(),
            uid: uid.to_owned(),
        });
        let mut wanted = self.deps.pods.all();
        wanted.retain(is_local);
        let ending = self.deps.workers.ending().into_iter().filter(is_local);
        let ending: BTreeSet<String> = ending.map(|pod| pod.full_name()).collect();
        let there: Vec<_> = self.api_pods.mirrors().collect();
        for action in self
            .mirrors
            .step(now, node.as_ref(), &wanted, &ending, &there)
        {
            match action {
                MirrorAction::Send(full_name, request) => {
                    self.call(now, Asker::Mirror(full_name), &request);
                }
                MirrorAction::Report(why) => log::warn!("{why}"),
            }
        }
        let deadline = self.mirrors.deadline(now);
        self.wake_by(deadline);
    }

    fn ask_for_statuses(&mut self, now: Moment) {
        if !self.watches.is_synced(&Watched::Pods) {
            return;
        }
        let pods = self.published();
        let ips = &self.facts.addresses;
        for (uid, request) in self.statuses.step(now, Time::now(), &pods, ips) {
            self.call(now, Asker::Status(uid), &request);
        }
        let deadline = self.statuses.deadline(now);
        self.wake_by([deadline]);
    }

    /// Returns the pods whose statuses the API server gets.
    fn published(&self) -> Vec<Published> {
        let mirrors = self.api_pods.mirrors();
        let mirrors: BTreeMap<&str, &PodUid> = mirrors
            .map(|mirror| (mirror.full_name(), &mirror.uid))
            .collect();
        let pods = self.deps.pods.all();
        let of_pod = |pod: Arc<Pod>| {
            let status = self.deps.statuses.get(pod.uid())?;
            let stage = self.deps.workers.stage(pod.uid());
            // A pod that was rejected has no worker. Another one is about to get its worker, and may run already.
            let stage = stage.unwrap_or(match Rejection::of(&status) {
                Some(_) => WorkerStage::Finished,
                None => WorkerStage::Running,
            });
            let is_static = is_local(&pod);
            let uid = match is_static {
                true => (*mirrors.get(pod.full_name().as_str())?).clone(),
                false => pod.uid().clone(),
            };
            // The status of a pod that was rejected is not made from the pod, and holds for every generation.
            let rejected = Rejection::of(&status).and(pod.metadata.generation);
            Some(Published {
                namespace: pod.metadata.namespace.clone(),
                name: pod.metadata.name.clone(),
                uid,
                is_static,
                generation: status.observed_generation.or(rejected),
                spec: pod.spec.clone(),
                status,
                stage,
            })
        };
        let refused = self.api_pods.refused().filter(|refused| !refused.runs_on);
        let mut all: Vec<Published> = pods.into_iter().filter_map(of_pod).collect();
        all.extend(refused.map(Published::refused));
        all
    }

    /// Takes the events that have happened since the last round. They are counted also without a connection.
    fn gather_events(&mut self, now: Moment) {
        let wall = SystemTime::now();
        let of_node = self
            .registration
            .take_events()
            .into_iter()
            .map(|reason| Occurrence {
                kind: "Node".to_owned(),
                name: self.deps.node_name.clone(),
                uid: self.deps.node_name.clone(),
                namespace: String::new(),
                resource_version: String::new(),
                field_path: String::new(),
                type_: EventType::Normal,
                reason: reason.to_owned(),
                message: format!("Node {} status is now: {reason}", self.deps.node_name),
            });
        let of_node: Vec<Occurrence> = of_node.collect();
        for mut occurrence in self.occurrences.take().into_iter().chain(of_node) {
            let uid = PodUid::from(occurrence.uid.as_str());
            occurrence.resource_version = self.statuses.resource_version(&uid).to_owned();
            if let Some(event) = self.correlator.record(now, wall, occurrence) {
                self.events.push(event);
            }
        }
    }

    fn ask_for_events(&mut self, now: Moment) {
        if self.is_asking(&Asker::Event) {
            return;
        }
        if let Some(next) = self.events.next(now) {
            self.take_step(now, Asker::Event, next);
        }
    }
}

fn has_claim(pod: &Pod) -> bool {
    let mut volumes = pod.spec.volumes.iter();
    volumes.any(|volume| volume.persistent_volume_claim.is_some())
}

/// True for a pod that does not come from the API server. Such a pod has a mirror pod there.
fn is_local(pod: &Arc<Pod>) -> bool {
    pod.source() != PodSource::Api
}
