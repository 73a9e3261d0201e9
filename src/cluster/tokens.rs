//! The tokens of service accounts that the pods of this node have in their volumes: which are asked for, and when they are
//! renewed (kubelet-probes 9.12).
//!
//! Invariants: pure. A token is renewed long before it expires: when 80 % of its life is over, or after a day. Its age is
//! measured by the boot clock, so that a wall clock that jumps neither stops renewals nor sends them all at once. A
//! token that cannot be renewed stays in use. A pod that is being deleted gets no new token.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::mem::replace;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::exchange::{Answer, BackOff, Method, Request};
use crate::api::Pod;
use crate::api::service_account::{NoToken, Token, TokenKey};
use crate::base::clock::{Moment, Time};
use crate::base::text::head;

/// The longest time for which a token is used before a renewal.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The largest random part by which a renewal is early, so that the tokens of a node are not renewed together.
const JITTER: Duration = Duration::from_secs(10);
/// Number of refusals for which the authorizer of nodes may not know yet that the pod is bound to this node.
const LATE_AUTHORIZER: u32 = 4;
/// Shortest and longest delay after such a refusal.
const LATE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));
/// Upper limit in bytes of what the API server says in a refusal.
const MAX_MESSAGE: usize = 500;

/// A token with its life, as it is kept for a start without the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token.
    pub token: Token,
    /// The whole life of the token.
    pub life: Duration,
    /// The wall-clock time at which the token expires.
    pub expires: SystemTime,
}

/// The consequence of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The pod gets this token.
    Token(IssuedToken),
    /// The pod has no token, for this reason, which is new.
    None(NoToken),
    /// The pod keeps its old token, which could not be renewed.
    Kept {
        /// Sentence of the API server, or an empty text if there was no answer.
        why: String,
        /// True if the old token has expired, which nobody has been told before.
        has_expired: bool,
    },
    /// Nothing is to be said: the request is sent again soon.
    Again,
}

/// A token that a pod uses.
#[derive(Debug)]
struct Used {
    namespace: String,
    pod_name: String,
    /// True if the pod is being deleted.
    is_ending: bool,
    /// True while a request is under way.
    is_asked: bool,
    /// The moment of the next request.
    at: Moment,
    back_off: BackOff,
    late: u32,
    /// The moment at which the token in use expires; None if there is none.
    expires: Option<Moment>,
    /// True if somebody has been told that the token in use has expired.
    is_end_told: bool,
}

/// The tokens that the pods of this node use.
#[derive(Debug, Default)]
pub struct Tokens(BTreeMap<TokenKey, Used>);

