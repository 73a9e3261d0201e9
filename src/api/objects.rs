//! The objects beside pods: what they refer to (ConfigMap, Secret, PersistentVolumeClaim), and what leads clients to them
//! (Service, EndpointSlice, Endpoints).
//!
//! Invariants: an object that [`super::decode`] returns is valid. No text of a Secret is ever in a
//! message, a log line or a debug output; only [`LocalObject::v1`] gives it, to a client that asks for the object.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::service::{EndpointSlice, Service};

/// A kind of object beside Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// Texts and bytes by key.
    ConfigMap,
    /// Texts and bytes by key that are kept in memory only where containers see them.
    Secret,
    /// A directory that outlives its pods.
    PersistentVolumeClaim,
    /// An address and a name for pods.
    Service,
    /// The endpoints that connections to a service go to.
    EndpointSlice,
    /// The older form of an EndpointSlice.
    Endpoints,
}

impl ObjectKind {
    /// The kinds that pods refer to.
    pub const OF_PODS: [Self; 3] = [Self::ConfigMap, Self::Secret, Self::PersistentVolumeClaim];
    /// The kinds that services are made of.
    pub const OF_SERVICES: [Self; 3] = [Self::Service, Self::EndpointSlice, Self::Endpoints];

    /// Returns the word that `kind` has for objects of this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
        }
    }

    /// Returns the word that the API's errors have for this kind, in lower case.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::PersistentVolumeClaim => "persistentvolumeclaim",
            Self::Service => "service",
            Self::EndpointSlice => "endpointslice",
            Self::Endpoints => "endpoints",
        }
    }

    /// Returns the `apiVersion` of objects of this kind.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io/v1",
            _ => "v1",
        }
    }
}

/// The key of an object: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// The key of that object.
    pub fn new(kind: ObjectKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    /// `ConfigMap default/settings`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `data`: UTF-8 texts.
    pub data: BTreeMap<String, String>,
    /// `binaryData`, decoded.
    pub binary_data: BTreeMap<String, Vec<u8>>,
    /// `immutable`: true if the data of the ConfigMap may not change.
    pub immutable: bool,
}

impl ConfigMap {
    /// The bytes of each key.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let texts = self.data.iter().map(|(k, v)| (k.as_str(), v.as_bytes()));
        let bytes = self.binary_data.iter();
        texts.chain(bytes.map(|(k, v)| (k.as_str(), v.as_slice())))
    }
}

/// The type of a Secret with docker's config.json, and the key that holds it.
pub const DOCKER_CONFIG_JSON: (&str, &str) =
    ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
/// The type of a Secret with credentials in docker's older form, and the key that holds them.
pub const DOCKERCFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// A Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `type`; `Opaque` when it is left out.
    pub type_: String,
    /// `data`, decoded, with `stringData` over it.
    pub data: BTreeMap<String, Vec<u8>>,
    /// `immutable`: true if the data of the Secret may not change.
    pub immutable: bool,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.data.keys().collect();
        f.debug_struct("Secret")
            .field("type", &self.type_)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

/// A PersistentVolumeClaim. Its directory is made for whatever it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
}

/// The content of an object, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectContent {
    /// A ConfigMap.
    ConfigMap(Arc<ConfigMap>),
    /// A Secret.
    Secret(Arc<Secret>),
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    /// A Service.
    Service(Arc<Service>),
    /// An EndpointSlice.
    EndpointSlice(Arc<EndpointSlice>),
    /// The slices that mirror an Endpoints object.
    Endpoints(Vec<Arc<EndpointSlice>>),
}

/// An object with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalObject {
    /// Kind, namespace and name of the object.
    pub key: ObjectKey,
    /// Content of the object.
    pub content: ObjectContent,
}

/// Objects by name: what a pod refers to and is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet(BTreeMap<ObjectKey, ObjectContent>);

impl ObjectSet {
    /// The ConfigMap of that name.
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        match self.get(ObjectKind::ConfigMap, namespace, name)? {
            ObjectContent::ConfigMap(map) => Some(map),
            _ => None,
        }
    }

    /// The Secret of that name.
    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        match self.get(ObjectKind::Secret, namespace, name)? {
            ObjectContent::Secret(secret) => Some(secret),
            _ => None,
        }
    }

    /// True if the set has a PersistentVolumeClaim of that name.
    pub fn has_claim(&self, namespace: &str, name: &str) -> bool {
        self.get(ObjectKind::PersistentVolumeClaim, namespace, name)
            .is_some()
    }

    fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&ObjectContent> {
        self.0.get(&ObjectKey::new(kind, namespace, name))
    }
}

impl FromIterator<LocalObject> for ObjectSet {
    fn from_iter<I: IntoIterator<Item = LocalObject>>(objects: I) -> Self {
        Self(objects.into_iter().map(|o| (o.key, o.content)).collect())
    }
}

