//! Sets and maps with their keys and elements.

use std::net::IpAddr;
use std::time::Duration;

use super::bytes::Messages;
use super::numbers::{data, element, list, set, set_flag};
use super::verdict::{Verdict, milliseconds};

/// Type of a field of a key or value. The kernel looks only at the field's length. `nft list` uses the type to print the
/// field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number in the machine's byte order, such as the result of [`super::Load::Random`].
    Number = 4,
    /// An IPv4 address.
    Ipv4 = 7,
    /// An IPv6 address.
    Ipv6 = 8,
    /// A hardware address.
    Ether = 9,
    /// The number of a transport protocol.
    Protocol = 12,
    /// A port of TCP or UDP.
    Port = 13,
    /// The name of an interface.
    Interface = 41,
}

impl Type {
    fn length(self) -> u32 {
        match self {
            Self::Number | Self::Ipv4 => 4,
            Self::Ipv6 | Self::Interface => 16,
            Self::Ether => 6,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    /// Returns the combined type and the length in bytes of several fields. Each type has 6 bits. If there are several
    /// fields, each field occupies whole registers.
    fn of(types: &[Self]) -> (u32, u32) {
        match types {
            [one] => (*one as u32, one.length()),
            all => all.iter().fold((0, 0), |(kind, length), t| {
                (
                    kind << 6 | *t as u32,
                    length + t.length().next_multiple_of(4),
                )
            }),
        }
    }
}

/// The value of one field of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// A hardware address.
    Ether([u8; 6]),
    /// The number of a transport protocol.
    Protocol(u8),
    /// A port of TCP or UDP.
    Port(u16),
    /// The name of an interface, at most 15 bytes.
    Interface(&'a str),
    /// A number in the machine's byte order.
    Number(u32),
}

impl Field<'_> {
    fn append(self, to: &mut Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(a)) => to.extend(a.octets()),
            Self::Address(IpAddr::V6(a)) => to.extend(a.octets()),
            Self::Ether(a) => to.extend(a),
            Self::Protocol(number) => to.push(number),
            Self::Port(port) => to.extend(port.to_be_bytes()),
            Self::Interface(name) => to.extend(interface(name)),
            Self::Number(number) => to.extend(number.to_ne_bytes()),
        }
    }
}

/// Returns an interface's name in the form that the kernel compares: 16 bytes, filled up with zeros.
pub fn interface(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

/// The bytes of a key, or of a map's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(super) Vec<u8>);

impl Key {
    /// Makes a key from one or several fields. If there are several fields, each field begins at a whole register.
    pub fn of(fields: &[Field<'_>]) -> Self {
        let mut bytes = Vec::with_capacity(24);
        for field in fields {
            field.append(&mut bytes);
            if fields.len() > 1 {
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
        }
        Self(bytes)
    }
}

/// The value that a map has for a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A verdict: where the packet goes on.
    Verdict(Verdict),
    /// Data to load into registers.
    Data(Key),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub(super) key: Key,
    /// Last key of the range, if the element is a range of several fields.
    last: Option<Key>,
    value: Option<Value>,
    /// True if the key ends an interval. The key itself is then not part of the interval.
    pub(super) end: bool,
    timeout: Option<Duration>,
}

impl Element {
    /// Makes an element of a set.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            last: None,
            value: None,
            end: false,
            timeout: None,
        }
    }

    /// Makes an element of a map.
    pub fn mapping(key: Key, value: Value) -> Self {
        Self {
            value: Some(value),
            ..Self::new(key)
        }
    }

    /// Makes an element of a set of intervals with several fields. Both keys are part of the interval.
    pub fn range(first: Key, last: Key) -> Self {
        Self {
            last: Some(last),
            ..Self::new(first)
        }
    }

    /// Makes the element that ends an interval. The element's key is not part of the interval.
    pub(super) fn end(key: Key) -> Self {
        Self {
            end: true,
            ..Self::new(key)
        }
    }

    /// Makes the kernel remove the element after `timeout`. The set must be dynamic ([`Set::dynamic`]).
    #[must_use]
    pub fn for_time(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the chain to which the element's verdict leads; None if the element has no verdict that leads to a
    /// chain.
    pub(super) fn chain(&self) -> Option<&str> {
        match &self.value {
            Some(Value::Verdict(verdict)) => verdict.chain(),
            _ => None,
        }
    }

    pub(super) fn put(&self, m: &mut Messages) {
        m.nest(list::ELEMENT, |m| {
            if self.end {
                m.put_u32(element::FLAGS, element::INTERVAL_END);
            }
            m.nest(element::KEY, |m| m.put(data::VALUE, &self.key.0));
            if let Some(last) = &self.last {
                m.nest(element::KEY_END, |m| m.put(data::VALUE, &last.0));
            }
            match &self.value {
                None => {}
                Some(Value::Verdict(verdict)) => verdict.put(element::DATA, m),
                Some(Value::Data(value)) => {
                    m.nest(element::DATA, |m| m.put(data::VALUE, &value.0));
                }
            }
            if let Some(timeout) = self.timeout {
                m.put_u64(element::TIMEOUT, milliseconds(timeout));
            }
        });
    }
}

/// The kind of values that a set has for its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    Nothing,
    Verdict,
    Value(Vec<Type>),
}

