//! The news that the process of the role `proxy` has ended: a thread waits for the end, and the thread `proxy` looks at
//! once. Without this news, clients of the process would be without it until the next look.
//!
//! Invariants: at most one thread waits for one process. Where no thread can be started, the next look finds the end.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::locks::Locked as _;
use crate::base::sys::task::Process;
use crate::base::threads;

const STACK: usize = 32 << 10;
/// The time after which the thread waits again. A wait has to have an end.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// The news of the end of the role's process, between the thread that waits for it and the thread `proxy`.
pub struct ProcessEnd {
    has_ended: AtomicBool,
    /// Wakes the thread `proxy`.
    wake: Box<dyn Fn() + Send + Sync>,
    awaited: Mutex<Option<Process>>,
}

impl ProcessEnd {
    /// Makes a place for the news. `wake` is called when there is some.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            has_ended: AtomicBool::new(false),
            wake: Box::new(wake),
            awaited: Mutex::new(None),
        })
    }

    /// Tells whether a process has ended since the last call.
    pub fn take(&self) -> bool {
        self.has_ended.swap(false, Ordering::SeqCst)
    }

    /// Starts to wait for the end of a process, unless a thread waits for it already.
    pub fn await_end(self: &Arc<Self>, process: Process) {
        if self.awaited.locked().replace(process) == Some(process) {
            return;
        }
        let Ok(Some(end)) = process.open() else {
            return;
        };
        let news = self.clone();
        let waiting = threads::spawn("proxy-end", STACK, move |pulse, _| {
            if let Ok(false) = pulse.rest(|| end.wait(WAIT)) {
                return ControlFlow::Continue(());
            }
            news.has_ended.store(true, Ordering::SeqCst);
            (news.wake)();
            ControlFlow::Break(())
        });
        if let Err(e) = waiting {
            log::debug!("the end of podprobe proxy is seen at the next look: {e}");
        }
    }
}
