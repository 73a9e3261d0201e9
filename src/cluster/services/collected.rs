//! The services and endpoint slices of a cluster, from what their watches say.
//!
//! Invariants: pure. An object whose content has not changed is not decoded again, and is no change: the control plane writes
//! into objects what no proxy reads, such as the time of the last change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::decode;
use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind};
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
}

impl Collection {
    /// Both collections.
    pub(super) const ALL: [Self; 2] = [Self::Services, Self::Slices];

    fn kind(self) -> ObjectKind {
        match self {
            Self::Services => ObjectKind::Service,
            Self::Slices => ObjectKind::EndpointSlice,
        }
    }
}

/// The objects as texts, for the disk.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Texts {
    services: Vec<Arc<str>>,
    slices: Vec<Arc<str>>,
}

/// An object, with the part of its text that a proxy reads.
struct Known {
    text: Arc<str>,
    /// None if the text cannot be decoded.
    content: Option<ObjectContent>,
}

/// All services and endpoint slices.
#[derive(Default)]
pub(super) struct Collected(BTreeMap<ObjectKey, Known>);

impl Collected {
    /// Takes what an earlier daemon has kept.
    pub(super) fn restored(texts: &Texts) -> Self {
        let mut collected = Self::default();
        let all = [
            (Collection::Services, &texts.services),
            (Collection::Slices, &texts.slices),
        ];
        for (collection, texts) in all {
            for text in texts {
                if let Ok(object) = json::from_slice(text.as_bytes()) {
                    collected.put(collection, object);
                }
            }
        }
        collected
    }

    /// Takes a change. Returns true if it makes a difference to a proxy.
    pub(super) fn observe(&mut self, collection: Collection, change: Change) -> bool {
        match change {
            Change::Added(object) | Change::Modified(object) => self.put(collection, object),
            Change::Deleted(object) => {
                let key = key_of(collection, &object);
                key.is_some_and(|key| self.0.remove(&key).is_some())
            }
            Change::Replaced(objects) => {
                let keys = objects.iter().filter_map(|o| key_of(collection, o));
                let there: BTreeSet<ObjectKey> = keys.collect();
                let before = self.0.len();
                let kind = collection.kind();
                self.0
                    .retain(|key, _| key.kind != kind || there.contains(key));
                let mut has_changed = self.0.len() != before;
                for object in objects {
                    has_changed |= self.put(collection, object);
                }
                has_changed
            }
        }
    }

    fn put(&mut self, collection: Collection, object: Value) -> bool {
        let Some(key) = key_of(collection, &object) else {
            return false;
        };
        let object = read_part(collection, object);
        let text: Arc<str> = object.to_string().into();
        if self.0.get(&key).is_some_and(|known| known.text == text) {
            return false;
        }
        let content = decoded(collection, object)
            .inspect_err(|e| log::warn!("{key} of the API server is not served: {}", e.one_line()));
        let known = Known {
            text,
            content: content.ok(),
        };
        self.0.insert(key, known);
        true
    }

    /// Returns the objects for the thread `proxy`.
    pub(super) fn objects(&self, authority: Authority) -> ServiceObjects {
        let mut objects = ServiceObjects {
            authority,
            ..ServiceObjects::default()
        };
        for (key, known) in &self.0 {
            match &known.content {
                Some(ObjectContent::Service(service)) => {
                    objects.services.push((key.clone(), service.clone()));
                }
                Some(ObjectContent::EndpointSlice(slice)) => {
                    objects.slices.push((key.clone(), slice.clone()));
                }
                _ => {}
            }
        }
        objects
    }

    /// Returns the objects as texts.
    pub(super) fn texts(&self) -> Texts {
        let of = |kind: ObjectKind| {
            let all = self.0.iter().filter(move |(key, _)| key.kind == kind);
            all.map(|(_, known)| known.text.clone()).collect()
        };
        Texts {
            services: of(ObjectKind::Service),
            slices: of(ObjectKind::EndpointSlice),
        }
    }
}

fn key_of(collection: Collection, object: &Value) -> Option<ObjectKey> {
    let text = |field: &str| object["metadata"][field].as_str();
    Some(ObjectKey::new(
        collection.kind(),
        text("namespace")?,
        text("name")?,
    ))
}

fn decoded(collection: Collection, object: Value) -> Result<ObjectContent, decode::DecodeError> {
    let created = object["metadata"]["creationTimestamp"].clone();
    let LocalObject { content, .. } = decode::api_object(collection.kind(), object)?;
    Ok(match content {
        ObjectContent::Service(mut service) => {
            Arc::make_mut(&mut service).created = serde_json::from_value(created).ok();
            ObjectContent::Service(service)
        }
        other => other,
    })
}

/// Returns the part of an object that a proxy reads. A cluster may have thousands of these objects, and their texts stay in
/// memory.
fn read_part(collection: Collection, mut object: Value) -> Value {
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
    };
    let mut metadata = part(&mut object["metadata"], of_metadata);
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
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
