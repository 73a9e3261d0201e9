use std::net::Ipv4Addr;

use super::*;
use crate::face::server::credentials::tests::Place;

const NOBODY_S_PORT: u16 = 0;

fn door(place: &Place) -> TcpDoor {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, NOBODY_S_PORT));
    TcpDoor::new((Door::Main, at, Some(place.files())))
}

#[test]
fn a_port_without_credentials_is_not_opened_and_tried_again() {
    let place = Place::new();
    place.write("token", "short", 0o600);
    let mut door = door(&place);
    let now = Moment::now();
    door.open(now);
    assert!(door.listening_fd().is_none());
    assert!(door.problem.contains("a token needs 16 characters"));
    assert_eq!(door.retry_at(), Some(now + INTERVAL));
    assert!(door.accept().is_err());
    place.write("token", "0123456789abcdef", 0o600);
    door.open(now + INTERVAL - Duration::from_nanos(1));
    assert!(door.listening_fd().is_none());
    door.open(now + INTERVAL);
    assert!(door.listening_fd().is_some());
    assert_eq!((door.retry_at(), door.problem.as_str()), (None, ""));
}

#[test]
fn a_port_that_is_open_stays_open() {
    let place = Place::new();
    let mut door = door(&place);
    let now = Moment::now();
    door.open(now);
    let at = door.listener.as_ref().unwrap().local_addr().unwrap();
    door.open(now + INTERVAL);
    assert_eq!(door.listener.as_ref().unwrap().local_addr().unwrap(), at);
    assert!(door.credentials().is_some());
}
