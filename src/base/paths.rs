//! Paths of podprobe's files on the node (docs/manual/files-on-the-node.md). With `--root DIR` every path lies below DIR.

use std::path::{Path, PathBuf};

use crate::base::pod_uid::PodUid;

pub mod directories;

/// The paths of one daemon. Two daemons with different roots share no path and no name: see [`Layout::id`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the layout below `root`. `/` gives the system's own paths.
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

    /// The directory that all paths of the layout lie below.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `/etc/podprobe/config.json`: the configuration.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("etc/podprobe/config.json")
    }

    /// `/etc/podprobe/pods`: the pod files, unless the configuration names another directory.
    pub fn pods_dir(&self) -> PathBuf {
        self.root.join("etc/podprobe/pods")
    }

    /// `/run/podprobe/podprobe.sock`: the daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir().join("podprobe.sock")
    }

    /// `/run/podprobe`: files that last until the next boot.
    pub fn run_dir(&self) -> PathBuf {
        self.root.join("run/podprobe")
    }

    /// `/run/podprobe/sandboxes`: a directory `<id>` for each sandbox, with the record of the sandbox.
    pub fn sandboxes(&self) -> PathBuf {
        self.run_dir().join("sandboxes")
    }

    /// `/run/podprobe/containers`: a directory `<id>` for each container, with the record, OCI bundle and shim state of
    /// the container.
    pub fn containers(&self) -> PathBuf {
        self.run_dir().join("containers")
    }

    /// `/run/podprobe/statuses`: the status of each pod, in a file with the pod's UID as its name.
    pub fn statuses(&self) -> PathBuf {
        self.run_dir().join("statuses")
    }

    /// `/run/podprobe/exits`: one file for each pod that has a container which has just ended.
    pub fn exits(&self) -> PathBuf {
        self.run_dir().join("exits")
    }

    /// `/run/podprobe/oci`: the state of the OCI runtime itself (`runc --root`).
    pub fn oci_state(&self) -> PathBuf {
        self.run_dir().join("oci")
    }

    /// `/run/podprobe/proxy`: socket, record and last table of the proxy.
    pub fn proxy_dir(&self) -> PathBuf {
        self.run_dir().join("proxy")
    }

    /// `/var/lib/podprobe`: files that survive a reboot. The running daemon holds a lock (flock) on this directory, so
    /// a root has only one daemon.
    pub fn lib_dir(&self) -> PathBuf {
        self.root.join("var/lib/podprobe")
    }

    /// `/var/lib/podprobe/seccomp`: the seccomp profiles of type `Localhost`.
    pub fn seccomp(&self) -> PathBuf {
        self.lib_dir().join("seccomp")
    }

    /// `/var/lib/podprobe/checkpoint.json`: the pod statuses that the last daemon has saved.
    pub fn checkpoint(&self) -> PathBuf {
        self.lib_dir().join("checkpoint.json")
    }

    /// `/var/lib/podprobe/server.crt` and `/var/lib/podprobe/server.key`: the certificate that the server has made for
    /// itself, and its key.
    pub fn server_certificate(&self) -> (PathBuf, PathBuf) {
        let dir = self.lib_dir();
        (dir.join("server.crt"), dir.join("server.key"))
    }

    /// `/etc/cni/net.d`: the CNI configurations, unless the configuration names another directory.
    pub fn cni_conf_dir(&self) -> PathBuf {
        self.root.join("etc/cni/net.d")
    }

    /// `/var/lib/podprobe/cni`: records of what CNI plugins still have to release.
    pub fn cni_cache(&self) -> PathBuf {
        self.lib_dir().join("cni")
    }

    /// `/var/lib/podprobe/services.json`: the addresses and ports that were allocated for services.
    pub fn services(&self) -> PathBuf {
        self.lib_dir().join("services.json")
    }

    /// `/var/lib/podprobe/pauses.json`: the probes that a person has paused.
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

    /// `/var/lib/podprobe/images.d`: a directory for image archives. The daemon loads each archive that a person puts
    /// there.
    pub fn image_drop(&self) -> PathBuf {
        self.lib_dir().join("images.d")
    }

    /// Returns the paths at which docker's `config.json` or its older form is looked for. The kubelet looks in the same
    /// places: its own directory, the home directory and the root.
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

    /// `/var/lib/podprobe/containers/<id>`: overlay upper and work directories of a container.
    pub fn container_data(&self, id: &str) -> PathBuf {
        self.lib_dir().join("containers").join(id)
    }

    /// `/var/lib/podprobe/pods/<uid>`: volumes and generated files of a pod (hosts, hostname, resolv.conf, termination
    /// logs).
    pub fn pod_data(&self, uid: &PodUid) -> PathBuf {
        self.lib_dir().join("pods").join(uid.as_str())
    }

    /// `/var/lib/podprobe/pods/<uid>/evicted.json`: a file that exists while the pod is evicted.
    pub fn eviction(&self, uid: &PodUid) -> PathBuf {
        self.pod_data(uid).join("evicted.json")
    }

    /// `/var/lib/podprobe/claims`: volumes that outlive their pods, each in a directory `<namespace>/<name>`.
    pub fn claims(&self) -> PathBuf {
        self.lib_dir().join("claims")
    }

    /// `/var/lib/podprobe/cluster`: what a cluster has given the node.
    pub fn cluster(&self) -> PathBuf {
        self.lib_dir().join("cluster")
    }

    /// `/var/lib/podprobe/cluster/pods`: the pods that the API server has given, each in a file with the pod's UID as its
    /// name.
    pub fn kept_pods(&self) -> PathBuf {
        self.cluster().join("pods")
    }

    /// `/var/lib/podprobe/cluster/objects`: the ConfigMaps, Secrets and tokens of those pods, each in a file.
    pub fn kept_objects(&self) -> PathBuf {
        self.cluster().join("objects")
    }

    /// `/var/lib/podprobe/workloads`: the state of each workload, in a file with the workload's UID as its name.
    pub fn workloads(&self) -> PathBuf {
        self.lib_dir().join("workloads")
    }

    /// `/var/lib/podprobe/workloads/pods`: the record of each pod that a controller has made.
    pub fn made_pods(&self) -> PathBuf {
        self.workloads().join("pods")
    }

    /// `/var/log/pods`: the logs of containers.
    pub fn logs_dir(&self) -> PathBuf {
        self.root.join("var/log/pods")
    }

    /// `/var/log/pods/<ns>_<name>_<uid>`: the logs of a pod's containers.
    pub fn pod_logs(&self, namespace: &str, name: &str, uid: &PodUid) -> PathBuf {
        self.logs_dir().join(format!("{namespace}_{name}_{uid}"))
    }

    /// `/var/lib/podprobe/pods/<uid>/log-links`: an empty file for each link to a log of the pod, with the name of the
    /// link.
    pub fn log_link_entries(&self, uid: &PodUid) -> PathBuf {
        self.pod_data(uid).join("log-links")
    }

    /// `/var/log/containers`: links to the logs, for log collectors.
    pub fn container_log_links(&self) -> PathBuf {
        self.root.join("var/log/containers")
    }

    /// Returns the name of this daemon on the node: `podprobe` for the root `/`, otherwise `podprobe-<8 hex digits>`
    /// with a hash of the root. The daemon's top cgroup has this name. The daemon also puts the name into each other
    /// name that must be unique on the node, so two daemons never use the same name.
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

    /// `/<id>`: the cgroup above all pods, shims and the proxy. The path is absolute in each hierarchy.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.id())
    }

    /// `/<id>/podprobe.shims`: the cgroup of shims and sandbox holders. The path is absolute in each hierarchy. No pod's
    /// cgroup can have this name, because a UID has no dot.
    pub fn shims_cgroup(&self) -> String {
        format!("/{}/podprobe.shims", self.id())
    }

    /// `/<id>/podprobe.proxy`: the cgroup of the proxy. The path is absolute in each hierarchy.
    pub fn proxy_cgroup(&self) -> String {
        format!("/{}/podprobe.proxy", self.id())
    }

    /// `/<id>/<uid>`: the cgroup of a pod. The path is absolute in each hierarchy.
    pub fn pod_cgroup(&self, uid: &PodUid) -> String {
        format!("/{}/{uid}", self.id())
    }
}
