use std::os::unix::net::UnixStream;

use super::*;

const HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\n\r\n";

/// Returns a connection and its client.
fn pair(door: Door, now: Moment) -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let connection = Connection::new(Transport::unix(ours).unwrap(), door, now);
    (connection, theirs)
}

#[track_caller]
fn waits(connection: &mut Connection, now: Moment) {
    assert!(matches!(connection.advance(now), Then::Waits));
}

#[track_caller]
fn asks(connection: &mut Connection, now: Moment) -> Request {
    match connection.advance(now) {
        Then::Asks(request) => *request,
        _ => panic!("it asks nothing"),
    }
}

#[track_caller]
fn is_over(connection: &mut Connection) {
    assert!(matches!(connection.advance(Moment::now()), Then::Over));
}

/// Reads the bytes that have arrived up to now; None at the end of the stream.
fn read_now(client: &mut UnixStream) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    match client.read_to_end(&mut all) {
        Ok(_) if all.is_empty() => None,
        Ok(_) => Some(all),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Some(all),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_head_has_its_time_from_its_first_byte() {
    let begun = Moment::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let (mut connection, mut client) = pair(Door::Unix, begun);
    assert_eq!(connection.until(), begun + HEAD_TIME);
    client.write_all(&HEAD[..3]).unwrap();
    waits(&mut connection, at(1));
    assert_eq!(connection.until(), begun + HEAD_TIME, "from the connection");
    client.write_all(&HEAD[3..]).unwrap();
    asks(&mut connection, at(2));
    connection.answer(b"ok".to_vec(), true, at(3));
    assert_eq!(connection.until(), at(3) + SHORT_ANSWER);
    waits(&mut connection, at(4));
    assert_eq!(connection.until(), at(4) + IDLE);
    client.write_all(&HEAD[..1]).unwrap();
    waits(&mut connection, at(10));
    client.write_all(&HEAD[1..2]).unwrap();
    waits(&mut connection, at(12));
    assert_eq!(connection.until(), at(10) + HEAD_TIME);
    // The first bytes of the next head arrive together with the end of the current head.
    client.write_all(&[&HEAD[2..], b"GET"].concat()).unwrap();
    asks(&mut connection, at(13));
    connection.answer(b"ok".to_vec(), true, at(14));
    waits(&mut connection, at(14));
    assert_eq!(connection.until(), at(14) + HEAD_TIME);
}

#[test]
fn who_comes_back_from_a_thread_has_its_time_too() {
    let now = Moment::now();
    let back = |begun: &[u8]| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let transport = Transport::unix(ours).unwrap();
        let connection = Connection::returned(transport, Door::Unix, begun.to_vec(), now);
        (connection, theirs)
    };
    assert_eq!(back(b"").0.until(), now + IDLE);
    assert_eq!(back(&HEAD[..9]).0.until(), now + HEAD_TIME);
    let (mut connection, mut client) = back(&HEAD[..9]);
    client.write_all(&HEAD[9..]).unwrap();
    assert_eq!(asks(&mut connection, now).path, "/healthz");
}

/// A TCP client that has shown no certificate may send no more than the bytes that each connection may always keep.
#[test]
fn a_head_is_as_long_as_its_door_allows() {
    let now = Moment::now();
    for (door, limit) in [
        (Door::Health, 4096),
        (Door::ReadOnly, FREE_HEAD),
        (Door::Main, FREE_HEAD),
        (Door::Unix, MAX_HEAD),
    ] {
        let fill = |connection: &mut Connection, client: &mut UnixStream, bytes: &[u8]| {
            for piece in bytes.chunks(16 << 10) {
                client.write_all(piece).unwrap();
                waits(connection, now);
            }
        };
        let long = [b"GET /", &*vec![b'x'; limit]].concat();
        let (mut connection, mut client) = pair(door, now);
        fill(&mut connection, &mut client, &long[..limit - 1]);
        assert_eq!(read_now(&mut client), Some(Vec::new()), "{door:?}");
        fill(&mut connection, &mut client, b"x");
        let refused = String::from_utf8(read_now(&mut client).unwrap()).unwrap();
        assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
        let sentence = format!("the head of the request is longer than {limit} bytes\n");
        assert!(refused.ends_with(&sentence), "{refused}");
        // A head of the largest size is accepted.
        let end = b" HTTP/1.1\r\n\r\n";
        let (mut connection, mut client) = pair(door, now);
        fill(&mut connection, &mut client, &long[..limit - end.len()]);
        client.write_all(end).unwrap();
        asks(&mut connection, now);
    }
}

