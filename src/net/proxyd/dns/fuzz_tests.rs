//! Tests with broken messages. The messages come from a fixed seed, so that a failure can be repeated.

use std::time::Duration;

use crate::base::clock::Moment;

use super::answer::{Verdict, answer};
use super::forward::{Forwards, Question, Step};
use super::frames::Frames;
use super::message::{Received, UDP_LIMIT, read};
use super::wire_tests::{question, zone};

/// A generator of pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Returns the bytes with some of them changed, cut off, doubled, or turned into pointers.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_within(at.min(bytes.len())..),
                2 => bytes.extend([0xc0, at as u8]),
                _ if bytes.is_empty() => {}
                3 => bytes[at] = 0xc0,
                4 => bytes[at] ^= 1 << self.below(8),
                _ => bytes[at] = self.below(256) as u8,
            }
        }
        bytes
    }
}

const SEED: u64 = 0x2545_f491_4f6c_dd1d;

fn seeds() -> Vec<Vec<u8>> {
    let opt = b"\0\0\x29\x10\0\0\0\x80\0\0\0".to_vec();
    let mut seeds = vec![
        question("db.shop.svc.cluster.local", 1, &[]),
        question("DB.shop.svc.cluster.local", 33, std::slice::from_ref(&opt)),
        question("1.0.244.10.in-addr.arpa", 12, std::slice::from_ref(&opt)),
        question("10-244-0-1.shop.pod.cluster.local", 28, &[]),
        question("example.org", 255, &[opt]),
    ];
    // This answer has a pointer in its data.
    let mut answer = question("example.org", 1, &[]);
    answer[2] = 0x80;
    answer[7] = 2;
    answer.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03www\xc0\x0c");
    answer.extend(b"\xc0\x29\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07");
    seeds.push(answer);
    seeds
}

/// Returns bytes that are random, or a mutation of a seed.
fn some(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    match numbers.below(4) {
        0 => numbers.bytes(600),
        _ => {
            let at = numbers.below(seeds.len());
            numbers.mutated(&seeds[at])
        }
    }
}

#[test]
fn no_bytes_of_a_client_do_harm() {
    let (zone, seeds) = (zone(40), seeds());
    let mut numbers = Numbers(SEED);
    let mut answered = 0;
    for turn in 0..60_000 {
        let bytes = some(&mut numbers, &seeds);
        let reply = match read(&bytes) {
            Received::Nothing => continue,
            Received::Error(reply) => reply,
            Received::Query(query) => match answer(&query, &zone, query.udp_limit(), turn) {
                Verdict::Ask { name, .. } => query.request(&name),
                Verdict::Reply(reply) => {
                    let bytes = query.answer(&reply, query.udp_limit());
                    assert!(bytes.len() <= query.udp_limit());
                    bytes
                }
            },
        };
        answered += 1;
        assert!((12..=UDP_LIMIT).contains(&reply.len()), "{bytes:?}");
        let again = domain::base::message::Message::from_slice(&reply).unwrap();
        let (_, a, b, c) = again.sections().expect("our own messages can be read");
        assert!(a.chain(b).chain(c).all(|r| r.is_ok()), "{bytes:?}");
    }
    assert!(answered > 20_000, "{answered}");
}

#[test]
fn no_bytes_of_a_resolver_do_harm() {
    let seeds = seeds();
    let mut numbers = Numbers(SEED);
    let mut forwards = Forwards::default();
    forwards.set_upstreams([([192, 0, 2, 1], 53).into()]);
    let now = Moment::from_boot(Duration::ZERO);
    let mut relayed = 0;
    for turn in 0..40_000 {
        let Received::Query(query) = read(&question("example.org", 1, &[])) else {
            panic!("it is a question");
        };
        let aliases = match turn % 2 {
            0 => Vec::new(),
            _ => vec![super::record::Records {
                owner: query.name.clone(),
                ttl: 5,
                data: vec![super::record::Data::Cname(query.name.clone())],
            }],
        };
        let asked = Question {
            client: (),
            from: [10, 244, 0, 1].into(),
            name: query.name.clone(),
            query,
            limit: 512,
            whole: turn % 3 == 0,
            aliases,
        };
        let key = match &forwards.ask(asked, 0x1234, now)[..] {
            [.., Step::Send { key, .. }] => *key,
            other => panic!("{other:?}"),
        };
        let answer = &seeds[5];
        let bytes = match numbers.below(8) {
            0 => some(&mut numbers, &seeds),
            _ => {
                // Only the bytes after the question are changed. Otherwise nearly no answer would match its question.
                let rest = numbers.mutated(&answer[29..]);
                [&answer[..29], &rest].concat()
            }
        };
        match &forwards.answered(key, &bytes, 0x1234, now)[..] {
            [Step::Done { bytes, .. }] => {
                relayed += 1;
                assert!(bytes.len() <= 512);
            }
            _ => drop(forwards.failed(key, 1, now)),
        }
    }
    assert!(relayed > 10_000, "{relayed}");
}

#[test]
fn no_stream_makes_frames_grow() {
    let mut numbers = Numbers(SEED);
    for _ in 0..2_000 {
        let mut frames = Frames::new(300);
        for _ in 0..20 {
            frames.push(&numbers.bytes(400));
            let taken = std::iter::from_fn(|| frames.take().transpose());
            if taken.take(1_000).any(|t| t.is_err()) {
                break;
            }
        }
    }
}
