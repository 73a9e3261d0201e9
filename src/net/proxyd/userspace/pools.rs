//! The endpoints of each service port, and the number of its connections.
//!
//! Invariants: a connection keeps the key of its service port. The key leads to nothing once the port is gone.

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

/// The name of a list of endpoints. A service port has a list for each kind of client and each family. The last field
/// is true for IPv6.
type PoolName = (ServicePortName, Clients, bool);

/// The kinds of client and families in the order in which a port has its lists.
const KINDS: [(Clients, bool); 6] = [
    (Clients::Internal, false),
    (Clients::Internal, true),
    (Clients::Inside, false),
    (Clients::Inside, true),
    (Clients::External, false),
    (Clients::External, true),
];

/// Largest number of clients whose endpoints are handed over to another process. A list of so many clients is about 5
/// MB of JSON.
const MOST_AFFINITIES: usize = 20_000;

/// Largest number of endpoints that are skipped because they did not answer.
const MOST_SKIPPED: usize = 16;

/// Returns a short hash by which an endpoint is recognised. The hash is never 0.
pub fn fingerprint(backend: &Backend) -> u32 {
    let mut hasher = DefaultHasher::new();
    backend.hash(&mut hasher);
    hasher.finish() as u32 | 1
}

/// A service port with its endpoints.
#[derive(Debug)]
pub struct Port {
    /// The number of current connections.
    pub connections: u32,
    pools: [PoolName; 6],
    /// The endpoints for each kind of client, in the order of [`Clients`].
    backends: [BTreeSet<Backend>; 3],
}

/// The service ports with their endpoints.
#[derive(Debug, Default)]
pub struct Pools {
    ports: Slab<Port>,
    by_name: BTreeMap<ServicePortName, Key>,
    balancer: LoadBalancerRR<PoolName>,
}

impl Pools {
    /// Sets the service ports and their endpoints from a plan.
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

    /// Returns the key of a service port; None if it is unknown.
    pub fn find(&self, name: &ServicePortName) -> Option<Key> {
        self.by_name.get(name).copied()
    }

    /// Returns the name of a service port; None if it is gone.
    pub fn name(&self, key: Key) -> Option<&ServicePortName> {
        Some(&self.ports.get(key)?.pools[0].0)
    }

    /// Returns a service port; None if it is gone.
    pub fn port(&mut self, key: Key) -> Option<&mut Port> {
        self.ports.get_mut(key)
    }

    /// Returns the number of current connections of a service port.
    pub fn connections(&self, key: Key) -> u32 {
        self.ports.get(key).map_or(0, |p| p.connections)
    }

    /// Chooses an endpoint for a client, of the client's address family. Returns `None` if the service port is gone or
    /// has no endpoint for this kind of client. `tried` has the [`fingerprint`]s of endpoints that did not answer. If
    /// possible, an endpoint that was not tried is chosen.
    pub fn next(
        &mut self,
        key: Key,
        clients: Clients,
        client: IpAddr,
        tried: &[u32],
        now: Moment,
    ) -> Option<Backend> {
        let port = self.ports.get(key)?;
        // Lists with the same endpoints share one affinity, so that a client keeps its endpoint whichever address of
        // the service it uses.
        let own = &port.backends[clients as usize];
        let list = port.backends.iter().position(|list| list == own)?;
        let name = &port.pools[list * 2 + usize::from(client.is_ipv6())];
        let choices = self.balancer.endpoints(name).len();
        let reset = !tried.is_empty();
        let mut next = || self.balancer.next_endpoint(name, client, reset, now).ok();
        let mut found = next()?;
        // Other clients have advanced the round robin since the last attempt. So the next endpoint may be one that was
        // already tried.
        for _ in 1..choices.min(MOST_SKIPPED) {
            if !tried.contains(&fingerprint(&found)) {
                break;
            }
            found = next()?;
        }
        Some(found)
    }

    /// Returns true if clients of this kind may still be sent to the endpoint.
    pub fn has(&self, key: Key, clients: Clients, backend: &Backend) -> bool {
        let port = self.ports.get(key);
        port.is_some_and(|p| p.backends[clients as usize].contains(backend))
    }

    /// Returns the paths of all network namespaces with an endpoint.
    pub fn namespaces(&self) -> BTreeSet<std::path::PathBuf> {
        let ports = self.ports.iter().flat_map(|(_, p)| &p.backends);
        ports
            .flatten()
            .filter_map(|b| b.namespace.clone())
            .collect()
    }

    /// Returns the endpoints that clients keep, for another process: at most [`MOST_AFFINITIES`].
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

    /// Lets a client keep the endpoint that it had in another process, if its service port still has that endpoint.
    pub fn adopt(&mut self, handed: HandedAffinity, now: Moment) {
        let silent = Duration::from_millis(handed.silent_ms);
        let name = (handed.port, handed.clients, handed.client.is_ipv6());
        self.balancer
            .keep_endpoint(&name, handed.client, &handed.endpoint, now - silent);
    }

    /// Forgets the clients that were away for longer than they may keep their endpoint.
    pub fn clean_up(&mut self, now: Moment) {
        self.balancer.clean_up_all(now);
    }
}
