//! Networks that CNI plugins make (docs/cni-plugins.md): which configuration counts, how its plugins are run, and what is kept of
//! a sandbox until its network is released.
//!
//! Invariants: before the first plugin of a sandbox runs, the cache holds the configuration with which it can be released,
//! and it holds that until the release has succeeded. A configuration that is changed or removed counts for new sandboxes
//! only. Plugins of one sandbox never run at the same time, not even those of a daemon that was killed.

mod cache;
mod chain;
pub mod conf;
mod error;
mod exec;
mod files;
mod lock;
mod network;
mod release;
mod request;
mod result;
mod versions;

use std::path::PathBuf;
use std::time::Duration;

pub use error::{Cause, CniError, Command, ConfError, ConfProblem, PluginError};
pub use files::{Loaded, load};
pub use network::CniNetwork;

/// Where configurations are looked for unless the daemon is told otherwise.
pub const CONF_DIR: &str = "/etc/cni/net.d";

/// Where plugins are looked for unless the daemon is told otherwise: the usual place, and Debian's.
pub const BIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// The interface in the sandbox.
pub const INTERFACE: &str = "eth0";

/// Where the files of CNI are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniSettings {
    /// The directory of configurations, such as [`CONF_DIR`].
    pub conf_dir: PathBuf,
    /// The directories of plugins, the first one first, such as [`BIN_DIRS`].
    pub bin_dirs: Vec<PathBuf>,
    /// The directory of the records that are kept of sandboxes. The records must outlive a boot, because the addresses that
    /// plugins have handed out do.
    pub cache_dir: PathBuf,
}

/// How long plugins may run. A plugin that takes longer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit for one plugin at ADD, DEL, CHECK and GC.
    pub plugin: Duration,
    /// The limit for all plugins of one ADD, DEL, CHECK or GC together: as long as a kubelet waits for its container
    /// runtime.
    pub chain: Duration,
    /// The limit for one plugin at STATUS and VERSION.
    pub status: Duration,
    /// The time after which the log says what a pod waits for.
    pub slow: Duration,
}

/// A message about a wait that takes longer than usual. It is said once, after the time `after`.
#[derive(Clone, Copy)]
struct Slow<'a> {
    after: Duration,
    say: &'a dyn Fn(),
}

/// A wait for the network of a pod that takes longer is in the log.
pub(super) const SLOW: Duration = Duration::from_secs(10);

impl Default for Limits {
    fn default() -> Self {
        Self {
            plugin: Duration::from_secs(60),
            chain: Duration::from_secs(120),
            status: Duration::from_secs(10),
            slow: SLOW,
        }
    }
}
