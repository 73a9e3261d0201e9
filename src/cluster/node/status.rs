//! The status of the Node: conditions with the kubelet's reasons and texts, resources, addresses, images (kubelet-probes
//! 9.9).
//!
//! Invariants: a condition's heartbeat is the time of the computation, and its transition time changes only with its
//! status. What others have written into the status stays: their conditions, and resources of other names.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::facts::{HUGE_PAGES, NodeFacts, NodeImage, Resources};
use crate::base::clock::Time;

/// Upper limit of the images in the status, the largest first.
pub const MAX_IMAGES: usize = 50;

/// Upper limit of the names of an image.
pub const MAX_NAMES: usize = 5;

/// How the node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The node is short of memory.
    pub memory_pressure: bool,
    /// The node is short of room on the disk.
    pub disk_pressure: bool,
    /// The node is short of process ids.
    pub pid_pressure: bool,
    /// Reasons why no pods can be run, as sentences. None: the node is ready.
    pub not_ready: Vec<String>,
}

/// A condition as the kubelet sets it.
struct Condition {
    type_: &'static str,
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl Health {
    /// The kubelet's conditions in its order.
    fn conditions(&self) -> [Condition; 4] {
        let of = |type_, is_true, yes: (&'static str, &str), no: (&'static str, &str)| {
            let (reason, message) = if is_true { yes } else { no };
            Condition {
                type_,
                is_true,
                reason,
                message: message.to_owned(),
            }
        };
        [
            of(
                "MemoryPressure",
                self.memory_pressure,
                (
                    "KubeletHasInsufficientMemory",
                    "kubelet has insufficient memory available",
                ),
                (
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
            ),
            of(
                "DiskPressure",
                self.disk_pressure,
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ),
            of(
                "PIDPressure",
                self.pid_pressure,
                (
                    "KubeletHasInsufficientPID",
                    "kubelet has insufficient PID available",
                ),
                (
                    "KubeletHasSufficientPID",
                    "kubelet has sufficient PID available",
                ),
            ),
            of(
                "Ready",
                self.not_ready.is_empty(),
                ("KubeletReady", "kubelet is posting ready status"),
                ("KubeletNotReady", &self.why_not()),
            ),
        ]
    }

    /// The reasons as the kubelet joins them: `a`, or `[a, b]`, and none twice.
    fn why_not(&self) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        for reason in &self.not_ready {
            if !reasons.contains(&reason.as_str()) {
                reasons.push(reason);
            }
        }
        match reasons[..] {
            [one] => one.to_owned(),
            _ => format!("[{}]", reasons.join(", ")),
        }
    }
}

/// The status for the Node, made from the status in the API server (`old`, or null where there is no Node).
pub fn status(facts: &NodeFacts, health: &Health, old: &Value, wall: SystemTime) -> Value {
    let mut all = old.as_object().cloned().unwrap_or_default();
    let capacity = resources(&facts.capacity, &old["capacity"]);
    let mut allocatable = resources(&facts.allocatable, &old["allocatable"]);
    for (name, amount) in &capacity {
        allocatable
            .entry(name.as_str())
            .or_insert_with(|| amount.clone());
    }
    let own = [
        ("capacity", capacity.into()),
        ("allocatable", allocatable.into()),
        (
            "conditions",
            conditions(health, &old["conditions"], wall).into(),
        ),
        ("addresses", addresses(facts).into()),
        (
            "daemonEndpoints",
            json!({"kubeletEndpoint": {"Port": facts.port}}),
        ),
        ("nodeInfo", node_info(facts)),
        ("images", images(&facts.images).into()),
        ("declaredFeatures", declared_features(facts).into()),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    all.into()
}

/// The quantities of this node, and those of names that it does not know, which others have written.
fn resources(own: &Resources, old: &Value) -> Map<String, Value> {
    let mut all = old.as_object().cloned().unwrap_or_default();
    all.retain(|name, _| !name.starts_with(HUGE_PAGES));
    all.extend(own.quantities());
    all
}

fn conditions(health: &Health, old: &Value, wall: SystemTime) -> Vec<Value> {
    let mut all = old.as_array().cloned().unwrap_or_default();
    let now = Time::from(wall).to_string();
    for own in health.conditions() {
        let status = if own.is_true { "True" } else { "False" };
        let at = all.iter().position(|c| c["type"] == own.type_);
        let before = at.map_or(&Value::Null, |at| &all[at]);
        let since = match (&before["lastTransitionTime"], before["status"] == status) {
            (Value::String(since), true) => since.clone(),
            _ => now.clone(),
        };
        let new = json!({
            "type": own.type_,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
            "reason": own.reason,
            "message": own.message,
        });
        match at {
            Some(at) => all[at] = new,
            None => all.push(new),
        }
    }
    all
}

/// Addresses, and none twice: the API server refuses that (422).
fn addresses(facts: &NodeFacts) -> Vec<Value> {
    let internal = facts.addresses.iter().map(|a| ("InternalIP", a));
    let mut all: Vec<Value> = Vec::new();
    for (type_, address) in internal.chain([("Hostname", &facts.hostname)]) {
        let new = json!({"type": type_, "address": address});
        if !all.contains(&new) {
            all.push(new);
        }
    }
    all
}

fn node_info(facts: &NodeFacts) -> Value {
    json!({
        "machineID": facts.machine_id,
        "systemUUID": facts.system_uuid,
        "bootID": facts.boot_id,
        "kernelVersion": facts.kernel_version,
        "osImage": facts.os_image,
        "containerRuntimeVersion": facts.container_runtime_version,
        "kubeletVersion": facts.kubelet_version,
        "kubeProxyVersion": "",
        "operatingSystem": facts.operating_system,
        "architecture": facts.architecture,
    })
}

/// The largest images, of those of one size the one with the greater id first, with their digests before their tags.
fn images(images: &[NodeImage]) -> Vec<Value> {
    let mut sorted: Vec<&NodeImage> = images.iter().collect();
    sorted.sort_by(|a, b| (b.size, &b.id).cmp(&(a.size, &a.id)));
    let of = |image: &NodeImage| {
        let names = image.digests.iter().chain(&image.tags).take(MAX_NAMES);
        json!({"names": names.collect::<Vec<_>>(), "sizeBytes": image.size})
    };
    sorted.into_iter().take(MAX_IMAGES).map(of).collect()
}

/// The features in the order of the alphabet, none twice: the API server refuses another order (422).
fn declared_features(facts: &NodeFacts) -> Vec<Value> {
    let mut all: Vec<&str> = facts.declared_features.iter().map(String::as_str).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(Value::from).collect()
}

/// The reasons of the events that tell of changes between two statuses, such as `NodeReady`.
pub fn transitions(old: &Value, new: &Value) -> Vec<&'static str> {
    const REASONS: [(&str, &str, &str); 4] = [
        (
            "MemoryPressure",
            "NodeHasInsufficientMemory",
            "NodeHasSufficientMemory",
        ),
        (
            "DiskPressure",
            "NodeHasDiskPressure",
            "NodeHasNoDiskPressure",
        ),
        (
            "PIDPressure",
            "NodeHasInsufficientPID",
            "NodeHasSufficientPID",
        ),
        ("Ready", "NodeReady", "NodeNotReady"),
    ];
    let changed = |(type_, yes, no): (&str, &'static str, &'static str)| {
        let after = condition_status(new, type_);
        let reason = if after == "True" { yes } else { no };
        (after != condition_status(old, type_)).then_some(reason)
    };
    REASONS.into_iter().filter_map(changed).collect()
}

fn condition_status<'a>(status: &'a Value, type_: &str) -> &'a str {
    let all = status["conditions"].as_array();
    let found = all.and_then(|all| all.iter().find(|c| c["type"] == type_));
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::node::recorded::{facts, wall};

    /// A condition of the status that a node of this health has, `old` being its conditions in the API server.
    fn condition(health: &Health, old: &Value, type_: &str) -> Value {
        let old = json!({"conditions": old});
        let new = status(&facts(), health, &old, wall("2026-11-21T23:40:00Z"));
        let all = new["conditions"].as_array().unwrap();
        all.iter().find(|c| c["type"] == type_).unwrap().clone()
    }

    #[track_caller]
    fn check(type_: &str, health: &Health, expected: [&str; 3]) {
        let c = condition(health, &Value::Null, type_);
        assert_eq!([&c["status"], &c["reason"], &c["message"]], expected);
    }

    #[test]
    fn conditions_have_the_kubelets_reasons_and_texts() {
        let bad = Health {
            memory_pressure: true,
            disk_pressure: true,
            pid_pressure: true,
            not_ready: ["no network", "no runtime", "no network"]
                .map(str::to_owned)
                .into(),
        };
        check(
            "MemoryPressure",
            &bad,
            [
                "True",
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ],
        );
        check(
            "DiskPressure",
            &bad,
            [
                "True",
                "KubeletHasDiskPressure",
                "kubelet has disk pressure",
            ],
        );
        check(
            "PIDPressure",
            &bad,
            [
                "True",
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ],
        );
        check(
            "Ready",
            &bad,
            ["False", "KubeletNotReady", "[no network, no runtime]"],
        );
    }

    #[test]
    fn a_transition_time_changes_with_the_status_only() {
        let old = |status: &str, reason: &str| {
            json!([{"type": "Ready", "status": status, "reason": reason,
                "lastHeartbeatTime": "2026-11-21T23:00:00Z", "lastTransitionTime": "2026-11-21T22:00:00Z"}])
        };
        let ready = Health::default();
        let same = condition(&ready, &old("True", "Other"), "Ready");
        assert_eq!(same["lastTransitionTime"], "2026-11-21T22:00:00Z");
        assert_eq!(same["lastHeartbeatTime"], "2026-11-21T23:40:00Z");
        assert_eq!(same["reason"], "KubeletReady");
        let other = condition(&ready, &old("Unknown", "NodeStatusUnknown"), "Ready");
        assert_eq!(other["lastTransitionTime"], "2026-11-21T23:40:00Z");
    }

    #[test]
    fn what_others_have_written_stays() {
        let old = json!({
            "capacity": {"example.com/gpu": "2", "hugepages-64Ki": "1Mi", "cpu": "9"},
            "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
            "volumesInUse": ["a"],
        });
        let new = status(&facts(), &Health::default(), &old, SystemTime::UNIX_EPOCH);
        let capacity = &new["capacity"];
        assert_eq!([&capacity["example.com/gpu"], &capacity["cpu"]], ["2", "2"]);
        assert_eq!(capacity.get("hugepages-64Ki"), None);
        assert_eq!(new["allocatable"]["example.com/gpu"], "2");
        assert_eq!(new["conditions"][0], old["conditions"][0]);
        assert_eq!(new["conditions"][4]["type"], "Ready");
        assert_eq!(new["volumesInUse"], old["volumesInUse"]);
    }

    #[test]
    fn addresses_and_features_are_what_the_api_server_takes() {
        let mut facts = facts();
        facts.addresses = ["192.0.2.2", "2001:db8::2", "192.0.2.2"]
            .map(str::to_owned)
            .into();
        facts.declared_features = ["B", "A", "B"].map(str::to_owned).into();
        let new = status(
            &facts,
            &Health::default(),
            &Value::Null,
            SystemTime::UNIX_EPOCH,
        );
        let addresses = new["addresses"].as_array().unwrap();
        let words: Vec<&Value> = addresses.iter().map(|a| &a["address"]).collect();
        assert_eq!(words, ["192.0.2.2", "2001:db8::2", "node1"]);
        assert_eq!(new["declaredFeatures"], json!(["A", "B"]));
        facts.declared_features.clear();
        let new = status(&facts, &Health::default(), &new, SystemTime::UNIX_EPOCH);
        assert_eq!(new.get("declaredFeatures"), None);
    }

    #[test]
    fn the_largest_images_are_named_with_at_most_five_names() {
        let image = |id: &str, size| NodeImage {
            id: id.into(),
            digests: (0..3).map(|n| format!("{id}@{n}")).collect(),
            tags: (0..3).map(|n| format!("{id}:{n}")).collect(),
            size,
        };
        let mut all = vec![image("a", 7), image("c", 9), image("b", 7)];
        let listed = images(&all);
        assert_eq!(
            listed[0],
            json!({"names": ["c@0", "c@1", "c@2", "c:0", "c:1"], "sizeBytes": 9})
        );
        assert_eq!(
            [&listed[1]["names"][0], &listed[2]["names"][0]],
            ["b@0", "a@0"]
        );
        all.extend((0..60).map(|n| image("x", n)));
        assert_eq!(images(&all).len(), MAX_IMAGES);
    }

    #[test]
    fn events_tell_of_changed_conditions() {
        let at = |health: &Health, old: &Value| {
            status(
                &facts(),
                health,
                old,
                SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            )
        };
        let good = at(&Health::default(), &Value::Null);
        assert_eq!(
            transitions(&Value::Null, &good),
            [
                "NodeHasSufficientMemory",
                "NodeHasNoDiskPressure",
                "NodeHasSufficientPID",
                "NodeReady"
            ]
        );
        let bad = Health {
            disk_pressure: true,
            not_ready: vec!["no runtime".into()],
            ..Health::default()
        };
        let after = at(&bad, &good);
        assert_eq!(
            transitions(&good, &after),
            ["NodeHasDiskPressure", "NodeNotReady"]
        );
        assert_eq!(transitions(&after, &after), [""; 0]);
    }
}
