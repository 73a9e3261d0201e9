//! A direction of a connection: it moves the bytes of one socket to the other.
//!
//! Invariants: no byte stays in this process's memory. A byte stays in its socket until the other socket has taken it,
//! or lies in a pipe. So a thousand clients that do not read cost this process no memory. A turn moves a bounded number
//! of bytes.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

use super::pipes::{self, Pipe, Pipes};

/// Number of bytes that are copied before splice(2) is used. Copying is cheaper for a short answer.
pub const SPLICE_AFTER: u64 = 256 * 1024;
/// Size in bytes of the buffer for copying.
pub const SCRATCH: usize = 64 * 1024;
/// Number of bytes, roughly, that one turn moves.
const TURN: usize = 1 << 20;

/// The stage of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The source has ended. Bytes in the pipe must still be sent.
    Ended,
    /// The destination was shut down, or takes no more bytes.
    Closed,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more can be done before the next event.
    Waits,
    /// There is more to do, after other connections have had their turn.
    More,
    /// The source has failed. Most likely it was reset.
    Failed,
}

/// A direction of a connection, from a source socket to a destination socket.
#[derive(Debug)]
pub struct Direction {
    /// Number of bytes that the destination has taken.
    pub moved: u64,
    pipe: Option<Pipe>,
    in_pipe: usize,
    stage: Stage,
    /// True if the source may have bytes, or has ended.
    readable: bool,
    /// True if an event has announced the source's end. From then on, the source is read until its end is reached.
    ending: bool,
    /// True if the destination may take bytes.
    writable: bool,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            moved: 0,
            pipe: None,
            in_pipe: 0,
            stage: Stage::Open,
            readable: false,
            ending: false,
            writable: true,
        }
    }
}

/// The buffer and the pipes that a direction uses to move bytes.
pub struct Tools<'a> {
    /// The buffer for copying.
    pub scratch: &'a mut [u8],
    /// Pipes for splice(2).
    pub pipes: &'a mut Pipes,
}

impl Direction {
    /// Notes the events of the source.
    pub fn source_is(&mut self, events: EpollFlags) {
        let ends = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        self.readable |= events.intersects(EpollFlags::EPOLLIN | ends);
        self.ending |= events.intersects(ends);
    }

    /// Notes the events of the destination.
    pub fn destination_is(&mut self, events: EpollFlags) {
        let any = EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        self.writable |= events.intersects(any);
    }

    /// Returns true if the destination was shut down, or takes no more bytes.
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Moves as many bytes as is possible now. `last` is true if the other direction is closed. In this case the
    /// destination needs no shutdown, because closing the socket shows the end.
    pub fn turn(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        last: bool,
        tools: &mut Tools<'_>,
    ) -> Turn {
        let until = self.moved + TURN as u64;
        loop {
            let step = match self.stage {
                Stage::Closed => return Turn::Waits,
                _ if self.in_pipe > 0 && self.writable => self.empty_pipe(to),
                Stage::Ended if self.in_pipe == 0 => {
                    self.close(to, last, tools);
                    return Turn::Waits;
                }
                Stage::Open if self.in_pipe == 0 && self.readable && self.writable => {
                    if self.moved >= until {
                        return Turn::More;
                    }
                    self.read(from, to, tools)
                }
                Stage::Open | Stage::Ended => {
                    self.release_pipe(tools);
                    return Turn::Waits;
                }
            };
            match step {
                Ok(()) => {}
                Err(Failed::Source) => return Turn::Failed,
                // The destination takes no more bytes. The bytes that it has sent in the other direction are still
                // moved.
                Err(Failed::Destination) => self.stop(tools),
            }
        }
    }

    fn read(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, tools: &mut Tools<'_>) -> Step {
        if self.moved >= SPLICE_AFTER {
            self.pipe = self.pipe.take().or_else(|| tools.pipes.take());
        }
        match &self.pipe {
            Some(pipe) => {
                let into = splice_some(from, &pipe.write);
                self.fill_pipe(into)
            }
            None => self.copy(from, to, tools.scratch),
        }
    }

    /// Copies bytes. The source keeps the bytes until the destination has taken them.
    fn copy(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, scratch: &mut [u8]) -> Step {
        let got = match recv(from.as_raw_fd(), scratch, MsgFlags::MSG_PEEK) {
            Ok(0) => {
                self.stage = Stage::Ended;
                return Ok(());
            }
            Ok(got) => got,
            Err(e) => return self.not_read(e),
        };
        let sent = match send(to.as_raw_fd(), &scratch[..got], MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => sent,
            Err(e) => return self.not_written(e),
        };
        self.moved += sent as u64;
        // Removes the bytes from the source without copying them.
        let _ = recv(from.as_raw_fd(), &mut scratch[..sent], MsgFlags::MSG_TRUNC);
        self.writable = sent == got;
        // If the source is empty, its next byte will be an event.
        self.readable = sent < got || got == scratch.len() || self.ending;
        Ok(())
    }

    fn fill_pipe(&mut self, spliced: nix::Result<usize>) -> Step {
        match spliced {
            Ok(0) => self.stage = Stage::Ended,
            Ok(n) => self.in_pipe = n,
            Err(e) => return self.not_read(e),
        }
        Ok(())
    }

    fn empty_pipe(&mut self, to: BorrowedFd<'_>) -> Step {
        let Some(pipe) = &self.pipe else {
            self.in_pipe = 0;
            return Ok(());
        };
        match splice_some(&pipe.read, to) {
            Ok(n) => {
                self.in_pipe -= n;
                self.moved += n as u64;
                Ok(())
            }
            Err(e) => self.not_written(e),
        }
    }

    fn not_read(&mut self, e: Errno) -> Step {
        match e {
            Errno::EAGAIN => self.readable = false,
            Errno::EINTR => {}
            _ => return Err(Failed::Source),
        }
        Ok(())
    }

    fn not_written(&mut self, e: Errno) -> Step {
        match e {
            Errno::EAGAIN => self.writable = false,
            Errno::EINTR => {}
            _ => return Err(Failed::Destination),
        }
        Ok(())
    }

    fn close(&mut self, to: BorrowedFd<'_>, last: bool, tools: &mut Tools<'_>) {
        self.stop(tools);
        if !last {
            // An error means that the other side is gone.
            let _ = shutdown(to.as_raw_fd(), Shutdown::Write);
        }
    }

    /// Stops the direction, so that it moves no more bytes.
    pub fn stop(&mut self, tools: &mut Tools<'_>) {
        self.stage = Stage::Closed;
        if let Some(pipe) = self.pipe.take() {
            tools.pipes.give_back(pipe, self.in_pipe == 0);
        }
        self.in_pipe = 0;
    }

    /// Returns an empty pipe to the pool, for other connections.
    fn release_pipe(&mut self, tools: &mut Tools<'_>) {
        if self.in_pipe == 0
            && let Some(pipe) = self.pipe.take()
        {
            tools.pipes.give_back(pipe, true);
        }
    }
}

enum Failed {
    Source,
    Destination,
}

type Step = Result<(), Failed>;

fn splice_some(from: impl std::os::fd::AsFd, to: impl std::os::fd::AsFd) -> nix::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
    splice(from, None, to, None, pipes::SIZE, flags)
}
