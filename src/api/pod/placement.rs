//! The fields by which a pod chooses its node: affinity and tolerations.

use std::cmp::Ordering;
use std::collections::BTreeMap;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Terms of the selector; at least one.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

impl NodeSelector {
    /// True if the selector selects the node of this name with these labels.
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let mut terms = self.node_selector_terms.iter();
        terms.any(|term| term.selects(name, labels))
    }
}

/// Selects the nodes that match all of its requirements. A term without requirements selects no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on the node's labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on the node's fields; the only field is `metadata.name`.
    pub match_fields: Vec<NodeSelectorRequirement>,
}

impl NodeSelectorTerm {
    fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let label = |r: &NodeSelectorRequirement| r.fits(labels.get(&r.key).map(String::as_str));
        let field =
            |r: &NodeSelectorRequirement| r.fits((r.key == "metadata.name").then_some(name));
        let (labels, fields) = (&self.match_expressions, &self.match_fields);
        let is_empty = labels.is_empty() && fields.is_empty();
        !is_empty && labels.iter().all(label) && fields.iter().all(field)
    }
}

/// A requirement on a label or a field of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    /// Name of the label or the field.
    pub key: String,
    /// Comparison with `values`: `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values to compare with. `Exists` and `DoesNotExist` have none; `Gt` and `Lt` have exactly one.
    pub values: Vec<String>,
}

impl NodeSelectorRequirement {
    /// True if a value fits; None stands for a label or a field that the node does not have.
    fn fits(&self, value: Option<&str>) -> bool {
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|v| v == value));
        let compared = || {
            let wanted = self.values.first()?.parse::<i64>().ok()?;
            Some(value?.parse::<i64>().ok()?.cmp(&wanted))
        };
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared() == Some(Ordering::Greater),
            "Lt" => compared() == Some(Ordering::Less),
            _ => false,
        }
    }
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
