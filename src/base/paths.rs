//! Where things lie on the node (docs/manual/files-on-the-node.md). With `--root DIR` every path lies below DIR.

use std::path::{Path, PathBuf};

use crate::base::pod_uid::PodUid;

pub mod directories;

/// The paths of one daemon. Two daemons with different roots never meet: see [`Layout::id`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Paths below `root`; `/` gives the system's own paths.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns this layout with an absolute root, for a process with another working directory.
    ///
    /// # Errors
    /// Returns the system's error if the working directory is not there any more.
    pub fn absolute(&self) -> std::io::Result<Self> {
        std::path::absolute(&self.root).map(Self::new)
    }

    /// The root itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/etc/podprobe/config.json`.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("etc/podprobe/config.json")
    }

    /// `/etc/podprobe/pods`, unless the configuration names another.
    pub fn pods_dir(&self) -> PathBuf {
        self.root.join("etc/podprobe/pods")
    }

    /// `/run/podprobe/podprobe.sock`.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("podprobe.sock")
    }

    /// `/run/podprobe`.
    pub fn run_dir(&self) -> PathBuf {
        self.root.join("run/podprobe")
    }

    /// `/run/podprobe/sandboxes/<id>`: record of a sandbox.
    pub fn sandboxes(&self) -> PathBuf {
        self.run_dir().join("sandboxes")
    }

    /// `/run/podprobe/containers/<id>`: record, OCI bundle and shim state of a container.
    pub fn containers(&self) -> PathBuf {
        self.run_dir().join("containers")
    }

    /// `/run/podprobe/exits`: a file for each pod of which a container has just ended.
    pub fn exits(&self) -> PathBuf {
        self.run_dir().join("exits")
    }

    /// `/run/podprobe/oci`: the OCI runtime's own state (`runc --root`).
    pub fn oci_state(&self) -> PathBuf {
        self.run_dir().join("oci")
    }

    /// `/run/podprobe/proxy`: socket, record and last table of the proxy.
    pub fn proxy_dir(&self) -> PathBuf {
        self.run_dir().join("proxy")
    }

    /// `/var/lib/podprobe`: locked (flock) by the one daemon of this root.
    pub fn lib_dir(&self) -> PathBuf {
        self.root.join("var/lib/podprobe")
    }

    /// `/var/lib/podprobe/seccomp`: profiles of type `Localhost`.
    pub fn seccomp(&self) -> PathBuf {
        self.lib_dir().join("seccomp")
    }

    /// `/var/lib/podprobe/checkpoint.json`: statuses of the last daemon.
    pub fn checkpoint(&self) -> PathBuf {
        self.lib_dir().join("checkpoint.json")
    }

    /// `/etc/cni/net.d`, unless the configuration names another.
    pub fn cni_conf_dir(&self) -> PathBuf {
        self.root.join("etc/cni/net.d")
    }

    /// `/var/lib/podprobe/cni`: what CNI plugins have to release.
    pub fn cni_cache(&self) -> PathBuf {
        self.lib_dir().join("cni")
    }

    /// `/var/lib/podprobe/services.json`: the addresses and ports that were allocated for services.
    pub fn services(&self) -> PathBuf {
        self.lib_dir().join("services.json")
    }

    /// `/var/lib/podprobe/pauses.json`: probes that a person has paused.
    pub fn pauses(&self) -> PathBuf {
        self.lib_dir().join("pauses.json")
    }

    /// `/var/lib/podprobe/last-good`: the last good version of each pod file.
    pub fn last_good(&self) -> PathBuf {
        self.lib_dir().join("last-good")
    }

    /// `/var/lib/podprobe/last-good-url`: the last good answer of `staticPodURL`.
    pub fn last_good_url(&self) -> PathBuf {
        self.lib_dir().join("last-good-url")
    }

    /// `/var/lib/podprobe/images`: the image store.
    pub fn images(&self) -> PathBuf {
        self.lib_dir().join("images")
    }

    /// `/var/lib/podprobe/images.d`: image archives dropped here are loaded.
    pub fn image_drop(&self) -> PathBuf {
        self.lib_dir().join("images.d")
    }

    /// Returns the paths at which docker's config.json, or its older form, is looked for: as by the kubelet, in its own
    /// directory, the home directory and the root.
    pub fn docker_configs(&self) -> Vec<PathBuf> {
        let mut places = vec![
            self.lib_dir().join("config.json"),
            self.root.join("var/lib/kubelet/config.json"),
        ];
        let home = std::env::var_os("HOME").filter(|_| self.root == Path::new("/"));
        places.extend(home.map(|home| PathBuf::from(home).join(".docker/config.json")));
        let below = [
            "root/.docker/config.json",
            ".docker/config.json",
            "var/lib/kubelet/.dockercfg",
            ".dockercfg",
        ];
        places.extend(below.map(|place| self.root.join(place)));
        places
    }

    /// `/var/lib/podprobe/containers/<id>`: overlay upper and work directories.
    pub fn container_data(&self, id: &str) -> PathBuf {
        self.lib_dir().join("containers").join(id)
    }

    /// `/var/lib/podprobe/pods/<uid>`: volumes and generated files (hosts, hostname, resolv.conf, termination logs).
    pub fn pod_data(&self, uid: &PodUid) -> PathBuf {
        self.lib_dir().join("pods").join(uid.as_str())
    }

    /// `/var/lib/podprobe/pods/<uid>/evicted.json`: there while the pod is evicted.
    pub fn eviction(&self, uid: &PodUid) -> PathBuf {
        self.pod_data(uid).join("evicted.json")
    }

    /// `/var/lib/podprobe/claims/<namespace>/<name>`: volumes that outlive their pods.
    pub fn claims(&self) -> PathBuf {
        self.lib_dir().join("claims")
    }

    /// `/var/log/pods`.
    pub fn logs_dir(&self) -> PathBuf {
        self.root.join("var/log/pods")
    }

    /// `/var/log/pods/<ns>_<name>_<uid>`.
    pub fn pod_logs(&self, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
        self.logs_dir().join(format!("{namespace}_{name}_{uid}"))
    }

    /// `/var/lib/podprobe/pods/<uid>/log-links`: an empty file for each link to a log of the pod, of the link's name.
    pub fn log_link_entries(&self, uid: &PodUid) -> PathBuf {
        self.pod_data(uid).join("log-links")
    }

    /// `/var/log/containers`: links to the logs, for collectors.
    pub fn container_log_links(&self) -> PathBuf {
        self.root.join("var/log/containers")
    }

    /// `podprobe` for the system root, else `podprobe-<8 hex digits of the root>`: the top cgroup of this daemon, and
    /// part of every other name that the whole node shares.
    pub fn id(&self) -> String {
        if self.root == Path::new("/") {
            return "podprobe".into();
        }
        let hash = self
            .root
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .fold(0x811c_9dc5_u32, |h, b| {
                (h ^ u32::from(*b)).wrapping_mul(0x0100_0193)
            });
        format!("podprobe-{hash:08x}")
    }

    /// `/<id>`: the cgroup of all pods, of shims and of the proxy, absolute in each hierarchy.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.id())
    }

    /// `/<id>/podprobe.shims`: the cgroup of shims and sandbox holders, absolute in each hierarchy. No
    /// UID has a dot, so no pod's cgroup can have this name.
    pub fn shims_cgroup(&self) -> String {
        format!("/{}/podprobe.shims", self.id())
    }

    /// `/<id>/podprobe.proxy`: the cgroup of the proxy, absolute in each hierarchy.
    pub fn proxy_cgroup(&self) -> String {
        format!("/{}/podprobe.proxy", self.id())
    }

    /// `/<id>/<uid>`: the cgroup of a pod, absolute in each hierarchy.
    pub fn pod_cgroup(&self, uid: &PodUid) -> String {
        format!("/{}/{uid}", self.id())
    }
}
