//! Finds the probes for which `POD[/CONTAINER] [TYPE]` stands.
//!
//! Invariants: pure. The error for an unknown pod, container or type names the most similar word.

use serde_json::Value;

use super::columns;
use super::suggest::did_you_mean;
use super::{kinds, names};
use crate::api::ProbeType;
use crate::api::validation::probe_field;
use crate::base::spelling::nearest;
use crate::face::views::{PodView, Snapshot};

/// A choice of probes on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSelector {
    /// Name of the pod. The node's name at the end of the pod's name may be left out.
    pub pod: String,
    /// Namespace of the pod; None means all namespaces.
    pub namespace: Option<String>,
    /// Name of the container; None means any container.
    pub container: Option<String>,
    /// Type of the probes; None means any type.
    pub probe_type: Option<ProbeType>,
}

/// The name of a container, and the type of one of its probes.
pub type NamedProbe = (String, ProbeType);

/// Parses a type of probes.
///
/// # Errors
/// Returns a sentence if there is no such type. The sentence names the three types, and the type that is most
/// similar to the word.
pub fn parse_type(word: &str) -> Result<ProbeType, String> {
    let lower = word.to_lowercase();
    let words = ProbeType::ALL.map(ProbeType::word);
    if let Some(at) = words.iter().position(|w| *w == lower) {
        return Ok(ProbeType::ALL[at]);
    }
    let likely = did_you_mean(&lower, words, "");
    Err(format!(
        "unknown probe type '{word}'{likely}; there are startup, readiness and liveness"
    ))
}

/// Parses `POD[/CONTAINER]` and an optional type. The prefix `pod/` is allowed.
pub fn parse(
    word: &str,
    probe_type: Option<&String>,
    namespace: Option<String>,
) -> Result<ProbeSelector, String> {
    let rest = word
        .split_once('/')
        .filter(|(kind, _)| kinds::is_pod_word(kind))
        .map_or(word, |(_, rest)| rest);
    let (pod, container) = rest
        .split_once('/')
        .map_or((rest, None), |(pod, container)| (pod, Some(container)));
    if pod.is_empty() || container.is_some_and(|c| c.is_empty() || c.contains('/')) {
        return Err(format!("'{word}' is not POD or POD/CONTAINER"));
    }
    Ok(ProbeSelector {
        pod: pod.into(),
        namespace,
        container: container.map(Into::into),
        probe_type: probe_type.map(|t| parse_type(t)).transpose()?,
    })
}

/// Finds the pod and its chosen probes, in the order of the spec. There is at least one probe.
///
/// # Errors
/// Returns a sentence if there is no such pod, container or probe.
pub fn select<'a>(
    snapshot: &'a Snapshot,
    wanted: &ProbeSelector,
) -> Result<(&'a PodView, Vec<NamedProbe>), String> {
    let pod = names::resolve(snapshot, wanted.namespace.as_deref(), &wanted.pod)
        .map_err(|e| e.to_string())?;
    let containers = containers(pod);
    let name = columns::name(pod);
    if let Some(c) = wanted
        .container
        .as_deref()
        .filter(|c| !containers.iter().any(|(n, _)| n == c))
    {
        let likely = nearest(c, containers.iter().map(|(n, _)| *n))
            .map(|n| format!("\ndid you mean \"{n}\"?"))
            .unwrap_or_default();
        return Err(format!("pod \"{name}\" has no container \"{c}\"{likely}"));
    }
    let all = all(pod);
    let meant = |(c, t): &&(String, ProbeType)| {
        wanted.container.as_ref().is_none_or(|w| w == c)
            && wanted.probe_type.is_none_or(|w| w == *t)
    };
    let chosen: Vec<_> = all.iter().filter(meant).cloned().collect();
    if !chosen.is_empty() {
        return Ok((pod, chosen));
    }
    let owner = wanted.container.as_ref().map_or_else(
        || format!("pod \"{name}\""),
        |c| format!("container \"{c}\""),
    );
    let what = wanted
        .probe_type
        .map_or_else(|| "probe".to_owned(), |t| format!("{} probe", t.word()));
    let there: Vec<String> = all
        .iter()
        .filter(|(c, _)| wanted.container.as_ref().is_none_or(|w| w == c))
        .map(spelled)
        .collect();
    let there = if there.is_empty() {
        String::new()
    } else {
        format!("; it has {}", there.join(", "))
    };
    Err(format!("{owner} has no {what}{there}"))
}

