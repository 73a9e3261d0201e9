//! The kinds of Kubernetes that podprobe does not run: the meaning of each kind on one node, and the line that tells
//! users about objects of the kind.
//!
//! Invariants: pure. Only this file decides about these kinds; `validate`, `apply`, `get` and `status` show its lines.
//! A file is refused because of its kinds only if podprobe runs nothing in the file and the user would miss an object
//! of the file.

use crate::api::field::clip;

/// A sentence that lists the kinds of objects that podprobe reads.
pub(super) const READ: &str = "podprobe reads v1 Pods, ConfigMaps, Secrets, PersistentVolumeClaims, Services and Endpoints, and discovery.k8s.io/v1 EndpointSlices";

/// Largest number of names in a line. Further names are only counted.
const MOST_NAMES: usize = 5;

/// The meaning on one node of a kind that podprobe does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The kind matters only to an API server or its controllers. Users do not miss an object of this kind, and no
    /// line mentions the kind.
    Meaningless,
    /// The kind makes pods from a template, so its pods are missing.
    Workload,
    /// The kind is neither meaningless nor a known workload, so a user may miss an object of this kind.
    Other,
}

/// Kinds of Kubernetes' own groups that only matter to an API server.
const MEANINGLESS: [&str; 15] = [
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
];

/// Kinds that make pods, each with the path of its pod template.
const WORKLOADS: [(&str, &str); 7] = [
    ("Deployment", "spec.template"),
    ("DaemonSet", "spec.template"),
    ("StatefulSet", "spec.template"),
    ("ReplicaSet", "spec.template"),
    ("ReplicationController", "spec.template"),
    ("Job", "spec.template"),
    ("CronJob", "spec.jobTemplate.spec.template"),
];

/// Advice what to do instead, for kinds that users often have.
const INSTEAD: [(&str, &str); 5] = [
    (
        "Ingress",
        "a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod",
    ),
    (
        "NetworkPolicy",
        "nothing restricts the connections of pods here",
    ),
    (
        "PersistentVolume",
        "a claim is a directory of its own here, and needs no volume",
    ),
    (
        "HorizontalPodAutoscaler",
        "a pod is there once, however busy it is",
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
        kind if template(kind).is_some() => Standing::Workload,
        _ => Standing::Other,
    }
}

fn template(kind: &str) -> Option<&'static str> {
    let mut all = WORKLOADS.iter();
    all.find(|(workload, _)| *workload == kind)
        .map(|(_, template)| *template)
}

/// Returns the text `not run here: …` with advice what to do instead.
pub(super) fn not_run_here(kind: &str) -> String {
    let instead = INSTEAD.iter().find(|(other, _)| *other == kind);
    match (template(kind), instead) {
        (Some(template), _) => {
            format!("not run here: write what is under its {template} as a Pod")
        }
        (None, Some((_, instead))) => format!("not run here: {instead}"),
        (None, None) => format!("not run here: {READ}"),
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

    /// Returns one line for each kind that makes pods. These pods are missing, because the objects are not run.
    pub(super) fn of_workloads(&self) -> Vec<String> {
        let is_workload = |of: &&OfKind| of.standing == Standing::Workload;
        self.0
            .iter()
            .filter(is_workload)
            .map(OfKind::line)
            .collect()
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
        assert_eq!(standing("CronJob", false), Standing::Workload);
        assert_eq!(standing("NetworkPolicy", false), Standing::Other);
        for (workload, _) in WORKLOADS {
            assert!(!MEANINGLESS.contains(&workload));
        }
    }

    #[test]
    fn a_kind_has_one_line_with_its_names() {
        let mut all = NotRun::default();
        all.add("Deployment", false, Some("web"));
        all.add("Namespace", false, Some("shop"));
        all.add("Ingress", false, None);
        all.add("Deployment", false, Some("db"));
        let deployments = "Deployment \"web\", \"db\": not run here: write what is under its spec.template as a Pod";
        let ingress = "Ingress (1 of them): not run here: a Service of type NodePort or LoadBalancer, or a hostPort, leads to a pod";
        assert_eq!(all.lines(), [deployments, ingress]);
        assert_eq!(all.of_workloads(), [deployments]);
        for n in 0..7 {
            all.add("Job", false, Some(&n.to_string()));
        }
        let jobs = all.lines().pop().unwrap();
        assert!(
            jobs.starts_with("Job \"0\", \"1\", \"2\", \"3\", \"4\" and 2 more: not run here"),
            "{jobs}"
        );
    }
}
