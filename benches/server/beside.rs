//! What others notice of hostile clients: who asks for health, the probes, and the daemon's memory and descriptors.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::hostile::{Doors, Hostile};
use super::support::Guard;
use super::support::figures::{Report, quantile};
use super::support::node::Node;
use super::support::usage::{self, Holdings, memory, total};
use super::{Held, out_dir, start};

/// From an answer about health to the next request.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for an answer about health.
const PATIENCE: Duration = Duration::from_secs(10);
/// A probe that begins so much later than it was due is late. It is a bound of the histogram.
const LATE: &str = "0.05";

pub(super) fn measure(report: &mut Report, clients: usize, time: Duration) {
    let (health, tls) = (free_port(), free_port());
    let secrets = Secrets::new();
    let mut config = secrets.config(tls);
    config["healthzPort"] = health.into();
    let mut node = start(&config);
    let doors = Doors {
        health,
        tls,
        socket: node.layout.socket(),
    };
    // What the first clients make is there before.
    let first = Hostile::start(&doors, clients, Duration::from_secs(2)).end();
    assert!(first.is_at_every_door(), "{first}");
    std::thread::sleep(Duration::from_secs(1));
    let before = Held::by(&node);
    let pid = node.daemon.pid;
    let rss = memory(pid).rss;
    usage::reset_peak(pid);
    let probes = Probes::so_far(&node);
    let over = AtomicBool::new(false);
    let (asked, found, descriptors) = std::thread::scope(|s| {
        let most = s.spawn(|| most_descriptors(pid, &over));
        let hostile = Hostile::start(&doors, clients, time);
        let asked = ask(health, time);
        let found = hostile.end();
        over.store(true, Ordering::SeqCst);
        (asked, found, most.join().unwrap())
    });
    let peak = usage::peak(pid);
    node.assert_alive();
    health_of(report, &asked);
    let probes = Probes::so_far(&node).since(&probes);
    let name = format!("probes that begin more than {LATE} s late");
    report.add(&name, "", Some(0.0), probes.late as f64);
    let kib = |report: &mut Report, when: &str, kib: u64| {
        report.add(
            &format!("RSS {when} hostile clients"),
            "kB",
            None,
            kib as f64,
        );
    };
    kib(report, "before", rss);
    kib(report, "at most beside", peak);
    report.add(
        "descriptors at most beside hostile clients",
        "",
        None,
        descriptors as f64,
    );
    before.compare(report, "hostile clients", &Held::by(&node));
    kib(report, "after", memory(pid).rss);
    report.check(
        "hostile clients came to every address, and over the unix socket further than the handshake",
        found.is_at_every_door(),
        found.to_string(),
    );
    report.note(format!(
        "{clients} hostile clients at a time for {} s; health was asked for {} times, {} probes ran",
        time.as_secs(),
        asked.len(),
        probes.all
    ));
    node.stop();
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// A request for health.
struct Asked {
    /// Milliseconds to the answer, or why there was none.
    answer: Result<f64, String>,
    /// Milliseconds that the machine let the client sleep longer than it wanted to before the next request.
    overslept: f64,
}

/// Asks for health again and again, each time as a client that has just come.
fn ask(port: u16, time: Duration) -> Vec<Asked> {
    let end = Instant::now() + time;
    let mut all = Vec::new();
    while Instant::now() < end {
        let begun = Instant::now();
        let answer = one(port).map_err(|e| e.to_string()).and_then(|text| {
            let is_good = text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nok");
            is_good.then_some(()).ok_or(text)
        });
        let answer = answer.map(|()| begun.elapsed().as_secs_f64() * 1e3);
        let answered = Instant::now();
        std::thread::sleep(PAUSE);
        let overslept = (answered.elapsed() - PAUSE).as_secs_f64() * 1e3;
        all.push(Asked { answer, overslept });
    }
    all
}

fn one(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn health_of(report: &mut Report, asked: &[Asked]) {
    let name = "/healthz beside hostile clients";
    let took: Vec<f64> = asked.iter().filter_map(|a| a.answer.clone().ok()).collect();
    took.iter().for_each(|ms| report.add(name, "ms", None, *ms));
    let mut add = |what: &str, target, ms| report.add(&format!("{name}, {what}"), "ms", target, ms);
    add("p99", None, quantile(&took, 0.99));
    add("longest", Some(100.0), quantile(&took, 1.0));
    // What no server can help.
    let overslept: Vec<f64> = asked.iter().map(|a| a.overslept).collect();
    add(
        "its client overslept, p99",
        None,
        quantile(&overslept, 0.99),
    );
    add(
        "its client overslept, longest",
        None,
        quantile(&overslept, 1.0),
    );
    let failed: Vec<&String> = asked
        .iter()
        .filter_map(|a| a.answer.as_ref().err())
        .collect();
    let count = failed.len() as f64;
    report.add(&format!("{name}, failed"), "", Some(0.0), count);
    if let Some(why) = failed.first() {
        report.note(format!("the first that failed: {why:?}"));
    }
}

/// Until it is over.
fn most_descriptors(pid: i32, over: &AtomicBool) -> usize {
    let mut most = 0;
    while !over.load(Ordering::SeqCst) {
        most = most.max(total(&Holdings::now(pid).descriptors));
        std::thread::sleep(Duration::from_millis(50));
    }
    most
}

/// Probes that have run, and how many of them began late.
struct Probes {
    all: u64,
    late: u64,
}

impl Probes {
    fn so_far(node: &Node) -> Self {
        let text = node.client().metrics().unwrap();
        let of = |series: &str| -> u64 {
            let start = format!("podprobe_prober_probe_lateness_seconds_{series} ");
            let line = text.lines().find_map(|l| l.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("no {start}in {text}"))
                .parse()
                .unwrap()
        };
        let all = of("count");
        let late = all - of(&format!("bucket{{le=\"{LATE}\"}}"));
        Self { all, late }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            all: self.all - before.all,
            late: self.late - before.late,
        }
    }
}

/// The files that `port` needs; they go with this.
struct Secrets {
    dir: PathBuf,
    _guard: Guard,
}

impl Secrets {
    fn new() -> Self {
        let dir = out_dir().join(format!("secrets-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let _guard = Guard::new({
            let dir = dir.clone();
            move || drop(fs::remove_dir_all(dir))
        });
        let secrets = Self { dir, _guard };
        let certificate = include_bytes!("../../tests/data/probe-server.crt.der");
        let key = include_bytes!("../../tests/data/probe-server.key.der");
        secrets.write("cert.pem", &pem("CERTIFICATE", certificate));
        secrets.write("key.pem", &pem("PRIVATE KEY", key));
        secrets.write("token", "a-token-that-nobody-knows");
        secrets
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn config(&self, port: u16) -> Value {
        let path = |name: &str| self.path(name);
        json!({"address": "127.0.0.1", "port": port, "tlsCertFile": path("cert.pem"),
            "tlsPrivateKeyFile": path("key.pem"), "authentication": {"bearerTokenFile": path("token")}})
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let body: String = lines.map(|l| format!("{l}\n")).collect();
    format!("-----BEGIN {what}-----\n{body}-----END {what}-----\n")
}
