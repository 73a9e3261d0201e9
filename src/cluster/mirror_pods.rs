//! The mirror pods of this node's static pods: when each is created and deleted (kubelet-probes 9.8).
//!
//! Invariants: pure. A pod has at most one request at a time. A mirror pod that was deleted or created is not deleted
//! or created again while the watch does not show that yet. While a static pod ends, its mirror pod stays.

mod references;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use self::references::reference;
use crate::api::source::{HASH_ANNOTATION, MIRROR_ANNOTATION};
use crate::api::{Pod, PodRef, PodUid};
use crate::base::clock::Moment;
use crate::cluster::exchange::{Answer, Method, Request};

/// Delays after failed requests for one pod, in their order. The last one repeats.
const DELAYS: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// Time in which the watch shows a mirror pod that was created. After it, the mirror pod is created again.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// A mirror pod as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPod {
    /// `<name>_<namespace>`, which is the same as that of its static pod.
    full_name: String,
    /// Path of the object.
    path: String,
    /// UID of the object. The API server gives it, so it is not that of the static pod.
    pub uid: PodUid,
    /// Hash of the static pod from which the mirror pod was made.
    hash: String,
    /// True if the mirror pod has a deletion timestamp.
    is_deleted: bool,
}

impl MirrorPod {
    /// Reads a pod of the API server. Returns None if it is no mirror pod.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let hash = metadata["annotations"][MIRROR_ANNOTATION].as_str()?;
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        Some(Self {
            full_name: format!("{name}_{namespace}"),
            path: format!("{}/{name}", collection(namespace)),
            uid: text("uid").into(),
            hash: hash.to_owned(),
            is_deleted: metadata["deletionTimestamp"].is_string(),
        })
    }

    /// Returns `<name>_<namespace>`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }
}

/// The Node object of this node, which owns the mirror pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReference {
    /// Name of the node.
    pub name: String,
    /// UID of the Node object.
    pub uid: String,
}

/// A request, or a sentence for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorAction {
    /// Create the mirror pod of that full name, `<name>_<namespace>`, or delete it. The answer goes to
    /// [`MirrorPods::answered`].
    Send(String, Request),
    /// Write the sentence to the log. Said once for each version of the static pod.
    Report(NotMirrored),
}

/// The reason for which a static pod has no mirror pod. The pod runs all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server does not show the static pod {pod}: static pods may not reference {what}")]
pub struct NotMirrored {
    /// Static pod.
    pub pod: PodRef,
    /// Objects that it refers to, in the API's word.
    pub what: &'static str,
}

/// A request for a mirror pod has failed. It is sent again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The namespace is missing, or the API server has another reason not to find what the request names.
    #[error(
        "cannot create the mirror pod of {full_name}: {message}; create the namespace, or change metadata.namespace of the pod"
    )]
    NotFound {
        /// `<name>_<namespace>` of the pod.
        full_name: String,
        /// Message of the API server.
        message: String,
    },
    /// The request was refused, or there was no answer.
    #[error("cannot {verb} the mirror pod of {full_name}: {message}")]
    Failed {
        /// `create` or `delete`.
        verb: &'static str,
        /// `<name>_<namespace>` of the pod.
        full_name: String,
        /// Message of the API server or of the connection.
        message: String,
    },
}

/// A request whose answer has not come yet.
#[derive(Debug, PartialEq)]
enum Asked {
    Create,
    Delete(PodUid),
}

/// The knowledge about the mirror pod of one name.
#[derive(Debug, Default)]
struct Record {
    /// Hash of the static pod.
    hash: String,
    asked: Option<Asked>,
    /// UID of the last mirror pod that is gone, although the watch may still show it.
    gone: Option<PodUid>,
    /// Time at which a mirror pod came to exist that the watch does not show yet.
    created: Option<Moment>,
    /// Number of failed requests in a row.
    failures: usize,
    /// Earliest time of the next request.
    not_before: Moment,
    /// True if the reason for which there is no mirror pod has been said.
    is_told: bool,
}

