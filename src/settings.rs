//! The daemon's configuration: `config.json` with KubeletConfiguration's names wherever the kubelet has one, and the
//! command line over it. Every key is in config/config.json with its default (a test compares the two).

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// What the daemon runs with, validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Lower-cased into the name of every static pod; default the host name.
    pub node_name: String,
    /// `staticPodPath`: the watched directory (or one file).
    pub static_pod_path: PathBuf,
    /// `fileCheckFrequency`: re-listing of the directory; default 20 s, at least 100 ms.
    pub file_check_frequency: Duration,
    /// `syncFrequency`: resync of a healthy pod; default 60 s, at least 1 s.
    pub sync_frequency: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`: default 300 s, 1–300 s.
    pub max_container_restart_period: Duration,
    /// `containerLogMaxSize` in bytes: default 10 MiB.
    pub container_log_max_size: u64,
    /// `containerLogMaxFiles`: default 5, at least 2.
    pub container_log_max_files: u32,
    /// `nodeIP`: the address of pods with hostNetwork, and where their probes go; default 127.0.0.1.
    pub node_ip: IpAddr,
    /// `allowProbeHosts`: hosts other than the pod's address and loopback that a probe may name; default none.
    pub allow_probe_hosts: Vec<String>,
    /// `embedded`, or the path of an OCI runtime.
    pub runtime: RuntimeChoice,
}

/// Which OCI runtime the shims drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// This binary's own (`podprobe oci`).
    Embedded,
    /// An OCI runtime binary.
    Path(PathBuf),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: "localhost".into(),
            static_pod_path: PathBuf::from("/etc/podprobe/pods"),
            file_check_frequency: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            max_container_restart_period: Duration::from_secs(300),
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            node_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            allow_probe_hosts: Vec::new(),
            runtime: if cfg!(feature = "embedded") { RuntimeChoice::Embedded } else { RuntimeChoice::Path("/usr/sbin/runc".into()) },
        }
    }
}
