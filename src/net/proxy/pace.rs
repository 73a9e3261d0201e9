//! Decides when a changed table of services, and changed names, come into force.
//!
//! Invariants: pure; the time is an argument. The removal of an endpoint comes into force at once. Additions wait
//! for further additions, at most [`GATHER`] in all.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::net::services::names::{NameTarget, Names};
use crate::net::services::table::{Backend, Backends, ServicePortName, ServiceTable};

/// The longest time for which additions are gathered.
pub const GATHER: Duration = Duration::from_millis(100);

/// The decision when a changed table, or changed names, come into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do nothing, because the current table or names are in force.
    Rest,
    /// Apply the change at once.
    Apply,
    /// Apply the change at this moment, or earlier if it becomes urgent.
    Wait(Moment),
}

impl Step {
    /// Returns the moment until which to wait, or `None` if there is nothing to wait for.
    pub fn wait(self) -> Option<Moment> {
        match self {
            Self::Wait(until) => Some(until),
            Self::Rest | Self::Apply => None,
        }
    }
}

/// The pacing of changes: decides when a changed table, or changed names, come into force.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// The time since when a change has been waiting.
    waiting: Option<Moment>,
}

impl Pace {
    /// Decides when the table `wanted` replaces `applied`, which is in force.
    pub fn step(&mut self, now: Moment, applied: &ServiceTable, wanted: &ServiceTable) -> Step {
        match applied == wanted {
            true => self.rest(),
            false => self.change(now, takes_away(applied, wanted)),
        }
    }

    /// Decides when the names `wanted` replace `applied`, which are in force. The first names come into force at
    /// once, because a new pod waits for names.
    pub fn step_names(
        &mut self,
        now: Moment,
        applied: Option<&Names>,
        wanted: Option<&Names>,
    ) -> Step {
        if applied == wanted {
            return self.rest();
        }
        let (Some(applied), Some(wanted)) = (applied, wanted) else {
            return self.change(now, true);
        };
        let before = leads(applied);
        let goes = !before.is_subset(&leads(wanted));
        self.change(now, goes)
    }

    fn rest(&mut self) -> Step {
        self.waiting = None;
        Step::Rest
    }

    fn change(&mut self, now: Moment, is_urgent: bool) -> Step {
        let due = *self.waiting.get_or_insert(now) + GATHER;
        if now < due && !is_urgent {
            return Step::Wait(due);
        }
        self.waiting = None;
        Step::Apply
    }
}

/// Returns each name of a service together with each address to which the name resolves.
fn leads(names: &Names) -> BTreeSet<(&str, &str, IpAddr)> {
    let mut all = BTreeSet::new();
    for service in &names.services {
        let to = |ip: &IpAddr| (&*service.namespace, &*service.name, *ip);
        match &service.target {
            NameTarget::ClusterIps { addresses, .. } => all.extend(addresses.iter().map(to)),
            NameTarget::Headless(endpoints) => {
                let ready = endpoints.iter().filter(|e| e.ready);
                all.extend(ready.map(|e| to(&e.address)));
            }
            NameTarget::ExternalName(_) => {}
        }
    }
    all
}

/// Tells whether `applied` sends clients to an endpoint to which `wanted` no longer sends these clients.
fn takes_away(applied: &ServiceTable, wanted: &ServiceTable) -> bool {
    let wanted = routes(wanted);
    routes(applied).iter().any(|route| !wanted.contains(route))
}

/// A service port, the index of a kind of clients, and a backend that these clients may reach.
type Route<'a> = (&'a ServicePortName, usize, &'a Backend);

fn routes(table: &ServiceTable) -> BTreeSet<Route<'_>> {
    let mut all = BTreeSet::new();
    for service in &table.services {
        for (clients, backends) in service.lists().into_iter().enumerate() {
            if let Backends::Some(backends) = backends {
                all.extend(backends.iter().map(|b| (&service.name, clients, b)));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::api::service::{Cidr, Protocol};
    use crate::net::services::names::{EndpointNames, ServiceNames};
    use crate::net::services::table::ServicePortEntry;

    fn table(backends: &[u16]) -> ServiceTable {
        let backend = |port: &u16| SocketAddr::from(([10, 0, 0, 1], *port)).into();
        let backends = backends.iter().map(backend).collect();
        ServiceTable {
            services: vec![ServicePortEntry::new(
                ServicePortName {
                    namespace: "default".into(),
                    service: "web".into(),
                    port: String::new(),
                    protocol: Protocol::Tcp,
                },
                80,
                vec![[10, 96, 0, 7].into()],
                backends,
            )],
            ..ServiceTable::default()
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    #[test]
    fn what_comes_is_gathered_and_what_goes_goes_at_once() {
        let mut pace = Pace::default();
        let one = table(&[1]);
        assert_eq!(pace.step(at(0), &one, &one), Step::Rest);
        assert_eq!(pace.step(at(5), &one, &table(&[1, 2])), Step::Wait(at(105)));
        assert_eq!(
            pace.step(at(60), &one, &table(&[1, 2, 3])),
            Step::Wait(at(105))
        );
        assert_eq!(pace.step(at(105), &one, &table(&[1, 2, 3])), Step::Apply);
        assert_eq!(pace.step(at(106), &one, &table(&[2])), Step::Apply);
        assert_eq!(pace.step(at(107), &one, &table(&[])), Step::Apply);
        assert_eq!(
            pace.step(at(108), &one, &ServiceTable::default()),
            Step::Apply
        );
    }

    fn names(ready: &[u8], clients: usize) -> Names {
        let endpoint = |last: &u8| EndpointNames {
            address: [10, 0, 0, *last].into(),
            hostname: None,
            ready: true,
            ports: Vec::new(),
        };
        Names {
            clients: vec![Cidr::v4([10, 0, 0, 0], 24); clients],
            services: vec![ServiceNames {
                namespace: "default".into(),
                name: "web".into(),
                target: NameTarget::Headless(ready.iter().map(endpoint).collect()),
            }],
            ..Names::default()
        }
    }

    #[test]
    fn names_that_come_are_gathered_and_those_that_go_go_at_once() {
        let mut pace = Pace::default();
        let one = names(&[1], 0);
        let mut step = |ms, wanted: Option<&Names>| pace.step_names(at(ms), Some(&one), wanted);
        assert_eq!(step(0, Some(&one)), Step::Rest);
        assert_eq!(step(5, Some(&names(&[1, 2], 0))), Step::Wait(at(105)));
        assert_eq!(step(60, Some(&names(&[1, 2], 1))), Step::Wait(at(105)));
        assert_eq!(step(105, Some(&names(&[1, 2], 1))), Step::Apply);
        assert_eq!(step(106, Some(&names(&[2], 0))), Step::Apply);
        assert_eq!(step(107, None), Step::Apply);
        assert_eq!(pace.step_names(at(108), None, Some(&one)), Step::Apply);
    }

    /// A change that is undone before it was in force no longer waits. The next change waits for the full time.
    #[test]
    fn the_time_counts_from_the_first_that_waits() {
        let mut pace = Pace::default();
        let (one, two) = (table(&[1]), table(&[1, 2]));
        assert_eq!(pace.step(at(0), &one, &two), Step::Wait(at(100)));
        assert_eq!(pace.step(at(50), &one, &one), Step::Rest);
        assert_eq!(pace.step(at(90), &one, &two), Step::Wait(at(190)));
    }
}
