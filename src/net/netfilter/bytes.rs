//! Encodes and decodes netlink messages. A message has a header of 16 bytes, netfilter's header of 4 bytes, and attributes.
//! Each attribute has a length and a type, and is aligned to 4 bytes.

use super::numbers::flag;

const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;

/// Messages one after the other, as one send takes them.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    start: usize,
}

impl Messages {
    /// Begins a message. The kernel's answers to this message have the same `sequence`.
    pub(super) fn begin(&mut self, kind: u16, flags: u16, sequence: u32, family: u8, id: u16) {
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        let flags = flags | flag::REQUEST;
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[family, 0]);
        self.bytes.extend_from_slice(&id.to_be_bytes());
    }

    /// Ends the message that was begun last, by writing its length.
    pub(super) fn end(&mut self) {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Returns the present length in bytes of the message that was begun last.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Adds flags to the message that was begun last.
    pub(super) fn add_flags(&mut self, flags: u16) {
        let at = self.start + 6;
        let old = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.bytes[at..at + 2].copy_from_slice(&(old | flags).to_ne_bytes());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn put(&mut self, kind: u16, value: &[u8]) {
        let length = (value.len() + 4) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.align();
    }

    /// Writes a name, with the zero byte at its end that the kernel requires.
    pub(super) fn put_name(&mut self, kind: u16, name: &str) {
        let mut value = name.as_bytes().to_vec();
        value.push(0);
        self.put(kind, &value);
    }

    pub(super) fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    pub(super) fn put_u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Writes an attribute that contains the attributes which `inside` writes.
    pub(super) fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.put(kind | NESTED, &[]);
        inside(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn align(&mut self) {
        let aligned = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(aligned, 0);
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// The bytes after netlink's header.
    pub(super) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// Returns the attributes of the message, without netfilter's header of 4 bytes in front of them.
    pub(super) fn attributes(&self) -> Attributes<'a> {
        Attributes(self.body.get(4..).unwrap_or_default())
    }
}

/// Returns the messages in a datagram. The iterator ends at a message that is cut off.
pub(super) fn received(mut datagram: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let header = datagram.get(..HEADER)?;
        let length = u32_at(header, 0) as usize;
        let body = datagram.get(HEADER..length)?;
        let message = Received {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32_at(header, 8),
            body,
        };
        let next = length.next_multiple_of(4);
        datagram = datagram.get(next..).unwrap_or_default();
        Some(message)
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(value)
}

/// Returns the errno in an ERROR or DONE message as the kernel writes it: 0 or negative. Returns None if the message is
/// cut off.
pub(super) fn error_code(body: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(body.get(..4)?.try_into().ok()?))
}

/// Attributes one after the other, as pairs of type and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the first attribute of a type.
    pub(super) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(k, _)| *k == kind).map(|(_, v)| v)
    }

    /// Returns the attributes inside of the first attribute of a type.
    pub(super) fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    pub(super) fn name(self, kind: u16) -> Option<&'a str> {
        let value = self.get(kind)?;
        std::str::from_utf8(value.strip_suffix(&[0]).unwrap_or(value)).ok()
    }

    pub(super) fn u32(self, kind: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }

    pub(super) fn u64(self, kind: u16) -> Option<u64> {
        Some(u64::from_be_bytes(self.get(kind)?.try_into().ok()?))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.get(..4)?;
        let length = u16::from_ne_bytes([header[0], header[1]]) as usize;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = self.0.get(4..length)?;
        let next = length.next_multiple_of(4);
        self.0 = self.0.get(next..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut messages = Messages::default();
        messages.begin(7, 0, 3, 2, 10);
        messages.nest(1, |m| {
            m.put_name(2, "abcd");
            m.put_u32(3, 5);
        });
        messages.put_u64(4, 6);
        messages.end();
        messages.begin(8, flag::ACK, 4, 10, 0);
        messages.end();
        let all: Vec<_> = received(messages.bytes()).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].kind, all[0].sequence), (7, 3));
        assert_eq!((all[0].body[0], all[1].body[0]), (2, 10));
        assert_eq!(all[1].flags, flag::ACK | flag::REQUEST);
        let inner = all[0].attributes().nested(1).unwrap();
        assert_eq!((inner.name(2), inner.u32(3)), (Some("abcd"), Some(5)));
        assert_eq!(all[0].attributes().u64(4), Some(6));
    }

    #[test]
    fn a_cut_message_is_left_out() {
        let mut messages = Messages::default();
        messages.begin(7, 0, 3, 2, 10);
        messages.put_u32(1, 5);
        messages.end();
        let bytes = messages.bytes();
        for length in 0..bytes.len() {
            assert_eq!(received(&bytes[..length]).count(), 0, "{length}");
        }
        for length in 0..8 {
            assert_eq!(Attributes(&bytes[20..20 + length]).count(), 0, "{length}");
        }
        // The length is smaller than the header itself.
        let mut lying = bytes.to_vec();
        lying[0] = 3;
        assert_eq!(received(&lying).count(), 0);
        assert_eq!(Attributes(&[1, 0, 1, 0]).count(), 0);
    }
}
