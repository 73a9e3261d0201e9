//! The objects beside pods: what they refer to (ConfigMap, Secret, PersistentVolumeClaim), and what leads clients to them
//! (Service, EndpointSlice, Endpoints).
//!
//! Invariants: an object that [`super::decode`] returns is valid. No text of a Secret is ever in a
//! message, a log line or a debug output.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::service::{EndpointSlice, Service};

/// A kind of object beside Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// Texts and bytes by key.
    ConfigMap,
    /// The same, kept in memory only where containers see it.
    Secret,
    /// A directory that outlives its pods.
    PersistentVolumeClaim,
    /// An address and a name for pods.
    Service,
    /// Where connections to a service go.
    EndpointSlice,
    /// The older form of it.
    Endpoints,
}

impl ObjectKind {
    /// The kinds that pods refer to.
    pub const OF_PODS: [Self; 3] = [Self::ConfigMap, Self::Secret, Self::PersistentVolumeClaim];
    /// The kinds that services are made of.
    pub const OF_SERVICES: [Self; 3] = [Self::Service, Self::EndpointSlice, Self::Endpoints];

    /// As in `kind`.
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

    /// As the API's errors name it, in lower case.
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

    /// As in `apiVersion`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::EndpointSlice => "discovery.k8s.io/v1",
            _ => "v1",
        }
    }
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
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
    /// `data`: UTF-8 texts.
    pub data: BTreeMap<String, String>,
    /// `binaryData`, decoded.
    pub binary_data: BTreeMap<String, Vec<u8>>,
    /// Whether its data may not change.
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
/// The same in docker's older form.
pub const DOCKERCFG: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// A Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    /// `type`; `Opaque` when it is left out.
    pub type_: String,
    /// `data`, decoded, with `stringData` over it.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Whether its data may not change.
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

/// What is in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectContent {
    /// A ConfigMap.
    ConfigMap(Arc<ConfigMap>),
    /// A Secret.
    Secret(Arc<Secret>),
    /// A PersistentVolumeClaim. Its directory is made for whatever it asks.
    PersistentVolumeClaim,
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
    /// Its name.
    pub key: ObjectKey,
    /// What is in it.
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

    /// Whether there is a PersistentVolumeClaim of that name.
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
    /// Whether `new` may take the place of this object. An immutable object keeps its data and
    /// stays immutable.
    ///
    /// # Errors
    /// The field that may not change.
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