impl Tokens {
    /// Takes the pods of this node. Returns the tokens that are used no more, and those that are used from now on.
    pub fn use_by<'p>(
        &mut self,
        now: Moment,
        pods: impl Iterator<Item = &'p Pod>,
    ) -> (Vec<TokenKey>, Vec<TokenKey>) {
        let mut used: BTreeMap<TokenKey, &Pod> = BTreeMap::new();
        for pod in pods {
            used.extend(TokenKey::all_of(pod).into_iter().map(|key| (key, pod)));
        }
        let old = self.0.keys().filter(|key| !used.contains_key(*key));
        let old: Vec<TokenKey> = old.cloned().collect();
        self.0.retain(|key, _| used.contains_key(key));
        let mut new = Vec::new();
        for (key, pod) in used {
            let is_ending = pod.metadata.deletion_timestamp.is_some();
            let known = self.0.entry(key.clone()).or_insert_with(|| {
                new.push(key);
                Used {
                    namespace: pod.metadata.namespace.clone(),
                    pod_name: pod.metadata.name.clone(),
                    is_ending,
                    is_asked: false,
                    at: now,
                    back_off: BackOff::default(),
                    late: 0,
                    expires: None,
                    is_end_told: false,
                }
            });
            known.is_ending = is_ending;
        }
        (old, new)
    }

    /// Returns the tokens that are used.
    pub fn keys(&self) -> impl Iterator<Item = &TokenKey> {
        self.0.keys()
    }

    /// Takes a token that an earlier daemon has kept. Returns true if it has expired; it is used all the same, because an
    /// expired token does no harm, and a pod without its file does not start.
    pub fn restore(
        &mut self,
        now: Moment,
        wall: SystemTime,
        key: &TokenKey,
        kept: &IssuedToken,
    ) -> bool {
        let Some(used) = self.0.get_mut(key) else {
            return false;
        };
        // The clock of a node that has just booted may be years behind.
        let left = kept.expires.duration_since(wall).unwrap_or_default();
        let left = left.min(kept.life);
        used.expires = Some(now + left);
        used.at = now + left.saturating_sub(kept.life / 5);
        used.is_end_told = left.is_zero();
        used.is_end_told
    }

    /// Returns the requests that are due. Each is answered before the next for the same token.
    pub fn next(&mut self, now: Moment) -> Vec<(TokenKey, Request)> {
        let due = self.0.iter_mut();
        let due = due.filter(|(_, used)| used.is_waiting() && now >= used.at);
        due.map(|(key, used)| {
            used.is_asked = true;
            (key.clone(), used.request(key))
        })
        .collect()
    }

    /// Returns the moment of the next request.
    pub fn deadline(&self) -> Option<Moment> {
        let waiting = self.0.values().filter(|used| used.is_waiting());
        waiting.map(|used| used.at).min()
    }

    /// Takes the answer to a request. `random` is at least 0 and below 1.
    pub fn answered(
        &mut self,
        now: Moment,
        key: &TokenKey,
        answer: &Answer,
        random: f64,
    ) -> Fetched {
        let Some(used) = self.0.get_mut(key) else {
            return Fetched::Again;
        };
        used.is_asked = false;
        match answer.object().and_then(|object| issued(object, key)) {
            Some(issued) => {
                let age = (issued.life * 4 / 5).min(MAX_AGE);
                let early = JITTER.min(issued.life / 20).mul_f64(random);
                used.at = now + age.saturating_sub(early);
                used.expires = Some(now + issued.life);
                used.is_end_told = false;
                used.back_off.reset();
                used.late = 0;
                Fetched::Token(issued)
            }
            None => used.refused(now, answer, random),
        }
    }
}

impl Used {
    fn is_waiting(&self) -> bool {
        !self.is_asked && !self.is_ending
    }

    fn request(&self, key: &TokenKey) -> Request {
        let audiences = match key.audience.as_str() {
            "" => Value::Null,
            audience => json!([audience]),
        };
        Request {
            method: Method::Post,
            path: format!(
                "/api/v1/namespaces/{}/serviceaccounts/{}/token",
                self.namespace, key.service_account
            ),
            body: Some(json!({
                "kind": "TokenRequest",
                "apiVersion": "authentication.k8s.io/v1",
                "metadata": {},
                "spec": {
                    "audiences": audiences,
                    "expirationSeconds": key.expiration_seconds,
                    "boundObjectRef": {
                        "kind": "Pod",
                        "apiVersion": "v1",
                        "name": self.pod_name,
                        "uid": key.pod.as_str(),
                    },
                },
                "status": {"token": "", "expirationTimestamp": null},
            })),
        }
    }

    fn refused(&mut self, now: Moment, answer: &Answer, random: f64) -> Fetched {
        let is_late = answer.code() == 403 && self.late < LATE_AUTHORIZER;
        if is_late && self.expires.is_none() {
            self.late += 1;
            self.at = now + LATE.0 + (LATE.1 - LATE.0).mul_f64(random);
            return Fetched::Again;
        }
        self.at = now + self.back_off.next(answer.retry_after());
        let why = match answer.code() {
            0 => String::new(),
            code => match answer.message() {
                "" => format!("the API server answers {code}"),
                message => head(message, MAX_MESSAGE).to_owned(),
            },
        };
        match self.expires {
            Some(expires) => Fetched::Kept {
                why,
                has_expired: now >= expires && !replace(&mut self.is_end_told, true),
            },
            None if why.is_empty() => Fetched::Again,
            None => Fetched::None(NoToken::Refused(why)),
        }
    }
}

/// Reads a TokenRequest that the API server has answered; None if there is no token in it.
fn issued(object: &Value, key: &TokenKey) -> Option<IssuedToken> {
    let status = &object["status"];
    let token = status["token"].as_str().filter(|token| !token.is_empty())?;
    let expires = Time::instant(status["expirationTimestamp"].as_str()?)?;
    let seconds = object["spec"]["expirationSeconds"].as_u64();
    let asked = u64::try_from(key.expiration_seconds).ok();
    Some(IssuedToken {
        token: token.into(),
        life: Duration::from_secs(seconds.or(asked)?),
        expires,
    })
}
