//! The packet filter of the network of pods: programs the tables ([`super::tables`]) into the kernel.
//!
//! Invariants: each change is one transaction. A change of one pod costs the same on a node with few pods and on a
//! node with many, because the kernel gets the difference only. The kernel gets all tables only if the tables
//! themselves change, or if it is not certain that the kernel has the tables that were programmed last.

use std::sync::Mutex;

use super::attachment::{Attachment, Attachments};
use super::tables::Tables;
use crate::base::locks::Locked;
use crate::net::netfilter::{ChainState, Family, Netfilter, NetfilterError, Table};

/// The tables of podprobe, and the socket to the kernel.
#[derive(Debug)]
pub(super) struct PacketFilter {
    tables: Tables,
    /// The socket stays open between transactions. When a process closes its socket, the kernel waits about 10 ms
    /// until no packet uses the replaced rules. A new pod would have to wait for this time, too.
    socket: Mutex<Option<Netfilter>>,
}

/// The parts of the packet filter that the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::network) struct Abilities {
    /// True if the kernel can translate addresses.
    pub(in crate::network) nat: bool,
    /// True if the kernel can filter the frames of a bridge.
    pub(in crate::network) frames: bool,
}

/// The changes that somebody else has made to the packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nothing has changed since the last transaction of podprobe.
    Same,
    /// The packet filter has changed, but not podprobe's chains. The change may be in the tables of other programs
    /// or in the members of podprobe's sets.
    Others,
    /// Podprobe's chains have changed.
    Ours,
}

/// The tables that the kernel had after the last transaction of podprobe.
#[derive(Debug, Default)]
pub(super) struct Programmed {
    generation: u32,
    chains: Vec<ChainState>,
    /// The sandboxes that the tables were made for; None before the first transaction and after a failed
    /// transaction.
    of: Option<Attachments>,
}

impl Programmed {
    /// Tells whether nothing has been programmed yet, or the last transaction failed.
    pub(super) fn is_new(&self) -> bool {
        self.of.is_none()
    }
}

impl PacketFilter {
    pub(super) fn new(id: &str, bridge: &str, can: Abilities) -> Self {
        let name = format!("{id}-network");
        let families = [Family::Ip, Family::Ip6, Family::Bridge].into_iter();
        let known = families.filter(|family| match family {
            Family::Bridge => can.frames,
            _ => can.nat,
        });
        let known = known.map(|family| Table {
            family,
            name: name.clone(),
        });
        Self {
            tables: Tables::new(known.collect(), bridge),
            socket: Mutex::default(),
        }
    }

    /// Asks the kernel the question `question` on the kept socket. After a failure the next call opens a new
    /// socket.
    fn ask<T>(
        &self,
        question: impl FnOnce(&mut Netfilter) -> Result<T, NetfilterError>,
    ) -> Result<T, NetfilterError> {
        let mut kept = self.socket.locked();
        let mut kernel = match kept.take() {
            Some(kernel) => kernel,
            None => Netfilter::open()?,
        };
        let answer = question(&mut kernel)?;
        *kept = Some(kernel);
        Ok(answer)
    }

    /// Makes the kernel's tables fit `attachments`. Without sandboxes, removes the tables. `last` holds the tables
    /// that were programmed before.
    pub(super) fn program(
        &self,
        attachments: Attachments,
        last: &mut Programmed,
    ) -> Result<(), NetfilterError> {
        if self.tables.are_none() {
            return Ok(());
        }
        self.ask(|kernel| {
            let before = last.of.take();
            let difference =
                before.and_then(|before| self.tables.difference(&before, &attachments));
            let is_told = match difference {
                Some(difference) => {
                    let at_first = kernel.generation()?;
                    let told = kernel.commit(&difference).is_ok();
                    let commits = u32::from(!difference.is_empty());
                    // If somebody else has changed the packet filter in between, `last` keeps the old generation.
                    // So the next check finds this change.
                    if at_first == last.generation
                        && kernel.generation()? == at_first.wrapping_add(commits)
                    {
                        last.generation = at_first.wrapping_add(commits);
                    }
                    told
                }
                None => false,
            };
            if !is_told {
                kernel.commit(&self.tables.whole(&attachments))?;
                (last.chains, last.generation) = self.look(kernel)?;
            }
            last.of = Some(attachments);
            Ok(())
        })
    }

    /// Programs the tables for `attachments` completely. [`PacketFilter::program`] may program only the
    /// difference.
    pub(super) fn program_anew(
        &self,
        attachments: Attachments,
        last: &mut Programmed,
    ) -> Result<(), NetfilterError> {
        last.of = None;
        self.program(attachments, last)
    }

    /// Returns the transaction that changes the tables in `last` into those for `attachments`.
    #[cfg(test)]
    pub(super) fn difference(
        &self,
        attachments: &Attachments,
        last: &Programmed,
    ) -> Option<crate::net::netfilter::Transaction> {
        self.tables.difference(last.of.as_ref()?, attachments)
    }

    /// Tells what somebody else has changed in the packet filter since the transaction that made `since`.
    pub(super) fn look_since(&self, since: &Programmed) -> Result<Since, NetfilterError> {
        if self.tables.are_none() {
            return Ok(Since::Same);
        }
        self.ask(|kernel| {
            if kernel.generation()? == since.generation {
                return Ok(Since::Same);
            }
            let (chains, _) = self.look(kernel)?;
            Ok(match chains == since.chains {
                true => Since::Others,
                false => Since::Ours,
            })
        })
    }

    /// Returns the chains of podprobe's tables, and the generation that the packet filter had when the chains were
    /// read.
    fn look(&self, kernel: &mut Netfilter) -> Result<(Vec<ChainState>, u32), NetfilterError> {
        let mut chains = Vec::new();
        for table in self.tables.known() {
            chains.extend(kernel.chains(table)?);
        }
        Ok((chains, kernel.generation()?))
    }
}

/// Tests what the kernel can do, in the network namespace of the calling thread. Returns the abilities of the
/// kernel, and an error for each missing ability.
pub(in crate::network) fn abilities() -> (Abilities, Vec<NetfilterError>) {
    let sample = Attachments::from([("check".to_owned(), Attachment::sample().into())]);
    let mut errors = Vec::new();
    let mut can = |abilities: Abilities| {
        let filter = PacketFilter::new("check", "check", abilities);
        let programmed = filter.program(sample.clone(), &mut Programmed::default());
        programmed.map_err(|e| errors.push(e)).is_ok()
    };
    let nat = can(Abilities {
        nat: true,
        frames: false,
    });
    let frames = can(Abilities {
        nat: false,
        frames: true,
    });
    (Abilities { nat, frames }, errors)
}
