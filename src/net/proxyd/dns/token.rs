//! The tokens that identify the responder's sockets in the poller.

/// A socket of the responder: its kind, and its index or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The UDP socket of a listener.
    Udp(usize),
    /// The TCP socket of a listener.
    Listener(usize),
    /// A client's connection.
    Connection(u64),
    /// The socket of one try of a forwarded question.
    Exchange(u64),
}

/// Position of the kind in a token. A token consists of the part of the proxy process in the top byte, the kind, and an
/// index or key.
const KIND_SHIFT: u32 = 48;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

impl Token {
    /// Returns the token as a number, without the part of the proxy process.
    pub fn number(self) -> u64 {
        let (kind, number) = match self {
            Self::Udp(at) => (0, at as u64),
            Self::Listener(at) => (1, at as u64),
            Self::Connection(key) => (2, key),
            Self::Exchange(key) => (3, key),
        };
        kind << KIND_SHIFT | number & NUMBER
    }

    /// Reads a token from a number; `None` if its kind is unknown.
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
