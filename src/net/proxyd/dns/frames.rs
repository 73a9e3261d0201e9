//! DNS messages in a stream. Two bytes before each message have its length (RFC 1035 4.2.2).
//!
//! Invariants: a stream keeps at most the bytes of one message of the largest length, and the bytes that were read
//! together with the end of that message.

/// The other side announces a message that is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The received bytes of a stream that were not taken yet.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    most: usize,
}

impl Frames {
    /// Starts a stream of messages. Each message may have at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
        }
    }

    /// Returns true if no byte of a message has arrived.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole message; None if it has not arrived yet.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLarge> {
        let Some(length) = self.bytes.first_chunk::<2>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > self.most {
            return Err(TooLarge);
        }
        if self.bytes.len() < 2 + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(2 + length);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.drain(..2);
        Ok(Some(message))
    }
}

/// Returns a message with its length before it; `None` if the length does not fit into two bytes.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes()[..], message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let stream = [
            framed(b"one").unwrap(),
            framed(b"").unwrap(),
            framed(b"two").unwrap(),
        ]
        .concat();
        for size in 1..stream.len() {
            let mut frames = Frames::new(3);
            let mut taken = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(message) = frames.take().unwrap() {
                    taken.push(message);
                }
            }
            assert_eq!(taken, [&b"one"[..], b"", b"two"], "in pieces of {size}");
            assert_eq!(frames.bytes, b"");
        }
    }

    #[test]
    fn a_message_that_is_announced_too_large_is_refused_at_once() {
        let mut frames = Frames::new(3);
        frames.push(&[0, 4]);
        assert_eq!(frames.take(), Err(TooLarge));
        assert_eq!(framed(&[0; 65_536]), None);
    }
}
