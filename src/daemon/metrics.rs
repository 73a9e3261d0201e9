//! All metrics of the daemon in one text.

use super::backend::DaemonBackend;
use crate::metrics::{Family, Kind};

impl DaemonBackend {
    /// Every metric, in the text format.
    pub(super) fn metrics_text(&self) -> String {
        let mut out = String::new();
        self.prober.records.write_metrics(&mut out);
        let help = "The number of discard events in PLEG.";
        Family::new(&mut out, "kubelet_pleg_discard_events", Kind::Counter, help)
            .value(&[], self.pleg.discarded());
        let help = "Panics that were caught; the thread went on, and the log says where.";
        let mut panics = Family::new(&mut out, "podprobe_panics_total", Kind::Counter, help);
        for (part, n) in [
            ("pleg", self.pleg.panics()),
            ("pod_workers", self.workers.panics()),
            ("prober", self.prober.manager.panics()),
            ("proxy_health", self.health.panics()),
        ] {
            panics.value(&[("part", part)], n);
        }
        let help = "Probe workers: one for each probe of each container that may still run.";
        Family::new(&mut out, "podprobe_prober_workers", Kind::Gauge, help)
            .value(&[], self.prober.manager.worker_count() as u64);
        if let Some(names) = &self.services.get().name_counters {
            names.write_metrics(&mut out);
        }
        let help =
            "What the kernel lacks for the network of pods; `describe pod` says what follows.";
        let mut missing = Family::new(&mut out, "podprobe_network_missing", Kind::Gauge, help);
        for lack in self.networks.missing() {
            missing.value(&[("what", lack.what.as_str())], 1);
        }
        self.proxy_metrics
            .write(self.health.mode(), &self.health.answers(), &mut out);
        out
    }
}
