//! Clients that are attached to containers, on the embedded runtime and again on runc.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
};
use podprobe::base::cancel::Cancel;
use podprobe::engine::runtime::{AttachRequest, RuntimeErrorKind, SessionEnd, TerminalSize};
use podprobe::engine::shims::state::{ContainerState, Process, STATE};
use serde_json::{Value, json};

use crate::support;
use crate::support::running::Running;
use crate::support::session::{Client, await_readable, descriptors, read_now};
use crate::support::{Node, on_both, sh, wait_until};

const ALL: AttachRequest = AttachRequest {
    stdin: true,
    stdout: true,
    stderr: true,
};
const OUTPUT: AttachRequest = AttachRequest {
    stdin: false,
    ..ALL
};
/// Says what it reads on both outputs, and the end of it.
const ECHO: &str =
    "echo up; while read line; do echo got $line; echo err $line >&2; done; echo end; exit 5";

fn with(node: &Node, script: &str, change: Value, test: impl FnOnce(&Running<'_>)) {
    let mut c = sh("main", script);
    c.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let c = Running::start(node, "attach", &json!({"containers": [c]}));
    test(&c);
    c.end();
}

fn attach(c: &Running<'_>, request: AttachRequest) -> Client {
    Client::of(c.rt.attach(&c.id, request).unwrap())
}

fn refused(c: &Running<'_>) -> String {
    let refused = c.rt.attach(&c.id, ALL).err().expect("nobody is attached");
    refused.message
}

fn shim(c: &Running<'_>) -> Process {
    c.node.record::<ContainerState>(&c.id, STATE).shim
}

/// Descriptors of the container's shim.
fn open_in_shim(c: &Running<'_>) -> usize {
    let dir = format!("/proc/{}/fd", shim(c).pid);
    fs::read_dir(dir).unwrap().count()
}

/// The lines of the container's log, with the names of their streams.
fn log(c: &Running<'_>) -> Vec<String> {
    let status = c.rt.pod_status(c.pod.uid()).unwrap();
    let log = fs::read_to_string(&status.containers[0].log_path).unwrap();
    let line = |l: &str| l.split_once(' ').unwrap().1.to_owned();
    log.lines().map(line).collect()
}

/// Input goes in; output comes to everybody who is attached, and to the log in any case. When the client's input ends it
/// has left, and the container reads on.
fn input_and_output(node: &Node) {
    with(node, ECHO, json!({"stdin": true}), |c| {
        let before = (descriptors(), open_in_shim(c));
        let mut first = attach(c, ALL);
        let mut second = attach(c, OUTPUT);
        assert!(second.session.stdin().is_none());
        first.write("one\n");
        first.wait_for("got one\n");
        second.wait_for("got one\n");
        let errors = second.session.stderr().unwrap();
        await_readable(&[errors]);
        let mut text = String::new();
        assert!(read_now(errors, &mut text));
        assert_eq!(text, "err one\n");
        first.session.close_stdin();
        assert_eq!(
            first.end(),
            (SessionEnd::Unknown, String::new(), "err one\n".into())
        );
        let third = attach(c, ALL);
        third.write("two\n");
        second.wait_for("got two\n");
        drop((second, third));
        wait_until("the shim to see that they have left", || {
            open_in_shim(c) == before.1
        });
        assert_eq!(descriptors(), before.0);
        assert!(c.process.alive());
        let mut last = attach(c, ALL);
        // Nothing of what was said before.
        last.write("three\n");
        assert_eq!(last.wait_for("got three\n"), "");
        let mut logged = log(c);
        logged.retain(|l| l.starts_with("stdout"));
        let expected = ["up", "got one", "got two", "got three"].map(|l| format!("stdout F {l}"));
        assert_eq!(logged, expected);
    });
}

/// The first client that has the input ends it, by saying so or by leaving. Output comes until the container has ended.
fn input_once(node: &Node) {
    for leaves in [false, true] {
        let once = json!({"stdin": true, "stdinOnce": true});
        with(node, ECHO, once, |c| {
            let mut watching = attach(c, OUTPUT);
            let mut first = attach(c, ALL);
            let late = attach(c, ALL);
            assert!(late.session.stdin().is_none(), "it is the first's");
            first.write("one\n");
            first.wait_for("got one\n");
            assert!(c.process.alive());
            if leaves {
                drop(first);
            } else {
                first.session.close_stdin();
                let (end, said, errors) = first.end();
                assert_eq!((end, said.as_str()), (SessionEnd::Exited(5), "end\n"));
                assert_eq!(errors, "err one\n");
            }
            watching.wait_for("end\n");
            assert_eq!(watching.end().0, SessionEnd::Exited(5));
            let status = node.wait_exit(&c.rt, &c.pod, &c.id);
            assert_eq!(status.exit_code, 5);
        });
    }
}

fn without_input(node: &Node) {
    with(
        node,
        "echo up; while :; do echo tick; sleep 0.01; done",
        json!({}),
        |c| {
            let mut client = attach(c, ALL);
            assert!(client.session.stdin().is_none());
            client.wait_for("tick\ntick\n");
            client.session.close_stdin();
            client.wait_for("tick\n");
            c.rt.stop_container(&c.id, Duration::ZERO, &Cancel::default())
                .unwrap();
            assert_eq!(client.end().0, SessionEnd::Exited(137));
            let e = c.rt.attach(&c.id, ALL).err().unwrap();
            assert_eq!(e.kind, RuntimeErrorKind::NotRunning, "{e}");
        },
    );
}

/// Also without `stdin`, where nothing can be written to it.
fn terminal(node: &Node) {
    let script =
        "trap 'busybox stty size' WINCH; echo up; while :; do read line && echo got $line; done";
    let size = |width, height| TerminalSize { width, height };
    with(
        node,
        script,
        json!({"stdin": true, "tty": true, "stdinOnce": true}),
        |c| {
            let mut client = attach(c, ALL);
            assert!(client.session.stderr().is_none());
            client.session.resize(size(90, 31));
            client.wait_for("31 90\r\n");
            client.write("x\n");
            client.wait_for("x\r\ngot x\r\n");
            // A terminal outlives its clients.
            client.session.close_stdin();
            assert_eq!(client.end().0, SessionEnd::Unknown);
            let mut client = attach(c, ALL);
            client.write("y\n");
            client.wait_for("got y\r\n");
        },
    );
    let script = "trap 'busybox stty size' WINCH; echo up; while :; do sleep 0.01; done";
    with(node, script, json!({"tty": true}), |c| {
        let mut client = attach(c, ALL);
        assert!(client.session.stdin().is_none());
        client.session.resize(size(91, 32));
        client.wait_for("32 91\r\n");
    });
}

/// What one does not read the others get, and the log; it gets the begin without a gap, and the reason.
fn a_slow_reader(node: &Node) {
    const BLOCKS: usize = 12;
    const BLOCK: usize = 30_000;
    let node = &node.with_logs(1 << 26, 2);
    let script = "echo up; while read a b; do busybox seq $a $b; done";
    with(node, script, json!({"stdin": true}), |c| {
        let (slow, eager) = (attach(c, OUTPUT), attach(c, ALL));
        let (mut lines, mut read) = (String::new(), String::new());
        for block in 0..BLOCKS {
            let (first, last) = (block * BLOCK + 1, (block + 1) * BLOCK);
            // Less at once than a client may be behind.
            eager.write(&format!("{first} {last}\n"));
            (first..=last).for_each(|n| lines.push_str(&format!("{n}\n")));
            while read.len() < lines.len() {
                let out = eager.session.stdout().unwrap();
                await_readable(&[out]);
                let is_open = read_now(out, &mut read);
                assert!(is_open, "it was cut off after {} bytes", read.len());
            }
        }
        assert!(read == lines);
        await_readable(&[slow.session.ended()]);
        let mut said = String::new();
        let is_open = read_now(slow.session.stdout().unwrap(), &mut said);
        assert!(!is_open, "what comes after the gap is not its");
        assert_eq!(slow.session.finish(), SessionEnd::TooSlow);
        let enough = said.len() >= 1 << 19;
        assert!(enough && lines.starts_with(&said), "{} bytes", said.len());
        let logged = log(c);
        assert_eq!(logged.len(), 1 + BLOCKS * BLOCK);
        let mut in_order = (1..).zip(&logged[1..]);
        assert!(in_order.all(|(n, l)| *l == format!("stdout F {n}")));
    });
}

fn as_many_as_may_be(node: &Node) {
    with(node, ECHO, json!({"stdin": true}), |c| {
        let mut clients: Vec<Client> = (0..8).map(|_| attach(c, ALL)).collect();
        let e = refused(c);
        assert!(
            e.contains("8 clients are attached to it, as many as may be"),
            "{e}"
        );
        drop(clients.pop());
        let mut attached = None;
        wait_until("the shim to see that one has left", || {
            attached = c.rt.attach(&c.id, ALL).ok();
            attached.is_some()
        });
        clients.extend(attached.map(Client::of));
        clients[0].write("x\n");
        for client in &mut clients {
            client.wait_for("got x\n");
        }
    });
}

/// A connection to the shim, without the daemon's manners.
fn raw(c: &Running<'_>) -> OwnedFd {
    let dir = c.node.layout.containers().join(c.id.as_str());
    let dir = File::open(dir).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}/attach", dir.as_raw_fd()));
    let flags = SockFlag::SOCK_CLOEXEC;
    let connection = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
    connect(connection.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    connection
}

fn say(connection: &OwnedFd, message: &[u8], fds: &[i32]) {
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[] } else { &rights[..] };
    let slices = [IoSlice::new(message)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(connection.as_raw_fd(), &slices, rights, flags, None).unwrap();
}

fn broken_clients(node: &Node) {
    with(node, ECHO, json!({"stdin": true}), |c| {
        let before = open_in_shim(c);
        let mut good = attach(c, ALL);
        let file = tempfile::tempfile().unwrap();
        let (_read, write) = nix::unistd::pipe().unwrap();
        let (file, write) = (file.as_raw_fd(), write.as_raw_fd());
        // Nothing that was asked for, garbage, what is no pipe, too few, too many.
        let cases: [(&[u8], &[i32]); 7] = [
            (b"x", &[]),
            (b"aioe and more than a message may be long, much more", &[]),
            (b"ao", &[file]),
            (b"ao", &[]),
            (b"a", &[write]),
            (b"ao", &[write, write]),
            (b"ao", &[write, write, write, write]),
        ];
        for (message, fds) in cases {
            let connection = raw(c);
            say(&connection, message, fds);
            let mut answer = [0; 9];
            let answered = nix::unistd::read(&connection, &mut answer);
            assert!(
                matches!(answered, Ok(0) | Err(_)),
                "{message:?}: {answered:?}"
            );
        }
        // More of those who say nothing than there is room for.
        let silent: Vec<OwnedFd> = (0..30).map(|_| raw(c)).collect();
        let mut other = attach(c, ALL);
        good.write("x\n");
        good.wait_for("got x\n");
        other.wait_for("got x\n");
        // One that talks on is one that is broken.
        let talks = raw(c);
        say(&talks, b"ao", &[write]);
        await_readable(&[std::os::fd::AsFd::as_fd(&talks)]);
        say(&talks, b"ao", &[write]);
        drop((silent, talks, other, good));
        wait_until("the shim to see that all have left", || {
            open_in_shim(c) == before
        });
        let mut good = attach(c, ALL);
        good.write("y\n");
        good.wait_for("got y\n");
    });
}

/// A client leaves with its daemon; the next daemon attaches others.
fn the_daemon_ends(node: &Node) {
    let mut container = sh("main", ECHO);
    container["stdin"] = json!(true);
    let c = Running::start(node, "attach", &json!({"containers": [container]}));
    let client = attach(&c, ALL);
    c.rt.interrupt();
    assert_eq!(client.end().0, SessionEnd::Unknown);
    let rt = node.runtime();
    let mut client = Client::of(rt.attach(&c.id, ALL).unwrap());
    client.write("x\n");
    client.wait_for("got x\n");
    node.remove_pod(&rt, &c.pod);
    assert_eq!(client.end().0, SessionEnd::Exited(137));
}

fn shims_that_take_nobody(node: &Node) {
    with(node, ECHO, json!({"stdin": true}), |c| {
        let socket = node.layout.containers().join(c.id.as_str()).join("attach");
        let aside = socket.with_extension("aside");
        fs::rename(&socket, &aside).unwrap();
        let e = refused(c);
        assert!(
            e.contains("its shim is of an older podprobe") && e.contains("restart the container"),
            "{e}"
        );
        fs::rename(&aside, &socket).unwrap();
        let client = attach(c, ALL);
        support::kill9(shim(c));
        assert_eq!(client.end().0, SessionEnd::Unknown);
        // Its pipes have gone with it, and so may the container.
        let e = refused(c);
        assert!(
            e.contains("its shim is gone") || e.contains("it is not running"),
            "{e}"
        );
    });
}

on_both!(
    input_once,
    without_input,
    terminal,
    a_slow_reader,
    as_many_as_may_be,
    broken_clients,
    the_daemon_ends,
    shims_that_take_nobody;
    alone: input_and_output
);
