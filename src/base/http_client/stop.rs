//! A flag with which a caller ends a fetch from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::FetchError;

/// Time after which a waiting thread checks its [`Stop`] again.
pub const SLICE: Duration = Duration::from_millis(100);

/// A flag that ends a fetch. Once set, it stays set. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    set: AtomicBool,
    above: Option<Stop>,
}

impl Stop {
    /// Returns a new flag that counts as set when this flag is set. Setting the new flag does not set this one.
    pub fn child(&self) -> Self {
        Self(Arc::new(Inner {
            set: AtomicBool::new(false),
            above: Some(self.clone()),
        }))
    }

    /// Sets the flag.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Release);
    }

    /// Tells whether this flag, or one above it, is set.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire) || self.0.above.as_ref().is_some_and(Self::is_set)
    }

    /// Checks the flag.
    ///
    /// # Errors
    /// Returns an error of the kind [`Kind::Cancelled`](super::Kind::Cancelled) if the flag is set.
    pub fn check(&self) -> Result<(), FetchError> {
        match self.is_set() {
            true => Err(FetchError::cancelled()),
            false => Ok(()),
        }
    }

    /// Waits for `time`.
    ///
    /// # Errors
    /// Returns an error as soon as the flag is set.
    pub fn wait(&self, time: Duration) -> Result<(), FetchError> {
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
            Err(FetchError::cancelled())
        );
        above.set();
        assert!(other.is_set());
    }
}
