//! Encodes transactions as netlink messages.

use super::Family;
use super::bytes::Messages;
use super::expression::{Expression, SetName};
use super::numbers::{chain, elements, flag, hook, message, rule, set, table};
use super::rule::Rule;
use super::set::{AnonymousSet, Element};
use super::transaction::{BaseChain, ChainType, Operation, Table, Transaction};

/// An encoded transaction, with the operation that each message belongs to.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) messages: Messages,
    /// Sequence number of the first message, which begins the batch.
    pub(super) first: u32,
    /// Index of the operation for each message after the first.
    operations: Vec<usize>,
}

/// Size in bytes at which a list of elements is split. The list is one attribute, which has at most 64 KiB.
const ELEMENTS_BYTES: usize = 60_000;

/// NFNL_SUBSYS_NFTABLES, which the headers of the first and the last message carry.
const SUBSYSTEM: u16 = 10;

impl Batch {
    /// Encodes all messages of a transaction. Only the last operation asks the kernel for an acknowledgement.
    pub(super) fn of(transaction: &Transaction, first: u32) -> Self {
        let mut batch = Self {
            messages: Messages::default(),
            first,
            operations: Vec::new(),
        };
        let m = &mut batch.messages;
        m.begin(message::BATCH_BEGIN, 0, first, 0, SUBSYSTEM);
        m.end();
        let mut sets = 0;
        for (index, (table, operation)) in transaction.operations.iter().enumerate() {
            batch.put(index, table, operation, &mut sets);
        }
        batch.messages.add_flags(flag::ACK);
        let last = batch.last() + 1;
        let m = &mut batch.messages;
        m.begin(message::BATCH_END, 0, last, 0, SUBSYSTEM);
        m.end();
        batch
    }

    /// Returns the sequence number of the last message that belongs to an operation.
    pub(super) fn last(&self) -> u32 {
        self.first.wrapping_add(self.operations.len() as u32)
    }

    /// Returns the index of the operation that a message belongs to. Returns `None` for the first and last message of
    /// the batch.
    pub(super) fn operation(&self, sequence: u32) -> Option<usize> {
        let index = sequence.wrapping_sub(self.first).checked_sub(1)?;
        self.operations.get(index as usize).copied()
    }

    /// Writes one message for the operation at `index`.
    fn message(
        &mut self,
        index: usize,
        kind: u16,
        flags: u16,
        family: Family,
        inside: impl FnOnce(&mut Messages),
    ) {
        self.operations.push(index);
        let sequence = self.last();
        let m = &mut self.messages;
        m.begin(kind, flags, sequence, family as u8, 0);
        inside(m);
        m.end();
    }

    fn put(&mut self, index: usize, on: &Table, operation: &Operation, sets: &mut u32) {
        let family = on.family;
        match operation {
            Operation::AddTable => {
                self.message(index, message::NEWTABLE, flag::CREATE, family, |m| {
                    m.put_name(table::NAME, &on.name);
                    m.put_u32(table::FLAGS, 0);
                    put_comment(table::USERDATA, m);
                })
            }
            Operation::DeleteTable => self.message(index, message::DELTABLE, 0, family, |m| {
                m.put_name(table::NAME, &on.name);
            }),
            Operation::FlushTable => self.message(index, message::DELRULE, 0, family, |m| {
                m.put_name(rule::TABLE, &on.name);
            }),
            Operation::AddChain(name, base) => {
                self.message(index, message::NEWCHAIN, flag::CREATE, family, |m| {
                    m.put_name(chain::TABLE, &on.name);
                    m.put_name(chain::NAME, name);
                    if let Some(base) = base {
                        put_base(*base, m);
                    }
                });
            }
            Operation::FlushChain(name) => self.message(index, message::DELRULE, 0, family, |m| {
                m.put_name(rule::TABLE, &on.name);
                m.put_name(rule::CHAIN, name);
            }),
            Operation::DeleteChain(name) => {
                self.message(index, message::DELCHAIN, 0, family, |m| {
                    m.put_name(chain::TABLE, &on.name);
                    m.put_name(chain::NAME, name);
                })
            }
            Operation::AddRule(chain, rule) => self.rule(index, on, chain, rule, sets),
            Operation::AddSet(new) => {
                *sets += 1;
                let id = *sets;
                self.message(index, message::NEWSET, flag::CREATE, family, |m| {
                    m.put_name(set::TABLE, &on.name);
                    m.put_name(set::NAME, &new.name);
                    new.put(id, m);
                });
            }
            Operation::DeleteSet(name) => self.message(index, message::DELSET, 0, family, |m| {
                m.put_name(set::TABLE, &on.name);
                m.put_name(set::NAME, name);
            }),
            Operation::FlushSet(name) => self.message(index, message::DELSETELEM, 0, family, |m| {
                m.put_name(elements::TABLE, &on.name);
                m.put_name(elements::SET, name);
            }),
            Operation::AddElements(name, all) => self.elements(index, on, (name, None), all, true),
            Operation::DeleteElements(name, all) => {
                self.elements(index, on, (name, None), all, false);
            }
        }
    }

