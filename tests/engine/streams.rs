//! Commands with streams of a client, in real containers, on the embedded runtime and again on runc.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use podprobe::api::PodUid;
use podprobe::base::cancel::Cancel;
use podprobe::base::wire::dial::DialError;
use podprobe::base::wire::socket::Socket;
use podprobe::engine::runtime::{
    ContainerId, ExecRequest, Runtime, RuntimeErrorKind, SessionEnd, Started, TerminalSize,
};
use serde_json::{Value, json};

use crate::support;
use crate::support::own_process::is_own_process;
use crate::support::running::Running;
use crate::support::session::{Client, await_readable, descriptors};
use crate::support::{CEILING, Node, on_both, own_seconds, sh, wait_until};

fn request(command: &[&str]) -> ExecRequest {
    ExecRequest {
        command: command.iter().map(|w| (*w).to_owned()).collect(),
        stdin: true,
        stdout: true,
        stderr: true,
        ..ExecRequest::default()
    }
}

fn script(script: &str) -> ExecRequest {
    request(&["/bin/sh", "-c", script])
}

fn on_a_terminal(script_of: &str) -> ExecRequest {
    ExecRequest {
        tty: true,
        ..script(script_of)
    }
}

fn spec(change: Value) -> Value {
    let mut c = sh("main", "echo up; while :; do sleep 1; done");
    c.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    json!({"containers": [c]})
}

