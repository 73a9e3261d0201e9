//! The console socket, through which an OCI runtime hands over the terminal of a container (`--console-socket`).
//!
//! Invariants: only root can reach the socket, because it is in the container's record directory. The socket is removed
//! once the terminal has arrived. The runtime sends the terminal before its `create` ends, so the shim never waits for
//! a container.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// Name of the socket in the record directory.
const NAME: &str = "console";
/// Maximum length in bytes of a socket's path to which every runtime can connect.
const PATH_MAX: usize = 107;
/// Longest wait for the terminal in milliseconds. Normally the terminal has arrived before the shim begins to wait.
const LIMIT_MS: u16 = 10_000;

/// The shim's end of the console socket, which listens.
pub(super) struct ConsoleSocket {
    listener: UnixListener,
    dir: File,
    file: PathBuf,
}

impl ConsoleSocket {
    /// Listens in the directory `dir`.
    pub(super) fn listen(dir: &Path) -> io::Result<Self> {
        let file = dir.join(NAME);
        let dir = File::open(dir)?;
        // A short path works even if the directory's own path is too long for a socket.
        let short = format!("/proc/self/fd/{}/{NAME}", dir.as_raw_fd());
        let listener = UnixListener::bind(short)?;
        Ok(Self {
            listener,
            dir,
            file,
        })
    }

    /// Returns the path to which another process connects.
    pub(super) fn path(&self) -> PathBuf {
        match self.file.as_os_str().len() {
            0..=PATH_MAX => self.file.clone(),
            _ => {
                let (pid, fd) = (std::process::id(), self.dir.as_raw_fd());
                format!("/proc/{pid}/fd/{fd}/{NAME}").into()
            }
        }
    }

    /// Receives the master of the terminal, which the OCI runtime has sent.
    pub(super) fn receive(&self) -> io::Result<OwnedFd> {
        readable(&self.listener)?;
        let (stream, _) = self.listener.accept()?;
        readable(&stream)?;
        let mut text = [0; 256];
        let mut parts = [IoSliceMut::new(&mut text)];
        let mut space = cmsg_space!([i32; 1]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
        let received = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        received
            .map(crate::base::sys::terminal::received)
            .ok_or_else(|| io::Error::other("the OCI runtime sent no terminal"))
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn readable(fd: &impl AsFd) -> io::Result<()> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(LIMIT_MS))? {
        0 => Err(io::Error::other("the OCI runtime sent no terminal")),
        _ => Ok(()),
    }
}
