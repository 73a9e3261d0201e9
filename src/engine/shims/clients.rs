//! The clients that are attached to a container, as its shim sees them (see [`super::attach`]).
//!
//! Invariants: the shim never waits for a client. A client's mistake closes that client's connection, and affects
//! neither the container nor another client. A client gets all that the container writes, without a gap; a client that
//! is too far behind gets nothing more (deviations: attach-behind). At most [`MAX`] clients are attached. At most
//! [`MAX`] more are connected and have not sent their request yet.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{SockFlag, accept4};
use nix::sys::stat::{SFlag, fstat};

use super::attach::{
    ATTACHED, FULL, MAX, MESSAGE, TOO_SLOW, decode, exited, listen, receive, send,
};
use crate::base::sys::terminal::received;
use crate::engine::runtime::AttachRequest;

/// Pause in milliseconds after a client could not be accepted because no descriptors were left. The listener is not
/// polled during the pause.
const DEAF: u16 = 1000;

/// The container's input, as the shim has it.
#[derive(Default)]
pub(super) enum Input {
    /// The container has no input, or its input has ended.
    #[default]
    None,
    /// The input is a pipe. Its write end does not block.
    Pipe {
        write: OwnedFd,
        /// True if the input ends with the first client that gets it.
        once: bool,
    },
    /// The input is a terminal. The descriptor is the terminal's master.
    Terminal(OwnedFd),
}

/// The listener for clients of a container, the connected clients, and the container's input.
#[derive(Default)]
pub(super) struct Clients {
    listener: Option<OwnedFd>,
    /// True if the last client could not be accepted, because no descriptors were left.
    deaf: bool,
    /// The connected clients, oldest first.
    all: Vec<Client>,
    /// Input of the container. The shim keeps it open as long as the container runs.
    pub(super) input: Input,
}

struct Client {
    connection: OwnedFd,
    /// True once the client is attached, after its request.
    attached: bool,
    outputs: [Option<File>; 2],
}

impl Clients {
    /// Listens in the container's record directory. If this fails, the container runs all the same, but no client can
    /// attach.
    pub(super) fn listen(&mut self, dir: &Path) {
        self.listener = listen(dir).ok();
    }

    /// Returns the timeout for a poll: the length of the pause if the listener is paused, otherwise no timeout.
    pub(super) fn patience(&self) -> PollTimeout {
        match self.deaf {
            true => PollTimeout::from(DEAF),
            false => PollTimeout::NONE,
        }
    }

    fn listening(&self) -> Option<&OwnedFd> {
        self.listener.as_ref().filter(|_| !self.deaf)
    }

