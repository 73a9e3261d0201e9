//! The data path `nftables`. The data path owns the socket to the kernel, and a copy of the table that it has
//! programmed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use super::flows::Ending;
use super::plan::{self, FAMILIES, uses};
use crate::base::clock::Moment;
use crate::net::netfilter::{Family, Netfilter, NetfilterError, Table, Transaction};
use crate::net::proxy::{Applied, DataPath, ProxyError};
use crate::net::services::table::{Backends, ServiceTable};

/// The time for which an unused chain is kept before it is removed. Before Linux 6.2, a deleted element still
/// refers to its chain for a moment, so the kernel would refuse to remove the chain.
const CHAIN_REST: Duration = Duration::from_secs(1);

/// The data path in the kernel's packet filter. The tables are in the network namespace of the thread that made
/// this value.
#[derive(Debug)]
pub struct Nftables {
    netfilter: Netfilter,
    /// The name of the tables, `<id>-services`. Each address family has a table with this name.
    name: String,
    /// The reason why IPv6 is left out, if the kernel does not support it.
    pub(super) no_ip6: Option<NetfilterError>,
    programmed: Option<Programmed>,
}

/// The state of the kernel's tables, as far as this process knows.
#[derive(Debug)]
struct Programmed {
    table: ServiceTable,
    /// The address families that have a table.
    families: Vec<Family>,
    /// The generation of all rules right after the last transaction of this process. `None` means that somebody
    /// else changed rules during that transaction.
    generation: Option<u32>,
    /// The chains that are no longer used, each with the time since when it has been unused.
    left: BTreeMap<(Family, String), Moment>,
}

impl Nftables {
    /// Makes a data path with tables `<id>-services`. Tests what the kernel supports.
    ///
    /// # Errors
    /// Returns [`NetfilterError`] if the kernel lacks a needed part, so that another data path can take over. A
    /// lack of IPv6 alone is no error: IPv6 addresses of services are left out, and [`Applied::warning`] reports
    /// the lack.
    pub fn new(id: &str) -> Result<Self, NetfilterError> {
        let mut netfilter = Netfilter::open()?;
        let probe = format!("{id}-probe");
        netfilter.can_translate(Family::Ip, &probe)?;
        let no_ip6 = netfilter.can_translate(Family::Ip6, &probe).err();
        Ok(Self {
            netfilter,
            name: format!("{id}-services"),
            no_ip6,
            programmed: None,
        })
    }

    /// Returns the address families that get a table for `next`.
    fn families(&self, next: &ServiceTable) -> Vec<Family> {
        let can = |family| family == Family::Ip || self.no_ip6.is_none();
        let families = FAMILIES.into_iter();
        families.filter(|f| can(*f) && uses(next, *f)).collect()
    }

    /// Returns a warning if the table has IPv6 addresses and the kernel does not support IPv6; otherwise `None`.
    fn left_out(&self, next: &ServiceTable) -> Option<String> {
        let error = self.no_ip6.as_ref().filter(|_| uses(next, Family::Ip6))?;
        Some(format!("services have no IPv6 addresses: {error}"))
    }

    fn table(&self, family: Family) -> Table {
        Table {
            family,
            name: self.name.clone(),
        }
    }

    /// Commits a transaction and returns the resulting generation. Returns `None` if somebody else changed rules
    /// during the transaction.
    fn commit(&mut self, transaction: &Transaction) -> Result<Option<u32>, NetfilterError> {
        let before = self.netfilter.generation()?;
        self.netfilter.commit(transaction)?;
        let after = self.netfilter.generation()?;
        Ok((after == before.wrapping_add(1)).then_some(after))
    }

    /// Tells whether the kernel still has the tables that were programmed. Returns true if nothing was programmed.
    fn is_intact(&mut self) -> Result<bool, NetfilterError> {
        let generation = self.netfilter.generation()?;
        let Some(programmed) = self.programmed.take() else {
            return Ok(true);
        };
        let known = programmed.generation == Some(generation);
        let intact = known || self.has_chains(&programmed)?;
        self.programmed = Some(Programmed {
            generation: intact.then_some(generation),
            ..programmed
        });
        Ok(intact)
    }

