use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::face::server::ServerConfig;
use crate::face::server::tests::Fake;

struct World {
    front: Front,
    fake: Arc<Fake>,
    stop: UnixStream,
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("podprobe.sock");
    let (stop, stopped) = UnixStream::pair().unwrap();
    let fake = Fake::new(1);
    let shared = Shared::new(fake.clone(), &ServerConfig::default(), stopped.into()).unwrap();
    let unix = UnixDoor::open(&path).unwrap();
    World {
        front: Front::new(Arc::new(shared), unix, Vec::new()),
        fake,
        stop,
        path,
        _dir: dir,
    }
}

/// Returns a connection on which the client has already sent the bytes `sent`.
fn client(door: Door, sent: &[u8], now: Moment) -> (Connection, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(sent).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let transport = Transport::unix(ours).unwrap();
    (Connection::new(transport, door, now), theirs)
}

/// Returns the HTTP status of the answer that has arrived up to now.
fn status(client: &mut UnixStream) -> Option<u16> {
    let mut text = [0; 512];
    let n = client.read(&mut text).unwrap_or(0);
    let text = std::str::from_utf8(&text[..n]).unwrap();
    text.split(' ').nth(1).map(|status| status.parse().unwrap())
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\n\r\n";

/// In one turn, little work is done for clients that do not ask for health, whatever they send. The oldest clients
/// come first.
#[test]
fn few_are_served_at_a_time_and_health_always() {
    let now = Moment::now();
    let mut world = world();
    let (mut garbage, mut health) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (connection, client_of) = client(Door::Main, b"nonsense\r\n\r\n", now);
        world.front.connections.push(connection);
        garbage.push(client_of);
        let (connection, client_of) = client(Door::Health, HEALTH, now);
        world.front.connections.push(connection);
        health.push(client_of);
    }
    let fds = |front: &Front, count: usize| {
        let of = |c: &Connection| c.transport().as_fd().as_raw_fd();
        let all = front.connections.iter().filter(|c| c.door() == Door::Main);
        all.skip(count).map(of).collect::<HashSet<i32>>()
    };
    let all = world.front.connections.iter();
    let all = all.map(|c| c.transport().as_fd().as_raw_fd()).collect();
    let ready = |connections| Ready {
        doors: Vec::new(),
        connections,
    };
    world.front.serve(&ready(all), now);
    let answered = |clients: &mut [UnixStream]| -> Vec<usize> {
        let all = clients.iter_mut().map(status).enumerate();
        all.filter_map(|(n, status)| status.map(|_| n)).collect()
    };
    assert_eq!(answered(&mut health).len(), 20);
    assert_eq!(answered(&mut garbage), (0..AT_ONCE).collect::<Vec<_>>());
    let left = fds(&world.front, AT_ONCE);
    world.front.serve(&ready(left), now);
    let next: Vec<_> = (AT_ONCE..2 * AT_ONCE).collect();
    assert_eq!(answered(&mut garbage), next);
}

/// Clients that ask again as soon as they have their answer do not keep quiet clients waiting, although the busy
/// clients connected first.
#[test]
fn who_asks_again_and_again_waits_for_the_others() {
    const BUSY: usize = 2 * AT_ONCE;
    let mut now = Moment::now();
    let mut world = world();
    let mut join = |door| {
        let (connection, client_of) = client(door, HEALTH, now);
        world.front.connections.push(connection);
        client_of
    };
    let mut busy: Vec<_> = (0..BUSY).map(|_| join(Door::Main)).collect();
    let mut late = join(Door::Main);
    let mut other = join(Door::Unix);
    let mut answers = [0; BUSY];
    for turn in 1..=3 {
        now = now + Duration::from_millis(1);
        let ready = Ready {
            doors: Vec::new(),
            connections: world.front.connections.iter().map(fd).collect(),
        };
        world.front.serve(&ready, now);
        for (client, answers) in busy.iter_mut().zip(&mut answers) {
            if status(client) == Some(200) {
                *answers += 1;
                client.write_all(HEALTH).unwrap();
            }
        }
        let of_other = (turn == 1).then_some(200);
        assert_eq!(status(&mut other), of_other, "another door's");
        let of_late = (turn == 3).then_some(200);
        assert_eq!(status(&mut late), of_late, "the last of the same door");
    }
    assert_eq!(answers.iter().sum::<usize>(), 3 * AT_ONCE - 1);
    assert!(answers.iter().all(|n| (1..=2).contains(n)), "{answers:?}");
}

#[test]
fn few_are_let_in_at_a_time() {
    let now = Moment::now();
    let mut world = world();
    let _clients: Vec<_> = (0..2 * AT_ONCE + 1)
        .map(|_| UnixStream::connect(&world.path).unwrap())
        .collect();
    for expected in [AT_ONCE, 2 * AT_ONCE, 2 * AT_ONCE + 1] {
        world.front.let_in(None, now);
        assert_eq!(world.front.connections.len(), expected);
    }
}

