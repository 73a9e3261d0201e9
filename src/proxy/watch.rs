//! The thread `services`: what changes of pods and services comes into force.
//!
//! Invariants: it reads, and changes nothing but the data path and the record of what was allocated. Before every source
//! has spoken, and the pods have statuses, it programs nothing, so that what an earlier daemon programmed goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};

use super::dns::counters::Counters;
use super::gate::TrafficGate;
use super::names::{self, NameSettings, Node, Versions};
use super::pace::{Pace, Step};
use super::{Applied, DataPath};
use crate::api::cidr::Cidr;
use crate::api::objects::ObjectKey;
use crate::api::service::IpFamily;
use crate::api::{Pod, PodUid};
use crate::atomic_file;
use crate::change_feed::{Aspect, ChangeFeed, Changes};
use crate::clock::{Moment, Time};
use crate::network;
use crate::objects::{Objects, ServiceObjects};
use crate::pod_manager::PodManager;
use crate::services::allocate::{Allocations, Assigned, allocate};
use crate::services::build::{Built, build};
use crate::services::inputs::{Inputs, NamedService, NamedSlice, NodeFacts};
use crate::services::names::Names;
use crate::services::pod_facts::PodFacts;
use crate::services::table::{Backends, ServiceTable};
use crate::services::view::{ServiceView, view};
use crate::status::{StatusManager, is_terminating};

/// How often it looks whether somebody else has changed what it programmed.
const INTERVAL: Duration = Duration::from_secs(10);
/// A source that has not spoken, or a pod without a status, keeps services waiting for so long.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// How soon it looks again until it knows all that an earlier daemon knew.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const STACK: usize = 512 << 10;

/// Where the network namespace of a pod's sandbox is, if it has one now.
pub type NamespaceOf = Box<dyn Fn(&PodUid) -> Option<PathBuf> + Send>;

/// What it works with.
pub struct Deps {
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// Their statuses.
    pub statuses: Arc<StatusManager>,
    /// What changes; its readers are woken when objects change, too.
    pub feed: Arc<ChangeFeed>,
    /// Services and slices.
    pub objects: Arc<Objects>,
    /// Every source of pods and objects has spoken.
    pub has_all: Box<dyn Fn() -> bool + Send>,
    /// The statuses of an earlier daemon are there.
    pub has_statuses: bool,
    /// The network namespace of a pod's sandbox.
    pub namespace: NamespaceOf,
    /// Where clients are sent.
    pub path: Box<dyn DataPath + Send>,
    /// Who waits until a pod gets no traffic.
    pub gate: Arc<TrafficGate>,
    /// What clients of the daemon see.
    pub view: Arc<ServicesView>,
    /// The record of what was allocated.
    pub record: PathBuf,
    /// `nodeName`.
    pub node_name: String,
    /// `podCIDR`.
    pub pod_cidrs: Vec<Cidr>,
    /// `serviceCIDR`.
    pub service_cidrs: Vec<Cidr>,
    /// None: podprobe answers no names.
    pub names: Option<NameSettings>,
    /// Pods get addresses of their own.
    pub has_network: Box<dyn Fn() -> bool + Send>,
}

/// The services as they are now.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Services and slices as they are written.
    pub objects: ServiceObjects,
    /// What each service has.
    pub assigned: BTreeMap<ObjectKey, Assigned>,
    /// The pods of this node.
    pub pods: Vec<PodFacts>,
    /// What came of it.
    pub built: Built,
    /// `nodeName`.
    pub node_name: String,
    /// Of the pods' addresses, primary first.
    pub families: Vec<IpFamily>,
    /// The names that are served.
    pub names: Option<Names>,
    /// Why names outside of the cluster may lead nowhere.
    pub names_finding: Option<String>,
    /// What was counted of names.
    pub name_counters: Option<Counters>,
    /// Why the data path is not as it should be; empty when it is.
    pub error: String,
}

impl Services {
    /// Each as people see it, in the order of namespace and name.
    pub fn views(&self) -> Vec<ServiceView> {
        let nothing = Assigned::default();
        with_inputs(&self.objects, &self.assigned, |services, slices| {
            let inputs = Inputs {
                services,
                slices,
                pods: &self.pods,
                node: NodeFacts {
                    name: &self.node_name,
                    families: &self.families,
                    ..NodeFacts::default()
                },
            };
            let keyed = services.iter().zip(&self.objects.services);
            let one = |(service, (key, _)): (&NamedService<'_>, &(ObjectKey, _))| {
                let assigned = self.assigned.get(key).unwrap_or(&nothing);
                let mut view = view(service, assigned, &inputs, &self.built);
                if let Some(names) = &self.names {
                    let domain = &names.domain;
                    view.dns_name = format!("{}.{}.svc.{domain}", view.name, view.namespace);
                }
                if !self.error.is_empty() {
                    view.problems.push(self.error.clone());
                }
                view
            };
            keyed.map(one).collect()
        })
    }
}

