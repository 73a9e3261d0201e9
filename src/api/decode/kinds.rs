//! Sorts the objects of a file by their kinds. This module has an error text for each way in which a document can fail
//! to be an object that podprobe reads.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::error::Findings;
use super::other_kinds::{NotRun, READ, Standing, not_run_here, standing};
use super::place::Spot;
use crate::api::field::{Step, clip};
use crate::api::objects::ObjectKind;
use crate::api::workload::WorkloadKind;
use crate::base::spelling;

/// A kind of object that podprobe reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The object is a Pod, which runs.
    Pod,
    /// Pods refer to the object, or the object leads clients to pods.
    Object(ObjectKind),
    /// The object makes pods from a template.
    Workload(WorkloadKind),
}

impl Kind {
    const ALL: [Self; 14] = [
        Self::Pod,
        Self::Object(ObjectKind::ConfigMap),
        Self::Object(ObjectKind::Secret),
        Self::Object(ObjectKind::PersistentVolumeClaim),
        Self::Object(ObjectKind::Service),
        Self::Object(ObjectKind::EndpointSlice),
        Self::Object(ObjectKind::Endpoints),
        Self::Workload(WorkloadKind::Deployment),
        Self::Workload(WorkloadKind::ReplicaSet),
        Self::Workload(WorkloadKind::ReplicationController),
        Self::Workload(WorkloadKind::DaemonSet),
        Self::Workload(WorkloadKind::StatefulSet),
        Self::Workload(WorkloadKind::Job),
        Self::Workload(WorkloadKind::CronJob),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Object(kind) => kind.as_str(),
            Self::Workload(kind) => kind.as_str(),
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Pod => "v1",
            Self::Object(kind) => kind.api_version(),
            Self::Workload(kind) => kind.api_version(),
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The kinds of lists, each with the kind of its items. None means items of any kind.
const LISTS: [(&str, Option<Kind>); 15] = [
    ("List", None),
    ("PodList", Some(Kind::Pod)),
    ("ConfigMapList", Some(Kind::Object(ObjectKind::ConfigMap))),
    ("SecretList", Some(Kind::Object(ObjectKind::Secret))),
    (
        "PersistentVolumeClaimList",
        Some(Kind::Object(ObjectKind::PersistentVolumeClaim)),
    ),
    ("ServiceList", Some(Kind::Object(ObjectKind::Service))),
    (
        "EndpointSliceList",
        Some(Kind::Object(ObjectKind::EndpointSlice)),
    ),
    ("EndpointsList", Some(Kind::Object(ObjectKind::Endpoints))),
    (
        "DeploymentList",
        Some(Kind::Workload(WorkloadKind::Deployment)),
    ),
    (
        "ReplicaSetList",
        Some(Kind::Workload(WorkloadKind::ReplicaSet)),
    ),
    (
        "ReplicationControllerList",
        Some(Kind::Workload(WorkloadKind::ReplicationController)),
    ),
    (
        "DaemonSetList",
        Some(Kind::Workload(WorkloadKind::DaemonSet)),
    ),
    (
        "StatefulSetList",
        Some(Kind::Workload(WorkloadKind::StatefulSet)),
    ),
    ("JobList", Some(Kind::Workload(WorkloadKind::Job))),
    ("CronJobList", Some(Kind::Workload(WorkloadKind::CronJob))),
];

/// Returns the `apiVersion` of the kind or list with the name `kind`; None if podprobe does not read this kind.
fn api_version(kind: &str) -> Option<&'static str> {
    match LISTS.iter().find(|(list, _)| *list == kind) {
        Some((_, of)) => Some(of.map_or("v1", Kind::api_version)),
        None => Kind::named(kind).map(Kind::api_version),
    }
}

/// The objects of a file.
#[derive(Default)]
pub(super) struct Found {
    /// Objects that podprobe reads, in the order of the file.
    pub(super) objects: Vec<(Spot, Kind, Value)>,
    /// Objects of kinds that podprobe does not read.
    pub(super) not_run: NotRun,
}

/// Returns the objects of the documents. Errors of documents that are not objects, and of objects that podprobe cannot
/// use, go to `findings`.
pub(super) fn objects(documents: Vec<Value>, findings: &mut Findings) -> Found {
    let mut found = Found::default();
    let alone = documents.len() == 1;
    for (document, value) in documents.into_iter().enumerate() {
        let spot = Spot {
            document,
            around: Vec::new(),
        };
        findings.enter(&spot);
        let Value::Object(map) = value else {
            findings.add_for_document(no_object(&value).to_owned());
            continue;
        };
        if is_compose(&map) {
            findings.add_for("services", COMPOSE.to_owned());
            continue;
        }
        match other_kind(&map) {
            Some(kind) if alone && is_missed(&kind, &map) => {
                let text = format!(
                    "kind: Unsupported value: {:?}: {}",
                    clip(&kind),
                    not_run_here(&kind)
                );
                findings.add_for("kind", text);
            }
            Some(kind) => found.not_run.add(&kind, is_foreign(&map), name(&map)),
            None => add(map, spot, &mut found, findings),
        }
    }
    findings.enter(&Spot::default());
    let missed = found.not_run.lines();
    if found.objects.is_empty() && !missed.is_empty() {
        findings.add_for_document(format!("nothing in it is run here: {}", missed.join("; ")));
    }
    found
}

/// True if a document is a Docker Compose file: `services` has an entry with an image or a build, and `apiVersion`,
/// `kind` and `metadata` are all missing.
fn is_compose(map: &Map<String, Value>) -> bool {
    let is_object = ["apiVersion", "kind", "metadata"];
    let services = map.get("services").and_then(Value::as_object);
    let runs = |service: &Value| service.get("image").or(service.get("build")).is_some();
    !is_object.iter().any(|key| map.contains_key(*key))
        && services.is_some_and(|all| all.values().any(runs))
}

const COMPOSE: &str = "services: this is a file of Docker Compose, and podprobe reads objects of Kubernetes: write each service as a container of a v1 Pod, with its image, command, environment as env, and ports";

/// True if the user would miss an object of this kind, which podprobe does not read.
fn is_missed(kind: &str, map: &Map<String, Value>) -> bool {
    standing(kind, is_foreign(map)) != Standing::Meaningless
}

fn name(map: &Map<String, Value>) -> Option<&str> {
    map.get("metadata").and_then(|m| m["name"].as_str())
}

fn no_object(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => {
            "a list is not a pod: expected a v1 Pod, or a v1 PodList with the pods in its items"
        }
        _ => "expected a v1 Pod, that is an object with apiVersion, kind, metadata and spec",
    }
}

