//! Verdicts and timeouts, which rules and elements of maps have in common.

use std::time::Duration;

use super::bytes::Messages;
use super::numbers::{data, verdict};

/// A verdict: where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The packet passes the present base chain.
    Accept,
    /// The packet is discarded, and its sender gets no message.
    Drop,
    /// The packet goes back to the chain that jumped to the present chain.
    Return,
    /// The packet goes into this chain, and comes back at the end of this chain.
    Jump(String),
    /// The packet goes into this chain, and does not come back. The end of this chain counts as the end of the present
    /// chain.
    Goto(String),
}

impl Verdict {
    /// Returns the chain to which the verdict leads; None for a verdict that leads to no chain.
    pub(super) fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            Self::Accept | Self::Drop | Self::Return => None,
        }
    }

    /// Writes the verdict as an attribute of type `kind`.
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

/// Converts a timeout to milliseconds, the kernel's unit.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
