//! The strategic merge patch of a Node, and when its status is sent (kubelet-probes 9.9).
//!
//! Invariants: a patch has the changed fields only. A list that the API server keeps as a whole is sent as a whole. An
//! absent field, null and an empty list or object are the same to the API server, so a patch never has one for another.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::clock::Moment;

/// The patch for `nodes/NAME/status` that makes `new` of `old`, or `None` if there is nothing to change. It has fields of
/// `metadata` and `status`.
pub fn node_patch(old: &Value, new: &Value) -> Option<Value> {
    let mut patch = Map::new();
    for part in ["metadata", "status"] {
        let changed = changed_fields(&old[part], &new[part]);
        if !changed.is_empty() {
            patch.insert(part.to_owned(), changed.into());
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

fn changed_fields(old: &Value, new: &Value) -> Map<String, Value> {
    let nothing = Map::new();
    let old = old.as_object().unwrap_or(&nothing);
    let new = new.as_object().unwrap_or(&nothing);
    let mut patch = Map::new();
    for (key, value) in new {
        let before = old.get(key).unwrap_or(&Value::Null);
        if same(before, value) {
            continue;
        }
        match (key.as_str(), before, value) {
            ("conditions", Value::Array(before), Value::Array(after)) => {
                conditions(before, after, &mut patch);
            }
            ("addresses", Value::Array(_), Value::Array(after)) => {
                patch.insert(key.clone(), replaced(after));
            }
            (_, Value::Object(_), Value::Object(_)) => {
                patch.insert(key.clone(), changed_fields(before, value).into());
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    let gone = old.iter().filter(|(key, value)| {
        let is_there = new.get(*key).is_some();
        !is_there && !same(value, &Value::Null)
    });
    patch.extend(gone.map(|(key, _)| (key.clone(), Value::Null)));
    patch
}

/// Conditions are merged by their types: the patch has the changed fields of those that have changed, and the order of all.
fn conditions(old: &[Value], new: &[Value], patch: &mut Map<String, Value>) {
    let order = new.iter().map(|c| json!({"type": c["type"]})).collect();
    patch.insert(
        "$setElementOrder/conditions".to_owned(),
        Value::Array(order),
    );
    let mut changed = Vec::new();
    for condition in new {
        let before = old.iter().find(|c| c["type"] == condition["type"]);
        let mut fields = changed_fields(before.unwrap_or(&Value::Null), condition);
        if !fields.is_empty() {
            fields.insert("type".to_owned(), condition["type"].clone());
            changed.push(fields.into());
        }
    }
    if !changed.is_empty() {
        patch.insert("conditions".to_owned(), Value::Array(changed));
    }
}

/// A list of addresses that replaces the old one. The API server would merge addresses by their types, and a node may have
/// two of a type.
fn replaced(list: &[Value]) -> Value {
    let mut list = list.to_vec();
    list.push(json!({"$patch": "replace"}));
    list.into()
}

/// True if the API server takes both values for the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let get = |of: &Map<String, Value>, key| of.get(key).cloned().unwrap_or_default();
            let mut keys = a.keys().chain(b.keys());
            keys.all(|key| same(&get(a, key), &get(b, key)))
        }
        _ => a == b || is_empty(a) && is_empty(b),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// True if a patch changes more than the times of heartbeats.
pub fn is_change(patch: &Value) -> bool {
    let status = patch["status"].as_object();
    let is_other = |key: &String| key != "conditions" && key != "$setElementOrder/conditions";
    if patch.get("metadata").is_some() || status.is_some_and(|s| s.keys().any(is_other)) {
        return true;
    }
    let conditions = patch["status"]["conditions"].as_array();
    let fields = conditions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object);
    let mut names = fields.flat_map(Map::keys);
    names.any(|name| name != "type" && name != "lastHeartbeatTime")
}

/// When the status is sent: at once after a change, else 5 minutes after the last time. A change sets the next time anew,
/// at random between half and one and a half of that, so that the nodes of a cluster do not send together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    due: Moment,
}

impl Reports {
    /// The time after which a status is sent although nothing has changed.
    pub const PERIOD: Duration = Duration::from_secs(300);

    /// The patch if it is to be sent now.
    pub fn due(&self, now: Moment, patch: Option<Value>) -> Option<Value> {
        patch.filter(|patch| now >= self.due || is_change(patch))
    }

    /// Notes that a patch has been taken. `random` is at least 0 and below 1.
    pub fn sent(&mut self, now: Moment, was_change: bool, random: f64) {
        let period = match was_change {
            true => Self::PERIOD.mul_f64(0.5 + random.clamp(0.0, 1.0)),
            false => Self::PERIOD,
        };
        self.due = now + period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::node::recorded::{exchanges, facts, ready, wall};
    use crate::cluster::node::status::{Health, status};

    /// The recorded patch that the kubelet sent at `t_ms`, without its images: it takes an image without names for changed,
    /// because it writes an empty list and the API server null.
    fn recorded_patch(t_ms: u64) -> (Value, Value) {
        let all = exchanges("node");
        let at = all.iter().position(|e| e["t_ms"] == t_ms).unwrap();
        let mut patch = all[at]["req_body"].clone();
        patch["status"].as_object_mut().unwrap().remove("images");
        let before = match all[at].get("before") {
            Some(before) => before.clone(),
            None => all[at - 1]["resp_body"].clone(),
        };
        (before, patch)
    }

    /// The patch that makes the conditions of a healthy node of the recorded ones, at the recorded time.
    #[track_caller]
    fn check(t_ms: u64, at: &str, was_change: bool) {
        let (before, recorded) = recorded_patch(t_ms);
        let mut new = before.clone();
        let wanted = status(&facts(), &ready(), &before["status"], wall(at));
        new["status"]["conditions"] = wanted["conditions"].clone();
        let patch = node_patch(&before, &new).unwrap();
        assert_eq!(patch, recorded);
        assert_eq!(is_change(&patch), was_change);
    }

    #[test]
    fn a_node_that_becomes_ready_sends_what_the_kubelet_sent() {
        check(347, "2026-11-21T23:35:33Z", true);
    }

    #[test]
    fn heartbeats_are_what_the_kubelet_sent() {
        check(286_201, "2026-11-21T23:40:19Z", false);
        check(776_160, "2026-11-21T23:48:29Z", false);
    }

    #[test]
    fn a_node_that_was_given_up_sends_what_the_kubelet_sent() {
        check(551_754, "2026-11-21T23:44:44Z", true);
    }

    #[test]
    fn images_are_sent_as_a_whole_when_their_order_changes() {
        let image = |name: &str, size| json!({"names": [name], "sizeBytes": size});
        let node = |images: Value| json!({"status": {"images": images}});
        let old = node(json!([image("a", 1), image("b", 1)]));
        let new = node(json!([image("b", 1), image("a", 1)]));
        assert_eq!(node_patch(&old, &new), Some(new));
        let unnamed = |names: Value| node(json!([{"names": names, "sizeBytes": 1}]));
        assert_eq!(node_patch(&unnamed(Value::Null), &unnamed(json!([]))), None);
    }

    #[test]
    fn maps_are_merged_and_what_is_gone_is_null() {
        let old = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "resourceVersion": "1"},
            "status": {"capacity": {"cpu": "1", "hugepages-2Mi": "0"}, "declaredFeatures": ["A"], "config": {}},
        });
        let mut new = old.clone();
        new["metadata"]["labels"]["a"] = "3".into();
        new["status"]["capacity"] = json!({"cpu": "2"});
        let fields = new["status"].as_object_mut().unwrap();
        fields.remove("declaredFeatures");
        fields.remove("config");
        assert_eq!(
            node_patch(&old, &new).unwrap(),
            json!({
                "metadata": {"labels": {"a": "3"}},
                "status": {"capacity": {"cpu": "2", "hugepages-2Mi": null}, "declaredFeatures": null},
            })
        );
    }

    #[test]
    fn addresses_replace_the_old_ones() {
        let node = |list: Value| json!({"status": {"addresses": list}});
        let a = json!({"type": "InternalIP", "address": "192.0.2.2"});
        let b = json!({"type": "InternalIP", "address": "2001:db8::2"});
        assert_eq!(
            node_patch(&node(json!([a])), &node(json!([a, b]))),
            Some(node(json!([a, b, {"$patch": "replace"}])))
        );
        assert_eq!(
            node_patch(&json!({}), &node(json!([a]))),
            Some(node(json!([a])))
        );
    }

    #[test]
    fn labels_are_a_change() {
        assert!(is_change(&json!({"metadata": {"labels": {"a": "b"}}})));
    }

    #[test]
    fn a_change_is_sent_at_once_and_a_heartbeat_after_five_minutes() {
        let at = |s| Moment::from_boot(Duration::from_secs(s));
        let (_, heartbeat) = recorded_patch(286_201);
        let (_, change) = recorded_patch(347);
        let mut reports = Reports::default();
        assert!(reports.due(at(100), Some(heartbeat.clone())).is_some());
        reports.sent(at(100), false, 0.9);
        let due = |r: &Reports, s, patch: &Value| r.due(at(s), Some(patch.clone())).is_some();
        assert!(!due(&reports, 399, &heartbeat));
        assert!(due(&reports, 400, &heartbeat));
        assert!(due(&reports, 101, &change));
        reports.sent(at(1000), true, 0.0);
        assert!(!due(&reports, 1149, &heartbeat) && due(&reports, 1150, &heartbeat));
        reports.sent(at(1000), true, 1.0);
        assert!(!due(&reports, 1449, &heartbeat) && due(&reports, 1450, &heartbeat));
        assert_eq!(reports.due(at(9000), None), None);
    }

    #[test]
    fn a_condition_that_is_new_is_sent_whole_after_those_of_others() {
        let old =
            json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}});
        let mut new = old.clone();
        let wanted = status(
            &facts(),
            &Health::default(),
            &old["status"],
            wall("2026-11-21T23:35:33Z"),
        );
        new["status"]["conditions"] = wanted["conditions"].clone();
        let patch = node_patch(&old, &new).unwrap();
        assert_eq!(
            patch["status"]["$setElementOrder/conditions"][0]["type"],
            "NetworkUnavailable"
        );
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
        assert_eq!(patch["status"]["conditions"][0], wanted["conditions"][1]);
    }
}
