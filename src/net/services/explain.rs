//! Explains to people why a pod gets the traffic of a service or not (services 3).
//!
//! Invariants: there are no side effects. The explanation uses the functions that also make the table, so the
//! explanation and the table cannot differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::choose::{Choice, of_pod};
use super::endpoints::{PodEndpoint, selects, target_port};
use super::inputs::{Inputs, NamedService};
use super::lookup::Lookup;
use super::pod_facts::PodFacts;
use crate::api::service::{IpFamily, ServicePort, TargetPort};
use crate::base::spelling::nearest;

/// Largest number of listed pods that the selector nearly matches.
const MOST_NEAR: usize = 5;

/// A pod, and whether it gets traffic from a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodTraffic {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// True if the service sends some clients to the pod.
    pub gets_traffic: bool,
    /// The reasons for which the pod gets no traffic, or what is special about its traffic. Empty if all is well.
    pub why: Vec<String>,
}

/// The explanation of a service: which pods get its traffic, and why other pods do not get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The pods that the selector matches, sorted by name.
    pub selected: Vec<PodTraffic>,
    /// The pods that the selector nearly matches, best match first. None of them gets traffic.
    pub near: Vec<PodTraffic>,
    /// A remark about the whole service: it has no selector, or the selector matches no pod. Empty if pods are selected.
    pub note: String,
}

/// Explains one service, even a service that is not served or not in `inputs`.
pub fn explain(service: &NamedService<'_>, inputs: &Inputs<'_>) -> Explanation {
    let explainer = Explainer::new(service, inputs);
    let is_selected = |pod: &&PodFacts| {
        pod.namespace == service.namespace && selects(service.service, &pod.labels)
    };
    let pods = inputs.pods.iter().copied();
    let mut selected: Vec<_> = pods.clone().filter(is_selected).collect();
    selected.sort_by_key(|pod| &pod.name);
    let others = pods.filter(|pod| !is_selected(pod));
    let near = match inputs.only_slices {
        true => Vec::new(),
        false => near(service, others, selected.is_empty()),
    };
    Explanation {
        note: note(service, selected.is_empty(), inputs.only_slices),
        selected: selected.iter().map(|pod| explainer.pod(pod)).collect(),
        near,
    }
}

fn note(service: &NamedService<'_>, none: bool, only_slices: bool) -> String {
    let selector = &service.service.selector;
    if selector.is_empty() {
        return "no selector: its endpoints come from EndpointSlices".into();
    }
    match (none, only_slices) {
        (false, _) => String::new(),
        (true, true) => {
            "no pod of this node: its endpoints are those of the cluster's EndpointSlices".into()
        }
        (true, false) => format!(
            "no pod of namespace {} has the labels {}",
            service.namespace,
            text(selector)
        ),
    }
}

fn text(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}

/// Facts about a service that are needed for each of its pods.
struct Explainer<'a> {
    service: &'a NamedService<'a>,
    families: Vec<IpFamily>,
    endpoints: Vec<PodEndpoint>,
    choices: Vec<Choice>,
    only_slices: bool,
}

impl<'a> Explainer<'a> {
    fn new(service: &'a NamedService<'a>, inputs: &Inputs<'_>) -> Self {
        let of = Lookup::new(inputs).endpoints(service);
        let of_ports = of.of_ports(service.service);
        Self {
            service,
            choices: of_ports.iter().map(|c| Choice::of(c)).collect(),
            endpoints: match inputs.only_slices {
                true => of.pods_of_slices(),
                false => of.pods,
            },
            families: of.families,
            only_slices: inputs.only_slices,
        }
    }

    fn pod(&self, pod: &PodFacts) -> PodTraffic {
        let gets_traffic = !self.service.lacks_address() && self.is_used(pod);
        PodTraffic {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            gets_traffic,
            why: match never(pod) {
                Some(never) => vec![never],
                None => self.why(pod, gets_traffic),
            },
        }
    }

    /// Tells whether the service sends some clients to the pod. A headless service has no data path. For such a
    /// service, tells whether the pod is ready, because DNS names lead to ready pods.
    fn is_used(&self, pod: &PodFacts) -> bool {
        let mut own = self.own(pod);
        if self.service.service.is_headless() {
            return own.any(|e| e.endpoint.conditions.ready);
        }
        own.any(|endpoint| {
            let ports = self.service.service.ports.iter().zip(&self.choices);
            let uses = |(port, choice): (&ServicePort, &Choice)| {
                of_pod(port, endpoint).is_some_and(|c| choice.uses(&c.backend))
            };
            ports.into_iter().any(uses)
        })
    }

    /// Returns the endpoints that are this pod.
    fn own(&self, pod: &PodFacts) -> impl Iterator<Item = &PodEndpoint> {
        self.endpoints.iter().filter(|e| {
            let target = e.endpoint.target.as_ref();
            target.is_some_and(|(ns, name)| *ns == pod.namespace && *name == pod.name)
        })
    }

