//! One HTTP/2 connection with many requests at a time. Its owner drives it in turns, and waits between them.
//!
//! Invariants: connection and requests are polled together, on the thread of their owner. A turn never waits. A server
//! that is silent for [`IDLE`] is asked for a sign of life; without one, the connection is over. After the first error of
//! the connection, every turn returns it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, RecvStream};
use http::{HeaderMap, Request};

use super::connection::Connection as ByteStream;
use super::http2::broken;
use super::link::Woken;
use super::polled::{Polled, PolledStream};

/// Time without a byte from the server after which it is asked for a sign of life. The same as client-go's.
const IDLE: Duration = Duration::from_secs(30);
/// Time that the server has for the sign of life. The same as client-go's.
const PONG: Duration = Duration::from_secs(15);
/// Largest total size in bytes of the headers that are accepted from a server.
const MAX_HEADERS: u32 = 64 << 10;
/// Bytes of one answer that the server may send ahead.
const STREAM_WINDOW: u32 = 128 << 10;
/// Bytes of all answers that the server may send ahead.
const CONNECTION_WINDOW: u32 = 512 << 10;
/// Number of pieces of one answer that a turn takes, so that no answer holds up the others.
const PIECES: usize = 32;

/// The end of a connection. Every request on it ends too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The connection broke, or one of its requests could not be sent.
    #[error("{0}")]
    Broken(String),
    /// The server has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The server gave no sign of life.
    #[error("the server has been silent for {}s", (IDLE + PONG).as_secs())]
    Silent,
}

impl Over {
    fn of(e: &h2::Error) -> Self {
        Self::Broken(broken(e).to_string())
    }
}

/// A piece of news about one request.
#[derive(Debug)]
pub enum News {
    /// The head of the answer has come.
    Head {
        /// HTTP status.
        status: u16,
        /// Header fields.
        headers: HeaderMap,
    },
    /// A piece of the body has come.
    Data(Bytes),
    /// The answer is complete.
    End,
    /// The answer will not be complete, for this reason.
    Broken(String),
}

/// The part of an answer that is awaited.
enum Answer {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// A request that has not been sent yet.
struct Unsent {
    id: u64,
    request: Request<()>,
    body: Bytes,
}

/// The sign of life of the server.
struct Life {
    ping: PingPong,
    /// Number of bytes that had come at the last look.
    bytes: u64,
    /// Time of the last look that found new bytes.
    heard: Instant,
    /// Time at which the server was asked for a sign of life that has not come yet.
    asked: Option<Instant>,
}

/// An HTTP/2 connection with its requests. Each request has a number of the owner's choice.
pub struct Streams {
    connection: Connection<PolledStream, Bytes>,
    requests: SendRequest<Bytes>,
    polled: Arc<Polled>,
    woken: Arc<Woken>,
    life: Life,
    unsent: VecDeque<Unsent>,
    answers: BTreeMap<u64, Answer>,
    over: Option<Over>,
}

impl Streams {
    /// Starts HTTP/2 on an unused connection.
    ///
    /// # Errors
    /// Returns an error if the connection breaks. A handshake writes only into the buffer of the socket, so it does not
    /// wait.
    pub fn open(connection: ByteStream, now: Instant) -> io::Result<Self> {
        let polled = Polled::new(connection, now)?;
        let mut handshake = Box::pin(builder().handshake(PolledStream(polled.clone())));
        let mut context = Context::from_waker(Waker::noop());
        let (requests, mut connection) = match handshake.as_mut().poll(&mut context) {
            Poll::Ready(done) => done.map_err(|e| broken(&e))?,
            Poll::Pending => return Err(io::ErrorKind::TimedOut.into()),
        };
        let ping = connection.ping_pong();
        let ping = ping.ok_or_else(|| io::Error::other("the pings are taken"))?;
        let life = Life {
            ping,
            bytes: 0,
            heard: now,
            asked: None,
        };
        Ok(Self {
            connection,
            requests,
            polled,
            woken: Arc::default(),
            life,
            unsent: VecDeque::new(),
            answers: BTreeMap::new(),
            over: None,
        })
    }

    /// Sends a request. It goes out with the next turn, for which the owner does not wait, as soon as the server takes one
    /// more.
    pub fn send(&mut self, id: u64, request: Request<()>, body: Bytes) {
        self.unsent.push_back(Unsent { id, request, body });
        self.woken.set();
    }

    /// Gives a request up. No news of it comes any more.
    pub fn close(&mut self, id: u64) {
        self.unsent.retain(|unsent| unsent.id != id);
        self.answers.remove(&id);
    }

