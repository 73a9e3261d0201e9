//! The kinds of Kubernetes that podprobe does not run: the meaning of each kind on one node, and the line that tells
//! users about objects of the kind.
//!
//! Invariants: pure. Only this file decides about these kinds; `validate`, `apply`, `get` and `status` show its lines.
//! A file is refused because of its kinds only if podprobe runs nothing in the file and the user would miss an object
//! of the file.

use crate::api::field::clip;

/// A sentence that lists the kinds of objects that podprobe reads.
pub(super) const READ: &str = "podprobe reads v1 Pods, ReplicationControllers, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, apps/v1 Deployments, ReplicaSets, DaemonSets and StatefulSets, batch/v1 Jobs and CronJobs, and discovery.k8s.io/v1 EndpointSlices";

/// Largest number of names in a line. Further names are only counted.
const MOST_NAMES: usize = 5;

/// The meaning on one node of a kind that podprobe does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The kind matters only to an API server or its controllers. Users do not miss an object of this kind, and no
    /// line mentions the kind.
    Meaningless,
    /// People rely on objects of the kind for the safety of their pods, and do not see that the objects have no effect.
    Relied,
    /// A user may miss an object of this kind.
    Other,
}

/// Kinds of Kubernetes' own groups that only matter to an API server.
const MEANINGLESS: [&str; 17] = [
    "Namespace",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceQuota",
    "StorageClass",
    "IngressClass",
    "CustomResourceDefinition",
    "APIService",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Advice what to do instead, for kinds that users often have.
const INSTEAD: [(&str, &str); 8] = [
    (
        "Ingress",
        "a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod",
    ),
    (
        "HTTPRoute",
        "a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod",
    ),
    (
        "Gateway",
        "a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod",
    ),
    (
        "NetworkPolicy",
        "it is NOT enforced: nothing restricts the connections of pods here",
    ),
    (
        "PersistentVolume",
        "a claim is a directory of its own here, and needs no volume",
    ),
    (
        "HorizontalPodAutoscaler",
        "nothing scales by load here: write the number of pods into spec.replicas",
    ),
    (
        "VerticalPodAutoscaler",
        "requests and limits of pods are as written",
    ),
    ("LimitRange", "write the limits into the pods"),
];

/// Returns the meaning of a kind. `is_foreign` is true for a kind of a group that somebody has added to the API.
pub(super) fn standing(kind: &str, is_foreign: bool) -> Standing {
    if is_foreign {
        return Standing::Other;
    }
    match kind {
        kind if MEANINGLESS.contains(&kind) => Standing::Meaningless,
        "NetworkPolicy" => Standing::Relied,
        _ => Standing::Other,
    }
}

/// Returns the text `not run here: …` with advice what to do instead.
pub(super) fn not_run_here(kind: &str) -> String {
    let instead = INSTEAD.iter().find(|(other, _)| *other == kind);
    match instead {
        Some((_, instead)) => format!("not run here: {instead}"),
        None => format!("not run here: {READ}"),
    }
}

/// The objects in a file that are of one kind. Podprobe does not run objects of this kind.
#[derive(Debug, PartialEq)]
struct OfKind {
    kind: String,
    standing: Standing,
    /// Names of the first objects of the kind. Objects without a name are left out.
    names: Vec<String>,
    count: usize,
}

/// All objects of a file that podprobe does not run, by kind.
#[derive(Debug, Default)]
pub(super) struct NotRun(Vec<OfKind>);

impl NotRun {
    pub(super) fn add(&mut self, kind: &str, is_foreign: bool, name: Option<&str>) {
        let at = self.0.iter().position(|of| of.kind == kind);
        let at = at.unwrap_or_else(|| {
            self.0.push(OfKind {
                kind: kind.to_owned(),
                standing: standing(kind, is_foreign),
                names: Vec::new(),
                count: 0,
            });
            self.0.len() - 1
        });
        let of = &mut self.0[at];
        of.count += 1;
        if let Some(name) = name.filter(|_| of.names.len() < MOST_NAMES) {
            of.names.push(format!("{:?}", clip(name)));
        }
    }

    /// Returns one line for each kind that the user may miss, in the order of the file.
    pub(super) fn lines(&self) -> Vec<String> {
        let told = |of: &&OfKind| of.standing != Standing::Meaningless;
        self.0.iter().filter(told).map(OfKind::line).collect()
    }

    /// Returns one line for each kind that people rely on.
    pub(super) fn of_relied(&self) -> Vec<String> {
        let is_relied = |of: &&OfKind| of.standing == Standing::Relied;
        self.0.iter().filter(is_relied).map(OfKind::line).collect()
    }
}

impl OfKind {
    /// Returns the line of the kind, such as `Deployment "web", "db": not run here: …`.
    fn line(&self) -> String {
        let names = match (self.names.join(", "), self.count - self.names.len()) {
            (names, 0) => format!(" {names}"),
            (names, _) if names.is_empty() => format!(" ({} of them)", self.count),
            (names, more) => format!(" {names} and {more} more"),
        };
        format!("{}{names}: {}", clip(&self.kind), not_run_here(&self.kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_standing() {
        assert_eq!(standing("ServiceAccount", false), Standing::Meaningless);
        assert_eq!(standing("Role", true), Standing::Other);
        assert_eq!(standing("NetworkPolicy", false), Standing::Relied);
        assert_eq!(standing("NetworkPolicy", true), Standing::Other);
        assert_eq!(standing("Ingress", false), Standing::Other);
        assert_eq!(
            not_run_here("NetworkPolicy"),
            "not run here: it is NOT enforced: nothing restricts the connections of pods here"
        );
    }

    #[test]
    fn a_kind_has_one_line_with_its_names() {
        let mut all = NotRun::default();
        all.add("HorizontalPodAutoscaler", false, Some("web"));
        all.add("Namespace", false, Some("shop"));
        all.add("Ingress", false, None);
        all.add("HorizontalPodAutoscaler", false, Some("db"));
        let scalers = "HorizontalPodAutoscaler \"web\", \"db\": not run here: nothing scales by load here: write the number of pods into spec.replicas";
        let ingress = "Ingress (1 of them): not run here: a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod";
        assert_eq!(all.lines(), [scalers, ingress]);
        assert_eq!(all.of_relied(), [""; 0]);
        all.add("NetworkPolicy", false, Some("closed"));
        assert_eq!(
            all.of_relied(),
            [
                "NetworkPolicy \"closed\": not run here: it is NOT enforced: nothing restricts the connections of pods here"
            ]
        );
        for n in 0..7 {
            all.add("LimitRange", false, Some(&n.to_string()));
        }
        let ranges = all.lines().pop().unwrap();
        assert!(
            ranges.starts_with(
                "LimitRange \"0\", \"1\", \"2\", \"3\", \"4\" and 2 more: not run here"
            ),
            "{ranges}"
        );
    }
}