#[test]
fn what_is_kept_beyond_the_free_part_is_of_the_pool() {
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Unix, now);
    client.write_all(&vec![b'x'; FREE_HEAD]).unwrap();
    waits(&mut connection, now);
    assert_eq!(connection.pooled(), 0);
    client.write_all(b"xyz").unwrap();
    waits(&mut connection, now);
    assert_eq!(connection.pooled(), 3);
    connection.refuse(&BadHead::too_large(1), now);
    assert_eq!(connection.pooled(), 0);
}

#[test]
fn an_answer_that_nobody_reads_waits_and_gives_way_to_nobody() {
    const LENGTH: usize = 4 << 20;
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Unix, now);
    assert!(!connection.is_answered());
    connection.answer(vec![b'x'; LENGTH], true, now);
    waits(&mut connection, now);
    assert!(connection.is_answered());
    assert_eq!(connection.waits_for().1, PollFlags::POLLOUT);
    let mut came = 0;
    while connection.is_answered() {
        came += read_now(&mut client).unwrap().len();
        waits(&mut connection, now);
    }
    came += read_now(&mut client).unwrap().len();
    assert_eq!(came, LENGTH);
    assert_eq!(connection.waits_for().1, PollFlags::POLLIN);
}

/// After the last answer, the connection reads some of the bytes that the client still sends. Otherwise a reset could
/// overtake the answer.
#[test]
fn after_the_last_answer_a_little_is_read_and_thrown_away() {
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Unix, now);
    connection.answer(b"bye".to_vec(), false, now);
    waits(&mut connection, now);
    assert_eq!(connection.until(), now + SHORT_ANSWER);
    assert!(!connection.is_answered(), "it gives way");
    assert_eq!(read_now(&mut client), Some(b"bye".to_vec()));
    assert_eq!(read_now(&mut client), None, "nothing more is sent");
    client.write_all(&[b'x'; MAX_LEFT]).unwrap();
    waits(&mut connection, now);
    client.write_all(b"x").unwrap();
    is_over(&mut connection);

    let (mut connection, mut client) = pair(Door::Unix, now);
    connection.answer(b"bye".to_vec(), false, now);
    waits(&mut connection, now);
    assert_eq!(read_now(&mut client), Some(b"bye".to_vec()));
    drop(client);
    is_over(&mut connection);
}

/// Each head is found, in whatever pieces the heads arrive.
#[test]
fn heads_come_in_pieces_and_behind_one_another() {
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Unix, now);
    for byte in &HEAD[..HEAD.len() - 1] {
        client.write_all(&[*byte]).unwrap();
        waits(&mut connection, now);
    }
    client.write_all(b"\nGET /b HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(asks(&mut connection, now).path, "/healthz");
    // This request is shorter than the bytes that were searched for the end of the previous request.
    assert_eq!(asks(&mut connection, now).path, "/b");
}

#[test]
fn a_client_that_leaves_in_the_middle_has_left() {
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Health, now);
    client.write_all(&HEAD[..9]).unwrap();
    waits(&mut connection, now);
    drop(client);
    is_over(&mut connection);
}

#[test]
fn old_clients_are_known_at_the_unix_socket_only() {
    let now = Moment::now();
    let (mut connection, mut client) = pair(Door::Unix, now);
    client.write_all(b"{").unwrap();
    waits(&mut connection, now);
    assert_eq!(read_now(&mut client), Some(OLD_CLIENT.into()));
    assert_eq!(read_now(&mut client), None);
    let (mut connection, mut client) = pair(Door::Main, now);
    client.write_all(b"{").unwrap();
    waits(&mut connection, now);
    assert_eq!(read_now(&mut client), Some(Vec::new()));
}
