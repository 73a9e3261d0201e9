//! The results that the thread `proxy` publishes: the current services, and ways to wait for services.

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

/// The results of the thread `proxy`. The thread `proxy` writes these results, and all other threads read them.
#[derive(Clone)]
pub struct Published {
    /// The current services.
    pub services: Arc<ServicesView>,
    /// The gate on which a caller waits until a pod gets no more traffic.
    pub gate: Arc<TrafficGate>,
    /// The services for which containers get environment variables.
    pub known: Arc<KnownServices>,
    /// The health of the data path and of services, with the server that answers health checks.
    pub health: Arc<Health>,
    /// The metrics of services.
    pub metrics: Arc<ProxyMetrics>,
}

impl Published {
    /// Makes empty results, for the time before the thread has published any.
    ///
    /// # Errors
    /// Returns an error if there is no descriptor for the health checks.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            services: Arc::default(),
            gate: Arc::default(),
            known: Arc::default(),
            health: Arc::new(Health::new()?),
            metrics: Arc::default(),
        })
    }

    /// Returns each service as it is shown to users. Waits for the first table, for at most `ceiling`. Returns `None` if
    /// there is no table then.
    pub fn views(&self, ceiling: Duration) -> Option<Vec<ServiceView>> {
        let mut all = self.services.first(ceiling)?.views();
        for service in &mut all {
            let problem = self.health.problem(&service.namespace, &service.name);
            service.problems.extend(problem);
        }
        Some(all)
    }
}

/// The current services, and everything that was made from these services.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// The services and slices as the user wrote them, or as a control plane has given them.
    pub objects: ServiceObjects,
    /// The addresses and ports that are assigned to each service.
    pub assigned: BTreeMap<ObjectKey, Assigned>,
    /// The pods of this node.
    pub pods: Vec<Arc<PodFacts>>,
    /// The table that was built from these objects and pods, with health checks and findings.
    pub built: Built,
    /// The value of `nodeName`.
    pub node_name: String,
    /// The address families of pods, primary first.
    pub families: Vec<IpFamily>,
    /// The names that are served.
    pub names: Option<Names>,
    /// The reason why queries for names outside of the cluster may have no answer.
    pub names_finding: Option<String>,
    /// The counters of the responder for names, as the data path last reported them.
    pub name_counters: Option<Counters>,
    /// The error or warning of the data path. Empty if there is no error and no warning.
    pub error: String,
    /// The node ports on which a process of the node listens.
    pub listening: Listening,
}

impl Services {
    /// Returns each service as it is shown to users, ordered by namespace and name.
    pub fn views(&self) -> Vec<ServiceView> {
        let nothing = Assigned::default();
        let pods: Vec<&PodFacts> = self.pods.iter().map(Arc::as_ref).collect();
        with_inputs(&self.objects, &self.assigned, |services, slices| {
            let inputs = Inputs {
                services,
                slices,
                pods: &pods,
                only_slices: self.objects.authority.is_control_plane(),
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

/// The services that the thread `proxy` published last, for other threads to read.
#[derive(Debug, Default)]
pub struct ServicesView {
    /// The published services, or `None` before the thread has published any.
    services: Mutex<Option<Arc<Services>>>,
    made: Condvar,
}

impl ServicesView {
    /// Returns the current services; empty before the thread has published any.
    pub fn get(&self) -> Arc<Services> {
        self.lock().clone().unwrap_or_default()
    }

    /// Waits until services are published for the first time, for at most `ceiling`. Returns the current services, or
    /// `None` if the thread has published none.
    pub fn first(&self, ceiling: Duration) -> Option<Arc<Services>> {
        let none_yet = |services: &mut Option<_>| services.is_none();
        let waited = self.made.wait_timeout_while(self.lock(), ceiling, none_yet);
        let (services, _) = waited.unwrap_or_else(PoisonError::into_inner);
        services.clone()
    }

    pub(super) fn set(&self, services: Services) {
        *self.lock() = Some(Arc::new(services));
        self.made.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Services>>> {
        self.services.locked()
    }
}
