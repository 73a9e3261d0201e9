use super::*;

struct Place {
    dir: tempfile::TempDir,
    door: UnixDoor,
}

fn open() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let door = UnixDoor::open(&dir.path().join("run/podprobe.sock")).unwrap();
    Place { dir, door }
}

impl Place {
    fn is_served(&self) -> bool {
        let client = std::os::unix::net::UnixStream::connect(&self.door.path);
        client.is_ok() && self.door.listener.accept().is_ok()
    }
}

#[test]
fn a_socket_that_is_removed_is_made_again_after_a_pause() {
    let mut place = open();
    let now = Moment::now();
    assert!(!place.door.keep(now) && place.is_served());
    std::fs::remove_dir_all(place.dir.path().join("run")).unwrap();
    assert!(!place.door.keep(now));
    assert_eq!(place.door.retry_at(), Some(now + REBIND_PAUSE));
    let just_before = now + REBIND_PAUSE - Duration::from_nanos(1);
    assert!(!place.door.keep(just_before));
    assert!(!place.door.path.exists(), "the pause is not over");
    assert!(place.door.keep(now + REBIND_PAUSE), "looked for once more");
    assert!(place.is_served());
    assert!(!place.door.keep(now + REBIND_PAUSE));
    assert_eq!(place.door.retry_at(), None);
}

/// A failed attempt to make the socket again blocks no client, and is not repeated without a pause.
#[test]
fn a_socket_that_cannot_be_made_is_tried_now_and_then() {
    let mut place = open();
    let now = Moment::now();
    let in_the_way = place.dir.path().join("run/podprobe.new");
    std::fs::create_dir(&in_the_way).unwrap();
    std::fs::remove_file(&place.door.path).unwrap();
    assert!(!place.door.keep(now));
    let tried = now + REBIND_PAUSE;
    assert!(!place.door.keep(tried));
    assert!(place.door.problem.starts_with("cannot listen on "));
    assert_eq!(place.door.retry_at(), Some(tried + RETRY));
    std::fs::remove_dir(&in_the_way).unwrap();
    assert!(!place.door.keep(tried + RETRY - Duration::from_nanos(1)));
    assert!(!place.door.path.exists());
    assert!(place.door.keep(tried + RETRY) && place.is_served());
    assert_eq!(place.door.problem, "");
}

#[test]
fn a_change_beside_the_socket_is_none_of_it() {
    let mut place = open();
    let now = Moment::now();
    assert!(!place.door.keep(now));
    std::fs::write(place.dir.path().join("run/other"), "").unwrap();
    assert!(!place.door.keep(now));
    assert_eq!(place.door.retry_at(), None);
}

/// Members of the group may use the socket, and no other users. If the node has no such group, the socket is for root
/// alone.
#[test]
fn the_socket_is_of_the_group_where_the_node_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let owner = |group: &str| {
        // A file that an earlier daemon has left under the temporary name.
        std::fs::write(path.with_extension("new"), "").unwrap();
        bind(&path, group).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        (found.gid(), found.mode() & 0o7777)
    };
    let group = Group::from_gid(1.into()).unwrap().unwrap();
    assert_eq!(owner(&group.name), (1, 0o660));
    let own = nix::unistd::getegid().as_raw();
    assert_eq!(owner("no-such-group"), (own, 0o600));
}

#[test]
fn the_socket_of_another_daemon_stays() {
    let place = open();
    std::fs::remove_file(&place.door.path).unwrap();
    let _other = UnixListener::bind(&place.door.path).unwrap();
    place.door.remove();
    assert!(place.door.path.exists());
    let place = open();
    place.door.remove();
    assert!(!place.door.path.exists());
}
