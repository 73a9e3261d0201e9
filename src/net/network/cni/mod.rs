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
    /// What is kept of sandboxes. It must outlive a boot, because addresses that plugins have handed out do.
    pub cache_dir: PathBuf,
}

/// How long plugins may run. A plugin that takes longer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One plugin of ADD, DEL, CHECK and GC.
    pub plugin: Duration,
    /// All plugins of one ADD, DEL, CHECK or GC together: as long as a kubelet waits for its container runtime.
    pub chain: Duration,
    /// One plugin of STATUS and VERSION.
    pub status: Duration,
    /// After this time the log says what a pod waits for.
    pub slow: Duration,
}

/// What is to be said, once, of a wait that takes longer than usual.
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
