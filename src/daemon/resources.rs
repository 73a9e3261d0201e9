//! The resources that pods and the node use, in the form of the kubelet's endpoints (kubelet-probes 11.2).

use std::fs;
use std::path::Path;

use super::backend::DaemonBackend;
use super::metrics;
use crate::base::clock::Moment;
use crate::engine::stats::{self, Detail, Disk, Figures, NodeFacts, Summary};
use crate::face::server::{Registry, Resources, SummaryError};

impl Resources for DaemonBackend {
    fn metrics_of(&self, registry: Registry) -> String {
        match registry {
            Registry::Probes => {
                let mut out = String::new();
                self.prober.records.metrics.write_kubelet_s(&mut out);
                metrics::node::write_start_time(&mut out);
                out
            }
            Registry::Resource => stats::resource(self.figures(Detail::CpuAndMemory).as_ref()),
            Registry::Cadvisor => {
                let figures = self.figures(Detail::All);
                figures.as_ref().map(stats::cadvisor).unwrap_or_default()
            }
        }
    }

    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, SummaryError> {
        let detail = match only_cpu_and_memory {
            true => Detail::CpuAndMemory,
            false => Detail::All,
        };
        let figures = self.stats.figures(&self.pleg.cache().all(), detail);
        let figures = figures.map_err(SummaryError::Cgroups)?;
        let rates = self.stats.rates(&figures, Moment::now());
        let facts = match only_cpu_and_memory {
            true => NodeFacts {
                name: self.settings.get().node_name.clone(),
                ..NodeFacts::default()
            },
            false => self.node_facts(&figures),
        };
        let summary = Summary::new(&figures, &rates, &facts);
        Ok(serde_json::to_string(&summary)?)
    }
}

impl DaemonBackend {
    fn figures(&self, detail: Detail) -> Option<Figures> {
        let figures = self.stats.figures(&self.pleg.cache().all(), detail);
        let logged = |e| log::warn!("{}", SummaryError::Cgroups(e));
        figures.map_err(logged).ok()
    }

    fn node_facts(&self, figures: &Figures) -> NodeFacts {
        let containers = figures.pods.iter().flat_map(|p| &p.containers);
        let logs = containers.filter_map(|c| Some((c.id.clone(), bytes_in(c.logs.as_ref()?))));
        let images = metrics::node::image_sizes(&self.store);
        NodeFacts {
            name: self.settings.get().node_name.clone(),
            fs: Disk::of(&self.layout.lib_dir()),
            images: images.map(|sizes| sizes.values().sum()),
            logs: Disk::of(&self.layout.logs_dir()),
            log_bytes: logs.collect(),
        }
    }
}

/// Returns the size in bytes of the logs of a container, which are all files in the directory.
fn bytes_in(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|e| Some(e.metadata().ok()?.len()));
    sizes.sum()
}
