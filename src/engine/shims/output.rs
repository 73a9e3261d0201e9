//! The streams of a container, as its shim has them: output goes to the log and to the attached clients.
//!
//! Invariants: the shim copies one buffer of each stream at a time, and to the log first. Only [`Output::wait`] waits.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};

use super::clients::{Clients, Input};
use super::cri_log::{Lines, LogFile, Stream};
use super::state::ContainerRecord;
use crate::base::clock::Time;
use crate::base::sys::terminal::slave_of;

/// Pause after a failed poll. The usual cause of a failure is that no memory is left.
const POLL_PAUSE: Duration = Duration::from_millis(100);

/// Number of bytes that are read from a pipe at once.
const READ: usize = 16 * 1024;

/// The output of the container: both pipes, or the terminal in place of the first pipe.
pub(super) struct Output {
    pipes: [(Option<File>, Lines); 2],
    /// The slave side of the terminal. While the shim holds it, the terminal does not end when a program closes its own
    /// descriptor.
    slave: Option<File>,
    log: LogFile,
    /// The attached clients, and the container's input.
    pub(super) clients: Clients,
    buffer: Vec<u8>,
}

impl Output {
    pub(super) fn new(record: &ContainerRecord) -> Self {
        Self {
            pipes: [
                (None, Lines::new(Stream::Stdout)),
                (None, Lines::new(Stream::Stderr)),
            ],
            slave: None,
            log: LogFile::new(
                record.log_path.clone(),
                record.log_max_size,
                record.log_max_files,
            ),
            clients: Clients::default(),
            buffer: Vec::new(),
        }
    }

    /// Makes both pipes and returns their write ends. The container's user owns the pipes, so that `/dev/stdout` can be
    /// opened again.
    pub(super) fn open(&mut self, user: u32) -> io::Result<(OwnedFd, OwnedFd)> {
        let mut make = |n: usize| -> io::Result<OwnedFd> {
            let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
            fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            let _ = nix::unistd::fchown(&write, Some(user.into()), None);
            self.pipes[n].0 = Some(read.into());
            Ok(write)
        };
        Ok((make(0)?, make(1)?))
    }

    /// Makes the input of a container without a terminal, and returns it. The input is /dev/null, or the read end of a
    /// pipe; the shim keeps the write end for clients.
    pub(super) fn open_input(&mut self, record: &ContainerRecord) -> io::Result<Stdio> {
        if !record.stdin || record.tty {
            return Ok(Stdio::null());
        }
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let _ = nix::unistd::fchown(&read, Some(record.user.into()), None);
        self.clients.input = Input::Pipe {
            write,
            once: record.stdin_once,
        };
        Ok(read.into())
    }

    /// Puts the terminal in the place of the pipes. Its output is logged as stdout.
    pub(super) fn take_terminal(&mut self, master: OwnedFd, slave: File) -> io::Result<()> {
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // The shim holds the master until the container has ended, because a terminal without its master hangs up.
        self.clients.input = Input::Terminal(master.try_clone()?);
        self.pipes[0].0 = Some(master.into());
        self.pipes[1].0 = None;
        self.slave = Some(slave);
        Ok(())
    }

