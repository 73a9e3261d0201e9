use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::message::Message;

use crate::base::clock::Moment;

use super::forward::{Forwards, MOST, MOST_STREAMS, Question, Step, TOTAL, TRY, Transport};
use super::message::{Received, read};
use super::upstreams::DEAD;
use super::wire_tests::question;

fn at(millis: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(millis))
}

fn upstream(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 53))
}

fn forwards(upstreams: u8) -> Forwards<u32> {
    let mut forwards = Forwards::default();
    forwards.set_upstreams((1..=upstreams).map(upstream));
    forwards
}

fn asked(client: u32, from: u8, whole: bool) -> Question<u32> {
    let Received::Query(query) = read(&question("example.org", 1, &[])) else {
        panic!("it is a question");
    };
    Question {
        client,
        from: IpAddr::from([10, 244, 0, from]),
        name: query.name.clone(),
        query,
        limit: 512,
        whole,
        aliases: Vec::new(),
    }
}

/// Returns the key, resolver, transport and bytes of a step that sends a question.
#[track_caller]
fn sent(step: &Step<u32>) -> (u64, SocketAddr, Transport, Vec<u8>) {
    match step {
        Step::Send {
            key,
            upstream,
            transport,
            bytes,
        } => (*key, *upstream, *transport, bytes.clone()),
        done => panic!("{done:?}"),
    }
}

/// Returns the client and the response code of a step that ends a question.
#[track_caller]
fn done(step: &Step<u32>) -> (u32, Rcode) {
    match step {
        Step::Done { client, bytes, .. } => {
            let message = Message::from_slice(bytes).unwrap();
            assert_eq!(message.header().id(), 0x1234);
            (*client, message.header().rcode())
        }
        sent => panic!("{sent:?}"),
    }
}

/// Makes the answer to the question `sent`, with these flags and this response code.
fn reply(sent: &[u8], flags: u8, rcode: u8) -> Vec<u8> {
    let mut bytes = sent.to_vec();
    bytes[2] |= 0x80 | flags;
    bytes[3] |= rcode;
    bytes
}

const CUT: u8 = 2;
/// Number of bytes up to the end of the question of [`asked`]: header, name, type and class.
const QUESTION_END: usize = 12 + 13 + 4;

#[test]
fn an_answer_goes_to_its_client() {
    let mut forwards = forwards(1);
    let steps = forwards.ask(asked(5, 1, false), 0xabcd, at(0));
    let (key, to, transport, bytes) = sent(&steps[0]);
    assert_eq!((to, transport), (upstream(1), Transport::Udp));
    assert_eq!(bytes[..2], [0xab, 0xcd]);
    assert_eq!(forwards.deadline(), Some(at(0) + TRY));
    let step = forwards.answered(key, &reply(&bytes, 0, 3), 0, at(9));
    assert_eq!(done(&step[0]), (5, Rcode::NXDOMAIN));
    assert!(forwards.is_empty() && forwards.deadline().is_none());
    assert_eq!(forwards.answered(key, &reply(&bytes, 0, 3), 0, at(9)), []);
}

#[test]
fn what_is_not_the_answer_changes_nothing() {
    let mut forwards = forwards(1);
    let steps = forwards.ask(asked(5, 1, false), 0xabcd, at(0));
    let (key, _, _, bytes) = sent(&steps[0]);
    let mut other = reply(&bytes, 0, 0);
    other[0] ^= 1;
    assert_eq!(forwards.answered(key, &other, 0, at(1)), []);
    assert_eq!(forwards.answered(key, b"x", 0, at(1)), []);
    assert_eq!(forwards.len(), 1);
    let step = forwards.answered(key, &reply(&bytes, 0, 0), 0, at(2));
    assert_eq!(done(&step[0]), (5, Rcode::NOERROR));
}

