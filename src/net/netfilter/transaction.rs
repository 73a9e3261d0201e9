//! Transactions: lists of operations on tables, which the kernel carries out as a whole or not at all.

use std::collections::BTreeMap;
use std::fmt;

use super::Family;
use super::expression::{Expression, SetName};
use super::rule::Rule;
use super::set::{Element, Set};

/// A table, identified by family and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// The packets that the table sees.
    pub family: Family,
    /// Name of the table. Like the names of chains and sets, it has at most 255 bytes of letters, digits, `_`, `.`, `/`
    /// and `-`, and begins with a letter.
    pub name: String,
}

/// Type of a base chain. The type determines what the rules of the chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainType {
    /// The rules may do everything except translate addresses.
    Filter,
    /// The chain sees only the first packet of each connection. Its rules may translate the connection's addresses.
    Nat,
}

/// A place in the kernel at which base chains are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// The hook for every packet that comes in.
    Prerouting = 0,
    /// The hook for packets to the node itself.
    Input = 1,
    /// The hook for packets from one interface to another.
    Forward = 2,
    /// The hook for packets from the node itself.
    Output = 3,
    /// The hook for every packet that goes out.
    Postrouting = 4,
}

/// Properties of a base chain. The kernel calls such a chain at a hook, without a jump from another chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// Type of the chain.
    pub kind: ChainType,
    /// The hook at which the kernel calls the chain.
    pub hook: Hook,
    /// Priority of the chain. The kernel calls chains with lower numbers first. Destinations are translated at -100,
    /// and sources at 100. In [`Family::Bridge`] these numbers are -300 and 300. A filter has 0.
    pub priority: i32,
    /// True if the chain drops packets for which no rule gives a verdict.
    pub drop: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AddTable,
    DeleteTable,
    FlushTable,
    AddChain(String, Option<BaseChain>),
    FlushChain(String),
    DeleteChain(String),
    AddRule(String, Rule),
    AddSet(Set),
    DeleteSet(String),
    FlushSet(String),
    AddElements(String, Vec<Element>),
    DeleteElements(String, Vec<Element>),
}

/// A list of operations on tables, which the kernel carries out as a whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(super) operations: Vec<(Table, Operation)>,
}

impl Transaction {
    /// Returns a transaction without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells whether the transaction has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the number of operations in the transaction.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Appends the operations of another transaction.
    pub fn append(&mut self, mut other: Self) {
        self.operations.append(&mut other.operations);
    }

    /// Returns the chains that the transaction adds.
    pub fn added_chains(&self) -> impl Iterator<Item = &str> {
        self.operations
            .iter()
            .filter_map(|(_, operation)| match operation {
                Operation::AddChain(name, _) => Some(name.as_str()),
                _ => None,
            })
    }

    /// Begins operations on a table, which are appended to the transaction.
    pub fn on<'a>(&'a mut self, table: &'a Table) -> OnTable<'a> {
        OnTable {
            transaction: self,
            table,
        }
    }
}

/// Appends operations on one table to a transaction. The kernel carries out the operations in the order in which they
/// were appended.
#[derive(Debug)]
pub struct OnTable<'a> {
    transaction: &'a mut Transaction,
    table: &'a Table,
}

