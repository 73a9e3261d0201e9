//! The thread `proxy`: brings changes of pods and services into force.
//!
//! Invariants: the thread changes only the data path and the record of allocations, and reads everything else. The
//! thread programs nothing until every source has delivered and the pods have statuses. Until the first table is
//! programmed, the table of an earlier daemon stays in force.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, TryRecvError};

use super::allocation_record::AllocationRecord;
use super::listening::{self, Listening};
use super::names::{self, NameSettings, Node, Versions};
use super::pace::{Pace, Step};
use super::process_end::ProcessEnd;
use super::published::{Published, Services};
use super::{Applied, DataPath};
use crate::api::cidr::Cidr;
use crate::api::objects::ObjectKey;
use crate::api::service::IpFamily;
use crate::api::{Pod, PodStatus, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed, Changes};
use crate::base::clock::{Moment, Time};
use crate::base::threads::{Pulse, Roster};
use crate::net::network;
use crate::net::network::pod_cidrs::PodCidrs;
use crate::net::services::allocate::{Assigned, allocate, given};
use crate::net::services::build::build;
use crate::net::services::claims::OwnPort;
use crate::net::services::inputs::{Authority, Inputs, NodeFacts, ServiceObjects, with_inputs};
use crate::net::services::names::Names;
use crate::net::services::pod_facts::PodFacts;
use crate::net::services::pods_of_slices;
use crate::net::services::table::{Backends, ServiceTable};

/// The time between two checks whether somebody else has changed the state that the thread programmed.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time until a table that could not be programmed is tried again. Each further failure doubles it, up to [`INTERVAL`].
/// Most failures end at once, such as the end of the proxy's process while it started.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest time for which services wait at the start, for a source that has not delivered yet or for a
/// pod without a status.
pub const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The time between two looks at the sources while the thread does not yet know everything that an earlier daemon
/// knew.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const STACK: usize = 512 << 10;
/// The aspects of a pod that change services: its status (readiness and address) and its spec (labels and ports).
const ASPECTS: [Aspect; 2] = [Aspect::Status, Aspect::Spec];

/// The pods and objects of this node, as the thread reads them.
pub trait NodeState: Send {
    /// Returns the UIDs of the pods that should run.
    fn wanted(&self) -> HashSet<PodUid>;
    /// Returns the pod with this UID, if the pod should run.
    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>>;
    /// Returns the status of a pod. A pod that is terminating has a status, too.
    fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>>;
    /// Returns the services and slices at one moment.
    fn services(&self) -> ServiceObjects;
    /// Tells whether every source of pods and objects has delivered.
    fn has_all(&self) -> bool;
    /// Tells whether the statuses of an earlier daemon have been read.
    fn has_statuses(&self) -> bool;
    /// Returns the path of the network namespace of a pod's sandbox, if the pod has one now.
    fn network_namespace(&self, uid: &PodUid) -> Option<PathBuf>;
    /// Tells whether pods get addresses of their own.
    fn has_network(&self) -> bool;
}

/// The parts that the thread `proxy` works with.
pub struct Deps {
    /// The source of pods, statuses and objects.
    pub node: Box<dyn NodeState>,
    /// The feed of changes to pods. A change of objects, such as services, also wakes the readers of the feed.
    pub feed: Arc<ChangeFeed>,
    /// The data path that sends clients to endpoints.
    pub path: Box<dyn DataPath + Send>,
    /// The news that the process of the role `proxy` has ended.
    pub process_end: Arc<ProcessEnd>,
    /// The place where other threads read the results.
    pub published: Published,
    /// The order to remove everything that was programmed, and the confirmation of the removal.
    pub removal: Arc<Removal>,
    /// The path of the record of allocations.
    pub record: PathBuf,
    /// The settings of services.
    pub settings: ServiceSettings,
}

/// The settings of services, from the configuration.
#[derive(Clone, Debug, Default)]
pub struct ServiceSettings {
    /// The value of `nodeName`.
    pub node_name: String,
    /// The ports on which podprobe itself listens.
    pub own_ports: Vec<OwnPort>,
    /// The ranges of pod addresses.
    pub pod_cidrs: PodCidrs,
    /// The ranges in `serviceCIDR`.
    pub service_cidrs: Vec<Cidr>,
    /// The settings of names, or `None` if podprobe answers no names.
    pub names: Option<NameSettings>,
}

