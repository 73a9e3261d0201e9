//! Reaps the commands of sessions as soon as they end, even if the owner of a session does nothing.
//!
//! The first process of a container does not end before every process of its pid namespace is reaped. The processes of
//! commands are children of podprobe. Without this thread, a client that does not read its session would delay the end
//! of its container.
//!
//! Invariants: there is a single thread, from the first session on. The thread waits only for processes, and keeps no
//! command alive: when a command is dropped, its descriptor is closed at once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::error::ExecError;

use crate::base::locks::Locked;
use crate::base::threads;

/// Stack size in bytes of the reaper's thread. Writing to the log needs most of the stack.
const STACK: usize = 128 << 10;
/// Largest number of ended processes that one wait returns.
const AT_ONCE: usize = 16;

/// An owner of a process that the reaper's thread is to reap.
pub(super) trait Reaped: Send + Sync {
    /// Reaps the owner's process, which has ended. Never waits.
    fn reap(&self);
}

static REAPER: Mutex<Option<Arc<Reaper>>> = Mutex::new(None);

struct Reaper {
    epoll: Epoll,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    next: u64,
    all: BTreeMap<u64, Weak<dyn Reaped>>,
}

/// A watch on a process. When this value is dropped, the reaper's thread holds nothing of the process any more.
pub(super) struct Watch {
    reaper: Arc<Reaper>,
    key: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.reaper.watched).all.remove(&self.key);
    }
}

/// Lets the owner `who` reap its process when the process ends. The kernel forgets the process when the last descriptor
/// of `process` is closed. Until that time the kernel may wake the reaper's thread once more, with a key that is not in
/// the list any more.
pub(super) fn watch(process: BorrowedFd<'_>, who: Weak<dyn Reaped>) -> Result<Watch, ExecError> {
    let reaper = reaper()?;
    let key = lock(&reaper.watched).add(who);
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, key);
    let added = reaper.epoll.add(process, event);
    let watch = Watch { reaper, key };
    added.map(|()| watch).map_err(failed)
}

impl Watched {
    fn add(&mut self, who: Weak<dyn Reaped>) -> u64 {
        self.next += 1;
        self.all.insert(self.next, who);
        self.next
    }
}

fn failed(e: Errno) -> ExecError {
    ExecError::os("cannot watch the commands of sessions", e)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.locked()
}

fn reaper() -> Result<Arc<Reaper>, ExecError> {
    let mut one = lock(&REAPER);
    if let Some(reaper) = &*one {
        return Ok(reaper.clone());
    }
    let reaper = Arc::new(Reaper {
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?,
        watched: Mutex::default(),
    });
    let own = reaper.clone();
    let started = threads::spawn("exec-reaper", STACK, move |_, _| own.round());
    started.map_err(|e| ExecError::io("cannot start the thread that reaps commands", &e))?;
    Ok(one.insert(reaper).clone())
}

impl Reaper {
    fn round(&self) -> ControlFlow<()> {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        // The wait fails only because of a signal. Such a wait counts as one without events.
        let ended = self
            .epoll
            .wait(&mut events, EpollTimeout::NONE)
            .unwrap_or(0);
        for event in &events[..ended] {
            // The lock of the list is held during the call, so that [`Watch`] is dropped only before or after the call.
            let watched = lock(&self.watched);
            let who = watched.all.get(&event.data()).and_then(Weak::upgrade);
            who.iter().for_each(|who| who.reap());
            drop(who);
        }
        ControlFlow::Continue(())
    }
}
