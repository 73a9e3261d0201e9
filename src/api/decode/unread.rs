//! The fields of Services, EndpointSlices, Endpoints and workloads that no type reads. Each of these fields is refused, has a
//! note, or has no meaning.

use std::collections::HashSet;

use serde_json::Value;

use super::error::Findings;
use crate::api::field::{Step, clip, lookup, render};
use crate::api::service::written::{
    WrittenAddress, WrittenAffinityConfig, WrittenClientIp, WrittenConditions, WrittenEndpoint,
    WrittenEndpointPort, WrittenEndpoints, WrittenIngress, WrittenLoadBalancer, WrittenService,
    WrittenServicePort, WrittenServiceSpec, WrittenSlice, WrittenStatus, WrittenSubset,
    WrittenTarget,
};
use crate::api::source::PodSource;
use crate::api::support::fields::of;
use crate::api::support::{self, Verdict};
use crate::base::spelling;

/// A level of an object in a file: the object itself or an object inside of it. Each known field of the level is read,
/// silent or noted.
pub(super) struct Level {
    /// Path of the object without indexes.
    pub(super) at: &'static str,
    /// Names of the fields that the object's type reads.
    pub(super) read: fn() -> &'static [&'static str],
    /// Fields that have no meaning on this node and cause no note.
    pub(super) silent: &'static [&'static str],
    /// Fields that have an effect in a cluster, each with the reason why the field has no effect on this node.
    pub(super) noted: &'static [(&'static str, &'static str)],
}

pub(super) const fn level(at: &'static str, read: fn() -> &'static [&'static str]) -> Level {
    Level {
        at,
        read,
        silent: &[],
        noted: &[],
    }
}

/// Levels of a Service.
pub(super) const SERVICE: &[Level] = &[
    level("", of::<WrittenService>),
    level("spec", of::<WrittenServiceSpec>),
    level("spec.ports[]", of::<WrittenServicePort>),
    level("spec.sessionAffinityConfig", of::<WrittenAffinityConfig>),
    level("spec.sessionAffinityConfig.clientIP", of::<WrittenClientIp>),
    Level {
        silent: &["conditions"],
        ..level("status", of::<WrittenStatus>)
    },
    level("status.loadBalancer", of::<WrittenLoadBalancer>),
    Level {
        silent: &["ports"],
        ..level("status.loadBalancer.ingress[]", of::<WrittenIngress>)
    },
];

const TARGET: &[&str] = &["uid", "resourceVersion", "fieldPath", "apiVersion"];
const ONE_ZONE: &str = "every endpoint that is ready gets traffic, wherever it is";

/// Levels of an EndpointSlice.
pub(super) const SLICE: &[Level] = &[
    level("", of::<WrittenSlice>),
    Level {
        silent: &["zone", "deprecatedTopology"],
        noted: &[("hints", ONE_ZONE)],
        ..level("endpoints[]", of::<WrittenEndpoint>)
    },
    level("endpoints[].conditions", of::<WrittenConditions>),
    Level {
        silent: TARGET,
        ..level("endpoints[].targetRef", of::<WrittenTarget>)
    },
    level("ports[]", of::<WrittenEndpointPort>),
];

/// Levels of an Endpoints object.
pub(super) const ENDPOINTS: &[Level] = &[
    level("", of::<WrittenEndpoints>),
    level("subsets[]", of::<WrittenSubset>),
    level("subsets[].addresses[]", of::<WrittenAddress>),
    level("subsets[].notReadyAddresses[]", of::<WrittenAddress>),
    Level {
        silent: TARGET,
        ..level("subsets[].addresses[].targetRef", of::<WrittenTarget>)
    },
    Level {
        silent: TARGET,
        ..level(
            "subsets[].notReadyAddresses[].targetRef",
            of::<WrittenTarget>,
        )
    },
    level("subsets[].ports[]", of::<WrittenEndpointPort>),
];

/// Refuses each field that is likely misspelt. Returns a note for each other field without effect. A field that
/// occurs in many items has one note, for the first item.
pub(super) fn unread(
    levels: &[Level],
    raw: &Value,
    paths: &[Vec<Step>],
    source: PodSource,
    findings: &mut Findings,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut noted = HashSet::new();
    for path in paths {
        let Some(value) = lookup(raw, path) else {
            continue;
        };
        let verdict = match path.first() {
            Some(Step::Key(key)) if key == "metadata" => support::verdict(source, path, value),
            _ => verdict(levels, path),
        };
        match verdict {
            Verdict::Fine => {}
            Verdict::Warn(text) => {
                if noted.insert(generic(path)) {
                    notes.push(text);
                }
            }
            Verdict::Refuse { text, meant } => {
                findings.add_for(&render(path), text);
                meant.into_iter().for_each(|meant| findings.hide(&meant));
            }
        }
    }
    notes
}

fn verdict(levels: &[Level], path: &[Step]) -> Verdict {
    let at = clip(&render(path));
    let unknown = || Verdict::Warn(format!("{at}: not acted on: unknown field"));
    let Some((Step::Key(key), around)) = path.split_last() else {
        return unknown();
    };
    let around_at = generic(around);
    let Some(level) = levels.iter().find(|level| level.at == around_at) else {
        return unknown();
    };
    if level.silent.contains(&key.as_str()) {
        return Verdict::Fine;
    }
    if let Some((_, why)) = level.noted.iter().find(|(field, _)| field == key) {
        return Verdict::Warn(format!("{at}: not acted on: {why}"));
    }
    match spelling::nearest(key, (level.read)().iter().copied()) {
        Some(name) => Verdict::Refuse {
            text: format!("{at}: unknown field: did you mean \"{name}\"?"),
            meant: Some(render(&[around, &[Step::Key(name.to_owned())]].concat())),
        },
        None => unknown(),
    }
}

/// Renders the path without indexes.
fn generic(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Index(_) => text.push_str("[]"),
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
        }
    }
    text
}