/// The decisions about all mirror pods of this node.
#[derive(Debug, Default)]
pub struct MirrorPods(BTreeMap<String, Record>);

impl MirrorPods {
    /// Returns what is to be done. The caller asks at each change of its arguments, after each answer, and at
    /// [`MirrorPods::deadline`].
    ///
    /// `node` is None while the node is not registered, or is being deleted. `wanted` has the static pods that should
    /// run, `ending` the full names of those that still end, and `mirrors` the mirror pods of a synced watch.
    pub fn step(
        &mut self,
        now: Moment,
        node: Option<&NodeReference>,
        wanted: &[Arc<Pod>],
        ending: &BTreeSet<String>,
        mirrors: &[&MirrorPod],
    ) -> Vec<MirrorAction> {
        let named = mirrors.iter().map(|mirror| (mirror.full_name(), *mirror));
        let mirrors: BTreeMap<&str, &MirrorPod> = named.collect();
        let mut actions = Vec::new();
        let mut names = ending.clone();
        for pod in wanted {
            let name = pod.full_name();
            if names.insert(name.clone()) {
                let mirror = mirrors.get(name.as_str()).copied();
                let record = self.0.entry(name).or_default();
                actions.extend(record.step(now, node, pod, mirror));
            }
        }
        for (name, mirror) in &mirrors {
            if !names.contains(*name) {
                let record = self.0.entry((*name).to_owned()).or_default();
                let is_there = record.gone.as_ref() != Some(&mirror.uid);
                if is_there && record.is_free(now) {
                    actions.push(record.delete(mirror, false));
                }
            }
        }
        self.0.retain(|name, record| {
            let is_known = names.contains(name) || mirrors.contains_key(name.as_str());
            is_known || record.asked.is_some()
        });
        actions
    }

    /// Takes the answer to a request. After this, the caller asks for the next step.
    ///
    /// # Errors
    /// Returns a [`MirrorError`] if the request has failed.
    pub fn answered(
        &mut self,
        now: Moment,
        full_name: &str,
        answer: &Answer,
    ) -> Result<(), MirrorError> {
        let Some(record) = self.0.get_mut(full_name) else {
            return Ok(());
        };
        let Some(asked) = record.asked.take() else {
            return Ok(());
        };
        match (asked, answer.code()) {
            (Asked::Create, 200..=299) => record.is_created(now),
            (Asked::Create, 409) => {
                // One of this name is there. The watch shows which, and whether it must be deleted. A finalizer can
                // keep one that was deleted, so the next request has a delay too.
                record.gone = None;
                record.created = Some(now);
                record.delay(now);
            }
            // To an authorizer, an object that is gone has no relationship to the node.
            (Asked::Delete(uid), 200..=299 | 403 | 404) => record.gone = Some(uid),
            (Asked::Delete(uid), 409) => {
                // The UID is gone, and another mirror pod has its name.
                record.gone = Some(uid);
                record.is_created(now);
            }
            (asked, code) => {
                record.delay(now);
                return Err(failed(&asked, full_name, code, answer));
            }
        }
        Ok(())
    }

    /// Returns the time of the next step, unless something changes earlier; None if nothing waits for a time. `now` is
    /// the time of the last step.
    pub fn deadline(&self, now: Moment) -> Option<Moment> {
        let free = self.0.values().filter(|record| record.asked.is_none());
        let times = free.flat_map(|record| {
            let retry = (record.failures > 0).then_some(record.not_before);
            [retry, record.created.map(|at| at + SHOWN_WITHIN)]
        });
        times.flatten().filter(|time| *time > now).min()
    }
}

impl Record {
    /// True if a request may be sent now.
    fn is_free(&self, now: Moment) -> bool {
        self.asked.is_none() && now >= self.not_before
    }

    /// Delays the next request.
    fn delay(&mut self, now: Moment) {
        let last = DELAYS.len() - 1;
        self.not_before = now + DELAYS[self.failures.min(last)];
        self.failures += 1;
    }

