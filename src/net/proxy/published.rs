//! What the thread `proxy` makes known: the services as they are, and who waits for them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::TrafficGate;
use super::health::Health;
use super::known::KnownServices;
use super::listening::Listening;
use super::metrics::ProxyMetrics;
use crate::api::objects::ObjectKey;
use crate::api::service::IpFamily;
use crate::base::locks::Locked;
use crate::net::proxyd::dns::counters::Counters;
use crate::net::services::allocate::Assigned;
use crate::net::services::build::Built;
use crate::net::services::inputs::{Inputs, NamedService, NodeFacts, ServiceObjects, with_inputs};
use crate::net::services::names::Names;
use crate::net::services::pod_facts::PodFacts;
use crate::net::services::view::{ServiceView, view};

/// Where the thread writes, and everybody else reads.
#[derive(Clone)]
pub struct Published {
    /// The services as they are.
    pub services: Arc<ServicesView>,
    /// Who waits until a pod gets no traffic.
    pub gate: Arc<TrafficGate>,
    /// The services of which containers get variables.
    pub known: Arc<KnownServices>,
    /// Whether services are up to date, and who is asked for it.
    pub health: Arc<Health>,
    /// What is counted.
    pub metrics: Arc<ProxyMetrics>,
}

impl Published {
    /// Nothing yet.
    ///
    /// # Errors
    /// The node gives no descriptor for the health checks.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            services: Arc::default(),
            gate: Arc::default(),
            known: Arc::default(),
            health: Arc::new(Health::new()?),
            metrics: Arc::default(),
        })
    }

    /// Each service as people see it. Waits for the first table, at most `ceiling`.
    pub fn views(&self, ceiling: Duration) -> Vec<ServiceView> {
        let mut all = self.services.first(ceiling).views();
        for service in &mut all {
            let problem = self.health.problem(&service.namespace, &service.name);
            service.problems.extend(problem);
        }
        all
    }
}

/// The services as they are now.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Services and slices as they are written.
    pub objects: ServiceObjects,
    /// What each service has.
    pub assigned: BTreeMap<ObjectKey, Assigned>,
    /// The pods of this node.
    pub pods: Vec<Arc<PodFacts>>,
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
    /// Node ports on which a process of the node listened.
    pub listening: Listening,
}

impl Services {
    /// Each as people see it, in the order of namespace and name.
    pub fn views(&self) -> Vec<ServiceView> {
        let nothing = Assigned::default();
        let pods: Vec<&PodFacts> = self.pods.iter().map(Arc::as_ref).collect();
        with_inputs(&self.objects, &self.assigned, |services, slices| {
            let inputs = Inputs {
                services,
                slices,
                pods: &pods,
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
                let taken = self.listening.of(&key.namespace, &key.name);
                view.problems.extend(taken.map(str::to_owned));
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
pub struct ServicesView {
    /// None before the first.
    services: Mutex<Option<Arc<Services>>>,
    made: Condvar,
}

impl ServicesView {
    /// The services as they are now; none before the first are made.
    pub fn get(&self) -> Arc<Services> {
        self.lock().clone().unwrap_or_default()
    }

    /// As [`Self::get`], but waits for the first, at most `ceiling`.
    pub fn first(&self, ceiling: Duration) -> Arc<Services> {
        let none_yet = |services: &mut Option<_>| services.is_none();
        let waited = self.made.wait_timeout_while(self.lock(), ceiling, none_yet);
        let (services, _) = waited.unwrap_or_else(PoisonError::into_inner);
        services.clone().unwrap_or_default()
    }

    pub(super) fn set(&self, services: Services) {
        *self.lock() = Some(Arc::new(services));
        self.made.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Services>>> {
        self.services.locked()
    }
}
