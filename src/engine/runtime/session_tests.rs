//! Tests the fake sessions and the fake runtime that tests of other wings use.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use crate::engine::runtime::{
    AttachRequest, ExecRequest, Labels, Runtime, RuntimeState, Session, SessionEnd, Started,
};
use crate::fake_runtime::{FakeRuntime, container_status};
use crate::fake_session::{FakeSession, Script};

#[test]
fn a_script_and_its_session_see_one_another() {
    let (mut session, mut script) = FakeSession::pair([true, true, false]);
    assert!(session.stderr().is_none());
    nix::unistd::write(session.stdin().unwrap(), b"in").unwrap();
    script.stdout.write_all(b"out").unwrap();
    let mut bytes = [0; 9];
    assert_eq!(
        nix::unistd::read(session.stdout().unwrap(), &mut bytes),
        Ok(3)
    );
    session.close_stdin();
    let mut text = String::new();
    script.stdin.read_to_string(&mut text).unwrap();
    assert_eq!(text, "in");
    script.end(SessionEnd::Exited(3));
    assert!(script.seen().stdin_closed && !script.seen().is_over);
    assert_eq!(session.finish(), SessionEnd::Exited(3));
    assert!(script.seen().is_over);
}

#[test]
fn the_fake_runtime_gives_sessions_to_whoever_asks() {
    let scripts = Arc::<Mutex<Vec<Script>>>::default();
    let (of_exec, of_attach) = (scripts.clone(), scripts.clone());
    let runtime = FakeRuntime::default()
        .on_exec_stream(move |name, request| {
            assert_eq!(
                (name, &request.command[..]),
                ("web", &["sh".to_owned()][..])
            );
            let (session, script) = FakeSession::pair([true; 3]);
            of_exec.lock().unwrap().push(script);
            Ok(Started::Running(session))
        })
        .on_attach(move |_, request| {
            let (session, script) = FakeSession::pair([request.stdin, true, true]);
            of_attach.lock().unwrap().push(script);
            Ok(session)
        });
    let mut status = container_status("fake://1", Labels::default(), RuntimeState::Running);
    status.metadata.name = "web".into();
    let id = status.id.clone();
    runtime.state().containers.push(status);
    let request = ExecRequest {
        command: vec!["sh".into()],
        ..ExecRequest::default()
    };
    let started = runtime.exec_stream(&id, &request).unwrap();
    assert!(matches!(started, Started::Running(_)), "{started:?}");
    let attached = runtime.attach(&id, AttachRequest::default()).unwrap();
    assert!(attached.stdin().is_none());
    scripts.lock().unwrap()[1].stderr.write_all(b"err").unwrap();
    let errors = attached.stderr().unwrap();
    assert_eq!(nix::unistd::read(errors, &mut [0; 9]), Ok(3));
    assert_eq!(runtime.state().calls, ["exec stream web sh", "attach web"]);
    assert!(runtime.exec_stream(&"fake://2".into(), &request).is_err());
}
