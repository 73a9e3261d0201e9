//! Counters that belong to no single part.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::engine::runtime::metered::Operations;
use crate::pods::sync_loop::LoopMetrics;
use crate::pods::workers::PodMetrics;

/// The counters that parts count in and the backend reads.
#[derive(Clone, Default)]
pub(super) struct Counted {
    pub(super) operations: Arc<Operations>,
    pub(super) pods: Arc<PodMetrics>,
    pub(super) sync_loop: Arc<LoopMetrics>,
    /// Number of panics of the server.
    pub(super) server_panics: Arc<AtomicU64>,
}
