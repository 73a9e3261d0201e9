//! The mirror pods against the recorded requests of a real kubelet.

use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::api::source::SEEN_ANNOTATION;
use crate::api::{PodOrigin, PodSource, decode};
use crate::pods::sources::PodConfig;

/// Requests of a kubelet 1.36.2 for mirror pods, and the events of its watch: created, deleted by a person twice,
/// removed with the manifest, and one in a namespace that does not exist.
const MIRRORS: &str = include_str!("../../../tests/data/cluster/mirror_pods.jsonl");

fn recorded() -> Vec<Value> {
    let lines = MIRRORS.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn at(milliseconds: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(milliseconds))
}

fn node() -> NodeReference {
    NodeReference {
        name: "node1".to_owned(),
        uid: "6b03b4d0-4983-45a9-a817-06b498a9eafa".to_owned(),
    }
}

/// Returns the static pod of a manifest, as it comes to the sync loop.
fn static_pod(manifest: &str) -> Arc<Pod> {
    let origin = PodOrigin::File {
        node_name: "node1",
        path: Path::new("/pods/st.yaml"),
    };
    let decoded = decode::objects(manifest.as_bytes(), &origin).unwrap();
    let pods = decoded.pods.into_iter().map(|p| Arc::new(p.pod)).collect();
    let merge = PodConfig::new(&[PodSource::File]);
    let merged = merge.merge(PodSource::File, pods, SystemTime::UNIX_EPOCH);
    Arc::clone(&merged.updates[0].pods[0])
}

/// Returns a manifest with the hash that the kubelet had for it.
fn manifest(name: &str, namespace: &str, hash: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, uid: {hash}{more}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: c, image: \"registry.k8s.io/e2e-test-images/busybox:1.37.0-1\", command: [sleep, \"100000\"]}}\n"
    )
}

const HASH: &str = "e695b32a17c7747064985c9cdee1850d";

fn st() -> Arc<Pod> {
    static_pod(&manifest("st", "rec", HASH, ", labels: {app: st}"))
}

/// A node with its static pods, and what its watch shows.
#[derive(Default)]
struct Node {
    mirrors: MirrorPods,
    wanted: Vec<Arc<Pod>>,
    ending: BTreeSet<String>,
    shown: Option<MirrorPod>,
    is_gone: bool,
    now: Moment,
}

impl Node {
    fn of(pod: Arc<Pod>) -> Self {
        Self {
            wanted: vec![pod],
            ..Self::default()
        }
    }

    fn step(&mut self) -> Vec<MirrorAction> {
        let node = (!self.is_gone).then(node);
        let shown: Vec<&MirrorPod> = self.shown.iter().collect();
        self.mirrors
            .step(self.now, node.as_ref(), &self.wanted, &self.ending, &shown)
    }

    #[track_caller]
    fn request(&mut self) -> (&'static str, String, Value) {
        let mut actions = self.step();
        assert_eq!(actions.len(), 1, "{actions:?}");
        match actions.remove(0) {
            MirrorAction::Send(_, request) => {
                let body = request.body.unwrap();
                (request.method.name(), request.path, body)
            }
            MirrorAction::Report(report) => panic!("{report}"),
        }
    }

    fn answer(&mut self, code: u16) -> Result<(), MirrorError> {
        let answer = Answer::new(code, json!("no"));
        self.mirrors.answered(self.now, "st-node1_rec", &answer)
    }

    #[track_caller]
    fn nothing(&mut self) {
        assert_eq!(self.step(), []);
    }

    fn show(&mut self, uid: &str, is_deleted: bool) {
        self.shown = Some(MirrorPod {
            full_name: "st-node1_rec".to_owned(),
            path: "/api/v1/namespaces/rec/pods/st-node1".to_owned(),
            uid: uid.into(),
            hash: HASH.to_owned(),
            is_deleted,
        });
    }
}

/// Compares a request with a recorded one. The time at which the pod was first seen is not a decision, and Go writes
/// `resources` also if there is nothing in it.
#[track_caller]
fn same((method, path, body): &(&str, String, Value), recorded: &Value) {
    let (mut body, mut recorded) = (body.clone(), recorded.clone());
    if *method == "POST" {
        let seen = |body: &Value| body["metadata"]["annotations"][SEEN_ANNOTATION].clone();
        assert!(seen(&body).is_string());
        body["metadata"]["annotations"][SEEN_ANNOTATION] = seen(&recorded["body"]);
        let container = &mut recorded["body"]["spec"]["containers"][0];
        let resources = container.as_object_mut().unwrap().remove("resources");
        assert_eq!(resources, Some(json!({})));
    }
    assert_eq!(
        (*method, path.as_str()),
        (
            recorded["method"].as_str().unwrap(),
            recorded["path"].as_str().unwrap()
        )
    );
    assert_eq!(body, recorded["body"]);
}

