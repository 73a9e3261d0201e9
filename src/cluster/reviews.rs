//! The questions about clients that the API server answers: who has a token, and what a user may do with this node
//! (kubelet-probes 11.1).
//!
//! Invariants: pure. The number of questions that wait and of answers that are kept is bounded, and tokens leave places for
//! users, because whoever reaches the node's port can ask about tokens. Of a question that was answered only a digest is kept, so that no
//! token stays in memory. A question that could not be answered is not remembered.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use super::exchange::{Answer, BackOff, Method, Request};
use crate::api::review::{
    NoReview, NodeAccess, User, access_review, is_allowed, reviewed_user, token_review,
};
use crate::base::clock::Moment;
use crate::base::text::head;

/// Largest number of questions that wait for an answer.
const MOST_WAITING: usize = 32;
/// Largest number of tokens that wait. The other places stay for users who are known.
const MOST_TOKENS: usize = 24;
/// Largest number of answers that are kept.
const MOST_KNOWN: usize = 1000;
/// Time for which a token is known not to be valid. It is short, so that such answers give way to others.
const INVALID: Duration = Duration::from_secs(10);
/// Number of times that a question is sent while the API server is too busy or failing.
const TRIES: u32 = 4;
/// Upper limit in bytes of what the API server says in a refusal.
const MAX_MESSAGE: usize = 300;

/// The times for which answers are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// `authentication.webhook.cacheTTL`: for the user of a token.
    pub token: Duration,
    /// `authorization.webhook.cacheAuthorizedTTL`: for an access that is allowed.
    pub authorized: Duration,
    /// `authorization.webhook.cacheUnauthorizedTTL`: for an access that is not allowed.
    pub unauthorized: Duration,
}

/// The kubelet's defaults.
impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            token: Duration::from_secs(120),
            authorized: Duration::from_secs(300),
            unauthorized: Duration::from_secs(30),
        }
    }
}

/// A question to the API server.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// The user who has this token.
    Token(&'a str),
    /// The right of a user to an access.
    Access {
        /// The user.
        user: &'a User,
        /// Verb of the API.
        verb: &'a str,
        /// Subresource of the node.
        subresource: &'a str,
    },
}

/// The digest of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId([u8; 32]);

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The user of a token; None if the token is not valid.
    User(Option<User>),
    /// True if the access is allowed.
    Allowed(bool),
}

/// The consequence of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer is known.
    Known(Verdict),
    /// The answer will come.
    Waits(QuestionId),
    /// The question is not asked.
    NotAsked(NoReview),
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Waiting {
    request: Request,
    is_token: bool,
    /// True while the request is under way.
    is_sent: bool,
    /// The moment of the next request.
    at: Moment,
    back_off: BackOff,
    tries: u32,
}

/// The questions and the answers.
#[derive(Debug)]
pub struct Reviews {
    node: String,
    lifetimes: Lifetimes,
    /// The answers, each with the moment until which it is good.
    known: BTreeMap<QuestionId, (Moment, Verdict)>,
    waiting: BTreeMap<QuestionId, Waiting>,
}

