//! Numbers of signals, from the names that images and container specs use for the stop signal.

use nix::sys::signal::Signal;

/// Returns the number of a signal such as `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3` or `RTMAX-1`; None for any other text,
/// including the empty one.
pub fn number(text: &str) -> Option<i32> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(n) = text.parse::<i32>() {
        return (1..=64).contains(&n).then_some(n);
    }
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    if let Some(offset) = name.strip_prefix("RTMIN") {
        return real_time(34, offset);
    }
    if let Some(offset) = name.strip_prefix("RTMAX") {
        return real_time(64, offset);
    }
    // Second names of signals for which nix knows only the first name.
    let name = match name {
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        name => name,
    };
    format!("SIG{name}")
        .parse::<Signal>()
        .ok()
        .map(|s| s as i32)
}

/// Returns the number of the real-time signal `base + offset`; None if there is no such signal. Real-time signals have
/// the numbers 34 to 64.
fn real_time(base: i32, offset: &str) -> Option<i32> {
    let offset = if offset.is_empty() {
        0
    } else {
        offset.parse::<i32>().ok()?
    };
    Some(base.checked_add(offset)?).filter(|n| (34..=64).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::validation::stop_signals;

    #[track_caller]
    fn check(text: &str, expected: Option<i32>) {
        assert_eq!(number(text), expected, "{text}");
    }

    #[test]
    fn numbers_of_signals() {
        check("SIGTERM", Some(15));
        check("term", Some(15));
        check("9", Some(9));
        check("SIGQUIT", Some(3));
        check("SIGRTMIN+3", Some(37));
        check("RTMAX-1", Some(63));
        check("RTMIN-1", None);
        check("65", None);
        check("0", None);
        check("", None);
        check("SIGNOPE", None);
        check("SIGCLD", Some(17));
        check("SIGIOT", Some(6));
        check("SIGPOLL", Some(29));
        check("SIGSTKFLT", Some(16));
        check("SIGPWR", Some(30));
    }

    /// The API refuses any other name, so a pod that was accepted has a signal that exists.
    #[test]
    fn every_name_that_the_api_allows_has_a_number() {
        let names = stop_signals();
        assert_eq!(names.len(), 65);
        for name in names {
            assert!(number(&name).is_some(), "{name}");
        }
    }
}