/// What the thread has last made, for who wants to read it.
#[derive(Debug, Default)]
pub struct ServicesView(Mutex<Arc<Services>>);

impl ServicesView {
    /// The services as they are now.
    pub fn get(&self) -> Arc<Services> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, services: Services) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(services);
    }
}

/// Starts it; it ends when `stop` closes and the feed is woken.
///
/// # Errors
/// The node gives no thread.
pub fn spawn(deps: Deps, stop: Receiver<()>) -> io::Result<JoinHandle<()>> {
    let run = move || {
        let mut watch = Watch::new(deps);
        while !matches!(stop.try_recv(), Err(TryRecvError::Disconnected)) {
            watch.turn();
        }
    };
    Builder::new()
        .name("services".into())
        .stack_size(STACK)
        .spawn(run)
}

struct Watch {
    deps: Deps,
    began: Moment,
    /// Up to which version of the feed pods were read.
    seen: u64,
    pods: HashMap<PodUid, (Arc<Pod>, PodFacts)>,
    allocations: Allocations,
    applied: Option<ServiceTable>,
    pace: Pace,
    /// The names that are in force.
    applied_names: Option<Names>,
    names_pace: Pace,
    versions: Versions,
    /// When to look again though nothing has changed.
    next_look: Moment,
    /// When what is gathered comes into force.
    due: Option<Moment>,
    failed: String,
    /// Findings that the log has.
    said: BTreeSet<String>,
    /// What the data path could not do, as the log has it.
    warned: Option<String>,
}

impl Watch {
    fn new(deps: Deps) -> Self {
        let now = Moment::now();
        Self {
            allocations: read_allocations(&deps.record),
            deps,
            began: now,
            seen: 0,
            pods: HashMap::new(),
            applied: None,
            pace: Pace::default(),
            applied_names: None,
            names_pace: Pace::default(),
            versions: Versions::default(),
            next_look: now,
            due: None,
            failed: String::new(),
            said: BTreeSet::new(),
            warned: None,
        }
    }

    /// Waits for a change or for its time, and brings the data path up to date.
    fn turn(&mut self) {
        let next = self
            .due
            .map_or(self.next_look, |due| due.min(self.next_look));
        let left = next.since(Moment::now());
        self.deps
            .feed
            .wait_newer_of(Aspect::Status, self.seen, left);
        let now = Moment::now();
        // Before the pods are read: they may be handed over in between.
        let is_complete = self.is_complete(now);
        let (changes, version) = self.deps.feed.since(self.seen);
        self.seen = version;
        self.read_pods(changes.as_ref());
        if !is_complete {
            self.next_look = now + FIRST_LOOK;
            return;
        }
        let services = self.services();
        self.say(&services);
        self.bring_into_force(&services, version, now);
        let error = match (self.failed.as_str(), &self.warned) {
            ("", Some(warned)) => warned.clone(),
            (failed, _) => failed.to_owned(),
        };
        self.deps.view.set(Services {
            error,
            name_counters: self.deps.path.name_counters(),
            ..services
        });
    }

    fn bring_into_force(&mut self, services: &Services, version: u64, now: Moment) {
        let (wanted, names) = (&services.built.table, services.names.as_ref());
        let step = match &self.applied {
            Some(applied) => self.pace.step(now, applied, wanted),
            None => Step::Apply,
        };
        let applied_names = self.applied_names.as_ref();
        let names_step = self.names_pace.step_names(now, applied_names, names);
        let waits = [step, names_step].into_iter().filter_map(Step::wait);
        self.due = waits.min();
        match (step, names_step) {
            (Step::Apply, _) => self.apply(services, version, now),
            _ if now >= self.next_look => self.apply(services, version, now),
            (_, Step::Apply) => {
                self.apply_names(names);
                self.pass(version);
            }
            _ => self.pass(version),
        }
    }

    /// What is in force is not behind of this version.
    fn pass(&self, version: u64) {
        let leads = self.applied_names.as_ref().is_some_and(Names::lead_to_pods);
        let sends = self.applied.as_ref().is_some_and(has_traffic);
        self.deps.gate.pass(version, leads || sends);
    }

    /// Both what every source says, and how every pod is that was there before. Without the statuses of an earlier daemon it
    /// takes a sync of each pod to know. A source that does not answer keeps the others' services waiting for a while only.
    fn is_complete(&self, now: Moment) -> bool {
        if self.applied.is_some() || now.since(self.began) > FIRST_WAIT {
            return true;
        }
        let is_known = |uid: &PodUid| self.deps.statuses.get(uid).is_some();
        let are_known = || self.deps.pods.uids().iter().all(is_known);
        (self.deps.has_all)() && (self.deps.has_statuses || are_known())
    }

