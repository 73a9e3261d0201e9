//! podprobe's own part of the server's interface, below [`API`]: the requests of podprobe's verbs that the kubelet's
//! paths do not cover.
//!
//! Invariants: server and client use these types and paths and nothing else. A body is JSON of at most [`MAX_BODY`]
//! bytes. An answer is the JSON of the type that belongs to the path, or a status of 400 or more with a sentence.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::conditions::ConditionChange;
use crate::api::{PodUid, ProbeType};

/// The prefix of podprobe's own paths. A change that older clients cannot read gets another version number in the
/// prefix.
pub const API: &str = "/podprobe/v1";

/// Largest body of a request in bytes.
pub const MAX_BODY: usize = 64 << 10;

/// Longest grace period of a deletion in seconds: the largest int32.
pub const MAX_GRACE: i64 = i32::MAX as i64;

/// Longest time that a `watch` waits for a change. After this time, the request is answered with the current state.
pub const WATCH_CEILING: Duration = Duration::from_secs(30);

/// A probe to run: the body of `POST /podprobe/v1/probe`, which runs the probe and answers with a
/// [`ProbeReport`](crate::face::views::ProbeReport).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeTarget {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The name of the container.
    pub container: String,
    /// The type of the probe.
    pub probe_type: ProbeType,
}

/// Some probes of a pod: the body of `POST /podprobe/v1/resume`, which answers with the names of the resumed probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseTarget {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The name of the container; None means all containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The type of the probes; None means all three types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_type: Option<ProbeType>,
}

/// The body of `POST /podprobe/v1/pause`, which answers with the names of the paused probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The probes to pause.
    #[serde(flatten)]
    pub target: PauseTarget,
    /// The length of the pause in seconds: 1 to 604800 (a week).
    pub seconds: u64,
}

/// The body of `POST /podprobe/v1/restart`, which answers with the names of the restarted containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestartTarget {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The name of the container; None means all containers that can restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// The body of `POST /podprobe/v1/delete`, which answers with a [`Deleted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteTarget {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The grace period, 0 to 2147483647 seconds; None means the pod's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
}

/// The answer to a deletion. The pod ends, and does not start again until its file changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The pod's file. A change of this file starts the pod anew.
    pub file: String,
}

/// The body of `POST /podprobe/v1/drain`, which answers with a [`NodeOrders`] as soon as the order is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrainRequest {
    /// The grace period, 0 to 2147483647 seconds; None means each pod's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// True if the node shuts down: its pods end in the configured time, and start at the next boot.
    #[serde(default)]
    pub for_shutdown: bool,
}

/// The body of `POST /podprobe/v1/uncordon`, which answers with a [`NodeOrders`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UncordonRequest {
    /// True if a shutdown is taken back, and not a cordon or a drain.
    #[serde(default)]
    pub for_shutdown: bool,
}

/// The orders that hold for all pods of the node: the answer of `GET /podprobe/v1/node`, and to a request that changes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOrders {
    /// The name of the node.
    pub node_name: String,
    /// True if the request has changed something.
    #[serde(default)]
    pub changed: bool,
    /// The order under which no pod starts; None if pods start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<ClosedBy>,
    /// True while pods are to end.
    #[serde(default)]
    pub is_under_way: bool,
    /// The pods that have not ended yet, as `name in namespace`, in the order in which they end. The answer to a drain lists
    /// those that had not ended when the request came.
    #[serde(default)]
    pub left: Vec<String>,
    /// The time in seconds in which the pods of the node end at a shutdown.
    #[serde(default)]
    pub shutdown_seconds: u64,
}

/// The order under which no pod starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClosedBy {
    /// The node is cordoned.
    Cordon,
    /// The node is drained.
    Drain,
    /// The node shuts down.
    Shutdown,
}

/// The body of `POST /podprobe/v1/condition`, which answers with a [`ConditionSet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The condition and its new value. Without a status the condition is removed.
    #[serde(flatten)]
    pub change: ConditionChange,
}

/// The result of a change of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionSet {
    /// True if the condition was changed; false if it already had the new value.
    pub changed: bool,
    /// The reason why the change is not on disk; None if the change is on disk. A change that is not on disk is lost
    /// when the daemon ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_stored: Option<String>,
}

/// The answer of `PUT /podprobe/v1/files/…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Number of files and links that were written.
    pub files: u64,
    /// Size in bytes of the files that were written.
    pub bytes: u64,
    /// Sentences about the things that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The answer of `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The daemon's version.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::ConditionStatus;

    #[track_caller]
    fn check<T>(body: &T, json: &str)
    where
        T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        assert_eq!(serde_json::to_string(body).unwrap(), json);
        assert_eq!(&serde_json::from_str::<T>(json).unwrap(), body);
    }

    #[test]
    fn bodies_have_one_form() {
        let target = ProbeTarget {
            uid: "u".into(),
            container: "c".into(),
            probe_type: ProbeType::Startup,
        };
        check(
            &target,
            r#"{"uid":"u","container":"c","probeType":"Startup"}"#,
        );
        let all = PauseTarget {
            uid: "u".into(),
            container: None,
            probe_type: None,
        };
        check(&all, r#"{"uid":"u"}"#);
        let pause = Pause {
            target: PauseTarget {
                container: Some("c".into()),
                probe_type: Some(ProbeType::Liveness),
                ..all
            },
            seconds: 60,
        };
        check(
            &pause,
            r#"{"uid":"u","container":"c","probeType":"Liveness","seconds":60}"#,
        );
        let restart = RestartTarget {
            uid: "u".into(),
            container: Some("c".into()),
        };
        check(&restart, r#"{"uid":"u","container":"c"}"#);
        let delete = DeleteTarget {
            uid: "u".into(),
            grace_period_seconds: Some(1),
        };
        check(&delete, r#"{"uid":"u","gracePeriodSeconds":1}"#);
        let drain = DrainRequest {
            grace_period_seconds: Some(1),
            for_shutdown: false,
        };
        check(&drain, r#"{"gracePeriodSeconds":1,"forShutdown":false}"#);
        let uncordon = UncordonRequest { for_shutdown: true };
        check(&uncordon, r#"{"forShutdown":true}"#);
        let orders = NodeOrders {
            node_name: "edge".into(),
            changed: true,
            closed: Some(ClosedBy::Drain),
            is_under_way: true,
            left: vec!["web in default".into()],
            shutdown_seconds: 30,
        };
        check(
            &orders,
            r#"{"nodeName":"edge","changed":true,"closed":"drain","isUnderWay":true,"left":["web in default"],"shutdownSeconds":30}"#,
        );
        let condition = |status| Condition {
            uid: "u".into(),
            change: ConditionChange {
                type_: "a/b".into(),
                status,
                reason: String::new(),
                message: String::new(),
            },
        };
        check(
            &condition(Some(ConditionStatus::False)),
            r#"{"uid":"u","type":"a/b","status":"False"}"#,
        );
        check(&condition(None), r#"{"uid":"u","type":"a/b"}"#);
    }

    #[test]
    fn the_longest_condition_fits_into_a_body() {
        let change = ConditionChange {
            type_: format!("{}a/{}", "a.".repeat(126), "b".repeat(63)),
            status: Some(ConditionStatus::Unknown),
            reason: "r".repeat(128),
            message: "\"".repeat(1024),
        };
        assert_eq!(change.check(), Ok(()));
        let uid = "u".repeat(128).as_str().into();
        let body = serde_json::to_vec(&Condition { uid, change }).unwrap();
        assert!(body.len() < MAX_BODY, "{}", body.len());
    }
}
