//! Corrects the endpoints on this node in the slices of a control plane that cannot be heard (services 1.7).
//!
//! Invariants: there are no side effects. Endpoints on other nodes, and endpoints that are no pods, stay as the slices name
//! them. No endpoint is added: which pods belong to a service is the control plane's word.

use std::sync::Arc;

use super::endpoints::{conditions, counts};
use super::inputs::ServiceObjects;
use super::pod_facts::PodFacts;
use crate::api::objects::{ObjectKey, ObjectKind};
use crate::api::service::{Endpoint, EndpointSlice, Service};

/// Gives each endpoint that is a pod of this node the addresses and the conditions that the pod has now. A pod that is gone
/// or has no address is an endpoint no more.
pub fn correct(objects: &mut ServiceObjects, node_name: &str, pods: &[Arc<PodFacts>]) {
    let known = Known {
        node_name,
        pods,
        services: &objects.services,
    };
    for (key, slice) in &mut objects.slices {
        let Some(service) = known.service(&key.namespace, &slice.service) else {
            continue;
        };
        let endpoints = slice.endpoints.iter();
        let endpoints: Vec<Endpoint> = endpoints
            .filter_map(|endpoint| known.corrected(slice, endpoint, service))
            .collect();
        if endpoints != slice.endpoints {
            *slice = Arc::new(EndpointSlice {
                endpoints,
                ..(**slice).clone()
            });
        }
    }
}

/// The knowledge of this node.
struct Known<'a> {
    node_name: &'a str,
    pods: &'a [Arc<PodFacts>],
    /// The services, sorted by key.
    services: &'a [(ObjectKey, Arc<Service>)],
}

impl Known<'_> {
    fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        let wanted = ObjectKey::new(ObjectKind::Service, namespace, name);
        let at = self.services.binary_search_by(|(key, _)| key.cmp(&wanted));
        Some(&self.services[at.ok()?].1)
    }

    /// Returns the endpoint as it is now, or `None` if it is none any more.
    fn corrected(
        &self,
        slice: &EndpointSlice,
        endpoint: &Endpoint,
        service: &Service,
    ) -> Option<Endpoint> {
        let is_here = endpoint.node_name.as_deref() == Some(self.node_name);
        let Some((namespace, name)) = endpoint.target.as_ref().filter(|_| is_here) else {
            return Some(endpoint.clone());
        };
        let is_it = |pod: &&Arc<PodFacts>| pod.namespace == *namespace && pod.name == *name;
        let pod = self.pods.iter().find(is_it).filter(|pod| counts(pod))?;
        let addresses: Vec<_> = pod.addresses_of(slice.family).collect();
        (!addresses.is_empty()).then(|| Endpoint {
            addresses,
            conditions: conditions(service, pod),
            ..endpoint.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodPhase;
    use crate::api::service::{EndpointConditions, IpFamily};

    const READY: EndpointConditions = EndpointConditions {
        ready: true,
        serving: true,
        terminating: false,
    };

    fn endpoint(node: &str, pod: Option<&str>, last: u8) -> Endpoint {
        Endpoint {
            addresses: vec![[10, 0, 0, last].into()],
            conditions: READY,
            hostname: None,
            node_name: Some(node.to_owned()),
            target: pod.map(|name| ("n".to_owned(), name.to_owned())),
        }
    }

    fn pod(name: &str, addresses: &[u8], serving: bool) -> Arc<PodFacts> {
        let addresses = addresses.iter().map(|last| [10, 0, 0, *last].into());
        Arc::new(PodFacts {
            namespace: "n".into(),
            name: name.into(),
            phase: PodPhase::Running,
            addresses: addresses.collect(),
            serving,
            ..PodFacts::default()
        })
    }

    fn objects(endpoints: &[Endpoint]) -> ServiceObjects {
        let key = |kind, name| ObjectKey::new(kind, "n", name);
        let slice = EndpointSlice {
            service: "web".into(),
            family: IpFamily::V4,
            endpoints: endpoints.to_vec(),
            ports: Vec::new(),
        };
        ServiceObjects {
            services: vec![(key(ObjectKind::Service, "web"), Arc::default())],
            slices: vec![(key(ObjectKind::EndpointSlice, "web-1"), Arc::new(slice))],
            ..ServiceObjects::default()
        }
    }

    #[track_caller]
    fn check(before: &[Endpoint], pods: &[Arc<PodFacts>], after: &[Endpoint]) {
        let mut corrected = objects(before);
        correct(&mut corrected, "here", pods);
        assert_eq!(corrected, objects(after));
    }

    #[test]
    fn a_pod_of_this_node_has_its_own_address_and_readiness() {
        let not_ready = Endpoint {
            conditions: EndpointConditions {
                ready: false,
                serving: false,
                terminating: false,
            },
            ..endpoint("here", Some("b"), 12)
        };
        check(
            &[
                endpoint("here", Some("a"), 1),
                endpoint("here", Some("b"), 2),
            ],
            &[pod("a", &[11], true), pod("b", &[12], false)],
            &[endpoint("here", Some("a"), 11), not_ready],
        );
    }

    #[test]
    fn a_pod_that_is_gone_or_has_no_address_is_no_endpoint() {
        let before = [
            endpoint("here", Some("a"), 1),
            endpoint("here", Some("b"), 2),
        ];
        check(&before, &[pod("b", &[], true)], &[]);
    }

    #[test]
    fn what_is_elsewhere_or_no_pod_stays_and_nothing_is_added() {
        let before = [endpoint("there", Some("a"), 1), endpoint("here", None, 2)];
        let pods = [pod("a", &[11], true), pod("other", &[12], true)];
        check(&before, &pods, &before);
    }
}
