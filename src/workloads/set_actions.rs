//! What the controllers of StatefulSets and DaemonSets do to pods, and what they wait for.
//!
//! Invariants: pure. The texts are for a person.

use std::fmt;

use jiff::Timestamp;

use super::observed::ObservedPod;

/// A pod that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDeletion {
    /// Name of the pod.
    pub pod: String,
    /// Reason for which the pod goes.
    pub reason: DeletionReason,
}

/// The reason for which a pod of a set goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReason {
    /// The pod has ended, and a new one takes its place.
    Ended,
    /// The pod is beyond the number of pods that are wanted.
    ScaledDown,
    /// The pod is not from the newest revision.
    Outdated,
    /// The pod is not from the newest revision and holds up the update that would mend it (workloads 5.7).
    Stuck,
    /// There are more pods on the node than there may be.
    Excess,
    /// The pod may not run on this node any more.
    NodeDoesNotMatch,
}

impl DeletionReason {
    /// Returns the reason in words, as the end of "the pod is deleted because …".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "it has ended",
            Self::ScaledDown => "fewer pods are wanted",
            Self::Outdated => "it is not from the newest revision",
            Self::Stuck => "it is not ready and holds up the update",
            Self::Excess => "another pod runs in its place",
            Self::NodeDoesNotMatch => "it may not run on this node",
        }
    }
}

/// The thing that a set waits for. The text is one sentence for `describe`, without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetWait {
    /// Nothing is left to do.
    #[default]
    Nothing,
    /// The set is being deleted.
    Deletion,
    /// A pod is to end.
    PodEnd {
        /// Name of the pod.
        pod: String,
    },
    /// The name of a pod is to become free, because a pod of another owner has it.
    NameTaken {
        /// Name of the pod.
        pod: String,
    },
    /// A pod is to become ready.
    PodReady {
        /// Name of the pod, or None for a pod that has no name yet.
        pod: Option<String>,
    },
    /// A ready pod is to become available.
    PodAvailable {
        /// Name of the pod.
        pod: String,
        /// Time at which the pod becomes available, or None while no table of services knows that it is ready.
        at: Option<Timestamp>,
    },
    /// The images of a revision are to be on the node (workloads 3.22).
    Images {
        /// Name of the revision.
        revision: String,
        /// Name of the pod that stays until then.
        pod: String,
    },
    /// A person is to delete outdated pods (OnDelete).
    Person {
        /// Number of outdated pods.
        pods: usize,
    },
    /// The partition is to be lowered.
    Partition {
        /// Number of outdated pods.
        pods: usize,
        /// Number of the first pod that may be updated.
        first: i32,
    },
    /// The back-off after a pod that has ended is to pass.
    BackOff {
        /// Name of the pod that has ended.
        pod: String,
        /// Time at which the back-off is over.
        until: Timestamp,
    },
    /// The node is to match.
    Node {
        /// Reason for which the node has no pod, such as "nodeSelector does not match".
        reason: String,
    },
}

impl SetWait {
    /// Makes the wait for a pod that is not available yet. `at` is the time at which the pod becomes available.
    pub(super) fn for_pod(pod: &ObservedPod, at: Option<Timestamp>) -> Self {
        let name = pod.name.clone();
        if pod.is_deleted || pod.phase.is_terminal() {
            return Self::PodEnd { pod: name };
        }
        if pod.is_ready {
            return Self::PodAvailable { pod: name, at };
        }
        Self::PodReady { pod: Some(name) }
    }
}