    /// Writes the rule's own sets, and then the rule.
    fn rule(&mut self, index: usize, on: &Table, chain: &str, new: &Rule, sets: &mut u32) {
        let ids: Vec<u32> = new
            .expressions
            .iter()
            .map(|expression| match expression {
                Expression::Lookup {
                    set: SetName::Anonymous(set),
                    ..
                } => {
                    *sets += 1;
                    self.anonymous(index, on, set, *sets);
                    *sets
                }
                _ => 0,
            })
            .collect();
        let flags = flag::CREATE | flag::APPEND;
        self.message(index, message::NEWRULE, flags, on.family, |m| {
            m.put_name(rule::TABLE, &on.name);
            m.put_name(rule::CHAIN, chain);
            m.nest(rule::EXPRESSIONS, |m| {
                for (expression, id) in new.expressions.iter().zip(ids) {
                    expression.put(id, m);
                }
            });
        });
    }

    fn anonymous(&mut self, index: usize, on: &Table, new: &AnonymousSet, id: u32) {
        self.message(index, message::NEWSET, flag::CREATE, on.family, |m| {
            m.put_name(set::TABLE, &on.name);
            m.put_name(set::NAME, new.name());
            new.put(id, m);
        });
        self.elements(index, on, (new.name(), Some(id)), &new.elements, true);
    }

    /// Writes elements, split into several messages if they are too large for one message.
    fn elements(
        &mut self,
        index: usize,
        on: &Table,
        (name, id): (&str, Option<u32>),
        all: &[Element],
        add: bool,
    ) {
        let (kind, flags) = match add {
            true => (message::NEWSETELEM, flag::CREATE),
            false => (message::DELSETELEM, 0),
        };
        let mut left = all.iter();
        while !left.as_slice().is_empty() {
            self.message(index, kind, flags, on.family, |m| {
                m.put_name(elements::TABLE, &on.name);
                m.put_name(elements::SET, name);
                if let Some(id) = id {
                    m.put_u32(elements::SET_ID, id);
                }
                m.nest(elements::ELEMENTS, |m| {
                    while m.length() < ELEMENTS_BYTES
                        && let Some(element) = left.next()
                    {
                        element.put(m);
                    }
                });
            });
        }
    }
}

fn put_base(base: BaseChain, m: &mut Messages) {
    m.nest(chain::HOOK, |m| {
        m.put_u32(hook::NUMBER, base.hook as u32);
        m.put_u32(hook::PRIORITY, base.priority.cast_unsigned());
    });
    // 0 is NF_DROP and 1 is NF_ACCEPT.
    m.put_u32(chain::POLICY, u32::from(!base.drop));
    m.put_name(
        chain::TYPE,
        match base.kind {
            ChainType::Filter => "filter",
            ChainType::Nat => "nat",
        },
    );
}

/// Writes the table's comment, which `nft list` shows. The value is a type (NFTNL_UDATA_TABLE_COMMENT), a length, and a
/// text that ends with a zero byte.
fn put_comment(kind: u16, m: &mut Messages) {
    let text = b"written by podprobe, which undoes other changes\0";
    let mut value = vec![0, text.len() as u8];
    value.extend(text);
    m.put(kind, &value);
}
