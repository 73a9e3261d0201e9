//! Health checks of the data path at `healthzBindAddress`, and of services at their `healthCheckNodePort`
//! (services 8).
//!
//! Invariants: the thread that records the health never waits for the thread that answers. No client makes a
//! thread wait.

pub mod answer;
mod connections;
mod server;
pub mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use nix::sys::eventfd::{EfdFlags, EventFd};

pub use self::server::spawn;

use self::answer::{Asked, Counted, Question, answer};
use self::state::HealthState;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::net::services::build::HealthCheck;

/// The health of the data path. The thread `proxy` records it, and the thread `proxy-health` answers clients
/// with it.
#[derive(Debug)]
pub struct Health {
    inner: Mutex<Inner>,
    wake: EventFd,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    state: HealthState,
    /// The number of answers, by path and status code.
    answers: BTreeMap<(Counted, u16), u64>,
    /// The health checks for which podprobe cannot listen, each with the reason.
    failed: BTreeMap<Asked, String>,
}

impl Health {
    /// Makes the health of a data path that has done nothing yet.
    ///
    /// # Errors
    /// Returns an error if no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            inner: Mutex::new(Inner {
                state: HealthState::new("none", Moment::now()),
                answers: BTreeMap::new(),
                failed: BTreeMap::new(),
            }),
            wake: EventFd::from_flags(flags)?,
            stopped: AtomicBool::new(false),
        })
    }

    /// Sets the name of the data path whose health is recorded.
    pub fn set_mode(&self, mode: &'static str) {
        self.lock().state.set_mode(mode);
    }

    /// Records that the thread has looked at the data path `mode`. `checks` are the health checks of services.
    /// `checks` is `None` while changes are not yet in force, because a load balancer must not send clients before
    /// that.
    pub fn look(&self, now: Moment, mode: &'static str, checks: Option<&[HealthCheck]>) {
        let mut inner = self.lock();
        inner.state.look(now, SystemTime::now(), checks.is_some());
        inner.state.set_mode(mode);
        let moves = checks.is_some_and(|checks| inner.state.set_checks(checks));
        drop(inner);
        if moves {
            self.wake();
        }
    }

    /// Returns the reason why podprobe cannot listen for the health check of a service, or `None` if podprobe can
    /// listen.
    pub fn problem(&self, namespace: &str, name: &str) -> Option<String> {
        let asked = Asked::Service {
            namespace: namespace.into(),
            name: name.into(),
        };
        self.lock().failed.get(&asked).cloned()
    }

    /// Returns the number of answers for each path of the proxy and each status code.
    pub fn answers(&self) -> Vec<((Counted, u16), u64)> {
        let inner = self.lock();
        inner.answers.iter().map(|(of, n)| (*of, *n)).collect()
    }

    /// Returns the name of the data path.
    pub fn mode(&self) -> &'static str {
        self.lock().state.mode()
    }

    /// Makes the thread `proxy-health` end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // The write fails only if the counter of the event is full. An event with a full counter is readable
        // anyway.
        let _ = self.wake.write(1);
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn clear_wake(&self) {
        let _ = self.wake.read();
    }

    /// Returns the health checks to serve, each with its address to listen on.
    fn wanted(&self, proxy: Option<SocketAddr>) -> BTreeMap<Asked, SocketAddr> {
        let inner = self.lock();
        let of_services = inner.state.checks().iter().map(|check| {
            let asked = Asked::Service {
                namespace: check.namespace.clone(),
                name: check.service.clone(),
            };
            (asked, (Ipv6Addr::UNSPECIFIED, check.port).into())
        });
        let proxy = proxy.map(|at| (Asked::Proxy, at));
        of_services.chain(proxy).collect()
    }

    fn set_failed(&self, failed: &BTreeMap<Asked, String>) {
        self.lock().failed = failed.clone();
    }

    /// Answers a request, counts the answer, and returns its bytes.
    fn answer(&self, asked: &Asked, question: &Question, now: Moment, wall: SystemTime) -> Vec<u8> {
        let mut inner = self.lock();
        let answer = answer(asked, question, &inner.state, now, wall);
        if let Some(counted) = answer.counted {
            *inner.answers.entry((counted, answer.code)).or_default() += 1;
        }
        answer.bytes
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.locked()
    }
}
