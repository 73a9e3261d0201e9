//! A session that a test controls. Each stream is one end of a socket pair, and the test has the other end.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::{Session, SessionEnd, TerminalSize};

use crate::base::locks::Locked;

/// A session that a test controls through its [`Script`].
pub(crate) struct FakeSession {
    stdin: Option<UnixStream>,
    stdout: Option<UnixStream>,
    stderr: Option<UnixStream>,
    ended: UnixStream,
    seen: Arc<Mutex<Seen>>,
}

/// Requests that a session received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Every terminal size that the session received, in order.
    pub(crate) sizes: Vec<TerminalSize>,
    /// True if the session's input was closed.
    pub(crate) stdin_closed: bool,
    /// True if the session was finished or dropped.
    pub(crate) is_over: bool,
    end: Option<SessionEnd>,
}

/// The test's side of a session.
pub(crate) struct Script {
    /// The stream on which the test reads the client's input. The stream ends when the client's input ends.
    pub(crate) stdin: UnixStream,
    /// The stream to which the test writes the session's output. Dropping it ends the output.
    pub(crate) stdout: UnixStream,
    /// The stream to which the test writes the session's error output. Dropping it ends the error output.
    pub(crate) stderr: UnixStream,
    ended: UnixStream,
    seen: Arc<Mutex<Seen>>,
}

impl FakeSession {
    /// Makes a session and its script. The three flags say whether the session has stdin, stdout and stderr.
    pub(crate) fn pair([stdin, stdout, stderr]: [bool; 3]) -> (Box<Self>, Script) {
        let pair = || {
            let (ours, theirs) = UnixStream::pair().expect("two descriptors are left");
            ours.set_nonblocking(true).expect("it is a socket");
            (ours, theirs)
        };
        let [(i, i2), (o, o2), (e, e2), (ended, ended2)] = [pair(), pair(), pair(), pair()];
        let seen = Arc::<Mutex<Seen>>::default();
        let session = Self {
            stdin: stdin.then_some(i),
            stdout: stdout.then_some(o),
            stderr: stderr.then_some(e),
            ended,
            seen: seen.clone(),
        };
        let script = Script {
            stdin: i2,
            stdout: o2,
            stderr: e2,
            ended: ended2,
            seen,
        };
        (Box::new(session), script)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.locked());
    }
}

impl Script {
    /// Ends the command or the container with `end`. The session can still read output that was written before.
    pub(crate) fn end(&mut self, end: SessionEnd) {
        self.end_later(end);
        // A session that is already dropped need not learn of its end.
        let _ = self.ended.write_all(b".");
    }

    /// Sets the end that the session reports when it is finished. The session does not end now.
    pub(crate) fn end_later(&mut self, end: SessionEnd) {
        self.seen.locked().end = Some(end);
    }

    /// Returns a copy of the requests that the session has received up to now.
    pub(crate) fn seen(&self) -> Seen {
        let seen = self.seen.locked();
        seen.clone()
    }
}

impl Session for FakeSession {
    fn stdin(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.as_ref().map(AsFd::as_fd)
    }

    fn stdout(&self) -> Option<BorrowedFd<'_>> {
        self.stdout.as_ref().map(AsFd::as_fd)
    }

    fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    fn close_stdin(&mut self) {
        self.stdin = None;
        self.change(|seen| seen.stdin_closed = true);
    }

    fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    fn resize(&self, size: TerminalSize) {
        self.change(|seen| seen.sizes.push(size));
    }

    fn finish(self: Box<Self>) -> SessionEnd {
        let end = self.seen.locked().end;
        end.unwrap_or(SessionEnd::Unknown)
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.change(|seen| seen.is_over = true);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::engine::runtime::fake::{FakeRuntime, container_status};
    use crate::engine::runtime::{
        AttachRequest, ExecRequest, Labels, Runtime, RuntimeState, Started,
    };

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
}
