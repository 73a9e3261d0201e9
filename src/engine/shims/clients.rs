//! The clients that are attached to a container, in its shim (see [`super::attach`]).
//!
//! Invariants: nothing here waits for a client, and none is the container's or another client's trouble: what a client does
//! wrong costs it its own connection. Of what the container writes it gets all or, once it is too far behind, nothing
//! more (deviations: attach-behind): there is no gap. At most [`MAX`] are attached, and as
//! many have connected and not said yet what they want.

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

/// When there are no descriptors for a client, the next is looked for after this, in milliseconds.
const DEAF: u16 = 1000;

/// Where a container's input comes from.
#[derive(Default)]
pub(super) enum Input {
    /// The container has no input, or its input has ended.
    #[default]
    None,
    /// The write end of its pipe, which does not block.
    Pipe {
        write: OwnedFd,
        /// The input ends with the first client that gets it.
        once: bool,
    },
    /// The master of its terminal.
    Terminal(OwnedFd),
}

/// See the module.
#[derive(Default)]
pub(super) struct Clients {
    listener: Option<OwnedFd>,
    /// There were no descriptors for the next client.
    deaf: bool,
    /// The oldest first.
    all: Vec<Client>,
    /// Input of the container, kept open for as long as the container runs.
    pub(super) input: Input,
}

struct Client {
    connection: OwnedFd,
    /// True once the client has said what it wants.
    attached: bool,
    outputs: [Option<File>; 2],
}

impl Clients {
    /// Listens in the container's record directory. A container to which nobody can attach is still one.
    pub(super) fn listen(&mut self, dir: &Path) {
        self.listener = listen(dir).ok();
    }

    /// How long a wait may take that is to see new clients.
    pub(super) fn patience(&self) -> PollTimeout {
        match self.deaf {
            true => PollTimeout::from(DEAF),
            false => PollTimeout::NONE,
        }
    }

    fn listening(&self) -> Option<&OwnedFd> {
        self.listener.as_ref().filter(|_| !self.deaf)
    }

    /// Returns the descriptors that are to be polled.
    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let connections = self.all.iter().map(|c| &c.connection);
        let all = self.listening().into_iter().chain(connections);
        all.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
    }

    /// Serves those of [`Self::fds`] that are ready: a bit for each, the first is the lowest.
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
            // It stays ready: without a pause we would spin.
            Err(_) => self.deaf = true,
        }
    }

    /// Hears what a client says; false when it is to go. Once it is attached it has nothing more to say.
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

    /// False when it cannot be attached.
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
        // Without our own end the input ends with the client's, whatever becomes of the daemon.
        if let (Input::Pipe { once: true, .. }, true) = (&self.input, request.stdin) {
            self.input = Input::None;
        }
        true
    }

    /// Copies what the container has written on stdout (0) or stderr (1).
    pub(super) fn write(&mut self, stream: usize, bytes: &[u8]) {
        self.all.retain_mut(|client| client.write(stream, bytes));
    }

    /// The container has ended, and its end is recorded.
    pub(super) fn end(&mut self, code: i32) {
        let word = exited(code);
        for client in self.all.drain(..).filter(|c| c.attached) {
            let _ = send(&client.connection, word.as_bytes(), &[]);
        }
    }
}

impl Client {
    /// False when it is gone or too far behind.
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

/// The write ends of a client's pipes, which do not block here; None when they are not what it said.
fn outputs(request: AttachRequest, fds: Vec<OwnedFd>) -> Option<[Option<File>; 2]> {
    let mut fds = fds.into_iter();
    let mut next = |asked: bool| match asked {
        true => usable(fds.next()?).map(Some),
        false => Some(None),
    };
    let outputs = [next(request.stdout)?, next(request.stderr)?];
    fds.next().is_none().then_some(outputs)
}

/// A file may keep its writer waiting whatever its flags say; a pipe does not.
fn usable(fd: OwnedFd) -> Option<File> {
    let mode = fstat(&fd).ok()?.st_mode;
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    (mode & SFlag::S_IFMT.bits() == SFlag::S_IFIFO.bits()).then(|| fd.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// When no descriptors are left, the listener stays ready, and polling it would spin.
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
