//! The TCP connections of all clients.
//!
//! Invariants: there are at most [`MOST`] connections. Beyond that, a new connection replaces the longest idle
//! connection of the client with the most connections. So a client that opens many connections harms itself.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::base::clock::Moment;

use super::connection::Connection;

/// Largest number of connections.
pub const MOST: usize = 64;

/// The TCP connections of all clients, by key.
#[derive(Default)]
pub struct Connections {
    all: HashMap<u64, Connection>,
    next_key: u64,
}

impl Connections {
    /// Returns the connection with this key, if it exists.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut Connection> {
        self.all.get_mut(&key)
    }

    /// Adds a connection, and returns its key.
    pub fn insert(&mut self, connection: Connection) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.all.insert(key, connection);
        key
    }

    /// Removes a connection and returns it.
    pub fn remove(&mut self, key: u64) -> Option<Connection> {
        self.all.remove(&key)
    }

    /// Returns true if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the keys of the connections that have no open question.
    pub fn quiet(&self) -> Vec<u64> {
        let quiet = self.all.iter().filter(|(_, c)| c.is_quiet());
        quiet.map(|(key, _)| *key).collect()
    }

    /// Returns the moment at which the first connection will have been idle for too long; `None` if there is no
    /// connection.
    pub fn deadline(&self) -> Option<Moment> {
        self.all.values().map(|c| c.until).min()
    }

    /// Returns the keys of the connections that have been idle for too long.
    pub fn idle(&self, now: Moment) -> Vec<u64> {
        let idle = self.all.iter().filter(|(_, c)| c.until <= now);
        idle.map(|(key, _)| *key).collect()
    }

    /// Returns the key of the connection that a new connection replaces; `None` if there are fewer than `MOST`
    /// connections.
    pub fn gives_way(&self) -> Option<u64> {
        if self.all.len() < MOST {
            return None;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.all.values() {
            *counts.entry(connection.from).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let candidates = self.all.iter().filter(|(_, c)| counts[&c.from] == most);
        let quietest = candidates.min_by_key(|(key, c)| (c.until, **key))?;
        Some(*quietest.0)
    }
}
