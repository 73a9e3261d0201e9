//! The one place where the command line meets the rest of the program: the daemon, the image store, the decoder of pod
//! files, and the inner roles. Everything else in this directory knows these types only, so it is tested without them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::api::PodOrigin;
use crate::api::decode::{self, Problem};
use crate::api::probe_host::{ProbeHosts, refused_hosts};
use crate::daemon;
use crate::images::{ImageConfig, ImageStore};
use crate::layout::Layout;
use crate::prober::target::is_node_address;
use crate::runtime;
use crate::server::Backend;
use crate::settings::{Overrides, Settings};

/// A daemon in this process.
pub trait Daemon {
    /// What the live table reads.
    fn backend(&self) -> Arc<dyn Backend>;
    /// Waits for TERM, INT or HUP and returns its number.
    fn wait_for_signal(&self) -> i32;
    /// Ends every thread within `limit`; containers go on. The error names the threads that are late.
    fn shutdown(&self, limit: Duration) -> Result<(), String>;
    /// Stops and removes every pod within `limit`. The error names what is left.
    fn remove_all_pods(&self, limit: Duration) -> Result<(), String>;
}

impl Daemon for daemon::Daemon {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend()
    }

    fn wait_for_signal(&self) -> i32 {
        self.wait_for_signal() as i32
    }

    fn shutdown(&self, limit: Duration) -> Result<(), String> {
        self.shutdown(limit)
    }

    fn remove_all_pods(&self, limit: Duration) -> Result<(), String> {
        self.remove_all_pods(limit)
    }
}

/// Starts the daemon. The error is a sentence that says what to do.
pub fn start_daemon(settings: Settings, layout: Layout) -> Result<Box<dyn Daemon>, String> {
    let daemon = daemon::Daemon::start(settings, layout).map_err(|e| e.to_string())?;
    Ok(Box::new(daemon))
}

/// The configuration file (the root's own when none is given, which may be missing), with the command line over it.
pub fn load_settings(
    config: Option<&Path>,
    layout: &Layout,
    overrides: &Overrides,
) -> Result<Settings, String> {
    Settings::load(layout, config, overrides).map_err(|e| e.to_string())
}

/// `allowProbeHosts` of this node's configuration; none where it cannot be read.
pub fn allow_probe_hosts() -> Vec<String> {
    let settings = Settings::load(&Layout::new("/"), None, &Overrides::default());
    settings.map(|s| s.allow_probe_hosts).unwrap_or_default()
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    /// Names it is known by.
    pub names: Vec<String>,
    /// `sha256:…`.
    pub id: String,
    /// Bytes on disk.
    pub size: u64,
}

/// The image store, as the `image` verbs use it. Errors are sentences.
pub trait Images {
    /// Loads an OCI layout or docker archive; gives the names of its images.
    fn load(&self, path: &Path) -> Result<Vec<String>, String>;
    /// Makes an image of a root directory or tar; gives its full name.
    fn import(&self, path: &Path, name: &str) -> Result<String, String>;
    /// Every image, by name.
    fn list(&self) -> Result<Vec<ImageRow>, String>;
    /// Forgets an image.
    fn remove(&self, name: &str) -> Result<(), String>;
}

/// The store, and where containers that use its images lie.
struct Store {
    images: ImageStore,
    layout: Layout,
}

impl Images for Store {
    fn load(&self, path: &Path) -> Result<Vec<String>, String> {
        let loaded = self.images.load(path).map_err(|e| e.to_string())?;
        Ok(loaded
            .into_iter()
            .flat_map(|image| {
                if image.names.is_empty() {
                    vec![image.id]
                } else {
                    image.names
                }
            })
            .collect())
    }

    fn import(&self, path: &Path, name: &str) -> Result<String, String> {
        let loaded = self
            .images
            .import(path, name, ImageConfig::default())
            .map_err(|e| e.to_string())?;
        Ok(loaded.names.into_iter().next().unwrap_or(loaded.id))
    }

