//! A label selector: which pods belong to a workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A selector of objects by their labels. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that an object must have.
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions on labels. All must be true.
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectorRequirement {
    /// Key of the label.
    pub key: String,
    /// The relation between the label and the values, as written. Validation refuses unknown words.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The relation between a label and the values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is missing, or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl SelectorOperator {
    /// Returns the operator of this word.
    pub fn named(word: &str) -> Option<Self> {
        Some(match word {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }
}

impl LabelSelector {
    /// True if the selector has no condition.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// True if an object with these labels is selected. A condition with an unknown operator is never true.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(has)
            && self.match_expressions.iter().all(|it| it.matches(labels))
    }
}

impl SelectorRequirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match SelectorOperator::named(&self.operator) {
            Some(SelectorOperator::In) => is_listed,
            Some(SelectorOperator::NotIn) => !is_listed,
            Some(SelectorOperator::Exists) => value.is_some(),
            Some(SelectorOperator::DoesNotExist) => value.is_none(),
            None => false,
        }
    }
}
