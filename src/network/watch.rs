//! The thread that keeps the networks of pods whole.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::Networks;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(10);
const STACK: usize = 256 << 10;

/// Starts it; it ends when `stop` closes. `sandboxes` are the ids of all that there are.
///
/// # Errors
/// The node gives no thread.
pub fn spawn(
    networks: Arc<Networks>,
    sandboxes: Vec<String>,
    stop: Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        networks.collect(&sandboxes);
        loop {
            for what in networks.mend() {
                log::warn!("{what}");
            }
            match stop.recv_timeout(INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    Builder::new()
        .name("network".into())
        .stack_size(STACK)
        .spawn(run)
}
