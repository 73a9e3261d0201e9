//! Recorded exchanges between a kubelet 1.36.2 and its API server, for the tests of this wing.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::Value;

use super::facts::{NodeFacts, NodeImage, Resources};
use super::status::Health;
use crate::base::clock::Time;
use crate::cluster::exchange::{Answer, Request};

/// The exchanges in a file of `tests/data/cluster`, one a line.
pub(crate) fn exchanges(name: &str) -> Vec<Value> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/cluster/");
    let text =
        std::fs::read_to_string(format!("{dir}{name}.jsonl")).expect("the recording is there");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

/// A wall-clock time.
pub(crate) fn wall(text: &str) -> SystemTime {
    Time::instant(text).expect("the time is RFC 3339")
}

/// The recorded answer of an exchange.
pub(crate) fn answer(exchange: &Value) -> Answer {
    match exchange["status"].as_u64().expect("a code") {
        0 => Answer::NoConnection,
        code => Answer::new(
            u16::try_from(code).expect("a code"),
            exchange["resp_body"].clone(),
        ),
    }
}

/// Asserts that a request is the recorded one, but for the wait that the kubelet asks for in some of its queries.
#[track_caller]
pub(crate) fn assert_request(request: &Request, exchange: &Value) {
    let path = exchange["path"].as_str().expect("a path");
    let bare = |path: &str| path.split('?').next().expect("the path").to_owned();
    assert_eq!(request.method.name(), exchange["method"]);
    assert_eq!(bare(&request.path), bare(path));
    assert_eq!(
        request.body.clone().unwrap_or_default(),
        exchange["req_body"]
    );
}

/// The facts of the node in the recording.
pub(crate) fn facts() -> NodeFacts {
    let registered = &exchanges("node")[0]["req_body"]["status"];
    let resources = |memory: u64, ephemeral_storage: u64| Resources {
        cpu_millis: 2000,
        memory,
        ephemeral_storage,
        pods: 200,
        huge_pages: BTreeMap::from([(2 << 20, 0), (1 << 30, 0)]),
    };
    let words = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list");
        let words = list.iter().map(|word| word.as_str().expect("a word"));
        words.map(str::to_owned).collect()
    };
    let image = |image: &Value| {
        let (digests, tags) = words(&image["names"])
            .into_iter()
            .partition(|n| n.contains('@'));
        NodeImage {
            id: String::new(),
            digests,
            tags,
            size: image["sizeBytes"].as_u64().expect("a size"),
        }
    };
    let images = registered["images"].as_array().expect("images").iter();
    NodeFacts {
        name: "node1".into(),
        hostname: "node1".into(),
        addresses: vec!["192.0.2.2".into()],
        operating_system: "linux".into(),
        architecture: "amd64".into(),
        kernel_version: "6.0.0".into(),
        os_image: "Debian GNU/Linux 12 (bookworm)".into(),
        machine_id: "0".repeat(32),
        system_uuid: "0".repeat(32),
        boot_id: "00000000-0000-0000-0000-000000000000".into(),
        container_runtime_version: "containerd://1.6.20".into(),
        kubelet_version: "v1.36.2".into(),
        port: 10250,
        capacity: resources(24_731_272 << 10, 264_212_084 << 10),
        allocatable: resources(24_680_072 << 10, 267_847_642_337),
        images: images.rev().map(image).collect(),
        declared_features: words(&registered["declaredFeatures"])
            .into_iter()
            .rev()
            .collect(),
        ..NodeFacts::default()
    }
}

/// The health of a node that is ready.
pub(crate) fn ready() -> Health {
    Health::default()
}
