//! The services and endpoint slices of a cluster, and the ranges of service addresses, from what their watches say.
//!
//! Invariants: pure. An object whose content has not changed is not decoded again, and is no change: the control plane writes
//! into objects what no proxy reads, such as the time of the last change.

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
    /// All collections.
    const ALL: [Self; 3] = [Self::Services, Self::Slices, Self::ServiceCidrs];
    /// The collections without which no service is served.
    pub(super) const NEEDED: [Self; 2] = [Self::Services, Self::Slices];

    fn kind(self) -> &'static str {
        match self {
            Self::Services => "Service",
            Self::Slices => "EndpointSlice",
            Self::ServiceCidrs => "ServiceCIDR",
        }
    }
}

/// The objects as texts, for the disk.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Texts {
    objects: Vec<String>,
}

/// The place of an object: its collection, its namespace (empty without one) and its name.
type Place = (Collection, String, String);

/// An object, as far as a proxy reads it.
struct Known {
    place: Place,
    text: String,
    content: Content,
}

enum Content {
    Service(Arc<Service>),
    Slice(Arc<EndpointSlice>),
    Ranges(Vec<Cidr>),
    /// The text cannot be decoded.
    Unknown,
}

/// All objects, sorted by place. Lists and lookups of thousands of objects take the least code and memory in this form.
#[derive(Default)]
pub(super) struct Collected(Vec<Known>);

impl Collected {
    /// Takes what an earlier daemon has kept.
    pub(super) fn restored(texts: &Texts) -> Self {
        let mut collected = Self::default();
        for text in &texts.objects {
            let Ok(object) = json::from_slice::<Value>(text.as_bytes()) else {
                continue;
            };
            let mut all = Collection::ALL.into_iter();
            if let Some(of) = all.find(|of| object["kind"] == of.kind()) {
                collected.put(of, object);
            }
        }
        collected
    }

    /// Takes a change. Returns true if it makes a difference to a proxy.
    pub(super) fn observe(&mut self, collection: Collection, change: Change) -> bool {
        match change {
            Change::Added(object) | Change::Modified(object) => self.put(collection, object),
            Change::Deleted(object) => {
                let at = self.find(&place_of(collection, &object));
                at.map(|at| self.0.remove(at)).is_ok()
            }
            Change::Replaced(objects) => {
                let places = objects.iter().map(|object| place_of(collection, object));
                let mut places: Vec<Place> = places.collect();
                places.sort_unstable();
                let before = self.0.len();
                self.0.retain(|known| {
                    known.place.0 != collection || places.binary_search(&known.place).is_ok()
                });
                let mut has_changed = self.0.len() != before;
                for object in objects {
                    has_changed |= self.put(collection, object);
                }
                has_changed
            }
        }
    }

    fn find(&self, place: &Place) -> Result<usize, usize> {
        self.0.binary_search_by(|known| known.place.cmp(place))
    }

    fn put(&mut self, collection: Collection, object: Value) -> bool {
        let place = place_of(collection, &object);
        let object = part_that_is_read(collection, object);
        let text = object.to_string();
        let at = self.find(&place);
        if at.is_ok_and(|at| self.0[at].text == text) {
            return false;
        }
        let known = Known {
            content: content(collection, object),
            place,
            text,
        };
        match at {
            Ok(at) => self.0[at] = known,
            Err(at) => self.0.insert(at, known),
        }
        true
    }

    /// Returns the objects for the thread `proxy`.
    pub(super) fn objects(&self, authority: Authority) -> ServiceObjects {
        let mut objects = ServiceObjects {
            authority,
            ..ServiceObjects::default()
        };
        for known in &self.0 {
            let (_, namespace, name) = &known.place;
            let key = |kind| ObjectKey::new(kind, namespace, name);
            match &known.content {
                Content::Service(service) => {
                    let key = key(ObjectKind::Service);
                    objects.services.push((key, service.clone()));
                }
                Content::Slice(slice) => {
                    let key = key(ObjectKind::EndpointSlice);
                    objects.slices.push((key, slice.clone()));
                }
                Content::Ranges(ranges) => objects.service_cidrs.extend(ranges),
                Content::Unknown => {}
            }
        }
        objects.service_cidrs.sort_unstable();
        objects.service_cidrs.dedup();
        objects
    }

    /// Returns the objects as texts.
    pub(super) fn texts(&self) -> Texts {
        Texts {
            objects: self.0.iter().map(|known| known.text.clone()).collect(),
        }
    }
}

fn place_of(collection: Collection, object: &Value) -> Place {
    let text = |field: &str| {
        let text = object["metadata"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    (collection, text("namespace"), text("name"))
}

fn content(collection: Collection, object: Value) -> Content {
    let kind = match collection {
        Collection::Services => ObjectKind::Service,
        Collection::Slices => ObjectKind::EndpointSlice,
        Collection::ServiceCidrs => {
            let texts = object["spec"]["cidrs"].as_array().into_iter().flatten();
            let ranges = texts.filter_map(|text| Cidr::of_text(text.as_str()?));
            return Content::Ranges(ranges.collect());
        }
    };
    let created = object["metadata"]["creationTimestamp"].clone();
    match decode::api_object(kind, object).map(|object| object.content) {
        Ok(ObjectContent::Service(mut service)) => {
            Arc::make_mut(&mut service).created = serde_json::from_value(created).ok();
            Content::Service(service)
        }
        Ok(ObjectContent::EndpointSlice(slice)) => Content::Slice(slice),
        Ok(_) => Content::Unknown,
        Err(e) => {
            log::warn!(
                "an object of the API server is not served: {}",
                e.one_line()
            );
            Content::Unknown
        }
    }
}

/// Returns the part of an object that a proxy reads. A cluster may have thousands of these objects, and their texts stay in
/// memory.
fn part_that_is_read(collection: Collection, mut object: Value) -> Value {
    let (fields, of_metadata): (&[&str], &[&str]) = match collection {
        Collection::Services => (
            &["spec", "status"],
            &[
                "name",
                "namespace",
                "labels",
                "annotations",
                "creationTimestamp",
            ],
        ),
        Collection::Slices => (
            &["addressType", "endpoints", "ports"],
            &["name", "namespace", "labels"],
        ),
        Collection::ServiceCidrs => (&["spec"], &["name"]),
    };
    let mut metadata = part(&mut object["metadata"], of_metadata);
    let annotations = metadata.get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        if let Some(endpoint) = endpoint.as_object_mut() {
            endpoint
                .retain(|field, _| !["hints", "zone", "deprecatedTopology"].contains(&&**field));
        }
    }
    let mut read = part(&mut object, fields);
    read.insert("kind".to_owned(), collection.kind().into());
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
