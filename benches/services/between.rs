//! What stands between a client and a pod.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use podprobe::net::proxy::DataPath;
use podprobe::net::proxy::nftables::Nftables;
use podprobe::net::proxy::userspace::{ProxyRole, UserspaceProxy};
use podprobe::net::proxyd::home::Record;
use podprobe::net::proxyd::message::{Options, ServiceAddresses};

use super::networks::Namespace;
use super::support::usage;
use super::{CLUSTER_IP, POD, World, at, one_service, support};

/// All of them; the last two are other people's programs.
pub(crate) const KINDS: [&str; 5] = ["direct", "nftables", "userspace", "socat", "haproxy"];

/// One of them, running.
pub(crate) struct Between {
    /// Where clients go.
    pub(crate) to: SocketAddr,
    process: Option<Process>,
    _path: Option<Nftables>,
}

/// It ends with this.
struct Process {
    pid: i32,
    child: Option<Child>,
    dir: PathBuf,
}

impl Between {
    pub(crate) fn is_installed(kind: &str) -> bool {
        let has_program = || {
            let mut found = Command::new(kind);
            found
                .arg(if kind == "socat" { "-V" } else { "-v" })
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            found.status().is_ok()
        };
        !matches!(kind, "socat" | "haproxy") || has_program()
    }

    pub(crate) fn start(kind: &str, world: &World) -> Self {
        let to = |ip: &str, port| Self {
            to: at(ip, port),
            process: None,
            _path: None,
        };
        match kind {
            "direct" => to(POD, 8080),
            "nftables" => Self {
                _path: Some(nftables(&world.node)),
                ..to(CLUSTER_IP, 80)
            },
            "userspace" => Self {
                process: Some(userspace(&world.node)),
                ..to(CLUSTER_IP, 80)
            },
            "socat" => Self {
                process: Some(Process::start(
                    &world.node,
                    Command::new("socat")
                        .arg("TCP-LISTEN:8000,fork,reuseaddr,backlog=1024,nodelay")
                        .arg(format!("TCP:{POD}:8080,nodelay")),
                )),
                ..to("192.168.50.1", 8000)
            },
            _ => Self {
                process: Some(haproxy(&world.node)),
                ..to("192.168.50.1", 8000)
            },
        }
    }

    /// Processor time of the process between, and of its children that have ended.
    pub(crate) fn cpu(&self) -> Duration {
        let Some(process) = &self.process else {
            return Duration::ZERO;
        };
        let (nanoseconds, _) = usage::cpu(process.pid);
        Duration::from_nanos(nanoseconds) + of_children(process.pid)
    }

    /// KiB, of pages that others have too its share.
    pub(crate) fn memory(&self) -> u64 {
        self.process
            .as_ref()
            .map_or(0, |p| usage::memory(p.pid).pss)
    }
}

fn of_children(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    // cutime and cstime, in ticks of 10 ms
    let ticks: u64 = fields
        .skip(13)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

fn nftables(node: &Namespace) -> Nftables {
    node.ip("route add 10.96.0.0/16 dev lo");
    let mut path = node.run(|| Nftables::new("bench").unwrap());
    path.apply(&one_service()).unwrap();
    path
}

fn new_dir(name: &str, node: &Namespace) -> PathBuf {
    let dir = support::out_dir().join(format!("services-{name}-{}", node.tid()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn userspace(node: &Namespace) -> Process {
    let dir = new_dir("proxy", node);
    let role = ProxyRole::new(&dir, "").with_program(support::program());
    let options = Options {
        service_addresses: ServiceAddresses::Bound,
        ..Options::default()
    };
    node.ip("route add local 10.96.0.0/16 dev lo");
    node.run(|| {
        let mut proxy = UserspaceProxy::new(role, options);
        proxy.apply(&one_service()).unwrap();
    });
    Process {
        pid: Record::running(&dir).unwrap().process.pid,
        child: None,
        dir,
    }
}

fn haproxy(node: &Namespace) -> Process {
    let dir = new_dir("haproxy", node);
    let file = dir.join("haproxy.cfg");
    // As an experienced person would write it for one processor and for streams.
    let text = format!(
        "global\n nbthread 1\n maxconn 4096\ndefaults\n mode tcp\n option splice-auto\n timeout connect 1s\n timeout client 60s\n timeout server 60s\n\
         frontend f\n bind 192.168.50.1:8000\n default_backend b\nbackend b\n server s {POD}:8080\n"
    );
    fs::write(&file, text).unwrap();
    let mut process = Process::start(node, Command::new("haproxy").arg("-db").arg("-f").arg(file));
    process.dir = dir;
    process
}

impl Process {
    /// Starts a program and waits until it listens.
    fn start(node: &Namespace, command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = node.run(|| command.spawn().unwrap());
        let pid = child.id() as i32;
        let end = Instant::now() + support::CEILING;
        let listens = || {
            let tcp = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
            // Port 8000, state LISTEN.
            tcp.lines().any(|l| l.contains(":1F40 00000000:0000 0A"))
        };
        while !listens() {
            assert!(Instant::now() < end, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            pid,
            child: Some(child),
            dir: PathBuf::new(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            None => {
                if let Some(Ok(Some(role))) = Record::running(&self.dir).map(|r| r.process.open()) {
                    let _ = role.send(nix::libc::SIGKILL);
                    let _ = role.wait(support::CEILING);
                }
            }
        }
        if self.dir != PathBuf::new() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
