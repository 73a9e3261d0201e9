//! The base of every wing: the clock, files that are replaced as a whole, paths, texts, threads, and the system calls.
//! This part knows nothing of how pods run.

use crate as base;

pub mod aside;
pub mod atomic_file;
pub mod bell;
pub mod boot_record;
pub mod cancel;
pub mod change_feed;
pub mod clock;
pub mod cron;
pub mod directory_watch;
pub mod http_client;
pub mod json;
pub mod live;
pub mod locks;
pub mod metrics;
pub mod paths;
pub mod pod_uid;
pub mod record_directory;
pub mod record_file;
pub mod remove_tree;
pub mod spelling;
pub mod sys;
pub mod text;
pub mod threads;
pub mod wire;

#[cfg(test)]
#[path = "../../tests/support/wings/deep_trees.rs"]
mod deep_trees;
#[cfg(test)]
#[path = "../../tests/support/wings/random_texts.rs"]
mod random_texts;
#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../../tests/support/wings/time_zones.rs"]
mod time_zones;
#[cfg(test)]
#[path = "../../tests/support/wings/used_stack.rs"]
mod used_stack;
