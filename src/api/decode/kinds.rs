//! The objects of a file by their kinds, with an error text for each way in which a document can be
//! no object that podprobe reads.

use serde_json::{Map, Value};

use super::error::Findings;
use super::place::Spot;
use crate::api::field::{Step, clip};
use crate::api::objects::ObjectKind;
use crate::spelling;

/// A kind of object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What runs.
    Pod,
    /// What pods refer to.
    Object(ObjectKind),
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::Pod,
        Self::Object(ObjectKind::ConfigMap),
        Self::Object(ObjectKind::Secret),
        Self::Object(ObjectKind::PersistentVolumeClaim),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Object(kind) => kind.as_str(),
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The lists: of one kind, or of any.
const LISTS: [(&str, Option<Kind>); 5] = [
    ("List", None),
    ("PodList", Some(Kind::Pod)),
    ("ConfigMapList", Some(Kind::Object(ObjectKind::ConfigMap))),
    ("SecretList", Some(Kind::Object(ObjectKind::Secret))),
    (
        "PersistentVolumeClaimList",
        Some(Kind::Object(ObjectKind::PersistentVolumeClaim)),
    ),
];

/// The objects of a file.
#[derive(Default)]
pub(super) struct Found {
    /// In the order of the file.
    pub(super) objects: Vec<(Spot, Kind, Value)>,
    /// One sentence for each object of a kind that is not read.
    pub(super) skipped: Vec<String>,
}

/// The objects of the documents. What should be one and is not goes to `findings`.
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
        match other_kind(&map) {
            Some(kind) if alone => {
                let text = format!(
                    "kind: Unsupported value: {:?}: {}",
                    clip(kind),
                    reads_no(kind)
                );
                findings.add_for("kind", text);
            }
            Some(kind) => {
                let place = format!("document {}", document + 1);
                found.skipped.push(skipped(&place, kind, &map));
            }
            None => add(map, spot, &mut found, findings),
        }
    }
    findings.enter(&Spot::default());
    if found.objects.is_empty() && !found.skipped.is_empty() {
        let skipped = found.skipped.join("; ");
        findings.add_for_document(format!("nothing here that podprobe reads: {skipped}"));
    }
    found
}

fn no_object(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => {
            "a list is not a pod: expected a v1 Pod, or a v1 PodList with the pods in its items"
        }
        _ => "expected a v1 Pod, that is an object with apiVersion, kind, metadata and spec",
    }
}

fn skipped(place: &str, kind: &str, object: &Map<String, Value>) -> String {
    let name = object.get("metadata").and_then(|m| m["name"].as_str());
    let name = name.map(|name| format!(" {:?}", clip(name)));
    format!(
        "{place}: skipped: it is a {}{}: {}",
        clip(kind),
        name.unwrap_or_default(),
        reads_no(kind)
    )
}

/// The kinds that make pods of a template.
const WORKLOADS: [&str; 6] = [
    "Deployment",
    "DaemonSet",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
];

fn reads_no(kind: &str) -> String {
    let mut text = READ.to_owned();
    if WORKLOADS.contains(&kind) {
        text.push_str("; write what is under its spec.template as a Pod");
    }
    text
}

const READ: &str = "podprobe reads v1 Pods, ConfigMaps, Secrets and PersistentVolumeClaims";

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

/// The items of a list. In a `List`, as `kubectl get -o json` writes it, each item must name its
/// kind, and may be of one that is not read.
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
            found.skipped.push(skipped(&at, kind, &map));
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

/// The kind of an object that surely is not meant to be one that is read.
fn other_kind(map: &Map<String, Value>) -> Option<&str> {
    let kind = map.get("kind")?.as_str()?;
    let lists = LISTS.iter().map(|(name, _)| *name);
    let known = Kind::ALL.into_iter().map(Kind::name).chain(lists);
    (!kind.is_empty() && spelling::nearest(kind, known).is_none()).then_some(kind)
}

/// The kind of a v1 object if it can be used. `implied` is the kind of an object that names none.
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
    field("apiVersion", implied.map(|_| "v1"), &["v1"]);
    let kind = field("kind", implied, kinds);
    good.then_some(kind)
}

fn unsupported(path: &str, value: &str, supported: &[&str]) -> String {
    let meant = spelling::nearest(value, supported.iter().copied());
    let meant = meant.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"));
    format!(
        "{path}: Unsupported value: {}: {READ}{meant}",
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
