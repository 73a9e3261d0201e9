//! Finds the endpoints of services by an index, instead of a search through every pod and slice for each service.
//!
//! Invariants: there are no side effects. The result is the same as that of [`endpoints`] for all pods.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::choose::{Candidate, candidates};
use super::endpoints::{PodEndpoint, Selecting, endpoints, families, slices};
use super::inputs::{Inputs, NamedService, NodeFacts};
use super::pod_facts::PodFacts;
use crate::api::service::{EndpointSlice, IpFamily, Service};

/// An index of the pods by their labels, and of the slices by their service.
#[derive(Debug)]
pub struct Lookup<'a> {
    node: NodeFacts<'a>,
    /// The pods that can be endpoints by their labels.
    pods: &'a [&'a PodFacts],
    /// The index of pods, which is made at the first use.
    by_label: OnceCell<ByLabel<'a>>,
    /// The slices, by namespace and name of their service.
    slices: HashMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>,
}

/// Pods by their namespace, and by key and value of each of their labels.
type ByLabel<'a> = HashMap<(&'a str, &'a str, &'a str), Vec<&'a PodFacts>>;

/// The endpoints of one service.
#[derive(Clone, Debug)]
pub struct ServiceEndpoints<'a> {
    /// The families of the service, by the rules of services 1.4.
    pub families: Vec<IpFamily>,
    /// The endpoints that are pods of this node.
    pub pods: Vec<PodEndpoint>,
    /// The service's slices that have one of the service's families.
    pub slices: Vec<&'a EndpointSlice>,
    node_name: &'a str,
}

impl<'a> Lookup<'a> {
    /// Indexes the slices of `inputs`. The pods are indexed at the first call of [`Self::endpoints`].
    pub fn new(inputs: &Inputs<'a>) -> Self {
        let mut lookup = Self {
            node: inputs.node,
            pods: match inputs.only_slices {
                true => &[],
                false => inputs.pods,
            },
            by_label: OnceCell::new(),
            slices: HashMap::new(),
        };
        for of in inputs.slices {
            let key = (of.namespace, &*of.slice.service);
            lookup.slices.entry(key).or_default().push(of.slice);
        }
        lookup
    }

    /// Finds the endpoints of a service, even of a service that is not served.
    pub fn endpoints(&self, of: &NamedService<'_>) -> ServiceEndpoints<'a> {
        let families = families(of.service, of.cluster_ips, self.node.families);
        let selecting = Selecting {
            namespace: of.namespace,
            name: of.name,
            service: of.service,
            families: &families,
        };
        let pods = endpoints(&selecting, self.with_a_label_of(of));
        let slices = self.slices.get(&(of.namespace, of.name));
        let slices = slices.into_iter().flatten().copied();
        let slices = slices.filter(|s| families.contains(&s.family)).collect();
        ServiceEndpoints {
            families,
            pods,
            slices,
            node_name: self.node.name,
        }
    }

    /// Returns the pods that have one label of the service's selector, namely the label that the fewest pods have.
    fn with_a_label_of(&self, of: &NamedService<'_>) -> Vec<&'a PodFacts> {
        let by_label = self.by_label.get_or_init(|| by_label(self.pods));
        let selector = of.service.selector.iter();
        let with = selector.map(|(key, value)| by_label.get(&(of.namespace, &**key, &**value)));
        let rarest = with.min_by_key(|pods| pods.map_or(0, Vec::len));
        rarest.flatten().cloned().unwrap_or_default()
    }
}

fn by_label<'a>(pods: &[&'a PodFacts]) -> ByLabel<'a> {
    let mut found = ByLabel::new();
    for pod in pods {
        for (key, value) in &pod.labels {
            let key = (&*pod.namespace, &**key, &**value);
            found.entry(key).or_default().push(pod);
        }
    }
    found
}

