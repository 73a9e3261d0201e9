//! Builds rules: each method appends the expressions for one word of `nft`.
//!
//! Values are loaded into registers from register 0 on. Several values of one key follow each other, and each value
//! begins at a whole register. A key of several fields has the same layout ([`super::Key::of`]).

use super::Family;
use super::expression::{Comparison, Expression, Lookup, Reject, SetName};
use super::load::{Ct, Load, Meta, Register};
use super::verdict::Verdict;

const FIRST: Register = Register(0);

/// A rule: a list of expressions, which the kernel evaluates in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub(super) expressions: Vec<Expression>,
}

impl Rule {
    /// Returns a rule that every packet matches, and that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an expression.
    #[must_use]
    pub fn with(mut self, expression: Expression) -> Self {
        self.expressions.push(expression);
        self
    }

    /// Loads values one after the other, the first into `to`.
    #[must_use]
    pub fn load(mut self, loads: &[Load], mut to: Register) -> Self {
        for &load in loads {
            self.expressions.push(Expression::Load { load, to });
            to = to.after(load.length());
        }
        self
    }

    fn compare(self, load: Load, comparison: Comparison, value: &[u8]) -> Self {
        self.load(&[load], FIRST).with(Expression::Compare {
            register: FIRST,
            comparison,
            value: value.to_vec(),
        })
    }

    /// Lets the rule go on if the packet has this value. The value is in the byte order that [`Load`] gives.
    #[must_use]
    pub fn is(self, load: Load, value: &[u8]) -> Self {
        self.compare(load, Comparison::Equal, value)
    }

    /// Lets the rule go on if the packet has a different value. The value is in the byte order that [`Load`] gives.
    #[must_use]
    pub fn is_not(self, load: Load, value: &[u8]) -> Self {
        self.compare(load, Comparison::NotEqual, value)
    }

    /// Lets the rule go on if the first `prefix` bits of the value equal those of `network`.
    #[must_use]
    pub fn within(self, load: Load, network: &[u8], prefix: u8) -> Self {
        self.masked(load, network, prefix, Comparison::Equal)
    }

    /// Lets the rule go on if the first `prefix` bits of the value differ from those of `network`.
    #[must_use]
    pub fn outside(self, load: Load, network: &[u8], prefix: u8) -> Self {
        self.masked(load, network, prefix, Comparison::NotEqual)
    }

    fn masked(self, load: Load, network: &[u8], prefix: u8, comparison: Comparison) -> Self {
        let mask: Vec<u8> = (0..network.len()).map(|i| mask_byte(prefix, i)).collect();
        let value = network.iter().zip(&mask).map(|(n, m)| n & m).collect();
        self.load(&[load], FIRST)
            .with(Expression::Bitwise {
                from: FIRST,
                to: FIRST,
                xor: vec![0; mask.len()],
                mask,
            })
            .with(Expression::Compare {
                register: FIRST,
                comparison,
                value,
            })
    }

    /// Lets the rule go on if at least one of these bits is set in the connection's state or status.
    #[must_use]
    pub fn any_bit(self, of: Ct, bits: u32) -> Self {
        self.load(&[Load::Ct(of)], FIRST)
            .mask_word(bits, 0)
            .with(Expression::Compare {
                register: FIRST,
                comparison: Comparison::NotEqual,
                value: vec![0; 4],
            })
    }

    /// Lets the rule go on if the packet's mark has this bit.
    #[must_use]
    pub fn marked(self, bit: u32) -> Self {
        self.load(&[Load::Meta(Meta::Mark)], FIRST)
            .mask_word(bit, 0)
            .with(Expression::Compare {
                register: FIRST,
                comparison: Comparison::NotEqual,
                value: vec![0; 4],
            })
    }

    /// Sets a bit of the packet's mark.
    #[must_use]
    pub fn mark(self, bit: u32) -> Self {
        self.load(&[Load::Meta(Meta::Mark)], FIRST)
            .mask_word(!bit, bit)
            .with(Expression::SetMark { from: FIRST })
    }

    /// Clears a bit of the packet's mark.
    #[must_use]
    pub fn unmark(self, bit: u32) -> Self {
        self.load(&[Load::Meta(Meta::Mark)], FIRST)
            .mask_word(!bit, 0)
            .with(Expression::SetMark { from: FIRST })
    }