    /// The facts of the pods that have changed; of all when it is not known which.
    fn read_pods(&mut self, changes: Option<&Changes>) {
        let uids: BTreeSet<PodUid> = match changes {
            Some(changes) => changes.pods.keys().cloned().collect(),
            None => {
                let known = self.pods.keys().cloned();
                known.chain(self.deps.pods.uids()).collect()
            }
        };
        for uid in uids {
            match self.facts(&uid) {
                Some(facts) => drop(self.pods.insert(uid, facts)),
                None => drop(self.pods.remove(&uid)),
            }
        }
    }

    /// A pod that nobody wants any more is one that ends, until its status is gone.
    fn facts(&self, uid: &PodUid) -> Option<(Arc<Pod>, PodFacts)> {
        let status = self.deps.statuses.get(uid)?;
        let wanted = self.deps.pods.get(uid);
        let terminating = wanted.is_none() || is_terminating(&status);
        let pod = wanted.or_else(|| Some(self.pods.get(uid)?.0.clone()))?;
        let is_loopback = |ip: &str| ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let alone = !pod.spec.host_network && is_loopback(&status.pod_ip);
        let namespace = alone.then(|| (self.deps.namespace)(uid));
        let is_unknown = matches!(namespace, Some(None));
        let mut facts = PodFacts::of(&pod, &status, terminating, namespace.flatten());
        if is_unknown {
            // Its sandbox is gone, and the address would be the node's.
            facts.addresses.clear();
        }
        Some((pod, facts))
    }

    fn services(&mut self) -> Services {
        let objects = self.deps.objects.services();
        let assignment = allocate(
            &objects.services,
            &self.deps.service_cidrs,
            &self.allocations,
        );
        // What a source that has not spoken yet had keeps its addresses.
        if assignment.record != self.allocations && (self.deps.has_all)() {
            self.allocations = assignment.record;
            self.write_allocations();
        }
        let mut pods: Vec<PodFacts> = self.pods.values().map(|(_, facts)| facts.clone()).collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let assigned = assignment.services;
        let own = self.deps.path.addresses();
        let mut addresses = network::node_addresses();
        addresses.retain(|ip| !own.contains(ip));
        let families = self.families();
        let (built, names) = with_inputs(&objects, &assigned, |services, slices| {
            let inputs = Inputs {
                services,
                slices,
                pods: &pods,
                node: NodeFacts {
                    name: &self.deps.node_name,
                    addresses: &addresses,
                    own_ports: &[],
                    pod_cidrs: &self.deps.pod_cidrs,
                    service_cidrs: &self.deps.service_cidrs,
                    families: &families,
                },
            };
            (build(&inputs), self.names(&inputs))
        });
        let (names, names_finding) = names.unzip();
        let number = |names| {
            let seconds = Time::now().unix_seconds();
            self.versions.number(names, seconds.try_into().unwrap_or(0))
        };
        Services {
            objects,
            assigned,
            pods,
            built,
            node_name: self.deps.node_name.clone(),
            families,
            names: names.map(number),
            names_finding: names_finding.flatten(),
            name_counters: None,
            error: String::new(),
        }
    }

    /// The names that are to be served, if anybody asks, and what is wrong with them.
    fn names(&self, inputs: &Inputs<'_>) -> Option<(Names, Option<String>)> {
        let settings = self.deps.names.as_ref()?;
        let has_network = (self.deps.has_network)();
        let mut pods = self.pods.values();
        let is_asked = !inputs.services.is_empty()
            || pods.any(|(pod, facts)| names::asks(pod, facts, has_network));
        let resolvers = || names::read_resolvers(settings.resolv_conf.as_deref());
        let node = is_asked.then(resolvers);
        let node = Node {
            settings,
            addresses: inputs.node.addresses,
            resolvers: &node?,
        };
        Some((node.names(inputs)?, node.loop_finding()))
    }

    /// Of the pods' addresses, primary first.
    fn families(&self) -> Vec<IpFamily> {
        let ranges = self.deps.pod_cidrs.iter();
        ranges.map(|r| IpFamily::of(r.network)).collect()
    }