fn add(map: Map<String, Value>, spot: Spot, found: &mut Found, findings: &mut Findings) {
    let kinds = LISTS.iter().map(|(name, _)| *name);
    let kinds: Vec<_> = Kind::ALL.into_iter().map(Kind::name).chain(kinds).collect();
    let Some(name) = type_of(&map, "", None, &kinds, findings) else {
        return;
    };
    match LISTS.iter().find(|(list, _)| **list == name) {
        Some((_, of)) => items(map, *of, &spot, found, findings),
        None => found
            .objects
            .extend(Kind::named(&name).map(|kind| (spot, kind, Value::Object(map)))),
    }
}

/// Adds the items of a list to `found`. In a `List`, as `kubectl get -o json` writes it, each item must name its
/// kind, and the kind may be one that podprobe does not read.
fn items(
    mut list: Map<String, Value>,
    of: Option<Kind>,
    spot: &Spot,
    found: &mut Found,
    findings: &mut Findings,
) {
    let known = ["apiVersion", "kind", "metadata", "items"];
    for key in list.keys().filter(|key| !known.contains(&key.as_str())) {
        let meant = spelling::nearest(key, known)
            .map_or_else(String::new, |name| format!(": did you mean \"{name}\"?"));
        findings.add_for(
            key,
            format!("{}: unknown field of a list{meant}", clip(key)),
        );
    }
    let items = match list.shift_remove("items") {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            findings.add_for(
                "items",
                "items: Invalid value: must be a list ([...]) of objects".to_owned(),
            );
            Vec::new()
        }
    };
    for (index, value) in items.into_iter().enumerate() {
        let at = format!("items[{index}]");
        let Value::Object(map) = value else {
            let text = format!("{at}: Invalid value: must be an object ({{...}})");
            findings.add_for(&at, text);
            continue;
        };
        if let Some(kind) = other_kind(&map).filter(|_| of.is_none()) {
            found.not_run.add(&kind, is_foreign(&map), name(&map));
            continue;
        }
        let supported: Vec<_> = match of {
            Some(kind) => vec![kind.name()],
            None => Kind::ALL.into_iter().map(Kind::name).collect(),
        };
        let implied = of.map(Kind::name);
        let name = type_of(&map, &format!("{at}."), implied, &supported, findings);
        if let Some(kind) = name.as_deref().and_then(Kind::named) {
            let around = vec![Step::Key("items".into()), Step::Index(index)];
            let document = spot.document;
            let spot = Spot { document, around };
            found.objects.push((spot, kind, Value::Object(map)));
        }
    }
}

