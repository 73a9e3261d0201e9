//! How many pods of a DaemonSet may be unavailable or too many on one node during an update (workloads 4.3, 4.4).
//!
//! Invariants: pure. Percentages are rounded up, so any percentage above 0 is 1 on one node.

use super::{DaemonSetInput, NodeFit};
use crate::api::workload::{IntOrPercent, RollingUpdateDaemonSet};

/// The limits of an update on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// True if a second pod may run on the node for a while.
    pub allows_surge: bool,
    /// Number of nodes that may have a second pod, of those that are to have one.
    pub max_surge: i32,
    /// Number of nodes that may have no available pod, of those that are to have one.
    pub max_unavailable: i32,
    /// Why there is no surge although the spec asks for it.
    pub surge_note: Option<String>,
}

impl Limits {
    /// Computes the limits (daemon/update.go: updatedDesiredNodeCounts).
    pub fn of(input: &DaemonSetInput<'_>) -> Self {
        let strategy = &input.spec.update_strategy;
        let settings = strategy.rolling_update.as_ref();
        let settings = settings.filter(|_| strategy.type_ != "OnDelete");
        let desired = i32::from(input.fit == NodeFit::Runs);
        let max_surge = surge(settings, desired);
        let mut limits = Self {
            allows_surge: surge(settings, 1) > 0,
            max_surge,
            max_unavailable: unavailable(settings, desired),
            surge_note: None,
        };
        if limits.allows_surge
            && let Some(why) = input.surge_blocked
        {
            limits.lower_surge(surge(settings, 1), why);
        }
        if desired > 0 && limits.max_surge <= 0 && limits.max_unavailable <= 0 {
            limits.max_unavailable = 1;
        }
        limits
    }

    fn lower_surge(&mut self, surge: i32, why: &str) {
        self.allows_surge = false;
        self.max_surge = 0;
        self.max_unavailable = 1;
        self.surge_note = Some(format!("surge {surge} lowered to 0: {why}"));
    }
}

fn surge(settings: Option<&RollingUpdateDaemonSet>, nodes: i32) -> i32 {
    let written = settings.and_then(|it| it.max_surge.as_ref());
    written.and_then(|it| it.of(nodes, true)).unwrap_or(0)
}

fn unavailable(settings: Option<&RollingUpdateDaemonSet>, nodes: i32) -> i32 {
    let Some(settings) = settings else {
        return 0;
    };
    let default = IntOrPercent::Int(1);
    let written = settings.max_unavailable.as_ref().unwrap_or(&default);
    written.of(nodes, true).unwrap_or(0)
}
