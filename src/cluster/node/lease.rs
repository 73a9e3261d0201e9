//! The Lease of the node, by which the control plane sees that the node lives (kubelet-probes 9.9): GET, POST where there is
//! none, then a PATCH of its time every 10 s.
//!
//! Invariants: the Lease has exactly one owner, the Node that is registered now. Nothing is created without that Node,
//! because a Lease without an owner stays when the node is gone. The first failed try of a renewal costs no wait, because the
//! control plane gives a node up after 40 s.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::base::clock::{Moment, Time};
use crate::cluster::exchange::{Answer, BackOff, Method, Request, Step};

/// The namespace of the Leases of nodes.
const NAMESPACE: &str = "kube-node-lease";

/// The time between two renewals. A random part of 4 % is added.
pub const RENEW_PERIOD: Duration = Duration::from_secs(10);

/// The seconds after the last renewal for which the Lease holds.
const DURATION_SECONDS: u32 = 40;

/// Upper limit of the tries of one renewal that follow one another at once.
const MAX_TRIES: u32 = 5;

/// The next thing to be done.
#[derive(Debug)]
enum Next {
    /// Read the Lease: nothing is known of it, or what is known may be wrong.
    Get,
    /// Create it.
    Create,
    /// Renew this one.
    Renew(Value),
}

/// The node's Lease. Its thread asks for the next step, carries it out, and hands the answer back before it asks again.
#[derive(Debug)]
pub struct Lease {
    name: String,
    next: Next,
    at: Moment,
    tries: u32,
    /// The Lease has been read since the last success.
    was_read: bool,
    back_off: BackOff,
}

impl Lease {
    /// Begins with a Lease that the API server may or may not have.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            next: Next::Get,
            at: Moment::default(),
            tries: 0,
            was_read: false,
            back_off: BackOff::default(),
        }
    }

    /// The next step. `node_uid` is the UID of the Node that is registered, or `None` before it is. A Lease that is only
    /// waiting for the Node is looked at again when the thread asks.
    pub fn next(&self, now: Moment, wall: SystemTime, node_uid: Option<&str>) -> Step {
        if now < self.at {
            return Step::Wait(self.at);
        }
        match (&self.next, node_uid) {
            (Next::Get, _) => self.send(Method::Get, true, None),
            (Next::Create, Some(uid)) => {
                let lease = self.lease(Map::new(), Some(uid), wall);
                self.send(Method::Post, false, Some(lease))
            }
            (Next::Create, None) => Step::Wait(now + RENEW_PERIOD),
            (Next::Renew(base), uid) => {
                let whole = base.as_object().cloned().unwrap_or_default();
                let lease = self.lease(whole, uid, wall);
                match is_renewal(base, &lease) {
                    true => self.send(Method::Patch, true, Some(renewal(&lease))),
                    false => self.send(Method::Put, true, Some(lease)),
                }
            }
        }
    }

    fn send(&self, method: Method, is_named: bool, body: Option<Value>) -> Step {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        let path = match is_named {
            true => format!("{leases}/{}?timeout=10s", self.name),
            false => format!("{leases}?timeout=10s"),
        };
        Step::Send(Request { method, path, body })
    }

    /// The Lease as it is to be, made from what the API server has.
    fn lease(&self, mut lease: Map<String, Value>, uid: Option<&str>, wall: SystemTime) -> Value {
        let metadata = lease.remove("metadata");
        let mut metadata = metadata
            .and_then(|m| m.as_object().cloned())
            .unwrap_or_default();
        // The API server keeps them, and a Lease goes out every ten seconds.
        metadata.remove("managedFields");
        metadata.insert("name".to_owned(), self.name.as_str().into());
        metadata.insert("namespace".to_owned(), NAMESPACE.into());
        if let Some(uid) = uid {
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": uid});
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let spec = json!({
            "holderIdentity": self.name,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": Time::with_micros(wall),
        });
        json!({
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": metadata,
            "spec": spec,
        })
    }

    /// Takes the answer to the last request. `random` is at least 0 and below 1.
    pub fn answered(&mut self, now: Moment, answer: &Answer, random: f64) {
        self.at = now;
        let next = std::mem::replace(&mut self.next, Next::Get);
        match (next, answer.code(), answer.object()) {
            (Next::Get, _, Some(lease)) => {
                self.next = Next::Renew(lease.clone());
                self.was_read = true;
            }
            (Next::Create | Next::Renew(_), _, Some(lease)) => self.renewed(lease.clone(), random),
            (Next::Get, 404, _) => {
                self.next = Next::Create;
                self.was_read = true;
            }
            (Next::Renew(base), code, _) => self.not_renewed(base, code, answer, random),
            (Next::Get | Next::Create, _, _) => self.wait(answer.retry_after()),
        }
    }

    /// Reads the Lease after the back-off.
    fn wait(&mut self, asked: Option<Duration>) {
        self.at = self.at + self.back_off.next(asked);
    }

    fn renewed(&mut self, lease: Value, random: f64) {
        self.next = Next::Renew(lease);
        self.back_off.reset();
        self.was_read = false;
        self.rest(random);
    }

    /// Waits for the next renewal.
    fn rest(&mut self, random: f64) {
        self.tries = 0;
        self.at = self.at + RENEW_PERIOD.mul_f64(1.0 + 0.04 * random.clamp(0.0, 1.0));
    }

    /// A Lease that has changed is read, and one that is gone too. Any other renewal is repeated at once, up to
    /// [`MAX_TRIES`]; then the Lease is read, which waits longer and longer. A Lease that can be read but not renewed waits
    /// for the next period.
    fn not_renewed(&mut self, base: Value, code: u16, answer: &Answer, random: f64) {
        self.tries += 1;
        if let Some(asked) = answer.retry_after() {
            self.at = self.at + asked;
        }
        let is_last = self.tries >= MAX_TRIES;
        if is_last && self.was_read {
            self.was_read = false;
            self.rest(random);
        } else if is_last {
            self.tries = 0;
        } else if !matches!(code, 404 | 409) {
            self.next = Next::Renew(base);
        }
    }
}

/// Returns true if a Lease differs from what the API server has in its time only.
fn is_renewal(base: &Value, lease: &Value) -> bool {
    let without_time = |lease: &Value| {
        let mut spec = lease["spec"].clone();
        spec["renewTime"] = Value::Null;
        (spec, lease["metadata"]["ownerReferences"].clone())
    };
    without_time(base) == without_time(lease)
}

/// Returns the patch that renews a Lease. The version in it says which one: another that has been written meanwhile is a
/// conflict.
fn renewal(lease: &Value) -> Value {
    json!({
        "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
        "spec": {"renewTime": lease["spec"]["renewTime"]},
    })
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