#[test]
fn the_requests_for_a_static_pod_are_those_of_a_kubelet() {
    let mut node = Node::of(st());
    let mut requests = 0;
    for exchange in recorded() {
        node.now = at(exchange["t_ms"].as_u64().unwrap());
        let uid = exchange["uid"].as_str().unwrap_or_default();
        match exchange["watch_event"].as_str() {
            Some("DELETED") => node.shown = None,
            Some(_) => node.show(uid, exchange["deletionTimestamp"].is_string()),
            None if exchange["path"].as_str().unwrap().contains("doesnotexist") => break,
            // The kubelet has deleted this one already. It is not asked for twice here.
            None if exchange["status"] == 409 => node.nothing(),
            None => {
                let body = &exchange["body"];
                if body["preconditions"] == json!({}) {
                    node.wanted.clear();
                }
                // The recording has the request before the event of the watch that it follows from.
                if let Some(uid) = body["preconditions"]["uid"].as_str() {
                    node.show(uid, true);
                }
                same(&node.request(), &exchange);
                node.nothing();
                node.answer(exchange["status"].as_u64().unwrap() as u16)
                    .unwrap();
                requests += 1;
            }
        }
    }
    assert_eq!(requests, 6);
    node.nothing();
    assert_eq!(node.mirrors.deadline(node.now), None);
}

#[test]
fn a_missing_namespace_is_tried_thrice_soon_and_then_every_ten_seconds() {
    let hash = "b78136670a8f3ccd0d178f4c58d863f3";
    let mut node = Node::of(static_pod(&manifest("st-nons", "doesnotexist", hash, "")));
    let recorded = recorded();
    let tries = recorded.iter().filter(|e| e["status"] == 404);
    let mut waits = Vec::new();
    for exchange in tries {
        same(&node.request(), exchange);
        let answer = Answer::new(404, exchange["answer"].clone());
        let name = "st-nons-node1_doesnotexist";
        let error = node.mirrors.answered(node.now, name, &answer).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot create the mirror pod of st-nons-node1_doesnotexist: namespaces \"doesnotexist\" not found; create the namespace, or change metadata.namespace of the pod"
        );
        node.nothing();
        let deadline = node.mirrors.deadline(node.now).unwrap();
        waits.push(deadline.since(node.now).as_millis());
        node.now = deadline;
    }
    assert_eq!(waits, [300, 1000, 10_000]);
    node.request();
}

#[test]
fn a_mirror_pod_of_an_older_version_is_replaced_at_once() {
    let mut node = Node::of(static_pod(&manifest("st", "rec", "0f0f", "")));
    node.show("m1", false);
    let (method, _, body) = node.request();
    assert_eq!(
        (method, &body["preconditions"]["uid"]),
        ("DELETE", &json!("m1"))
    );
    node.answer(200).unwrap();
    let (method, _, body) = node.request();
    assert_eq!(
        (method, &body["metadata"]["annotations"][MIRROR_ANNOTATION]),
        ("POST", &json!("0f0f"))
    );
    node.answer(201).unwrap();
    node.nothing();
    node.now = at(10_000);
    node.request();
}

#[test]
fn a_mirror_pod_that_is_as_it_should_be_is_left_alone() {
    let mut node = Node::of(st());
    node.show("m1", false);
    node.nothing();
    node.is_gone = true;
    node.nothing();
}

#[test]
fn a_name_that_is_taken_waits_for_the_watch() {
    let mut node = Node::of(st());
    assert_eq!(node.request().0, "POST");
    node.answer(409).unwrap();
    node.nothing();
    node.show("m2", false);
    node.nothing();
    node.show("m2", true);
    assert_eq!(node.request().0, "DELETE");
    node.answer(409).unwrap();
    node.nothing();
    node.shown = None;
    node.nothing();
    assert_eq!(node.mirrors.deadline(node.now), Some(at(10_000)));
}

