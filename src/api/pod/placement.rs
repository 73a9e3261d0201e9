//! The fields by which a pod chooses its node: affinity and tolerations.

use serde::{Deserialize, Serialize};

/// `affinity` of a pod. Only the required rules on the node are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Rules on the node that the pod runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// `nodeAffinity`: rules on the node that the pod runs on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Rules that the node must match; otherwise the pod is rejected.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
}

/// Selects the nodes that match at least one of its terms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Terms of the selector; at least one.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Selects the nodes that match all of its requirements. A term without requirements selects no node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on the node's fields; the only field is `metadata.name`.
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A requirement on a label or a field of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    /// Name of the label or the field.
    pub key: String,
    /// Comparison with `values`: `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with. `Exists` and `DoesNotExist` have none; `Gt` and `Lt` have exactly one.
    pub values: Vec<String>,
}

/// `tolerations[]`: the taints that the pod tolerates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the tolerated taint; empty means every taint.
    pub key: String,
    /// Comparison with the taint: `Equal` (the default) or `Exists`.
    pub operator: String,
    /// Value of the tolerated taint.
    pub value: String,
    /// Effect of the tolerated taint: empty (every effect), `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Seconds for which the pod tolerates the taint; allowed with NoExecute only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}
