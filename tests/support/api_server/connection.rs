//! HTTP/2 with TLS for one client, on a thread of its own. What an answer says comes from [`super::Answers`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use nix::poll::{PollFd, PollFlags, poll};
use podprobe::base::bell::Bell;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Answer, Asked, Server};

/// The connection's stream, with what its last operations wait for.
struct Shared {
    stream: StreamOwned<ServerConnection, TcpStream>,
    blocked: PollFlags,
}

struct Io(Rc<RefCell<Shared>>);

impl Io {
    fn attempt<T>(
        &self,
        wait_for: PollFlags,
        io: impl FnOnce(&mut StreamOwned<ServerConnection, TcpStream>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut shared = self.0.borrow_mut();
        match io(&mut shared.stream) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                shared.blocked |= wait_for;
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let part = buf.initialize_unfilled_to(room);
        let n = std::task::ready!(self.attempt(PollFlags::POLLIN, |s| s.read(part)))?;
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.attempt(PollFlags::POLLOUT, |s| s.write(buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attempt(PollFlags::POLLOUT, Write::flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request whose body has not come as a whole yet.
struct Reading {
    request: Request<RecvStream>,
    body: Vec<u8>,
    respond: SendResponse<Bytes>,
}

/// A watch that goes on.
struct Watching {
    watch: super::Watch,
    stream: SendStream<Bytes>,
}

/// An answer that comes later.
struct Later {
    at: Instant,
    asked: Asked,
    respond: SendResponse<Bytes>,
}

/// Serves one client until it leaves or the server cuts it off.
pub(super) fn serve(server: &Server, socket: TcpStream, config: Arc<ServerConfig>, bell: &Bell) {
    let _ = socket.set_read_timeout(Some(Duration::from_secs(10)));
    let Ok(tls) = ServerConnection::new(config) else {
        return;
    };
    let mut stream = StreamOwned::new(tls, socket);
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return;
        }
    }
    let has_certificate = stream.conn.peer_certificates().is_some();
    if stream.sock.set_nonblocking(true).is_err() {
        return;
    }
    let shared = Rc::new(RefCell::new(Shared {
        stream,
        blocked: PollFlags::empty(),
    }));
    let _ = Serving::new(server, shared, has_certificate).run(bell);
}

struct Serving<'a> {
    server: &'a Server,
    shared: Rc<RefCell<Shared>>,
    has_certificate: bool,
    generation: u64,
    reading: Vec<Reading>,
    watching: Vec<Watching>,
    later: VecDeque<Later>,
}

impl<'a> Serving<'a> {
    fn new(server: &'a Server, shared: Rc<RefCell<Shared>>, has_certificate: bool) -> Self {
        Self {
            generation: server.generation(),
            server,
            shared,
            has_certificate,
            reading: Vec::new(),
            watching: Vec::new(),
            later: VecDeque::new(),
        }
    }

    fn run(mut self, bell: &Bell) -> Result<(), h2::Error> {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut handshake = Box::pin(h2::server::handshake(Io(self.shared.clone())));
        let mut connection = None;
        while self.server.generation() == self.generation {
            bell.still();
            woken.0.store(false, Ordering::Relaxed);
            self.shared.borrow_mut().blocked = PollFlags::empty();
            let mut context = Context::from_waker(&waker);
            if connection.is_none()
                && let Poll::Ready(done) = handshake.as_mut().poll(&mut context)
            {
                connection = Some(done?);
            }
            if let Some(connection) = &mut connection {
                while let Poll::Ready(accepted) = connection.poll_accept(&mut context) {
                    let Some(accepted) = accepted else {
                        return Ok(());
                    };
                    let (request, respond) = accepted?;
                    self.reading.push(Reading {
                        request,
                        body: Vec::new(),
                        respond,
                    });
                }
                self.read(&mut context);
                self.answer_later();
                self.watch(&mut context);
                // What was written above goes out.
                if connection.poll_closed(&mut context)?.is_ready() {
                    return Ok(());
                }
            }
            if !woken.0.load(Ordering::Relaxed) {
                self.wait(bell);
            }
        }
        Ok(())
    }

    fn wait(&self, bell: &Bell) {
        let shared = self.shared.borrow();
        let mut fds = [
            PollFd::new(bell.as_fd(), PollFlags::POLLIN),
            PollFd::new(shared.stream.sock.as_fd(), shared.blocked),
        ];
        let until = self.later.iter().map(|later| later.at).min();
        let left = until.map_or(Duration::from_secs(1), |at| {
            at.saturating_duration_since(Instant::now())
        });
        let left = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let _ = poll(&mut fds, left);
    }

    /// Reads bodies, and answers the requests that are whole.
    fn read(&mut self, context: &mut Context<'_>) {
        let mut whole = Vec::new();
        let mut at = 0;
        while at < self.reading.len() {
            let reading = &mut self.reading[at];
            let is_whole = loop {
                match reading.request.body_mut().poll_data(context) {
                    Poll::Pending => break false,
                    Poll::Ready(Some(Ok(piece))) => {
                        reading.body.extend_from_slice(&piece);
                        let flow = reading.request.body_mut().flow_control();
                        let _ = flow.release_capacity(piece.len());
                    }
                    Poll::Ready(_) => break true,
                }
            };
            match is_whole {
                true => whole.push(self.reading.swap_remove(at)),
                false => at += 1,
            }
        }
        for Reading {
            request,
            body,
            respond,
        } in whole
        {
            let asked = Asked::new(&request, &body, self.has_certificate);
            self.answer(asked, respond);
        }
    }

    fn answer_later(&mut self) {
        let now = Instant::now();
        while let Some(at) = self.later.iter().position(|later| later.at <= now) {
            if let Some(Later { asked, respond, .. }) = self.later.remove(at) {
                let answer = self.server.answer(&asked);
                self.send(answer, asked, respond);
            }
        }
    }

    fn answer(&mut self, asked: Asked, respond: SendResponse<Bytes>) {
        let answer = self.server.take(&asked);
        self.send(answer, asked, respond);
    }

    fn send(&mut self, answer: Answer, asked: Asked, mut respond: SendResponse<Bytes>) {
        let head = |code: u16, retry_after: Option<u32>| {
            let head = Response::builder()
                .status(code)
                .header("content-type", "application/json");
            let head = match retry_after {
                Some(seconds) => head.header("retry-after", seconds),
                None => head,
            };
            head.body(()).unwrap()
        };
        match answer {
            Answer::Now {
                code,
                retry_after,
                body,
            } => {
                if let Ok(mut stream) = respond.send_response(head(code, retry_after), false) {
                    let _ = stream.send_data(body.into(), true);
                }
            }
            Answer::Watch(watch) => {
                if let Ok(stream) = respond.send_response(head(200, None), false) {
                    self.watching.push(Watching { watch, stream });
                }
            }
            Answer::After(delay) => self.later.push_back(Later {
                at: Instant::now() + delay,
                asked,
                respond,
            }),
            // The stream is held and never answered, until the connection ends.
            Answer::Never => self.later.push_back(Later {
                at: Instant::now() + Duration::from_secs(3600),
                asked,
                respond,
            }),
            Answer::Reset => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        }
    }

    /// Sends what is new to each watch, and forgets those that the client has closed.
    fn watch(&mut self, context: &mut Context<'_>) {
        let server = self.server;
        self.watching.retain_mut(|Watching { watch, stream }| {
            if stream.poll_reset(context).is_ready() {
                return false;
            }
            let (lines, goes_on) = server.news(watch);
            if !lines.is_empty() && stream.send_data(lines.into(), false).is_err() {
                return false;
            }
            if !goes_on {
                let _ = stream.send_data(Bytes::new(), true);
            }
            goes_on
        });
    }
}
