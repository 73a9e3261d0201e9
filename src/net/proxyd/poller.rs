//! The epoll that all parts of the proxy process share.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::base::clock::Moment;

/// Largest number of events that one wait returns.
const EVENTS: usize = 256;
/// The longest wait. Longer timeouts would not fit into epoll's milliseconds.
const LONGEST: Duration = Duration::from_secs(3600);

/// The name of a descriptor in the poller. Each event has the token of its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The part of the proxy process that has the descriptor. This number is the top byte of the token.
    pub part: u8,
    /// The kind of descriptor. Each part numbers its own kinds.
    pub kind: u8,
    /// A number that distinguishes the descriptor from later descriptors with the same index.
    pub generation: u16,
    /// The index of the descriptor among the descriptors of its kind.
    pub index: u32,
}

impl From<Token> for u64 {
    fn from(t: Token) -> u64 {
        u64::from(t.part) << 56
            | u64::from(t.kind) << 48
            | u64::from(t.generation) << 32
            | u64::from(t.index)
    }
}

impl From<u64> for Token {
    fn from(n: u64) -> Self {
        Self {
            part: (n >> 56) as u8,
            kind: (n >> 48) as u8,
            generation: (n >> 32) as u16,
            index: n as u32,
        }
    }
}

/// A part of the proxy process. A part owns the descriptors that it has added to the poller.
pub trait Part {
    /// Handles the events of a descriptor of this part.
    fn ready(&mut self, token: Token, events: EpollFlags, now: Moment, poller: &Poller);

    /// Returns the moment at which [`Part::expire`] must be called; `None` if the part waits only for events. A moment
    /// in the past means at once, after the events that are already there.
    fn deadline(&self) -> Option<Moment>;

    /// Handles everything that is due, after the deadline of this part has passed.
    fn expire(&mut self, now: Moment, poller: &Poller);
}

/// The epoll that waits for the descriptors of all parts.
pub struct Poller {
    epoll: Epoll,
}

impl Poller {
    /// Makes a poller without descriptors.
    ///
    /// # Errors
    /// Returns the error if no descriptor or no memory is left.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Returns the epoll itself, for a part that makes its tokens as plain numbers.
    pub fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    /// Watches a descriptor until it is closed or [`Self::remove`]d.
    ///
    /// # Errors
    /// Returns the error if there is no memory, or if `fs.epoll.max_user_watches` is reached.
    pub fn add(&self, fd: impl AsFd, token: Token, events: EpollFlags) -> nix::Result<()> {
        self.epoll.add(fd, EpollEvent::new(events, token.into()))
    }

    /// Changes the events for which a descriptor is watched.
    ///
    /// # Errors
    /// Returns the error if the descriptor is not watched.
    pub fn change(&self, fd: impl AsFd, token: Token, events: EpollFlags) -> nix::Result<()> {
        self.epoll
            .modify(fd, &mut EpollEvent::new(events, token.into()))
    }

    /// Stops watching a descriptor.
    ///
    /// # Errors
    /// Returns the error if the descriptor is not watched.
    pub fn remove(&self, fd: impl AsFd) -> nix::Result<()> {
        self.epoll.delete(fd)
    }

    /// Waits for events, at most until the deadline.
    pub fn wait<'e>(
        &self,
        events: &'e mut Events,
        deadline: Option<Moment>,
    ) -> impl Iterator<Item = (Token, EpollFlags)> + use<'e> {
        let timeout = timeout(deadline.map(|d| d.since(Moment::now())));
        let count = match self.epoll.wait(&mut events.0, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            // The kernel has no memory left. The existing connections must not end because of this error.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                0
            }
        };
        events.0[..count]
            .iter()
            .map(|e| (Token::from(e.data()), e.events()))
    }
}

/// Returns the timeout of a wait, rounded up to milliseconds, so that the deadline has passed when the wait ends.
fn timeout(left: Option<Duration>) -> EpollTimeout {
    let Some(left) = left else {
        return EpollTimeout::NONE;
    };
    let ms = left.min(LONGEST).as_nanos().div_ceil(1_000_000) as i32;
    EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::ZERO)
}

/// A buffer for the events of one wait.
pub struct Events(Vec<EpollEvent>);

impl Default for Events {
    fn default() -> Self {
        Self(vec![EpollEvent::empty(); EVENTS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_number_with_the_part_in_its_top_byte() {
        let token = Token {
            part: 0xfe,
            kind: 3,
            generation: 0xabcd,
            index: u32::MAX - 1,
        };
        assert_eq!(u64::from(token) >> 56, 0xfe);
        assert_eq!(Token::from(u64::from(token)), token);
    }

    #[test]
    fn a_wait_is_never_shorter_than_what_is_left() {
        assert_eq!(timeout(None), EpollTimeout::NONE);
        let ms = |d| timeout(Some(d)).as_millis();
        assert_eq!(ms(Duration::ZERO), Some(0));
        assert_eq!(ms(Duration::from_nanos(1)), Some(1));
        assert_eq!(ms(Duration::from_micros(1500)), Some(2));
        assert_eq!(ms(Duration::from_secs(1 << 40)), Some(3_600_000));
    }
}