/// The order to remove everything that was programmed. After this order nothing is programmed any more.
#[derive(Debug, Default)]
pub struct Removal {
    wanted: AtomicBool,
    done: AtomicBool,
}

impl Removal {
    /// Gives the order. The thread follows the order when the feed is woken.
    pub fn order(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Tells whether the thread has followed the order. A part that the kernel refused to remove may be left.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

/// Starts the thread `proxy`. The thread ends when `stop` closes and the feed is woken, after a last turn. If no
/// pod is left that queries names, the last turn ends the process that answers DNS queries.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn spawn(deps: Deps, stop: Receiver<()>, roster: &Roster) -> io::Result<JoinHandle<()>> {
    deps.published.health.set_mode(deps.path.name());
    let mut watch = Watch::new(deps);
    roster.spawn("proxy", STACK, move |pulse, panicked| {
        let is_stopped = || matches!(stop.try_recv(), Err(TryRecvError::Disconnected));
        if panicked {
            if is_stopped() {
                return ControlFlow::Break(());
            }
            watch.doubt();
        }
        if !is_stopped() {
            watch.wait(pulse);
        }
        // The stop is checked before the turn. So the last turn includes every change that was made before the
        // stop.
        let is_last = is_stopped();
        watch.turn(is_last);
        match is_last {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
}

struct Watch {
    deps: Deps,
    began: Moment,
    /// The version of the feed up to which changes of pods have been read.
    seen: u64,
    pods: HashMap<PodUid, (Arc<Pod>, Arc<PodFacts>)>,
    /// The allocations for services.
    record: AllocationRecord,
    applied: Option<ServiceTable>,
    pace: Pace,
    /// The names that are in force.
    applied_names: Option<Names>,
    names_pace: Pace,
    versions: Versions,
    /// The time of the next look, even if nothing has changed.
    next_look: Moment,
    /// The time when gathered changes come into force.
    due: Option<Moment>,
    failed: String,
    /// Number of failures in a row.
    failures: u32,
    listening: Listening,
    /// The findings that are in the log already.
    said: BTreeSet<String>,
    /// The last warning of the data path, which is in the log already.
    warned: Option<String>,
    /// The end of the rest after a turn. Changes are gathered until this time.
    rests_until: Moment,
}

/// The length of the rest after a turn, as a multiple of the turn's own duration. Each turn reads all pods and
/// services. Without a rest, each of many changed pods would have its own turn, and the total time would grow with
/// the square of the number of pods.
const REST: u32 = 3;
/// The longest rest after a turn. A change can wait this long before the thread handles it.
const LONGEST_REST: Duration = Duration::from_millis(200);

impl Watch {
    fn new(deps: Deps) -> Self {
        let now = Moment::now();
        Self {
            record: AllocationRecord::read(&deps.record),
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
            failures: 0,
            listening: Listening::default(),
            said: BTreeSet::new(),
            warned: None,
            rests_until: now,
        }
    }

    /// Sleeps until the rest after the last turn is over. So the next turn handles all changes that come during
    /// the rest. Does not sleep if a removal was ordered.
    fn rest(&self) {
        let left = self.rests_until.since(Moment::now());
        if !left.is_zero() && !self.deps.removal.wanted.load(Ordering::SeqCst) {
            std::thread::sleep(left);
        }
    }

    /// Forgets everything that was read and applied, so that the next turn reads and programs everything
    /// anew.
    fn doubt(&mut self) {
        self.seen = 0;
        self.pods.clear();
        (self.applied, self.applied_names) = (None, None);
        (self.due, self.next_look) = (None, Moment::now());
    }

    /// Waits for a change, or for the time of the next look or of gathered changes.
    fn wait(&self, pulse: &Pulse) {
        let next = self
            .due
            .map_or(self.next_look, |due| due.min(self.next_look));
        let left = next.since(Moment::now());
        let feed = &self.deps.feed;
        pulse.rest(|| {
            feed.wait_newer_of_any(&ASPECTS, self.seen, left);
            self.rest();
        });
    }

    /// Brings the data path up to date. If `is_last` is true, gathered changes are applied at once.
    fn turn(&mut self, is_last: bool) {
        if self.deps.removal.wanted.load(Ordering::SeqCst) {
            return self.remove();
        }
        let now = Moment::now();
        // A process that ends with each table is not started again faster than tables are tried.
        if self.deps.process_end.take() && self.failures == 0 {
            self.next_look = now;
        }
        self.look(now, is_last);
        let end = Moment::now();
        self.rests_until = end + (end.since(now) * REST).min(LONGEST_REST);
    }

    fn look(&mut self, now: Moment, is_last: bool) {
        // This check must come before the pods are read, because a source may deliver pods in between.
        let is_complete = self.is_complete(now);
        let (changes, version) = self.deps.feed.since(self.seen);
        self.seen = version;
        self.read_pods(changes.as_ref());
        if !is_complete {
            if self.deps.node.has_all() {
                self.assign();
            }
            self.next_look = now + FIRST_LOOK;
            return;
        }
        let services = self.services();
        self.say(&services);
        let step = self.bring_into_force(&services, version, now, is_last);
        let is_current = !matches!(step, Step::Wait(_)) && self.failed.is_empty();
        let checks = is_current.then_some(&*services.built.health_checks);
        self.deps
            .published
            .health
            .look(now, self.deps.path.name(), checks);
        let error = match (self.failed.as_str(), &self.warned) {
            ("", Some(warned)) => warned.clone(),
            (failed, _) => failed.to_owned(),
        };
        self.deps.published.services.set(Services {
            error,
            name_counters: self.deps.path.name_counters(),
            listening: self.listening.clone(),
            ..services
        });
    }

    fn bring_into_force(
        &mut self,
        services: &Services,
        version: u64,
        now: Moment,
        is_last: bool,
    ) -> Step {
        let (wanted, names) = (&services.built.table, services.names.as_ref());
        let step = match &self.applied {
            Some(applied) => self.pace.step(now, applied, wanted),
            None => Step::Apply,
        };
        let applied = self.applied.clone().unwrap_or_default();
        let metrics = &self.deps.published.metrics;
        metrics.look(step, now, SystemTime::now(), &applied, wanted);
        let applied_names = self.applied_names.as_ref();
        let names_step = self.names_pace.step_names(now, applied_names, names);
        let waits = [step, names_step].into_iter().filter_map(Step::wait);
        self.due = waits.min();
        match (step, names_step) {
            (Step::Apply, _) => self.apply(services, version, now),
            _ if now >= self.next_look || is_last && self.due.is_some() => {
                self.apply(services, version, now);
            }
            (_, Step::Apply) => {
                self.apply_names(names);
                self.pass(version);
            }
            _ => self.pass(version),
        }
        step
    }

    /// Records at the traffic gate that the data path is current up to this version of the feed.
    fn pass(&self, version: u64) {
        let leads = self.applied_names.as_ref().is_some_and(Names::lead_to_pods);
        let sends = self.applied.as_ref().is_some_and(has_traffic);
        self.deps.published.gate.pass(version, leads || sends);
    }

    /// Tells whether the thread knows enough to program its first table. Every source must have delivered. In
    /// addition, the statuses of an earlier daemon must be there, or each pod that should run must have a
    /// status. A source that does not answer delays all services by at most `FIRST_WAIT`.
    fn is_complete(&self, now: Moment) -> bool {
        if self.applied.is_some() || now.since(self.began) > FIRST_WAIT {
            return true;
        }
        let node = &self.deps.node;
        let is_known = |uid: &PodUid| node.status(uid).is_some();
        let are_known = || node.wanted().iter().all(is_known);
        node.has_all() && (node.has_statuses() || are_known())
    }

    /// Reads the facts of the changed pods, or of all pods if `changes` is `None`.
    fn read_pods(&mut self, changes: Option<&Changes>) {
        let uids: BTreeSet<PodUid> = match changes {
            Some(changes) => changes.pods.keys().cloned().collect(),
            None => {
                let known = self.pods.keys().cloned();
                known.chain(self.deps.node.wanted()).collect()
            }
        };
        for uid in uids {
            match self.facts(&uid) {
                Some(facts) => drop(self.pods.insert(uid, facts)),
                None => drop(self.pods.remove(&uid)),
            }
        }
    }

    /// Returns the facts of a pod, or `None` if the pod has no status or was never read. A pod that should no
    /// longer run counts as terminating until its status is gone. So does a pod that is being deleted: its status may be
    /// from an earlier daemon, which had no time to write that down.
    fn facts(&self, uid: &PodUid) -> Option<(Arc<Pod>, Arc<PodFacts>)> {
        let node = &self.deps.node;
        let status = node.status(uid)?;
        let wanted = node.pod(uid);
        let is_leaving = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_some();
        let terminating = wanted.as_ref().is_none_or(is_leaving) || status.is_terminating();
        let pod = wanted.or_else(|| Some(self.pods.get(uid)?.0.clone()))?;
        let is_loopback = |ip: &str| ip.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let alone = !pod.spec.host_network && is_loopback(&status.pod_ip);
        let namespace = alone.then(|| node.network_namespace(uid));
        let is_unknown = matches!(namespace, Some(None));
        let mut facts = PodFacts::of(&pod, &status, terminating, namespace.flatten());
        if is_unknown {
            // The pod's sandbox is gone. Without it, the pod's loopback address would lead to the node itself.
            facts.addresses.clear();
        }
        Some((pod, Arc::new(facts)))
    }

    /// Returns the services and slices, and the assigned addresses and ports of each service. After this call,
    /// containers get environment variables for these services.
    fn assign(&mut self) -> (ServiceObjects, BTreeMap<ObjectKey, Assigned>) {
        let objects = self.deps.node.services();
        let assigned = match objects.authority.is_control_plane() {
            true => given(&objects.services),
            false => self.allocate(&objects),
        };
        self.deps.published.known.set(&objects, &assigned);
        (objects, assigned)
    }

    /// Allocates the addresses and ports that the objects leave to this node.
    fn allocate(&mut self, objects: &ServiceObjects) -> BTreeMap<ObjectKey, Assigned> {
        let assignment = allocate(
            &objects.services,
            &self.deps.settings.service_cidrs,
            self.record.allocations(),
            Time::now(),
        );
        // The record is not changed before every source has delivered, because services of a late source must keep
        // their addresses.
        if self.deps.node.has_all() {
            self.record.set(assignment.record);
        }
        if let Some(failed) = self.record.write() {
            log::warn!("{failed}");
        }
        assignment.services
    }

    fn services(&mut self) -> Services {
        let (mut objects, assigned) = self.assign();
        let pods: Vec<Arc<PodFacts>> = self.pods.values().map(|(_, facts)| facts.clone()).collect();
        if objects.authority == Authority::SilentControlPlane {
            pods_of_slices::correct(&mut objects, &self.deps.settings.node_name, &pods);
        }
        let all: Vec<&PodFacts> = pods.iter().map(Arc::as_ref).collect();
        let own = self.deps.path.addresses();
        let mut addresses = network::node_addresses();
        addresses.retain(|ip| !own.contains(ip));
        let families = self.families();
        let only_slices = objects.authority.is_control_plane();
        let service_cidrs = match only_slices {
            true => &objects.service_cidrs,
            false => &self.deps.settings.service_cidrs,
        };
        let pod_cidrs = self.deps.settings.pod_cidrs.get();
        let (built, names) = with_inputs(&objects, &assigned, |services, slices| {
            let inputs = Inputs {
                services,
                slices,
                pods: &all,
                only_slices,
                node: NodeFacts {
                    name: &self.deps.settings.node_name,
                    addresses: &addresses,
                    own_ports: &self.deps.settings.own_ports,
                    pod_cidrs: &pod_cidrs,
                    service_cidrs,
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
            node_name: self.deps.settings.node_name.clone(),
            families,
            names: names.map(number),
            names_finding: names_finding.flatten(),
            name_counters: None,
            error: String::new(),
            listening: Listening::default(),
        }
    }

    /// Returns the names to serve, and the finding about a loop of resolvers. Returns None if nothing needs names:
    /// there is no service, and no pod queries names.
    fn names(&self, inputs: &Inputs<'_>) -> Option<(Names, Option<String>)> {
        let settings = self.deps.settings.names.as_ref()?;
        let has_network = self.deps.node.has_network();
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

    /// Returns the address families of pods, primary first.
    fn families(&self) -> Vec<IpFamily> {
        let ranges = self.deps.settings.pod_cidrs.get();
        ranges.iter().map(|r| IpFamily::of(r.network)).collect()
    }

    fn apply(&mut self, services: &Services, version: u64, now: Moment) {
        let table = &services.built.table;
        self.next_look = now + INTERVAL;
        // A node without services and names has no tables and no process of podprobe.
        let has_names = services.names.is_some() || self.applied_names.is_some();
        if !has_names && is_empty(table) && self.applied.as_ref().is_some_and(is_empty) {
            self.applied = Some(table.clone());
            (self.failed, self.failures) = (String::new(), 0);
            return self.pass(version);
        }
        let began = Moment::now();
        self.deps.path.set_names(services.names.clone());
        let done = self.deps.path.apply(table);
        let end = Moment::now();
        let took = end.since(began);
        match done {
            Ok(applied) => {
                let wall = SystemTime::now();
                self.deps.published.metrics.synced(took, end, wall, table);
                log::debug!("services in force: {}", summary(table));
                self.applied = Some(table.clone());
                self.applied_names.clone_from(&services.names);
                self.pass(version);
                (self.failed, self.failures) = (String::new(), 0);
                self.say_of_ports(table);
                if applied.repaired && applied.full && version > 0 {
                    log::warn!("services: the tables were changed by somebody else: made again");
                }
                self.warn(applied.warning);
            }
            Err(e) => {
                self.deps.published.metrics.failed(took);
                (self.due, self.next_look) = (None, end + retry_after(self.failures));
                self.failures += 1;
                let text = e.to_string();
                if self.failed != text {
                    log::error!(
                        "{text}; trying again at once, and later every {} s",
                        INTERVAL.as_secs()
                    );
                    self.failed = text;
                }
            }
        }
    }

    /// Applies changed names, without a change to services. If the application fails, the next look tries again.
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

    fn remove(&mut self) {
        self.next_look = Moment::now() + INTERVAL;
        if self.deps.removal.is_done() {
            return;
        }
        if let Err(e) = self.deps.path.remove() {
            log::warn!("services stay in force: {e}");
        }
        self.deps.removal.done.store(true, Ordering::SeqCst);
        self.deps.feed.wake();
    }

    /// Logs the node ports in the table on which a process of the node listens. Only a data path in the packet
    /// filter needs this check, because it takes the clients away from that process. The other data path cannot
    /// listen on such a port and reports this failure itself.
    fn say_of_ports(&mut self, table: &ServiceTable) {
        if self.deps.path.name() != "nftables" {
            return;
        }
        for taken in self.listening.look(table, listening::of_node) {
            let (namespace, service) = (&taken.name.namespace, &taken.name.service);
            log::warn!("service {namespace}/{service}: {}", taken.message);
        }
    }

    fn warn(&mut self, text: Option<String>) {
        if let Some(new) = text.as_ref().filter(|_| text != self.warned) {
            log::warn!("services: {new}");
        }
        self.warned = text;
    }

    /// Logs each problem of services and names once. A problem that disappears and comes back is logged again.
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
}

/// Returns a text of the table for the log, such as `default/web:http to 10.244.0.2:80 10.244.0.3:80`.
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
    services.any(|s| s.lists().into_iter().any(leads_somewhere))
}

/// Returns the time until the next try of a table after that many failures before this one.
fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(1 << failures.min(16))
        .min(INTERVAL)
}

#[cfg(test)]
mod tests;