#[test]
fn whose_time_is_over_is_gone_whatever_it_sends() {
    let now = Moment::now();
    let mut world = world();
    let (connection, mut client) = client(Door::Health, HEALTH, now);
    let fd = connection.transport().as_fd().as_raw_fd();
    let until = connection.until();
    world.front.connections.push(connection);
    let ready = Ready {
        doors: Vec::new(),
        connections: HashSet::from([fd]),
    };
    world.front.serve(&ready, until);
    assert!(world.front.connections.is_empty());
    assert_eq!(status(&mut client), None);
}

/// Each listener has places of its own. At each listener, the oldest client that is not being answered gives way.
#[test]
fn clients_of_one_address_take_no_place_of_another_s() {
    let now = Moment::now();
    let mut world = world();
    let busy = |world: &World, door: Door, count| {
        world.front.shared.busy[door as usize].store(count, Ordering::SeqCst);
    };
    let all = [Door::Unix, Door::Health, Door::ReadOnly, Door::Main];
    for full in all {
        busy(&world, full, MAX_CLIENTS);
        for door in all {
            let (connection, mut client) = client(door, HEALTH, now);
            world.front.welcome(connection, now);
            let ready = Ready {
                doors: Vec::new(),
                connections: world.front.connections.iter().map(fd).collect(),
            };
            world.front.serve(&ready, now);
            let expected = if door == full { 503 } else { 200 };
            assert_eq!(status(&mut client), Some(expected), "{full:?} {door:?}");
        }
        busy(&world, full, 0);
        world.front.connections.clear();
    }
}

#[test]
fn the_oldest_of_the_address_gives_way() {
    let now = Moment::now();
    let mut world = world();
    let busy = &world.front.shared.busy[Door::Main as usize];
    busy.store(MAX_CLIENTS - 3, Ordering::SeqCst);
    let (other, mut of_other) = client(Door::ReadOnly, b"", now);
    let (mut writing, _deaf) = client(Door::Main, b"", now);
    writing.answer(vec![b'x'; 4 << 20], false, now);
    assert!(matches!(writing.advance(now), Then::Waits));
    let (first, mut of_first) = client(Door::Main, b"GET ", now);
    let (second, mut of_second) = client(Door::Main, b"", now);
    for connection in [other, writing, first, second] {
        world.front.welcome(connection, now);
    }
    assert_eq!(world.front.connections.len(), 4);
    let (new, _of_new) = client(Door::Main, b"", now);
    world.front.welcome(new, now);
    assert_eq!(world.front.connections.len(), 4);
    // If the server has not read a client's bytes, the client sees a reset instead of the end.
    let is_over = |client: &mut UnixStream| match client.read(&mut [0]) {
        Ok(n) => n == 0,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    };
    assert!(is_over(&mut of_first));
    assert!(!is_over(&mut of_other) && !is_over(&mut of_second));
}

/// A client that sends more requests while it is answered gets a limited number of answers, and then the connection
/// ends. So other clients have their turn.
#[test]
fn a_connection_ends_with_the_last_of_many_answers_in_a_row() {
    let now = Moment::now();
    let mut world = world();
    let (connection, mut client) = client(Door::Health, &HEALTH.repeat(IN_A_ROW + 1), now);
    world.front.go_on(connection, now);
    let mut text = String::new();
    assert!(client.read_to_string(&mut text).is_ok(), "it is the end");
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), IN_A_ROW);
    assert_eq!(text.matches("Connection: close").count(), 1);
    let last = text.rsplit("HTTP/1.1").next().unwrap();
    assert!(last.contains("Connection: close"), "{text}");
}

#[test]
fn the_checks_are_asked_again_after_a_moment() {
    let now = Moment::now();
    let mut world = world();
    let fails = |world: &mut World, at| {
        let checks = world.front.checks(at);
        checks.iter().any(|check| check.failure.is_some())
    };
    assert!(!fails(&mut world, now));
    world.fake.set_full(Some("it is full".into()));
    let just_before = now + CHECKS_LAST - Duration::from_nanos(1);
    assert!(!fails(&mut world, just_before));
    assert!(fails(&mut world, now + CHECKS_LAST));
}

#[test]
fn waiting_ends_when_somebody_s_time_is_over() {
    let now = Moment::now();
    let mut world = world();
    assert_eq!(world.front.patience(now), PollTimeout::NONE);
    let (connection, _client) = client(Door::Unix, b"", now);
    let until = connection.until();
    world.front.connections.push(connection);
    let in_millis = |n: u16| PollTimeout::from(n);
    assert_eq!(world.front.patience(now), in_millis(5000));
    let nearly = until - Duration::from_micros(1);
    assert_eq!(world.front.patience(nearly), in_millis(1));
    world.front.rests = Some(now + PAUSE);
    assert_eq!(world.front.patience(now), in_millis(200));
}

