//! 1,000 http probes a second for `SECONDS` (default 60) on loopback: no failure, and fewer than 100 sockets in TIME-WAIT
//! at any time, though each probe is a connection of its own. Ends with 1 when that does not hold.
//!
//! 100 threads with a worker's stack call the daemon's handler, each every 100 ms at instants fixed beforehand, one
//! millisecond apart from thread to thread. The server is a process of its own. It ends every second connection right
//! after the answer, as most servers do, and at every other one waits for the prober to end it: the socket of whoever
//! ends first is the one that would wait.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use podprobe::pods::prober::http;
use podprobe::pods::prober::manager::STACK_SIZE;
use podprobe::pods::prober::outcome::{HandlerResult, Outcome};
use podprobe::pods::prober::target::Target;
use podprobe::pods::prober::url::ProbeUrl;
use support::figures::{Report, quantile};
use support::usage::process_cpu;
use support::{Guard, setting};

const PROBERS: u32 = 100;
const PERIOD: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(1);
/// TIME-WAIT is 60 s long and counted this often.
const LOOK: Duration = Duration::from_millis(100);
/// Exclusive.
const MOST_WAITING: usize = 100;
/// Set in the server's process.
const SERVE: &str = "FLOOD_SERVE";
const ACCEPTORS: usize = 8;

fn main() {
    if std::env::var_os(SERVE).is_some() {
        return serve();
    }
    support::begin();
    let all_hold = flood(setting("SECONDS", 60));
    std::process::exit(i32::from(!all_hold));
}

/// What one prober thread has seen.
#[derive(Default)]
struct Seen {
    /// Milliseconds that each probe took, and by which it began late.
    took: Vec<f64>,
    late: Vec<f64>,
    failures: Vec<String>,
}

fn flood(seconds: usize) -> bool {
    let (port, _server) = start_server();
    println!(
        "flood: {} probes a second for {seconds} s, server on port {port}",
        u128::from(PROBERS) * 1000 / PERIOD.as_millis()
    );
    assert!(
        probe(port).result == HandlerResult::Success,
        "the server does not answer"
    );
    assert_eq!(
        waiting(port),
        0,
        "sockets of another wait with the server's port: run it again in a minute"
    );
    let done = AtomicBool::new(false);
    let (begin, cpu) = (Instant::now() + PERIOD, process_cpu());
    let (seen, waiting) = thread::scope(|s| {
        let counter = s.spawn(|| count_until(&done, port));
        let prober = |n| {
            Builder::new()
                .stack_size(STACK_SIZE)
                .spawn_scoped(s, move || run(port, begin, n, seconds))
                .unwrap()
        };
        let probers: Vec<_> = (0..PROBERS).map(prober).collect();
        let seen: Vec<Seen> = probers.into_iter().map(|p| p.join().unwrap()).collect();
        done.store(true, Ordering::SeqCst);
        (seen, counter.join().unwrap())
    });
    let took = begin.elapsed().as_secs_f64();
    let cpu = (process_cpu() - cpu).as_secs_f64() * 1e3;
    let mut report = Report::new("flood");
    seen.iter()
        .flat_map(|s| &s.took)
        .for_each(|ms| report.add("a probe takes", "ms", None, *ms));
    seen.iter()
        .flat_map(|s| &s.late)
        .for_each(|ms| report.add("and began late by", "ms", None, *ms));
    waiting
        .iter()
        .for_each(|n| report.add("sockets in TIME-WAIT", "", None, *n as f64));
    judge(&mut report, &seen, &waiting, seconds, took, port);
    report.add(
        "processor, counting included, a probe",
        "ms",
        None,
        cpu / seen.iter().map(|s| s.took.len()).sum::<usize>() as f64,
    );
    report.finish();
    report.all_hold()
}

