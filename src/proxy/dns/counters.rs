//! What the responder counts.

use serde::{Deserialize, Serialize};

/// Since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Questions over UDP.
    pub udp_requests: u64,
    /// Questions over TCP.
    pub tcp_requests: u64,
    /// Answers by their code: 0 NOERROR, 1 FORMERR, 2 SERVFAIL, 3 NXDOMAIN, 4 NOTIMP, 5 REFUSED.
    pub responses: [u64; 16],
    /// Answers that say that they were cut short.
    pub truncated: u64,
    /// Messages of addresses that get no answers, and their connections.
    pub strangers: u64,
    /// Messages that are no questions.
    pub ignored: u64,
    /// Answers that the kernel did not take: its queue is full, or the client is gone.
    pub unsent: u64,
    /// Connections that gave way to others.
    pub connections_displaced: u64,
    /// Questions that other resolvers were asked.
    pub forwards: u64,
    /// Tries of them.
    pub forward_tries: u64,
    /// Tries that nobody answered in time.
    pub forward_timeouts: u64,
    /// Tries that failed at once, or that a resolver did not want to answer.
    pub forward_failures: u64,
    /// Questions that gave way to others.
    pub forwards_displaced: u64,
}

impl Counters {
    /// An answer goes out.
    pub fn answered(&mut self, message: &[u8]) {
        let Some(flags) = message.get(2..4) else {
            return;
        };
        self.responses[usize::from(flags[1] & 0xf)] += 1;
        self.truncated += u64::from(flags[0] >> 1 & 1);
    }
}