impl fmt::Display for SetWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("waits for nothing"),
            Self::Deletion => f.write_str("is being deleted"),
            Self::PodEnd { pod } => write!(f, "waits for pod {pod} to end"),
            Self::NameTaken { pod } => write!(
                f,
                "waits for the name {pod}, which a pod of another owner has"
            ),
            Self::PodReady { pod: Some(pod) } => write!(f, "waits for pod {pod} to become ready"),
            Self::PodReady { pod: None } => f.write_str("waits for a new pod to become ready"),
            Self::PodAvailable { pod, at: Some(at) } => write!(
                f,
                "waits for pod {pod}, which is ready, to become available at {at} (minReadySeconds)"
            ),
            Self::PodAvailable { pod, at: None } => write!(
                f,
                "waits for the services to send to pod {pod}, which is ready"
            ),
            Self::Images { revision, pod } => write!(
                f,
                "waits for the images of revision {revision} before pod {pod} is replaced"
            ),
            Self::Person { pods } => write!(
                f,
                "waits for a person to delete {} (OnDelete)",
                outdated(*pods)
            ),
            Self::Partition { pods, first } => write!(
                f,
                "keeps {} below number {first} (partition)",
                outdated(*pods)
            ),
            Self::BackOff { pod, until } => {
                write!(f, "waits until {until} before failed pod {pod} is replaced")
            }
            Self::Node { reason } => write!(f, "has 0 of 1 pods: {reason}"),
        }
    }
}

fn outdated(pods: usize) -> String {
    match pods {
        1 => "1 outdated pod".to_owned(),
        _ => format!("{pods} outdated pods"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_one_sentence() {
        #[track_caller]
        fn check(wait: SetWait, expected: &str) {
            assert_eq!(wait.to_string(), expected);
        }
        let (pod, at) = ("db-1".to_owned(), Timestamp::from_second(90).unwrap());
        let revision = "db-x".to_owned();
        check(SetWait::Nothing, "waits for nothing");
        check(SetWait::Deletion, "is being deleted");
        check(
            SetWait::PodEnd { pod: pod.clone() },
            "waits for pod db-1 to end",
        );
        check(
            SetWait::PodReady {
                pod: Some(pod.clone()),
            },
            "waits for pod db-1 to become ready",
        );
        check(
            SetWait::NameTaken { pod: pod.clone() },
            "waits for the name db-1, which a pod of another owner has",
        );
        check(
            SetWait::PodReady { pod: None },
            "waits for a new pod to become ready",
        );
        check(
            SetWait::PodAvailable {
                pod: pod.clone(),
                at: Some(at),
            },
            "waits for pod db-1, which is ready, to become available at 1970-01-01T00:01:30Z (minReadySeconds)",
        );
        check(
            SetWait::PodAvailable {
                pod: pod.clone(),
                at: None,
            },
            "waits for the services to send to pod db-1, which is ready",
        );
        check(
            SetWait::Images {
                revision,
                pod: pod.clone(),
            },
            "waits for the images of revision db-x before pod db-1 is replaced",
        );
        check(
            SetWait::Person { pods: 1 },
            "waits for a person to delete 1 outdated pod (OnDelete)",
        );
        check(
            SetWait::Partition { pods: 2, first: 3 },
            "keeps 2 outdated pods below number 3 (partition)",
        );
        check(
            SetWait::BackOff { pod, until: at },
            "waits until 1970-01-01T00:01:30Z before failed pod db-1 is replaced",
        );
        check(
            SetWait::Node {
                reason: "nodeSelector does not match".to_owned(),
            },
            "has 0 of 1 pods: nodeSelector does not match",
        );
    }

    #[test]
    fn a_pod_is_waited_for_by_what_it_lacks() {
        #[track_caller]
        fn check(change: impl Fn(&mut ObservedPod), expected: SetWait) {
            let mut pod = ObservedPod {
                name: "p".to_owned(),
                ..ObservedPod::default()
            };
            change(&mut pod);
            assert_eq!(SetWait::for_pod(&pod, None), expected);
        }
        let pod = || "p".to_owned();
        check(|_| {}, SetWait::PodReady { pod: Some(pod()) });
        check(
            |it| it.is_ready = true,
            SetWait::PodAvailable {
                pod: pod(),
                at: None,
            },
        );
        check(
            |it| (it.is_ready, it.is_deleted) = (true, true),
            SetWait::PodEnd { pod: pod() },
        );
        check(
            |it| it.phase = crate::api::PodPhase::Failed,
            SetWait::PodEnd { pod: pod() },
        );
    }
}
