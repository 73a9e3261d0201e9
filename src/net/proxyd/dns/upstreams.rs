//! The resolvers of the node: which one is asked next, and which ones do not answer.
//!
//! Invariants: a resolver that does not answer gets one question per [`DEAD`]. All other questions go to the resolvers
//! that answer. If no resolver answers, all are asked, because there is no better resolver.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::clock::Moment;

/// Time for which a dead resolver gets no question.
pub const DEAD: Duration = Duration::from_secs(10);
/// Number of failures in a row after which a resolver counts as dead. One packet may get lost, but hardly this many in
/// a row.
const FAILURES: u32 = 2;

struct Upstream {
    address: SocketAddr,
    /// Number of questions in a row that the resolver has not answered.
    failures: u32,
    dead_until: Option<Moment>,
}

/// The resolvers of the node, with their failures.
#[derive(Default)]
pub struct Upstreams {
    all: Vec<Upstream>,
    next: usize,
}

impl Upstreams {
    /// Replaces the list of resolvers. Repetitions are left out. A resolver that was in the old list keeps its
    /// failures.
    pub fn set(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        let mut all: Vec<Upstream> = Vec::new();
        for address in addresses {
            if all.iter().any(|u| u.address == address) {
                continue;
            }
            let known = self.all.iter().position(|u| u.address == address);
            all.push(known.map_or_else(
                || Upstream {
                    address,
                    failures: 0,
                    dead_until: None,
                },
                |at| self.all.swap_remove(at),
            ));
        }
        self.all = all;
        self.next = 0;
    }

    /// Picks the resolver to ask now, in turn; None if all are in `tried`. Dead resolvers are picked last.
    pub fn pick(&mut self, now: Moment, tried: &[SocketAddr]) -> Option<SocketAddr> {
        let count = self.all.len();
        let turns = (0..count).map(|n| (self.next + n) % count);
        let untried = |at: &usize| !tried.contains(&self.all[*at].address);
        let turns: Vec<usize> = turns.filter(untried).collect();
        let alive = |at: &&usize| self.all[**at].dead_until.is_none_or(|until| until <= now);
        let at = *turns.iter().find(alive).or_else(|| turns.first())?;
        let picked = &mut self.all[at];
        if picked.dead_until.is_some() {
            // This question finds out if the resolver answers again. Until then, other questions go to other resolvers.
            picked.dead_until = Some(now + DEAD);
        }
        self.next = at + 1;
        Some(picked.address)
    }

    /// Notes that a resolver has answered.
    pub fn answered(&mut self, address: SocketAddr) {
        if let Some(upstream) = self.of(address) {
            upstream.failures = 0;
            upstream.dead_until = None;
        }
    }

    /// Notes that a resolver has not answered. `refused` is true if the network reports that nothing listens there, or
    /// if the socket has failed.
    pub fn failed(&mut self, address: SocketAddr, refused: bool, now: Moment) {
        if let Some(upstream) = self.of(address) {
            upstream.failures += 1;
            if refused || upstream.failures >= FAILURES {
                upstream.dead_until = Some(now + DEAD);
            }
        }
    }

    fn of(&mut self, address: SocketAddr) -> Option<&mut Upstream> {
        self.all.iter_mut().find(|u| u.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 53))
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn three() -> Upstreams {
        let mut upstreams = Upstreams::default();
        upstreams.set([1, 2, 1, 3].map(address));
        upstreams
    }

    #[track_caller]
    fn check(upstreams: &mut Upstreams, now: Moment, expected: &[u8]) {
        for n in expected {
            assert_eq!(upstreams.pick(now, &[]), Some(address(*n)));
        }
    }

    #[test]
    fn each_is_asked_in_turn() {
        check(&mut three(), at(0), &[1, 2, 3, 1]);
        assert_eq!(Upstreams::default().pick(at(0), &[]), None);
        assert_eq!(three().pick(at(0), &[1, 2, 3].map(address)), None);
    }

    #[test]
    fn one_that_does_not_answer_is_left_alone_for_a_while() {
        let mut upstreams = three();
        upstreams.failed(address(2), false, at(0));
        check(&mut upstreams, at(0), &[1, 2, 3]);
        upstreams.failed(address(2), false, at(1));
        check(&mut upstreams, at(10), &[1, 3, 1]);
        // A single question finds out if the resolver answers again. Until then, other questions go to other resolvers.
        check(&mut upstreams, at(11), &[2, 3, 1, 3]);
        upstreams.answered(address(2));
        check(&mut upstreams, at(11), &[1, 2, 3]);
    }

    #[test]
    fn one_that_is_not_there_is_left_alone_at_once() {
        let mut upstreams = three();
        upstreams.failed(address(1), true, at(0));
        check(&mut upstreams, at(0), &[2, 3, 2]);
        for n in [2, 3] {
            upstreams.failed(address(n), true, at(0));
        }
        // No resolver is known to answer, so all are asked.
        check(&mut upstreams, at(0), &[3, 1, 2]);
    }

    #[test]
    fn a_new_list_keeps_what_is_known() {
        let mut upstreams = three();
        upstreams.failed(address(3), true, at(0));
        upstreams.set([3, 4].map(address));
        check(&mut upstreams, at(1), &[4, 4]);
    }
}
