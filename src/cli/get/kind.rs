//! The kinds that `get` lists, with their words on the command line and the columns of their tables.

use super::super::suggest::did_you_mean;
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads;

/// A kind of objects that `get` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pods, and pod files that are refused.
    Pods,
    /// Workloads of a kind: what makes pods from a template.
    Workload(WorkloadKind),
    /// The probes of pods, which kubectl does not list.
    Probes,
    /// Events of pods.
    Events,
    /// Images on the node.
    Images,
    /// Services in the daemon's files.
    Services,
    /// Endpoints: the addresses to which connections to a service go.
    Endpoints,
    /// EndpointSlices, the newer form of Endpoints in Kubernetes.
    EndpointSlices,
    /// ConfigMaps in the daemon's files.
    ConfigMaps,
    /// Secrets in the daemon's files.
    Secrets,
    /// Claims in the daemon's files.
    PersistentVolumeClaims,
}

/// The fixed properties of a kind.
pub struct Facts {
    /// The words for the kind on the command line. Errors use the first word.
    pub words: &'static [&'static str],
    /// The word before the name in `-o name`.
    pub prefix: &'static str,
    /// The columns of the table after NAMESPACE.
    pub columns: &'static [&'static str],
    /// The columns that `-o wide` adds.
    pub wide: &'static [&'static str],
    /// True if `-l` can select objects of the kind by labels.
    pub has_labels: bool,
    /// True if `-w` can show changes of the kind.
    pub is_watched: bool,
}

impl Kind {
    /// Every kind, in the order of the help text.
    pub const ALL: [Self; 17] = [
        Self::Pods,
        Self::Workload(WorkloadKind::Deployment),
        Self::Workload(WorkloadKind::ReplicaSet),
        Self::Workload(WorkloadKind::ReplicationController),
        Self::Workload(WorkloadKind::DaemonSet),
        Self::Workload(WorkloadKind::StatefulSet),
        Self::Workload(WorkloadKind::Job),
        Self::Workload(WorkloadKind::CronJob),
        Self::Probes,
        Self::Events,
        Self::Images,
        Self::Services,
        Self::Endpoints,
        Self::EndpointSlices,
        Self::ConfigMaps,
        Self::Secrets,
        Self::PersistentVolumeClaims,
    ];

    /// Returns the kind for this word. As with kubectl, the API group may follow the word, with the version before it:
    /// `deployments.apps` or `deployments.v1.apps`. Upper and lower case are equal.
    pub fn of(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group.strip_prefix("v1.").unwrap_or(group))),
            None => (word.as_str(), None),
        };
        let is_it = |facts: Facts| {
            let own = facts.prefix.split_once('.').map(|(_, own)| own);
            facts.words.contains(&name) && (group.is_none() || group == own)
        };
        Self::ALL.into_iter().find(|kind| is_it(kind.facts()))
    }

    /// Returns the plural word, such as `pods` or `services`.
    pub fn plural(self) -> &'static str {
        self.facts().words[0]
    }

    /// Returns the word for the kind in front of a name that is not found, such as `pods` or `deployments.apps`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Workload(kind) => workloads::plural(kind),
            other => other.plural(),
        }
    }

    /// Returns the fixed properties of the kind.
    pub fn facts(self) -> Facts {
        let plain = Facts {
            words: &[],
            prefix: "",
            columns: &[],
            wide: &[],
            has_labels: false,
            is_watched: false,
        };
        match self {
            Self::Pods => Facts {
                words: &["pods", "pod", "po"],
                prefix: "pod",
                columns: &["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
                wide: &["IP", "NODE", "READINESS GATES", "PAUSED", "FILE"],
                has_labels: true,
                is_watched: true,
            },
            Self::Workload(kind) => of_workload(kind),
            Self::Probes => Facts {
                words: &["probes", "probe"],
                prefix: "probe",
                columns: &[
                    "POD",
                    "CONTAINER",
                    "TYPE",
                    "RESULT",
                    "SINCE",
                    "LATENCY",
                    "FAILURES",
                    "PAUSED",
                    "PROBE",
                ],
                wide: &["SAID"],
                has_labels: true,
                ..plain
            },
            Self::Events => Facts {
                words: &["events", "event", "ev"],
                prefix: "event",
                columns: &["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"],
                is_watched: true,
                ..plain
            },
            Self::Images => Facts {
                words: &["images", "image"],
                prefix: "image",
                columns: &["IMAGE", "IMAGE ID", "SIZE"],
                wide: &["CREATED"],
                ..plain
            },
            Self::Services => Facts {
                words: &["services", "service", "svc"],
                prefix: "service",
                columns: &[
                    "NAME",
                    "TYPE",
                    "CLUSTER-IP",
                    "EXTERNAL-IP",
                    "PORT(S)",
                    "AGE",
                ],
                wide: &["SELECTOR"],
                has_labels: true,
                ..plain
            },
            Self::Endpoints => Facts {
                words: &["endpoints", "ep"],
                prefix: "endpoints",
                columns: &["NAME", "ENDPOINTS", "AGE"],
                has_labels: true,
                ..plain
            },
            Self::EndpointSlices => Facts {
                words: &["endpointslices", "endpointslice"],
                prefix: "endpointslice.discovery.k8s.io",
                columns: &["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"],
                has_labels: true,
                ..plain
            },
            Self::ConfigMaps => Facts {
                words: &["configmaps", "configmap", "cm"],
                prefix: "configmap",
                columns: &["NAME", "DATA"],
                has_labels: true,
                ..plain
            },
            Self::Secrets => Facts {
                words: &["secrets", "secret"],
                prefix: "secret",
                columns: &["NAME", "TYPE", "DATA"],
                has_labels: true,
                ..plain
            },
            Self::PersistentVolumeClaims => Facts {
                words: &["persistentvolumeclaims", "persistentvolumeclaim", "pvc"],
                prefix: "persistentvolumeclaim",
                columns: &["NAME", "STATUS", "VOLUME"],
                has_labels: true,
                ..plain
            },
        }
    }
}