#[test]
fn a_resolver_that_is_silent_gives_way_to_the_next() {
    let mut forwards = forwards(2);
    let first = forwards.ask(asked(5, 1, false), 1, at(0));
    assert_eq!(sent(&first[0]).1, upstream(1));
    assert_eq!(forwards.expire(at(1_999), || 2), []);
    let second = forwards.expire(at(2_000), || 2);
    let (key, to, _, bytes) = sent(&second[0]);
    assert_eq!((to, &bytes[..2]), (upstream(2), &[0, 2][..]));
    // An answer with the ID of the first try no longer counts.
    assert_eq!(
        forwards.answered(key, &reply(&sent(&first[0]).3, 0, 0), 0, at(2_001)),
        []
    );
    let third = forwards.expire(at(4_000), || 3);
    assert_eq!(sent(&third[0]).1, upstream(1));
    assert_eq!(forwards.deadline(), Some(at(0) + TOTAL));
    let end = forwards.expire(at(5_000), || 4);
    assert_eq!(done(&end[0]), (5, Rcode::SERVFAIL));
    assert_eq!(forwards.tally().timeouts, 3);
}

#[test]
fn a_single_resolver_that_is_silent_is_asked_again() {
    let mut forwards = forwards(1);
    forwards.ask(asked(5, 1, false), 1, at(0));
    for millis in [2_000, 4_000] {
        let steps = forwards.expire(at(millis), || 2);
        assert_eq!(sent(&steps[0]).1, upstream(1));
    }
    assert_eq!(
        done(&forwards.expire(at(5_000), || 2)[0]).1,
        Rcode::SERVFAIL
    );
}

#[test]
fn without_a_resolver_the_answer_comes_at_once() {
    let steps = forwards(0).ask(asked(5, 1, false), 1, at(0));
    assert_eq!(done(&steps[0]), (5, Rcode::SERVFAIL));
}

#[test]
fn a_resolver_that_is_not_there_costs_no_time() {
    let mut forwards = forwards(2);
    let first = forwards.ask(asked(5, 1, false), 1, at(0));
    let second = forwards.failed(sent(&first[0]).0, 2, at(0)).unwrap();
    let (key, to, _, _) = sent(&second);
    assert_eq!(to, upstream(2));
    assert_eq!(
        done(&forwards.failed(key, 3, at(0)).unwrap()),
        (5, Rcode::SERVFAIL)
    );
}

#[test]
fn a_dead_resolver_is_not_asked_while_another_answers() {
    let mut forwards = forwards(2);
    let first = forwards.ask(asked(0, 1, false), 1, at(0));
    forwards.failed(sent(&first[0]).0, 2, at(0));
    for client in 1..9 {
        let steps = forwards.ask(asked(client, 1, false), 1, at(1));
        assert_eq!(sent(&steps[0]).1, upstream(2));
    }
    let after = at(0) + DEAD;
    let both = [0, 0].map(|_| sent(&forwards.ask(asked(9, 1, false), 1, after)[0]).1);
    assert!(both.contains(&upstream(1)));
}

#[test]
fn a_resolver_that_refuses_gives_way_and_its_refusal_counts_in_the_end() {
    let mut forwards = forwards(2);
    let first = forwards.ask(asked(5, 1, false), 1, at(0));
    let (key, _, _, bytes) = sent(&first[0]);
    let second = forwards.answered(key, &reply(&bytes, 0, 5), 2, at(1));
    let (key, to, _, bytes) = sent(&second[0]);
    assert_eq!(to, upstream(2));
    let end = forwards.answered(key, &reply(&bytes, 0, 5), 3, at(2));
    assert_eq!(done(&end[0]), (5, Rcode::REFUSED));
    // A resolver that refuses is not dead, because it answers.
    let steps = forwards.ask(asked(6, 1, false), 1, at(3));
    assert_eq!(sent(&steps[0]).1, upstream(1));
}

#[test]
fn an_answer_that_was_cut_is_fetched_whole_for_a_client_over_tcp() {
    let mut forwards = forwards(1);
    let first = forwards.ask(asked(5, 1, true), 1, at(0));
    let (key, _, _, bytes) = sent(&first[0]);
    let second = forwards.answered(key, &reply(&bytes, CUT, 0), 2, at(1));
    let (key, to, transport, bytes) = sent(&second[0]);
    assert_eq!((to, transport), (upstream(1), Transport::Tcp));
    let end = forwards.answered(key, &reply(&bytes, 0, 0), 3, at(2));
    assert_eq!(done(&end[0]), (5, Rcode::NOERROR));
    // A client over UDP gets the truncated answer, and will ask again over TCP.
    let first = forwards.ask(asked(6, 1, false), 1, at(3));
    let (key, _, _, bytes) = sent(&first[0]);
    let end = forwards.answered(key, &reply(&bytes, CUT, 0), 3, at(4));
    let [Step::Done { bytes, .. }] = &end[..] else {
        panic!("{end:?}");
    };
    assert!(Message::from_slice(bytes).unwrap().header().tc());
}

