//! `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod: written once, shared by its containers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The files of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcFiles {
    /// Seen as `/etc/hosts`.
    pub hosts: PathBuf,
    /// Seen as `/etc/hostname`.
    pub hostname: PathBuf,
    /// Seen as `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
}

impl EtcFiles {
    /// The files in a pod's directory.
    pub fn below(pod_dir: &Path) -> Self {
        Self {
            hosts: pod_dir.join("etc-hosts"),
            hostname: pod_dir.join("hostname"),
            resolv_conf: pod_dir.join("resolv.conf"),
        }
    }

    /// Writes the files for a pod with this host name.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, hostname: &str, host_network: bool) -> io::Result<()> {
        fs::write(&self.hosts, hosts(hostname, host_network))?;
        fs::write(&self.hostname, format!("{hostname}\n"))?;
        fs::write(
            &self.resolv_conf,
            fs::read("/etc/resolv.conf").unwrap_or_default(),
        )
    }
}

/// The host name that a pod's processes see: the node's name on the node's network, else
/// `spec.hostname` or the pod's name, cut to 63 characters as in the kubelet.
pub fn hostname(wanted: &str, pod_name: &str, host_network: bool) -> String {
    if host_network {
        return nix::unistd::gethostname()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
    }
    let name = if wanted.is_empty() { pod_name } else { wanted };
    name.chars()
        .take(63)
        .collect::<String>()
        .trim_end_matches(['-', '.'])
        .to_owned()
}

/// The text of `/etc/hosts`: the node's file for pods on its network, else loopback and the pod
/// itself.
fn hosts(hostname: &str, host_network: bool) -> String {
    if host_network && let Ok(own) = fs::read_to_string("/etc/hosts") {
        return format!("# Managed by podprobe (host network).\n{own}");
    }
    format!(
        "# Managed by podprobe.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n127.0.0.1\t{hostname}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_cut_as_the_kubelet_cuts_it() {
        let long = format!("{}-.tail", "a".repeat(61));
        assert_eq!(hostname("", &long, false), "a".repeat(61));
        assert_eq!(hostname("own", "pod", false), "own");
        assert_eq!(hostname("", "pod", false), "pod");
    }

    #[test]
    fn the_files_name_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let files = EtcFiles::below(dir.path());
        files.write("web", false).unwrap();
        assert_eq!(fs::read_to_string(&files.hostname).unwrap(), "web\n");
        let hosts = fs::read_to_string(&files.hosts).unwrap();
        assert!(hosts.ends_with("127.0.0.1\tweb\n"), "{hosts}");
        assert!(files.resolv_conf.exists());
    }
}