/// A set or map of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub(super) name: String,
    key: Vec<Type>,
    data: Data,
    flags: u32,
    timeout: Option<Duration>,
    size: Option<u32>,
}

impl Set {
    /// Makes a set, which has keys without values.
    pub fn new(name: impl Into<String>, key: &[Type]) -> Self {
        Self {
            name: name.into(),
            key: key.to_vec(),
            data: Data::Nothing,
            flags: 0,
            timeout: None,
            size: None,
        }
    }

    /// Makes a map from keys to verdicts.
    pub fn verdicts(name: impl Into<String>, key: &[Type]) -> Self {
        Self {
            data: Data::Verdict,
            flags: set_flag::MAP,
            ..Self::new(name, key)
        }
    }

    /// Makes a map from keys to values.
    pub fn map(name: impl Into<String>, key: &[Type], value: &[Type]) -> Self {
        Self {
            data: Data::Value(value.to_vec()),
            flags: set_flag::MAP,
            ..Self::new(name, key)
        }
    }

    /// Turns the set into a set of intervals ([`super::intervals()`], [`Element::range`]).
    #[must_use]
    pub fn of_intervals(mut self) -> Self {
        self.flags |= set_flag::INTERVAL;
        if self.key.len() > 1 {
            self.flags |= set_flag::CONCAT;
        }
        self
    }

    /// Lets rules add up to `size` elements to the set. The kernel removes an element after the time that the rule
    /// gives, or else after `timeout`.
    #[must_use]
    pub fn dynamic(mut self, size: u32, timeout: Option<Duration>) -> Self {
        self.flags |= set_flag::TIMEOUT | set_flag::EVAL;
        self.timeout = timeout;
        self.size = Some(size);
        self
    }

    /// Writes the set's attributes that come after its name.
    pub(super) fn put(&self, id: u32, m: &mut Messages) {
        put_set(&self.key, &self.data, self.flags, self.size, id, m);
        if let Some(timeout) = self.timeout {
            m.put_u64(set::TIMEOUT, milliseconds(timeout));
        }
    }
}