/// The columns of ReplicaSets and ReplicationControllers.
const REPLICAS: &[&str] = &["NAME", "DESIRED", "CURRENT", "READY", "AGE"];
/// The columns that `-o wide` adds for workloads.
const WIDE: &[&str] = &["CONTAINERS", "IMAGES", "SELECTOR", "FILE"];

/// Returns the fixed properties of a kind of workload. The columns are kubectl's, and then the file.
fn of_workload(kind: WorkloadKind) -> Facts {
    let (words, columns): (&'static [&'static str], &'static [&'static str]) = match kind {
        WorkloadKind::Deployment => (
            &["deployments", "deployment", "deploy"],
            &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"],
        ),
        WorkloadKind::ReplicaSet => (&["replicasets", "replicaset", "rs"], REPLICAS),
        WorkloadKind::ReplicationController => (
            &["replicationcontrollers", "replicationcontroller", "rc"],
            REPLICAS,
        ),
        WorkloadKind::DaemonSet => (
            &["daemonsets", "daemonset", "ds"],
            &[
                "NAME",
                "DESIRED",
                "CURRENT",
                "READY",
                "UP-TO-DATE",
                "AVAILABLE",
                "NODE SELECTOR",
                "AGE",
            ],
        ),
        WorkloadKind::StatefulSet => (
            &["statefulsets", "statefulset", "sts"],
            &["NAME", "READY", "AGE"],
        ),
        WorkloadKind::Job => (
            &["jobs", "job"],
            &["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"],
        ),
        WorkloadKind::CronJob => (
            &["cronjobs", "cronjob", "cj"],
            &[
                "NAME",
                "SCHEDULE",
                "TIMEZONE",
                "SUSPEND",
                "ACTIVE",
                "LAST SCHEDULE",
                "AGE",
            ],
        ),
    };
    let wide = match kind {
        WorkloadKind::StatefulSet => &["CONTAINERS", "IMAGES", "FILE"],
        _ => WIDE,
    };
    Facts {
        words,
        prefix: workloads::word(kind),
        columns,
        wide,
        has_labels: true,
        is_watched: true,
    }
}

/// The word `all`, and the kinds for which it stands, in kubectl's order.
const ALL: (&str, [Kind; 9]) = (
    "all",
    [
        Kind::Pods,
        Kind::Workload(WorkloadKind::ReplicationController),
        Kind::Services,
        Kind::Workload(WorkloadKind::DaemonSet),
        Kind::Workload(WorkloadKind::Deployment),
        Kind::Workload(WorkloadKind::ReplicaSet),
        Kind::Workload(WorkloadKind::StatefulSet),
        Kind::Workload(WorkloadKind::CronJob),
        Kind::Workload(WorkloadKind::Job),
    ],
);

/// A kind and the requested names; an empty list means all objects of the kind.
pub type Asked = (Kind, Vec<String>);

/// Parses the kinds and names in `KIND[,KIND]… [NAME]…` or `KIND/NAME…`.
///
/// # Errors
/// Returns a sentence if there is no such kind. The sentence names the most similar kind.
pub fn targets(words: &[String]) -> Result<Vec<Asked>, String> {
    let first = words
        .first()
        .ok_or("'get' needs what to show: podprobe get pods")?;
    let is_list = |word: &str| !word.contains('/') && (word.contains(',') || word == ALL.0);
    if is_list(first) {
        return of_list(first, &words[1..]);
    }
    let kind_of = |word: &str| word.split_once('/').and_then(|(kind, _)| Kind::of(kind));
    let has_pairs = words.iter().all(|word| kind_of(word).is_some());
    let mut all: Vec<Asked> = Vec::new();
    match has_pairs {
        // Pairs such as `pod/a svc/b`. Names of the same kind are grouped, because each kind has one table.
        true => {
            for word in words {
                let (kind, names) = target(std::slice::from_ref(word))?;
                match all.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, known)) => known.extend(names),
                    None => all.push((kind, names)),
                }
            }
        }
        false => all.push(target(words)?),
    }
    Ok(all)
}

