//! The fields by which a pod chooses its node: affinity and tolerations.

use serde::{Deserialize, Serialize};

/// `affinity`: only the required rules on the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Rules on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<NodeAffinity>,
}

/// `nodeAffinity`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// The pod is rejected on a node that does not match.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        skip_serializing_if = "Option::is_none"
    )]
    pub required: Option<NodeSelector>,
}

/// Matches a node that any of its terms matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Terms of the selector; at least one.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Matches a node that all of its requirements match; without any it matches none.
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
    /// Label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with: none for Exists and DoesNotExist, a single one for Gt and Lt.
    pub values: Vec<String>,
}

/// `tolerations[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the tolerated taint; empty means every taint.
    pub key: String,
    /// `Equal` (also when empty) or `Exists`.
    pub operator: String,
    /// Value of the tolerated taint.
    pub value: String,
    /// Effect of the tolerated taint: empty (every effect), `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// Seconds for which the pod tolerates the taint; allowed with NoExecute only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}
