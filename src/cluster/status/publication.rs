//! The requests by which the status of one pod reaches the API server: GET, PATCH, and at the end DELETE
//! (kubelet-probes 9.7).
//!
//! Invariants: a pod has at most one request under way. A PATCH or a DELETE follows a GET that has shown the pod's UID.
//! A status that the API server has refused is not sent again; the next one is.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Deletion, PodView, Revived, WorkerStage, api_form, is_terminal, merge, patch, status_of,
};
use crate::api::{PodPhase, PodStatus};
use crate::base::clock::{Moment, Time};
use crate::cluster::exchange::{Answer, Method, Request};

/// Time between two looks at the pods whose copy in the API server differs.
const RESYNC_PERIOD: Duration = Duration::from_secs(10);
/// Delay before the first retry; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Longest delay before a retry, if the API server asks for no longer one.
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// Longest delay that the API server may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
/// Number of 403 in succession after which a pod is gone that the watch still has.
const FORBIDDEN_TRIES: u32 = 5;

/// The step after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Send this request now.
    Send(Request),
    /// Nothing: the API server has the status.
    Published,
    /// Nothing until the pod has another status: this one would be refused.
    Held(Revived),
    /// Nothing until the pod has another status: the API server has refused this one with the code.
    Refused(u16),
    /// Call [`Publication::begin`] again at this moment.
    Retry(Moment),
    /// Forget what is known of the pod: the API server does not have it any more, or has another one of its name.
    Gone,
}

/// The version of a status, with all else that decides what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    version: u64,
    stage: WorkerStage,
    generation: Option<i64>,
}

impl Mark {
    fn of(pod: &PodView) -> Self {
        Self {
            version: pod.version,
            stage: pod.stage,
            generation: pod.generation,
        }
    }
}

/// The request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Nothing,
    Get,
    Patch(Mark),
    Delete,
}

/// The state of the publishing of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// UID of the API object that the state is about.
    uid: String,
    under_way: UnderWay,
    /// Status that needs no more requests: the API server has it, or the pod is gone.
    done: Option<Mark>,
    /// Status that the API server has refused or would refuse.
    refused: Option<Mark>,
    /// Moment of the next attempt after a failure.
    retry_at: Option<Moment>,
    /// Number of failures in succession.
    failures: u32,
}

impl Default for Publication {
    fn default() -> Self {
        Self {
            uid: String::new(),
            under_way: UnderWay::Nothing,
            done: None,
            refused: None,
            retry_at: None,
            failures: 0,
        }
    }
}

impl Publication {
    /// Returns the first request of an attempt if one is due: the pod has another status than the published one, a
    /// retry is due, or `resync` is true and the copy of the API server differs or can be deleted.
    ///
    /// To be called after each change of the pod, at the moment of [`Next::Retry`], and for all pods with `resync` when
    /// [`Resync::is_due`].
    pub fn begin(
        &mut self,
        now: Moment,
        wall: Time,
        pod: &PodView,
        resync: bool,
    ) -> Option<Request> {
        if self.under_way != UnderWay::Nothing || pod.uid.is_empty() {
            return None;
        }
        if self.uid != pod.uid {
            *self = Self {
                uid: pod.uid.to_owned(),
                ..Self::default()
            };
        }
        if is_first_view(pod.status) && pod.stage == WorkerStage::Running {
            return None;
        }
        let mark = Some(Mark::of(pod));
        let refused = self.refused == mark;
        let due = match self.retry_at {
            Some(at) => now >= at,
            None if refused => resync && deletable(pod),
            None if self.done == mark => resync && (deletable(pod) || differs(pod, wall)),
            None => true,
        };
        due.then(|| {
            self.retry_at = None;
            self.under_way = UnderWay::Get;
            Request {
                method: Method::Get,
                path: path_of(pod),
                body: None,
            }
        })
    }

    /// Takes the answer to the request under way, and returns what follows.
    pub fn answered(&mut self, now: Moment, wall: Time, pod: &PodView, answer: &Answer) -> Next {
        let request = std::mem::replace(&mut self.under_way, UnderWay::Nothing);
        let mark = match request {
            UnderWay::Patch(mark) => mark,
            _ => Mark::of(pod),
        };
        let (code, object, retry_after) = match answer {
            Answer::NoConnection => return self.retry(now, None),
            Answer::Status {
                code,
                body,
                retry_after,
            } => (*code, body, *retry_after),
        };
        match (code, request) {
            (200..=299, UnderWay::Delete) => self.gone(mark),
            (200..=299, _) if object["metadata"]["uid"] != pod.uid => self.gone(mark),
            (200..=299, UnderWay::Patch(_)) => self.published(pod, mark, object),
            (200..=299, _) => self.compare(wall, pod, mark, object),
            (404, _) => self.gone(mark),
            (403, _) if !self.may_be_there(pod) => self.gone(mark),
            (409, UnderWay::Delete) => self.gone(mark),
            (422, _) if answer.message().contains("metadata.uid: ") => self.gone(mark),
            (401 | 403 | 408 | 409 | 429 | 500.., _) => self.retry(now, retry_after),
            (code, _) => self.refused(mark, Next::Refused(code)),
        }
    }