/// Parses a list of kinds, such as `svc,ep` or `all`. Each kind gets the same names.
fn of_list(kinds: &str, names: &[String]) -> Result<Vec<Asked>, String> {
    let mut all: Vec<Asked> = Vec::new();
    for word in kinds.split(',').filter(|word| !word.is_empty()) {
        let found = match word == ALL.0 {
            true => ALL.1.to_vec(),
            false => vec![Kind::of(word).ok_or_else(|| unknown(word, true))?],
        };
        for kind in found {
            if !all.iter().any(|(known, _)| *known == kind) {
                let names = names.iter().map(|name| named(kind, name));
                all.push((kind, names.collect::<Result<_, _>>()?));
            }
        }
    }
    match (kinds == ALL.0 && !names.is_empty(), all.is_empty()) {
        (true, _) => Err("'get all' takes no names: write pods NAME, or services NAME".into()),
        (_, true) => Err("'get' needs what to show: podprobe get pods".into()),
        _ => Ok(all),
    }
}

/// Parses one kind with its names, in `KIND [NAME]…` or `KIND/NAME…`.
fn target(words: &[String]) -> Result<Asked, String> {
    let first = words.first().map_or("", String::as_str);
    let (word, is_pair) = match first.split_once('/') {
        Some((word, _)) => (word, true),
        None => (first, false),
    };
    let kind = Kind::of(word).ok_or_else(|| unknown(word, is_pair))?;
    let names = match is_pair {
        true => words,
        false => &words[1..],
    };
    let names = names.iter().map(|name| named(kind, name));
    Ok((kind, names.collect::<Result<_, _>>()?))
}

/// Parses `NAME` or `KIND/NAME`. Names of probes and images may contain slashes.
fn named(kind: Kind, word: &str) -> Result<String, String> {
    let Some((before, name)) = word.split_once('/') else {
        return Ok(word.to_owned());
    };
    match Kind::of(before) {
        Some(other) if other == kind && !name.is_empty() => Ok(name.to_owned()),
        // Probes and events are requested by the name of a pod, and events also by the name of a workload.
        Some(Kind::Pods) if kind == Kind::Probes || kind == Kind::Events => Ok(name.to_owned()),
        Some(Kind::Workload(of)) if kind == Kind::Events && !name.is_empty() => {
            Ok(format!("{of}/{name}"))
        }
        _ if matches!(kind, Kind::Probes | Kind::Images) => Ok(word.to_owned()),
        _ => Err(format!(
            "'{word}' is none of the {}; several kinds are 'get pods,services', or KIND/NAME each",
            kind.plural()
        )),
    }
}

