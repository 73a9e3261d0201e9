//! Where packets go on, and how long elements stay: what both rules and elements of maps have.

use std::time::Duration;

use super::bytes::Messages;
use super::numbers::{data, verdict};

/// Where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The packet passes this hook's chain.
    Accept,
    /// The packet is gone, and its sender is not told.
    Drop,
    /// The packet goes back to the chain that jumped here.
    Return,
    /// The packet goes into this chain, and comes back at the chain's end.
    Jump(String),
    /// The packet goes into this chain, and does not come back: the end of this chain is the end of the present one.
    Goto(String),
}

impl Verdict {
    /// Returns the chain to which the verdict leads.
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

/// Returns a timeout in milliseconds, the kernel's unit for timeouts.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
