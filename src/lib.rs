//! podprobe: the kubelet's probes and restarts for nodes too small for a kubelet.
//!
//! Each module of the crate is a wing, and each module of a wing is a room. A wing may use the wings above it in the
//! list below, but not the wings after it. ARCHITECTURE.md has the code map, the threads, the channels and the
//! invariants. Data flows in one circle, most of it in [`pods`]:
//!
//! ```text
//! pod files ─ sources ─▶ sync_loop ─▶ workers ─▶ kuberuntime ─▶ engine ─▶ containers
//!                          ▲   ▲         │ status                  │
//!                prober ───┘   └─ pleg ◀─┴─────────────────────────┘
//! ```

pub mod base;

pub mod api;

pub mod workloads;

pub mod net;

pub mod engine;

pub mod pods;

pub mod cluster;

pub mod face;

pub mod daemon;

pub mod cli;

#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