fn unknown(word: &str, is_pair: bool) -> String {
    // Very short words are not suggested, because a very short word resembles any word.
    let words = Kind::ALL.into_iter().flat_map(|kind| kind.facts().words);
    let likely = did_you_mean(word, words.copied().filter(|w| w.len() > 3), "");
    if !likely.is_empty() {
        return format!("unknown kind '{word}'{likely}");
    }
    let there = Kind::ALL.map(Kind::plural).join(", ");
    match is_pair {
        true => format!("'{word}' is not a kind that podprobe knows; there are {there}"),
        false => format!(
            "'{word}' is not a kind that podprobe knows; for the pod of that name write 'podprobe get pods {word}'; the kinds are {there}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Result<(Kind, &[&str]), &str>) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let expected =
            expected.map(|(kind, names)| (kind, names.iter().map(|n| (*n).to_owned()).collect()));
        let expected = expected.map(|one| vec![one]);
        assert_eq!(targets(&words), expected.map_err(str::to_owned), "{line}");
    }

    #[track_caller]
    fn check_several(line: &str, expected: Result<&[(Kind, &[&str])], &str>) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let one = |(kind, names): &(Kind, &[&str])| {
            (*kind, names.iter().map(|n| (*n).to_owned()).collect())
        };
        let expected = expected.map(|all| all.iter().map(one).collect());
        assert_eq!(targets(&words), expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn several_kinds_are_a_list_or_pairs() {
        let both: &[(Kind, &[&str])] = &[(Kind::Services, &[]), (Kind::Endpoints, &[])];
        check_several("svc,ep", Ok(both));
        check_several("svc,ep,services", Ok(both));
        let all: Vec<(Kind, &[&str])> = ALL.1.iter().map(|kind| (*kind, &[][..])).collect();
        check_several("all", Ok(&all));
        let with_cm = [all, vec![(Kind::ConfigMaps, &[])]].concat();
        check_several("all,cm", Ok(&with_cm));
        let named: &[(Kind, &[&str])] = &[(Kind::Services, &["web"]), (Kind::Endpoints, &["web"])];
        check_several("svc,ep web", Ok(named));
        let pairs: &[(Kind, &[&str])] = &[(Kind::Pods, &["a", "c"]), (Kind::Services, &["b"])];
        check_several("pod/a svc/b po/c", Ok(pairs));
        check_several(
            "all web",
            Err("'get all' takes no names: write pods NAME, or services NAME"),
        );
        check_several(",", Err("'get' needs what to show: podprobe get pods"));
        check_several("svc,podz", Err("unknown kind 'podz', did you mean 'pods'?"));
    }

    #[test]
    fn kinds_have_kubectls_words() {
        for word in ["pods", "pod", "po"] {
            check(word, Ok((Kind::Pods, &[])));
        }
        for word in ["services", "service", "svc"] {
            check(word, Ok((Kind::Services, &[])));
        }
        check("pods a b", Ok((Kind::Pods, &["a", "b"])));
        check("pod/a po/b", Ok((Kind::Pods, &["a", "b"])));
        check("pods pod/a b", Ok((Kind::Pods, &["a", "b"])));
        check("svc/web", Ok((Kind::Services, &["web"])));
        check("events pod/a", Ok((Kind::Events, &["a"])));
        check("events deploy/a", Ok((Kind::Events, &["Deployment/a"])));
        check("probes a/main pod/b", Ok((Kind::Probes, &["a/main", "b"])));
        check(
            "images docker.io/library/a:1",
            Ok((Kind::Images, &["docker.io/library/a:1"])),
        );
    }

    #[test]
    fn workloads_have_kubectls_words() {
        let of = |kind| Kind::Workload(kind);
        for (words, kind) in [
            (
                "deployments deployment deploy Deployment",
                WorkloadKind::Deployment,
            ),
            (
                "deployment.apps deploy.apps deployments.v1.apps",
                WorkloadKind::Deployment,
            ),
            (
                "replicasets replicaset rs rs.apps",
                WorkloadKind::ReplicaSet,
            ),
            (
                "replicationcontrollers rc",
                WorkloadKind::ReplicationController,
            ),
            ("daemonsets daemonset ds", WorkloadKind::DaemonSet),
            ("statefulsets statefulset sts", WorkloadKind::StatefulSet),
            ("jobs job job.batch", WorkloadKind::Job),
            ("cronjobs cronjob cj cronjobs.batch", WorkloadKind::CronJob),
        ] {
            for word in words.split(' ') {
                check(word, Ok((of(kind), &[])));
                check(&format!("{word}/web"), Ok((of(kind), &["web"])));
            }
        }
        assert_eq!(Kind::of("deployments.batch"), None);
        assert_eq!(Kind::of("rc.apps"), None);
        assert_eq!(Kind::of("pods.apps"), None);
    }

    #[test]
    fn no_word_stands_for_two_kinds() {
        let words: Vec<&str> = Kind::ALL
            .iter()
            .flat_map(|k| k.facts().words)
            .copied()
            .collect();
        let set: std::collections::BTreeSet<&str> = words.iter().copied().collect();
        assert_eq!(set.len(), words.len());
    }

    #[test]
    fn what_is_no_kind_gets_the_likely_one_or_the_command_for_a_pod() {
        let all = "pods, deployments, replicasets, replicationcontrollers, daemonsets, statefulsets, jobs, cronjobs, probes, events, images, services, endpoints, endpointslices, configmaps, secrets, persistentvolumeclaims";
        check("", Err("'get' needs what to show: podprobe get pods"));
        check("podz", Err("unknown kind 'podz', did you mean 'pods'?"));
        check("evnts", Err("unknown kind 'evnts', did you mean 'events'?"));
        check(
            "secert/x",
            Err("unknown kind 'secert', did you mean 'secret'?"),
        );
        let unknown = "is not a kind that podprobe knows";
        let command = "for the pod of that name write 'podprobe get pods nodes'";
        check(
            "nodes",
            Err(&format!(
                "'nodes' {unknown}; {command}; the kinds are {all}"
            )),
        );
        check(
            "nodes/a",
            Err(&format!("'nodes' {unknown}; there are {all}")),
        );
        check(
            "pods svc/a",
            Err(
                "'svc/a' is none of the pods; several kinds are 'get pods,services', or KIND/NAME each",
            ),
        );
        check(
            "pod/",
            Err(
                "'pod/' is none of the pods; several kinds are 'get pods,services', or KIND/NAME each",
            ),
        );
    }
}
