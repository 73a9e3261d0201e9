//! Clients and servers, each a thread whose processor time is known.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use std::os::fd::AsRawFd;

use super::networks::Namespace;

/// Connections at a time.
const CLIENTS: usize = 4;
const BUFFER: usize = 256 << 10;

/// The processor time of a thread of this process.
fn cpu_of(tid: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn tid() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Answers each connection by what its first byte asks for: nothing (`s`), bytes for as long as the client reads (`b`), or one.
pub(crate) struct Server {
    listener: TcpListener,
    tid: i32,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(pod: &Namespace, address: SocketAddr) -> Self {
        let listener = pod.run(|| TcpListener::bind(address).unwrap());
        let accepting = listener.try_clone().unwrap();
        let (tell, told) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            tell.send(tid()).unwrap();
            let mut silent = Vec::new();
            while let Ok((stream, _)) = accepting.accept() {
                silent.extend(serve(stream));
            }
        });
        Self {
            listener,
            tid: told.recv().unwrap(),
            thread: Some(thread),
        }
    }

    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(self.tid)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection that is to stay silent is given back.
fn serve(mut stream: TcpStream) -> Option<TcpStream> {
    let mut what = [0];
    match (stream.read(&mut what), what) {
        (Ok(1), [b's']) => return Some(stream),
        (Ok(1), _) => {}
        _ => return None,
    }
    let more = vec![0; BUFFER];
    let _ = stream.write_all(b"!");
    while what == *b"b" && stream.write_all(&more).is_ok() {}
    None
}

/// Makes so many connections, asks each for a byte and waits for its end. Returns the clients' processor time.
pub(crate) fn connections(from: &Namespace, to: SocketAddr, count: usize) -> Duration {
    let client = || {
        let before = cpu_of(tid());
        for _ in 0..count / CLIENTS {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(b"?").unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"!");
        }
        cpu_of(tid()) - before
    };
    std::thread::scope(|s| {
        let clients = [(); CLIENTS].map(|()| s.spawn(|| from.run(client)));
        clients.map(|c| c.join().unwrap()).into_iter().sum()
    })
}

/// Reads so many bytes of one connection. Returns the client's processor time.
pub(crate) fn stream(from: &Namespace, to: SocketAddr, bytes: usize) -> Duration {
    from.run(|| {
        let before = cpu_of(tid());
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(b"b").unwrap();
        let mut buffer = vec![0; BUFFER];
        let mut left = bytes;
        while left > 0 {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{left} bytes are missing");
            left = left.saturating_sub(read);
        }
        cpu_of(tid()) - before
    })
}

/// Connections that say nothing more.
pub(crate) fn idle(from: &Namespace, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(b"s").unwrap();
        stream
    };
    from.run(|| (0..count).map(one).collect())
}
