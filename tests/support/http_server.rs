//! An http server made of a listening socket, which answers as a test wants it: also as no honest one does.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A ceiling for everything that a server waits for.
const CEILING: Duration = Duration::from_secs(30);

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|l| l.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        lines.read_exact(&mut body).ok()?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Some(Self {
            method,
            path,
            headers,
            body,
        })
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The length to say instead of the body's; None says no length at all.
    pub(crate) length: Option<usize>,
    /// After the body the connection stays open and silent until the server ends.
    pub(crate) hangs: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            status,
            headers: Vec::new(),
            length: Some(body.len()),
            body,
            hangs: false,
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Only the first `n` bytes of what it says to have.
    pub(crate) fn cut(mut self, n: usize) -> Self {
        self.body.truncate(n);
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server; dropping it ends its threads.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stop) = (
            Arc::<Mutex<Vec<Request>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (seen, ended) = (requests.clone(), stop.clone());
        let handler: Arc<Handler> = Arc::new(handler);
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let (handler, seen, ended) = (handler.clone(), seen.clone(), ended.clone());
                let stream = stream.unwrap();
                threads.push(std::thread::spawn(move || {
                    serve(&stream, &*handler, &seen, &ended)
                }));
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        Self {
            address,
            requests,
            stop,
            thread: Some(thread),
        }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests had this in their path.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.requests()
            .iter()
            .filter(|r| r.path.contains(part))
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|r| r.is_ok()));
    }
}

fn serve(stream: &TcpStream, handler: &Handler, seen: &Mutex<Vec<Request>>, ended: &AtomicBool) {
    stream.set_read_timeout(Some(CEILING)).unwrap();
    stream.set_write_timeout(Some(CEILING)).unwrap();
    let Some(request) = Request::read(stream) else {
        return;
    };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(length) = reply.length {
        head += &format!("content-length: {length}\r\n");
    }
    head += "\r\n";
    let mut out = stream;
    // The client may have gone.
    let _ = out
        .write_all(head.as_bytes())
        .and_then(|()| out.write_all(&reply.body));
    let mut left = CEILING;
    let step = Duration::from_millis(20);
    stream.set_read_timeout(Some(step)).unwrap();
    // until the client or the test ends
    while reply.hangs && !ended.load(Ordering::SeqCst) && !left.is_zero() {
        if matches!(out.read(&mut [0]), Ok(0)) {
            break;
        }
        left = left.saturating_sub(step);
    }
    let _ = stream.shutdown(Shutdown::Both);
}