#[test]
fn a_mirror_pod_that_a_finalizer_keeps_is_not_deleted_again_and_again_at_once() {
    let mut node = Node::of(st());
    node.show("m1", true);
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(node.request().0, "DELETE");
        node.answer(200).unwrap();
        assert_eq!(node.request().0, "POST");
        node.answer(409).unwrap();
        node.nothing();
        let deadline = node.mirrors.deadline(node.now).unwrap();
        waits.push(deadline.since(node.now).as_millis());
        node.now = deadline;
    }
    assert_eq!(waits, [300, 1000, 10_000, 10_000]);
}

#[test]
fn a_mirror_pod_that_is_gone_already_is_created() {
    for code in [404, 403] {
        let mut node = Node::of(st());
        node.show("m1", true);
        assert_eq!(node.request().0, "DELETE");
        node.answer(code).unwrap();
        assert_eq!(node.request().0, "POST");
    }
}

#[test]
fn a_failed_request_is_sent_again() {
    let mut node = Node::of(st());
    node.show("m1", true);
    node.request();
    let error = node.answer(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot delete the mirror pod of st-node1_rec: no"
    );
    node.nothing();
    node.now = at(300);
    assert_eq!(node.request().0, "DELETE");
    node.answer(200).unwrap();
    assert_eq!(node.request().0, "POST");
    let error = node.answer(500).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot create the mirror pod of st-node1_rec: no"
    );
    node.wanted = vec![static_pod(&manifest("st", "rec", "0f0f", ""))];
    assert_eq!(node.request().0, "POST", "another version does not wait");
}

#[test]
fn without_a_node_nothing_is_created() {
    let mut node = Node::of(st());
    node.is_gone = true;
    node.nothing();
    node.is_gone = false;
    node.request();
}

#[test]
fn the_mirror_pod_of_a_static_pod_that_ends_stays() {
    let mut node = Node::of(st());
    node.show("m1", false);
    node.ending.insert("st-node1_rec".to_owned());
    node.wanted = vec![static_pod(&manifest("st", "rec", "0f0f", ""))];
    node.nothing();
    node.wanted.clear();
    node.nothing();
    node.ending.clear();
    let (method, _, body) = node.request();
    assert_eq!((method, &body["preconditions"]), ("DELETE", &json!({})));
    node.answer(200).unwrap();
    node.nothing();
}

#[test]
fn a_static_pod_with_references_is_not_mirrored() {
    #[track_caller]
    fn check(field: &str, what: &str) {
        let text = manifest("st", "rec", HASH, "");
        let mut node = Node::of(static_pod(
            &text.replace("spec:\n", &format!("spec:\n  {field}\n")),
        ));
        let actions = node.step();
        let [MirrorAction::Report(report)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        let sentence = format!(
            "the API server does not show the static pod st-node1_rec({HASH}): static pods may not reference {what}"
        );
        assert_eq!(report.to_string(), sentence);
        node.nothing();
        node.shown = Some(MirrorPod {
            hash: "0f0f".to_owned(),
            ..mirror("m1")
        });
        assert_eq!(
            node.request().0,
            "DELETE",
            "of an earlier version without the reference"
        );
        node.answer(200).unwrap();
        node.nothing();
    }
    check("serviceAccountName: robot", "serviceaccounts");
    check("imagePullSecrets: [{name: login}]", "secrets");
    check("volumes: [{name: v, secret: {secretName: s}}]", "secrets");
    check("volumes: [{name: v, configMap: {name: m}}]", "configmaps");
    check(
        "volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]",
        "persistentvolumeclaims",
    );
    let both =
        "volumes: [{name: v, projected: {sources: [{configMap: {name: m}}, {secret: {name: s}}]}}]";
    check(both, "secrets");
}

fn mirror(uid: &str) -> MirrorPod {
    let mut node = Node::default();
    node.show(uid, false);
    node.shown.unwrap()
}

#[test]
fn a_mirror_pod_is_a_pod_with_the_annotation() {
    let object = |annotations: Value| json!({"metadata": {"name": "st-node1", "namespace": "rec", "uid": "m1", "annotations": annotations}});
    assert_eq!(
        MirrorPod::read(&object(json!({HASH_ANNOTATION: HASH}))),
        None
    );
    let read = MirrorPod::read(&object(json!({MIRROR_ANNOTATION: HASH})));
    assert_eq!(read, Some(mirror("m1")));
}