impl OnTable<'_> {
    /// Returns the table's family.
    pub fn family(&self) -> Family {
        self.table.family
    }

    fn push(&mut self, operation: Operation) -> &mut Self {
        let table = self.table.clone();
        self.transaction.operations.push((table, operation));
        self
    }

    /// Adds the table. A table that exists already keeps its content.
    pub fn add_table(&mut self) -> &mut Self {
        self.push(Operation::AddTable)
    }

    /// Removes the table with its content. If the table does not exist, the kernel refuses the transaction.
    pub fn delete_table(&mut self) -> &mut Self {
        self.push(Operation::DeleteTable)
    }

    /// Makes an empty table, in place of an existing one.
    pub fn replace_table(&mut self) -> &mut Self {
        self.add_table().delete_table().add_table()
    }

    /// Removes the rules of all chains of the table.
    pub fn flush_table(&mut self) -> &mut Self {
        self.push(Operation::FlushTable)
    }

    /// Adds the chain. A chain that exists already keeps its rules. If the existing chain has another type, hook or
    /// priority, the kernel refuses the transaction.
    pub fn add_chain(&mut self, name: impl Into<String>, base: Option<BaseChain>) -> &mut Self {
        self.push(Operation::AddChain(name.into(), base))
    }

    /// Removes the chain's rules.
    pub fn flush_chain(&mut self, name: impl Into<String>) -> &mut Self {
        self.push(Operation::FlushChain(name.into()))
    }

    /// Removes a chain. If a rule or an element leads to the chain, the kernel refuses the transaction with EBUSY.
    /// Before Linux 6.2, elements that the same transaction deletes count too.
    pub fn delete_chain(&mut self, name: impl Into<String>) -> &mut Self {
        self.push(Operation::DeleteChain(name.into()))
    }

    /// Appends a rule to a chain.
    pub fn add_rule(&mut self, chain: impl Into<String>, rule: Rule) -> &mut Self {
        self.push(Operation::AddRule(chain.into(), rule))
    }

    /// Adds the set. A set that exists already keeps its elements.
    pub fn add_set(&mut self, set: Set) -> &mut Self {
        self.push(Operation::AddSet(set))
    }

    /// Removes a set, which no rule may use any more.
    pub fn delete_set(&mut self, name: impl Into<String>) -> &mut Self {
        self.push(Operation::DeleteSet(name.into()))
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, name: impl Into<String>) -> &mut Self {
        self.push(Operation::FlushSet(name.into()))
    }

    /// Adds elements. A set ignores elements that it already has. If a map has another value for an element, the kernel
    /// refuses the transaction.
    pub fn add_elements(&mut self, set: impl Into<String>, elements: Vec<Element>) -> &mut Self {
        match elements.is_empty() {
            true => self,
            false => self.push(Operation::AddElements(set.into(), elements)),
        }
    }

    /// Deletes elements. If one of the elements does not exist, the kernel refuses the transaction.
    pub fn delete_elements(&mut self, set: impl Into<String>, elements: Vec<Element>) -> &mut Self {
        match elements.is_empty() {
            true => self,
            false => self.push(Operation::DeleteElements(set.into(), elements)),
        }
    }
}

impl Transaction {
    /// Returns the kernel's number of uses of each chain of `table` after this transaction, if the table did not exist
    /// before. The number counts the chain's rules, and the rules and elements that lead to the chain
    /// ([`super::ChainState::uses`]).
    pub fn chain_uses(&self, table: &Table) -> BTreeMap<&str, u32> {
        let mut uses = BTreeMap::new();
        for (_, operation) in self.operations.iter().filter(|(on, _)| on == table) {
            match operation {
                Operation::AddChain(name, _) => {
                    uses.entry(name.as_str()).or_insert(0);
                }
                Operation::AddRule(chain, rule) => {
                    *uses.entry(chain).or_insert(0) += 1;
                    for to in rule.expressions.iter().flat_map(chains_of) {
                        *uses.entry(to).or_insert(0) += 1;
                    }
                }
                Operation::AddElements(_, elements) => {
                    let verdicts = elements.iter().filter_map(Element::chain);
                    verdicts.for_each(|to| *uses.entry(to).or_insert(0) += 1);
                }
                _ => {}
            }
        }
        uses
    }

    /// Returns the operation at `index` in words for a person: "add rule to chain x of table ip y".
    pub(super) fn describe(&self, index: usize) -> String {
        let Some((table, operation)) = self.operations.get(index) else {
            return "commit the transaction".to_owned();
        };
        let what = match operation {
            Operation::AddTable => return format!("add {table}"),
            Operation::DeleteTable => return format!("delete {table}"),
            Operation::FlushTable => return format!("flush {table}"),
            Operation::AddChain(name, None) => format!("add chain {name}"),
            Operation::AddChain(name, Some(base)) => {
                let kind = format!("{:?} chain at hook {:?}", base.kind, base.hook).to_lowercase();
                format!("add {kind}, {name},")
            }
            Operation::FlushChain(name) => format!("flush chain {name}"),
            Operation::DeleteChain(name) => format!("delete chain {name}"),
            Operation::AddRule(chain, _) => format!("add rule to chain {chain}"),
            Operation::AddSet(set) => format!("add set {}", set.name),
            Operation::DeleteSet(name) => format!("delete set {name}"),
            Operation::FlushSet(name) => format!("flush set {name}"),
            Operation::AddElements(set, all) => format!("add {} elements to set {set}", all.len()),
            Operation::DeleteElements(set, all) => {
                format!("delete {} elements of set {set}", all.len())
            }
        };
        format!("{what} of {table}")
    }
}

/// Returns the chains to which an expression leads.
fn chains_of(expression: &Expression) -> Vec<&str> {
    match expression {
        Expression::Verdict(verdict) => verdict.chain().into_iter().collect(),
        Expression::Lookup {
            set: SetName::Anonymous(set),
            ..
        } => set.elements.iter().filter_map(Element::chain).collect(),
        _ => Vec::new(),
    }
}

/// Writes one line for each operation.
impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.operations.len()).try_for_each(|index| writeln!(f, "{}", self.describe(index)))
    }
}