#[test]
fn nobody_is_let_in_while_there_are_no_descriptors() {
    let mut world = world();
    let _client = UnixStream::connect(&world.path).unwrap();
    world.stop.shutdown(std::net::Shutdown::Both).unwrap();
    let now = Moment::now();
    assert_eq!(world.front.wait(now).unwrap().doors, [None]);
    world.front.rests = Some(now + PAUSE);
    assert_eq!(world.front.wait(now).unwrap().doors, []);
    world.front.turn();
    assert!(world.front.connections.is_empty());
    world.front.rests = Some(now);
    world.front.turn();
    assert_eq!(world.front.connections.len(), 1, "its time is over");
}

/// A server that has stopped leaves no unix socket, even if the socket was made again after the stop had removed it.
#[test]
fn a_server_that_has_stopped_leaves_no_socket() {
    let mut world = world();
    world.front.shared.stopping.store(true, Ordering::SeqCst);
    assert!(world.path.exists());
    world.front.run();
    assert!(!world.path.exists());
}

/// If no thread can be started because pids.max is reached, the client must get an answer. Earlier versions closed the
/// connection without an answer.
#[test]
fn a_client_for_whom_there_is_no_thread_is_told_so() {
    let now = Moment::now();
    let mut world = world();
    world.front.shared.no_threads.store(true, Ordering::SeqCst);
    let asks = b"GET /pods HTTP/1.1\r\n\r\n";
    let (connection, mut waits) = client(Door::Unix, asks, now);
    world.front.go_on(connection, now);
    let mut text = [0; 512];
    let n = waits.read(&mut text).unwrap();
    let text = std::str::from_utf8(&text[..n]).unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("no thread left"), "{text}");
    assert!(world.front.shared.is_idle(), "its place is free");
}

/// Returns a connection at the main listener from this address.
fn from(address: &str, now: Moment) -> (Connection, UnixStream) {
    let (mut connection, client_of) = client(Door::Main, b"", now);
    connection.come_from(address);
    (connection, client_of)
}

/// A machine may make any number of connections. The new connections drive out only connections of the same machine.
#[test]
fn one_machine_keeps_nobody_out() {
    let now = Moment::now();
    let mut world = world();
    let (quiet, mut client_of) = from("192.0.2.1", now);
    let mut clients = vec![];
    world.front.welcome(quiet, now);
    for n in 0..200 {
        let flood = match n % 2 {
            0 => "192.0.2.9".to_owned(),
            // All addresses of one IPv6 network count as one machine.
            _ => format!("2001:db8::{n:x}"),
        };
        let (connection, client_of) = from(&flood, now);
        world.front.welcome(connection, now);
        clients.push(client_of);
    }
    assert_eq!(world.front.connections.len(), MAX_CLIENTS);
    assert_eq!(status(&mut client_of), None, "it has no answer yet");
    assert!(client_of.write_all(HEALTH).is_ok());
    let is_quiet = |c: &Connection| c.origin() == Some(Origin::of("192.0.2.1".parse().unwrap()));
    assert!(world.front.connections.iter().any(is_quiet));
    let (other, _other) = from("192.0.2.2", now);
    world.front.welcome(other, now);
    assert!(
        world.front.connections.iter().any(is_quiet),
        "two are less than 31"
    );
    // The quiet client is served among the first clients, although 63 connections were there before it.
    world.front.connections.rotate_left(1);
    let all: Vec<&Connection> = world.front.connections.iter().collect();
    let first = order(all).into_iter().position(is_quiet);
    assert!(first.is_some_and(|at| at < AT_ONCE), "{first:?}");
}

/// A client that has shown a token stays, however many clients without credentials come. The clients without
/// credentials still have a place in each turn.
#[test]
fn who_has_shown_who_they_are_comes_first() {
    let now = Moment::now();
    let mut connections = Vec::new();
    let mut clients = Vec::new();
    let mut join = |address: &str, known: bool, at: Moment| {
        let (mut connection, client_of) = from(address, at);
        if known {
            connection.prove();
        }
        connections.push(connection);
        clients.push(client_of);
    };
    for n in 0..10 {
        join(&format!("192.0.2.{n}"), false, now);
        join("192.0.2.77", true, now + Duration::from_secs(1));
    }
    let ordered: Vec<bool> = order(connections.iter().collect())
        .into_iter()
        .map(Connection::is_known)
        .collect();
    assert_eq!(
        ordered[..8],
        [true, true, true, false, true, true, true, false]
    );
    let (new, _client) = from("192.0.2.78", now);
    let leaves = gives_way(&connections, &new).unwrap();
    assert!(!connections[leaves].is_known());
    connections.retain(Connection::is_known);
    assert_eq!(gives_way(&connections, &new), Some(0), "then the oldest");
}