fn with(node: &Node, change: Value, test: impl FnOnce(&Running<'_>)) {
    let c = Running::start(node, "streams", &spec(change));
    test(&c);
    c.end();
}

fn start(c: &Running<'_>, request: &ExecRequest) -> Client {
    match c.rt.exec_stream(&c.id, request) {
        Ok(Started::Running(session)) => Client::of(session),
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Directories of commands in the container's cgroups.
fn leaves(c: &Running<'_>) -> usize {
    let state: podprobe::engine::shims::state::ContainerState =
        c.node.record(&c.id, podprobe::engine::shims::state::STATE);
    let entries = state
        .cgroups
        .iter()
        .flat_map(|d| fs::read_dir(d).into_iter().flatten().flatten());
    entries
        .filter(|e| e.file_name().to_string_lossy().starts_with("exec-"))
        .count()
}

/// Input, its end, both outputs and the exit code.
fn streams(node: &Node) {
    with(node, json!({}), |c| {
        let mut client = start(
            c,
            &script("read line; echo out $line $(ls /proc/self/fd); cat; echo err >&2; exit 7"),
        );
        client.write("one\n");
        client.wait_for("out one 0 1 2 3\n");
        client.write("two\n");
        client.wait_for("two\n");
        assert!(!leaves(c).eq(&0), "it has a cgroup of its own");
        client.session.close_stdin();
        client.check(7, "", "err\n");
        assert_eq!(leaves(c), 0);
        // A signal counts as a shell counts it.
        start(c, &script("kill -9 $$")).check(137, "", "");
    });
}

/// The container's null device is what nobody asked for; what is its user's can be opened again.
fn only_what_is_asked_for(node: &Node) {
    with(node, json!({"securityContext": {"runAsUser": 1234}}), |c| {
        let mut only_out = script(
            "readlink /proc/self/fd/0; readlink /proc/$$/fd/2; echo x >&2; cat; echo again > /dev/stdout",
        );
        (only_out.stdin, only_out.stderr) = (false, false);
        let client = start(c, &only_out);
        assert!(client.session.stdin().is_none() && client.session.stderr().is_none());
        client.check(0, "/dev/null\n/dev/null\nagain\n", "");
        let mut only_in = script("read x < /dev/stdin; exit $x");
        (only_in.stdout, only_in.stderr) = (false, false);
        let client = start(c, &only_in);
        assert!(client.session.stdout().is_none());
        client.write("9\n");
        client.check(9, "", "");
    });
}

/// In the words of an exec probe, which are runc's.
fn what_cannot_be_executed(node: &Node) {
    with(node, json!({}), |c| {
        for (command, tty, expected) in [
            (
                "nosuch",
                false,
                (127, "exec: \"nosuch\": executable file not found in $PATH"),
            ),
            (
                "/no/such",
                true,
                (
                    127,
                    "exec: \"/no/such\": stat /no/such: no such file or directory",
                ),
            ),
            ("/tmp", false, (126, "exec: \"/tmp\": permission denied")),
        ] {
            match c.rt.exec_stream(
                &c.id,
                &ExecRequest {
                    tty,
                    ..request(&[command])
                },
            ) {
                Ok(Started::NotExecuted { code, message }) => {
                    assert_eq!((code, message.as_str()), expected);
                }
                other => panic!("{other:?}"),
            }
        }
        let none = ContainerId::from("0".repeat(64).as_str());
        let e = c.rt.exec_stream(&none, &script("true")).unwrap_err();
        assert_eq!(e.kind, RuntimeErrorKind::NotRunning);
        assert_eq!(leaves(c), 0);
    });
}

/// It is one, it is the container's, its size is the client's from the start and after.
fn terminal(node: &Node) {
    with(node, json!({}), |c| {
        let mut shell = on_a_terminal(
            "trap 'busybox stty size' WINCH; echo $(ls /proc/self/fd); busybox tty; stat -c %a $(busybox tty); busybox stty size; echo $TERM; \
             echo err >&2; while :; do sleep 0.01; done",
        );
        shell.size = Some(TerminalSize {
            width: 100,
            height: 33,
        });
        let mut client = start(c, &shell);
        client.wait_for("0 1 2 3\r\n/dev/pts/0\r\n620\r\n33 100\r\nxterm\r\nerr\r\n");
        assert!(client.session.stderr().is_none());
        client.session.resize(TerminalSize {
            width: 81,
            height: 25,
        });
        client.wait_for("25 81\r\n");
        // The key of the terminal ends it, by a signal to the foreground group.
        client.write("\x03");
        let (end, ..) = client.end();
        assert_eq!(end, SessionEnd::Exited(130));
        assert_eq!(leaves(c), 0);
    });
}

/// The container's own TERM stays.
fn terminal_of_another_kind(node: &Node) {
    with(
        node,
        json!({"env": [{"name": "TERM", "value": "vt100"}]}),
        |c| {
            let (end, said, _) = start(c, &on_a_terminal("echo $TERM")).end();
            assert_eq!((end, said.as_str()), (SessionEnd::Exited(0), "vt100\r\n"));
        },
    );
}

/// A shell has job control: it says nothing of the contrary, stops a command by a key and takes it up again. The end of
/// the client's input is nothing to it; the key is.
fn job_control(node: &Node) {
    with(node, json!({}), |c| {
        let mut client = start(
            c,
            &ExecRequest {
                tty: true,
                ..request(&["/bin/sh", "-i"])
            },
        );
        client.wait_for("# ");
        assert!(!client.said.contains("job control"), "{}", client.said);
        client.write("PS1='> '; echo $((1 + 1))ready; cat\n");
        client.wait_for("2ready\r\n");
        // Once by the terminal and once by the command, which has it then.
        client.write("x\n");
        client.wait_for("x\r\nx\r\n");
        client.write("\x1a");
        client.wait_for("Stopped");
        client.wait_for("> ");
        client.write("fg\n");
        client.wait_for("fg\r\ncat\r\n");
        client.write("y\n");
        client.wait_for("y\r\ny\r\n");
        client.write("\x03");
        client.wait_for("> ");
        client.write("exit $?\n");
        let (end, said, _) = client.end();
        assert_eq!(end, SessionEnd::Exited(130), "{said}");
        // The shell reads no end that its terminal has not.
        let mut client = start(c, &on_a_terminal("echo up; read x; echo got $x"));
        client.wait_for("up\r\n");
        client.session.close_stdin();
        assert!(client.session.stdin().is_none());
        assert_eq!(processes_of(c, "read x").len(), 1, "it waits on");
    });
}

/// Pids of the container's processes with that in their command line.
fn processes_of(c: &Running<'_>, text: &str) -> Vec<i32> {
    let named = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|l| {
            String::from_utf8_lossy(&l)
                .replace('\0', " ")
                .contains(text)
        })
    };
    c.processes().into_iter().filter(named).collect()
}

/// It can open its terminal again, which is its own; also where its system calls are filtered, before or after it has no
/// more privileges, and where the container may trace it.
fn terminal_of_another_user(node: &Node) {
    let filter = json!({"type": "RuntimeDefault"});
    let script = "stat -c '%u %a' $(busybox tty); echo again > $(busybox tty); echo tty > /dev/tty";
    for security in [
        json!({"runAsGroup": 2345}),
        json!({"seccompProfile": filter, "allowPrivilegeEscalation": false}),
        json!({"seccompProfile": filter}),
        json!({"seccompProfile": filter, "capabilities": {"add": ["SYS_PTRACE"]}}),
    ] {
        let mut security = security;
        security["runAsUser"] = json!(1234);
        with(node, json!({"securityContext": security}), |c| {
            let (end, said, _) = start(c, &on_a_terminal(script)).end();
            let expected = "1234 620\r\nagain\r\ntty\r\n";
            assert_eq!((end, said.as_str()), (SessionEnd::Exited(0), expected));
        });
    }
}

/// No process, cgroup or descriptor, background processes included, also without a hang-up's help.
fn a_client_that_vanishes(node: &Node) {
    with(node, json!({}), |c| {
        start(c, &script("true")).check(0, "", "");
        let before = (descriptors(), c.processes().len());
        for tty in [false, true] {
            let seconds = own_seconds();
            let command = format!(
                "trap '' HUP; (setsid sleep {seconds} &) ; sleep {seconds} & echo up; cat; sleep {seconds}"
            );
            let mut client = start(
                c,
                &ExecRequest {
                    tty,
                    ..script(&command)
                },
            );
            client.wait_for("up");
            let is_there = || !processes_of(c, &seconds).is_empty();
            assert!(is_there());
            drop(client);
            assert!(!is_there(), "{:?}", processes_of(c, &seconds));
            assert_eq!((descriptors(), leaves(c)), (before.0, 0));
        }
        assert_eq!(c.processes().len(), before.1);
    });
}

fn a_finished_session_says_that_it_was_not_over(node: &Node) {
    with(node, json!({}), |c| {
        let client = start(c, &script("cat"));
        assert_eq!(client.session.finish(), SessionEnd::Unknown);
        assert_eq!(leaves(c), 0);
    });
}

/// With its container, also where that has its processes in the pod's or the node's namespace.
fn the_container_ends(node: &Node) {
    for pod in [
        json!({}),
        json!({"shareProcessNamespace": true}),
        json!({"hostPID": true}),
    ] {
        let mut spec = spec(json!({}));
        spec.as_object_mut()
            .unwrap()
            .extend(pod.as_object().unwrap().clone());
        let c = Running::start(node, "ends", &spec);
        let clients = [
            script("trap '' TERM; cat"),
            on_a_terminal("trap '' TERM HUP; cat"),
        ];
        let clients = clients.map(|request| start(&c, &request));
        c.rt.stop_container(&c.id, std::time::Duration::ZERO, &Cancel::default())
            .unwrap();
        for client in clients {
            assert_eq!(client.end().0, SessionEnd::Exited(137));
        }
        c.end();
    }
}

fn the_daemon_ends(node: &Node) {
    let c = Running::start(node, "streams", &spec(json!({})));
    let clients = [script("cat"), on_a_terminal("cat")].map(|request| start(&c, &request));
    c.rt.interrupt();
    for client in clients {
        assert_eq!(client.end().0, SessionEnd::Exited(137));
    }
    assert_eq!(leaves(&c), 0);
    let e = c.rt.exec_stream(&c.id, &script("true")).unwrap_err();
    assert!(e.message.contains("podprobe is stopping"), "{e}");
    node.remove_pod(&node.runtime(), &c.pod);
}

/// The command is no slower than the pipe: nothing is lost and nothing comes twice.
fn much_data(node: &Node) {
    with(node, json!({}), |c| {
        let mut client = start(c, &request(&["cat"]));
        let data: Vec<u8> = (0..8u32 << 20)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let (mut sent, mut back) = (0, Vec::new());
        let mut bytes = vec![0; 64 << 10];
        while back.len() < data.len() {
            let mut fds = vec![PollFd::new(
                client.session.stdout().unwrap(),
                PollFlags::POLLIN,
            )];
            fds.extend(
                client
                    .session
                    .stdin()
                    .map(|fd| PollFd::new(fd, PollFlags::POLLOUT)),
            );
            assert!(poll(&mut fds, PollTimeout::try_from(CEILING).unwrap()).unwrap() > 0);
            let stdin = client.session.stdin();
            match stdin.map(|fd| nix::unistd::write(fd, &data[sent..])) {
                Some(Ok(n)) => sent += n,
                None | Some(Err(Errno::EAGAIN)) => {}
                Some(Err(e)) => panic!("{e}"),
            }
            if sent == data.len() {
                client.session.close_stdin();
            }
            match nix::unistd::read(client.session.stdout().unwrap(), &mut bytes) {
                Ok(n) => back.extend_from_slice(&bytes[..n]),
                Err(Errno::EAGAIN) => {}
                Err(e) => panic!("{e}"),
            }
        }
        assert!(back == data);
        client.check(0, "", "");
    });
}

/// At localhost of the pod, which nobody else reaches; for a pod on the node's network at the node's. The thread that asks
/// stays where it is.
fn port_forward(node: &Node) {
    let own = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let here = own();
    let script = "echo up; while :; do readlink /proc/self/ns/net | busybox nc -l -p 8080; done";
    with(node, json!({"command": ["/bin/sh", "-c", script]}), |c| {
        let mut socket = None;
        wait_until("the server to listen", || {
            socket = forward(&*c.rt, c.pod.uid(), 8080).ok();
            socket.is_some()
        });
        let said = read_all(&mut socket.unwrap());
        let theirs = fs::read_link(format!("/proc/{}/ns/net", c.process.pid)).unwrap();
        assert_eq!(said.trim_end(), theirs.to_str().unwrap());
        assert_ne!(theirs, here);
        let e = forward(&*c.rt, c.pod.uid(), 9).unwrap_err().to_string();
        assert!(
            e.contains("dial tcp4 127.0.0.1:9: connect: connection refused"),
            "{e}"
        );
        assert!(
            e.contains("dial tcp6 [::1]:9: connect: connection refused"),
            "{e}"
        );
    });
    let mut spec = spec(json!({}));
    spec["hostNetwork"] = json!(true);
    let c = Running::start(node, "host", &spec);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut socket = forward(&*c.rt, c.pod.uid(), port).unwrap();
    listener.accept().unwrap().0.write_all(b"node").unwrap();
    assert_eq!(read_all(&mut socket), "node");
    let uid = c.pod.uid().clone();
    let rt = node.runtime();
    c.end();
    let e = forward(&*rt, &uid, port).unwrap_err().to_string();
    assert!(e.contains("it has no running sandbox"), "{e}");
    assert_eq!(own(), here);
}

fn forward(rt: &dyn Runtime, uid: &PodUid, port: u16) -> Result<Socket, DialError> {
    podprobe::pods::kuberuntime::port_forward(rt, uid.as_str(), port)
}

fn read_all(socket: &mut Socket) -> String {
    let mut text = String::new();
    loop {
        await_readable(&[socket.as_fd()]);
        match socket.read_to_string(&mut text) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            done => {
                done.unwrap();
                return text;
            }
        }
    }
}