    /// Returns the descriptors to poll.
    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.all.iter().map(|c| &c.connection);
        let all = self.listening().into_iter().chain(connections);
        all.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
    }

    /// Serves the descriptors of [`Self::fds`] that are ready. `ready` has a bit for each descriptor; the lowest bit is
    /// the first.
    pub(super) fn serve(&mut self, mut ready: u32) {
        let mut knocked = false;
        if self.listening().is_some() {
            knocked = ready & 1 == 1;
            ready >>= 1;
        }
        self.deaf = false;
        for n in (0..self.all.len()).rev() {
            if ready >> n & 1 == 1 && !self.hear(n) {
                self.all.remove(n);
            }
        }
        if knocked {
            self.accept();
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        match accept4(listener.as_raw_fd(), flags) {
            Ok(fd) => {
                let mut waiting = self.all.iter().enumerate().filter(|(_, c)| !c.attached);
                let oldest = waiting.next().map(|(n, _)| n);
                if let (Some(oldest), true) = (oldest, waiting.count() + 1 >= MAX) {
                    self.all.remove(oldest);
                }
                self.all.push(Client {
                    connection: received(fd),
                    attached: false,
                    outputs: [None, None],
                });
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => {}
            // The listener stays ready after a failure: without a pause the shim would spin.
            Err(_) => self.deaf = true,
        }
    }

    /// Reads from a client's connection. Returns false if the client is to be removed: its request is not valid or is
    /// refused, the connection has ended, or the client sends a message although it is attached.
    fn hear(&mut self, n: usize) -> bool {
        let mut message = [0; MESSAGE];
        let client = &self.all[n];
        match receive(&client.connection, &mut message) {
            Err(Errno::EAGAIN | Errno::EINTR) => true,
            Ok((length @ 1.., fds)) if !client.attached => {
                let request = decode(&message[..length]);
                request.is_some_and(|request| self.welcome(n, request, fds))
            }
            _ => false,
        }
    }

    /// Attaches a client that has sent its request. Returns false if it cannot be attached.
    fn welcome(&mut self, n: usize, request: AttachRequest, fds: Vec<OwnedFd>) -> bool {
        let attached = self.all.iter().filter(|c| c.attached).count();
        let client = &mut self.all[n];
        if attached >= MAX {
            let _ = send(&client.connection, FULL, &[]);
            return false;
        }
        let Some(outputs) = outputs(request, fds) else {
            return false;
        };
        let input = match &self.input {
            Input::Pipe { write, .. } if request.stdin => Some(write.as_raw_fd()),
            Input::Terminal(master) => Some(master.as_raw_fd()),
            _ => None,
        };
        if send(&client.connection, ATTACHED, input.as_slice()).is_err() {
            return false;
        }
        (client.outputs, client.attached) = (outputs, true);
        // The shim closes its own write end of the input. So the input ends when the client closes its end, even if the
        // daemon is killed.
        if let (Input::Pipe { once: true, .. }, true) = (&self.input, request.stdin) {
            self.input = Input::None;
        }
        true
    }

    /// Copies the container's output to the attached clients. `stream` is 0 for stdout, 1 for stderr.
    pub(super) fn write(&mut self, stream: usize, bytes: &[u8]) {
        self.all.retain_mut(|client| client.write(stream, bytes));
    }

    /// Tells the attached clients that the container has ended, and disconnects them. Called once the end is recorded.
    pub(super) fn end(&mut self, code: i32) {
        let word = exited(code);
        for client in self.all.drain(..).filter(|c| c.attached) {
            let _ = send(&client.connection, word.as_bytes(), &[]);
        }
    }
}

impl Client {
    /// Writes output to the client. Returns false if the client is gone or too far behind.
    fn write(&mut self, stream: usize, bytes: &[u8]) -> bool {
        let Some(output) = &mut self.outputs[stream] else {
            return true;
        };
        let written = output.write(bytes);
        let behind = match &written {
            Ok(length) => *length < bytes.len(),
            Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
        };
        if behind {
            let _ = send(&self.connection, TOO_SLOW, &[]);
        }
        written.is_ok() && !behind
    }
}

/// Returns the write ends of a client's pipes, set not to block; None if the descriptors do not match the request.
fn outputs(request: AttachRequest, fds: Vec<OwnedFd>) -> Option<[Option<File>; 2]> {
    let mut fds = fds.into_iter();
    let mut next = |asked: bool| match asked {
        true => usable(fds.next()?).map(Some),
        false => Some(None),
    };
    let outputs = [next(request.stdout)?, next(request.stderr)?];
    fds.next().is_none().then_some(outputs)
}

/// Returns the descriptor as a file if it is a pipe. Only a pipe never makes its writer wait: other files may block
/// whatever their flags say.
fn usable(fd: OwnedFd) -> Option<File> {
    let mode = fstat(&fd).ok()?.st_mode;
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    (mode & SFlag::S_IFMT.bits() == SFlag::S_IFIFO.bits()).then(|| fd.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A listener that cannot accept a client is not polled for a while. If no descriptors are left, the listener stays
    /// ready, and polling it would spin.
    #[test]
    fn a_listener_that_gives_nobody_is_left_alone_for_a_while() {
        let mut clients = Clients {
            listener: Some(UnixDatagram::unbound().unwrap().into()),
            ..Clients::default()
        };
        let waits = |clients: &Clients| (clients.fds().count(), clients.patience());
        assert_eq!(waits(&clients), (1, PollTimeout::NONE));
        clients.serve(1);
        assert_eq!(waits(&clients), (0, PollTimeout::from(DEAF)));
        clients.serve(0);
        assert_eq!(waits(&clients), (1, PollTimeout::NONE));
    }
}
