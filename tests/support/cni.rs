//! A node with a network namespace of its own, pods in others, and plugins of CNI: Debian's, and one that records what it gets.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use podprobe::base::sys::task::Process;
use podprobe::net::network::cni::{BIN_DIRS, CniNetwork, CniSettings, Limits};
use podprobe::net::network::{Bandwidth, PortMapping, SandboxNetwork};
use serde_json::Value;

use super::skip::{is_root, skip};

/// A ceiling, never waited out by a test that passes.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// The programs that a plugin of Debian's and a test need, by the package they are in.
const PROGRAMS: [(&str, &str); 4] = [
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/sbin/tc", "iproute2"),
    ("/usr/sbin/ip", "iproute2"),
];

/// The node of a test, with its directories.
pub(crate) struct Node {
    dir: tempfile::TempDir,
}

/// Runs a test on a node without Debian's plugins.
pub(crate) fn on_a_node(test: impl FnOnce(&Node) + Send) {
    if !is_root() {
        return;
    }
    let node = Node {
        dir: tempfile::tempdir().unwrap(),
    };
    for dir in ["conf", "bin", "log", "ipam"] {
        fs::create_dir(node.path(dir)).unwrap();
    }
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        podprobe::base::sys::socket::loopback_up().unwrap();
        test(&node);
    };
    std::thread::scope(|s| {
        if let Err(panic) = s.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs a test on a node with Debian's plugins.
pub(crate) fn with_real_plugins(test: impl FnOnce(&Node) + Send) {
    for (program, package) in PROGRAMS {
        if !Path::new(program).exists() {
            return skip(&format!("needs {program} of Debian's {package}"));
        }
    }
    on_a_node(test);
}

impl Node {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The daemon's network; another call is the daemon started again.
    pub(crate) fn network(&self) -> CniNetwork {
        self.network_within(Limits::default())
    }

    pub(crate) fn network_within(&self, limits: Limits) -> CniNetwork {
        let mut bin_dirs = vec![self.path("bin")];
        bin_dirs.extend(BIN_DIRS.map(PathBuf::from));
        let settings = CniSettings {
            conf_dir: self.path("conf"),
            bin_dirs,
            cache_dir: self.path("cache"),
        };
        CniNetwork::with_limits(settings, limits)
    }

    /// Writes a configuration; `IPAM` in it is a directory for host-local.
    pub(crate) fn configure(&self, name: &str, json: &str) {
        let ipam = self.path("ipam");
        let text = json
            .replace('\'', "\"")
            .replace("IPAM", ipam.to_str().unwrap());
        fs::write(self.path("conf").join(name), text).unwrap();
    }

    pub(crate) fn unconfigure(&self) {
        fs::remove_dir_all(self.path("conf")).unwrap();
        fs::create_dir(self.path("conf")).unwrap();
    }

    /// What host-local has given to sandboxes in a network.
    pub(crate) fn reserved(&self, network: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("ipam").join(network)) else {
            return Vec::new();
        };
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut found: Vec<_> = names.filter(|n| n.parse::<IpAddr>().is_ok()).collect();
        found.sort();
        found
    }

    /// What is kept of sandboxes.
    pub(crate) fn cached(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("cache/results")) else {
            return Vec::new();
        };
        entries.map(|e| e.unwrap().path()).collect()
    }

    /// Puts a plugin that records what it gets. It answers as a plugin does, unless `behaviour` ends it before.
    pub(crate) fn plugin(&self, name: &str, behaviour: &str) {
        let log = self.path("log");
        let log = log.display();
        let script = format!(
            r#"#!/bin/sh
name={name}; log={log}
cat > $log/$CNI_COMMAND.$name.json
env | sort > $log/$CNI_COMMAND.$name.env
echo "$CNI_COMMAND $name" >> $log/calls
{behaviour}
case $CNI_COMMAND in
ADD) echo '{{"cniVersion": "1.1.0", "interfaces": [{{"name": "eth0", "sandbox": "x"}}],
    "ips": [{{"address": "10.5.0.9/24", "interface": 0}}], "by": "{name}"}}' ;;
