//! The desk at which the server's threads ask who a client is and what the client may do, and at which the link takes the
//! questions.
//!
//! Invariants: whoever asks waits at most [`PATIENCE`]. Without a connection to the API server, what is not known is refused
//! at once, but for the first moments of the daemon, in which the link makes its connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use crate::api::review::{NoReview, User};
use crate::base::bell::Bell;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::cluster::exchange::{Answer, Request};
use crate::cluster::reviews::{Asked, Lifetimes, Question, QuestionId, Reviews, Verdict};

/// Longest time for which a client's request waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

type Reply = Result<Verdict, NoReview>;

/// The desk.
pub struct ReviewDesk {
    state: Mutex<State>,
    bell: OnceLock<Arc<Bell>>,
}

struct State {
    reviews: Reviews,
    /// The threads that wait for the answer to each question.
    waiting: BTreeMap<QuestionId, Vec<Sender<Reply>>>,
}

impl ReviewDesk {
    /// Makes a desk that knows no answers. `node` is the name of this node.
    pub fn new(node: String, lifetimes: Lifetimes) -> Self {
        let state = State {
            reviews: Reviews::new(node, lifetimes),
            waiting: BTreeMap::new(),
        };
        Self {
            state: Mutex::new(state),
            bell: OnceLock::new(),
        }
    }

    /// Sets the times for which answers of the API server are good from now on.
    pub fn set_lifetimes(&self, lifetimes: Lifetimes) {
        self.state.locked().reviews.set_lifetimes(lifetimes);
    }

    /// Returns the user of a token; None if the token is not valid.
    ///
    /// # Errors
    /// Returns [`NoReview`] if the API server cannot be asked.
    pub fn user_of(&self, token: &str) -> Result<Option<User>, NoReview> {
        match self.ask(Question::Token(token))? {
            Verdict::User(user) => Ok(user),
            Verdict::Allowed(_) => Ok(None),
        }
    }

    /// Returns true if the user may do what `verb` says with the node's subresource.
    ///
    /// # Errors
    /// Returns [`NoReview`] if the API server cannot be asked.
    pub fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, NoReview> {
        let question = Question::Access {
            user,
            verb,
            subresource,
        };
        Ok(self.ask(question)? == Verdict::Allowed(true))
    }

    fn ask(&self, question: Question<'_>) -> Reply {
        let reply = {
            let mut state = self.state.locked();
            match state.reviews.ask(Moment::now(), question) {
                Asked::Known(verdict) => return Ok(verdict),
                Asked::NotAsked(why) => return Err(why),
                Asked::Waits(id) => {
                    let (sender, reply) = bounded(1);
                    state.waiting.entry(id).or_default().push(sender);
                    reply
                }
            }
        };
        // Before the link is there, nobody answers.
        let Some(bell) = self.bell.get() else {
            self.give_up();
            return Err(NoReview::NoConnection);
        };
        bell.ring();
        reply.recv_timeout(PATIENCE).unwrap_or(Err(NoReview::Late))
    }

    /// Rings this bell from now on when a question waits.
    pub(super) fn ring(&self, bell: Arc<Bell>) {
        let _ = self.bell.set(bell);
    }

    /// Returns the requests that are due.
    pub(super) fn next(&self, now: Moment) -> Vec<(QuestionId, Request)> {
        self.state.locked().reviews.next(now)
    }

    /// Returns the moment of the next request.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.state.locked().reviews.deadline()
    }

    /// Takes the answer to a request.
    pub(super) fn answered(&self, now: Moment, id: QuestionId, answer: &Answer) {
        let mut state = self.state.locked();
        if let Some(reply) = state.reviews.answered(now, id, answer) {
            state.reply(id, &reply);
        }
    }

    /// Tells everybody who waits that there is no connection.
    pub(super) fn give_up(&self) {
        let mut state = self.state.locked();
        for id in state.reviews.give_up() {
            state.reply(id, &Err(NoReview::NoConnection));
        }
    }
}

impl State {
    fn reply(&mut self, id: QuestionId, reply: &Reply) {
        for sender in self.waiting.remove(&id).unwrap_or_default() {
            // A thread that has waited too long has gone.
            let _ = sender.send(reply.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_link_nobody_waits() {
        let desk = ReviewDesk::new("n".into(), Lifetimes::default());
        let user = User {
            name: "a".into(),
            ..User::default()
        };
        assert_eq!(desk.user_of("t").unwrap_err(), NoReview::NoConnection);
        assert_eq!(
            desk.may(&user, "get", "proxy").unwrap_err(),
            NoReview::NoConnection
        );
        assert_eq!(desk.next(Moment::now()), [], "nothing is left to be asked");
    }

    #[test]
    fn everybody_who_asks_the_same_gets_the_one_answer() {
        let desk = Arc::new(ReviewDesk::new("n".into(), Lifetimes::default()));
        desk.ring(Arc::new(Bell::new().unwrap()));
        let asks = |_| {
            let desk = desk.clone();
            std::thread::spawn(move || desk.user_of("t"))
        };
        let threads: Vec<_> = (0..3).map(asks).collect();
        let waits = || {
            let state = desk.state.locked();
            state.waiting.values().map(Vec::len).sum::<usize>()
        };
        while waits() < 3 {
            std::thread::yield_now();
        }
        let requests = desk.next(Moment::now());
        let [(id, _)] = &requests[..] else {
            panic!("{requests:?}");
        };
        let status = serde_json::json!({"authenticated": true, "user": {"username": "a"}});
        let review = Answer::new(201, serde_json::json!({"status": status}));
        desk.answered(Moment::now(), *id, &review);
        for thread in threads {
            assert_eq!(thread.join().unwrap().unwrap().unwrap().name, "a");
        }
        assert_eq!(waits(), 0);
    }
}
