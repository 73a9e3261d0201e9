//! The variables of a container, and the selectors of what their values come from.

use serde::{Deserialize, Serialize};

use crate::api::quantity::Quantity;

/// An environment variable with a literal value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Printable ASCII without `=`.
    pub name: String,
    /// May hold `$(VAR)`.
    pub value: String,
    /// Source of the value, if `value` does not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// `valueFrom` of a variable: exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVarSource {
    /// A field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// A limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// A key of a ConfigMap in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
    /// A key of a Secret in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
}

/// `fieldRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectFieldSelector {
    /// `v1`, which is the default.
    pub api_version: String,
    /// `metadata.name`, `metadata.labels['x']`, `status.podIP`, …
    pub field_path: String,
}

/// `resourceFieldRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldSelector {
    /// Name of the container. In a variable an empty name means the container itself; in a volume the name is required.
    pub container_name: String,
    /// `limits.cpu`, `requests.memory`, …
    pub resource: String,
    /// The unit of the value; 1 when it is missing or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
}

/// `configMapKeyRef` and `secretKeyRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeySelector {
    /// Name of the object.
    pub name: String,
    /// Key in the object's data.
    pub key: String,
    /// True if a missing object or key leaves the variable out.
    pub optional: Option<bool>,
}

/// An entry of `envFrom`: exactly one of the two references.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFromSource {
    /// Put before each key.
    pub prefix: String,
    /// Every key of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ObjectReference>,
    /// Every key of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectReference>,
}

/// `configMapRef` and `secretRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Name of the object.
    pub name: String,
    /// True if the object may be missing.
    pub optional: Option<bool>,
}
