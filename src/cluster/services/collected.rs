//! The services and endpoint slices of a cluster, from what their watches say.
//!
//! Invariants: pure. An object whose content has not changed is not decoded again, and is no change: the control plane writes
//! into objects what no proxy reads, such as the time of the last change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::decode;
use crate::api::objects::{ObjectContent, ObjectKey, ObjectKind};
use crate::api::service::{Cidr, EndpointSlice, Service};
use crate::base::json;
use crate::cluster::reflector::Change;
use crate::net::services::inputs::{Authority, ServiceObjects};

/// A collection of the API server that a service proxy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Collection {
    /// All services.
    Services,
    /// All endpoint slices.
    Slices,
    /// The ranges of service addresses.
    ServiceCidrs,
}

impl Collection {
    /// The collections without which no service is served.
    pub(super) const NEEDED: [Self; 2] = [Self::Services, Self::Slices];
}

/// The objects as texts, for the disk.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Texts {
    services: Vec<Arc<str>>,
    slices: Vec<Arc<str>>,
    /// The ranges by the names of their objects.
    service_cidrs: BTreeMap<String, Vec<Cidr>>,
}

/// An object, with the part of its text that a proxy reads.
struct Known<T> {
    text: Arc<str>,
    /// None if the text cannot be decoded.
    content: Option<Arc<T>>,
}

/// The place of an object in its collection: namespace and name.
type Place = (String, String);

/// All services, endpoint slices and ranges of service addresses.
#[derive(Default)]
pub(super) struct Collected {
    services: BTreeMap<Place, Known<Service>>,
    slices: BTreeMap<Place, Known<EndpointSlice>>,
    service_cidrs: BTreeMap<Place, Vec<Cidr>>,
}

impl Collected {
    /// Takes what an earlier daemon has kept.
    pub(super) fn restored(texts: &Texts) -> Self {
        let mut collected = Self::default();
        let objects = |texts: &[Arc<str>]| -> Vec<Value> {
            let texts = texts.iter();
            texts
                .filter_map(|text| json::from_slice(text.as_bytes()).ok())
                .collect()
        };
        collected.observe(
            Collection::Services,
            Change::Replaced(objects(&texts.services)),
        );
        collected.observe(Collection::Slices, Change::Replaced(objects(&texts.slices)));
        let ranges = texts.service_cidrs.iter();
        let placed = ranges.map(|(name, ranges)| ((String::new(), name.clone()), ranges.clone()));
        collected.service_cidrs = placed.collect();
        collected
    }

    /// Takes a change. Returns true if it makes a difference to a proxy.
    pub(super) fn observe(&mut self, collection: Collection, change: Change) -> bool {
        match collection {
            Collection::Services => apply(&mut self.services, change, service),
            Collection::Slices => apply(&mut self.slices, change, slice),
            Collection::ServiceCidrs => apply(&mut self.service_cidrs, change, ranges),
        }
    }

    /// Returns the objects for the thread `proxy`.
    pub(super) fn objects(&self, authority: Authority) -> ServiceObjects {
        ServiceObjects {
            authority,
            service_cidrs: self.ranges(),
            services: keyed(ObjectKind::Service, &self.services),
            slices: keyed(ObjectKind::EndpointSlice, &self.slices),
        }
    }

    /// Returns the objects as texts.
    pub(super) fn texts(&self) -> Texts {
        Texts {
            services: self.services.values().map(|k| k.text.clone()).collect(),
            slices: self.slices.values().map(|k| k.text.clone()).collect(),
            service_cidrs: {
                let all = self.service_cidrs.iter();
                all.map(|((_, name), ranges)| (name.clone(), ranges.clone()))
                    .collect()
            },
        }
    }

    /// Returns the ranges of service addresses, each once.
    fn ranges(&self) -> Vec<Cidr> {
        let ranges = self.service_cidrs.values().flatten().copied();
        let ranges: BTreeSet<Cidr> = ranges.collect();
        ranges.into_iter().collect()
    }
}

/// Makes a change in a collection. `read` reads an object, beside what is known of it; it returns None if that is the same.
/// Returns true if something has changed.
fn apply<T>(
    collection: &mut BTreeMap<Place, T>,
    change: Change,
    read: impl Fn(Option<&T>, Value) -> Option<T>,
) -> bool {
    let put = |collection: &mut BTreeMap<Place, T>, object: Value| {
        let place = place_of(&object);
        let new = read(collection.get(&place), object);
        new.map(|new| collection.insert(place, new)).is_some()
    };
    match change {
        Change::Added(object) | Change::Modified(object) => put(collection, object),
        Change::Deleted(object) => collection.remove(&place_of(&object)).is_some(),
        Change::Replaced(objects) => {
            let there: BTreeSet<Place> = objects.iter().map(place_of).collect();
            let before = collection.len();
            collection.retain(|place, _| there.contains(place));
            let mut has_changed = collection.len() != before;
            for object in objects {
                has_changed |= put(collection, object);
            }
            has_changed
        }
    }
}

