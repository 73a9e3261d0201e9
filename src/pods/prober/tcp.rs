//! The tcpSocket handler: a connection is a success (kubelet-probes 3.5).

use std::time::{Duration, Instant};

use super::outcome::{HandlerResult, Outcome, Phase};
use super::progress::Progress;
use super::target::Target;
use crate::base::wire::dial::{DialError, End};

/// Connects to the first address that answers within `timeout`, and closes the connection.
#[inline(never)]
pub fn probe(target: &Target, port: u16, timeout: Duration) -> Outcome {
    let deadline = Instant::now() + timeout;
    let target = match target.looked_up(timeout) {
        Ok(target) => target,
        Err(e) => {
            let text = format!("dial tcp: {e}");
            return e.outcome(text);
        }
    };
    let dialed = target
        .dialer(deadline, &Progress::new())
        .and_then(|dialer| dialer.dial_first(target.at_port(port), End::Close));
    match dialed {
        Ok(_) => Outcome::new(HandlerResult::Success, "", Phase::Connect),
        Err(DialError::Ours(text)) => Outcome::error(text, Phase::Connect),
        Err(DialError::Failed(text) | DialError::TimedOut(text)) => {
            Outcome::new(HandlerResult::Failure, text, Phase::Connect)
        }
    }
}