    fn mask_word(self, mask: u32, xor: u32) -> Self {
        self.with(Expression::Bitwise {
            from: FIRST,
            to: FIRST,
            mask: mask.to_ne_bytes().to_vec(),
            xor: xor.to_ne_bytes().to_vec(),
        })
    }

    fn ask(self, loads: &[Load], set: SetName, lookup: Lookup) -> Self {
        self.load(loads, FIRST).with(Expression::Lookup {
            set,
            key: FIRST,
            lookup,
        })
    }

    /// Lets the rule go on if the packet's values are a key of the set.
    #[must_use]
    pub fn in_set(self, loads: &[Load], set: impl Into<SetName>) -> Self {
        self.ask(loads, set.into(), Lookup::In)
    }

    /// Lets the rule go on if the packet's values are not a key of the set.
    #[must_use]
    pub fn not_in_set(self, loads: &[Load], set: impl Into<SetName>) -> Self {
        self.ask(loads, set.into(), Lookup::NotIn)
    }

    /// Applies the verdict that the map has for the packet's values (`vmap`). If the map has no verdict for them, the
    /// rule ends, and the packet goes on to the next rule.
    #[must_use]
    pub fn dispatch(self, loads: &[Load], map: impl Into<SetName>) -> Self {
        self.ask(loads, map.into(), Lookup::Verdict)
    }

    /// Loads the value that the map has for the packet's values into `to`. If the map has no value for them, the rule
    /// ends.
    #[must_use]
    pub fn map(self, loads: &[Load], map: impl Into<SetName>, to: Register) -> Self {
        self.ask(loads, map.into(), Lookup::Value(to))
    }

    /// Translates the destination to the address in register `address`, and to the port in register `port`. If `port`
    /// is None, the port stays.
    #[must_use]
    pub fn dnat(self, family: Family, address: Register, port: Option<Register>) -> Self {
        self.with(Expression::Dnat {
            family,
            address,
            port,
        })
    }

    /// Translates the source to the address of the interface by which the packet leaves.
    #[must_use]
    pub fn masquerade(self) -> Self {
        self.with(Expression::Masquerade)
    }

    /// Translates the destination to `port` of the node itself.
    #[must_use]
    pub fn redirect(self, port: u16) -> Self {
        self.with(Expression::Immediate {
            to: FIRST,
            value: port.to_be_bytes().to_vec(),
        })
        .with(Expression::Redirect { port: FIRST })
    }

    /// Refuses the packet.
    #[must_use]
    pub fn reject(self, reject: Reject) -> Self {
        self.with(Expression::Reject(reject))
    }

    /// Ends the rule with a verdict.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.with(Expression::Verdict(verdict))
    }

    /// Ends the rule by a jump into a chain. The packet comes back at the chain's end.
    #[must_use]
    pub fn jump(self, chain: &str) -> Self {
        self.verdict(Verdict::Jump(chain.to_owned()))
    }

    /// Ends the rule by a jump into a chain. The packet does not come back.
    #[must_use]
    pub fn goto(self, chain: &str) -> Self {
        self.verdict(Verdict::Goto(chain.to_owned()))
    }
}

/// Returns the byte at `index` of a mask with `prefix` leading one bits.
fn mask_byte(prefix: u8, index: usize) -> u8 {
    let bits = usize::from(prefix).saturating_sub(index * 8).min(8);
    0xff_u8.checked_shl(8 - bits as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_prefixes() {
        let mask = |prefix| [0, 1, 2, 3].map(|i| mask_byte(prefix, i));
        assert_eq!(mask(0), [0, 0, 0, 0]);
        assert_eq!(mask(8), [255, 0, 0, 0]);
        assert_eq!(mask(12), [255, 0xf0, 0, 0]);
        assert_eq!(mask(31), [255, 255, 255, 0xfe]);
        assert_eq!(mask(32), [255; 4]);
    }

    #[test]
    fn a_key_of_several_values_has_each_at_a_whole_register() {
        let loads = [
            Load::Meta(Meta::InputName),
            Load::ETHER_SOURCE,
            Load::source(Family::Ip),
        ];
        let rule = Rule::new().load(&loads, FIRST);
        let at: Vec<u8> = rule
            .expressions
            .iter()
            .map(|e| match e {
                Expression::Load { to, .. } => to.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(at, [0, 4, 6]);
    }
}
