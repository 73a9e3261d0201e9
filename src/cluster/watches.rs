//! The watches of a thread that has a [`Client`]: a reflector each, with the request that it waits for.
//!
//! Invariants: a watch has at most one request under way. What is heard of another request than the last one is left out.

use super::client::{Client, Heard, RequestId};
use super::reflector::{Action, Change, Input, Lines, Reflector, Selection};
use crate::base::clock::{Moment, random_fraction};

/// A reflector with the request that it waits for.
struct Watch {
    reflector: Reflector,
    lines: Lines,
    request: Option<RequestId>,
}

/// All watches of a thread. `W` says what a watch is about.
pub(super) struct Watches<W>(Vec<(W, Watch)>);

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<W: Clone + PartialEq> Watches<W> {
    /// Begins a watch.
    pub(super) fn add(&mut self, what: W, selection: Selection) {
        let watch = Watch {
            reflector: Reflector::new(selection),
            lines: Lines::default(),
            request: None,
        };
        self.0.push((what, watch));
    }

    /// Ends a watch.
    pub(super) fn remove(&mut self, what: &W, client: &mut Client) {
        self.0.retain(|(other, watch)| {
            if let Some(request) = watch.request.filter(|_| other == what) {
                client.close(request);
            }
            other != what
        });
    }

    /// Returns what the watch is about that waits for this request.
    pub(super) fn of(&self, id: RequestId) -> Option<&W> {
        let mut watches = self.0.iter();
        let found = watches.find(|(_, watch)| watch.request == Some(id));
        found.map(|(what, _)| what)
    }

    /// The number of watches.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, what: &W) -> bool {
        self.0.iter().any(|(other, _)| other == what)
    }

    pub(super) fn is_synced(&self, what: &W) -> bool {
        let mut watches = self.0.iter();
        watches.any(|(other, watch)| other == what && watch.reflector.is_synced())
    }

    /// Sends the requests that are due.
    pub(super) fn tick(&mut self, now: Moment, client: &mut Client) -> Vec<(W, Change)> {
        let mut changes = Vec::new();
        for (what, watch) in &mut self.0 {
            if now >= watch.reflector.deadline() {
                watch.step(now, Input::Tick, client, &mut |c| {
                    changes.push((what.clone(), c))
                });
            }
        }
        changes
    }

    /// Takes what is heard of a request. Returns false if no watch has this request.
    pub(super) fn hear(
        &mut self,
        now: Moment,
        id: RequestId,
        heard: &Heard,
        client: &mut Client,
        each: &mut dyn FnMut(W, Change),
    ) -> bool {
        let mut watches = self.0.iter_mut();
        let Some((what, watch)) = watches.find(|(_, watch)| watch.request == Some(id)) else {
            return false;
        };
        watch.hear(now, heard, client, &mut |change| each(what.clone(), change));
        true
    }

    /// The moment at which a watch has something to do although nothing comes.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let watches = self.0.iter();
        watches.map(|(_, watch)| watch.reflector.deadline()).min()
    }
}

impl Watch {
    fn hear(
        &mut self,
        now: Moment,
        heard: &Heard,
        client: &mut Client,
        each: &mut dyn FnMut(Change),
    ) {
        let input = match heard {
            Heard::Data(piece) => return self.data(now, piece, client, each),
            Heard::Opened => Input::Opened,
            Heard::Listed(body) => Input::Listed(body),
            Heard::Refused {
                code,
                retry_after,
                body,
            } => Input::Refused {
                code: *code,
                retry_after: *retry_after,
                body,
            },
            Heard::Ended(cause) => Input::Ended {
                cause: cause.as_deref(),
            },
            Heard::Answer(_) => return,
        };
        if !matches!(input, Input::Opened) {
            self.request = None;
        }
        self.step(now, input, client, each);
    }

    fn data(
        &mut self,
        now: Moment,
        piece: &[u8],
        client: &mut Client,
        each: &mut dyn FnMut(Change),
    ) {
        let mut lines = std::mem::take(&mut self.lines);
        let request = self.request;
        let pushed = lines.push(piece, &mut |line| {
            // A line may have closed the watch. What follows belongs to no request any more.
            if self.request == request {
                self.step(now, Input::Line(line), client, each);
            }
        });
        match pushed {
            Ok(()) if self.request == request => self.lines = lines,
            Ok(()) => {}
            Err(e) => self.step(now, Input::LineTooLong(e), client, each),
        }
    }

    fn step(
        &mut self,
        now: Moment,
        input: Input<'_>,
        client: &mut Client,
        each: &mut dyn FnMut(Change),
    ) {
        for action in self.reflector.step(now, random_fraction(), input) {
            match action {
                Action::Get(request) => {
                    self.lines = Lines::default();
                    self.request = Some(client.stream(&request));
                }
                Action::Close => {
                    if let Some(id) = self.request.take() {
                        client.close(id);
                    }
                }
                Action::Change(change) => each(change),
                Action::Report(trouble) => log::warn!("{trouble}"),
            }
        }
    }
}
