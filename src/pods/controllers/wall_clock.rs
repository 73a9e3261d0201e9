//! The thread `wall-clock`: tells when somebody sets the wall clock, so that schedules are looked at anew.
//!
//! Invariant: the thread sleeps in the kernel until the clock is set or the daemon ends. It never wakes by itself.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::base::threads::Roster;

const STACK: usize = 64 << 10;
/// Power of two of a time in the far future, at which the timer would go off if nobody set the clock.
const NEVER: u32 = 40;

/// A running watch of the wall clock.
pub struct WallClockWatch {
    stop: Arc<EventFd>,
    thread: JoinHandle<()>,
}

impl WallClockWatch {
    /// Starts the thread. `on_set` is called after each time that the clock was set, and must not block.
    ///
    /// # Errors
    /// Returns an error if there are no descriptors left, or the thread cannot be started.
    pub fn spawn(on_set: impl Fn() + Send + 'static, roster: &Roster) -> io::Result<Self> {
        let stop = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let stopped = stop.clone();
        let timer = timer()?;
        let thread = roster.spawn("wall-clock", STACK, move |pulse, _| {
            pulse.rest(|| wait(&timer, &stopped));
            if stopped.read().is_ok() {
                return ControlFlow::Break(());
            }
            if was_set(&timer) {
                on_set();
            }
            ControlFlow::Continue(())
        })?;
        Ok(Self { stop, thread })
    }

    /// Requests the end of the thread. Never blocks.
    pub fn stop(&self) {
        let _ = self.stop.write(1);
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

fn timer() -> nix::Result<TimerFd> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
    arm(&timer)?;
    Ok(timer)
}

fn arm(timer: &TimerFd) -> nix::Result<()> {
    let never = Expiration::OneShot(TimeSpec::new(1 << NEVER, 0));
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(never, flags)
}

fn wait(timer: &TimerFd, stopped: &EventFd) {
    let mut fds = [
        PollFd::new(timer.as_fd(), PollFlags::POLLIN),
        PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
    ];
    let _ = poll(&mut fds, PollTimeout::NONE);
}

/// True if the clock was set. The timer then waits for the next time.
fn was_set(timer: &TimerFd) -> bool {
    // A timer that was not cancelled has nothing to read.
    if timer.wait().is_err() {
        return false;
    }
    if let Err(e) = arm(timer) {
        log::warn!("cannot watch the wall clock: {e}; schedules are looked at when they are due");
    }
    true
}
