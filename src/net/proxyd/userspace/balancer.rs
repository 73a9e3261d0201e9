//! The choice of an endpoint for each connection: kube-proxy's `LoadBalancerRR`, round robin with `ClientIP` affinity
//! (services 5.1 to 5.4).
//!
//! Invariants: pure; the clock and the randomness are arguments. The index of a service with endpoints is below the
//! number of its endpoints. A client's record names an endpoint that the service has. The number of records is bounded
//! for each service.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::net::services::table::Backend;

/// The timeout of `ClientIP` affinity if none is given: 3 hours.
pub const DEFAULT_AFFINITY: Duration = Duration::from_secs(10_800);

/// Largest number of clients of a service that keep an endpoint. If there are more, the eighth of the clients that was
/// away longest is forgotten. So a flood of addresses costs bounded memory, and no search for each connection.
pub const MAX_CLIENTS: usize = 16_384;

/// The reasons why there is no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancerError {
    /// The service is unknown.
    MissingService,
    /// The service has no endpoint.
    MissingEndpoints,
}

impl fmt::Display for BalancerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissingService => "missing service entry",
            Self::MissingEndpoints => "missing endpoints",
        })
    }
}

impl std::error::Error for BalancerError {}

/// The endpoint that a client has used last, and the time of that use.
#[derive(Debug)]
struct Record {
    endpoint: Backend,
    last_used: Moment,
}

/// A service with its endpoints and its clients.
#[derive(Debug, Default)]
struct Entry {
    /// The endpoints in random order, so that not every node starts with the same pod.
    endpoints: Vec<Backend>,
    /// Index of the endpoint for the next connection.
    index: usize,
    /// Time for which a client keeps its endpoint; `None` without affinity.
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, Record>,
}

impl Entry {
    /// Returns the client's endpoint, if the client may still keep it.
    fn kept(&mut self, client: IpAddr, now: Moment) -> Option<Backend> {
        let ttl = self.affinity?;
        let record = self.clients.get_mut(&client)?;
        (now.since(record.last_used) < ttl).then(|| {
            record.last_used = now;
            record.endpoint.clone()
        })
    }

    /// Returns the next endpoint by round robin; None if the service has no endpoint.
    fn advance(&mut self) -> Option<Backend> {
        let endpoint = self.endpoints.get(self.index)?.clone();
        self.index = (self.index + 1) % self.endpoints.len();
        Some(endpoint)
    }

    fn record(&mut self, client: IpAddr, endpoint: &Backend, now: Moment) {
        let Some(ttl) = self.affinity else { return };
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            self.make_room(ttl, now);
        }
        let record = Record {
            endpoint: endpoint.clone(),
            last_used: now,
        };
        self.clients.insert(client, record);
    }

    /// Forgets the clients whose time is over. If there is still no room, forgets an eighth of the clients: those that
    /// were away longest.
    fn make_room(&mut self, ttl: Duration, now: Moment) {
        self.forget_older(ttl, now);
        if self.clients.len() < MAX_CLIENTS {
            return;
        }
        let mut times: Vec<Moment> = self.clients.values().map(|r| r.last_used).collect();
        let (_, youngest, _) = times.select_nth_unstable(MAX_CLIENTS / 8);
        let youngest = *youngest;
        let mut left = MAX_CLIENTS / 8;
        self.clients.retain(|_, r| {
            let goes = left > 0 && r.last_used <= youngest;
            left -= usize::from(goes);
            !goes
        });
    }

    fn forget_older(&mut self, ttl: Duration, now: Moment) {
        self.clients.retain(|_, r| now.since(r.last_used) < ttl);
    }

    fn has_same(&self, endpoints: &[Backend]) -> bool {
        let mut own: Vec<&Backend> = self.endpoints.iter().collect();
        let mut given: Vec<&Backend> = endpoints.iter().collect();
        own.sort_unstable();
        given.sort_unstable();
        own == given
    }
}

/// Every service with its endpoints and its clients. `K` identifies a list of endpoints: a service port, or a kind of
/// its clients if the traffic policies differ.
#[derive(Debug)]
pub struct LoadBalancerRR<K> {
    services: BTreeMap<K, Entry>,
}

impl<K> Default for LoadBalancerRR<K> {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> LoadBalancerRR<K> {
    /// Adds a service, or changes the affinity of a service, which keeps its endpoints. `None` means no affinity, and a
    /// timeout of zero means [`DEFAULT_AFFINITY`]. The function may be called before or after [`Self::set_endpoints`].
    pub fn new_service(&mut self, name: &K, affinity: Option<Duration>) {
        let entry = self.services.entry(name.clone()).or_default();
        entry.affinity = affinity.map(|ttl| match ttl.is_zero() {
            true => DEFAULT_AFFINITY,
            false => ttl,
        });
        if affinity.is_none() {
            entry.clients = HashMap::new();
        }
    }

