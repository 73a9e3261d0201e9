//! The framing of gRPC messages.
//!
//! Invariants: no state is shared and nothing waits. No more bytes of an answer are kept than the caller allows, and
//! only one message is accepted.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::status::{Code, Status};

/// Size in bytes of a message's prefix: a flag for compression, and the length.
const PREFIX: usize = 5;

/// Encodes a message with its prefix.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(length.try_into().unwrap_or(u32::MAX));
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

/// Collects the message of an answer from pieces of any size.
#[derive(Debug)]
pub(super) struct Incoming {
    received: Vec<u8>,
    max: usize,
}

impl Incoming {
    /// Makes an empty collector, which accepts a message of at most `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Self {
            received: Vec::new(),
            max,
        }
    }

    /// Adds the next piece of the answer's message.
    ///
    /// # Errors
    /// Returns a [`Status`] if the prefix is not acceptable, or if there is a second message.
    pub(super) fn push(&mut self, piece: &[u8], encoding: &str) -> Result<(), Status> {
        let room = PREFIX + self.max + 1 - self.received.len();
        self.received
            .extend_from_slice(&piece[..piece.len().min(room)]);
        match self.length() {
            Some(length) if length > self.max => {
                let text = format!(
                    "grpc: received message larger than max ({length} vs. {})",
                    self.max
                );
                Err(Status::new(Code::RESOURCE_EXHAUSTED, text))
            }
            Some(length) => {
                check_flag(self.received[0], encoding)?;
                if self.received.len() <= PREFIX + length {
                    return Ok(());
                }
                let text = "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message";
                Err(Status::new(Code::INTERNAL, text))
            }
            None => Ok(()),
        }
    }

    fn length(&self) -> Option<usize> {
        let prefix = self.received.get(1..PREFIX)?;
        Some(prefix.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    /// Decodes the message at the end of the answer. Returns None if there was no message.
    ///
    /// # Errors
    /// Returns a [`Status`] if the message is truncated or cannot be decoded as `M`.
    pub(super) fn message<M: Message + Default>(&self) -> Result<Option<M>, Status> {
        if self.received.is_empty() {
            return Ok(None);
        }
        if self
            .length()
            .is_none_or(|length| self.received.len() < PREFIX + length)
        {
            return Err(Status::new(Code::INTERNAL, "unexpected EOF"));
        }
        let unreadable = |e| {
            Status::new(
                Code::INTERNAL,
                format!("grpc: failed to unmarshal the received message: {e}"),
            )
        };
        M::decode(&self.received[PREFIX..])
            .map(Some)
            .map_err(unreadable)
    }
}

fn check_flag(flag: u8, encoding: &str) -> Result<(), Status> {
    let text = match (flag, encoding) {
        (0, _) => return Ok(()),
        (1, "" | "identity") => {
            "grpc: compressed flag set with identity or empty encoding".to_owned()
        }
        (1, other) => format!("grpc: Decompressor is not installed for grpc-encoding {other:?}"),
        (other, _) => format!("grpc: received unexpected payload format {other}"),
    };
    Err(Status::new(Code::INTERNAL, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4096;

    #[derive(Clone, PartialEq, Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Number {
        #[prost(int32, tag = "1")]
        number: i32,
    }

    #[test]
    fn messages_are_framed() {
        let framed = |text: &str| frame(&Text { text: text.into() });
        assert_eq!(&framed("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&framed("db")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'd', b'b']);
    }

    fn read(bytes: &[u8], size: usize, encoding: &str) -> Result<Option<i32>, Status> {
        let mut answer = Incoming::new(MAX);
        bytes
            .chunks(size.max(1))
            .try_for_each(|piece| answer.push(piece, encoding))?;
        Ok(answer.message::<Number>()?.map(|n| n.number))
    }

    #[track_caller]
    fn check(bytes: &[u8], encoding: &str, expected: Result<Option<i32>, &str>) {
        for size in 1..=bytes.len().clamp(1, 9) {
            let got = read(bytes, size, encoding).map_err(|s| s.to_string());
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|e| *e),
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn answers_are_read_in_pieces_of_any_size_and_checked() {
        const INTERNAL: &str = "rpc error: code = Internal desc = ";
        check(&[], "", Ok(None));
        check(&[0, 0, 0, 0, 0], "", Ok(Some(0)));
        check(&[0, 0, 0, 0, 2, 8, 1], "gzip", Ok(Some(1)));
        check(&[0, 0, 0, 0, 4, 8, 2, 0x10, 7], "", Ok(Some(2)));
        for cut in [&[0][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 8]] {
            check(cut, "", Err(&format!("{INTERNAL}unexpected EOF")));
        }
        check(
            &[1, 0, 0, 0, 2, 8, 1],
            "",
            Err(&format!(
                "{INTERNAL}grpc: compressed flag set with identity or empty encoding"
            )),
        );
        check(
            &[1, 0, 0, 0, 2, 8, 1],
            "gzip",
            Err(&format!(
                "{INTERNAL}grpc: Decompressor is not installed for grpc-encoding \"gzip\""
            )),
        );
        check(
            &[7, 0, 0, 0, 2, 8, 1],
            "",
            Err(&format!(
                "{INTERNAL}grpc: received unexpected payload format 7"
            )),
        );
        let two = "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message";
        check(
            &[0, 0, 0, 0, 2, 8, 1, 0, 0, 0, 0, 0],
            "",
            Err(&format!("{INTERNAL}{two}")),
        );
        assert!(
            read(&[0, 0, 0, 0, 1, 0xff], 9, "")
                .unwrap_err()
                .message
                .starts_with("grpc: failed to unmarshal the received message: ")
        );
    }

    #[test]
    fn a_message_has_a_largest_size_and_nothing_beyond_is_kept() {
        let message = |size: u32| {
            [
                &[0][..],
                &size.to_be_bytes(),
                &vec![0x22, 0][..0],
                &vec![0; size as usize],
            ]
            .concat()
        };
        let unmarshal = |r: Result<_, Status>| {
            r.unwrap_err()
                .message
                .starts_with("grpc: failed to unmarshal")
        };
        assert!(
            unmarshal(read(&message(4096), 8192, "")),
            "the largest is read: zeros are no message"
        );
        let text = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (4097 vs. 4096)";
        assert_eq!(
            read(&message(4097), 8192, "").unwrap_err().to_string(),
            text
        );
        assert_eq!(
            read(&message(4097)[..5], 8192, "").unwrap_err().to_string(),
            text,
            "known from the prefix"
        );
        let mut answer = Incoming::new(MAX);
        assert!(answer.push(&vec![0; 1 << 20], "").is_err());
        assert!(answer.received.len() <= PREFIX + MAX + 1);
    }
}