impl Reviews {
    /// Begins without any answer. `node` is the name of this node.
    pub const fn new(node: String, lifetimes: Lifetimes) -> Self {
        Self {
            node,
            lifetimes,
            known: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Sets the times for which answers are good. Answers that are known keep theirs.
    pub const fn set_lifetimes(&mut self, lifetimes: Lifetimes) {
        self.lifetimes = lifetimes;
    }

    /// Takes a question. The same question is asked only once at a time.
    pub fn ask(&mut self, now: Moment, question: Question<'_>) -> Asked {
        let request = self.request(question);
        let body = request.body.as_ref().map(Value::to_string);
        let id = digest(&SHA256, body.unwrap_or_default().as_bytes());
        let Ok(id) = id.as_ref().try_into().map(QuestionId) else {
            return Asked::NotAsked(NoReview::Busy);
        };
        if let Some((until, verdict)) = self.known.get(&id)
            && now < *until
        {
            return Asked::Known(verdict.clone());
        }
        if self.waiting.contains_key(&id) {
            return Asked::Waits(id);
        }
        let is_token = matches!(question, Question::Token(_));
        let tokens = self.waiting.values().filter(|waiting| waiting.is_token);
        let has_place = self.waiting.len() < MOST_WAITING;
        if !has_place || (is_token && tokens.count() >= MOST_TOKENS) {
            return Asked::NotAsked(NoReview::Busy);
        }
        let waiting = Waiting {
            request,
            is_token,
            is_sent: false,
            at: now,
            back_off: BackOff::default(),
            tries: 0,
        };
        self.waiting.insert(id, waiting);
        Asked::Waits(id)
    }

    fn request(&self, question: Question<'_>) -> Request {
        let (path, body) = match question {
            Question::Token(token) => (
                "/apis/authentication.k8s.io/v1/tokenreviews",
                token_review(token),
            ),
            Question::Access {
                user,
                verb,
                subresource,
            } => {
                let access = NodeAccess {
                    verb,
                    subresource,
                    node: &self.node,
                };
                (
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                    access_review(user, access),
                )
            }
        };
        Request {
            method: Method::Post,
            path: path.to_owned(),
            body: Some(body),
        }
    }

    /// Returns the requests that are due. Each is answered before the next for the same question.
    pub fn next(&mut self, now: Moment) -> Vec<(QuestionId, Request)> {
        let due = self.waiting.iter_mut();
        let due = due.filter(|(_, waiting)| !waiting.is_sent && now >= waiting.at);
        due.map(|(id, waiting)| {
            waiting.is_sent = true;
            waiting.tries += 1;
            (*id, waiting.request.clone())
        })
        .collect()
    }

    /// Returns the moment of the next request.
    pub fn deadline(&self) -> Option<Moment> {
        let waiting = self.waiting.values().filter(|waiting| !waiting.is_sent);
        waiting.map(|waiting| waiting.at).min()
    }

    /// Takes the answer to a request. Returns the verdict, or None if the question is sent again.
    pub fn answered(
        &mut self,
        now: Moment,
        id: QuestionId,
        answer: &Answer,
    ) -> Option<Result<Verdict, NoReview>> {
        let waiting = self.waiting.get_mut(&id)?;
        waiting.is_sent = false;
        let Some(review) = answer.object() else {
            let code = answer.code();
            if matches!(code, 429 | 500..) && waiting.tries < TRIES {
                waiting.at = now + waiting.back_off.next(answer.retry_after());
                return None;
            }
            self.waiting.remove(&id);
            return Some(Err(match code {
                0 => NoReview::NoConnection,
                code => NoReview::Refused {
                    code,
                    message: head(answer.message(), MAX_MESSAGE).to_owned(),
                },
            }));
        };
        let verdict = match waiting.is_token {
            true => Verdict::User(reviewed_user(review)),
            false => Verdict::Allowed(is_allowed(review)),
        };
        let good = match &verdict {
            Verdict::User(Some(_)) => self.lifetimes.token,
            Verdict::User(None) => self.lifetimes.token.min(INVALID),
            Verdict::Allowed(true) => self.lifetimes.authorized,
            Verdict::Allowed(false) => self.lifetimes.unauthorized,
        };
        self.waiting.remove(&id);
        self.keep(now, id, now + good, verdict.clone());
        Some(Ok(verdict))
    }

    /// Keeps an answer. If there is no room, the one that is good for the shortest time gives way.
    fn keep(&mut self, now: Moment, id: QuestionId, until: Moment, verdict: Verdict) {
        self.known.retain(|_, (until, _)| now < *until);
        if self.known.len() >= MOST_KNOWN {
            let first = self.known.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(id, _)| *id) {
                self.known.remove(&first);
            }
        }
        self.known.insert(id, (until, verdict));
    }

    /// Gives every question up that waits, for want of a connection. Returns the questions.
    pub fn give_up(&mut self) -> Vec<QuestionId> {
        std::mem::take(&mut self.waiting).into_keys().collect()
    }
}
