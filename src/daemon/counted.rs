//! What parts count that nobody else holds.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::engine::runtime::metered::Operations;
use crate::pods::sync_loop::LoopMetrics;
use crate::pods::workers::PodMetrics;

/// Shared between the parts, which count, and the backend, which reads.
#[derive(Clone, Default)]
pub(super) struct Counted {
    pub(super) operations: Arc<Operations>,
    pub(super) pods: Arc<PodMetrics>,
    pub(super) sync_loop: Arc<LoopMetrics>,
    /// Panics of the server.
    pub(super) server_panics: Arc<AtomicU64>,
}
