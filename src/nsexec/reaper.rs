//! Reaps the commands of sessions as soon as they end, whatever the owners of the sessions do.
//!
//! The first process of a container does not end before every process of its namespace is reaped, and those of commands are
//! ours: without this a client that does not read would hold up the end of its container.
//!
//! Invariants: one thread, from the first session on; it waits for processes only. It holds no command: one that is
//! finished or dropped is gone at once, with its descriptor.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::error::ExecError;

/// What the thread needs; most for a word in the log.
const STACK: usize = 128 << 10;
/// How many ends are taken at once.
const AT_ONCE: usize = 16;

/// What has a process that is to be reaped.
pub(super) trait Reaped: Send + Sync {
    /// Its process has ended.
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

/// Has `who` reap its process when that ends. `process` is its only descriptor of it, so that its close ends this.
pub(super) fn watch(process: BorrowedFd<'_>, who: Weak<dyn Reaped>) -> Result<(), ExecError> {
    let reaper = reaper()?;
    let mut watched = lock(&reaper.watched);
    watched.all.retain(|_, who| who.strong_count() > 0);
    let key = watched.next;
    watched.next += 1;
    watched.all.insert(key, who);
    drop(watched);
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, key);
    reaper.epoll.add(process, event).map_err(failed)
}

fn failed(e: Errno) -> ExecError {
    ExecError::os("cannot watch the commands of sessions", e)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
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
    let thread = std::thread::Builder::new()
        .name("exec-reaper".into())
        .stack_size(STACK);
    let started = thread.spawn(move || own.run());
    started.map_err(|e| ExecError::io("cannot start the thread that reaps commands", &e))?;
    Ok(one.insert(reaper).clone())
}

impl Reaper {
    fn run(&self) {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        loop {
            // It fails for a signal only.
            let ended = self
                .epoll
                .wait(&mut events, EpollTimeout::NONE)
                .unwrap_or(0);
            for event in &events[..ended] {
                let who = lock(&self.watched).all.remove(&event.data());
                if let Some(who) = who.and_then(|who| who.upgrade()) {
                    who.reap();
                }
            }
        }
    }
}