/// Returns all probes of a pod, in the order of the spec.
pub fn all(pod: &PodView) -> Vec<NamedProbe> {
    let of_one = |(n, c): (&str, &Value)| probes(c).map(|t| (n.to_owned(), t)).collect::<Vec<_>>();
    containers(pod).into_iter().flat_map(of_one).collect()
}

/// Returns the text for a probe, such as `container/liveness`.
pub fn spelled((container, probe_type): &NamedProbe) -> String {
    format!("{container}/{}", probe_type.word())
}

/// Returns all containers that may have probes, each with its name and its object.
fn containers(pod: &PodView) -> Vec<(&str, &Value)> {
    let spec = &pod.object["spec"];
    let list = |key: &str| spec[key].as_array().into_iter().flatten();
    list("initContainers")
        .chain(list("containers"))
        .filter_map(|c| Some((c["name"].as_str()?, c)))
        .collect()
}

fn probes(container: &Value) -> impl Iterator<Item = ProbeType> {
    ProbeType::ALL
        .into_iter()
        .filter(|t| container[probe_field(*t)].is_object())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let probe = json!({"tcpSocket": {"port": 1}});
        let containers = json!([{"name": "web", "livenessProbe": probe, "readinessProbe": probe}, {"name": "side", "livenessProbe": probe}, {"name": "bare"}]);
        serde_json::from_value(json!({"version": 1, "nodeName": "edge", "problems": [], "pods": [{
            "object": {"metadata": {"name": "app-edge", "namespace": "default", "uid": "u"}, "spec": {"containers": containers}},
            "status": {}, "file": "", "warnings": [], "terminating": false, "logDir": "", "events": []}]}))
        .unwrap()
    }

    #[track_caller]
    fn check(
        container: Option<&str>,
        probe_type: Option<ProbeType>,
        expected: Result<&[&str], &str>,
    ) {
        let wanted = ProbeSelector {
            pod: "app".into(),
            namespace: None,
            container: container.map(Into::into),
            probe_type,
        };
        let snapshot = snapshot();
        let got = select(&snapshot, &wanted)
            .map(|(_, probes)| probes.iter().map(spelled).collect::<Vec<_>>());
        assert_eq!(
            got,
            expected
                .map(|e| e.iter().map(|s| (*s).to_owned()).collect())
                .map_err(str::to_owned)
        );
    }

    #[test]
    fn what_is_left_out_means_all() {
        check(
            None,
            None,
            Ok(&["web/readiness", "web/liveness", "side/liveness"]),
        );
        check(Some("web"), None, Ok(&["web/readiness", "web/liveness"]));
        check(
            None,
            Some(ProbeType::Liveness),
            Ok(&["web/liveness", "side/liveness"]),
        );
        check(
            Some("side"),
            Some(ProbeType::Liveness),
            Ok(&["side/liveness"]),
        );
    }

    #[test]
    fn what_is_not_there_names_what_is() {
        check(
            Some("wbe"),
            None,
            Err("pod \"app-edge\" has no container \"wbe\"\ndid you mean \"web\"?"),
        );
        check(
            Some("database"),
            None,
            Err("pod \"app-edge\" has no container \"database\""),
        );
        check(Some("bare"), None, Err("container \"bare\" has no probe"));
        check(
            Some("side"),
            Some(ProbeType::Startup),
            Err("container \"side\" has no startup probe; it has side/liveness"),
        );
        check(
            None,
            Some(ProbeType::Startup),
            Err(
                "pod \"app-edge\" has no startup probe; it has web/readiness, web/liveness, side/liveness",
            ),
        );
        let wanted = ProbeSelector {
            pod: "ap".into(),
            namespace: None,
            container: None,
            probe_type: None,
        };
        assert!(
            select(&snapshot(), &wanted)
                .unwrap_err()
                .contains("did you mean \"app\"?")
        );
    }

    #[test]
    fn types_are_words() {
        assert_eq!(parse_type("Liveness"), Ok(ProbeType::Liveness));
        assert_eq!(
            parse_type("livenes").unwrap_err(),
            "unknown probe type 'livenes', did you mean 'liveness'?; there are startup, readiness and liveness"
        );
        assert_eq!(
            parse_type("health").unwrap_err(),
            "unknown probe type 'health'; there are startup, readiness and liveness"
        );
    }
}