fn place_of(object: &Value) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace").to_owned(), text("name").to_owned())
}

/// Returns the objects of a collection that could be decoded, with their keys.
fn keyed<T>(kind: ObjectKind, all: &BTreeMap<Place, Known<T>>) -> Vec<(ObjectKey, Arc<T>)> {
    let decoded = all.iter().filter_map(|((namespace, name), known)| {
        let key = ObjectKey::new(kind, namespace, name);
        Some((key, known.content.clone()?))
    });
    decoded.collect()
}

fn ranges(known: Option<&Vec<Cidr>>, object: Value) -> Option<Vec<Cidr>> {
    let texts = object["spec"]["cidrs"].as_array().into_iter().flatten();
    let ranges = texts.filter_map(|text| Cidr::of_text(text.as_str()?));
    let ranges: Vec<Cidr> = ranges.collect();
    (known != Some(&ranges)).then_some(ranges)
}

fn service(known: Option<&Known<Service>>, object: Value) -> Option<Known<Service>> {
    let of_metadata = [
        "name",
        "namespace",
        "labels",
        "annotations",
        "creationTimestamp",
    ];
    let object = part_that_is_read(object, &["spec", "status"], &of_metadata);
    let created = object["metadata"]["creationTimestamp"].clone();
    read(known, ObjectKind::Service, object, |content| {
        let ObjectContent::Service(mut service) = content else {
            return None;
        };
        Arc::make_mut(&mut service).created = serde_json::from_value(created).ok();
        Some(service)
    })
}

fn slice(known: Option<&Known<EndpointSlice>>, object: Value) -> Option<Known<EndpointSlice>> {
    let fields = ["addressType", "endpoints", "ports"];
    let mut object = part_that_is_read(object, &fields, &["name", "namespace", "labels"]);
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        if let Some(endpoint) = endpoint.as_object_mut() {
            endpoint
                .retain(|field, _| !["hints", "zone", "deprecatedTopology"].contains(&&**field));
        }
    }
    read(
        known,
        ObjectKind::EndpointSlice,
        object,
        |content| match content {
            ObjectContent::EndpointSlice(slice) => Some(slice),
            _ => None,
        },
    )
}

/// Decodes an object; None if it is as it was.
fn read<T>(
    known: Option<&Known<T>>,
    kind: ObjectKind,
    object: Value,
    of: impl FnOnce(ObjectContent) -> Option<Arc<T>>,
) -> Option<Known<T>> {
    let text: Arc<str> = object.to_string().into();
    if known.is_some_and(|known| known.text == text) {
        return None;
    }
    let content = match decode::api_object(kind, object) {
        Ok(object) => of(object.content),
        Err(e) => {
            log::warn!(
                "an object of the API server is not served: {}",
                e.one_line()
            );
            None
        }
    };
    Some(Known { text, content })
}

/// Returns the part of an object that a proxy reads. A cluster may have thousands of these objects, and their texts stay in
/// memory.
fn part_that_is_read(mut object: Value, fields: &[&str], of_metadata: &[&str]) -> Value {
    let mut metadata = part(&mut object["metadata"], of_metadata);
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    let mut read = part(&mut object, fields);
    read.insert("metadata".to_owned(), metadata.into());
    read.into()
}

