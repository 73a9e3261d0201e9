//! Clients that open connections at a steady rate, and note each that has no whole answer.
#![allow(dead_code, reason = "each bench takes what it needs")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::support::wait_until;

/// Number of threads. Each may wait for an answer without delaying the others.
const THREADS: usize = 16;
/// A client gives up after this time. A late answer is none that is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of errors that are told.
const TOLD: usize = 3;

/// What clients have seen.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) asked: u64,
    /// Errors, each with the time since the start.
    pub(crate) lost: Vec<(Duration, String)>,
    pub(crate) slowest: Duration,
    /// Longest time between the ends of two answers, of all clients together.
    pub(crate) longest_gap: Duration,
    last: Option<Instant>,
}

impl Answers {
    fn note(&mut self, begun: Instant, since: Duration, answer: io::Result<()>) {
        self.asked += 1;
        let now = Instant::now();
        self.slowest = self.slowest.max(now - begun);
        match answer {
            Ok(()) => {
                let last = self.last.replace(now).unwrap_or(now);
                self.longest_gap = self.longest_gap.max(now - last);
            }
            Err(e) => self.lost.push((since, e.to_string())),
        }
    }

    /// The first errors, for a line.
    pub(crate) fn first_errors(&self) -> String {
        let told = self.lost.iter().take(TOLD);
        told.map(|(at, e)| format!("; after {:.2} s: {e}", at.as_secs_f64()))
            .collect()
    }
}

/// Clients that ask until they are ended.
pub(crate) struct Clients {
    answers: Arc<Mutex<Answers>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Waits until somebody answers, and asks `rate` times a second from then on, each time with a new connection.
    pub(crate) fn start_at_first_answer(to: SocketAddr, rate: usize) -> Self {
        wait_until("the first answer", || ask(to).is_ok());
        let answers = Arc::new(Mutex::new(Answers::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let period = Duration::from_secs_f64(THREADS as f64 / rate as f64);
        let thread = |n: usize| {
            let (answers, is_over) = (answers.clone(), is_over.clone());
            let mut next = begun + period * u32::try_from(n).unwrap() / THREADS as u32;
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                    next += period;
                    let asked = Instant::now();
                    let answer = ask(to);
                    let since = asked - begun;
                    answers.lock().unwrap().note(asked, since, answer);
                }
            })
        };
        Self {
            threads: (0..THREADS).map(thread).collect(),
            answers,
            is_over,
        }
    }

    /// Ends the clients, and returns what they have seen.
    pub(crate) fn end(self) -> Answers {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

/// Connects. Where nobody answers, the error has the kernel's record of the connection, which says where its packets go.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let SocketAddr::V4(v4) = to else {
        return TcpStream::connect_timeout(&to, PATIENCE);
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    let patience = TimeVal::seconds(PATIENCE.as_secs().cast_signed());
    setsockopt(&socket, sockopt::SendTimeout, &patience)?;
    let connected = nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrIn::from(v4));
    let stream = TcpStream::from(socket);
    match connected {
        Ok(()) => Ok(stream),
        // What it is where the time to send is over.
        Err(Errno::EINPROGRESS) => {
            let of = format!("sport={} ", stream.local_addr()?.port());
            let all = std::fs::read_to_string("/proc/net/nf_conntrack").unwrap_or_default();
            let record = all.lines().find(|line| line.contains(&of));
            let why = format!("nobody answers; tracked as {}", record.unwrap_or("nothing"));
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        Err(e) => Err(e.into()),
    }
}

/// Asks once. The answer must be whole.
fn ask(to: SocketAddr) -> io::Result<()> {
    let mut stream = connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("probe-target\n") {
        true => Ok(()),
        false => Err(io::Error::other(format!("not an answer: {answer:?}"))),
    }
}
