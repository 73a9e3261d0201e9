//! The tcpSocket handler: a connection is enough (kubelet-probes 3.5).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::dial::{DialError, End, dial};
use super::outcome::{HandlerResult, Outcome, Phase};
use super::target::Target;

/// Connects to the first address that answers within `timeout`, and closes.
#[inline(never)]
pub fn probe(target: &Target, port: u16, timeout: Duration) -> Outcome {
    let deadline = Instant::now() + timeout;
    let target = match target.looked_up(timeout) {
        Ok(target) => target,
        Err(e) => {
            return Outcome::new(
                HandlerResult::Failure,
                format!("dial tcp: {e}"),
                Phase::Connect,
            );
        }
    };
    let mut first = None;
    for ip in &target.addresses {
        match dial(
            SocketAddr::new(*ip, port),
            target.netns.as_ref(),
            deadline,
            End::Close,
        ) {
            Ok(_) => return Outcome::new(HandlerResult::Success, "", Phase::Connect),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    match first {
        Some(DialError::Ours(text)) => Outcome::error(text, Phase::Connect),
        Some(DialError::Failed(text)) => Outcome::new(HandlerResult::Failure, text, Phase::Connect),
        None => Outcome::new(
            HandlerResult::Failure,
            format!("dial tcp: no address of {}", target.host),
            Phase::Connect,
        ),
    }
}
