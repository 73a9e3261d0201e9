//! The TCP connections of all clients.
//!
//! Invariants: there are at most [`MOST`]. A new one takes the place of the quietest of the client that has the most, so a
//! client that opens many harms itself.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::base::clock::Moment;

use super::connection::Connection;

/// How many there may be.
pub const MOST: usize = 64;

/// See the module.
#[derive(Default)]
pub struct Connections {
    all: HashMap<u64, Connection>,
    next_key: u64,
}

impl Connections {
    /// The connection of this key.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut Connection> {
        self.all.get_mut(&key)
    }

    /// A new one; its key.
    pub fn insert(&mut self, connection: Connection) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        self.all.insert(key, connection);
        key
    }

    /// It is over.
    pub fn remove(&mut self, key: u64) -> Option<Connection> {
        self.all.remove(&key)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that ask nothing now.
    pub fn quiet(&self) -> Vec<u64> {
        let quiet = self.all.iter().filter(|(_, c)| c.is_quiet());
        quiet.map(|(key, _)| *key).collect()
    }

    /// When the first of them has done nothing for too long.
    pub fn deadline(&self) -> Option<Moment> {
        self.all.values().map(|c| c.until).min()
    }

    /// Those that have done nothing for too long.
    pub fn idle(&self, now: Moment) -> Vec<u64> {
        let idle = self.all.iter().filter(|(_, c)| c.until <= now);
        idle.map(|(key, _)| *key).collect()
    }

    /// The one that gives way to a new one, where there are as many as there may be.
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
