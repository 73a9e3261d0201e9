//! The base of every wing: the clock, files that are replaced as a whole, paths, texts, threads, and the system calls.
//! This part knows nothing of how pods run.

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
pub(crate) mod spelling;
pub mod sys;
pub mod text;
pub mod threads;
pub mod wire;
