//! Long-lived threads: the one way to run them.
//!
//! Invariants: such a thread works in rounds. A panic in a round is caught, counted and logged, and after a pause the
//! next round begins; only the round itself ends the thread. Its pulse says whether it gets on: `/livez` and the metrics
//! read that, so a thread that is stuck or fails round after round is never taken for one that works.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::base::clock::{Moment, go_duration};
use crate::base::locks::Locked;

/// The pause after a first panic …
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … doubles to this while one follows another.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A thread that has not panicked for so long is well again.
const QUIET: Duration = Duration::from_secs(60);
/// A thread that goes on panicking for so long is not well.
const PATIENCE: Duration = Duration::from_secs(10);
/// A round that takes longer hangs.
const LONGEST_ROUND: Duration = Duration::from_secs(120);

/// A reason for which a long-lived thread does not get on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadError {
    /// Each round panics.
    #[error("the thread {name} panics in each round, {times} times by now; the log says where")]
    Panics {
        /// Name of the thread.
        name: &'static str,
        /// Panics since the thread began.
        times: u64,
    },
    /// A round takes too long.
    #[error("the thread {name} hangs for {}", go_duration(Duration::from_secs(time.as_secs())))]
    Hangs {
        /// Name of the thread.
        name: &'static str,
        /// Time that the round has taken by now.
        time: Duration,
    },
}

/// The threads that do not get on, each with the reason; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ThreadsError(pub Vec<ThreadError>);

/// Health of a long-lived thread, for those who ask for it.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    panics: AtomicU64,
    /// Time at which the thread began to work, in nanoseconds since boot; 0 while it waits.
    works_since: AtomicU64,
    /// Time of the first of the panics that followed one another, in nanoseconds since boot; 0 if there was none.
    first_panic: AtomicU64,
    /// Time of the last panic, in nanoseconds since boot; 0 if there was none.
    last_panic: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            panics: AtomicU64::new(0),
            works_since: AtomicU64::new(0),
            first_panic: AtomicU64::new(0),
            last_panic: AtomicU64::new(0),
        }
    }

    /// The thread's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Panics that were caught.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Waits by `wait` for something to do. A wait may be as long as it likes; what follows it until the next counts as
    /// work, which may not.
    pub fn rest<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.works_since.store(0, Ordering::Relaxed);
        let result = wait();
        store(&self.works_since, Moment::now());
        result
    }

    fn panicked(&self, now: Moment) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.works_since.store(0, Ordering::Relaxed);
        if load(&self.last_panic).is_none_or(|last| now.since(last) >= QUIET) {
            store(&self.first_panic, now);
        }
        store(&self.last_panic, now);
    }

    /// Tells whether the thread gets on.
    ///
    /// # Errors
    /// Returns a [`ThreadError`] if it does not.
    pub fn health(&self, now: Moment) -> Result<(), ThreadError> {
        let name = self.name;
        if let (Some(first), Some(last)) = (load(&self.first_panic), load(&self.last_panic))
            && now.since(last) < QUIET
            && last.since(first) >= PATIENCE
        {
            let times = self.panics();
            return Err(ThreadError::Panics { name, times });
        }
        match load(&self.works_since).map(|since| now.since(since)) {
            Some(time) if time > LONGEST_ROUND => Err(ThreadError::Hangs { name, time }),
            _ => Ok(()),
        }
    }
}

fn store(at: &AtomicU64, moment: Moment) {
    let nanos = u64::try_from(moment.since_boot().as_nanos()).unwrap_or(u64::MAX);
    at.store(nanos.max(1), Ordering::Relaxed);
}

fn load(at: &AtomicU64) -> Option<Moment> {
    let nanos = at.load(Ordering::Relaxed);
    (nanos != 0).then(|| Moment::from_boot(Duration::from_nanos(nanos)))
}

/// The pulses of all long-lived threads of a daemon.
#[derive(Debug, Default)]
pub struct Roster(Mutex<Vec<Arc<Pulse>>>);

impl Roster {
    /// Starts a thread and keeps its pulse. Each call of `round` is a round; the flag says that the last one panicked, so
    /// that what was under way may be half done. `Break` ends the thread.
    ///
    /// # Errors
    /// Returns the system's error if it gives no thread.
    pub fn spawn(
        &self,
        name: &'static str,
        stack: usize,
        round: impl FnMut(&Pulse, bool) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (thread, pulse) = spawn(name, stack, round)?;
        self.0.locked().push(pulse);
        Ok(thread)
    }

