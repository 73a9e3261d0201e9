//! Tests that read the bytes of questions and check the bytes of answers.

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message::Message;
use domain::base::name::ToName;

use crate::net::services::names::{EndpointNames, NameTarget, Names, ServiceNames};

use super::answer::{Verdict, answer};
use super::message::{Query, Received, TCP_LIMIT, UDP_LIMIT, read};
use super::record::{Data, Records, TTL, name_of_text};
use super::reply::Answered;
use super::zone::Zone;

/// Returns the bytes of an OPT record.
fn opt(payload: u16, version: u8, flags: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0, 41];
    bytes.extend(payload.to_be_bytes());
    bytes.extend([0, version]);
    bytes.extend(flags.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Returns the bytes of a query with the ID 0x1234 and RD set.
pub fn question(name: &str, rtype: u16, additional: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![
        0x12,
        0x34,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        additional.len() as u8,
    ];
    bytes.extend(name_of_text(name).unwrap().as_slice());
    bytes.extend(rtype.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(additional.concat());
    bytes
}

/// Returns a zone with one headless service. The service has this number of endpoints.
pub fn zone(endpoints: u16) -> Zone {
    let endpoints = (0..endpoints).map(|n| EndpointNames {
        address: std::net::Ipv4Addr::from(0x0af4_0000 + u32::from(n)).into(),
        hostname: None,
        ready: true,
        ports: Vec::new(),
    });
    Zone::new(Names {
        domain: "cluster.local".into(),
        services: vec![ServiceNames {
            namespace: "shop".into(),
            name: "db".into(),
            target: NameTarget::Headless(endpoints.collect()),
        }],
        ..Names::default()
    })
}

const NAME: &str = "Db.shop.svc.cluster.local";

/// Answers a question over UDP, from a zone with this number of endpoints.
fn answered(bytes: &[u8], endpoints: u16) -> Vec<u8> {
    let query = match read(bytes) {
        Received::Query(query) => query,
        Received::Error(bytes) => return bytes,
        Received::Nothing => panic!("it is a question"),
    };
    match answer(&query, &zone(endpoints), query.udp_limit(), 0) {
        Verdict::Reply(reply) => query.answer(&reply, query.udp_limit()),
        asked => panic!("{asked:?}"),
    }
}

fn parsed(bytes: &[u8]) -> &Message<[u8]> {
    Message::from_slice(bytes).unwrap()
}

#[track_caller]
fn check_error(question: &[u8], rcode: Rcode) {
    let bytes = answered(question, 1);
    let message = parsed(&bytes);
    assert_eq!(message.header().rcode(), rcode);
    assert_eq!(message.header().id(), 0x1234);
    assert!(message.header().qr());
    assert!(bytes.len() <= question.len(), "it does not amplify");
}

#[test]
fn an_answer_repeats_number_question_and_flags() {
    let bytes = answered(&question(NAME, 1, &[]), 2);
    let message = parsed(&bytes);
    let header = message.header();
    assert_eq!((header.id(), header.rcode()), (0x1234, Rcode::NOERROR));
    assert!(header.qr() && header.aa() && header.rd() && header.ra() && !header.tc());
    let asked = message.sole_question().unwrap();
    assert_eq!(asked.qname().to_string(), NAME);
    assert_eq!((asked.qtype(), asked.qclass()), (Rtype::A, Class::IN));
    assert_eq!(message.header_counts().ancount(), 2);
    assert_eq!(message.header_counts().arcount(), 0, "no EDNS, no OPT");
    // The owners of both records are pointers to the question. The header has 12 bytes, and each record 16.
    assert_eq!(bytes.len(), 12 + NAME.len() + 2 + 4 + 2 * 16);
}

/// The answer to a question of another class repeats the question with its class. `dig CH TXT version.bind` would not
/// accept an answer with another question.
#[test]
fn a_question_of_another_class_is_refused_as_it_was_asked() {
    for class in [3_u16, 4, 254, 255, 7] {
        let mut asked = question(NAME, 16, &[opt(4096, 0, 0)]);
        let at = asked.len() - 11 - 2;
        asked[at..at + 2].copy_from_slice(&class.to_be_bytes());
        let bytes = answered(&asked, 1);
        let message = parsed(&bytes);
        assert_eq!(message.header().rcode(), Rcode::REFUSED);
        let repeated = message.sole_question().unwrap();
        assert_eq!(repeated.qname().to_string(), NAME);
        assert_eq!(
            (repeated.qtype(), repeated.qclass().to_int()),
            (Rtype::TXT, class)
        );
        assert!(message.opt().is_some() && bytes.len() <= asked.len());
    }
}

#[test]
fn a_client_with_edns_gets_edns() {
    let bytes = answered(&question(NAME, 1, &[opt(4096, 0, 0x8000)]), 1);
    let opt = parsed(&bytes).opt().unwrap();
    assert_eq!(usize::from(opt.udp_payload_size()), UDP_LIMIT);
    assert!(opt.dnssec_ok() && opt.version() == 0);
}

#[test]
fn another_version_of_edns_is_refused() {
    let bytes = answered(&question(NAME, 1, &[opt(4096, 1, 0)]), 1);
    let message = parsed(&bytes);
    let opt = message.opt().unwrap();
    assert_eq!(opt.rcode(message.header()).to_int(), 16, "BADVERS");
    assert_eq!((opt.version(), message.header_counts().ancount()), (0, 0));
}

#[track_caller]
fn check_size(payload: Option<u16>, limit: usize) {
    let additional: Vec<_> = payload.map(|p| opt(p, 0, 0)).into_iter().collect();
    let bytes = answered(&question(NAME, 1, &additional), 200);
    let message = parsed(&bytes);
    assert!(message.header().tc());
    let room = limit - bytes.len();
    assert!(room < 16, "{} bytes of {limit}", bytes.len());
    assert_eq!(message.opt().is_some(), payload.is_some());
    let answers = usize::from(message.header_counts().ancount());
    assert_eq!(
        message.answer().unwrap().filter(|r| r.is_ok()).count(),
        answers
    );
}

#[test]
fn an_answer_is_cut_to_what_the_client_takes() {
    check_size(None, 512);
    check_size(Some(100), 512);
    check_size(Some(600), 600);
    check_size(Some(UDP_LIMIT as u16), UDP_LIMIT);
    check_size(Some(65_535), UDP_LIMIT);
}

#[test]
fn an_answer_that_just_fits_is_whole() {
    let fixed = 12 + NAME.len() + 2 + 4;
    let most = (512 - fixed) / 16;
    let bytes = answered(&question(NAME, 1, &[]), most as u16);
    assert!(!parsed(&bytes).header().tc());
    let bytes = answered(&question(NAME, 1, &[]), most as u16 + 1);
    assert!(parsed(&bytes).header().tc());
}

#[test]
fn over_tcp_all_of_it_comes() {
    let Received::Query(query) = read(&question(NAME, 1, &[])) else {
        panic!("it is a question");
    };
    let Verdict::Reply(reply) = answer(&query, &zone(2000), TCP_LIMIT, 0) else {
        panic!("it is of the zone");
    };
    let bytes = query.answer(&reply, TCP_LIMIT);
    assert_eq!(parsed(&bytes).header_counts().ancount(), 2000);
    assert!(!parsed(&bytes).header().tc());
}

/// The addresses of servers in the additional section may be left out without marking the answer as truncated.
#[test]
fn what_is_extra_is_left_out_silently() {
    let ports = vec![crate::net::services::names::NamedPort {
        name: "db".into(),
        protocol: Default::default(),
        port: 1,
    }];
    let mut names = zone(12).names().clone();
    if let NameTarget::Headless(endpoints) = &mut names.services[0].target {
        for endpoint in endpoints {
            endpoint.ports.clone_from(&ports);
        }
    }
    let Received::Query(query) = read(&question(NAME, 33, &[opt(900, 0, 0)])) else {
        panic!("it is a question");
    };
    let Verdict::Reply(reply) = answer(&query, &Zone::new(names), 900, 0) else {
        panic!("it is of the zone");
    };
    let bytes = query.answer(&reply, query.udp_limit());
    let counts = parsed(&bytes).header_counts();
    assert_eq!(counts.ancount(), 12);
    assert!(counts.arcount() < 13 && counts.arcount() > 1, "{counts:?}");
    assert!(!parsed(&bytes).header().tc());
}

#[test]
fn what_is_no_question_gets_no_answer() {
    let mut answer = question(NAME, 1, &[]);
    answer[2] |= 0x80;
    assert_eq!(read(&answer), Received::Nothing);
    assert_eq!(read(&question(NAME, 1, &[])[..11]), Received::Nothing);
    assert_eq!(read(b""), Received::Nothing);
}

#[test]
fn what_cannot_be_read_is_a_format_error() {
    let plain = question(NAME, 1, &[]);
    let with = |at: usize, byte: u8| {
        let mut bytes = plain.clone();
        bytes[at] = byte;
        bytes
    };
    check_error(&with(5, 0), Rcode::FORMERR);
    check_error(&with(5, 2), Rcode::FORMERR);
    check_error(&with(7, 1), Rcode::FORMERR);
    check_error(&with(9, 1), Rcode::FORMERR);
    check_error(&with(11, 1), Rcode::FORMERR);
    check_error(&with(12, 0xc0), Rcode::FORMERR);
    check_error(&with(12, 0x40), Rcode::FORMERR);
    check_error(&plain[..plain.len() - 1], Rcode::FORMERR);
    check_error(&plain[..12], Rcode::FORMERR);
    let twice = [opt(512, 0, 0), opt(512, 0, 0)];
    check_error(&question(NAME, 1, &twice), Rcode::FORMERR);
    let many = vec![opt(512, 0, 0); 3];
    check_error(&question(NAME, 1, &many), Rcode::FORMERR);
    check_error(&question(NAME, 41, &[]), Rcode::FORMERR);
}

#[test]
fn what_is_not_for_us_is_refused() {
    for opcode in [1, 2, 4, 5, 6, 15] {
        let mut bytes = question(NAME, 1, &[]);
        bytes[2] |= opcode << 3;
        check_error(&bytes, Rcode::NOTIMP);
    }
    check_error(&question(NAME, 252, &[]), Rcode::REFUSED);
    check_error(&question(NAME, 251, &[]), Rcode::REFUSED);
    let mut chaos = question("version.bind", 16, &[]);
    let last = chaos.len() - 1;
    chaos[last] = 3;
    check_error(&chaos, Rcode::REFUSED);
}

/// A name of 255 bytes, the longest possible, fits into any answer.
#[test]
fn the_longest_name_is_answered() {
    let name = format!(
        "{0}.{0}.{0}.{1}.cluster.local",
        "x".repeat(63),
        "y".repeat(47)
    );
    let bytes = answered(&question(&name, 1, &[]), 1);
    assert_eq!(parsed(&bytes).header().rcode(), Rcode::NXDOMAIN);
    assert_eq!(parsed(&bytes).header_counts().nscount(), 1);
}

/// Returns the bytes of a resolver's answer from an ID, flags, the question's bytes and records.
fn upstream(id: u16, flags: [u8; 2], question: &[u8], records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(flags);
    bytes.extend([0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    bytes.extend(question);
    bytes.extend(records.concat());
    bytes
}

fn asked(name: &str) -> Query {
    match read(&question(name, 1, &[])) {
        Received::Query(query) => query,
        other => panic!("{other:?}"),
    }
}

const EXAMPLE: &[u8] = b"\x07example\x03org\0\0\x01\0\x01";
/// The bytes of an A record. Its owner is a pointer to the question.
const ADDRESS: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";

#[track_caller]
fn check_answer(bytes: &[u8], expected: bool) {
    let name = name_of_text("example.org").unwrap();
    assert_eq!(
        Answered::read(bytes, 7, &name, Rtype::A).is_some(),
        expected
    );
}

#[test]
fn only_the_answer_to_the_question_counts() {
    check_answer(&upstream(7, [0x80, 0], EXAMPLE, &[ADDRESS]), true);
    check_answer(&upstream(8, [0x80, 0], EXAMPLE, &[ADDRESS]), false);
    check_answer(&upstream(7, [0, 0], EXAMPLE, &[ADDRESS]), false);
    check_answer(&upstream(7, [0xa0, 0], EXAMPLE, &[ADDRESS]), false);
    check_answer(
        &upstream(7, [0x80, 0], &EXAMPLE.to_ascii_uppercase(), &[]),
        true,
    );
    check_answer(
        &upstream(7, [0x80, 0], b"\x07exbmple\x03org\0\0\x01\0\x01", &[]),
        false,
    );
    check_answer(
        &upstream(7, [0x80, 0], b"\x07example\x03org\0\0\x1c\0\x01", &[]),
        false,
    );
    check_answer(
        &upstream(7, [0x80, 0], b"\x07example\x03org\0\0\x01\0\x03", &[]),
        false,
    );
    check_answer(&upstream(7, [0x80, 0], &EXAMPLE[..8], &[]), false);
    check_answer(b"\0\x07\x80", false);
}

/// Returns the client's answer that is made from a resolver's answer.
fn relayed(bytes: &[u8], asked: &Query, aliases: &[Records], limit: usize) -> Vec<u8> {
    let name = name_of_text("example.org").unwrap();
    let answered = Answered::read(bytes, 7, &name, Rtype::A).expect("it is the answer");
    answered.relay(asked, aliases, limit)
}

#[test]
fn an_answer_of_others_gets_the_clients_number_and_case() {
    let from = upstream(7, [0x80, 0], EXAMPLE, &[ADDRESS]);
    let bytes = relayed(&from, &asked("eXample.ORG"), &[], 512);
    let message = parsed(&bytes);
    assert_eq!(message.header().id(), 0x1234);
    assert!(message.header().ra());
    let question = message.sole_question().unwrap();
    assert_eq!(question.qname().to_string(), "eXample.ORG");
    let record = message.answer().unwrap().next().unwrap().unwrap();
    assert_eq!(record.owner().to_string(), "eXample.ORG");
}

#[test]
fn an_answer_of_others_is_cut_to_what_the_client_takes() {
    let from = upstream(7, [0x80, 0], EXAMPLE, &[ADDRESS; 100]);
    let bytes = relayed(&from, &asked("example.org"), &[], 512);
    assert!(parsed(&bytes).header().tc() && bytes.len() <= 512);
    assert_eq!(parsed(&bytes).header_counts().ancount(), 0);
    let bytes = relayed(&from, &asked("example.org"), &[], TCP_LIMIT);
    assert_eq!(parsed(&bytes).header_counts().ancount(), 100);
}

#[test]
fn an_answer_of_others_goes_behind_the_alias() {
    let alias = Records {
        owner: name_of_text("out.shop.svc.cluster.local").unwrap(),
        ttl: TTL,
        data: vec![Data::Cname(name_of_text("example.org").unwrap())],
    };
    let other = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03www\xc0\x0c";
    let address = b"\xc0\x29\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";
    let text = b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x02\x01x";
    let from = upstream(7, [0x80, 0], EXAMPLE, &[other, address, text]);
    let client = asked("out.shop.svc.cluster.local");
    let bytes = relayed(&from, &client, std::slice::from_ref(&alias), 512);
    let records = parsed(&bytes).answer().unwrap();
    let found: Vec<String> = records
        .map(|r| r.unwrap())
        .map(|r| format!("{} {}", r.owner(), r.rtype()))
        .collect();
    let expected = [
        "out.shop.svc.cluster.local CNAME",
        "example.org CNAME",
        "www.example.org A",
    ];
    assert_eq!(found, expected);
    let broken = upstream(7, [0x80, 0], EXAMPLE, &[&other[..8]]);
    let bytes = relayed(&broken, &client, &[alias], 512);
    assert_eq!(parsed(&bytes).header().rcode(), Rcode::SERVFAIL);
}

#[test]
fn others_are_asked_what_the_client_asked_and_no_more() {
    let cookie = b"\0\x0a\0\x08abcdefgh";
    let mut opt = opt(4096, 0, 0x8000);
    opt[10] = cookie.len() as u8;
    opt.extend(cookie);
    let mut bytes = question("eXample.org", 1, &[opt]);
    bytes[3] |= 0x10;
    let Received::Query(query) = read(&bytes) else {
        panic!("it is a question");
    };
    let request = query.request(&query.name);
    let message = parsed(&request);
    assert!(message.header().rd() && message.header().cd() && !message.header().qr());
    assert_eq!(
        message.sole_question().unwrap().qname().to_string(),
        "eXample.org"
    );
    let opt = message.opt().unwrap();
    assert_eq!(usize::from(opt.udp_payload_size()), UDP_LIMIT);
    assert!(opt.dnssec_ok());
    assert_eq!(opt.opt().len(), 0, "options are between the client and us");
    assert_eq!(
        message.sole_question().unwrap().qname().to_vec(),
        query.name
    );
}