    fn has_chains(&mut self, programmed: &Programmed) -> Result<bool, NetfilterError> {
        for family in &programmed.families {
            let table = self.table(*family);
            let left = programmed.left.keys();
            let left = left.filter(|(f, _)| f == family).map(|(_, name)| name);
            let left: BTreeSet<String> = left.cloned().collect();
            let expected = plan::chain_uses(&programmed.table, &table);
            let found = self.netfilter.chains(&table)?;
            if !plan::is_intact(&expected, &left, &found) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Programs everything. If possible, reuses the tables of an earlier daemon, so the session affinities in
    /// these tables stay.
    fn program_all(&mut self, next: &ServiceTable, now: Moment) -> Result<(), NetfilterError> {
        let families = self.families(next);
        let (transaction, left) = self.all_into_tables(next, &families)?;
        let generation = match self.commit(&transaction) {
            // Chains and maps of another version of podprobe may conflict with the new ones. In that case the
            // tables are replaced.
            Err(_) => {
                let mut all = Transaction::new();
                for family in &families {
                    all.append(plan::from_nothing(next, &self.table(*family)));
                }
                self.programmed = None;
                return self.commit(&all).map(|generation| {
                    self.done(next, families, generation, BTreeMap::new());
                });
            }
            generation => generation?,
        };
        let left = left.into_iter().map(|chain| (chain, now)).collect();
        self.done(next, families, generation, left);
        Ok(())
    }

    fn all_into_tables(
        &mut self,
        next: &ServiceTable,
        families: &[Family],
    ) -> Result<(Transaction, Vec<(Family, String)>), NetfilterError> {
        let mut all = Transaction::new();
        let mut left = Vec::new();
        for &family in FAMILIES.iter() {
            let table = self.table(family);
            match (families.contains(&family), self.netfilter.table(&table)) {
                (true, there) => {
                    // If the table does not exist, the lists of chains and sets are empty.
                    there?;
                    let chains = self.netfilter.chains(&table)?;
                    let sets = self.netfilter.sets(&table)?;
                    let (one, chains) = plan::into_table(next, &table, &chains, &sets);
                    all.append(one);
                    left.extend(chains.into_iter().map(|chain| (family, chain)));
                }
                (false, Ok(Some(_))) => {
                    all.on(&table).delete_table();
                }
                // If the kernel has no IPv6, even the query may fail.
                (false, _) => {}
            }
        }
        Ok((all, left))
    }

    fn done(
        &mut self,
        table: &ServiceTable,
        families: Vec<Family>,
        generation: Option<u32>,
        left: BTreeMap<(Family, String), Moment>,
    ) {
        self.programmed = Some(Programmed {
            table: table.clone(),
            families,
            generation,
            left,
        });
    }

    /// Programs the differences between the current table and `next`, and returns the current table. Returns
    /// `None` if everything must be programmed instead.
    fn program_differences(
        &mut self,
        next: &ServiceTable,
        now: Moment,
    ) -> Result<Option<ServiceTable>, NetfilterError> {
        let families = self.families(next);
        let Some(mut programmed) = self.programmed.take().filter(|p| p.families == families) else {
            return Ok(None);
        };
        let mut all = Transaction::new();
        for family in families {
            let (one, left) = plan::differences(&programmed.table, next, &self.table(family));
            // A chain that was unused may be used again. Such a chain must not be removed.
            let used: BTreeSet<&str> = one.added_chains().collect();
            programmed
                .left
                .retain(|(f, name), _| *f != family || !used.contains(name.as_str()));
            let left = left.into_iter().map(|name| ((family, name), now));
            programmed.left.extend(left);
            all.append(one);
        }
        if !all.is_empty() {
            programmed.generation = self.commit(&all)?;
        }
        let before = std::mem::replace(&mut programmed.table, next.clone());
        self.programmed = Some(programmed);
        Ok(Some(before))
    }

    /// Removes chains that have been unused for `CHAIN_REST`. If the removal fails, these chains are kept for
    /// another `CHAIN_REST`.
    fn remove_left(&mut self, now: Moment) {
        let Some(mut programmed) = self.programmed.take() else {
            return;
        };
        let rested = |since: &Moment| now.since(*since) >= CHAIN_REST;
        let mut transaction = Transaction::new();
        for ((family, name), _) in programmed.left.iter().filter(|(_, since)| rested(since)) {
            transaction
                .on(&self.table(*family))
                .delete_chain(name.as_str());
        }
        if !transaction.is_empty() {
            match self.commit(&transaction) {
                Ok(generation) => {
                    programmed.left.retain(|_, since| !rested(since));
                    programmed.generation = generation;
                }
                Err(e) => {
                    log::debug!("unused chains stay for now: {e}");
                    programmed.left.values_mut().for_each(|since| *since = now);
                }
            }
        }
        self.programmed = Some(programmed);
    }

    fn end_flows(
        &mut self,
        before: Option<&ServiceTable>,
        next: &ServiceTable,
    ) -> Result<usize, NetfilterError> {
        let mut ended = 0;
        for family in FAMILIES {
            let ending = Ending::of(before, next, family);
            for protocol in ending.protocols() {
                let flows = self.netfilter.flows(family, protocol)?;
                for flow in flows.iter().filter(|flow| ending.ends(flow)) {
                    ended += usize::from(self.netfilter.forget(flow)?);
                }
            }
        }
        Ok(ended)
    }

    /// Does the work of [`DataPath::apply`]. `now` decides which unused chains can be removed.
    pub(super) fn apply_at(
        &mut self,
        next: &ServiceTable,
        now: Moment,
    ) -> Result<Applied, ProxyError> {
        let applied = self.program(next, now)?;
        self.remove_left(now);
        Ok(applied)
    }

    fn program(&mut self, next: &ServiceTable, now: Moment) -> Result<Applied, ProxyError> {
        let repaired = !self.is_intact()?;
        if repaired {
            self.programmed = None;
        }
        let mut applied = Applied {
            repaired,
            unreachable: unreachable(next),
            warning: self.left_out(next),
            ..Applied::default()
        };
        if self.programmed.as_ref().is_some_and(|p| p.table == *next) {
            return Ok(applied);
        }
        applied.changed = true;
        let before = match self.program_differences(next, now) {
            Ok(Some(before)) => Some(before),
            // The differences could not be programmed, or there is no current table. So everything is programmed
            // instead.
            Ok(None) | Err(_) => {
                applied.full = true;
                self.program_all(next, now)?;
                None
            }
        };
        match self.end_flows(before.as_ref(), next) {
            Ok(ended) => applied.flows_ended = ended,
            Err(e) => applied.warning = Some(format!("some clients may reach old endpoints: {e}")),
        }
        Ok(applied)
    }
}

impl DataPath for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn apply(&mut self, next: &ServiceTable) -> Result<Applied, ProxyError> {
        self.apply_at(next, Moment::now())
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        self.programmed = None;
        let mut all = Transaction::new();
        for family in FAMILIES {
            let table = self.table(family);
            if let Ok(Some(_)) = self.netfilter.table(&table) {
                all.on(&table).delete_table();
            }
        }
        let any = !all.is_empty();
        self.netfilter.commit(&all)?;
        Ok(any)
    }
}

/// Counts the endpoints to which the kernel cannot send, because these endpoints are reachable only inside of
/// their pod's namespace.
fn unreachable(table: &ServiceTable) -> usize {
    let backends = table
        .services
        .iter()
        .flat_map(|entry| match &entry.internal {
            Backends::Some(all) => &all[..],
            Backends::Reject | Backends::Drop => &[],
        });
    backends.filter(|b| b.namespace.is_some()).count()
}