    /// The next request has no delay.
    fn reset(&mut self) {
        (self.failures, self.not_before) = (0, Moment::default());
    }

    fn is_created(&mut self, now: Moment) {
        self.reset();
        self.created = Some(now);
    }

    /// Decides for a static pod that should run.
    fn step(
        &mut self,
        now: Moment,
        node: Option<&NodeReference>,
        pod: &Pod,
        mirror: Option<&MirrorPod>,
    ) -> Vec<MirrorAction> {
        let hash = hash_of(pod);
        if self.hash != hash {
            hash.clone_into(&mut self.hash);
            self.reset();
            self.is_told = false;
        }
        let mut actions = Vec::new();
        let mirror = mirror.filter(|mirror| self.gone.as_ref() != Some(&mirror.uid));
        let refused = reference(pod);
        if let Some(what) = refused
            && !std::mem::replace(&mut self.is_told, true)
        {
            let pod = pod.reference();
            actions.push(MirrorAction::Report(NotMirrored { pod, what }));
        }
        match mirror {
            Some(mirror) if mirror.is_deleted || mirror.hash != hash => {
                self.created = None;
                if self.is_free(now) {
                    actions.push(self.delete(mirror, true));
                }
            }
            Some(_) => {
                self.created = None;
                self.reset();
            }
            None if self.created.is_some_and(|at| now < at + SHOWN_WITHIN) => {}
            None => {
                self.created = None;
                if let Some(node) = node
                    && refused.is_none()
                    && self.is_free(now)
                {
                    self.asked = Some(Asked::Create);
                    actions.push(MirrorAction::Send(pod.full_name(), creation(pod, node)));
                }
            }
        }
        actions
    }

    /// Deletes a mirror pod. Only the name of one that no static pod has counts, not its UID.
    fn delete(&mut self, mirror: &MirrorPod, has_uid: bool) -> MirrorAction {
        self.asked = Some(Asked::Delete(mirror.uid.clone()));
        let preconditions = match has_uid {
            true => json!({"uid": mirror.uid.as_str()}),
            false => json!({}),
        };
        let request = Request::delete_pod(mirror.path.clone(), &preconditions);
        MirrorAction::Send(mirror.full_name.clone(), request)
    }
}

fn failed(asked: &Asked, full_name: &str, code: u16, answer: &Answer) -> MirrorError {
    let message = match answer {
        Answer::NoConnection => "no answer of the API server",
        Answer::Status { .. } => answer.message(),
    };
    let (full_name, message) = (full_name.to_owned(), message.to_owned());
    match (asked, code) {
        (Asked::Create, 404) => MirrorError::NotFound { full_name, message },
        (asked, _) => MirrorError::Failed {
            verb: match asked {
                Asked::Create => "create",
                Asked::Delete(_) => "delete",
            },
            full_name,
            message,
        },
    }
}

fn collection(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Returns the hash that tells versions of a static pod apart.
fn hash_of(pod: &Pod) -> &str {
    let hash = pod.metadata.annotations.get(HASH_ANNOTATION);
    hash.map_or(pod.metadata.uid.as_str(), String::as_str)
}

/// Returns the request that creates the mirror pod of a static pod.
fn creation(pod: &Pod, node: &NodeReference) -> Request {
    let mut body = pod.raw.value();
    let metadata = &mut body["metadata"];
    metadata["annotations"][HASH_ANNOTATION] = hash_of(pod).into();
    metadata["annotations"][MIRROR_ANNOTATION] = hash_of(pod).into();
    metadata["ownerReferences"] = json!([{
        "apiVersion": "v1",
        "kind": "Node",
        "name": node.name,
        "uid": node.uid,
        "controller": true,
    }]);
    body["kind"] = "Pod".into();
    body["apiVersion"] = "v1".into();
    body["status"] = json!({"phase": "Pending"});
    Request {
        method: Method::Post,
        path: collection(&pod.metadata.namespace),
        body: Some(body),
    }
}