    /// Removes a service with its endpoints and clients. Does nothing if the service is unknown.
    pub fn delete_service(&mut self, name: &K) {
        self.services.remove(name);
    }

    /// Removes the services for which `wanted` returns false.
    pub fn retain(&mut self, mut wanted: impl FnMut(&K) -> bool) {
        self.services.retain(|name, _| wanted(name));
    }

    /// Returns the endpoint for the next connection of a client. `reset` is true if the client's last endpoint did not
    /// answer. In this case the client gets a new endpoint instead of the endpoint that it has kept.
    ///
    /// # Errors
    /// Returns `BalancerError` if the service is unknown, or has no endpoint.
    pub fn next_endpoint(
        &mut self,
        name: &K,
        client: IpAddr,
        reset: bool,
        now: Moment,
    ) -> Result<Backend, BalancerError> {
        let entry = self.services.get_mut(name);
        let entry = entry.ok_or(BalancerError::MissingService)?;
        let client = client.to_canonical();
        if !reset && let Some(endpoint) = entry.kept(client, now) {
            return Ok(endpoint);
        }
        let endpoint = entry.advance().ok_or(BalancerError::MissingEndpoints)?;
        entry.record(client, &endpoint, now);
        Ok(endpoint)
    }

    /// Sets the endpoints of a service. Endpoints that are not [`is_valid`] are left out. Nothing changes if the
    /// endpoints are the same in another order. Otherwise the new endpoints are shuffled, the first one is next, and
    /// the clients of removed endpoints are forgotten. A service without endpoints stays known, with its affinity.
    ///
    /// `random` returns a number of at least 0 and below 1, as [`crate::base::clock::random_fraction`] does.
    pub fn set_endpoints(&mut self, name: &K, endpoints: &[Backend], random: impl FnMut() -> f64) {
        let valid: Vec<Backend> = endpoints.iter().filter(|e| is_valid(e)).cloned().collect();
        let entry = self.services.entry(name.clone()).or_default();
        if entry.has_same(&valid) {
            return;
        }
        entry.clients.retain(|_, r| valid.contains(&r.endpoint));
        entry.endpoints = shuffled(valid, random);
        entry.index = 0;
    }

    /// Returns the endpoints of a service in the order in which they are used; empty for an unknown service.
    pub fn endpoints(&self, name: &K) -> &[Backend] {
        self.services.get(name).map_or(&[], |e| &e.endpoints)
    }

    /// Returns the number of clients of a service that keep an endpoint.
    pub fn clients(&self, name: &K) -> usize {
        self.services.get(name).map_or(0, |e| e.clients.len())
    }

    /// Returns every client that keeps an endpoint, and the time since its last connection.
    pub fn kept_endpoints(
        &self,
        now: Moment,
    ) -> impl Iterator<Item = (&K, IpAddr, &Backend, Duration)> {
        self.services.iter().flat_map(move |(name, entry)| {
            let all = entry.clients.iter();
            all.map(move |(client, record)| {
                let silent = now.since(record.last_used);
                (name, *client, &record.endpoint, silent)
            })
        })
    }

    /// Lets a client keep an endpoint that it last used at the moment `used`. Does nothing if the service does not
    /// have that endpoint.
    pub fn keep_endpoint(&mut self, name: &K, client: IpAddr, endpoint: &Backend, used: Moment) {
        if let Some(entry) = self.services.get_mut(name)
            && entry.endpoints.contains(endpoint)
        {
            entry.record(client, endpoint, used);
        }
    }

    /// Forgets the clients of a service that were away for the affinity timeout or longer. Does nothing if the service
    /// is unknown.
    pub fn clean_up_stale_sticky_sessions(&mut self, name: &K, now: Moment) {
        if let Some(entry) = self.services.get_mut(name)
            && let Some(ttl) = entry.affinity
        {
            entry.forget_older(ttl, now);
        }
    }

