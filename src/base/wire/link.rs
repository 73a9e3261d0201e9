//! One HTTP/2 connection and its loop. A turn of the loop polls the futures, and then waits for the socket with poll(2),
//! until the deadline.
//!
//! Invariants: connection and call are polled together on one thread, so that pings, settings and GOAWAY are answered
//! while a call waits. The thread waits only if no future was woken during the turn, and only for the socket.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};

use super::connection::Connection as ByteStream;
use super::polled::{Polled, PolledStream};

/// The reason why a future was not driven to its end.
#[derive(Debug)]
pub enum Ended {
    /// The deadline passed.
    Expired,
    /// The connection has ended.
    Closed(Option<h2::Error>),
    /// The socket could not be made nonblocking.
    Socket(io::Error),
}

/// An HTTP/2 connection. It makes progress only while its owner drives it.
pub struct Link {
    connection: Connection<PolledStream, Bytes>,
    polled: Arc<Polled>,
    woken: Arc<Woken>,
}

impl Link {
    /// Starts HTTP/2 on an unused connection. Headers of more than `max_headers` bytes are refused. The connection ends
    /// when the returned sender of requests is dropped.
    ///
    /// # Errors
    /// Returns an [`Ended`] if the client's preface cannot be written before the deadline.
    pub fn open(
        connection: ByteStream,
        deadline: Instant,
        max_headers: u32,
    ) -> Result<(Self, SendRequest<Bytes>), Ended> {
        let polled = Polled::new(connection, deadline).map_err(Ended::Socket)?;
        let woken = Arc::new(Woken::default());
        let mut handshake = pin!(builder(max_headers).handshake(PolledStream(polled.clone())));
        let greeted = turns(&polled, &woken, |cx| handshake.as_mut().poll(cx).map(Ok))?;
        let (requests, connection) = greeted.map_err(|e| Ended::Closed(Some(e)))?;
        let link = Self {
            connection,
            polled,
            woken,
        };
        Ok((link, requests))
    }

    /// Waits for the server's settings, which are the first frame of an HTTP/2 server.
    ///
    /// # Errors
    /// Returns an [`Ended`] if the server closed the connection, speaks another protocol, or sent no settings before the
    /// deadline.
    pub fn await_settings(&mut self) -> Result<(), Ended> {
        let polled = self.polled.clone();
        self.drive(std::future::poll_fn(|_| {
            if polled.greeted() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }

    /// Sets another deadline.
    pub fn set_deadline(&self, deadline: Instant) {
        self.polled.set_deadline(deadline);
    }

    /// Drives the connection until `future` is ready.
    ///
    /// # Errors
    /// Returns an [`Ended`] if the deadline passed or the connection ended before `future` was ready.
    pub fn drive<F: Future>(&mut self, future: F) -> Result<F::Output, Ended> {
        let mut future = pin!(future);
        let connection = &mut self.connection;
        turns(&self.polled, &self.woken, |cx| {
            let closed = Pin::new(&mut *connection).poll(cx);
            // Data that came before the end of the connection still counts.
            match (future.as_mut().poll(cx), closed) {
                (Poll::Ready(done), _) => Poll::Ready(Ok(done)),
                (Poll::Pending, Poll::Ready(closed)) => {
                    Poll::Ready(Err(Ended::Closed(closed.err())))
                }
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        })
    }
}

impl Drop for Link {
    /// Polls the connection a last time. If no call is under way, the connection then sends GOAWAY, unless the socket's
    /// buffer is full.
    fn drop(&mut self) {
        self.polled.begin_turn();
        let waker = Waker::noop();
        let _ = Pin::new(&mut self.connection).poll(&mut Context::from_waker(waker));
    }
}

fn builder(max_headers: u32) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(max_headers)
        .max_concurrent_reset_streams(1);
    builder
}

/// Returns the name of an HTTP/2 error code as Go writes it.
pub(super) fn reason_name(reason: h2::Reason) -> String {
    let code = u32::from(reason);
    if code <= u32::from(h2::Reason::HTTP_1_1_REQUIRED) {
        format!("{reason:?}")
    } else {
        format!("unknown error code 0x{code:x}")
    }
}

/// Repeats turns until one of them returns a value, or the deadline passes.
fn turns<T>(
    polled: &Polled,
    woken: &Arc<Woken>,
    mut turn: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Ended>>,
) -> Result<T, Ended> {
    let waker = Waker::from(woken.clone());
    loop {
        polled.begin_turn();
        woken.reset();
        if let Poll::Ready(done) = turn(&mut Context::from_waker(&waker)) {
            return done;
        }
        if polled.expired() {
            return Err(Ended::Expired);
        }
        if !woken.is_set() {
            polled.wait();
        }
    }
}

/// A flag that is true if a future asks for another turn.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Woken {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}
