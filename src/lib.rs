//! podprobe: the kubelet's probes and restarts for nodes too small for a kubelet.
//!
//! The modules carry the names of the kubelet's own parts; ARCHITECTURE.md has the code map, the threads, the
//! channels and the invariants. Data flows in one circle:
//!
//! ```text
//! pod files ─ pod_config ─▶ sync_loop ─▶ pod_workers ─▶ runtime ─▶ containers
//!                             ▲   ▲          │ status               │
//!                  prober ────┘   └── pleg ◀─┴──────────────────────┘
//! ```

pub mod admission;
pub mod api;
pub mod atomic_file;
pub mod cancel;
pub mod change_feed;
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod container_config;
pub mod daemon;
pub mod directory_watch;
pub mod events;
pub mod eviction;
pub mod file_copy;
pub mod http_client;
pub mod images;
pub mod kuberuntime;
pub mod layout;
pub mod lifecycle;
pub mod locks;
pub mod log_pipe;
pub mod metrics;
pub mod netfilter;
pub mod network;
pub mod nsexec;
pub mod objects;
pub mod pleg;
pub mod pod_actions;
pub mod pod_config;
pub mod pod_manager;
pub mod pod_uid;
pub mod pod_workers;
pub mod probe_result;
pub mod prober;
pub mod proxy;
pub mod record_file;
pub mod remove_tree;
pub mod runtime;
pub mod seccomp;
pub mod server;
pub mod services;
pub mod settings;
#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
mod spelling;
pub mod stats;
pub mod status;
pub mod sync_loop;
pub mod sys;
pub mod text;
pub mod threads;
pub mod views;
pub mod volumes;
pub mod wire;