    /// Forgets the clients of every service that were away for the service's affinity timeout or longer.
    pub fn clean_up_all(&mut self, now: Moment) {
        for entry in self.services.values_mut() {
            if let Some(ttl) = entry.affinity {
                entry.forget_older(ttl, now);
            }
        }
    }
}

/// Returns true if a client can connect to the endpoint: it has an address and a port.
pub fn is_valid(endpoint: &Backend) -> bool {
    endpoint.address.port() != 0 && !endpoint.address.ip().is_unspecified()
}

/// Shuffles a list, so that every order is equally likely (Fisher and Yates).
fn shuffled<T>(mut list: Vec<T>, mut random: impl FnMut() -> f64) -> Vec<T> {
    for last in (1..list.len()).rev() {
        let other = (random() * (last + 1) as f64) as usize;
        list.swap(last, other.min(last));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOO: &str = "foo";
    const TTL: Duration = Duration::from_secs(100);

    fn backend(port: u16) -> Backend {
        Backend {
            address: ([10, 0, 0, 1], port).into(),
            namespace: None,
        }
    }

    fn client(n: u32) -> IpAddr {
        IpAddr::V4((0x0a01_0000 + n).into())
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn with(ports: &[u16], affinity: Option<Duration>) -> LoadBalancerRR<&'static str> {
        let mut balancer = LoadBalancerRR::default();
        let endpoints: Vec<Backend> = ports.iter().map(|p| backend(*p)).collect();
        balancer.new_service(&FOO, affinity);
        balancer.set_endpoints(&FOO, &endpoints, || 0.0);
        balancer
    }

    #[test]
    fn every_order_is_as_likely_as_any_other() {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut counts: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for _ in 0..6000 {
            *counts
                .entry(shuffled(vec![1, 2, 3], &mut random))
                .or_default() += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(
            counts.values().all(|n| (850..1150).contains(n)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_random_number_out_of_its_range_is_no_panic() {
        assert_eq!(shuffled(vec![1, 2, 3], || 7.5).len(), 3);
    }

    #[test]
    fn a_flood_of_clients_costs_bounded_memory_and_the_latest_keep_their_endpoint() {
        let mut balancer = with(&[1, 2, 3], Some(TTL));
        let total = 3 * MAX_CLIENTS as u32;
        for n in 0..total {
            let now = Moment::from_boot(Duration::from_micros(n.into()));
            balancer
                .next_endpoint(&FOO, client(n), false, now)
                .expect("there are three");
            assert!(balancer.clients(&FOO) <= MAX_CLIENTS);
        }
        let last = balancer.next_endpoint(&FOO, client(total - 1), false, at(1));
        let again = balancer.next_endpoint(&FOO, client(total - 1), false, at(1));
        assert_eq!(last, again);
        assert!(balancer.clients(&FOO) > MAX_CLIENTS / 2);
    }

    #[test]
    fn a_flood_within_one_moment_is_bounded_too() {
        let mut balancer = with(&[1], Some(TTL));
        for n in 0..2 * MAX_CLIENTS as u32 {
            let _ = balancer.next_endpoint(&FOO, client(n), false, at(1));
        }
        let left = balancer.clients(&FOO);
        assert!(
            (MAX_CLIENTS * 7 / 8..=MAX_CLIENTS).contains(&left),
            "{left}"
        );
    }

    #[test]
    fn clients_whose_time_is_over_make_room_first() {
        let mut balancer = with(&[1], Some(TTL));
        for n in 0..MAX_CLIENTS as u32 {
            let _ = balancer.next_endpoint(&FOO, client(n), false, at(1));
        }
        let _ = balancer.next_endpoint(&FOO, client(u32::MAX >> 8), false, at(101));
        assert_eq!(balancer.clients(&FOO), 1);
    }

    #[test]
    fn a_timeout_that_changes_counts_for_clients_that_are_known() {
        let mut balancer = with(&[1, 2], Some(TTL));
        let first = balancer.next_endpoint(&FOO, client(1), false, at(0));
        balancer.new_service(&FOO, Some(TTL / 2));
        let second = balancer.next_endpoint(&FOO, client(1), false, at(60));
        assert_ne!(first, second);
    }

    #[test]
    fn affinity_that_ends_forgets_its_clients() {
        let mut balancer = with(&[1, 2], Some(TTL));
        let _ = balancer.next_endpoint(&FOO, client(1), false, at(0));
        balancer.new_service(&FOO, None);
        assert_eq!(balancer.clients(&FOO), 0);
        let _ = balancer.next_endpoint(&FOO, client(1), false, at(0));
        assert_eq!(
            balancer.clients(&FOO),
            0,
            "none is recorded without affinity"
        );
    }

    #[test]
    fn a_client_is_the_same_in_both_forms_of_its_address() {
        let mut balancer = with(&[1, 2], Some(TTL));
        let plain = balancer.next_endpoint(&FOO, client(1), false, at(0));
        let IpAddr::V4(v4) = client(1) else {
            unreachable!("an IPv4 address")
        };
        let mapped = v4.to_ipv6_mapped().into();
        assert_eq!(balancer.next_endpoint(&FOO, mapped, false, at(0)), plain);
    }

    #[test]
    fn services_that_are_not_wanted_any_more_are_forgotten() {
        let mut balancer = with(&[1], None);
        balancer.retain(|name| *name != FOO);
        assert_eq!(
            balancer.next_endpoint(&FOO, client(1), false, at(0)),
            Err(BalancerError::MissingService)
        );
    }
}
