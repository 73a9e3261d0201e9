//! A value that one part of the program replaces while other parts read it, such as a setting that a new configuration changes.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::locks::Locked;

/// A handle of a value that can be replaced. All clones of a handle read the same value.
#[derive(Default)]
pub struct Live<T>(Arc<Mutex<T>>);

impl<T: Clone> Live<T> {
    /// Makes a handle of a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// Returns the present value.
    pub fn get(&self) -> T {
        self.0.locked().clone()
    }

    /// Replaces the value for all readers.
    pub fn set(&self, value: T) {
        *self.0.locked() = value;
    }

    /// Changes a part of the value for all readers. What others change meanwhile is not lost.
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.locked());
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.locked().fmt(f)
    }
}

impl<T: Clone> From<T> for Live<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clones_read_what_one_sets() {
        let live = Live::new(1);
        let reader = live.clone();
        live.set(2);
        assert_eq!(reader.get(), 2);
    }
}
