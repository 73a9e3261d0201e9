//! Counts the pods, probes and services on the node, and counts how many of these are fine.
//!
//! Invariants: pure.

use serde::Serialize;

use crate::api::PodPhase;
use crate::cli::columns::is_at_work;
use crate::cli::probe_names;
use crate::face::views::findings::{Facts, is_pass, leads_nowhere};
use crate::pods::history::ProbeHistory;

/// The numbers of pods, probes and services for the line that says that all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Number of pods that should run, without completed pods.
    pub pods: usize,
    /// Number of pods that should run and are ready.
    pub pods_ready: usize,
    /// Number of completed pods.
    pub pods_completed: usize,
    /// Number of probes of the pods that should run.
    pub probes: usize,
    /// Number of probes with a good last result.
    pub probes_passing: usize,
    /// Number of probes that a user has paused.
    pub probes_paused: usize,
    /// Number of services.
    pub services: usize,
    /// Number of services that send their clients to an endpoint.
    pub services_served: usize,
}

/// Counts the pods, probes and services.
pub fn counts(facts: &Facts<'_>) -> Counts {
    let mut counts = Counts {
        services: facts.services.len(),
        services_served: facts.services.iter().filter(|s| !leads_nowhere(s)).count(),
        ..Counts::default()
    };
    for pod in &facts.snapshot.pods {
        if pod.status.phase == PodPhase::Succeeded {
            counts.pods_completed += 1;
        }
        if !is_at_work(pod) {
            continue;
        }
        let passes = |p: &&ProbeHistory| p.runs.back().is_some_and(|r| is_pass(r.outcome));
        let history = facts.histories.get(pod.uid());
        counts.pods += 1;
        counts.pods_ready += usize::from(pod.status.is_ready());
        counts.probes += probe_names::all(pod).len();
        counts.probes_passing += history.map_or(0, |h| h.probes.iter().filter(passes).count());
        counts.probes_paused += pod.paused.len();
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::base::clock::Time;
    use crate::face::views::Snapshot;
    use crate::net::services::view::ServiceView;

    fn pod(uid: &str, phase: &str, ready: &str) -> Value {
        let probe = json!({"tcpSocket": {"port": 1}});
        let spec = json!({"containers": [{"name": "main", "readinessProbe": probe}]});
        let conditions = json!([{"type": "Ready", "status": ready}]);
        json!({"object": {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec},
            "status": {"phase": phase, "conditions": conditions},
            "file": "", "warnings": [], "terminating": false, "logDir": "", "events": []})
    }

    #[test]
    fn what_there_is_is_counted() {
        let now: Time = serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap();
        let mut paused = pod("paused", "Running", "False");
        paused["paused"] = json!([{"container": "main", "probeType": "Readiness", "until": now}]);
        let pods = [
            pod("u", "Running", "True"),
            paused,
            pod("done", "Succeeded", "False"),
        ];
        let snapshot: Snapshot = serde_json::from_value(
            json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": []}),
        )
        .unwrap();
        let run = json!({"time": now, "micros": 1, "outcome": "success", "output": ""});
        let probe = json!({"container": "main", "probeType": "Readiness", "runs": [run]});
        let history = serde_json::from_value(json!({"probes": [probe], "restarts": []})).unwrap();
        let service = |type_: &str| json!({"name": "s", "type": type_, "ports": [{"port": 80}]});
        let services = json!([service("ClusterIP"), service("ExternalName")]);
        let services: Vec<ServiceView> = serde_json::from_value(services).unwrap();
        let facts = Facts {
            snapshot: &snapshot,
            services: &services,
            workloads: &[],
            histories: HashMap::from([("u", &history)]),
            disk: None,
            now,
        };
        let expected = Counts {
            pods: 2,
            pods_ready: 1,
            pods_completed: 1,
            probes: 2,
            probes_passing: 1,
            probes_paused: 1,
            services: 2,
            services_served: 1,
        };
        assert_eq!(counts(&facts), expected);
    }
}
