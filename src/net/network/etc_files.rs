//! The files `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod. The files are written once, and the
//! pod's containers share these files.

use std::fs::{self, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::resolv_conf::ResolvConf;
use crate::base::aside::remove_any;

/// The paths of the files of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcFiles {
    /// The file that containers see as `/etc/hosts`.
    pub hosts: PathBuf,
    /// The file that containers see as `/etc/hostname`.
    pub hostname: PathBuf,
    /// The file that containers see as `/etc/resolv.conf`.
    pub resolv_conf: PathBuf,
}

/// The content of the files of one pod.
#[derive(Clone, Debug, Default)]
pub struct Content<'a> {
    /// The content of `/etc/hosts`.
    pub hosts: Hosts<'a>,
    /// The host name that is set in the kernel, and that `/etc/hostname` has.
    pub hostname: &'a str,
    /// The content of `/etc/resolv.conf`.
    pub resolv_conf: ResolvConf,
}

/// The names and addresses in `/etc/hosts`.
#[derive(Clone, Debug, Default)]
pub struct Hosts<'a> {
    /// The pod's addresses; not used for a pod on the node's network.
    pub addresses: Vec<IpAddr>,
    /// The host name without its domain.
    pub name: &'a str,
    /// The domain of the host name; empty if the pod has none.
    pub domain: &'a str,
    /// Additional addresses with their names (`hostAliases`).
    pub aliases: Vec<(&'a str, &'a [String])>,
    /// True if the pod is on the node's network. In this case the file is a copy of the node's `/etc/hosts` and
    /// does not list the pod's own addresses.
    pub host_network: bool,
}

impl EtcFiles {
    /// Returns the paths of the files in a pod's directory.
    pub fn below(pod_dir: &Path) -> Self {
        Self {
            hosts: pod_dir.join("etc-hosts"),
            hostname: pod_dir.join("hostname"),
            resolv_conf: pod_dir.join("resolv.conf"),
        }
    }

    /// Writes the files. Every user can read the files, whatever the daemon's umask is.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, content: &Content<'_>) -> io::Result<()> {
        let node = || fs::read_to_string("/etc/hosts").unwrap_or_default();
        write(&self.hostname, &format!("{}\n", content.hostname))?;
        write(&self.resolv_conf, &content.resolv_conf.text())?;
        write(&self.hosts, &content.hosts.text(node))
    }

    /// Tells whether [`EtcFiles::write`] has completed since the last [`EtcFiles::forget`], and nobody has removed or
    /// emptied a file since. A pod without a resolver has an empty resolv.conf.
    pub fn are_written(&self) -> bool {
        let has_content = |file: &Path| file.metadata().is_ok_and(|f| f.is_file() && f.len() > 0);
        has_content(&self.hosts) && has_content(&self.hostname) && self.resolv_conf.is_file()
    }

    /// Removes the pod's `/etc/hosts`. So the files are written again for a new sandbox, because the new sandbox
    /// may have other addresses.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub fn forget(&self) -> io::Result<()> {
        remove_any(&self.hosts)
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    if file.is_dir() {
        remove_any(file)?;
    }
    fs::write(file, text)?;
    fs::set_permissions(file, Permissions::from_mode(0o644))
}

impl Hosts<'_> {
    /// Returns the text of `/etc/hosts` (kubelet-probes 8.10). `node` reads the node's `/etc/hosts`.
    fn text(&self, node: impl FnOnce() -> String) -> String {
        let mut text = if self.host_network {
            format!(
                "# Kubernetes-managed hosts file (host network).\n{}",
                node()
            )
        } else {
            self.of_pod()
        };
        if !self.aliases.is_empty() {
            text += "\n# Entries added by HostAliases.\n";
        }
        for (address, names) in &self.aliases {
            text += &format!("{address}\t{}\n", names.join("\t"));
        }
        text
    }

    fn of_pod(&self) -> String {
        let name = self.name;
        let mut text = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
            .to_owned();
        for address in &self.addresses {
            text += &match self.domain {
                "" => format!("{address}\t{name}\n"),
                domain => format!("{address}\t{name}.{domain}\t{name}\n"),
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(domain: &'static str) -> Hosts<'static> {
        Hosts {
            addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
            name: "web",
            domain,
            ..Hosts::default()
        }
    }

    #[track_caller]
    fn check(hosts: &Hosts<'_>, expected_end: &str) {
        let text = hosts.text(|| "127.0.0.1 node\n".into());
        assert!(text.ends_with(expected_end), "{text}");
    }

    #[test]
    fn a_file_that_somebody_has_removed_or_emptied_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let files = EtcFiles::below(dir.path());
        let content = Content {
            hostname: "web",
            ..Content::default()
        };
        assert!(!files.are_written());
        let all = [&files.hosts, &files.hostname, &files.resolv_conf];
        let damages: [fn(&Path); 3] = [
            |file| fs::remove_file(file).unwrap(),
            |file| {
                fs::remove_file(file).unwrap();
                fs::create_dir_all(file.join("below")).unwrap();
            },
            |file| fs::write(file, "").unwrap(),
        ];
        for (file, damage) in all.into_iter().flat_map(|f| damages.map(|d| (f, d))) {
            files.write(&content).unwrap();
            assert!(files.are_written());
            damage(file);
            // A resolver may have nothing to say.
            let is_whole = file.is_file() && file == &files.resolv_conf;
            assert_eq!(files.are_written(), is_whole, "{}", file.display());
        }
        fs::remove_file(&files.hosts).unwrap();
        fs::create_dir_all(files.hosts.join("below")).unwrap();
        files.forget().unwrap();
        files.forget().unwrap();
        assert!(!files.hosts.exists());
    }

    #[test]
    fn the_hosts_of_a_pod_are_as_the_kubelet_writes_them() {
        check(
            &hosts(""),
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
             10.0.0.7\tweb\nfd00::7\tweb\n",
        );
        check(
            &hosts("sub.ns.svc.cluster.local"),
            "10.0.0.7\tweb.sub.ns.svc.cluster.local\tweb\nfd00::7\tweb.sub.ns.svc.cluster.local\tweb\n",
        );
    }

    #[test]
    fn aliases_follow_and_the_node_s_network_has_the_node_s_file() {
        let names = ["db".to_owned(), "db.example".to_owned()];
        let mut hosts = hosts("");
        hosts.aliases = vec![("192.0.2.5", &names), ("192.0.2.6", &names[..1])];
        let added = "\n# Entries added by HostAliases.\n192.0.2.5\tdb\tdb.example\n192.0.2.6\tdb\n";
        check(&hosts, &format!("fd00::7\tweb\n{added}"));
        hosts.host_network = true;
        let node = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n";
        check(&hosts, &format!("{node}{added}"));
    }

    #[test]
    fn every_user_may_read_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = EtcFiles::below(dir.path());
        let content = Content {
            hosts: hosts(""),
            hostname: "web",
            resolv_conf: ResolvConf::parse("nameserver 10.0.0.1"),
        };
        files.write(&content).unwrap();
        assert_eq!(fs::read_to_string(&files.hostname).unwrap(), "web\n");
        let resolver = fs::read_to_string(&files.resolv_conf).unwrap();
        assert_eq!(resolver, "nameserver 10.0.0.1\n");
        for file in [&files.hosts, &files.hostname, &files.resolv_conf] {
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
        }
    }
}
