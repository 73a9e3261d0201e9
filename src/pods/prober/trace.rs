//! Collects the steps of a probe, for `podprobe probe`.
//!
//! Invariants: only the thread that runs [`record`] collects notes. On every other thread a note costs one read of a
//! thread-local. At most [`MAX_STEPS`] steps of [`MAX_STEP`] bytes each are kept.

use std::cell::RefCell;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::base::text::{head, micros};

/// The largest number of steps of one probe.
pub const MAX_STEPS: usize = 200;
/// Upper limit in bytes of the text of one step.
pub const MAX_STEP: usize = 1024;

/// A step that a probe has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The time since the beginning of the probe in microseconds.
    pub micros: u64,
    /// A text about the action and its outcome.
    pub text: String,
}

struct Recording {
    begun: Instant,
    steps: Vec<Step>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Notes a step. `text` is called only if this thread collects notes.
pub fn note<T: Into<String>>(text: impl FnOnce() -> T) {
    RECORDING.with_borrow_mut(|recording| {
        let Some(r) = recording.as_mut().filter(|r| r.steps.len() < MAX_STEPS) else {
            return;
        };
        let text = text().into();
        r.steps.push(Step {
            micros: micros(r.begun.elapsed()),
            text: head(&text, MAX_STEP).to_owned(),
        });
    });
}

/// Runs `f` on this thread. Returns the result of `f` and the steps that were noted during the call.
pub fn record<T>(f: impl FnOnce() -> T) -> (T, Vec<Step>) {
    RECORDING.set(Some(Recording {
        begun: Instant::now(),
        steps: Vec::new(),
    }));
    let value = f();
    (value, RECORDING.take().map(|r| r.steps).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_taken_while_someone_listens() {
        note(|| -> String { panic!("nobody listens") });
        let (value, steps) = record(|| {
            note(|| "one");
            note(|| format!("two{}", "x".repeat(2 * MAX_STEP)));
            std::thread::spawn(|| note(|| -> String { panic!("another thread") }))
                .join()
                .unwrap();
            7
        });
        assert_eq!(
            (
                value,
                steps.len(),
                steps[0].text.as_str(),
                steps[1].text.len()
            ),
            (7, 2, "one", MAX_STEP)
        );
        assert!(steps[0].micros <= steps[1].micros);
        note(|| -> String { panic!("nobody listens any more") });
    }

    #[test]
    fn steps_are_bounded() {
        let ((), steps) = record(|| (0..MAX_STEPS + 9).for_each(|i| note(|| i.to_string())));
        assert_eq!(steps.len(), MAX_STEPS);
    }
}
