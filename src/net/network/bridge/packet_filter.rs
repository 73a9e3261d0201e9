//! The packet filter's part in the network of pods ([`super::tables`]), and how the kernel gets it.
//!
//! Invariants: each change is one transaction. What a pod changes costs the same beside any number of others: the kernel is told
//! the difference; it is told all of it where the tables themselves change, or where they are not known to be what was told.

use std::sync::Mutex;

use super::attachment::{Attachment, Attachments};
use super::tables::Tables;
use crate::base::locks::Locked;
use crate::net::netfilter::{ChainState, Family, Netfilter, NetfilterError, Table};

/// Our tables and the way to the kernel.
#[derive(Debug)]
pub(super) struct PacketFilter {
    tables: Tables,
    /// Kept open: the kernel holds up who closes one until everybody has left the rules that were replaced, 10 ms, and a pod
    /// would wait for that.
    socket: Mutex<Option<Netfilter>>,
}

/// Which parts of the packet filter the kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::net::network) struct Abilities {
    /// Translation of addresses.
    pub(in crate::net::network) nat: bool,
    /// The filter of frames.
    pub(in crate::net::network) frames: bool,
}

/// The traces that changes by somebody else have left in the packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Nothing has changed.
    Same,
    /// Other tables have changed, and perhaps what our chains look up.
    Others,
    /// Our chains are not as they were.
    Ours,
}

/// The tables as the kernel had them after a transaction of ours.
#[derive(Debug, Default)]
pub(super) struct Programmed {
    generation: u32,
    chains: Vec<ChainState>,
    /// The sandboxes that they are of; None before the first transaction and after one that failed.
    of: Option<Attachments>,
}

impl Programmed {
    /// Nothing has been told yet.
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

    /// Asks the kernel a question on the socket that is kept. After a failure the next question gets a new socket.
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

    /// Makes the tables those of these sandboxes; of none, there are no tables. `last` is what they were told before.
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
                    // What somebody else has changed in between, the next look finds.
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

    /// Programs all of the tables as [`PacketFilter::program`] does, whatever they were told before.
    pub(super) fn program_anew(
        &self,
        attachments: Attachments,
        last: &mut Programmed,
    ) -> Result<(), NetfilterError> {
        last.of = None;
        self.program(attachments, last)
    }

    /// Returns the transaction that leads from the tables in `last` to those of `attachments`.
    #[cfg(test)]
    pub(super) fn difference(
        &self,
        attachments: &Attachments,
        last: &Programmed,
    ) -> Option<crate::net::netfilter::Transaction> {
        self.tables.difference(last.of.as_ref()?, attachments)
    }

    /// Tells what somebody else has changed in the packet filter since the transaction that `since` describes.
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

    /// The chains, and the generation in which they were read.
    fn look(&self, kernel: &mut Netfilter) -> Result<(Vec<ChainState>, u32), NetfilterError> {
        let mut chains = Vec::new();
        for table in self.tables.known() {
            chains.extend(kernel.chains(table)?);
        }
        Ok((chains, kernel.generation()?))
    }
}

/// Tries what the kernel can do, in the namespace of the calling thread. Returns its abilities, and an error for each that
/// it lacks.
pub(in crate::net::network) fn abilities() -> (Abilities, Vec<NetfilterError>) {
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
