//! The sockets that the poller's tokens stand for.

/// The kind of socket that a token stands for, and which one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The datagrams of a listener.
    Udp(usize),
    /// The connections of a listener.
    Listener(usize),
    /// A client's connection.
    Connection(u64),
    /// A try of a question to others.
    Exchange(u64),
}

/// Place of the kind in a token. A token has the part of the role in its top byte, then the kind, then a number.
const KIND_SHIFT: u32 = 48;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

impl Token {
    /// Returns the token as a number, without the part of the role.
    pub fn number(self) -> u64 {
        let (kind, number) = match self {
            Self::Udp(at) => (0, at as u64),
            Self::Listener(at) => (1, at as u64),
            Self::Connection(key) => (2, key),
            Self::Exchange(key) => (3, key),
        };
        kind << KIND_SHIFT | number & NUMBER
    }

    /// Reads the number of a token. Returns `None` if its kind is not known.
    pub fn read(token: u64) -> Option<Self> {
        let number = token & NUMBER;
        match token >> KIND_SHIFT & 0xff {
            0 => Some(Self::Udp(number as usize)),
            1 => Some(Self::Listener(number as usize)),
            2 => Some(Self::Connection(number)),
            3 => Some(Self::Exchange(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_there_and_back() {
        for token in [
            Token::Udp(1),
            Token::Listener(0),
            Token::Connection(7),
            Token::Exchange(NUMBER),
        ] {
            let part = 3 << 56;
            assert_eq!(Token::read(part | token.number()), Some(token));
        }
        assert_eq!(Token::read(4 << KIND_SHIFT), None);
    }
}
