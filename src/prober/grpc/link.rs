//! One HTTP/2 connection and the loop that drives it: poll what can go on, then poll(2) the socket until the deadline.
//!
//! Invariants: connection and call are polled together on this thread, so pings, settings and GOAWAY are answered while
//! a call waits. The thread waits only when nothing was woken in the turn, and only for the socket.

use std::future::Future;
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};

use super::socket::{Shared, Socket};

/// Most bytes of headers taken from a server.
const MAX_HEADERS: u32 = 16 * 1024;

/// Why a future was not driven to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// The deadline has come.
    Expired,
    /// The connection has gone.
    Closed(Option<h2::Error>),
}

/// A connection that its owner drives.
pub(super) struct Link {
    connection: Connection<Socket, Bytes>,
    shared: Rc<Shared>,
    woken: Arc<Woken>,
}

impl Link {
    /// Greets the server and waits for its settings. When what makes requests is dropped the connection ends.
    ///
    /// # Errors
    /// Whoever is there ends the connection, speaks something else, or says nothing until the deadline.
    pub(super) fn open(
        stream: TcpStream,
        addr: SocketAddr,
        deadline: Instant,
    ) -> Result<(Self, SendRequest<Bytes>), String> {
        let shared = Shared::new(stream, addr, deadline).map_err(|e| e.to_string())?;
        let woken = Arc::new(Woken::default());
        let mut handshake = pin!(builder().handshake(Socket(shared.clone())));
        let greeted = turns(&shared, &woken, |cx| handshake.as_mut().poll(cx).map(Ok));
        let (requests, connection) = greeted
            .map_err(preface)?
            .map_err(|e| preface(Ended::Closed(Some(e))))?;
        let mut link = Self {
            connection,
            shared: shared.clone(),
            woken,
        };
        link.drive(std::future::poll_fn(|_| {
            if shared.greeted() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
        .map_err(preface)?;
        Ok((link, requests))
    }

    /// From now on everything ends at another time.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.shared.set_deadline(deadline);
    }

    /// Drives the connection until `future` is ready.
    ///
    /// # Errors
    /// The deadline, or the end of the connection, comes first.
    pub(super) fn drive<F: Future>(&mut self, future: F) -> Result<F::Output, Ended> {
        let mut future = pin!(future);
        let connection = &mut self.connection;
        turns(&self.shared, &self.woken, |cx| {
            let closed = Pin::new(&mut *connection).poll(cx);
            // What came before the end still counts.
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
    /// A last turn: with no call left the connection says GOAWAY, where there is still time and room for it.
    fn drop(&mut self) {
        self.shared.begin_turn();
        let waker = Waker::noop();
        let _ = Pin::new(&mut self.connection).poll(&mut Context::from_waker(waker));
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_reset_streams(1);
    builder
}

fn preface(e: Ended) -> String {
    let cause = match e {
        Ended::Expired => "i/o timeout".to_owned(),
        Ended::Closed(None) => "EOF".to_owned(),
        Ended::Closed(Some(e)) => e.to_string(),
    };
    format!("error reading server preface: {cause}")
}

/// Polls until there is a value or the deadline.
fn turns<T>(
    shared: &Shared,
    woken: &Arc<Woken>,
    mut turn: impl FnMut(&mut Context<'_>) -> Poll<Result<T, Ended>>,
) -> Result<T, Ended> {
    let waker = Waker::from(woken.clone());
    loop {
        shared.begin_turn();
        woken.0.store(false, Ordering::Relaxed);
        if let Poll::Ready(done) = turn(&mut Context::from_waker(&waker)) {
            return done;
        }
        if shared.expired() {
            return Err(Ended::Expired);
        }
        if !woken.0.load(Ordering::Relaxed) {
            shared.wait();
        }
    }
}

/// Whether anything asks for another turn.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
