//! The results that the thread `proxy` publishes: the services as they are, and the means to wait for them.

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

/// The results of the thread `proxy`: it writes them, and everybody else reads them.
#[derive(Clone)]
pub struct Published {
    /// The services as they are.
    pub services: Arc<ServicesView>,
    /// The gate on which a caller waits until a pod gets no traffic.
    pub gate: Arc<TrafficGate>,
    /// The services for which containers get environment variables.
    pub known: Arc<KnownServices>,
    /// The health of the data path and of services, with the server that answers health checks.
    pub health: Arc<Health>,
    /// The metrics of services.
    pub metrics: Arc<ProxyMetrics>,
}

impl Published {
    /// Empty results, before the thread has published any.
    ///
    /// # Errors
    /// Returns the error of the node if it gives no descriptor for the health checks.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            services: Arc::default(),
            gate: Arc::default(),
            known: Arc::default(),
            health: Arc::new(Health::new()?),
            metrics: Arc::default(),
        })
    }

    /// Returns each service as people see it. Waits for the first table, for at most `ceiling`.
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
    /// The addresses and ports of each service.
    pub assigned: BTreeMap<ObjectKey, Assigned>,
    /// The pods of this node.
    pub pods: Vec<Arc<PodFacts>>,
    /// The table that was built from these, with health checks and findings.
    pub built: Built,
    /// `nodeName`.
    pub node_name: String,
    /// The families of the pods' addresses, primary first.
    pub families: Vec<IpFamily>,
    /// The names that are served.
    pub names: Option<Names>,
    /// The reason why names outside of the cluster may lead nowhere.
    pub names_finding: Option<String>,
    /// The counters of names, as the data path reported them last.
    pub name_counters: Option<Counters>,
    /// The reason why the data path is not as it should be. Empty if it is.
    pub error: String,
    /// Node ports on which a process of the node listened.
    pub listening: Listening,
}

impl Services {
    /// Returns each service as people see it, in the order of namespace and name.
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

/// The last services that the thread `proxy` has published, for its readers.
#[derive(Debug, Default)]
pub struct ServicesView {
    /// `None` before the thread has published the first services.
    services: Mutex<Option<Arc<Services>>>,
    made: Condvar,
}

impl ServicesView {
    /// The services as they are now; empty before the thread has published the first.
    pub fn get(&self) -> Arc<Services> {
        self.lock().clone().unwrap_or_default()
    }

    /// Returns the same as [`Self::get`], but first waits for the first services, for at most `ceiling`.
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
