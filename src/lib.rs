//! podprobe: the kubelet's probes and restarts for nodes too small for a kubelet.
//!
//! Each module of the crate is a wing, and each module of a wing is a room. The wings above [`daemon`] are crates of their own. A wing may use the wings above it in the
//! list below, but not the wings after it. ARCHITECTURE.md has the code map, the threads, the channels and the
//! invariants. Data flows in one circle, most of it in [`pods`]:
//!
//! ```text
//! pod files ─ sources ─▶ sync_loop ─▶ workers ─▶ kuberuntime ─▶ engine ─▶ containers
//!                          ▲   ▲         │ status                  │
//!                prober ───┘   └─ pleg ◀─┴─────────────────────────┘
//! ```

pub use podprobe_base as base;

pub use podprobe_api as api;

pub use podprobe_workloads as workloads;

pub use podprobe_net as net;

pub use podprobe_engine as engine;

pub use podprobe_pods as pods;

pub use podprobe_cluster as cluster;

pub use podprobe_face as face;

pub mod daemon;

pub mod cli;

#[cfg(test)]
#[path = "../tests/support/wings/every_workload.rs"]
mod every_workload;
#[cfg(test)]
#[path = "../tests/support/wings/fake_runtime.rs"]
mod fake_runtime;
#[cfg(test)]
#[path = "../tests/support/wings/own_network.rs"]
mod own_network;
#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../tests/support/wings/test_pods.rs"]
mod test_pods;