    fn list(&self) -> Result<Vec<ImageRow>, String> {
        let mut rows: BTreeMap<String, ImageRow> = BTreeMap::new();
        for record in self.images.list().map_err(|e| e.to_string())? {
            let row = rows.entry(record.id.clone()).or_insert(ImageRow {
                names: Vec::new(),
                id: record.id,
                size: record.size,
            });
            row.names.extend(record.name);
        }
        Ok(rows.into_values().collect())
    }

    fn remove(&self, name: &str) -> Result<(), String> {
        let used = runtime::ImagesInUse::read(&self.layout);
        self.images
            .remove(name, &|id| used.contains(id))
            .map(drop)
            .map_err(|e| e.to_string())
    }
}

/// Opens the store below the root.
pub fn open_images(layout: &Layout) -> Result<Box<dyn Images>, String> {
    let images = ImageStore::open(layout.images()).map_err(|e| e.to_string())?;
    Ok(Box::new(Store {
        images,
        layout: layout.clone(),
    }))
}

/// What a pod file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Name and warnings of each pod.
    pub pods: Vec<(String, Vec<String>)>,
    /// Why it is refused; empty when it is good.
    pub errors: Vec<String>,
}

/// Decodes and validates a pod file as the file source does.
///
/// `allow_probe_hosts` is the configuration's: the daemon runs a pod with a probe to another host, and each run of that
/// probe is an error.
pub fn decode(bytes: &[u8], node_name: &str, path: &Path, allow_probe_hosts: &[String]) -> Decoded {
    let hosts = ProbeHosts {
        allowed: allow_probe_hosts,
        is_node_address: &is_node_address,
    };
    match decode::pods(bytes, &PodOrigin::File { node_name, path }) {
        Ok(pods) => Decoded {
            errors: pods
                .iter()
                .flat_map(|d| refused_hosts(&d.pod, &hosts))
                .map(|e| e.to_string())
                .collect(),
            pods: pods
                .into_iter()
                .map(|d| (d.pod.metadata.name, d.warnings))
                .collect(),
        },
        Err(e) => Decoded {
            pods: vec![],
            errors: e.problems().iter().map(problem).collect(),
        },
    }
}

/// `line 3, column 5: spec.x: …`; the caller names the file.
fn problem(p: &Problem) -> String {
    match p.position {
        Some(at) => format!("line {}, column {}: {}", at.line, at.column, p.text),
        None => p.text.clone(),
    }
}

/// Runs an inner role, or gives None when the word is none. These processes are many and small: nothing is set up for
/// them before this.
pub fn inner_role(word: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word {
        "shim" => Some(runtime::shims::shim::main(args)),
        "sandbox" => Some(runtime::shims::sandbox::main(args)),
        #[cfg(feature = "embedded")]
        "oci" => Some(runtime::shims::embedded::main(args)),
        "nsexec" => Some(crate::nsexec::helper_main(args)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parity A1: what the daemon's probes will refuse is an error here.
    #[test]
    fn a_probe_to_a_foreign_host_is_an_error_unless_it_is_allowed() {
        let pod = |host: &str, host_network: bool| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {"hostNetwork": host_network, "containers": [{
                    "name": "c", "image": "i",
                    "livenessProbe": {"httpGet": {"port": 1, "host": host}},
                }]}
            })
            .to_string()
        };
        let errors = |file: &str, allowed: &[String]| {
            decode(file.as_bytes(), "n", Path::new("/p.json"), allowed).errors
        };
        let foreign = "192.0.2.77".to_owned();
        let refused = errors(&pod(&foreign, true), &[]);
        assert!(
            refused.len() == 1 && refused[0].contains("livenessProbe.httpGet.host: Forbidden"),
            "{refused:?}"
        );
        assert!(errors(&pod(&foreign, true), std::slice::from_ref(&foreign)).is_empty());
        assert!(errors(&pod("localhost", false), &[]).is_empty());
    }
}