on_both!(
    streams,
    only_what_is_asked_for,
    what_cannot_be_executed,
    terminal,
    terminal_of_another_kind,
    job_control,
    terminal_of_another_user,
    a_finished_session_says_that_it_was_not_over,
    the_container_ends,
    the_daemon_ends,
    much_data,
    port_forward;
    alone: a_client_that_vanishes
);

/// On the embedded runtime: what is counted is not the runtime's.
#[test]
fn a_thousand_sessions_leave_nothing() {
    if !is_own_process(module_path!(), "a_thousand_sessions_leave_nothing") {
        return;
    }
    support::on(podprobe::engine::shims::RuntimeChoice::Embedded, |node| {
        with(node, json!({}), |c| {
            let run = |tty| {
                start(
                    c,
                    &ExecRequest {
                        tty,
                        ..script("echo x")
                    },
                )
                .end()
            };
            for tty in [false, true] {
                run(tty);
            }
            let before = (descriptors(), c.processes().len());
            for n in 0..1000 {
                let (end, said, _) = run(n % 2 == 0);
                assert_eq!((end, said.trim_end()), (SessionEnd::Exited(0), "x"));
            }
            assert_eq!(
                (descriptors(), c.processes().len(), leaves(c)),
                (before.0, before.1, 0)
            );
            // Each terminal has gone: the next is the first again.
            let (_, said, _) = start(c, &on_a_terminal("busybox tty")).end();
            assert_eq!(said, "/dev/pts/0\r\n");
        });
    });
}