    /// Returns the moment of the next retry, if one is to come.
    pub fn retry_at(&self) -> Option<Moment> {
        self.retry_at
    }

    /// Compares the API object of a GET with the pod's status.
    fn compare(&mut self, wall: Time, pod: &PodView, mark: Mark, object: &Value) -> Next {
        match body_for(pod, object, wall) {
            Ok(Some(body)) if self.refused != Some(mark) => {
                self.under_way = UnderWay::Patch(mark);
                Next::Send(Request {
                    method: Method::Patch,
                    path: format!("{}/status", path_of(pod)),
                    body: Some(body),
                })
            }
            Err(revived) if !can_be_deleted(pod, object) => self.refused(mark, Next::Held(revived)),
            _ => self.published(pod, mark, object),
        }
    }

    /// Ends an attempt after which the API server has the status, or begins the deletion of the pod.
    fn published(&mut self, pod: &PodView, mark: Mark, object: &Value) -> Next {
        self.done(mark);
        if !can_be_deleted(pod, object) {
            return Next::Published;
        }
        self.under_way = UnderWay::Delete;
        let preconditions = json!({"uid": pod.uid});
        Next::Send(Request::delete_pod(path_of(pod), &preconditions))
    }

    fn gone(&mut self, mark: Mark) -> Next {
        self.done(mark);
        Next::Gone
    }

    fn done(&mut self, mark: Mark) {
        self.done = Some(mark);
        self.failures = 0;
    }

    fn refused(&mut self, mark: Mark, next: Next) -> Next {
        self.refused = Some(mark);
        self.failures = 0;
        next
    }

    fn retry(&mut self, now: Moment, asked: Option<Duration>) -> Next {
        let delay = FIRST_DELAY * 2_u32.pow(self.failures.min(10));
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        let at = now + delay.min(LONGEST_DELAY).max(asked);
        self.failures += 1;
        self.retry_at = Some(at);
        Next::Retry(at)
    }

    /// True if a 403 may only mean that the API server's authorizer does not know the pod yet: the watch has the pod,
    /// and there were few such answers.
    fn may_be_there(&self, pod: &PodView) -> bool {
        let listed = pod.copy.is_some_and(|c| c["metadata"]["uid"] == pod.uid);
        listed && self.failures < FORBIDDEN_TRIES
    }
}

/// The clock of the looks at all pods whose copy in the API server differs or which can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resync {
    at: Moment,
}

impl Resync {
    /// Makes a clock whose first look is one period after `now`.
    pub fn new(now: Moment) -> Self {
        let at = now + RESYNC_PERIOD;
        Self { at }
    }

    /// Returns the moment of the next look.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// True if a look is due. The next one is then one period after `now`.
    pub fn is_due(&mut self, now: Moment) -> bool {
        let due = now >= self.at;
        if due {
            *self = Self::new(now);
        }
        due
    }
}

fn path_of(pod: &PodView) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

/// True for the status of a pod that has not been synced yet. It says nothing that the API server does not know.
fn is_first_view(status: &PodStatus) -> bool {
    status.phase == PodPhase::Pending
        && status.reason.is_empty()
        && status.conditions.is_empty()
        && status.container_statuses.is_empty()
        && status.init_container_statuses.is_empty()
}

/// True if the pod of the watch's copy can be deleted.
fn deletable(pod: &PodView) -> bool {
    let copy = pod.copy.filter(|c| c["metadata"]["uid"] == pod.uid);
    copy.is_some_and(|copy| can_be_deleted(pod, copy))
}

/// True if the API object is to be removed: it is being deleted, its phase is terminal and the worker has finished.
fn can_be_deleted(pod: &PodView, object: &Value) -> bool {
    !pod.mirror
        && pod.stage == WorkerStage::Finished
        && Deletion::of(object) == Deletion::Requested
        && is_terminal(object["status"].get("phase"))
}

/// True if the status in the watch's copy differs from the pod's.
fn differs(pod: &PodView, wall: Time) -> bool {
    let copy = pod.copy.filter(|c| c["metadata"]["uid"] == pod.uid);
    copy.is_some_and(|copy| matches!(body_for(pod, copy, wall), Ok(Some(_))))
}

/// Returns the body of the PATCH that gives an API object the pod's status; None if nothing differs.
fn body_for(pod: &PodView, object: &Value, wall: Time) -> Result<Option<Value>, Revived> {
    let present = status_of(object);
    let wanted = merge(pod, api_form(pod), &present, Deletion::of(object), wall)?;
    Ok(patch(pod.uid, &present, &wanted))
}
