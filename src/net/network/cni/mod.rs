//! Networks that CNI plugins make (docs/cni-plugins.md): which configuration is used, how the plugins run, and
//! what podprobe stores about a sandbox until the sandbox's network is released.
//!
//! Invariants: before the first plugin of a sandbox runs, the cache has the configuration that can release the
//! sandbox. The cache keeps this configuration until the release has succeeded. A configuration that is changed or
//! removed affects new sandboxes only. Two plugins never run for one sandbox at the same time, even if a killed
//! daemon started the first plugin.

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

/// The default directory of network configurations.
pub const CONF_DIR: &str = "/etc/cni/net.d";

/// The default directories of plugins: the usual directory, and Debian's directory.
pub const BIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];

/// The name of the network interface in the sandbox.
pub const INTERFACE: &str = "eth0";

/// The directories of CNI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniSettings {
    /// The directory of network configurations, such as [`CONF_DIR`].
    pub conf_dir: PathBuf,
    /// The directories of plugins, such as [`BIN_DIRS`]. An earlier directory takes precedence.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory of the cache of sandboxes. The cache must outlive a boot, because the addresses that plugins
    /// have handed out outlive a boot, too.
    pub cache_dir: PathBuf,
}

/// The time limits for plugins. A plugin that takes longer is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time limit for one plugin at ADD, DEL, CHECK and GC.
    pub plugin: Duration,
    /// The time limit for all plugins of one ADD, DEL, CHECK or GC together. The default is the time that a
    /// kubelet waits for its container runtime.
    pub chain: Duration,
    /// The time limit for one plugin at STATUS and VERSION.
    pub status: Duration,
    /// The time after which the log says what a pod is waiting for.
    pub slow: Duration,
}

/// A message about a slow operation. The message is logged once, after the time `after`.
#[derive(Clone, Copy)]
struct Slow<'a> {
    after: Duration,
    say: &'a dyn Fn(),
}

/// The time after which the log reports that a pod waits for its network.
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