impl LocalObject {
    /// The object as an API server has it, as far as it is known: annotations and what a claim asks for are not kept.
    /// Of the kinds that pods refer to; of the others it has no more than its name.
    pub fn v1(&self) -> Value {
        let ObjectKey {
            kind,
            namespace,
            name,
        } = &self.key;
        let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": name, "namespace": namespace}});
        match &self.content {
            ObjectContent::ConfigMap(map) => {
                put(&mut object["metadata"], "labels", texts(&map.labels));
                put(&mut object, "data", texts(&map.data));
                put(&mut object, "binaryData", encoded(&map.binary_data));
                immutable(&mut object, map.immutable);
            }
            ObjectContent::Secret(secret) => {
                put(&mut object["metadata"], "labels", texts(&secret.labels));
                object["type"] = secret.type_.as_str().into();
                put(&mut object, "data", encoded(&secret.data));
                immutable(&mut object, secret.immutable);
            }
            ObjectContent::PersistentVolumeClaim(claim) => {
                put(&mut object["metadata"], "labels", texts(&claim.labels));
                object["status"] = json!({"phase": "Bound"});
            }
            ObjectContent::Service(_)
            | ObjectContent::EndpointSlice(_)
            | ObjectContent::Endpoints(_) => {}
        }
        object
    }

    /// Checks that `new` may take the place of this object. An immutable object keeps its data and stays immutable.
    ///
    /// # Errors
    /// Returns the field that may not change.
    pub fn may_become(&self, new: &Self) -> Result<(), &'static str> {
        let (is_immutable, stays, same) = match (&self.content, &new.content) {
            (ObjectContent::ConfigMap(old), ObjectContent::ConfigMap(new)) => (
                old.immutable,
                new.immutable,
                old.data == new.data && old.binary_data == new.binary_data,
            ),
            (ObjectContent::Secret(old), ObjectContent::Secret(new)) => {
                (old.immutable, new.immutable, old.data == new.data)
            }
            _ => return Ok(()),
        };
        match (is_immutable, stays, same) {
            (true, false, _) => Err("immutable"),
            (true, true, false) => Err("data"),
            _ => Ok(()),
        }
    }
}

fn texts(map: &BTreeMap<String, String>) -> Map<String, Value> {
    let entries = map.iter();
    entries
        .map(|(k, v)| (k.clone(), v.as_str().into()))
        .collect()
}

fn encoded(data: &BTreeMap<String, Vec<u8>>) -> Map<String, Value> {
    let entries = data.iter();
    entries
        .map(|(k, v)| (k.clone(), STANDARD.encode(v).into()))
        .collect()
}

fn put(object: &mut Value, field: &str, map: Map<String, Value>) {
    if !map.is_empty() {
        object[field] = map.into();
    }
}

fn immutable(object: &mut Value, is: bool) {
    if is {
        object["immutable"] = true.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ObjectKind, content: ObjectContent, expected: Value) {
        let key = ObjectKey::new(kind, "shop", "x");
        let mut object = LocalObject { key, content }.v1();
        let metadata = object.as_object_mut().and_then(|o| o.remove("metadata"));
        assert_eq!(metadata, Some(json!({"name": "x", "namespace": "shop"})));
        assert_eq!(object, expected);
    }

    #[test]
    fn objects_are_those_of_an_api_server() {
        let labels = BTreeMap::from([("tier".to_owned(), "front".to_owned())]);
        let map = ConfigMap {
            labels: BTreeMap::new(),
            data: [("a".to_owned(), "1".to_owned())].into(),
            binary_data: [("b".to_owned(), vec![0, 255])].into(),
            immutable: true,
        };
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "binaryData": {"b": "AP8="}, "immutable": true});
        check(
            ObjectKind::ConfigMap,
            ObjectContent::ConfigMap(Arc::new(map)),
            expected,
        );
        let secret = Secret {
            labels: BTreeMap::new(),
            type_: "Opaque".into(),
            data: [("k".to_owned(), b"hunter2".to_vec())].into(),
            immutable: false,
        };
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "aHVudGVyMg=="}});
        check(
            ObjectKind::Secret,
            ObjectContent::Secret(Arc::new(secret)),
            expected,
        );
        let expected = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Bound"}});
        check(
            ObjectKind::PersistentVolumeClaim,
            ObjectContent::PersistentVolumeClaim(Arc::default()),
            expected,
        );
        let with_labels = [
            ObjectContent::ConfigMap(Arc::new(ConfigMap {
                labels: labels.clone(),
                ..ConfigMap::default()
            })),
            ObjectContent::Secret(Arc::new(Secret {
                labels: labels.clone(),
                ..Secret::default()
            })),
            ObjectContent::PersistentVolumeClaim(Arc::new(PersistentVolumeClaim { labels })),
        ];
        for content in with_labels {
            let key = ObjectKey::new(ObjectKind::ConfigMap, "shop", "x");
            let object = LocalObject { key, content }.v1();
            assert_eq!(object["metadata"]["labels"], json!({"tier": "front"}));
        }
        let empty = ObjectContent::ConfigMap(Arc::default());
        check(
            ObjectKind::ConfigMap,
            empty,
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        );
    }
}
