//! Reaps the commands of sessions as soon as they end, whatever the owners of the sessions do.
//!
//! The first process of a container does not end before every process of its namespace is reaped, and those of commands are
//! ours: without this a client that does not read would hold up the end of its container.
//!
//! Invariants: one thread, from the first session on; it waits for processes only. It holds no command: one that is
//! dropped is gone at once, with its descriptor.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::error::ExecError;

use crate::base::locks::Locked;
use crate::base::threads;

/// Stack of the reaper's thread, in bytes. Most of it is for a word in the log.
const STACK: usize = 128 << 10;
/// How many ends are taken at once.
const AT_ONCE: usize = 16;

/// An owner of a process that is to be reaped.
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

/// A watch on a process. Once it is dropped, the thread holds nothing of the process.
pub(super) struct Watch {
    reaper: Arc<Reaper>,
    key: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.reaper.watched).all.remove(&self.key);
    }
}

/// Has `who` reap its process when that ends. It is taken from the kernel's list when the last
/// descriptor of `process` is closed; until then it may wake the thread once more, for a key that nobody has any more.
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
        // It fails for a signal only.
        let ended = self
            .epoll
            .wait(&mut events, EpollTimeout::NONE)
            .unwrap_or(0);
        for event in &events[..ended] {
            // Held until it is let go of: see `Watch`.
            let watched = lock(&self.watched);
            let who = watched.all.get(&event.data()).and_then(Weak::upgrade);
            who.iter().for_each(|who| who.reap());
            drop(who);
        }
        ControlFlow::Continue(())
    }
}
