//! What client and daemon say to each other over the unix socket: one JSON object per line, one answer per request.
//!
//! Invariants: both sides use these types and nothing else; a request is at most [`MAX_REQUEST`] bytes; an answer
//! has one key that says what it is.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::api::{PodUid, ProbeType};
use crate::events::EventList;
use crate::services::view::ServiceView;
use crate::views::ProbeReport;
use crate::views::history::PodHistory;
use crate::views::{Snapshot, SnapshotUpdate};

/// Longest request line in bytes, the newline included.
pub const MAX_REQUEST: usize = 4096;

/// Longest time a `watch` waits for a change before it is answered with what there is.
pub const WATCH_CEILING: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase")]
pub enum Request {
    /// `{"verb":"snapshot"}`: everything, now.
    Snapshot,
    /// `{"verb":"watch","after":N}`: what has changed since version N, as soon as something has, at the latest after
    /// [`WATCH_CEILING`]; everything when that is too long ago.
    Watch {
        /// The version the client has.
        after: u64,
    },
    /// `{"verb":"version"}`: which daemon this is.
    Version,
    /// `{"verb":"events"}`: every event; with `after`, those after that version, as soon as there is one.
    Events {
        /// The version the client has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<u64>,
    },
    /// `{"verb":"history","uid":"…"}`: what a pod's probes found, and its restarts.
    History {
        /// Of which pod.
        uid: PodUid,
    },
    /// `{"verb":"probe","uid":"…","container":"…","probeType":"Liveness"}`: run it now; answered when it has run.
    Probe(ProbeTarget),
    /// `{"verb":"pause",…,"seconds":N}`: let these probes rest.
    Pause {
        /// Which ones.
        #[serde(flatten)]
        target: PauseTarget,
        /// For how long; 1 to 604800, a week.
        seconds: u64,
    },
    /// `{"verb":"resume",…}`: let them go on.
    Resume(PauseTarget),
    /// `{"verb":"condition","uid":"…","type":"…","status":"True"}`: set a condition of a pod; without a status, remove it.
    Condition {
        /// Of which pod.
        uid: PodUid,
        /// Which one, and what it is to be.
        #[serde(flatten)]
        change: ConditionChange,
    },
    /// `{"verb":"metrics"}`: every metric in the Prometheus text format.
    Metrics,
    /// `{"verb":"services"}`: every service.
    Services,
    /// `{"verb":"objects","kind":"ConfigMap"}`: every object of a kind that pods refer to.
    Objects {
        /// ConfigMap, Secret or PersistentVolumeClaim.
        kind: ObjectKind,
    },
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeTarget {
    /// Of which pod.
    pub uid: PodUid,
    /// Of which container.
    pub container: String,
    /// Which of the three.
    pub probe_type: ProbeType,
}

/// Some probes of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseTarget {
    /// Of which pod.
    pub uid: PodUid,
    /// Of which container; None means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Which of the three; None means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_type: Option<ProbeType>,
}

/// What has become of a change of a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionSet {
    /// It was not as it was to be.
    pub changed: bool,
    /// Why it is not on disk, so that it ends with the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_stored: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// `{"snapshot":{…}}`.
    Snapshot(Arc<Snapshot>),
    /// `{"update":{…}}`: the changed pods.
    Update(SnapshotUpdate),
    /// `{"version":"…"}`.
    Version(String),
    /// `{"events":{…}}`.
    Events(EventList),
    /// `{"history":{…}}`.
    History(PodHistory),
    /// `{"probed":{…}}`.
    Probed(ProbeReport),
    /// `{"changed":["container/liveness",…]}`: the probes that were paused or resumed.
    Changed(Vec<String>),
    /// `{"condition":{"changed":true}}`.
    Condition(ConditionSet),
    /// `{"metrics":"…"}`.
    Metrics(String),
    /// `{"services":[…]}`, in the order of namespace and name.
    Services(Vec<ServiceView>),
    /// `{"objects":[…]}`, as an API server has them, in the order of namespace and name; values of Secrets in base64.
    Objects(Vec<Value>),
    /// `{"error":"…"}`: the request was not understood or not served, and why.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::ConditionStatus;

    #[track_caller]
    fn check(request: Request, line: &str) {
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
    }

    #[test]
    fn requests_have_one_form() {
        check(Request::Snapshot, r#"{"verb":"snapshot"}"#);
        check(Request::Watch { after: 7 }, r#"{"verb":"watch","after":7}"#);
        check(Request::Version, r#"{"verb":"version"}"#);
        check(Request::Events { after: None }, r#"{"verb":"events"}"#);
        check(
            Request::Events { after: Some(3) },
            r#"{"verb":"events","after":3}"#,
        );
        check(
            Request::History { uid: "u".into() },
            r#"{"verb":"history","uid":"u"}"#,
        );
        let target = ProbeTarget {
            uid: "u".into(),
            container: "c".into(),
            probe_type: ProbeType::Startup,
        };
        check(
            Request::Probe(target),
            r#"{"verb":"probe","uid":"u","container":"c","probeType":"Startup"}"#,
        );
        let target = PauseTarget {
            uid: "u".into(),
            container: Some("c".into()),
            probe_type: Some(ProbeType::Liveness),
        };
        let line =
            r#"{"verb":"pause","uid":"u","container":"c","probeType":"Liveness","seconds":60}"#;
        check(
            Request::Pause {
                target,
                seconds: 60,
            },
            line,
        );
        let all = PauseTarget {
            uid: "u".into(),
            container: None,
            probe_type: None,
        };
        check(Request::Resume(all), r#"{"verb":"resume","uid":"u"}"#);
        check(Request::Metrics, r#"{"verb":"metrics"}"#);
        let kind = ObjectKind::ConfigMap;
        check(
            Request::Objects { kind },
            r#"{"verb":"objects","kind":"ConfigMap"}"#,
        );
        let condition = |status| Request::Condition {
            uid: "u".into(),
            change: ConditionChange {
                type_: "a/b".into(),
                status,
                reason: String::new(),
                message: String::new(),
            },
        };
        check(
            condition(Some(ConditionStatus::False)),
            r#"{"verb":"condition","uid":"u","type":"a/b","status":"False"}"#,
        );
        check(
            condition(None),
            r#"{"verb":"condition","uid":"u","type":"a/b"}"#,
        );
    }

    #[test]
    fn the_longest_condition_fits_into_a_request() {
        let change = ConditionChange {
            type_: format!("{}a/{}", "a.".repeat(126), "b".repeat(63)),
            status: Some(ConditionStatus::Unknown),
            reason: "r".repeat(128),
            message: "\"".repeat(1024),
        };
        assert_eq!(change.check(), Ok(()));
        let uid = "u".repeat(128).as_str().into();
        let line = serde_json::to_vec(&Request::Condition { uid, change }).unwrap();
        assert!(line.len() < MAX_REQUEST, "{}", line.len());
    }

    #[test]
    fn an_answer_says_what_it_is() {
        assert_eq!(
            serde_json::to_string(&Answer::Error("no".into())).unwrap(),
            r#"{"error":"no"}"#
        );
        let answer = serde_json::to_string(&Answer::Snapshot(Arc::default())).unwrap();
        assert_eq!(
            answer,
            r#"{"snapshot":{"version":0,"nodeName":"","pods":[],"problems":[]}}"#
        );
    }
}
