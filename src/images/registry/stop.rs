//! Ends a pull from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::RegistryError;

/// How often a wait looks whether it is to end.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Set once, for good. A clone is the same stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    set: AtomicBool,
    above: Option<Stop>,
}

impl Stop {
    /// Another that is set too when this one is.
    pub(super) fn child(&self) -> Self {
        Self(Arc::new(Inner {
            set: AtomicBool::new(false),
            above: Some(self.clone()),
        }))
    }

    pub(super) fn set(&self) {
        self.0.set.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire) || self.0.above.as_ref().is_some_and(Self::is_set)
    }

    pub(super) fn check(&self) -> Result<(), RegistryError> {
        match self.is_set() {
            true => Err(RegistryError::cancelled()),
            false => Ok(()),
        }
    }

    /// Waits, unless it is set.
    pub(super) fn wait(&self, time: Duration) -> Result<(), RegistryError> {
        let deadline = Instant::now() + time;
        loop {
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::park_timeout(left.min(SLICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_those_below_it_only() {
        let above = Stop::default();
        let (one, other) = (above.child(), above.child());
        one.set();
        assert!(one.is_set() && !other.is_set() && !above.is_set());
        assert_eq!(
            one.wait(Duration::MAX.min(Duration::from_secs(3600))),
            Err(RegistryError::cancelled())
        );
        above.set();
        assert!(other.is_set());
    }
}