    /// Name and panics of each thread.
    pub fn panics(&self) -> Vec<(&'static str, u64)> {
        let all = self.0.locked();
        all.iter().map(|p| (p.name(), p.panics())).collect()
    }

    /// Tells whether all threads get on.
    ///
    /// # Errors
    /// Returns a [`ThreadsError`] with those that do not.
    pub fn health(&self, now: Moment) -> Result<(), ThreadsError> {
        let all = self.0.locked();
        let ill: Vec<ThreadError> = all.iter().filter_map(|p| p.health(now).err()).collect();
        match ill.is_empty() {
            true => Ok(()),
            false => Err(ThreadsError(ill)),
        }
    }
}

/// Starts a thread as [`Roster::spawn`] does, but puts its pulse into no roster: the caller gets it.
///
/// # Errors
/// Returns the system's error if it gives no thread.
pub fn spawn(
    name: &'static str,
    stack: usize,
    round: impl FnMut(&Pulse, bool) -> ControlFlow<()> + Send + 'static,
) -> io::Result<(JoinHandle<()>, Arc<Pulse>)> {
    let pulse = Arc::new(Pulse::new(name));
    let own = pulse.clone();
    let thread = Builder::new()
        .name(name.into())
        .stack_size(stack)
        .spawn(move || run(&own, round))?;
    Ok((thread, pulse))
}

fn run(pulse: &Pulse, mut round: impl FnMut(&Pulse, bool) -> ControlFlow<()>) {
    let mut pause = FIRST_PAUSE;
    let mut panicked = false;
    loop {
        match catch_unwind(AssertUnwindSafe(|| round(pulse, panicked))) {
            Ok(ControlFlow::Break(())) => return,
            Ok(ControlFlow::Continue(())) => (panicked, pause) = (false, FIRST_PAUSE),
            Err(_) => {
                panicked = true;
                pulse.panicked(Moment::now());
                log::error!(
                    "the thread {} panicked; it goes on in {pause:?}; please report this",
                    pulse.name
                );
                std::thread::park_timeout(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn a_thread_goes_on_after_a_panic_and_is_told_of_it() {
        let roster = Roster::default();
        let (send, rounds) = bounded(10);
        let mut turn = 0;
        let thread = roster.spawn("sample", 64 << 10, move |_, panicked| {
            turn += 1;
            send.send((turn, panicked)).unwrap();
            match turn {
                2 => panic!("made up"),
                4 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        thread.unwrap().join().unwrap();
        let seen: Vec<_> = rounds.try_iter().collect();
        assert_eq!(seen, [(1, false), (2, false), (3, true), (4, false)]);
        assert_eq!(roster.panics(), [("sample", 1)]);
        assert_eq!(roster.health(Moment::now()), Ok(()));
    }

    #[test]
    fn one_panic_is_forgiven_and_one_in_each_round_is_not() {
        let at = |s: u64| Moment::from_boot(Duration::from_secs(1000 + s));
        let pulse = Pulse::new("sample");
        pulse.panicked(at(0));
        assert_eq!(pulse.health(at(5)), Ok(()));
        assert_eq!(pulse.health(at(30)), Ok(()));
        pulse.panicked(at(5));
        pulse.panicked(at(11));
        let text = "the thread sample panics in each round, 3 times by now; the log says where";
        assert_eq!(pulse.health(at(12)).unwrap_err().to_string(), text);
        assert_eq!(pulse.health(at(71)), Ok(()), "it is well again");
        pulse.panicked(at(80));
        assert_eq!(pulse.health(at(81)), Ok(()), "another row begins");
    }

    #[test]
    fn a_round_that_hangs_is_seen_and_a_long_wait_is_none() {
        let pulse = Pulse::new("sample");
        let later = |s| Moment::now() + Duration::from_secs(s);
        pulse.rest(|| ());
        pulse.rest(|| assert_eq!(pulse.health(later(1000)), Ok(())));
        assert_eq!(pulse.health(later(100)), Ok(()));
        let text = pulse.health(later(200)).unwrap_err().to_string();
        assert!(text.starts_with("the thread sample hangs for 3m"), "{text}");
    }
}