fn judge(
    report: &mut Report,
    seen: &[Seen],
    waiting: &[usize],
    seconds: usize,
    took: f64,
    port: u16,
) {
    let (probes, planned) = (
        seen.iter().map(|s| s.took.len()).sum::<usize>(),
        PROBERS as usize * seconds * 10,
    );
    report.check(
        "every probe was made",
        probes == planned,
        format!("{probes} of {planned}"),
    );
    report.check(
        "in the time",
        took < seconds as f64 + 1.0,
        format!("{took:.2} s; {:.0} a second", probes as f64 / took),
    );
    let failures: Vec<&String> = seen.iter().flat_map(|s| &s.failures).collect();
    let first = failures
        .first()
        .map(|f| format!(": {f}"))
        .unwrap_or_default();
    report.check(
        "no probe failed",
        failures.is_empty(),
        format!("{}{first}", failures.len()),
    );
    let most = waiting.iter().max().copied().unwrap_or(usize::MAX);
    report.check(
        &format!("fewer than {MOST_WAITING} sockets in TIME-WAIT"),
        most < MOST_WAITING,
        format!("{most} at most, {} looks", waiting.len()),
    );
    let looks = took / LOOK.as_secs_f64();
    report.check(
        "they were counted all the time",
        waiting.len() as f64 > 0.8 * looks,
        format!("{} of {looks:.0} looks", waiting.len()),
    );
    let control = leave_one_waiting(port);
    report.check(
        "the count sees one that was left on purpose",
        control,
        control.to_string(),
    );
}

fn probe(port: u16) -> Outcome {
    let target = Target {
        host: "127.0.0.1".into(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        netns: None,
    };
    http::Get::new(
        ProbeUrl::of_probe("HTTP", "127.0.0.1", port, "/healthz"),
        &[],
        target,
    )
    .run(TIMEOUT)
}

/// One worker: each instant is fixed beforehand, so a probe that is late delays none but itself.
fn run(port: u16, begin: Instant, n: u32, seconds: usize) -> Seen {
    let mut seen = Seen::default();
    for tick in 0..seconds as u32 * 10 {
        let due = begin + PERIOD * tick + PERIOD / PROBERS * n;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let begun = Instant::now();
        let outcome = probe(port);
        seen.took.push(begun.elapsed().as_secs_f64() * 1e3);
        seen.late
            .push(begun.duration_since(due).as_secs_f64() * 1e3);
        if outcome.result != HandlerResult::Success || outcome.error.is_some() {
            seen.failures.push(format!("{outcome:?}"));
        }
    }
    seen
}

fn count_until(done: &AtomicBool, port: u16) -> Vec<usize> {
    let (mut counts, begun) = (Vec::new(), Instant::now());
    while !done.load(Ordering::SeqCst) {
        counts.push(waiting(port));
        if counts.len().is_multiple_of(100) {
            let last: Vec<f64> = counts[counts.len() - 100..]
                .iter()
                .map(|n| *n as f64)
                .collect();
            println!(
                "{:>5} s  TIME-WAIT {} at most",
                counts.len() / 10,
                quantile(&last, 1.0)
            );
        }
        let due = begun + LOOK * counts.len() as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    counts
}

/// Sockets in TIME-WAIT with that port on either side.
fn waiting(port: u16) -> usize {
    const TIME_WAIT: &str = "06";
    let port = format!(":{port:04X}");
    let of = |file: &str| {
        // A kernel without IPv6 has no second file.
        let table = std::fs::read_to_string(file).unwrap_or_default();
        let is_ours = |l: &&str| {
            let fields: Vec<&str> = l.split_whitespace().collect();
            fields[3] == TIME_WAIT && (fields[1].ends_with(&port) || fields[2].ends_with(&port))
        };
        table.lines().skip(1).filter(is_ours).count()
    };
    of("/proc/net/tcp") + of("/proc/net/tcp6")
}

/// A connection that its client ends in the usual way.
fn leave_one_waiting(port: u16) -> bool {
    let before = waiting(port);
    // One of two is waited for by the server.
    for _ in 0..2 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
    }
    let end = Instant::now() + TIMEOUT;
    while waiting(port) <= before && Instant::now() < end {
        thread::sleep(LOOK / 10);
    }
    waiting(port) > before
}

/// This program again, as the server; it ends with its standard input.
fn start_server() -> (u16, Guard) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command
        .env(SERVE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let guard = Guard::new(move || {
        drop(child.stdin.take());
        let _ = child.wait();
    });
    (line.trim().parse().unwrap(), guard)
}

fn serve() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..ACCEPTORS {
        let listener = listener.try_clone().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A prober that hangs up early is its own affair.
                let _ = answer(
                    stream,
                    COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
                );
            }
        });
    }
    let _ = std::io::stdin().read(&mut [0; 1]);
}

fn answer(mut stream: TcpStream, waits: bool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let (mut head, mut bytes) = (Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            n => head.extend_from_slice(&bytes[..n]),
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n")?;
    while waits && stream.read(&mut bytes)? > 0 {}
    Ok(())
}