    fn why(&self, pod: &PodFacts, gets_traffic: bool) -> Vec<String> {
        if self.service.lacks_address() {
            return vec!["the service has no address".into()];
        }
        let missing = self.families.iter();
        let missing = missing.filter(|f| pod.addresses_of(**f).next().is_none());
        let mut why: Vec<String> = missing
            .map(|family| format!("no address of family {family}"))
            .collect();
        let ports = self.service.service.ports.iter();
        why.extend(ports.filter_map(|port| no_port(port, pod)));
        why.extend(self.condition(pod, gets_traffic));
        if self.only_slices && self.own(pod).next().is_none() {
            why.push("no EndpointSlice of the cluster names it".to_owned());
        }
        why
    }

    fn condition(&self, pod: &PodFacts, gets_traffic: bool) -> Option<String> {
        let condition = match (pod.serving, pod.terminating) {
            (true, false) => return None,
            (true, true) => "terminating".to_owned(),
            (false, false) => format!("not ready: {}", pod.not_serving),
            (false, true) => format!("terminating, and not ready: {}", pod.not_serving),
        };
        let published = self.service.service.publish_not_ready_addresses;
        Some(match (gets_traffic, published) {
            (false, _) => condition,
            (true, true) => {
                format!("{condition}; gets traffic because of publishNotReadyAddresses")
            }
            (true, false) => format!("{condition}; gets traffic because no endpoint is ready"),
        })
    }
}

/// Returns the reason for which the pod cannot be an endpoint of any service, or `None` if the pod can be an endpoint.
fn never(pod: &PodFacts) -> Option<String> {
    if pod.phase.is_terminal() {
        return Some(format!("phase {}", pod.phase));
    }
    let none = pod.addresses.is_empty();
    none.then(|| "no address yet".to_owned())
}

fn no_port(port: &ServicePort, pod: &PodFacts) -> Option<String> {
    let TargetPort::Name(name) = &port.target_port else {
        return None;
    };
    if target_port(port, pod).is_some() {
        return None;
    }
    let protocol = port.protocol;
    let same_name = pod.ports.iter().find(|p| p.name == *name);
    let names = || pod.ports.iter().filter(|p| p.protocol == protocol);
    let hint = match same_name {
        Some(other) => format!("; the one of that name is {}", other.protocol),
        None => nearest(name, names().map(|p| &*p.name))
            .map_or_else(String::new, |near| format!("; did you mean \"{near}\"?")),
    };
    Some(format!("no port named \"{name}\" for {protocol}{hint}"))
}

/// Returns the pods that the selector nearly matches, best match first. A pod with a typing error in its labels is always
/// listed. A pod with only some of the labels is listed if the selector matches no pod.
fn near<'a>(
    service: &NamedService<'_>,
    others: impl Iterator<Item = &'a PodFacts>,
    none_selected: bool,
) -> Vec<PodTraffic> {
    let mut found: Vec<(usize, &PodFacts, Vec<String>)> = others
        .filter_map(|pod| {
            let misses = misses(service, pod);
            let counts = misses.is_slip || none_selected && misses.some_match;
            let weight = misses.why.len() + usize::from(!misses.is_slip);
            counts.then_some((weight, pod, misses.why))
        })
        .collect();
    found.sort_by_key(|(weight, pod, _)| (*weight, &pod.namespace, &pod.name));
    let found = found.into_iter().take(MOST_NEAR);
    let near = found.map(|(_, pod, why)| PodTraffic {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        gets_traffic: false,
        why,
    });
    near.collect()
}

/// The reasons for which a selector does not match a pod.
struct Misses {
    why: Vec<String>,
    /// True if each reason looks like a typing error.
    is_slip: bool,
    /// True if at least one label of the selector matches.
    some_match: bool,
}

fn misses(service: &NamedService<'_>, pod: &PodFacts) -> Misses {
    let selector = &service.service.selector;
    if pod.namespace != service.namespace {
        return elsewhere(service, pod);
    }
    let mut misses = Misses {
        why: Vec::new(),
        is_slip: !selector.is_empty(),
        some_match: false,
    };
    for (key, value) in selector {
        let (why, is_slip) = match pod.labels.get(key) {
            Some(own) if own == value => {
                misses.some_match = true;
                continue;
            }
            Some(own) => wrong_value(key, value, own),
            None => no_label(key, value, pod),
        };
        misses.why.push(why);
        misses.is_slip &= is_slip;
    }
    misses
}

fn wrong_value(key: &str, value: &str, own: &str) -> (String, bool) {
    let why = format!("its label {key} is \"{own}\", the selector wants \"{value}\"");
    (why, nearest(value, [own]).is_some())
}

fn no_label(key: &str, value: &str, pod: &PodFacts) -> (String, bool) {
    let same_value = pod.labels.iter().filter(|(_, v)| *v == value);
    match nearest(key, same_value.map(|(k, _)| &**k)) {
        Some(own) => {
            let why = format!("it has the label {own}={value}, the selector wants {key}={value}");
            (why, true)
        }
        None => (format!("no label {key}={value}"), false),
    }
}

/// Returns the reason for a pod in another namespace. Such a pod nearly matches if it has all labels of the selector and no
/// pod is selected.
fn elsewhere(service: &NamedService<'_>, pod: &PodFacts) -> Misses {
    let why = format!(
        "it is in namespace {}; a service selects pods of its own, {}",
        pod.namespace, service.namespace
    );
    Misses {
        why: vec![why],
        is_slip: false,
        some_match: selects(service.service, &pod.labels),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
