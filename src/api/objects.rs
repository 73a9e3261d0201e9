//! The objects beside pods. Pods refer to ConfigMaps, Secrets and PersistentVolumeClaims. Services, EndpointSlices and
//! Endpoints lead clients to pods.
//!
//! Invariants: an object that [`super::decode`] returns is valid. The data of a Secret is never in a message, a log
//! line or a debug output. Only [`LocalObject::v1`] returns the data, for a client that asks for the object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::claimed_volume::{ClaimedVolume, NoVolume};
use super::service::{EndpointSlice, Service};
use super::service_account::{NoToken, Token, TokenKey};

/// A kind of object beside Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// Texts and bytes by key.
    ConfigMap,
    /// Texts and bytes by key. The files that containers see of a Secret are kept only in memory.
    Secret,
    /// A claim of a directory that outlives its pods.
    PersistentVolumeClaim,
    /// A name for a runtime, which only the API server of a cluster has.
    RuntimeClass,
    /// An address and a name that lead to pods.
    Service,
    /// A list of endpoints that connections to a service go to.
    EndpointSlice,
    /// The older form of an EndpointSlice.
    Endpoints,
}

impl ObjectKind {
    /// Kinds of objects in files that pods refer to.
    pub const OF_PODS: [Self; 3] = [Self::ConfigMap, Self::Secret, Self::PersistentVolumeClaim];
    /// Kinds of objects that a node of a cluster reads of the API server for its pods.
    pub const OF_API: [Self; 4] = [
        Self::ConfigMap,
        Self::Secret,
        Self::PersistentVolumeClaim,
        Self::RuntimeClass,
    ];
    /// Kinds of objects that services are made of.
    pub const OF_SERVICES: [Self; 3] = [Self::Service, Self::EndpointSlice, Self::Endpoints];

    /// Returns the value of the field `kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::RuntimeClass => "RuntimeClass",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
        }
    }

    /// Returns the word for this kind in the API's errors, in lower case.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::PersistentVolumeClaim => "persistentvolumeclaim",
            Self::RuntimeClass => "runtimeclass.node.k8s.io",
            Self::Service => "service",
            Self::EndpointSlice => "endpointslice",
            Self::Endpoints => "endpoints",
        }
    }

    /// Returns the `apiVersion` of objects of this kind.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::RuntimeClass => "node.k8s.io/v1",
            _ => "v1",
        }
    }
}

/// The reason why a pod cannot have an object that it refers to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoObject {
    /// The object is missing.
    #[error("{} {name:?} not found", .kind.resource())]
    NotFound {
        /// The kind of the object.
        kind: ObjectKind,
        /// The name of the object.
        name: String,
    },
    /// The object may be missing or not: the API server has not answered yet.
    #[error("failed to sync {} cache: the API server has not said yet whether {name:?} exists", .kind.resource())]
    NotKnown {
        /// The kind of the object.
        kind: ObjectKind,
        /// The name of the object.
        name: String,
    },
}

impl NoObject {
    /// True if the object is known to be missing, so that a reference to it that is optional counts as none.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound { .. })
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
    /// Returns the key of an object.
    pub fn new(kind: ObjectKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    /// Prints as `ConfigMap default/settings`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind.as_str(), self.name);
        }
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// A ConfigMap: texts and bytes by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Texts of `data`, in UTF-8.
    pub data: BTreeMap<String, String>,
    /// Bytes of `binaryData`, decoded.
    pub binary_data: BTreeMap<String, Vec<u8>>,
    /// `immutable`: true if the data of the ConfigMap may not change.
    pub immutable: bool,
}

impl ConfigMap {
    /// Iterates over the keys with the bytes of each, from both maps.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let texts = self.data.iter().map(|(k, v)| (k.as_str(), v.as_bytes()));
        let bytes = self.binary_data.iter();
        texts.chain(bytes.map(|(k, v)| (k.as_str(), v.as_slice())))
    }
}

/// Type of a Secret with docker's config.json, and the key that holds the file.
pub const DOCKER_CONFIG_JSON: (&str, &str) =
    ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
/// Type of a Secret with credentials in docker's older form, and the key that holds the credentials.
pub const DOCKERCFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// A Secret: bytes by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Type of the Secret. It is `Opaque` if the file gives no type.
    pub type_: String,
    /// Bytes of `data`, decoded, and texts of `stringData`. A text replaces the bytes of the same key.
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

/// A PersistentVolumeClaim. Podprobe makes a directory for each claim of a file, whatever the claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The volume of a claim of a cluster, or the reason why it has none; None for a claim of a file.
    pub volume: Option<Result<ClaimedVolume, NoVolume>>,
}

