//! The result of a container's probe. The result is cached, sent to the sync loop and used in decisions.

use std::fmt;

/// The cached result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// The result is not known yet. A startup probe has this result at first.
    Unknown,
    /// The number of successes in a row has reached successThreshold.
    Success,
    /// The number of failures in a row has reached failureThreshold.
    Failure,
}

impl ProbeResult {
    /// Returns the number in the metric: 0 for Success, 1 for Failure, -1 for Unknown.
    pub fn as_number(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Unknown => -1,
        }
    }
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "Success",
            Self::Failure => "Failure",
            Self::Unknown => "UNKNOWN",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_those_of_the_metrics() {
        let all = [
            ProbeResult::Success,
            ProbeResult::Failure,
            ProbeResult::Unknown,
        ];
        assert_eq!(
            all.map(|r| r.to_string()),
            ["Success", "Failure", "UNKNOWN"]
        );
        assert_eq!(all.map(ProbeResult::as_number), [0, 1, -1]);
    }
}