    fn apply(&mut self, services: &Services, version: u64, now: Moment) {
        let table = &services.built.table;
        self.next_look = now + INTERVAL;
        // A node without services and names has no tables of ours, and no process.
        let has_names = services.names.is_some() || self.applied_names.is_some();
        if !has_names && is_empty(table) && self.applied.as_ref().is_some_and(is_empty) {
            self.applied = Some(table.clone());
            return self.pass(version);
        }
        self.deps.path.set_names(services.names.clone());
        match self.deps.path.apply(table) {
            Ok(applied) => {
                log::debug!("services in force: {}", summary(table));
                self.applied = Some(table.clone());
                self.applied_names.clone_from(&services.names);
                self.pass(version);
                self.failed.clear();
                if applied.repaired && applied.full && version > 0 {
                    log::warn!("services: the tables were changed by somebody else: made again");
                }
                self.warn(applied.warning);
            }
            Err(e) => {
                let text = e.to_string();
                if self.failed != text {
                    log::error!("{text}; trying again every {} s", INTERVAL.as_secs());
                    self.failed = text;
                }
            }
        }
    }

    /// Services stay as they are. What fails is tried again with the next look.
    fn apply_names(&mut self, names: Option<&Names>) {
        self.deps.path.set_names(names.cloned());
        self.applied_names = names.cloned();
        let applied = self.deps.path.apply_names();
        let applied = applied.unwrap_or_else(|e| Applied {
            warning: Some(e.to_string()),
            ..Applied::default()
        });
        self.warn(applied.warning);
    }

    fn warn(&mut self, text: Option<String>) {
        if let Some(new) = text.as_ref().filter(|_| text != self.warned) {
            log::warn!("services: {new}");
        }
        self.warned = text;
    }

    /// What is wrong is said once, and again when it has been right meanwhile.
    fn say(&mut self, services: &Services) {
        let refused = services.assigned.iter().flat_map(|(key, assigned)| {
            let problems = assigned.problems.iter();
            problems.map(move |p| format!("service {}/{}: {p}", key.namespace, key.name))
        });
        let found = services.built.findings.iter().map(ToString::to_string);
        let of_names = services.names_finding.iter().cloned();
        let all: BTreeSet<String> = refused.chain(found).chain(of_names).collect();
        for new in all.difference(&self.said) {
            log::warn!("{new}");
        }
        self.said = all;
    }

    fn write_allocations(&self) {
        let path = &self.deps.record;
        let json = serde_json::to_vec(&self.allocations).unwrap_or_default();
        if let Err(e) = atomic_file::replace(path, &json) {
            log::warn!(
                "cannot write {}: {e}; services keep their addresses until the daemon is started again",
                path.display()
            );
        }
    }
}

/// Gives `f` the services and slices with what each has.
fn with_inputs<T>(
    objects: &ServiceObjects,
    assigned: &BTreeMap<ObjectKey, Assigned>,
    f: impl FnOnce(&[NamedService<'_>], &[NamedSlice<'_>]) -> T,
) -> T {
    let nothing = Assigned::default();
    let services: Vec<NamedService<'_>> = objects
        .services
        .iter()
        .map(|(key, service)| {
            let has = assigned.get(key).unwrap_or(&nothing);
            NamedService {
                namespace: &key.namespace,
                name: &key.name,
                service,
                created: None,
                cluster_ips: &has.cluster_ips,
                node_ports: &has.node_ports,
                health_check_node_port: has.health_check_node_port,
            }
        })
        .collect();
    let slices: Vec<NamedSlice<'_>> = objects
        .slices
        .iter()
        .map(|(key, slice)| NamedSlice {
            namespace: &key.namespace,
            slice,
        })
        .collect();
    f(&services, &slices)
}

/// `default/web:http to 10.244.0.2:80 10.244.0.3:80`, for the log.
fn summary(table: &ServiceTable) -> String {
    let backends = |b: &Backends| match b {
        Backends::Some(all) => all.iter().map(|b| format!(" {}", b.address)).collect(),
        Backends::Reject | Backends::Drop => " nobody".to_owned(),
    };
    let services = table.services.iter();
    let each = services.map(|s| format!("{} to{}", s.name, backends(&s.internal)));
    each.collect::<Vec<_>>().join(", ")
}

fn is_empty(table: &ServiceTable) -> bool {
    table.services.is_empty() && table.host_ports.is_empty()
}

fn has_traffic(table: &ServiceTable) -> bool {
    let leads_somewhere = |b: &Backends| matches!(b, Backends::Some(_));
    let mut services = table.services.iter();
    services.any(|s| leads_somewhere(&s.internal) || leads_somewhere(&s.external))
}

/// Nothing where it is missing or cannot be read: the same services get the same again.
fn read_allocations(path: &Path) -> Allocations {
    match std::fs::read(path) {
        Ok(json) => serde_json::from_slice(&json).unwrap_or_else(|e| {
            log::warn!(
                "cannot use {}: {e}; services may get other addresses",
                path.display()
            );
            Allocations::default()
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Allocations::default(),
        Err(e) => {
            log::warn!(
                "cannot read {}: {e}; services may get other addresses",
                path.display()
            );
            Allocations::default()
        }
    }
}
