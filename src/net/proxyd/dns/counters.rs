//! The responder's counters, for metrics.

use serde::{Deserialize, Serialize};

use crate::base::metrics::{Family, Kind};

/// Names of the response codes, indexed by their number.
const CODES: [&str; 6] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
];

/// The responder's counts since its start. Counts that a process of another version does not have are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Number of questions over UDP.
    pub udp_requests: u64,
    /// Number of questions over TCP.
    pub tcp_requests: u64,
    /// Number of answers by response code: 0 NOERROR, 1 FORMERR, 2 SERVFAIL, 3 NXDOMAIN, 4 NOTIMP, 5 REFUSED.
    pub responses: [u64; 16],
    /// Number of answers that are marked as truncated.
    pub truncated: u64,
    /// Number of messages and connections from addresses that get no answers.
    pub strangers: u64,
    /// Number of messages that are no questions.
    pub ignored: u64,
    /// Number of unread questions that were dropped to make room for questions of other clients.
    pub crowded: u64,
    /// Number of answers that could not be sent, because the kernel's queue was full or the client was gone.
    pub unsent: u64,
    /// Number of connections that were closed to make room for other connections.
    pub connections_displaced: u64,
    /// Number of questions that were forwarded to other resolvers.
    pub forwards: u64,
    /// Number of tries of forwarded questions.
    pub forward_tries: u64,
    /// Number of tries that got no answer in time.
    pub forward_timeouts: u64,
    /// Number of tries that failed at once, or that a resolver refused.
    pub forward_failures: u64,
    /// Number of forwarded questions that were dropped to make room for other questions.
    pub forwards_displaced: u64,
}

impl Counters {
    /// Counts an answer that is being sent.
    pub fn answered(&mut self, message: &[u8]) {
        let Some(flags) = message.get(2..4) else {
            return;
        };
        self.responses[usize::from(flags[1] & 0xf)] += 1;
        self.truncated += u64::from(flags[0] >> 1 & 1);
    }

    /// Writes the counts in the text format, under podprobe's names.
    pub fn write_metrics(&self, out: &mut String) {
        let help = "Questions of clients to the responder of names.";
        let mut family = Family::new(out, "podprobe_dns_requests_total", Kind::Counter, help);
        family.value(&[("transport", "udp")], self.udp_requests);
        family.value(&[("transport", "tcp")], self.tcp_requests);
        let help = "Answers of the responder of names, by their code.";
        let mut family = Family::new(out, "podprobe_dns_responses_total", Kind::Counter, help);
        for (code, n) in CODES.iter().zip(self.responses) {
            family.value(&[("rcode", code)], n);
        }
        let help = "What clients of the responder of names got no answer to.";
        let mut family = Family::new(out, "podprobe_dns_unanswered_total", Kind::Counter, help);
        family.value(&[("reason", "stranger")], self.strangers);
        family.value(&[("reason", "no_question")], self.ignored);
        family.value(&[("reason", "crowded")], self.crowded);
        family.value(&[("reason", "not_sent")], self.unsent);
        family.value(&[("reason", "displaced")], self.connections_displaced);
        let help = "Answers that say that they were cut short.";
        Family::new(out, "podprobe_dns_truncated_total", Kind::Counter, help)
            .value(&[], self.truncated);
        let help = "Questions that the node's resolvers were asked.";
        Family::new(out, "podprobe_dns_forwards_total", Kind::Counter, help)
            .value(&[], self.forwards);
        let help = "Tries of these questions that failed, and questions that gave way to others.";
        let name = "podprobe_dns_forward_failures_total";
        let mut family = Family::new(out, name, Kind::Counter, help);
        family.value(&[("reason", "timeout")], self.forward_timeouts);
        family.value(&[("reason", "error")], self.forward_failures);
        family.value(&[("reason", "displaced")], self.forwards_displaced);
    }
}