fn put_set(key: &[Type], data: &Data, flags: u32, size: Option<u32>, id: u32, m: &mut Messages) {
    let (kind, length) = Type::of(key);
    m.put_u32(set::FLAGS, flags);
    m.put_u32(set::KEY_TYPE, kind);
    m.put_u32(set::KEY_LEN, length);
    let data = match data {
        Data::Nothing => None,
        // 0xffff_ff00 is NFT_DATA_VERDICT.
        Data::Verdict => Some((0xffff_ff00, 0)),
        Data::Value(types) => Some(Type::of(types)),
    };
    if let Some((kind, length)) = data {
        m.put_u32(set::DATA_TYPE, kind);
        m.put_u32(set::DATA_LEN, length);
    }
    m.put_u32(set::ID, id);
    let fields = flags & set_flag::CONCAT != 0;
    if fields || size.is_some() {
        m.nest(set::DESC, |m| put_description(key, size, fields, m));
    }
    if key == [Type::Number] {
        // The type 0 is NFTNL_UDATA_SET_KEYBYTEORDER, and the value 1 means the machine's byte order. Only `nft list`
        // reads this attribute.
        let mut byte_order = vec![0, 4];
        byte_order.extend(1_u32.to_ne_bytes());
        m.put(set::USERDATA, &byte_order);
    }
}

fn put_description(key: &[Type], size: Option<u32>, fields: bool, m: &mut Messages) {
    if let Some(size) = size {
        m.put_u32(set::DESC_SIZE, size);
    }
    if fields {
        m.nest(set::DESC_CONCAT, |m| {
            for field in key {
                m.nest(list::ELEMENT, |m| {
                    m.put_u32(set::FIELD_LEN, field.length());
                });
            }
        });
    }
}

/// A set or map that belongs to one rule and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousSet {
    key: Vec<Type>,
    data: Data,
    interval: bool,
    pub(super) elements: Vec<Element>,
}

impl AnonymousSet {
    /// Makes a set, which has keys without values.
    pub fn new(key: &[Type], elements: Vec<Element>) -> Self {
        Self {
            key: key.to_vec(),
            data: Data::Nothing,
            interval: false,
            elements,
        }
    }

    /// Makes a set of intervals of addresses ([`super::intervals()`]).
    pub fn of_intervals(key: Type, elements: Vec<Element>) -> Self {
        Self {
            interval: true,
            ..Self::new(&[key], elements)
        }
    }

    /// Makes a map from keys to values.
    pub fn map(key: &[Type], value: &[Type], elements: Vec<Element>) -> Self {
        Self {
            data: Data::Value(value.to_vec()),
            ..Self::new(key, elements)
        }
    }

    /// Makes a map from keys to verdicts.
    pub fn verdicts(key: &[Type], elements: Vec<Element>) -> Self {
        Self {
            data: Data::Verdict,
            ..Self::new(key, elements)
        }
    }

    /// Returns the pattern for the set's name. The kernel replaces `%d` by a number.
    pub(super) fn name(&self) -> &'static str {
        match self.data {
            Data::Nothing => "__set%d",
            _ => "__map%d",
        }
    }

    /// Writes the set's attributes that come after its name.
    pub(super) fn put(&self, id: u32, m: &mut Messages) {
        let mut flags = set_flag::ANONYMOUS | set_flag::CONSTANT;
        let mut size = Some(self.elements.len() as u32);
        if self.data != Data::Nothing {
            flags |= set_flag::MAP;
        }
        if self.interval {
            flags |= set_flag::INTERVAL;
            size = None;
        }
        put_set(&self.key, &self.data, flags, size, id, m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_several_fields_has_whole_registers() {
        let fields = [
            Field::Address("10.0.0.1".parse().unwrap()),
            Field::Protocol(6),
            Field::Port(80),
        ];
        assert_eq!(Key::of(&fields).0, [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(Key::of(&[Field::Port(80)]).0, [0, 80]);
        let (kind, length) = Type::of(&[Type::Ipv4, Type::Protocol, Type::Port]);
        assert_eq!((kind, length), (0x730d, 12));
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_not_written_beyond() {
        assert_eq!(interface("eth0")[..6], *b"eth0\0\0");
        assert_eq!(interface("a-name-of-twenty-one")[15], 0);
    }
}