/// Returns the kind of an object that podprobe does not read. Returns None for kinds that podprobe reads, and for
/// likely misspelt names of such kinds. If only the version tells that podprobe does not read the object, the text has
/// the version before the kind.
fn other_kind(map: &Map<String, Value>) -> Option<Cow<'_, str>> {
    let text = |name: &str| map.get(name).and_then(Value::as_str);
    let kind = text("kind").filter(|kind| !kind.is_empty())?;
    let lists = LISTS.iter().map(|(name, _)| *name);
    let known = Kind::ALL.into_iter().map(Kind::name).chain(lists);
    // The search for a similar name runs only for an unknown kind, because the search takes as long as reading a small
    // object.
    let is_known = known.clone().any(|name| name == kind);
    if !is_known && spelling::nearest(kind, known).is_none() {
        return Some(kind.into());
    }
    let version = text("apiVersion")?;
    is_foreign(map).then(|| format!("{version} {kind}").into())
}

/// True if the object is of a group that somebody has added to the API, such as `serving.knative.dev/v1`.
fn is_foreign(map: &Map<String, Value>) -> bool {
    let version = map.get("apiVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    group.contains('.') && !group.ends_with("k8s.io")
}

/// Returns the kind of an object. Returns None if podprobe cannot use the kind or its version; the error then goes to
/// `findings`. `implied` is the kind of an object that does not name its kind.
fn type_of(
    map: &Map<String, Value>,
    at: &str,
    implied: Option<&str>,
    kinds: &[&str],
    findings: &mut Findings,
) -> Option<String> {
    let mut good = true;
    let mut field = |name: &str, implied: Option<&str>, supported: &[&str]| {
        let path = format!("{at}{name}");
        let text = match map.get(name) {
            None | Some(Value::Null) => match implied {
                Some(implied) => return implied.to_owned(),
                None => missing(map, &path, name, supported[0]),
            },
            Some(Value::String(value)) if supported.contains(&value.as_str()) => {
                return value.clone();
            }
            Some(Value::String(value)) => unsupported(&path, value, supported),
            Some(value) => format!(
                "{path}: Invalid value: {}: must be a text (\"...\")",
                clip(&value.to_string())
            ),
        };
        good = false;
        findings.add_for(&path, text);
        String::new()
    };
    let written = map.get("kind").and_then(Value::as_str);
    match written.or(implied).and_then(api_version) {
        Some(version) => field("apiVersion", implied.map(|_| version), &[version]),
        None => field("apiVersion", implied.and_then(api_version), &VERSIONS),
    };
    let kind = field("kind", implied, kinds);
    good.then_some(kind)
}

/// The API versions of the kinds that podprobe reads.
const VERSIONS: [&str; 4] = ["v1", "apps/v1", "batch/v1", "discovery.k8s.io/v1"];

/// Versions of workloads that Kubernetes has removed.
const REMOVED_VERSIONS: [&str; 5] = [
    "extensions/v1beta1",
    "apps/v1beta1",
    "apps/v1beta2",
    "batch/v1beta1",
    "batch/v2alpha1",
];

fn unsupported(path: &str, value: &str, supported: &[&str]) -> String {
    if let [only] = supported
        && REMOVED_VERSIONS.contains(&value)
    {
        let selector = match value {
            "extensions/v1beta1" => {
                ", and give spec.selector the labels of the template if it is missing"
            }
            _ => "",
        };
        return format!(
            "{path}: Unsupported value: {value:?}: Kubernetes has removed this version; write {only:?}{selector}"
        );
    }
    let meant = spelling::nearest(value, supported.iter().copied());
    let hint = match (meant, supported) {
        (Some(name), _) => format!("; did you mean \"{name}\"?"),
        (None, [only]) if path.ends_with("apiVersion") => format!("; write \"{only}\""),
        _ => String::new(),
    };
    format!(
        "{path}: Unsupported value: {}: {READ}{hint}",
        clip(&format!("{value:?}"))
    )
}

fn missing(map: &Map<String, Value>, path: &str, name: &str, value: &str) -> String {
    let near = map
        .keys()
        .find(|key| spelling::nearest(key, [name]).is_some());
    let near = near.map_or_else(String::new, |key| format!(" (\"{}\" is not it)", clip(key)));
    format!("{path}: Required value: write \"{name}\": \"{value}\"{near}")
}
