//! The thread that checks and repairs the networks of pods.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::Networks;
use crate::base::threads::Roster;

/// The time between two checks of the networks.
const INTERVAL: Duration = Duration::from_secs(10);
const STACK: usize = 256 << 10;

/// Starts the thread, which ends when the channel `stop` closes. `sandboxes` are the ids of all existing
/// sandboxes.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn spawn(
    networks: Arc<Networks>,
    sandboxes: Vec<String>,
    stop: Receiver<()>,
    roster: &Roster,
) -> io::Result<JoinHandle<()>> {
    let mut left = Some(sandboxes);
    roster.spawn("network", STACK, move |pulse, _| {
        if let Some(sandboxes) = left.take() {
            networks.collect(&sandboxes);
        }
        for what in networks.mend() {
            log::warn!("{what}");
        }
        match pulse.rest(|| stop.recv_timeout(INTERVAL)) {
            Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
        }
    })
}