    /// Sends and receives what is possible without waiting. Returns the news of the requests, each with its number.
    ///
    /// # Errors
    /// Returns the reason for which the connection is over. All its requests are over too.
    pub fn turn(&mut self, now: Instant) -> Result<Vec<(u64, News)>, Over> {
        self.polled.begin_turn();
        self.woken.reset();
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut news = Vec::new();
        if self.over.is_none() {
            self.over = self.advance(now, &mut context);
        }
        self.receive(&mut context, &mut news);
        match &self.over {
            // What had come before the end still counts.
            Some(_) if !news.is_empty() => {
                self.woken.set();
                Ok(news)
            }
            Some(cause) => Err(cause.clone()),
            None => Ok(news),
        }
    }

    /// Advances the connection. Returns the reason if it is over.
    fn advance(&mut self, now: Instant, context: &mut Context<'_>) -> Option<Over> {
        if let Some(cause) = self.submit(context) {
            return Some(cause);
        }
        if let Poll::Ready(done) = Pin::new(&mut self.connection).poll(context) {
            return Some(done.err().map_or(Over::Closed, |e| Over::of(&e)));
        }
        self.look_for_life(now, context)
    }

    /// Hands unsent requests to the connection. Returns the reason if it takes none any more.
    fn submit(&mut self, context: &mut Context<'_>) -> Option<Over> {
        loop {
            match self.requests.poll_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Some(Over::of(&e)),
                Poll::Pending => return None,
            }
            let Unsent { id, request, body } = self.unsent.pop_front()?;
            match self.requests.send_request(request, body.is_empty()) {
                Ok((answer, mut upload)) => {
                    // The connection keeps the body until the server's window has room for it.
                    let sent = match body.is_empty() {
                        true => Ok(()),
                        false => upload.send_data(body, true),
                    };
                    if let Err(e) = sent {
                        return Some(Over::of(&e));
                    }
                    self.answers.insert(id, Answer::Head(answer));
                }
                Err(e) => return Some(Over::of(&e)),
            }
        }
    }

    fn look_for_life(&mut self, now: Instant, context: &mut Context<'_>) -> Option<Over> {
        let life = &mut self.life;
        if let Poll::Ready(pong) = life.ping.poll_pong(context) {
            if let Err(e) = pong {
                return Some(Over::of(&e));
            }
            life.asked = None;
        }
        let bytes = self.polled.bytes_read();
        if bytes != life.bytes {
            (life.bytes, life.heard) = (bytes, now);
        }
        match life.asked {
            Some(asked) if now.duration_since(asked.max(life.heard)) >= PONG => {
                return Some(Over::Silent);
            }
            None if now.duration_since(life.heard) >= IDLE => {
                // A ping is refused only while another one is under way.
                let is_sent = life.ping.send_ping(Ping::opaque()).is_ok();
                life.asked = is_sent.then_some(now);
                self.woken.set();
            }
            _ => {}
        }
        None
    }

    /// Collects what has come of each answer.
    fn receive(&mut self, context: &mut Context<'_>, news: &mut Vec<(u64, News)>) {
        let woken = &self.woken;
        self.answers.retain(|id, answer| {
            for _ in 0..PIECES {
                let Poll::Ready(piece) = answer.poll(context) else {
                    return true;
                };
                let is_last = matches!(piece, News::End | News::Broken(_));
                news.push((*id, piece));
                if is_last {
                    return false;
                }
            }
            woken.set();
            true
        });
    }

    /// Waits until the next turn is due or `bell` rings, but at most until `until`.
    pub fn wait(&self, bell: BorrowedFd<'_>, until: Instant) {
        if !self.woken.is_set() {
            self.polled.wait_with(bell, until.min(self.deadline()));
        }
    }

    /// The time at which the server's life is looked at.
    fn deadline(&self) -> Instant {
        match self.life.asked {
            Some(asked) => asked.max(self.life.heard) + PONG,
            None => self.life.heard + IDLE,
        }
    }
}

impl Answer {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<News> {
        match self {
            Self::Head(future) => match ready!(Pin::new(future).poll(context)) {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    *self = Self::Body(body);
                    Poll::Ready(News::Head {
                        status: head.status.as_u16(),
                        headers: head.headers,
                    })
                }
                Err(e) => Poll::Ready(News::Broken(broken(&e).to_string())),
            },
            Self::Body(body) => Poll::Ready(match ready!(body.poll_data(context)) {
                Some(Ok(piece)) => {
                    // The window is given back at once: the owner bounds what it keeps.
                    match body.flow_control().release_capacity(piece.len()) {
                        Ok(()) => News::Data(piece),
                        Err(e) => News::Broken(broken(&e).to_string()),
                    }
                }
                Some(Err(e)) => News::Broken(broken(&e).to_string()),
                None => News::End,
            }),
        }
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS);
    builder
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
