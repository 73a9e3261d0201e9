//! A thread that talks to an API server in rounds, and what is said in the log of its connection.
//!
//! Invariants: an order to end is not lost, and wakes the thread. A reason for which there is no connection is a warning once.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::client::{Client, LinkChange};
use crate::base::bell::Bell;
use crate::base::clock::Moment;
use crate::base::threads::{Pulse, Roster};

/// Stack of such a thread. Objects of the API are trees of values.
const STACK: usize = 1 << 20;

/// The state of such a thread.
pub(super) trait Rounds: Send {
    /// Begins anew after a panic, when nothing is known of what is under way.
    fn doubt(&mut self, now: Moment);
    /// Takes what has come, and then asks for what is to be asked. Returns true if the thread is to end.
    fn round(&mut self, now: Moment) -> bool;
    /// Waits until something concerns the thread.
    fn wait(&self, pulse: &Pulse);
    /// Does what is left to do when the thread ends.
    fn end(&mut self) {}
}

/// A handle on a thread that talks to an API server.
pub struct RoundsThread {
    thread: JoinHandle<()>,
    stop: Sender<()>,
    bell: Arc<Bell>,
}

impl RoundsThread {
    /// Starts the thread `name`. `state` makes its state from the bell that wakes it and the order that ends it.
    pub(super) fn spawn<R: Rounds + 'static>(
        name: &'static str,
        roster: &Roster,
        state: impl FnOnce(Arc<Bell>, Receiver<()>) -> R,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        let bell = Arc::new(Bell::new()?);
        let state: Box<dyn Rounds> = Box::new(state(bell.clone(), stopped.clone()));
        let thread = start(name, roster, state, stopped)?;
        Ok(Self { thread, stop, bell })
    }

    /// Orders the thread to end, and does not wait for it.
    pub fn stop(&self) {
        // The channel has room for one order, and one is enough.
        let _ = self.stop.try_send(());
        self.bell.ring();
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

fn start(
    name: &'static str,
    roster: &Roster,
    mut state: Box<dyn Rounds>,
    stop: Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    roster.spawn(name, STACK, move |pulse, panicked| {
        if panicked {
            state.doubt(Moment::now());
        }
        let is_ordered = !matches!(stop.try_recv(), Err(TryRecvError::Empty));
        if is_ordered || state.round(Moment::now()) {
            state.end();
            return ControlFlow::Break(());
        }
        state.wait(pulse);
        ControlFlow::Continue(())
    })
}

/// The last reason for which there is no connection. It is said once.
#[derive(Default)]
pub(super) struct Trouble(Option<String>);

impl Trouble {
    /// Says how the connection has changed. `whose` stands before each line; `meanwhile` says what a lost connection costs.
    /// Returns true if there is a new connection.
    pub(super) fn tell(&mut self, client: &mut Client, whose: &str, meanwhile: &str) -> bool {
        let mut is_new = false;
        for change in client.take_changes() {
            is_new = change == LinkChange::Up;
            match change {
                LinkChange::Up => {
                    self.0 = None;
                    log::info!("{whose}connected to the API server");
                }
                LinkChange::Down(cause) if self.0.as_ref() == Some(&cause) => {
                    log::debug!("{whose}{cause}");
                }
                LinkChange::Down(cause) => {
                    log::warn!("{whose}{cause}; {meanwhile}");
                    self.0 = Some(cause);
                }
            }
        }
        is_new
    }
}
