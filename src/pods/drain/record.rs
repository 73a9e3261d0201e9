//! The records of a cordon, which outlives reboots, and of a shutdown, which does not.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::clock::Time;
use crate::base::record_file;

/// The order of a person that no pod starts on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cordon {
    /// The time of the order.
    pub(super) since: Time,
    /// True if the pods that run end too.
    #[serde(default)]
    pub(super) is_drained: bool,
    /// The grace period in seconds that pods get instead of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grace: Option<i64>,
}

/// The shutdown of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shutdown {
    /// The time at which the shutdown began.
    pub(super) since: Time,
    /// The boot that the shutdown ends. It is over in any other boot.
    pub(super) boot_id: String,
}

/// The name of the record of a cordon, in podprobe's library directory.
pub(super) const CORDON: &str = "cordon.json";
/// The name of the record of a shutdown, in podprobe's run directory.
pub(super) const SHUTDOWN: &str = "shutdown.json";

/// Reads a record. A record that cannot be read does not count: the pods of a node start rather than stay away.
pub(super) fn read<T: serde::de::DeserializeOwned>(directory: &Path, name: &str) -> Option<T> {
    record_file::read(directory, name)
}

/// Writes a record, or removes it. The change is on the disk when this function returns.
///
/// # Errors
/// Returns the disk's error if the old record stays.
pub(super) fn write<T: Serialize>(
    directory: &Path,
    name: &str,
    record: Option<&T>,
) -> io::Result<()> {
    let path = directory.join(name);
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let written = match record {
        Some(record) => record_file::write(directory, name, record, true),
        None => match fs::remove_file(directory.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
            Ok(()) => fs::File::open(directory).and_then(|dir| dir.sync_all()),
        },
    };
    written.map_err(named)
}