VERSION) echo '{{"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}}' ;;
esac
"#
        );
        let file = self.path("bin").join(name);
        // Another test may be between fork and exec with the file open for writing; a renamed file never is.
        let new = self.path(name);
        fs::write(&new, script).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Which plugins were run for what, since the last call.
    pub(crate) fn calls(&self) -> Vec<String> {
        let file = self.path("log/calls");
        let calls = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        calls.lines().map(str::to_owned).collect()
    }

    /// What a plugin read.
    pub(crate) fn input(&self, call: &str) -> Value {
        let text = fs::read(self.path("log").join(format!("{call}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// A variable that a plugin saw.
    pub(crate) fn variable(&self, call: &str, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.path("log").join(format!("{call}.env"))).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut found = lines.filter(|(key, _)| *key == name);
        found.next().map(|(_, value)| value.to_owned())
    }
}

/// A sandbox: a process with a network namespace of its own.
pub(crate) struct Pod {
    id: String,
    child: Child,
    /// What the daemon takes for its holder.
    pub(crate) holder: Option<Process>,
    record: tempfile::TempDir,
    pub(crate) ports: Vec<PortMapping>,
    pub(crate) bandwidth: Bandwidth,
}

impl Pod {
    pub(crate) fn new(number: u32) -> Self {
        let begin = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            podprobe::base::sys::socket::loopback_up().unwrap();
            Command::new("sleep").arg("1000").spawn().unwrap()
        };
        let child = std::thread::scope(|s| s.spawn(begin).join().unwrap());
        Self {
            id: format!("{number:064x}"),
            holder: Process::of(child.id().cast_signed()),
            child,
            record: tempfile::tempdir().unwrap(),
            ports: Vec::new(),
            bandwidth: Bandwidth::default(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn netns(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.child.id()).into()
    }

    pub(crate) fn record(&self) -> &Path {
        self.record.path()
    }

    pub(crate) fn sandbox(&self) -> SandboxNetwork<'_> {
        SandboxNetwork {
            id: &self.id,
            name: "web",
            namespace: "default",
            uid: "u-1",
            holder: self.holder,
            record: self.record.path(),
            ports: &self.ports,
            bandwidth: self.bandwidth,
        }
    }

    /// Ends the holder.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.holder = None;
    }

    /// Ends the holder, whose pid another process gets before the daemon sees it.
    pub(crate) fn kill_and_reuse(&mut self, by: u32) {
        self.kill();
        self.holder = Process::of(by.cast_signed());
    }

    /// The pid of the holder.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs on a thread in the pod's network.
    pub(crate) fn inside<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let enter = || {
            setns(File::open(self.netns()).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            run()
        };
        std::thread::scope(|s| s.spawn(enter).join().unwrap())
    }

    /// A server in the pod that greets with the pod's number, until the test ends.
    pub(crate) fn serve(&self, port: u16) {
        let listener = self.inside(|| TcpListener::bind((wildcard(), port)).unwrap());
        let greeting = self.id.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.and_then(|mut s| s.write_all(greeting.as_bytes()));
            }
        });
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.kill();
    }
}

fn wildcard() -> IpAddr {
    IpAddr::from([0, 0, 0, 0])
}

/// What a server says; an error when it cannot be reached.
pub(crate) fn greeted(address: IpAddr, port: u16) -> std::io::Result<String> {
    let address = SocketAddr::new(address, port);
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// Runs a command line and returns what it says.
#[track_caller]
pub(crate) fn command(line: &str) -> String {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap())
        .args(words)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Opens a FIFO that a plugin reads, for it to wait for its end.
#[track_caller]
pub(crate) fn hold(gate: &Path) -> File {
    let mut options = File::options();
    options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let opened = RefCell::new(None);
    wait_for("the plugin", || {
        // ENXIO as long as nobody reads it.
        *opened.borrow_mut() = options.open(gate).ok();
        opened.borrow().is_some()
    });
    opened.into_inner().unwrap()
}

/// Waits for a condition, at most as long as the ceiling.
#[track_caller]
pub(crate) fn wait_for(what: &str, met: impl Fn() -> bool) {
    let begin = Instant::now();
    while !met() {
        assert!(begin.elapsed() < CEILING, "{what} did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}
