//! The threads `server-client`. Each answers one request.
//!
//! Invariants: a thread ends with its answer. If the connection can carry another request, the worker returns the
//! connection to the thread `server`. A panic ends only the connection of its thread, and is counted.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::access::{Claim, Door};
use super::connection::Origin;
use super::exchange::Exchange;
use super::request::Request;
use super::response;
use super::routes;
use super::transport::Transport;
use super::{Backend, ServerConfig, Webhooks, authorization};

use crate::base::live::Live;
use crate::base::locks::Locked;

/// Stack size of a thread in bytes. Writing a snapshot as JSON needs the most stack.
pub(super) const STACK: usize = 256 << 10;

/// The number of kinds of [`Door`]. The clients of each listener have places of their own.
const DOORS: usize = 4;

/// Largest number of requests whose tokens the API server reviews at a time. The other places stay for clients that need no
/// review of a token.
const MOST_REVIEWS: usize = 24;
/// Largest number of such requests of one client.
const MOST_REVIEWS_OF_A_CLIENT: usize = 4;

/// A connection that a worker returns.
pub(super) struct Returned {
    pub(super) transport: Transport,
    pub(super) door: Door,
    pub(super) then: Back,
}

/// The next thing to do on a connection that a worker returns.
pub(super) enum Back {
    /// Read the next request, of which these bytes have arrived.
    Next(Vec<u8>),
    /// Send this answer, and end the connection. The worker does not wait for a client that has no rights.
    Refuse(Vec<u8>),
}

/// The state that all threads of the server share.
pub(super) struct Shared {
    pub(super) backend: Arc<dyn Backend>,
    /// The value of `enableDebuggingHandlers`.
    pub(super) debugging: Live<bool>,
    pub(super) webhooks: Webhooks,
    /// The descriptor that becomes readable once the server stops.
    pub(super) stop: OwnedFd,
    /// The descriptor that becomes readable when a worker has returned a connection.
    pub(super) wake: EventFd,
    /// Number of requests that are being answered, for each listener.
    pub(super) busy: [AtomicUsize; DOORS],
    returned: Mutex<Vec<Returned>>,
    /// Number of requests whose tokens are being reviewed, for each client.
    reviews: Mutex<HashMap<Option<Origin>, usize>>,
    pub(super) stopping: AtomicBool,
    /// While true, starting a thread fails, as if the node had no thread left.
    #[cfg(test)]
    pub(super) no_threads: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        config: &ServerConfig,
        stop: OwnedFd,
    ) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            backend,
            debugging: config.debugging.clone(),
            webhooks: config.webhooks,
            stop,
            wake: EventFd::from_flags(flags)?,
            busy: Default::default(),
            returned: Mutex::default(),
            reviews: Mutex::default(),
            stopping: AtomicBool::new(false),
            #[cfg(test)]
            no_threads: AtomicBool::new(false),
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns true if no request is being answered.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.iter().all(|n| n.load(Ordering::SeqCst) == 0)
    }

    /// Takes the connections that workers have returned.
    pub(super) fn returned(&self) -> Vec<Returned> {
        let _ = self.wake.read();
        std::mem::take(&mut *self.returned.locked())
    }

    /// Takes a place for the review of a token that a client has sent; None if there is no place.
    pub(super) fn begin_review(self: &Arc<Self>, client: Option<Origin>) -> Option<Review> {
        let mut reviews = self.reviews.locked();
        let of_client = reviews.get(&client).copied().unwrap_or_default();
        if of_client >= MOST_REVIEWS_OF_A_CLIENT || reviews.values().sum::<usize>() >= MOST_REVIEWS
        {
            return None;
        }
        reviews.insert(client, of_client + 1);
        Some(Review(self.clone(), client))
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        #[cfg(test)]
        if self.no_threads.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let thread = thread::Builder::new().name("server-client".into());
        thread.stack_size(STACK).spawn(work).map(drop)
    }

    fn give_back(&self, connection: Returned) {
        let mut returned = self.returned.locked();
        returned.push(connection);
        let _ = self.wake.write(1);
    }
}

/// A place among the requests that are being answered. A thread holds its place until the thread ends.
struct Seat(Arc<Shared>, Door);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.busy[self.1 as usize].fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place among the requests whose tokens are being reviewed.
pub(super) struct Review(Arc<Shared>, Option<Origin>);

impl Drop for Review {
    fn drop(&mut self) {
        let mut reviews = self.0.reviews.locked();
        if let Some(left) = reviews.get_mut(&self.1) {
            *left -= 1;
        }
        reviews.retain(|_, n| *n > 0);
    }
}

/// A request, and the connection that it came on.
pub(super) struct Job {
    pub(super) request: Request,
    /// The claim of the client that the API server must review before the request is answered.
    pub(super) claim: Option<Claim>,
    /// The place for the review of a token.
    pub(super) review: Option<Review>,
    pub(super) connection: (Transport, Vec<u8>),
}

/// Starts a thread that answers a request.
///
/// # Errors
/// Returns the job and the error if the node has no thread left.
pub(super) fn start(
    shared: &Arc<Shared>,
    door: Door,
    job: Job,
) -> Result<(), Box<(Job, io::Error)>> {
    shared.busy[door as usize].fetch_add(1, Ordering::SeqCst);
    let seat = Seat(shared.clone(), door);
    // If the thread does not start, its closure is lost. So the job is shared, and can be taken back.
    let parcel = Arc::new(Mutex::new(Some(job)));
    let take = |parcel: &Mutex<Option<Job>>| {
        let mut parcel = parcel.locked();
        parcel.take()
    };
    let taken = parcel.clone();
    let spawned = shared.spawn(move || {
        if let Some(job) = take(&taken) {
            serve(&seat, door, job);
        }
    });
    let Err(e) = spawned else { return Ok(()) };
    take(&parcel).map_or(Ok(()), |job| Err(Box::new((job, e))))
}

fn serve(seat: &Seat, door: Door, job: Job) {
    let shared = &seat.0;
    let path = job.request.path.clone();
    let exchange = Exchange::new(job.request, job.connection, shared.stop.as_fd());
    let answered = catch_unwind(AssertUnwindSafe(|| match job.claim {
        None => routes::serve(exchange, &*shared.backend),
        Some(claim) => serve_reviewed(seat, exchange, claim, job.review),
    }));
    match answered {
        Ok(Some((transport, buffer))) => shared.give_back(Returned {
            transport,
            door,
            then: Back::Next(buffer),
        }),
        Ok(None) => {}
        Err(_) => {
            shared.backend.panicked();
            log::error!("answering {path} panicked; the others go on; please report this");
        }
    }
}

/// Answers a request if the API server allows it. A refusal is sent by the thread `server`.
fn serve_reviewed(
    Seat(shared, door): &Seat,
    exchange: Exchange<'_>,
    claim: Claim,
    review: Option<Review>,
) -> Option<(Transport, Vec<u8>)> {
    let by_user = shared.webhooks.authorization;
    let request = &exchange.request;
    let checked = authorization::check(&*shared.backend, claim, request, by_user);
    drop(review);
    let Err(refused) = checked else {
        return routes::serve(exchange, &*shared.backend);
    };
    let text = format!("{}\n", refused.text);
    let bytes = response::to(request, refused.status, &text, false);
    shared.give_back(Returned {
        transport: exchange.unanswered(),
        door: *door,
        then: Back::Refuse(bytes),
    });
    None
}
