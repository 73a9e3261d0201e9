//! Registers the node and keeps its status in the API server (kubelet-probes 9.9): POST, or GET and PATCH where the Node is
//! there already; after that a PATCH of the status when it is due.
//!
//! Invariants: a Node that somebody has deleted is registered again. What the API server has answered last, or the watch has
//! shown since, is what the next patch starts from. Nothing here waits for a CSINode, because podprobe has no CSI drivers
//! and makes none.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::facts::NodeFacts;
use super::object::{new_node, updated_node};
use super::patch::{Reports, is_change, node_patch};
use super::status::{Health, status, transitions};
use crate::base::clock::Moment;
use crate::base::text::head;
use crate::cluster::exchange::{Answer, BackOff, Method, Request, Step};

/// The time between two computations of the status. A random part of 4 % is added.
const UPDATE_PERIOD: Duration = Duration::from_secs(10);

/// Upper limit in bytes of what the API server says in an error.
const MAX_MESSAGE: usize = 500;

/// The error of a Node that the API server does not take.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The API server does not know the client (401).
    #[error(
        "cannot register the node {name}: the API server does not accept the client certificate or token (401); renew the \
         credentials in the kubeconfig"
    )]
    Unauthorized {
        /// Name of the node.
        name: String,
    },
    /// The client may not write this Node (403).
    #[error(
        "cannot write the node {name}: the API server forbids it: {message}; the credentials in the kubeconfig must be those \
         of system:node:{name} in the group system:nodes"
    )]
    Forbidden {
        /// Name of the node.
        name: String,
        /// Sentence of the API server.
        message: String,
    },
    /// The API server finds a field wrong, or has an error of its own.
    #[error("cannot write the node {name}: the API server answers {code}: {message}; trying again")]
    Refused {
        /// Name of the node.
        name: String,
        /// HTTP status code.
        code: u16,
        /// Sentence of the API server.
        message: String,
    },
}

/// Knowledge of the Node in the API server.
#[derive(Debug)]
enum Known {
    /// Nothing, or that there is none: it is to be created.
    Nothing,
    /// That it exists: it is to be read.
    Exists,
    /// The Node as it was last seen, and whether its labels are known to be right.
    Node { node: Value, is_registered: bool },
}

/// The content of the request under way.
#[derive(Debug)]
struct Sent {
    status: Value,
    is_change: bool,
}

/// The node's registration. Its thread asks for the next step, carries it out, and hands the answer back before it asks
/// again.
#[derive(Debug)]
pub struct Registration {
    name: String,
    known: Known,
    /// The Node as the watch showed it last before the node was registered. An answer may come after a later version.
    ahead: Option<Value>,
    sent: Option<Sent>,
    at: Moment,
    back_off: BackOff,
    reports: Reports,
    events: Vec<&'static str>,
}

