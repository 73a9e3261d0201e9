//! The endpoints of each service port, and how many use it.
//!
//! Invariants: a connection keeps the key of its port, which leads nowhere when the port is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use super::balancer::LoadBalancerRR;
use super::plan::Plan;
use crate::base::clock::{Moment, random_fraction};
use crate::net::proxyd::message::{Clients, HandedAffinity};
use crate::net::proxyd::slab::{Key, Slab};
use crate::net::services::table::{Backend, ServicePortName};

/// A list of endpoints: a service port has one for each kind of clients and each family, true for IPv6.
type PoolName = (ServicePortName, Clients, bool);

/// The kinds in the order in which a port names its lists.
const KINDS: [(Clients, bool); 6] = [
    (Clients::Internal, false),
    (Clients::Internal, true),
    (Clients::Inside, false),
    (Clients::Inside, true),
    (Clients::External, false),
    (Clients::External, true),
];

/// How many clients keep their endpoints when another process takes over: about 5 MB as JSON.
const MOST_AFFINITIES: usize = 20_000;

/// The most endpoints that are passed over because they did not answer.
const MOST_SKIPPED: usize = 16;

/// Returns a short name of an endpoint, to know it again; never 0.
pub fn fingerprint(backend: &Backend) -> u32 {
    let mut hasher = DefaultHasher::new();
    backend.hash(&mut hasher);
    hasher.finish() as u32 | 1
}

/// A service port.
#[derive(Debug)]
pub struct Port {
    /// How many connections the port has now.
    pub connections: u32,
    pools: [PoolName; 6],
    /// The endpoints for each kind of client, in the order of [`Clients`].
    backends: [BTreeSet<Backend>; 3],
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pools {
    ports: Slab<Port>,
    by_name: BTreeMap<ServicePortName, Key>,
    balancer: LoadBalancerRR<PoolName>,
}

impl Pools {
    /// Takes over the endpoints of a plan.
    pub fn apply(&mut self, plan: &Plan) {
        let wanted: BTreeSet<&ServicePortName> = plan.pools.iter().map(|p| &p.name).collect();
        self.balancer.retain(|(name, ..)| wanted.contains(name));
        let ports = &mut self.ports;
        self.by_name.retain(|name, key| {
            let stays = wanted.contains(name);
            if !stays {
                ports.remove(*key);
            }
            stays
        });
        for pool in &plan.pools {
            let names = KINDS.map(|(clients, v6)| (pool.name.clone(), clients, v6));
            for name in &names {
                let all = pool.lists[name.1 as usize].iter();
                let of_family = all.filter(|b| b.address.is_ipv6() == name.2);
                let of_family: Vec<Backend> = of_family.cloned().collect();
                self.balancer.new_service(name, pool.affinity);
                self.balancer
                    .set_endpoints(name, &of_family, random_fraction);
            }
            let backends = pool.lists.clone().map(BTreeSet::from_iter);
            let known = self.by_name.get(&pool.name);
            match known.and_then(|key| self.ports.get_mut(*key)) {
                Some(port) => port.backends = backends,
                None => {
                    let port = Port {
                        connections: 0,
                        pools: names,
                        backends,
                    };
                    let key = self.ports.insert(port);
                    self.by_name.insert(pool.name.clone(), key);
                }
            }
        }
    }

    /// Returns the key of a service port.
    pub fn find(&self, name: &ServicePortName) -> Option<Key> {
        self.by_name.get(name).copied()
    }

    /// Returns the name of a service port.
    pub fn name(&self, key: Key) -> Option<&ServicePortName> {
        Some(&self.ports.get(key)?.pools[0].0)
    }

    /// Returns a service port.
    pub fn port(&mut self, key: Key) -> Option<&mut Port> {
        self.ports.get_mut(key)
    }

    /// Returns how many connections a service port has now.
    pub fn connections(&self, key: Key) -> u32 {
        self.ports.get(key).map_or(0, |p| p.connections)
    }

    /// Chooses the endpoint for a client, of the client's own family. Returns `None` if the service port is gone or has no
    /// endpoint for such clients. `tried` has the [`fingerprint`]s of the endpoints that did not answer; another endpoint is
    /// taken if there is one.
    pub fn next(
        &mut self,
        key: Key,
        clients: Clients,
        client: IpAddr,
        tried: &[u32],
        now: Moment,
    ) -> Option<Backend> {
        let port = self.ports.get(key)?;
        // A client keeps its endpoint whichever address of the service it uses, where the endpoints are the same.
        let own = &port.backends[clients as usize];
        let list = port.backends.iter().position(|list| list == own)?;
        let name = &port.pools[list * 2 + usize::from(client.is_ipv6())];
        let choices = self.balancer.endpoints(name).len();
        let reset = !tried.is_empty();
        let mut next = || self.balancer.next_endpoint(name, client, reset, now).ok();
        let mut found = next()?;
        // Others have moved the round robin on since the last attempt, perhaps once around.
        for _ in 1..choices.min(MOST_SKIPPED) {
            if !tried.contains(&fingerprint(&found)) {
                break;
            }
            found = next()?;
        }
        Some(found)
    }

    /// True if such clients may still be sent to the endpoint.
    pub fn has(&self, key: Key, clients: Clients, backend: &Backend) -> bool {
        let port = self.ports.get(key);
        port.is_some_and(|p| p.backends[clients as usize].contains(backend))
    }

    /// Returns every network namespace with an endpoint.
    pub fn namespaces(&self) -> BTreeSet<std::path::PathBuf> {
        let ports = self.ports.iter().flat_map(|(_, p)| &p.backends);
        ports
            .flatten()
            .filter_map(|b| b.namespace.clone())
            .collect()
    }

    /// Returns which endpoints clients keep, for another process: at most [`MOST_AFFINITIES`].
    pub fn affinities(&self, now: Moment) -> Vec<HandedAffinity> {
        let kept = self.balancer.kept_endpoints(now);
        let handed = kept.map(
            |((port, clients, _), client, endpoint, silent)| HandedAffinity {
                port: port.clone(),
                clients: *clients,
                client,
                endpoint: endpoint.clone(),
                silent_ms: silent.as_millis() as u64,
            },
        );
        handed.take(MOST_AFFINITIES).collect()
    }

    /// Lets a client keep the endpoint that it had with another process, if its service port still has that endpoint.
    pub fn adopt(&mut self, handed: HandedAffinity, now: Moment) {
        let silent = Duration::from_millis(handed.silent_ms);
        let name = (handed.port, handed.clients, handed.client.is_ipv6());
        self.balancer
            .keep_endpoint(&name, handed.client, &handed.endpoint, now - silent);
    }

    /// Forgets clients that were away for longer than their endpoint is kept.
    pub fn clean_up(&mut self, now: Moment) {
        self.balancer.clean_up_all(now);
    }
}