/// Gives this thread, and those that it starts, a /dev/pts that no other test opens terminals of.
fn own_node_terminals() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let none = None::<&str>;
    mount(none, "/", none, private, none).unwrap();
    let options = Some("newinstance,ptmxmode=0666,mode=620");
    let pts = Some("devpts");
    mount(pts, "/dev/pts", pts, MsFlags::empty(), options).unwrap();
}

fn node_terminals() -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir("/dev/pts")
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    all.sort();
    all
}

/// A container that may mount replaces what is opened from outside. Each has its sentence, nothing of the node is opened,
/// and a command without a terminal runs.
#[test]
fn terminals_that_are_none_are_not_opened() {
    if !is_own_process(module_path!(), "terminals_that_are_none_are_not_opened") {
        return;
    }
    let check = |c: &Running<'_>, prepare: &str, why: &str| {
        assert_eq!(c.sh(prepare), (0, String::new()), "{prepare}");
        let e = c.rt.exec_stream(&c.id, &on_a_terminal("true")).unwrap_err();
        let begin = "cannot make a terminal in container: ";
        assert!(e.message.starts_with(&format!("{begin}{why}")), "{e}");
        assert!(
            e.message
                .ends_with("without a terminal (tty) the command can run"),
            "{e}"
        );
        start(c, &script("echo runs")).check(0, "runs\n", "");
        assert_eq!(leaves(c), 0);
    };
    support::on(podprobe::engine::shims::RuntimeChoice::Embedded, |node| {
        own_node_terminals();
        let mut spec = spec(json!({
            "securityContext": {"privileged": true},
            "volumeMounts": [{"name": "pts", "mountPath": "/node-pts"}],
        }));
        spec["volumes"] = json!([{"name": "pts", "hostPath": {"path": "/dev/pts"}}]);
        let c = Running::start(node, "hostile", &spec);
        start(&c, &on_a_terminal("true")).check(0, "", "");
        let (terminals, open) = (node_terminals(), descriptors());
        let mount = "busybox mount -t tmpfs tmpfs /dev/pts";
        check(&c, mount, "it has no /dev/pts/ptmx");
        let missing = "busybox ln -s /node-pts/ptmx /dev/pts/ptmx";
        check(&c, missing, "its /dev/pts/ptmx is behind a link");
        let fifo = "busybox rm /dev/pts/ptmx; busybox mkfifo /dev/pts/ptmx";
        check(&c, fifo, "its /dev/pts/ptmx is something else");
        let node_s = "busybox mount --bind /node-pts /dev/pts";
        check(&c, node_s, "its /dev/pts is the node's");
        // A bind of one file of it.
        let device =
            "busybox umount /dev/pts; busybox rm /dev/pts/ptmx; busybox mknod /dev/pts/ptmx c 5 2";
        check(&c, device, "its /dev/pts/ptmx is something else");
        let file = "busybox mount --bind /node-pts/ptmx /dev/pts/ptmx";
        check(&c, file, "its /dev/pts is the node's");
        // One of its own, whatever its options say.
        let own = "busybox umount /dev/pts/ptmx; busybox mount -t devpts -o newinstance,ptmxmode=0,mode=666 x /dev/pts";
        assert_eq!(c.sh(own), (0, String::new()));
        let mode = on_a_terminal("stat -c %a $(busybox tty)");
        start(&c, &mode).check(0, "620\r\n", "");
        check(&c, "busybox umount -l /dev", "it has no /dev/pts/ptmx");
        assert_eq!((node_terminals(), descriptors()), (terminals, open));
        c.end();
    });
}
