//! The list and the watch of one selection of objects, as client-go's reflector does them (kubelet-probes 6.5).
//!
//! Invariants: pure; the clock and the random number are arguments. There is at most one request at a time. The caller's
//! store misses no change: events are said in their order, and after a gap [`Change::Replaced`] says the whole store.
//! After [`Action::Close`], nothing is asked within the same step, so late lines of a closed watch are ignored. The
//! reflector keeps no object but those of a list that has not ended.

mod back_off;
mod event;
mod lines;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use self::back_off::BackOff;
use self::event::{Event, ListPage, Refusal, key_of, version_of};
use self::request::Page;
use crate::base::clock::Moment;

pub use lines::{LONGEST_LINE, LineTooLong, Lines};
pub use messages::{Action, Change, Input};
pub use request::{Request, Selection};
pub use trouble::{BadAnswer, Trouble};

/// Largest number of bytes in the answer to a request for a list, and in all lines of an initial list: 32 MiB.
pub const LARGEST_LIST: usize = 32 << 20;

/// Time that the API server has for the head of an answer, and for a whole list.
const ANSWER: Duration = Duration::from_secs(60);
/// Time without a line after which a watch counts as dead. Bookmarks come every minute.
const SILENCE: Duration = Duration::from_secs(150);
/// Time in which a watch must have sent its initial list. An API server that does not know initial lists sends the
/// objects, and no end.
const INITIAL: Duration = Duration::from_secs(120);
/// Shortest life of a watch without an event after which it is resumed at once.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// Longest delay that the API server can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Delays after refusals by an authorizer that is behind. Later ones have the usual back-off.
const LATE_AUTHORIZER: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];

/// The next request.
#[derive(Debug)]
enum Ask {
    /// The whole selection as a stream, and then the changes.
    WatchList,
    /// A page of the whole selection, with the objects of the pages before.
    List(Page, Listing),
    /// The changes since the last known version.
    Watch,
}

/// The objects of a list that has not ended, by namespace and name.
#[derive(Debug, Default)]
struct Listing {
    objects: BTreeMap<(String, String), Value>,
    bytes: usize,
}

#[derive(Debug)]
enum State {
    /// The next request has to wait.
    Waiting { until: Moment, next: Ask },
    /// The answer to the request has not come yet.
    Asked { ask: Ask, until: Moment },
    /// A watch sends the objects of its initial list.
    Initial {
        opened: Moment,
        heard: Moment,
        listing: Listing,
    },
    /// A watch sends changes.
    Watching {
        opened: Moment,
        heard: Moment,
        has_event: bool,
    },
}

/// The moment of a step, its random number, and the actions so far.
struct Turn {
    now: Moment,
    random: f64,
    actions: Vec<Action>,
}

/// The machine that lists and watches one selection.
#[derive(Debug)]
pub struct Reflector {
    selection: Selection,
    state: State,
    /// Last known resource version, or empty.
    version: String,
    /// True if the API server could not continue from the last known version.
    is_version_lost: bool,
    back_off: BackOff,
    /// Number of refusals in a row by an authorizer that is behind.
    late_authorizer: usize,
    is_synced: bool,
}

