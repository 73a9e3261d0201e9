//! Where packets go on, and how long elements stay: what both rules and elements of maps have.

use std::time::Duration;

use super::bytes::Messages;
use super::numbers::{data, verdict};

/// Where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It passes this hook's chain.
    Accept,
    /// It is gone, and nobody is told.
    Drop,
    /// Back to the chain that jumped here.
    Return,
    /// Into this chain, and back.
    Jump(String),
    /// Into this chain; its end is the end of ours.
    Goto(String),
}

impl Verdict {
    /// The chain that it leads to.
    pub(super) fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return => None,
        }
    }

    /// As an attribute of type `kind`.
    pub(super) fn put(&self, kind: u16, m: &mut Messages) {
        let (code, chain): (i32, _) = match self {
            Self::Drop => (0, None),
            Self::Accept => (1, None),
            Self::Jump(chain) => (-3, Some(chain)),
            Self::Goto(chain) => (-4, Some(chain)),
            Self::Return => (-5, None),
        };
        m.nest(kind, |m| {
            m.nest(data::VERDICT, |m| {
                m.put_u32(verdict::CODE, code.cast_unsigned());
                if let Some(chain) = chain {
                    m.put_name(verdict::CHAIN, chain);
                }
            });
        });
    }
}

/// As the kernel counts timeouts.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
