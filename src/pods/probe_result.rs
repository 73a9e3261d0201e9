//! The result of a probe for a container: it is cached, sent to the sync loop and used in
//! decisions.

use std::fmt;

/// The cached result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// Not known yet: the initial result of startup.
    Unknown,
    /// The successes in a row have reached successThreshold.
    Success,
    /// The failures in a row have reached failureThreshold.
    Failure,
}

impl ProbeResult {
    /// The metric's number: Success 0, Failure 1, others -1.
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
