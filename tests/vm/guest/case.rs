//! What a case is, and how it waits.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// Why a case has not passed.
#[derive(Debug)]
pub enum Not {
    Passed(String),
    /// The machine lacks what the case needs.
    Tried(String),
}

impl<T: Display> From<T> for Not {
    fn from(why: T) -> Not {
        Not::Passed(why.to_string())
    }
}

pub type Verdict = Result<(), Not>;

/// Waits for a condition of the guest for at most 60 s of its time. The condition says what is missing.
pub fn until<T>(what: &str, condition: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    within(Duration::from_secs(60), what, condition)
}

pub fn within<T>(
    ceiling: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match condition() {
            Ok(value) => return Ok(value),
            Err(missing) if begun.elapsed() > ceiling => {
                return Err(format!(
                    "{what}: not after {} s: {missing}",
                    ceiling.as_secs()
                ));
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Fails with both values when they differ.
pub fn equal(what: &str, is: &str, wanted: &str) -> Result<(), String> {
    if is == wanted {
        Ok(())
    } else {
        Err(format!("{what} is {is:?}, not {wanted:?}"))
    }
}