impl Registration {
    /// Begins with a node that the API server may or may not know.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            known: Known::Nothing,
            ahead: None,
            sent: None,
            at: Moment::default(),
            back_off: BackOff::default(),
            reports: Reports::default(),
            events: Vec::new(),
        }
    }

    /// The Node as the API server has it, once the node is registered.
    pub const fn node(&self) -> Option<&Value> {
        match &self.known {
            Known::Node {
                node,
                is_registered: true,
            } => Some(node),
            _ => None,
        }
    }

    /// The UID of the registered Node.
    pub fn uid(&self) -> Option<&str> {
        self.node()?["metadata"]["uid"].as_str()
    }

    /// Takes the reasons of the events that tell of changes of the Node, such as `NodeReady`. The text of each is
    /// `Node NAME status is now: REASON`, its type Normal.
    pub fn take_events(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.events)
    }

    /// Asks for a computation of the status now, because facts or health have changed. After a failed request the
    /// back-off stays.
    pub fn wake(&mut self, now: Moment) {
        if self.back_off == BackOff::default() {
            self.at = now;
        }
    }

    /// True if the next step computes the status, for which it needs the present facts and health.
    pub fn is_due(&self, now: Moment) -> bool {
        now >= self.at
    }

    /// The next step. `random`, at least 0 and below 1, is for the jitter of the period.
    pub fn next(
        &mut self,
        now: Moment,
        wall: SystemTime,
        facts: &NodeFacts,
        health: &Health,
        random: f64,
    ) -> Step {
        if now < self.at {
            return Step::Wait(self.at);
        }
        match &self.known {
            Known::Nothing => {
                let status = status(facts, health, &Value::Null, wall);
                let node = new_node(facts, status.clone());
                self.sent = Some(Sent {
                    status,
                    is_change: true,
                });
                self.send(Method::Post, "/api/v1/nodes".to_owned(), Some(node))
            }
            Known::Exists => self.send(Method::Get, format!("/api/v1/nodes/{}", self.name), None),
            Known::Node {
                node,
                is_registered,
            } => {
                let status = status(facts, health, &node["status"], wall);
                let new = updated_node(node, facts, status.clone(), !is_registered);
                let Some(patch) = self.reports.due(now, node_patch(node, &new)) else {
                    self.rest(now, random);
                    return Step::Wait(self.at);
                };
                self.sent = Some(Sent {
                    status,
                    is_change: is_change(&patch),
                });
                let path = format!("/api/v1/nodes/{}/status?timeout=10s", self.name);
                self.send(Method::Patch, path, Some(patch))
            }
        }
    }

    fn send(&self, method: Method, path: String, body: Option<Value>) -> Step {
        Step::Send(Request { method, path, body })
    }

    /// Waits for the next computation.
    fn rest(&mut self, now: Moment, random: f64) {
        self.at = now + UPDATE_PERIOD.mul_f64(1.0 + 0.04 * random.clamp(0.0, 1.0));
        if let Known::Node { is_registered, .. } = &mut self.known {
            *is_registered = true;
        }
    }

    /// Takes the answer to the last request. `random` is at least 0 and below 1.
    ///
    /// # Errors
    /// Returns an error if the API server did not do what it was asked. The request is tried again in any case, so the
    /// error is for people. A connection that failed is no error here, because the client tells of it.
    pub fn answered(&mut self, now: Moment, answer: &Answer, random: f64) -> Result<(), NodeError> {
        let sent = self.sent.take();
        if let Some(node) = answer.object() {
            self.back_off.reset();
            self.at = now;
            self.accepted(now, node, sent, random);
            return Ok(());
        }
        match (&self.known, answer.code()) {
            (Known::Nothing, 409) => self.becomes(now, Known::Exists),
            (Known::Exists | Known::Node { .. }, 404) => self.becomes(now, Known::Nothing),
            (_, code) => {
                self.at = now + self.back_off.next(answer.retry_after());
                return self.error(code, answer.message());
            }
        }
        Ok(())
    }

    /// Goes on with what an answer says of the Node. The second such answer in a row waits as after a failure, so that a
    /// Node that is there and is not there costs no more than any other error.
    fn becomes(&mut self, now: Moment, known: Known) {
        let is_first = self.back_off == BackOff::default();
        let delay = self.back_off.next(None);
        self.at = if is_first { now } else { now + delay };
        self.known = known;
    }

    fn accepted(&mut self, now: Moment, node: &Value, sent: Option<Sent>, random: f64) {
        let node = node.clone();
        let old = std::mem::replace(&mut self.known, Known::Nothing);
        let Some(sent) = sent else {
            self.known = Known::Node {
                node,
                is_registered: false,
            };
            return;
        };
        let before = match &old {
            Known::Node { node, .. } => &node["status"],
            _ => &Value::Null,
        };
        self.events.extend(transitions(before, &sent.status));
        // The watch may have shown a later version than that of the answer.
        let node = match old {
            Known::Node { node: later, .. } if is_older(&node, &later) => later,
            _ => node,
        };
        self.known = Known::Node {
            node,
            is_registered: true,
        };
        self.reports.sent(now, sent.is_change, random);
        self.rest(now, random);
        let uid = self.uid().map(str::to_owned);
        let ahead = self.ahead.take();
        if let Some(ahead) = ahead.filter(|node| node["metadata"]["uid"].as_str() == uid.as_deref())
        {
            self.observed(now, Some(&ahead));
        }
    }

    fn error(&self, code: u16, message: &str) -> Result<(), NodeError> {
        let name = self.name.clone();
        let message = head(message, MAX_MESSAGE).to_owned();
        match code {
            0 => Ok(()),
            401 => Err(NodeError::Unauthorized { name }),
            403 => Err(NodeError::Forbidden { name, message }),
            code => Err(NodeError::Refused {
                name,
                code,
                message,
            }),
        }
    }

    /// Takes what the watch of the Node shows: the Node, or `None` after its deletion. An older version than the one that
    /// is known is left out. What is shown before the node is registered waits for that.
    pub fn observed(&mut self, now: Moment, seen: Option<&Value>) {
        let Some(known) = self.node() else {
            self.ahead = seen.cloned();
            return;
        };
        let Some(seen) = seen else {
            self.known = Known::Nothing;
            self.at = now;
            return;
        };
        if is_older(seen, known) {
            return;
        }
        // A control plane that has not heard of the node for a while says Unknown.
        let is_changed = conditions(known) != conditions(seen);
        let is_unschedulable = |node: &Value| node["spec"]["unschedulable"] == true;
        let (before, after) = (is_unschedulable(known), is_unschedulable(seen));
        if before != after {
            self.events.push(match after {
                true => "NodeNotSchedulable",
                false => "NodeSchedulable",
            });
        }
        self.known = Known::Node {
            node: seen.clone(),
            is_registered: true,
        };
        if is_changed {
            self.wake(now);
        }
    }
}

/// Returns the type and the status of each condition of a Node.
fn conditions(node: &Value) -> Vec<[&Value; 2]> {
    let all = node["status"]["conditions"].as_array();
    let all = all.into_iter().flatten();
    all.map(|c| [&c["type"], &c["status"]]).collect()
}

/// True if the version of `a` is known to be older than that of `b`, the two being one object.
fn is_older(a: &Value, b: &Value) -> bool {
    let version = |node: &Value| -> Option<u64> {
        node["metadata"]["resourceVersion"].as_str()?.parse().ok()
    };
    let is_same_object = a["metadata"]["uid"] == b["metadata"]["uid"];
    matches!((version(a), version(b)), (Some(a), Some(b)) if is_same_object && a < b)
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
