//! A server to be probed: answers HTTP, TCP and gRPC, and turns slow, unhealthy, unready, stuck or dead on request.
//!
//! std only, so that `rustc` alone makes a static program of it that runs as the only file of an image.
//!
//! HTTP: `/healthz`, `/readyz` and `/startz` answer 200 or 500 by their state; `/set?health=STATE&ready=STATE&start=STATE`
//! changes it, where STATE is `ok`, `fail`, `slow` (answers after 5 s) or `stuck` (never answers); `/exit?code=N` ends it.
//!
//! By itself (times are `500ms`, `3s` or `2m`, since the start): `--start-after T`, `--ready-after
//! T`, `--fail-after T` (liveness turns 500), `--stuck-after T` (liveness never answers),
//! `--unready-every T` (readiness toggles), `--exit-after T`, `--exit-code N`, `--die` (ends at
//! once, with code 1 unless `--exit-code` says otherwise), `--port N` (default 8080, 0 for none),
//! `--tcp-port N` (default none). `--health-port N`, `--ready-port N` and `--start-port N` are TCP
//! ports that are open while that state is `ok`. `--grpc-port N` serves grpc.health.v1 without TLS
//! for the services `health` (also the empty one), `ready` and `start`. `--chaos SEED` misbehaves
//! at random (chaos.rs), in the same way for a seed and an instance; with `--calm FILE` it behaves
//! while FILE exists. `--stamp FILE` adds a line `start NS` (the wall clock, unix nanoseconds) to
//! FILE as its first act, and `fail NS` when `/healthz` first answers 500; `--chaos` adds `exit NS`
//! before it ends by itself. With `--drain T` it serves for T after a TERM, and ends when no request is open.
//!
//! `probe-target --check PATH [--port N]` asks a running one and ends with 0 or 1: a command for an exec probe.

mod chaos;
mod doors;
mod grpc;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use doors::{Doors, Serves};

const STATES: [&str; 4] = ["ok", "fail", "slow", "stuck"];
const OK: u8 = 0;
const FAIL: u8 = 1;
const SLOW: u8 = 2;
const STUCK: u8 = 3;

/// Most requests answered at once; further ones are closed.
const MAX_REQUESTS: usize = 64;

/// True if a TERM ends the process only when no request is open.
static IS_GENTLE: AtomicBool = AtomicBool::new(false);

/// True after a TERM.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// How late a slow answer is.
const SLOWNESS: Duration = Duration::from_secs(5);

/// What each path answers: an index into [`STATES`].
struct Target {
    health: AtomicU8,
    ready: AtomicU8,
    start: AtomicU8,
    doors: Doors,
    requests: AtomicUsize,
    begun: Instant,
    stamps: Option<String>,
    failed: AtomicBool,
}

impl Target {
    fn state(&self, which: &str) -> Option<&AtomicU8> {
        match which {
            "health" => Some(&self.health),
            "ready" => Some(&self.ready),
            "start" => Some(&self.start),
            _ => None,
        }
    }

    fn set(&self, which: &str, state: u8) -> bool {
        let Some(cell) = self.state(which) else {
            return false;
        };
        let before = cell.swap(state, Ordering::SeqCst);
        self.doors.changed(self);
        if before != state {
            self.say(&format!(
                "{which}: {} -> {}",
                STATES[usize::from(before)],
                STATES[usize::from(state)]
            ));
        }
        true
    }

    fn say(&self, text: &str) {
        // The reader of the output may be gone; the server continues.
        let _ = writeln!(
            std::io::stdout(),
            "{:.1}s {text}",
            self.begun.elapsed().as_secs_f64()
        );
    }
}