    /// Takes the present content of the pipes without logging it, and returns it.
    pub(super) fn take_unlogged(&mut self) -> String {
        let mut said = Vec::new();
        for (pipe, _) in self.pipes.iter_mut() {
            let mut chunk = [0; 4096];
            while let Some(n @ 1..) = pipe.as_mut().and_then(|p| p.read(&mut chunk).ok()) {
                said.extend_from_slice(&chunk[..n]);
            }
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits until there is output, a child has ended or a client sends a message. After the wait it logs at most one
    /// buffer of each stream.
    pub(super) fn wait(&mut self, children: BorrowedFd<'_>) {
        let limit = self.clients.patience();
        self.wait_by(children, |fds| poll(fds, limit));
    }

    fn wait_by(
        &mut self,
        children: BorrowedFd<'_>,
        poll: impl Fn(&mut [PollFd<'_>]) -> nix::Result<i32>,
    ) {
        let (outputs, clients) = self.ready(children, poll);
        // Clients are served before the copying, because the copying may cut a client off.
        self.clients.serve(clients);
        for n in outputs {
            self.copy(n);
        }
    }

    /// Waits, and returns the streams that have output, and the ready clients in the form for [`Clients::serve`].
    fn ready(
        &self,
        children: BorrowedFd<'_>,
        poll: impl Fn(&mut [PollFd<'_>]) -> nix::Result<i32>,
    ) -> (Vec<usize>, u32) {
        let open = || {
            let pipes = self.pipes.iter().enumerate();
            pipes.filter_map(|(n, (p, _))| Some((n, p.as_ref()?.as_fd())))
        };
        let mut fds = vec![PollFd::new(children, PollFlags::POLLIN)];
        fds.extend(open().map(|(_, p)| PollFd::new(p, PollFlags::POLLIN)));
        let pipes = fds.len();
        fds.extend(self.clients.fds());
        match poll(&mut fds) {
            Ok(_) => {}
            Err(Errno::EINTR) => return (Vec::new(), 0),
            // After a failure nothing shows which descriptor is ready. So all descriptors are tried, after a pause that
            // avoids spinning.
            Err(_) => {
                std::thread::sleep(POLL_PAUSE);
                return (open().map(|(n, _)| n).collect(), u32::MAX);
            }
        }
        let is_ready = |fd: &PollFd<'_>| fd.any() == Some(true);
        let outputs = open().zip(&fds[1..pipes]).filter(|(_, fd)| is_ready(fd));
        let clients = fds[pipes..].iter().rev();
        (
            outputs.map(|((n, _), _)| n).collect(),
            clients.fold(0, |all, fd| all << 1 | u32::from(is_ready(fd))),
        )
    }

    /// Copies one buffer of a stream. Returns false if there is nothing more to read now.
    fn copy(&mut self, n: usize) -> bool {
        let (pipe, lines) = &mut self.pipes[n];
        let Some(file) = pipe else { return false };
        let mut chunk = [0; READ];
        match file.read(&mut chunk) {
            Ok(0) => {
                *pipe = None;
                false
            }
            Ok(length) => {
                self.buffer.clear();
                lines.push(&chunk[..length], &stamp(), &mut self.buffer);
                self.log.write(&self.buffer);
                self.clients.write(n, &chunk[..length]);
                true
            }
            // The terminal has been hung up, and the slave that the shim held is useless. The shim opens the slave
            // again.
            Err(e) if e.raw_os_error() == Some(Errno::EIO as i32) => {
                self.slave = slave_of(file).ok();
                if self.slave.is_none() {
                    *pipe = None;
                }
                false
            }
            Err(e) => e.raw_os_error() == Some(Errno::EINTR as i32),
        }
    }

    /// Logs the present content of the pipes, and partial lines. The shim does not wait for the end of the pipes,
    /// because a process outside the container may hold a pipe open or write to it forever.
    pub(super) fn drain(&mut self) {
        for n in 0..2 {
            // The loop reads at most 1 MiB: a pipe holds 64 KiB, or up to 1 MiB if its user has made it larger.
            for _ in 0..(1 << 20) / READ {
                if !self.copy(n) {
                    break;
                }
            }
            self.buffer.clear();
            self.pipes[n].1.finish(&stamp(), &mut self.buffer);
            self.log.write(&self.buffer);
        }
    }
}

fn stamp() -> String {
    Time::with_nanos(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_that_fails_takes_its_time_and_loses_no_output() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let lines = [Stream::Stdout, Stream::Stderr].map(|s| (None, Lines::new(s)));
        let mut output = Output {
            pipes: lines,
            slave: None,
            log: LogFile::new(log.clone(), 1 << 20, 2),
            clients: Clients::default(),
            buffer: Vec::new(),
        };
        let (stdout, stderr) = output.open(nix::unistd::getuid().as_raw()).unwrap();
        nix::unistd::write(&stdout, b"out\n").unwrap();
        nix::unistd::write(&stderr, b"err\n").unwrap();
        let begun = Instant::now();
        for _ in 0..3 {
            output.wait_by(io::stdin().as_fd(), |_| Err(Errno::ENOMEM));
        }
        assert!(
            begun.elapsed() >= 3 * POLL_PAUSE,
            "it spins: {:?}",
            begun.elapsed()
        );
        let text = fs::read_to_string(log).unwrap();
        assert!(
            text.contains(" stdout F out\n") && text.contains(" stderr F err\n"),
            "{text}"
        );
        let begun = Instant::now();
        output.wait_by(io::stdin().as_fd(), |_| Err(Errno::EINTR));
        assert!(begun.elapsed() < POLL_PAUSE, "a signal is no failure");
    }
}
