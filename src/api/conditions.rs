//! The pod conditions that clients set, such as those that readiness gates name.
//!
//! Invariants: pure. A change that [`ConditionChange::check`] accepts fits into one request of a client.

use serde::{Deserialize, Serialize};

use super::validation::is_qualified_name;
use super::{Pod, PodCondition};
use crate::base::json;

/// The reasons for which a client may not make a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The type is not a qualified name.
    #[error("'{type_}' is no type of a condition: {complaint}")]
    Type {
        /// Type as it was given.
        type_: String,
        /// First complaint about the name, in the API's words.
        complaint: String,
    },
    /// The condition is set by podprobe itself.
    #[error("condition {0} is set by podprobe alone; set those that the pod's readinessGates name")]
    Kubelets(String),
    /// The reason has a bad form or is too long.
    #[error(
        "a reason is one word of at most {MAX_REASON} letters, digits and '_', that begins with a letter"
    )]
    Reason,
    /// The message is too long or has control characters.
    #[error("a message has at most {MAX_MESSAGE} bytes and no control characters")]
    Message,
}

/// Condition types that the kubelet sets itself, and DisruptionTarget, which both the kubelet and the control plane
/// set.
const KUBELETS: [&str; 9] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodResizeInProgress",
    "PodResizePending",
    "PodReadyToStartContainers",
    "AllContainersRestarting",
    "DisruptionTarget",
];

/// Longest reason, in bytes.
const MAX_REASON: usize = 128;
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// True if podprobe itself sets the conditions of this type.
pub fn is_kubelets(type_: &str) -> bool {
    KUBELETS.contains(&type_)
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The client that sets the condition does not know whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Returns the API's word for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A change of one condition of a pod, as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionChange {
    /// Type of the condition: a qualified name. Podprobe does not set conditions of this type itself.
    #[serde(rename = "type")]
    pub type_: String,
    /// New status of the condition; None removes the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ConditionStatus>,
    /// Machine-readable reason: one word, at most 128 bytes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence, at most 1024 bytes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl ConditionChange {
    /// Returns the changes that give a pod the conditions of its readiness gates as its object has them. A condition that
    /// the object does not have is removed.
    pub fn of_gates(pod: &Pod) -> Vec<Self> {
        let conditions = pod.raw.at("/status/conditions").unwrap_or_default();
        let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
        let gates = pod.spec.readiness_gates.iter();
        let types = gates.map(|gate| gate.condition_type.as_str());
        let types = types.filter(|type_| !is_kubelets(type_));
        types
            .map(|type_| {
                let found = conditions.iter().find(|c| c["type"] == type_);
                let found = found.and_then(|found| json::from_value(found).ok());
                found.unwrap_or_else(|| Self {
                    type_: type_.to_owned(),
                    status: None,
                    reason: String::new(),
                    message: String::new(),
                })
            })
            .collect()
    }

    /// Checks that a client may ask for this change.
    ///
    /// Returns a [`ConditionError`] if the type is not a qualified name or is podprobe's own, or if the reason or the
    /// message is out of bounds.
    pub fn check(&self) -> Result<(), ConditionError> {
        let type_ = &self.type_;
        if let Some(complaint) = is_qualified_name(type_).into_iter().next() {
            let type_ = type_.clone();
            return Err(ConditionError::Type { type_, complaint });
        }
        if is_kubelets(type_) {
            return Err(ConditionError::Kubelets(type_.clone()));
        }
        if !is_reason(&self.reason) {
            return Err(ConditionError::Reason);
        }
        let has_control = self.message.contains(|c: char| c.is_control() && c != '\n');
        if self.message.len() > MAX_MESSAGE || has_control {
            return Err(ConditionError::Message);
        }
        Ok(())
    }

    /// Returns the new condition, without a time; None if the change removes the condition.
    pub fn condition(&self) -> Option<PodCondition> {
        Some(PodCondition {
            type_: self.type_.clone(),
            status: self.status?.as_str().into(),
            last_transition_time: None,
            reason: self.reason.clone(),
            message: self.message.clone(),
        })
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = text.as_bytes().first().is_none_or(u8::is_ascii_alphabetic);
    begins && text.bytes().all(inner) && text.len() <= MAX_REASON
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(type_: &str, reason: &str, message: &str) -> ConditionChange {
        ConditionChange {
            type_: type_.into(),
            status: Some(ConditionStatus::True),
            reason: reason.into(),
            message: message.into(),
        }
    }

    #[test]
    fn a_gate_is_what_the_object_says_of_it() {
        let conditions = serde_json::json!([
            {"type": "a", "status": "True", "reason": "R", "message": "m", "lastProbeTime": null},
            {"type": "other", "status": "True"}]);
        let gates = serde_json::json!([{"conditionType": "a"}, {"conditionType": "gone"}, {"conditionType": "Ready"}]);
        let pod = crate::test_pods::pod("p").spec(serde_json::json!({"readinessGates": gates}));
        let pod = pod
            .edit(|raw| raw["status"]["conditions"] = conditions)
            .build();
        let gone = ConditionChange {
            status: None,
            ..change("gone", "", "")
        };
        assert_eq!(
            ConditionChange::of_gates(&pod),
            [change("a", "R", "m"), gone]
        );
    }

    #[track_caller]
    fn check(type_: &str, expected: Result<(), &str>) {
        let got = change(type_, "", "").check();
        match expected {
            Ok(()) => assert_eq!(got, Ok(()), "{type_}"),
            Err(start) => {
                let text = got.unwrap_err().to_string();
                assert!(text.starts_with(start), "{text}");
            }
        }
    }

    #[test]
    fn a_type_is_a_qualified_name_and_not_podprobe_s_own() {
        check("example.com/registered", Ok(()));
        check("Registered", Ok(()));
        check(
            "a b",
            Err("'a b' is no type of a condition: name part must consist of"),
        );
        check("", Err("'' is no type of a condition: name part must be"));
        check("Example.com/x", Err("'Example.com/x' is no type"));
        for type_ in KUBELETS {
            let text = format!("condition {type_} is set by podprobe alone; ");
            check(type_, Err(&text));
        }
    }

    #[test]
    fn reason_and_message_have_bounds() {
        let is_good = |reason: &str, message: &str| change("x", reason, message).check().is_ok();
        assert!(is_good("Registered_2", "two\nlines"));
        assert!(is_good(&"a".repeat(128), &"a".repeat(1024)));
        for reason in ["two words", "2", "_a", &"a".repeat(129)] {
            assert!(!is_good(reason, ""), "{reason}");
        }
        for message in ["\u{1b}[2J", &"a".repeat(1025)] {
            assert!(!is_good("", message), "{message}");
        }
    }

    #[test]
    fn a_change_without_a_status_is_a_removal() {
        let set = change("x", "R", "m");
        let condition = set.condition().unwrap();
        assert_eq!(
            (condition.type_.as_str(), &*condition.status),
            ("x", "True")
        );
        let removal = ConditionChange {
            status: None,
            ..set
        };
        assert_eq!(removal.condition(), None);
        for status in ConditionStatus::ALL {
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{}\"", status.as_str()));
        }
    }
}
