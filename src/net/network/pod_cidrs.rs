//! The ranges of pod addresses: those of the configuration, or, on a node of a cluster, those that the control plane has
//! given the node.
//!
//! Invariants: ranges that were given are on the disk before a pod gets an address in them, so that a start without the link
//! goes on with them. A sandbox that has an address keeps it.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use crate::api::cidr::Cidr;
use crate::base::locks::Locked;
use crate::base::record_file;

/// Name of the record of what was given.
const RECORD: &str = "node.json";

/// A range that pods cannot have, or too many of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodCidrError {
    /// The prefix is too short or too long.
    #[error("the prefix of {range} must be {} to {}", allowed.start(), allowed.end())]
    Prefix {
        /// The range.
        range: Cidr,
        /// The prefixes that the range of pods may have.
        allowed: RangeInclusive<u8>,
    },
    /// Two ranges are of one address family.
    #[error("at most one range of IPv4 and one of IPv6")]
    TooMany,
}

/// The ranges of pod addresses, at most one of each address family. Clones share them.
#[derive(Clone, Debug)]
pub struct PodCidrs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    configured: Arc<[Cidr]>,
    /// Directory of the record; None for a node that stands alone.
    directory: Option<PathBuf>,
    /// The ranges that the control plane has given, which may be none; None as long as that is not known.
    given: Mutex<Option<Arc<[Cidr]>>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<Cidr>,
}

impl PodCidrs {
    /// Returns the ranges of a node that stands alone.
    pub fn configured(ranges: Vec<Cidr>) -> Self {
        Self::new(ranges, None, None)
    }

    /// Returns the ranges of a node of a cluster. `directory` has the record of what was given before. A record that cannot
    /// be read counts as none.
    pub fn of_a_cluster(configured: Vec<Cidr>, directory: PathBuf) -> Self {
        let record = record_file::try_read::<Record>(&directory, RECORD);
        let record = record.unwrap_or_else(|e| {
            log::warn!("cannot read {}: {e}", directory.join(RECORD).display());
            None
        });
        let given = record.map(|record| record.pod_cidrs.into());
        Self::new(configured, Some(directory), given)
    }

    fn new(configured: Vec<Cidr>, directory: Option<PathBuf>, given: Option<Arc<[Cidr]>>) -> Self {
        Self(Arc::new(Shared {
            configured: configured.into(),
            directory,
            given: Mutex::new(given),
        }))
    }

    /// Returns the ranges in which new pods get their addresses.
    pub fn get(&self) -> Arc<[Cidr]> {
        let given = self.0.given.locked().clone();
        given
            .filter(|given| !given.is_empty())
            .unwrap_or_else(|| self.0.configured.clone())
    }

    /// True if the ranges will not change soon: the node stands alone, or the control plane has said which it gives.
    pub fn are_known(&self) -> bool {
        self.0.directory.is_none() || self.0.given.locked().is_some()
    }

    /// Takes what the control plane gives. Nothing given means the ranges of the configuration. Returns true if it is
    /// something new.
    ///
    /// # Errors
    /// Returns an error if the record cannot be written. The ranges stay as they are.
    pub fn give(&self, given: Vec<Cidr>) -> io::Result<bool> {
        let Some(directory) = &self.0.directory else {
            return Ok(false);
        };
        let mut known = self.0.given.locked();
        if known.as_deref() == Some(&*given) {
            return Ok(false);
        }
        let record = Record { pod_cidrs: given };
        fs::create_dir_all(directory)?;
        record_file::write(directory, RECORD, &record, true)?;
        *known = Some(record.pod_cidrs.into());
        Ok(true)
    }
}

impl Default for PodCidrs {
    fn default() -> Self {
        Self::configured(Vec::new())
    }
}

impl fmt::Display for PodCidrs {
    /// Prints as `10.244.0.0/24, fd00:10:244::/64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.get();
        let ranges = ranges.iter().map(Cidr::to_string).collect::<Vec<_>>();
        f.write_str(&ranges.join(", "))
    }
}

/// Returns an error if pods cannot have these ranges.
///
/// # Errors
/// Returns [`PodCidrError`] for a prefix out of its bounds, and for two ranges of one family.
pub fn check(ranges: &[Cidr]) -> Result<(), PodCidrError> {
    for range in ranges {
        let allowed = match range.network {
            IpAddr::V4(_) => 8..=30,
            IpAddr::V6(_) => 48..=126,
        };
        if !allowed.contains(&range.prefix) {
            let range = *range;
            return Err(PodCidrError::Prefix { range, allowed });
        }
    }
    match ranges {
        [] | [_] => Ok(()),
        [a, b] if a.network.is_ipv4() != b.network.is_ipv4() => Ok(()),
        _ => Err(PodCidrError::TooMany),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_was_given_counts_and_is_known_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cluster");
        let configured = ranges(&["10.244.0.0/24"]);
        let open = || PodCidrs::of_a_cluster(configured.clone(), path.clone());
        let known = open();
        let shared = known.clone();
        assert!(!known.are_known() && *known.get() == *configured);
        let given = ranges(&["10.7.3.0/24", "fd00:7::/64"]);
        assert!(known.give(given.clone()).unwrap());
        assert!(!known.give(given.clone()).unwrap(), "it is nothing new");
        assert!(shared.are_known() && *shared.get() == *given);
        assert_eq!(*open().get(), *given);
        assert!(open().give(Vec::new()).unwrap());
        assert!(open().are_known() && *open().get() == *configured);
    }

    #[test]
    fn what_cannot_be_written_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let configured = ranges(&["10.244.0.0/24"]);
        let known = PodCidrs::of_a_cluster(configured.clone(), path);
        assert!(known.give(ranges(&["10.7.3.0/24"])).is_err());
        assert!(!known.are_known() && *known.get() == *configured);
    }

    #[test]
    fn a_node_that_stands_alone_is_given_nothing() {
        let configured = ranges(&["10.244.0.0/24"]);
        let known = PodCidrs::configured(configured.clone());
        assert!(known.are_known());
        assert!(!known.give(ranges(&["10.7.3.0/24"])).unwrap());
        assert_eq!(*known.get(), *configured);
    }

    #[test]
    fn a_range_that_pods_cannot_have_is_refused() {
        let said = |texts: &[&str]| check(&ranges(texts)).map_err(|e| e.to_string());
        assert_eq!(said(&["10.0.0.0/8", "fd00::/126"]), Ok(()));
        assert_eq!(said(&[]), Ok(()));
        let refused = |text: &str| Err(text.to_owned());
        assert_eq!(
            said(&["10.0.0.0/31"]),
            refused("the prefix of 10.0.0.0/31 must be 8 to 30")
        );
        assert_eq!(
            said(&["10.0.0.0/24", "fd00::/47"]),
            refused("the prefix of fd00::/47 must be 48 to 126")
        );
        let too_many = refused("at most one range of IPv4 and one of IPv6");
        assert_eq!(said(&["10.0.0.0/24", "10.0.1.0/24"]), too_many);
        assert_eq!(said(&["10.0.0.0/24", "fd00::/64", "fd01::/64"]), too_many);
    }
}