#[derive(Default)]
struct Options {
    port: Option<u16>,
    tcp_port: u16,
    grpc_port: u16,
    health_port: u16,
    ready_port: u16,
    start_port: u16,
    start_after: Option<Duration>,
    ready_after: Option<Duration>,
    fail_after: Option<Duration>,
    stuck_after: Option<Duration>,
    unready_every: Option<Duration>,
    exit_after: Option<Duration>,
    exit_code: Option<u8>,
    die: bool,
    check: Option<String>,
    stamp: Option<String>,
    chaos: Option<u64>,
    calm: Option<String>,
    drain: Option<Duration>,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)) {
        Ok(options) => run(&options),
        Err(text) => {
            eprintln!("probe-target: {text}");
            ExitCode::from(2)
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut o = Options::default();
    while let Some(name) = args.next() {
        if name == "--die" {
            o.die = true;
            continue;
        }
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{name}: not a number: {value}"))
        };
        match name.as_str() {
            "--port" => o.port = Some(number()?),
            "--tcp-port" => o.tcp_port = number()?,
            "--grpc-port" => o.grpc_port = number()?,
            "--health-port" => o.health_port = number()?,
            "--ready-port" => o.ready_port = number()?,
            "--start-port" => o.start_port = number()?,
            "--chaos" => {
                o.chaos = Some(
                    value
                        .parse()
                        .map_err(|_| format!("--chaos: not a number: {value}"))?,
                )
            }
            "--calm" => o.calm = Some(value),
            "--drain" => o.drain = Some(duration(&value)?),
            "--exit-code" => {
                o.exit_code = Some(
                    u8::try_from(number()?).map_err(|_| format!("{name}: above 255: {value}"))?,
                )
            }
            "--start-after" => o.start_after = Some(duration(&value)?),
            "--ready-after" => o.ready_after = Some(duration(&value)?),
            "--fail-after" => o.fail_after = Some(duration(&value)?),
            "--stuck-after" => o.stuck_after = Some(duration(&value)?),
            "--unready-every" => o.unready_every = Some(duration(&value)?).filter(|d| !d.is_zero()),
            "--exit-after" => o.exit_after = Some(duration(&value)?),
            "--check" => o.check = Some(value),
            "--stamp" => {
                stamp(&value, "start");
                o.stamp = Some(value);
            }
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(o)
}

/// Adds the time to a file. If this fails, the server still serves.
fn stamp(file: &str, what: &str) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let opened = OpenOptions::new().create(true).append(true).open(file);
    if let Err(e) = opened.and_then(|mut f| f.write_all(format!("{what} {now}\n").as_bytes())) {
        eprintln!("probe-target: cannot write {file}: {e}");
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("not a time such as 500ms, 3s or 2m: {text}");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let n: u64 = text[..at].parse().map_err(|_| bad())?;
    match &text[at..] {
        "ms" => Ok(Duration::from_millis(n)),
        "s" => Ok(Duration::from_secs(n)),
        "m" => Ok(Duration::from_secs(n.saturating_mul(60))),
        _ => Err(bad()),
    }
}

fn run(o: &Options) -> ExitCode {
    end_on_term(o.drain.is_some());
    let port = o.port.unwrap_or(8080);
    if let Some(path) = &o.check {
        return check(port, path);
    }
    let begun = Instant::now();
    let state = |later: Option<Duration>| AtomicU8::new(if later.is_some() { FAIL } else { OK });
    let target = Arc::new(Target {
        health: AtomicU8::new(OK),
        ready: state(o.ready_after),
        start: state(o.start_after),
        doors: Doors::default(),
        requests: AtomicUsize::new(0),
        begun,
        stamps: o.stamp.clone(),
        failed: AtomicBool::new(false),
    });
    if o.die {
        target.say("dying at once, as told");
        return ExitCode::from(o.exit_code.unwrap_or(1));
    }
    for (port, serves) in [
        (port, Serves::Http),
        (o.grpc_port, Serves::Grpc),
        (o.tcp_port, Serves::Nothing),
        (o.health_port, Serves::State("health")),
        (o.ready_port, Serves::State("ready")),
        (o.start_port, Serves::State("start")),
    ] {
        if port != 0
            && let Err(e) = doors::open(port, serves, &target)
        {
            eprintln!("probe-target: cannot listen on port {port}: {e}");
            return ExitCode::from(1);
        }
    }
    target.say(&if port == 0 {
        "working".into()
    } else {
        format!("serving http on port {port}")
    });
    if let Some(drain) = o.drain {
        let target = target.clone();
        thread::spawn(move || end_gently(&target, drain));
    }
    match o.chaos {
        Some(seed) => chaos::play(&target, seed, o.calm.as_deref()),
        None => script(o, &target),
    }
}

/// Plays the events of the options in the order of time, until the exit if there is one.
fn script(o: &Options, target: &Target) -> ExitCode {
    let once = [
        (o.start_after, "start", OK),
        (o.ready_after, "ready", OK),
        (o.fail_after, "health", FAIL),
        (o.stuck_after, "health", STUCK),
    ];
    let mut steps: Vec<(Duration, &str, u8)> = once
        .into_iter()
        .filter_map(|(at, which, state)| Some((at?, which, state)))
        .collect();
    steps.sort();
    let mut steps = steps.into_iter().peekable();
    let mut toggle = o.unready_every;
    loop {
        let next = [steps.peek().map(|s| s.0), toggle, o.exit_after]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next else { park() };
        thread::sleep(next.saturating_sub(target.begun.elapsed()));
        if o.exit_after == Some(next) {
            let code = o.exit_code.unwrap_or(0);
            target.say(&format!("done, exit code {code}"));
            return ExitCode::from(code);
        }
        if let Some((_, which, state)) = steps.next_if(|s| s.0 == next) {
            target.set(which, state);
        } else if let Some(every) = o.unready_every {
            target.set(
                "ready",
                if target.ready.load(Ordering::SeqCst) == OK {
                    FAIL
                } else {
                    OK
                },
            );
            toggle = Some(next + every);
        }
    }
}

/// Waits for a TERM and ends as a server should: new requests are answered for a while, open ones are finished.
fn end_gently(target: &Target, drain: Duration) {
    const LOOK: Duration = Duration::from_millis(5);
    while !IS_ENDING.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
    }
    thread::sleep(drain);
    while target.requests.load(Ordering::SeqCst) > 0 {
        thread::sleep(LOOK);
    }
    std::process::exit(0);
}

fn park() -> ! {
    loop {
        thread::park();
    }
}

/// Answers on a thread of its own.
fn accept(
    stream: TcpStream,
    target: &Arc<Target>,
    answer: fn(TcpStream, &Target) -> std::io::Result<()>,
) {
    if target.requests.fetch_add(1, Ordering::SeqCst) >= MAX_REQUESTS {
        target.requests.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let target = Arc::clone(target);
    thread::spawn(move || {
        // A prober that hangs up early is normal.
        let _ = answer(stream, &target);
        target.requests.fetch_sub(1, Ordering::SeqCst);
    });
}

fn answer(mut stream: TcpStream, target: &Target) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SLOWNESS))?;
    let head = read_head(&mut stream)?;
    let path = head.split(' ').nth(1).unwrap_or("/");
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let first_failure = path == "/healthz"
        && target.health.load(Ordering::SeqCst) == FAIL
        && !target.failed.swap(true, Ordering::SeqCst);
    if let Some(file) = target.stamps.as_ref().filter(|_| first_failure) {
        stamp(file, "fail");
    }
    let (status, body) = match path {
        "/healthz" | "/livez" => by_state(&target.health, &mut stream),
        "/readyz" => by_state(&target.ready, &mut stream),
        "/startz" => by_state(&target.start, &mut stream),
        "/set" => set(target, query),
        "/exit" => {
            let code = query
                .strip_prefix("code=")
                .and_then(|c| c.parse().ok())
                .unwrap_or(0);
            target.say(&format!("told to exit with code {code}"));
            std::process::exit(code)
        }
        "/" => ("200 OK", "probe-target\n".into()),
        _ => (
            "404 Not Found",
            "paths: /healthz /readyz /startz /set /exit\n".into(),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") && head.len() < 16 << 10 {
        match stream.read(&mut bytes)? {
            0 => break,
            n => head.extend_from_slice(&bytes[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn by_state(state: &AtomicU8, stream: &mut TcpStream) -> (&'static str, String) {
    if behave(state, stream) {
        ("200 OK", "ok\n".into())
    } else {
        ("500 Internal Server Error", "fail\n".into())
    }
}

/// Waits as long as the state demands; returns whether the answer is a good one.
fn behave(state: &AtomicU8, stream: &mut TcpStream) -> bool {
    match state.load(Ordering::SeqCst) {
        FAIL => return false,
        SLOW => thread::sleep(SLOWNESS),
        STUCK => {
            // Until the prober hangs up, so that stuck requests do not pile up.
            let _ = stream.set_read_timeout(None);
            while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        }
        _ => {}
    }
    true
}

fn set(target: &Target, query: &str) -> (&'static str, String) {
    for part in query.split('&').filter(|p| !p.is_empty()) {
        let (which, state) = part.split_once('=').unwrap_or((part, ""));
        let known = STATES
            .iter()
            .position(|s| *s == state)
            .and_then(|i| u8::try_from(i).ok());
        if !known.is_some_and(|state| target.set(which, state)) {
            return (
                "400 Bad Request",
                format!("cannot set {part}: health, ready or start = ok, fail, slow or stuck\n"),
            );
        }
    }
    ("200 OK", "set\n".into())
}

/// The other side: 0 when PATH answers 200.
fn check(port: u16, path: &str) -> ExitCode {
    let ask = || -> std::io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    match ask() {
        Ok(text) => {
            println!("{}", text.lines().next().unwrap_or("no answer"));
            ExitCode::from(u8::from(!text.starts_with("HTTP/1.1 200")))
        }
        Err(e) => {
            println!("{e}");
            ExitCode::from(1)
        }
    }
}

/// The first process of a pid namespace ignores TERM unless it has a handler, and std has no means to set one.
#[allow(unsafe_code)]
fn end_on_term(is_gentle: bool) {
    const TERM: i32 = 15;
    unsafe extern "C" {
        fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
        fn _exit(code: i32) -> !;
    }
    extern "C" fn handler(number: i32) {
        if chaos::IS_DEAF.load(Ordering::Relaxed) {
            return;
        }
        if IS_GENTLE.load(Ordering::Relaxed) {
            return IS_ENDING.store(true, Ordering::Relaxed);
        }
        // SAFETY: _exit is async-signal-safe and does not return.
        unsafe { _exit(128 + number) }
    }
    IS_GENTLE.store(is_gentle, Ordering::Relaxed);
    // SAFETY: the handler has the signature that signal(2) asks for and calls async-signal-safe functions only.
    unsafe { signal(TERM, handler) };
}
