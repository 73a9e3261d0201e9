//! service-config.json: the objects of several sources as their readers see them.
//!
//! kube-proxy had a store for each kind with the operations SET, ADD and REMOVE of a source. Here a source always hands over
//! its whole set; the three are what changes a set before that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use podprobe::api::objects::{LocalObject, ObjectKind};
use podprobe::api::service::{ClusterIps, EndpointSlice, Service};
use podprobe::api::{PodOrigin, PodSource, decode};
use podprobe::pods::objects::{ObjectWatch, Objects};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AS_TOLD, Case, Group, Run, Verdict, ensure, group, same, unknown};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("store", Run::Each(store)),
];

/// Objects by name, each with its addresses.
type Named = BTreeMap<String, Vec<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    kind: String,
    #[serde(default = "one")]
    handlers: usize,
    #[serde(default)]
    quick: bool,
    steps: Vec<Step>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    source: String,
    op: String,
    objects: Named,
    expect: Option<Named>,
    told: Option<Vec<String>>,
}

/// A reader that is woken as the daemon's threads are: by a channel that holds one wake-up.
struct Handler {
    watch: ObjectWatch,
    woken: Receiver<()>,
}

impl Handler {
    fn new(objects: &Arc<Objects>) -> Self {
        let (wake, woken) = bounded(1);
        let watch = objects.watch(&ObjectKind::OF_SERVICES, move || _ = wake.try_send(()));
        Self { watch, woken }
    }
}

fn store(case: &Case) -> Verdict {
    let case: Store = case.fields()?;
    let objects = Arc::new(Objects::default());
    let handlers: Vec<_> = (0..case.handlers).map(|_| Handler::new(&objects)).collect();
    let mut sets: BTreeMap<PodSource, Named> = BTreeMap::new();
    for step in &case.steps {
        let source = source(&step.source)?;
        let set = sets.entry(source).or_default();
        change(set, step)?;
        objects.replace(source, decoded(&case.kind, set)?);
        match (case.quick, &step.expect, &step.told) {
            (true, None, None) => {}
            (_, Some(expected), Some(told)) => {
                for handler in &handlers {
                    look(handler, &objects, expected, told)?;
                }
            }
            _ => return Err("a step without what it shows".into()),
        }
    }
    AS_TOLD
}

/// What a handler sees when it is woken.
fn look(
    handler: &Handler,
    objects: &Objects,
    expected: &Named,
    told: &[String],
) -> Result<(), String> {
    let is_woken = handler.woken.try_recv().is_ok();
    ensure(is_woken, "the handler is woken")?;
    let changed = handler.watch.take_changed().into_iter();
    let changed: Vec<_> = changed.map(|key| key.name).collect();
    same("what has changed", told, &changed[..])?;
    let found = objects.services();
    let mut seen = Named::new();
    for (key, service) in &found.services {
        seen.insert(key.name.clone(), addresses_of(service));
    }
    for (key, slice) in &found.slices {
        let of = seen.entry(key.name.clone()).or_default();
        of.extend(endpoints_of(slice));
    }
    same("the objects", expected, &seen)?;
    ensure(handler.woken.is_empty(), "one wake-up is enough")
}

fn addresses_of(service: &Service) -> Vec<String> {
    match &service.cluster_ips {
        ClusterIps::Given(ips) => ips.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

fn endpoints_of(slice: &EndpointSlice) -> Vec<String> {
    let endpoints = slice.endpoints.iter();
    endpoints.map(|e| e.addresses[0].to_string()).collect()
}

fn source(word: &str) -> Result<PodSource, String> {
    match word {
        "one" => Ok(PodSource::File),
        "two" => Ok(PodSource::Http),
        _ => unknown("source", word),
    }
}

fn change(set: &mut Named, step: &Step) -> Result<(), String> {
    match step.op.as_str() {
        "SET" => set.clear(),
        "ADD" => {}
        "REMOVE" => {
            set.retain(|name, _| !step.objects.contains_key(name));
            return Ok(());
        }
        other => return unknown("operation", other),
    }
    set.extend(step.objects.clone());
    Ok(())
}

/// The objects as a file has them.
fn decoded(kind: &str, set: &Named) -> Result<Vec<LocalObject>, String> {
    let items: Vec<Value> = set
        .iter()
        .map(|(name, addresses)| match kind {
            "Service" => json!({
                "apiVersion": "v1", "kind": kind, "metadata": {"name": name},
                "spec": {"clusterIP": addresses[0], "ports": [{"port": 80}]},
            }),
            _ => {
                let addresses: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
                json!({
                    "apiVersion": "v1", "kind": kind, "metadata": {"name": name},
                    "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}],
                })
            }
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let origin = PodOrigin::File {
        node_name: "node1",
        path: Path::new("/pods/services.json"),
    };
    let found = decode::objects(list.to_string().as_bytes(), &origin);
    Ok(found.map_err(|e| e.to_string())?.objects)
}