impl ServiceEndpoints<'_> {
    /// Returns the endpoints of each port of the service, in the order of the ports.
    pub fn of_ports(&self, service: &Service) -> Vec<Vec<Candidate>> {
        let ports = service.ports.iter();
        ports
            .map(|port| candidates(port, &self.pods, &self.slices, self.node_name))
            .collect()
    }

    /// Returns the endpoints in slices that are pods, of this node or another one.
    pub fn pods_of_slices(&self) -> Vec<PodEndpoint> {
        let of_slice = |slice: &&EndpointSlice| {
            let (family, ports) = (slice.family, slice.ports.clone());
            let pods = slice.endpoints.iter().filter(|e| e.target.is_some());
            let pods = pods.map(move |endpoint| PodEndpoint {
                endpoint: endpoint.clone(),
                family,
                ports: ports.clone(),
                loopback_only: None,
            });
            pods.collect::<Vec<_>>()
        };
        self.slices.iter().flat_map(of_slice).collect()
    }

    /// Returns all endpoints as slices: the slices that the controller would write for the pods, and the slices from
    /// files. These slices serve for display and for DNS names.
    pub fn all_slices(&self, service: &str) -> Vec<EndpointSlice> {
        let mut all = slices(service, self.node_name, &self.pods);
        all.extend(self.slices.iter().map(|&s| s.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodPhase;
    use crate::net::services::inputs::NamedSlice;

    fn pod(namespace: &str, name: &str, labels: &[(&str, &str)]) -> PodFacts {
        let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
        PodFacts {
            namespace: namespace.into(),
            name: name.into(),
            labels: labels.iter().map(own).collect(),
            phase: PodPhase::Running,
            addresses: vec![[10, 0, 0, 1].into()],
            ..PodFacts::default()
        }
    }

    fn slice(service: &str, family: IpFamily) -> EndpointSlice {
        EndpointSlice {
            service: service.into(),
            family,
            endpoints: vec![],
            ports: vec![],
        }
    }

    #[test]
    fn it_finds_what_a_look_at_all_finds() {
        let pods = [
            pod("n", "a", &[("app", "web"), ("tier", "front")]),
            pod("n", "b", &[("app", "web")]),
            pod("n", "c", &[("tier", "front")]),
            pod("m", "d", &[("app", "web"), ("tier", "front")]),
        ];
        let (v4, v6) = (slice("s", IpFamily::V4), slice("s", IpFamily::V6));
        let other = slice("t", IpFamily::V4);
        let of = |namespace, slice| NamedSlice { namespace, slice };
        let all: Vec<&PodFacts> = pods.iter().collect();
        let inputs = Inputs {
            pods: &all,
            slices: &[of("n", &v4), of("n", &v6), of("n", &other), of("m", &v4)],
            node: NodeFacts {
                name: "node",
                families: &[IpFamily::V4],
                ..NodeFacts::default()
            },
            ..Inputs::default()
        };
        let lookup = Lookup::new(&inputs);
        let selectors: [&[(&str, &str)]; 5] = [
            &[],
            &[("app", "web")],
            &[("tier", "front")],
            &[("app", "web"), ("tier", "front")],
            &[("app", "web"), ("tier", "back")],
        ];
        for (selector, count) in selectors.into_iter().zip([0, 2, 2, 1, 0]) {
            let service = Service {
                selector: pod("", "", selector).labels,
                ..Service::default()
            };
            let found = lookup.endpoints(&NamedService {
                namespace: "n",
                name: "s",
                service: &service,
                created: None,
                cluster_ips: &[[10, 96, 0, 1].into()],
                node_ports: &[],
                health_check_node_port: None,
            });
            let selecting = Selecting {
                namespace: "n",
                name: "s",
                service: &service,
                families: &[IpFamily::V4],
            };
            assert_eq!(found.pods, endpoints(&selecting, &pods), "{selector:?}");
            assert_eq!((found.pods.len(), found.slices.len()), (count, 1));
            let slices = found.all_slices("s");
            assert_eq!(slices.len(), 1 + count.min(1));
            assert!(
                slices
                    .iter()
                    .all(|s| s.service == "s" && s.family == IpFamily::V4)
            );
        }
    }
}