/// A RuntimeClass. Its namespace is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeClass {
    /// `handler`: the name of the runtime.
    pub handler: String,
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
    /// A RuntimeClass.
    RuntimeClass(Arc<RuntimeClass>),
    /// A Service.
    Service(Arc<Service>),
    /// An EndpointSlice.
    EndpointSlice(Arc<EndpointSlice>),
    /// Slices that mirror an Endpoints object.
    Endpoints(Vec<Arc<EndpointSlice>>),
}

/// An object with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalObject {
    /// Kind, namespace and name of the object.
    pub key: ObjectKey,
    /// Content of the object.
    pub content: ObjectContent,
}

/// Objects by key: those that a pod refers to and that exist, with the tokens of the pod's service account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSet {
    objects: BTreeMap<ObjectKey, ObjectContent>,
    /// The objects of which nothing is known yet.
    unknown: BTreeSet<ObjectKey>,
    tokens: BTreeMap<TokenKey, Result<Token, NoToken>>,
}

impl ObjectSet {
    /// Adds an object of which nothing is known yet.
    pub fn add_unknown(&mut self, key: ObjectKey) {
        self.unknown.insert(key);
    }

    /// Adds a token, or the reason why there is none.
    pub fn add_token(&mut self, key: TokenKey, token: Result<Token, NoToken>) {
        self.tokens.insert(key, token);
    }

    /// Returns the ConfigMap of that name.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn config_map(&self, namespace: &str, name: &str) -> Result<&ConfigMap, NoObject> {
        match self.get(ObjectKind::ConfigMap, namespace, name)? {
            ObjectContent::ConfigMap(map) => Ok(map),
            _ => Err(self.no_object(ObjectKind::ConfigMap, namespace, name)),
        }
    }

    /// Returns the Secret of that name.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn secret(&self, namespace: &str, name: &str) -> Result<&Secret, NoObject> {
        match self.get(ObjectKind::Secret, namespace, name)? {
            ObjectContent::Secret(secret) => Ok(secret),
            _ => Err(self.no_object(ObjectKind::Secret, namespace, name)),
        }
    }

    /// Returns the PersistentVolumeClaim of that name.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn claim(&self, namespace: &str, name: &str) -> Result<&PersistentVolumeClaim, NoObject> {
        match self.get(ObjectKind::PersistentVolumeClaim, namespace, name)? {
            ObjectContent::PersistentVolumeClaim(claim) => Ok(claim),
            _ => Err(self.no_object(ObjectKind::PersistentVolumeClaim, namespace, name)),
        }
    }

    /// Returns the RuntimeClass of that name.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn runtime_class(&self, name: &str) -> Result<&RuntimeClass, NoObject> {
        match self.get(ObjectKind::RuntimeClass, "", name)? {
            ObjectContent::RuntimeClass(class) => Ok(class),
            _ => Err(self.no_object(ObjectKind::RuntimeClass, "", name)),
        }
    }

    /// Returns a token of the pod's service account.
    ///
    /// # Errors
    /// Returns the reason why there is none.
    pub fn token(&self, key: &TokenKey) -> Result<Token, NoToken> {
        self.tokens
            .get(key)
            .cloned()
            .unwrap_or(Err(NoToken::NotKnown))
    }

    fn get(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<&ObjectContent, NoObject> {
        let found = self.objects.get(&ObjectKey::new(kind, namespace, name));
        found.ok_or_else(|| self.no_object(kind, namespace, name))
    }

    fn no_object(&self, kind: ObjectKind, namespace: &str, name: &str) -> NoObject {
        let is_unknown = self
            .unknown
            .contains(&ObjectKey::new(kind, namespace, name));
        let name = name.to_owned();
        match is_unknown {
            true => NoObject::NotKnown { kind, name },
            false => NoObject::NotFound { kind, name },
        }
    }
}

impl FromIterator<LocalObject> for ObjectSet {
    fn from_iter<I: IntoIterator<Item = LocalObject>>(objects: I) -> Self {
        let objects = objects.into_iter().map(|o| (o.key, o.content));
        Self {
            objects: objects.collect(),
            ..Self::default()
        }
    }
}

impl LocalObject {
    /// Returns the object as an API server would have it. Annotations and the requests of a claim are missing, because
    /// podprobe does not keep them. A Service, EndpointSlice or Endpoints object has only its name.
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
            ObjectContent::RuntimeClass(class) => object["handler"] = class.handler.as_str().into(),
            ObjectContent::Service(_)
            | ObjectContent::EndpointSlice(_)
            | ObjectContent::Endpoints(_) => {}
        }
        object
    }

    /// Checks that `new` may take the place of this object. An immutable object keeps its data and stays immutable.
    ///
    /// # Errors
    /// Returns the name of the field that may not change.
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
            ObjectContent::PersistentVolumeClaim(Arc::new(PersistentVolumeClaim {
                labels,
                volume: None,
            })),
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
