//! The variables of a container, and the references that their values come from.

use serde::{Deserialize, Serialize};

use crate::api::quantity::Quantity;

/// An environment variable. Its value is literal or comes from a reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name of the variable: printable ASCII without `=`.
    pub name: String,
    /// Literal value, which may contain `$(VAR)`.
    pub value: String,
    /// Source of the value, if `value` does not give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// `valueFrom` of a variable. Exactly one of the references is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVarSource {
    /// Reference to a field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<ObjectFieldSelector>,
    /// Reference to a limit or request of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldSelector>,
    /// Reference to a key of a ConfigMap in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
    /// Reference to a key of a Secret in the pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
}

/// `fieldRef`: a reference to a field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectFieldSelector {
    /// API version of the path: `v1`, which is the default.
    pub api_version: String,
    /// Path of the field, such as `metadata.name`, `metadata.labels['x']` or `status.podIP`.
    pub field_path: String,
}

/// `resourceFieldRef`: a reference to a limit or request of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceFieldSelector {
    /// Name of the container. In a variable an empty name means the container itself; in a volume the name is required.
    pub container_name: String,
    /// Limit or request, such as `limits.cpu` or `requests.memory`.
    pub resource: String,
    /// Unit that the value is divided by. A divisor that is missing or 0 counts as 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
}

/// `configMapKeyRef` or `secretKeyRef`: a reference to a key of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeySelector {
    /// Name of the object.
    pub name: String,
    /// Key in the data of the object.
    pub key: String,
    /// True if the variable is left out when the object or the key is missing. Otherwise the container does not start.
    pub optional: Option<bool>,
}

/// An entry of `envFrom`. Exactly one of the two references is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvFromSource {
    /// Prefix that is put before each key.
    pub prefix: String,
    /// ConfigMap that gives a variable for each of its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ObjectReference>,
    /// Secret that gives a variable for each of its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectReference>,
}

/// `configMapRef` or `secretRef`: a reference to a whole object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Name of the object.
    pub name: String,
    /// True if the object may be missing.
    pub optional: Option<bool>,
}