impl Reflector {
    /// Makes a reflector that asks at its first `Tick`.
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            state: State::Waiting {
                until: Moment::default(),
                next: Ask::WatchList,
            },
            version: String::new(),
            is_version_lost: false,
            back_off: BackOff::default(),
            late_authorizer: 0,
            is_synced: false,
        }
    }

    /// True if a full list has been said.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns the time of the next `Tick`, unless another input comes earlier.
    pub fn deadline(&self) -> Moment {
        match &self.state {
            State::Waiting { until, .. } | State::Asked { until, .. } => *until,
            State::Initial { opened, heard, .. } => (*heard + SILENCE).min(*opened + INITIAL),
            State::Watching { heard, .. } => *heard + SILENCE,
        }
    }

    /// Takes an input, and returns what is to be done. `random` is at least 0 and below 1, and new for each step.
    pub fn step(&mut self, now: Moment, random: f64, input: Input<'_>) -> Vec<Action> {
        let mut turn = Turn {
            now,
            random,
            actions: Vec::new(),
        };
        let is_due = now >= self.deadline();
        // The state is moved out, because a step takes its parts apart. Every arm below puts one in its place.
        let idle = State::Waiting {
            until: now,
            next: Ask::WatchList,
        };
        let state = std::mem::replace(&mut self.state, idle);
        self.state = match (state, input) {
            (state, Input::Tick) if is_due => self.tick(state, &mut turn),
            (State::Asked { ask, .. }, Input::Opened) => self.opened(ask, now),
            (State::Asked { ask, .. }, Input::Listed(body)) => self.listed(ask, body, &mut turn),
            (
                State::Asked { ask, .. },
                Input::Refused {
                    code,
                    retry_after,
                    body,
                },
            ) => {
                let refusal = Refusal::of_answer(code, body);
                self.refused(ask, refusal, retry_after, &mut turn)
            }
            (State::Asked { ask, .. }, Input::Ended { cause }) => {
                self.disconnected(anew(ask), cause, &mut turn)
            }
            (state, Input::Line(line)) => self.line(state, line, &mut turn),
            (State::Initial { .. } | State::Watching { .. }, Input::LineTooLong(cause)) => {
                let collection = self.collection();
                self.give_up(Trouble::LineTooLong { collection, cause }, &mut turn)
            }
            (State::Initial { .. }, Input::Ended { cause }) => {
                self.disconnected(Ask::WatchList, cause, &mut turn)
            }
            (
                State::Watching {
                    opened, has_event, ..
                },
                Input::Ended { .. },
            ) => match has_event || now.since(opened) >= SHORT_WATCH {
                true => self.ask(Ask::Watch, &mut turn),
                false => self.wait(Ask::Watch, Duration::ZERO, &mut turn),
            },
            (state, _) => state,
        };
        turn.actions
    }

    fn collection(&self) -> String {
        self.selection.collection().to_owned()
    }

    /// The deadline of the state has come.
    fn tick(&mut self, state: State, turn: &mut Turn) -> State {
        let collection = self.collection();
        match state {
            State::Waiting { next, .. } => self.ask(next, turn),
            State::Asked { ask, .. } => {
                let limit = ANSWER;
                turn.close(Trouble::NoAnswer { collection, limit });
                self.wait(anew(ask), Duration::ZERO, turn)
            }
            State::Initial { heard, .. } if turn.now < heard + SILENCE => {
                let limit = INITIAL;
                turn.close(Trouble::NoEndOfInitial { collection, limit });
                let list = Ask::List(self.first_page(), Listing::default());
                self.wait(list, Duration::ZERO, turn)
            }
            State::Initial { .. } => {
                let limit = SILENCE;
                self.give_up(Trouble::Silent { collection, limit }, turn)
            }
            State::Watching { opened, heard, .. } => {
                let limit = SILENCE;
                turn.close(Trouble::Silent { collection, limit });
                // A watch from a version that the API server has not reached yet says nothing at all. Only a full
                // list notices that.
                let next = match heard > opened {
                    true => Ask::Watch,
                    false => Ask::WatchList,
                };
                self.wait(next, Duration::ZERO, turn)
            }
        }
    }

    /// Sends a request.
    fn ask(&mut self, ask: Ask, turn: &mut Turn) -> State {
        let version = match self.is_version_lost {
            true => "",
            false => self.version.as_str(),
        };
        let request = match &ask {
            Ask::WatchList => self.selection.watch_list(version, turn.random),
            Ask::List(page, _) => self.selection.list(page),
            Ask::Watch => self.selection.watch(&self.version, turn.random),
        };
        turn.actions.push(Action::Get(request));
        State::Asked {
            ask,
            until: turn.now + ANSWER,
        }
    }

    /// Waits for the back-off, and for `least` at least.
    fn wait(&mut self, next: Ask, least: Duration, turn: &mut Turn) -> State {
        let delay = self.back_off.failed(turn.now, turn.random).max(least);
        State::Waiting {
            until: turn.now + delay,
            next,
        }
    }

    /// The connection has ended before the answer was complete.
    fn disconnected(&mut self, next: Ask, cause: Option<&str>, turn: &mut Turn) -> State {
        let cause = cause.unwrap_or("the connection was closed before the end of the answer");
        turn.report(Trouble::Connection {
            collection: self.collection(),
            cause: cause.to_owned(),
        });
        self.wait(next, Duration::ZERO, turn)
    }

    /// Closes a watch that cannot be read on, and reads the whole list after a while.
    fn give_up(&mut self, trouble: Trouble, turn: &mut Turn) -> State {
        turn.close(trouble);
        self.wait(Ask::WatchList, Duration::ZERO, turn)
    }

    fn opened(&mut self, ask: Ask, now: Moment) -> State {
        self.late_authorizer = 0;
        match ask {
            Ask::WatchList => State::Initial {
                opened: now,
                heard: now,
                listing: Listing::default(),
            },
            Ask::Watch => State::Watching {
                opened: now,
                heard: now,
                has_event: false,
            },
            list @ Ask::List(..) => State::Asked {
                ask: list,
                until: now + ANSWER,
            },
        }
    }

    /// Returns the first page of a list. It asks for a version that is not older than the last known one.
    fn first_page(&self) -> Page {
        match (self.is_version_lost, self.version.as_str()) {
            (true, _) => Page::Newest,
            (false, "") => Page::OfCache,
            (false, version) => Page::NotOlderThan(version.to_owned()),
        }
    }

    fn listed(&mut self, ask: Ask, body: &[u8], turn: &mut Turn) -> State {
        let Ask::List(_, mut listing) = ask else {
            return self.wait(ask, Duration::ZERO, turn);
        };
        self.late_authorizer = 0;
        let page = match ListPage::read(body) {
            Ok(page) => page,
            Err(cause) => {
                let collection = self.collection();
                turn.report(Trouble::Unreadable { collection, cause });
                return self.wait(Ask::WatchList, Duration::ZERO, turn);
            }
        };
        listing.bytes += body.len();
        if listing.bytes > LARGEST_LIST {
            turn.report(self.too_big());
            return self.wait(Ask::WatchList, Duration::ZERO, turn);
        }
        let keyed = page.items.into_iter().map(|item| (key_of(&item), item));
        listing.objects.extend(keyed);
        match page.further {
            Some(token) => self.ask(Ask::List(Page::Further(token), listing), turn),
            None => {
                self.synced(listing, page.version, turn);
                self.ask(Ask::Watch, turn)
            }
        }
    }

    fn too_big(&self) -> Trouble {
        Trouble::ListTooBig {
            collection: self.collection(),
            limit: LARGEST_LIST,
        }
    }

    /// A full list has ended at `version`.
    fn synced(&mut self, listing: Listing, version: String, turn: &mut Turn) {
        self.version = version;
        self.is_version_lost = false;
        self.is_synced = true;
        let objects = listing.objects.into_values().collect();
        turn.actions.push(Action::Change(Change::Replaced(objects)));
    }

    fn refused(
        &mut self,
        ask: Ask,
        refusal: Refusal,
        retry_after: Option<Duration>,
        turn: &mut Turn,
    ) -> State {
        let retry_after = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        let may_be_listed = refusal.is_of_the_watch_list() && retry_after.is_zero();
        if matches!(ask, Ask::WatchList) && may_be_listed {
            return self.ask(Ask::List(self.first_page(), Listing::default()), turn);
        }
        if refusal.has_lost_the_version() && !matches!(ask, Ask::Watch) {
            return self.version_lost(ask, refusal, retry_after, turn);
        }
        let is_late = refusal.is_of_a_late_authorizer();
        let is_busy = refusal.code == 429 && !retry_after.is_zero();
        let next = match refusal.code {
            429 => ask,
            _ => Ask::WatchList,
        };
        turn.report(self.refusal(refusal));
        let quick = LATE_AUTHORIZER.get(self.late_authorizer);
        self.late_authorizer = if is_late { self.late_authorizer + 1 } else { 0 };
        let delay = match quick {
            Some(delay) if is_late => delay.mul_f64(1.0 + turn.random),
            _ if is_busy => retry_after,
            _ => return self.wait(next, retry_after, turn),
        };
        State::Waiting {
            until: turn.now + delay,
            next,
        }
    }

    /// A full list from the last known version is not possible: it is asked for without a version, at once.
    fn version_lost(
        &mut self,
        ask: Ask,
        refusal: Refusal,
        retry_after: Duration,
        turn: &mut Turn,
    ) -> State {
        let was_lost = std::mem::replace(&mut self.is_version_lost, true);
        turn.report(self.refusal(refusal));
        let next = match ask {
            Ask::List(..) => Ask::List(self.first_page(), Listing::default()),
            Ask::WatchList | Ask::Watch => Ask::WatchList,
        };
        match was_lost {
            true => self.wait(next, retry_after, turn),
            false => State::Waiting {
                until: turn.now + retry_after,
                next,
            },
        }
    }

    fn refusal(&self, refusal: Refusal) -> Trouble {
        let collection = self.collection();
        let (is_lost, message) = (refusal.has_lost_the_version(), refusal.message);
        match is_lost {
            true => Trouble::Expired {
                collection,
                message,
            },
            false => Trouble::Refused {
                collection,
                reader: self.selection.reader(),
                code: refusal.code,
                message,
            },
        }
    }

    fn line(&mut self, state: State, line: &[u8], turn: &mut Turn) -> State {
        if !matches!(state, State::Initial { .. } | State::Watching { .. }) {
            return state;
        }
        match (state, Event::read(line)) {
            (_, Err(cause)) => {
                let collection = self.collection();
                self.give_up(Trouble::Unreadable { collection, cause }, turn)
            }
            (state, Ok(Event::Error(refusal))) => self.error(&state, refusal, turn),
            (
                State::Initial {
                    opened, listing, ..
                },
                Ok(event),
            ) => self.initial(opened, listing, event, line.len(), turn),
            (State::Watching { opened, .. }, Ok(event)) => {
                self.change(event, turn);
                State::Watching {
                    opened,
                    heard: turn.now,
                    has_event: true,
                }
            }
            (state, Ok(_)) => state,
        }
    }

    /// The watch has ended with an error.
    fn error(&mut self, state: &State, refusal: Refusal, turn: &mut Turn) -> State {
        let is_watching = matches!(state, State::Watching { .. });
        if !is_watching && refusal.has_lost_the_version() {
            self.is_version_lost = true;
        }
        if !is_watching && refusal.is_of_the_watch_list() {
            turn.actions.push(Action::Close);
            return self.ask(Ask::List(self.first_page(), Listing::default()), turn);
        }
        let next = match refusal.code {
            429 if is_watching => Ask::Watch,
            _ => Ask::WatchList,
        };
        turn.close(self.refusal(refusal));
        self.wait(next, Duration::ZERO, turn)
    }

    /// Takes an event of the initial list.
    fn initial(
        &mut self,
        opened: Moment,
        mut listing: Listing,
        event: Event,
        bytes: usize,
        turn: &mut Turn,
    ) -> State {
        let heard = turn.now;
        match event {
            Event::Bookmark {
                version,
                is_end_of_initial: true,
            } => {
                self.synced(listing, version, turn);
                return State::Watching {
                    opened,
                    heard,
                    has_event: true,
                };
            }
            Event::Added(object) | Event::Modified(object) => {
                listing.bytes += bytes;
                drop(listing.objects.insert(key_of(&object), object));
            }
            Event::Deleted(object) => drop(listing.objects.remove(&key_of(&object))),
            Event::Bookmark { .. } | Event::Error(_) => {}
        }
        if listing.bytes > LARGEST_LIST {
            return self.give_up(self.too_big(), turn);
        }
        State::Initial {
            opened,
            heard,
            listing,
        }
    }

    /// Takes an event after the initial list.
    fn change(&mut self, event: Event, turn: &mut Turn) {
        let change = match event {
            Event::Bookmark { version, .. } => {
                self.version = version;
                return;
            }
            Event::Added(object) => Change::Added(object),
            Event::Modified(object) => Change::Modified(object),
            Event::Deleted(object) => Change::Deleted(object),
            Event::Error(_) => return,
        };
        let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) = &change
        else {
            return;
        };
        if let Ok(version) = version_of(object) {
            self.version = version;
        }
        turn.actions.push(Action::Change(change));
    }
}

/// Returns the request to begin with after the connection has failed. A list begins with its first page again.
fn anew(ask: Ask) -> Ask {
    match ask {
        Ask::Watch => Ask::Watch,
        Ask::WatchList | Ask::List(..) => Ask::WatchList,
    }
}

impl Turn {
    fn report(&mut self, trouble: Trouble) {
        self.actions.push(Action::Report(trouble));
    }

    fn close(&mut self, trouble: Trouble) {
        self.actions.push(Action::Close);
        self.report(trouble);
    }
}
