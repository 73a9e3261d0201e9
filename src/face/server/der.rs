//! DER, the encoding of certificates, as far as this server writes and reads it.
//!
//! Invariant: pure; content of at most 64 KiB, which is more than a TLS record that carries a certificate's names can hold.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_ID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const TELETEX_STRING: u8 = 0x14;
pub const IA5_STRING: u8 = 0x16;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// Returns the tag of a primitive value that has a number instead of a type, as names in a certificate have.
pub const fn numbered(number: u8) -> u8 {
    0x80 | number
}

/// Returns the tag of a numbered value that holds other values.
pub const fn holder(number: u8) -> u8 {
    0xa0 | number
}

/// Encodes one value, whose content is the parts one after the other.
pub fn encode<Part: AsRef<[u8]>>(tag: u8, parts: &[Part]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    let mut encoded = vec![tag];
    match length.to_be_bytes() {
        [.., low] if length < 0x80 => encoded.push(low),
        [.., low] if length < 0x100 => encoded.extend([0x81, low]),
        [.., high, low] => encoded.extend([0x82, high, low]),
    }
    for part in parts {
        encoded.extend_from_slice(part.as_ref());
    }
    encoded
}

/// The values of a content, one after the other: the tag and the content of each. They end at the first that is damaged.
pub struct Values<'a>(pub &'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, length, rest) = match *self.0 {
            [tag, length @ ..=0x7f, ref rest @ ..] => (tag, usize::from(length), rest),
            [tag, 0x81, length, ref rest @ ..] => (tag, usize::from(length), rest),
            [tag, 0x82, high, low, ref rest @ ..] => {
                (tag, usize::from(u16::from_be_bytes([high, low])), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_was_written() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; length];
            let mut encoded = encode(SEQUENCE, &[&content]);
            encoded.extend(encode(OBJECT_ID, &[[1]]));
            let read: Vec<_> = Values(&encoded).collect();
            assert_eq!(read, [(SEQUENCE, &*content), (OBJECT_ID, &[1])], "{length}");
        }
    }

    #[test]
    fn a_length_has_as_few_bytes_as_it_needs() {
        let head = |length: usize| encode(SET, &[vec![0; length]])[..4].to_vec();
        assert_eq!(head(0x7f), [SET, 0x7f, 0, 0]);
        assert_eq!(head(0x80), [SET, 0x81, 0x80, 0]);
        assert_eq!(head(0x100), [SET, 0x82, 0x01, 0x00]);
    }

    #[test]
    fn what_is_cut_off_or_has_no_length_is_not_read() {
        for damaged in [
            &[][..],
            &[SET],
            &[SET, 2, 1],
            &[SET, 0x80, 1],
            &[SET, 0x81],
            &[SET, 0x82, 1],
        ] {
            assert_eq!(Values(damaged).next(), None, "{damaged:?}");
        }
    }
}