/// Returns the steps after a truncated answer to a client over TCP.
fn cut(forwards: &mut Forwards<u32>, client: u32, from: u8) -> Vec<Step<u32>> {
    let first = forwards.ask(asked(client, from, true), 1, at(0));
    let (key, _, _, bytes) = sent(&first[0]);
    forwards.answered(key, &reply(&bytes, CUT, 0), 2, at(1))
}

/// If all connections to resolvers are used, the client with the most of these connections loses one connection. Other
/// clients need not wait.
#[test]
fn connections_to_resolvers_are_few() {
    let mut forwards = forwards(1);
    let quiet = 1_000_000;
    sent(&cut(&mut forwards, quiet, 7)[0]);
    for client in 1..MOST_STREAMS as u32 {
        assert_eq!(sent(&cut(&mut forwards, client, 1)[0]).2, Transport::Tcp);
    }
    for (next, (client, from)) in [(500, 1), (501, 8)].into_iter().enumerate() {
        let steps = cut(&mut forwards, client, from);
        assert_eq!(done(&steps[0]), (next as u32 + 1, Rcode::SERVFAIL));
        assert_eq!(sent(&steps[1]).2, Transport::Tcp);
    }
    assert_eq!(forwards.len(), MOST_STREAMS);
    assert_eq!(forwards.tally().displaced, 2);
}

/// An answer that cannot be read to its end is never relayed. Another resolver is asked instead.
#[test]
fn a_broken_answer_is_no_answer() {
    const END: u8 = QUESTION_END as u8;
    let broken: [&[u8]; 4] = [
        // The name of the record's owner is a pointer to itself.
        &[0xc0, END, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 6, 6, 6, 6],
        // The last bytes of an address are missing.
        &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 6],
        // The announced record is missing.
        &[],
        // The alias leads to a pointer to itself.
        &[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, END + 12],
    ];
    for record in broken {
        let mut forwards = forwards(2);
        let first = forwards.ask(asked(5, 1, false), 1, at(0));
        let (key, _, _, bytes) = sent(&first[0]);
        let mut answer = reply(&bytes, 0, 0);
        // The bad record replaces the OPT record.
        answer.truncate(QUESTION_END);
        answer[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
        answer.extend(record);
        let second = forwards.answered(key, &answer, 2, at(1));
        assert_eq!(sent(&second[0]).1, upstream(2));
        answer[..2].copy_from_slice(&[0, 2]);
        let end = forwards.answered(key, &answer, 3, at(2));
        assert_eq!(done(&end[0]), (5, Rcode::SERVFAIL));

        // If a broken answer is marked as truncated, the client gets the mark and no record.
        let first = forwards.ask(asked(6, 1, false), 4, at(3));
        let key = sent(&first[0]).0;
        answer[..2].copy_from_slice(&[0, 4]);
        answer[2] |= CUT;
        let end = forwards.answered(key, &answer, 5, at(4));
        let [Step::Done { bytes, .. }] = &end[..] else {
            panic!("{end:?}");
        };
        let message = Message::from_slice(bytes).unwrap();
        assert!(message.header().tc());
        assert_eq!(
            (bytes.len(), message.header_counts().ancount()),
            (QUESTION_END, 0)
        );
    }
}

#[test]
fn a_client_that_floods_harms_itself() {
    let mut forwards = forwards(1);
    let quiet = 1_000_000;
    forwards.ask(asked(quiet, 7, false), 1, at(0));
    for client in 0..MOST as u32 - 1 {
        assert_eq!(forwards.ask(asked(client, 1, false), 1, at(1)).len(), 1);
    }
    for client in 0..2 * MOST as u32 {
        let steps = forwards.ask(asked(client, 1, false), 1, at(2));
        assert_ne!(done(&steps[0]).0, quiet);
        assert_eq!(forwards.len(), MOST);
    }
    // A question of another client gets a place at once.
    let steps = forwards.ask(asked(quiet + 1, 8, false), 1, at(3));
    assert_eq!(done(&steps[0]).1, Rcode::SERVFAIL);
    sent(&steps[1]);
    assert_eq!(forwards.tally().displaced, 2 * MOST as u64 + 1);
}
