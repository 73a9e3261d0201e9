//! The processes of a measurement: the server, the bare socket loop, and podprobe's own workers. Each is this program
//! again; it says what there is to say on a line when it is asked, and ends with its standard input.

use std::io::{BufRead, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::usage::process_cpu;
use nix::sys::socket::{setsockopt, sockopt};
use podprobe::face::views::lateness::Lateness;
use podprobe::pods::prober::manager::STACK_SIZE;
use serde_json::{Value, json};

use crate::ours::Ours;
use crate::{PERIOD, raw_h2, wire};

/// Servers wait for one client at a time each.
const SERVERS: usize = 4;

/// Does what the arguments say and never returns, or returns when they name no role.
pub(crate) fn play() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["server"] => server(),
        [kind @ ("bare" | "podprobe"), handler, workers, port] => {
            let (workers, port) = (workers.parse().unwrap(), port.parse().unwrap());
            match kind {
                "bare" => bare(handler, workers, port),
                _ => Ours::start(handler, workers, port).answer(),
            }
        }
        _ => return,
    }
    std::process::exit(0);
}

/// A port for each handler.
fn server() {
    let ports: Vec<u16> = wire::HANDLERS.into_iter().map(listen).collect();
    println!("{}", json!(ports));
    answer(|| json!({}));
}

fn listen(handler: &'static str) -> u16 {
    let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    for _ in 0..SERVERS {
        let listener = listener.clone();
        std::thread::spawn(move || {
            listener
                .incoming()
                .flatten()
                .for_each(|s| wire::serve(handler, s))
        });
    }
    port
}

/// Says `report` for each line that comes, until no more can come.
pub(crate) fn answer(report: impl Fn() -> Value) {
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        println!("{}", report());
    }
}

/// What both kinds of clients say; `cpu_before` is what they had used before they counted, which is not to be counted.
pub(crate) fn report(cpu_before: Duration, probes: u64, failed: u64, lateness: &Lateness) -> Value {
    let cpu = [cpu_before, process_cpu()].map(|cpu| cpu.as_nanos() as u64);
    json!({"probes": probes, "failed": failed, "cpu": cpu, "lateness": lateness.counts()})
}

#[derive(Default)]
struct Counts {
    probes: AtomicU64,
    failed: AtomicU64,
    lateness: Lateness,
}

/// The floor: threads that sleep until their instant and make the same connection with the fewest calls. No timeout, no
/// deadline, no result.
fn bare(handler: &str, workers: usize, port: u16) {
    let (counts, begun) = (Arc::new(Counts::default()), Instant::now());
    let request: Arc<[u8]> = match handler {
        "http" => wire::http_request(port).into(),
        "tcp" => Arc::new([]),
        _ => wire::grpc_request(port).into(),
    };
    for n in 0..workers {
        let (counts, request, handler) = (counts.clone(), request.clone(), handler.to_owned());
        let phase = PERIOD.mul_f64(spread(n));
        let run = move || {
            bare_loop(
                &handler,
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                &request,
                begun + phase,
                &counts,
            )
        };
        std::thread::Builder::new()
            .stack_size(STACK_SIZE)
            .spawn(run)
            .unwrap();
    }
    println!("{}", json!({"workers": workers}));
    answer(|| {
        report(
            process_cpu(),
            counts.probes.load(Ordering::Relaxed),
            counts.failed.load(Ordering::Relaxed),
            &counts.lateness,
        )
    });
}

/// Arbitrary and the same in each run: as uneven as chance.
fn spread(n: usize) -> f64 {
    let mixed = (n as u64 + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn bare_loop(
    handler: &str,
    addr: SocketAddr,
    request: &[u8],
    mut due: Instant,
    counts: &Counts,
) -> ! {
    loop {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        counts.lateness.observe(due.elapsed());
        let done = bare_probe(handler, addr, request);
        counts.probes.fetch_add(1, Ordering::Relaxed);
        counts
            .failed
            .fetch_add(u64::from(done.is_none()), Ordering::Relaxed);
        due += PERIOD;
    }
}

fn bare_probe(handler: &str, addr: SocketAddr, request: &[u8]) -> Option<()> {
    let mut s = TcpStream::connect(addr).ok()?;
    setsockopt(
        &s,
        sockopt::Linger,
        &nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    )
    .ok()?;
    if handler == "tcp" {
        return Some(());
    }
    s.write_all(request).ok()?;
    let (mut buffer, mut filled) = ([0; 1024], 0);
    loop {
        let n = s.read(&mut buffer[filled..]).ok()?;
        filled += n;
        match handler {
            "http" if n == 0 => return (buffer[..filled].ends_with(b"ok")).then_some(()),
            "grpc" if n == 0 => return None,
            "grpc" if ends_stream(&buffer[..filled]) => return Some(()),
            _ => {}
        }
    }
}

/// Whether the frames so far end the call.
fn ends_stream(mut frames: &[u8]) -> bool {
    while let Some(head) = frames.get(..9) {
        if head[3] == raw_h2::HEADERS && head[4] & raw_h2::END_STREAM != 0 {
            return true;
        }
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        frames = frames.get(9 + length..).unwrap_or_default();
    }
    false
}
