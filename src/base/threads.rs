//! Runs the long-lived threads of a process.
//!
//! Invariants: a long-lived thread works in rounds. A panic in a round is caught, counted and logged, and the next
//! round begins after a pause. A thread ends only when its round returns `Break`. The thread's pulse says whether it
//! makes progress. `/livez` and the metrics read the pulse, so a thread that hangs or panics in each round never counts
//! as healthy.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::base::clock::{Moment, go_duration};
use crate::base::locks::Locked;

/// Pause after the first of several panics. Each further panic without a successful round in between doubles the pause,
/// up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between a panic and the next round.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time without a panic after which a thread counts as healthy again.
const QUIET: Duration = Duration::from_secs(60);
/// Least time between the first and the last of several successive panics for which the thread counts as unhealthy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for a round. A round that takes longer hangs.
const LONGEST_ROUND: Duration = Duration::from_secs(120);

/// The reason why a long-lived thread makes no progress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadError {
    /// Each round panics.
    #[error("the thread {name} panics in each round, {times} times by now; the log says where")]
    Panics {
        /// Name of the thread.
        name: &'static str,
        /// Number of panics since the thread began.
        times: u64,
    },
    /// A round hangs.
    #[error("the thread {name} hangs for {}", go_duration(Duration::from_secs(time.as_secs())))]
    Hangs {
        /// Name of the thread.
        name: &'static str,
        /// Time since the round began to work.
        time: Duration,
    },
}

/// The threads that make no progress, each with the reason. The list has at least one thread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ThreadsError(pub Vec<ThreadError>);

/// The health of a long-lived thread, which other threads can read.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    panics: AtomicU64,
    /// Time at which the thread began to work in this round, in nanoseconds since boot; 0 while it waits.
    works_since: AtomicU64,
    /// Time of the first of several successive panics, in nanoseconds since boot; 0 if the thread never panicked.
    first_panic: AtomicU64,
    /// Time of the last panic, in nanoseconds since boot; 0 if the thread never panicked.
    last_panic: AtomicU64,
}

impl Pulse {
    /// Makes the pulse of a thread that has not panicked.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            panics: AtomicU64::new(0),
            works_since: AtomicU64::new(0),
            first_panic: AtomicU64::new(0),
            last_panic: AtomicU64::new(0),
        }
    }

    /// Returns the thread's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of panics that were caught.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Calls `wait`, which waits for something to do and may take any time. The time from the return of `wait` to the
    /// next call of `rest` counts as work, and is limited to [`LONGEST_ROUND`].
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

    /// Checks that the thread makes progress.
    ///
    /// # Errors
    /// Returns a [`ThreadError`] if the thread hangs or panics in each round.
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
    /// Starts a thread and keeps its pulse. The thread calls `round` again and again, until it returns `Break`. The
    /// flag that `round` gets is true after a round that panicked, because that round may have left its work half done.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
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

    /// Returns the name and number of panics of each thread.
    pub fn panics(&self) -> Vec<(&'static str, u64)> {
        let all = self.0.locked();
        all.iter().map(|p| (p.name(), p.panics())).collect()
    }

    /// Checks that all threads make progress.
    ///
    /// # Errors
    /// Returns a [`ThreadsError`] with the threads that make no progress.
    pub fn health(&self, now: Moment) -> Result<(), ThreadsError> {
        let all = self.0.locked();
        let ill: Vec<ThreadError> = all.iter().filter_map(|p| p.health(now).err()).collect();
        match ill.is_empty() {
            true => Ok(()),
            false => Err(ThreadsError(ill)),
        }
    }
}

/// Starts a thread like [`Roster::spawn`], but returns its pulse instead of keeping it in a roster.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
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