/// Takes fields out of an object.
fn part(object: &mut Value, fields: &[&str]) -> Map<String, Value> {
    let object = object.as_object_mut();
    let mut object = object.map(std::mem::take).unwrap_or_default();
    object.retain(|field, _| fields.contains(&field.as_str()));
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, node_port: u16) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-11-27T08:00:00Z", "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"type": "NodePort", "clusterIP": "10.43.0.9", "clusterIPs": ["10.43.0.9"], "selector": {"app": "web"},
                "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": node_port},
                    {"name": "signals", "protocol": "SCTP", "port": 81, "targetPort": 81}]}})
    }

    fn slice(name: &str, address: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version,
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": version},
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "zone": version, "nodeName": "a"}]})
    }

    fn names(collected: &Collected) -> Vec<String> {
        let objects = collected.objects(Authority::ControlPlane);
        let services = objects.services.iter().map(|(key, _)| key.name.clone());
        let slices = objects.slices.iter().map(|(key, _)| key.name.clone());
        services.chain(slices).collect()
    }

    #[test]
    fn a_service_has_what_the_control_plane_gave_it() {
        let mut collected = Collected::default();
        // The control plane may have another range of node ports.
        let list = Change::Replaced(vec![service("web", 10_080)]);
        assert!(collected.observe(Collection::Services, list));
        let objects = collected.objects(Authority::ControlPlane);
        let service = &objects.services[0].1;
        let address: std::net::IpAddr = [10, 43, 0, 9].into();
        assert_eq!(service.cluster_ips.given(), [address]);
        let ports: Vec<_> = service
            .ports
            .iter()
            .map(|p| (p.port, p.node_port))
            .collect();
        assert_eq!(ports, [(80, Some(10_080))], "SCTP is served by nobody here");
        let created = service.created.unwrap().to_string();
        assert_eq!(created, "2026-11-27T08:00:00Z");
    }

    #[test]
    fn a_list_says_all_of_its_collection_and_nothing_of_the_other() {
        let mut collected = Collected::default();
        let services = vec![service("a", 30_000), service("b", 30_001)];
        collected.observe(Collection::Services, Change::Replaced(services));
        let slices = vec![slice("x", "10.0.0.1", "1")];
        collected.observe(Collection::Slices, Change::Replaced(slices));
        assert_eq!(names(&collected), ["a", "b", "x"]);
        let fewer = Change::Replaced(vec![service("b", 30_001)]);
        assert!(collected.observe(Collection::Services, fewer));
        assert_eq!(names(&collected), ["b", "x"]);
        let gone = slice("x", "10.0.0.1", "2");
        assert!(collected.observe(Collection::Slices, Change::Deleted(gone)));
        assert_eq!(names(&collected), ["b"]);
    }

    #[test]
    fn ranges_of_service_addresses_are_said_once() {
        let range = |name: &str, cidrs: &[&str]| json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}});
        let mut collected = Collected::default();
        let all = vec![
            range("kubernetes", &["10.43.0.0/16", "fd00:43::/112"]),
            range("more", &["10.44.0.0/16", "10.43.0.0/16"]),
        ];
        assert!(collected.observe(Collection::ServiceCidrs, Change::Replaced(all)));
        let texts = |collected: &Collected| {
            let ranges = collected.objects(Authority::ControlPlane).service_cidrs;
            ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(&collected),
            ["10.43.0.0/16", "10.44.0.0/16", "fd00:43::/112"]
        );
        let mut again = Collected::restored(&collected.texts());
        assert_eq!(texts(&again), texts(&collected));
        let same = Change::Modified(range("more", &["10.44.0.0/16", "10.43.0.0/16"]));
        assert!(!again.observe(Collection::ServiceCidrs, same));
        let fewer = vec![range("kubernetes", &["10.43.0.0/16"])];
        again.observe(Collection::ServiceCidrs, Change::Replaced(fewer));
        assert_eq!(texts(&again), ["10.43.0.0/16"]);
    }

    #[test]
    fn what_no_proxy_reads_is_no_change() {
        let mut collected = Collected::default();
        let put = |collected: &mut Collected, address, version| {
            let change = Change::Modified(slice("x", address, version));
            collected.observe(Collection::Slices, change)
        };
        assert!(put(&mut collected, "10.0.0.1", "1"));
        assert!(!put(&mut collected, "10.0.0.1", "2"));
        assert!(put(&mut collected, "10.0.0.2", "3"));
    }

    #[test]
    fn what_was_kept_is_there_again_and_is_no_change() {
        let mut collected = Collected::default();
        let services = || Change::Replaced(vec![service("a", 30_000)]);
        let slices = || Change::Replaced(vec![slice("x", "10.0.0.1", "1")]);
        collected.observe(Collection::Services, services());
        collected.observe(Collection::Slices, slices());
        let text = serde_json::to_string(&collected.texts()).unwrap();
        assert!(
            !text.contains("managedFields") && !text.contains("last-applied"),
            "{text}"
        );
        let mut again = Collected::restored(&serde_json::from_str(&text).unwrap());
        let authority = Authority::ControlPlane;
        assert_eq!(again.objects(authority), collected.objects(authority));
        assert!(!again.observe(Collection::Services, services()));
        assert!(!again.observe(Collection::Slices, slices()));
    }
}
