//! The ports on which the userspace proxy listens: ports of a range, or ports that the kernel chooses (services 5.5).
//!
//! Invariants: pure; the randomness is an argument. A port of a range has one owner at a time, and can be allocated
//! again as soon as it is released.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A text is no range of ports. The error prints the text, the allowed forms, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRangeError {
    value: String,
    why: &'static str,
}

impl fmt::Display for PortRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, why } = self;
        write!(
            f,
            "Invalid value: {value:?}: {why}; must be \"FIRST-LAST\" or one port, each between 1 and 65535, or empty for \
             ports that the kernel chooses"
        )
    }
}

impl std::error::Error for PortRangeError {}

/// A range of ports from the first to the last, both included. The range is read from `FIRST-LAST`, `FIRST+MORE` or one
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Reads the range from a setting. Returns `None` for an empty setting, which lets the kernel choose.
    ///
    /// # Errors
    /// Returns `PortRangeError` if the text is no range, or has ports outside 1 to 65535.
    pub fn parse(value: &str) -> Result<Option<Self>, PortRangeError> {
        match value.trim() {
            "" => Ok(None),
            value => value.parse().map(Some),
        }
    }

    /// Returns true if the port is in the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn ends(value: &str) -> Result<(u32, u32), &'static str> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let found = digits.then(|| text.parse().ok()).flatten();
            found.ok_or("it does not have that form")
        };
        if let Some((first, last)) = value.split_once('-') {
            return Ok((number(first)?, number(last)?));
        }
        let (first, more) = value.split_once('+').unwrap_or((value, "0"));
        let first: u32 = number(first)?;
        Ok((first, first.saturating_add(number(more)?)))
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(value: &str) -> Result<Self, PortRangeError> {
        let wrong = |why| PortRangeError {
            value: value.into(),
            why,
        };
        let (first, last) = Self::ends(value).map_err(wrong)?;
        if first == 0 {
            return Err(wrong("0 is not a port"));
        }
        if last < first {
            return Err(wrong("end port cannot be less than start port"));
        }
        let port = |n: u32| u16::try_from(n).ok();
        match (port(first), port(last)) {
            (Some(first), Some(last)) => Ok(Self { first, last }),
            _ => Err(wrong("the port range cannot be greater than 65535")),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Every port of the range is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRemainingPorts(pub PortRange);

impl fmt::Display for NoRemainingPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no remaining ports in {}; each service port needs one of its own",
            self.0
        )
    }
}

impl std::error::Error for NoRemainingPorts {}

/// An allocator of ports.
#[derive(Debug)]
pub struct PortAllocator {
    range: Option<PortRange>,
    used: BTreeSet<u16>,
}

impl PortAllocator {
    /// Makes an allocator for a range. Without a range every allocated port is 0, and the kernel chooses the port.
    pub fn new(range: Option<PortRange>) -> Self {
        Self {
            range,
            used: BTreeSet::new(),
        }
    }

    /// Allocates the first free port from a random place in the range on. `random` is at least 0 and below 1.
    ///
    /// # Errors
    /// Returns `NoRemainingPorts` if all ports are in use.
    pub fn allocate_next(&mut self, random: f64) -> Result<u16, NoRemainingPorts> {
        let Some(range) = self.range else {
            return Ok(0);
        };
        let size = range.last - range.first;
        let offset = (random * (f64::from(size) + 1.0)) as u16;
        let start = range.first + offset.min(size);
        let from_start = (start..=range.last).chain(range.first..start);
        let port = from_start.into_iter().find(|p| !self.used.contains(p));
        let port = port.ok_or(NoRemainingPorts(range))?;
        self.used.insert(port);
        Ok(port)
    }

    /// Marks a port as in use, for example a port that is already bound. Returns false if the port is already
    /// allocated, or is not in the range.
    pub fn claim(&mut self, port: u16) -> bool {
        self.range.is_some_and(|r| r.contains(port)) && self.used.insert(port)
    }

    /// Releases a port. Does nothing if the port was not allocated.
    pub fn release(&mut self, port: u16) {
        self.used.remove(&port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        let got = match PortRange::parse(value) {
            Ok(None) => "the kernel's".to_owned(),
            Ok(Some(range)) => range.to_string(),
            Err(e) => e.why.to_owned(),
        };
        assert_eq!(got, expected, "{value:?}");
    }

    #[test]
    fn ranges_are_read_as_kube_proxy_reads_them() {
        check("", "the kernel's");
        check("  ", "the kernel's");
        check("1-1", "1-1");
        check(" 4000-4100 ", "4000-4100");
        check("80", "80-80");
        check("4000+7", "4000-4007");
        check("65535", "65535-65535");
    }

    #[test]
    fn what_is_no_range_is_an_error_and_no_panic() {
        check("0-0", "0 is not a port");
        check("0", "0 is not a port");
        check("0-5", "0 is not a port");
        check("5-4", "end port cannot be less than start port");
        check("1-65536", "the port range cannot be greater than 65535");
        check("65530+9", "the port range cannot be greater than 65535");
        check("70000", "the port range cannot be greater than 65535");
        for text in ["-", "1-", "-1", "a-b", "1--2", "+5", "1 - 2", "99999999999"] {
            check(text, "it does not have that form");
        }
    }

    #[test]
    fn the_error_says_what_is_allowed_and_the_way_out() {
        let error = PortRange::parse("0-0").expect_err("0 is not a port");
        assert_eq!(
            error.to_string(),
            "Invalid value: \"0-0\": 0 is not a port; must be \"FIRST-LAST\" or one port, each between 1 and 65535, or empty \
             for ports that the kernel chooses"
        );
    }

    #[test]
    fn every_port_of_a_range_is_given_once_from_any_place() {
        for random in [0.0, 0.5, 0.999_999, 7.0] {
            let mut ports = PortAllocator::new(PortRange::parse("10-13").expect("a range"));
            let mut got: Vec<u16> = (0..4)
                .map(|_| ports.allocate_next(random).expect("one is left"))
                .collect();
            got.sort_unstable();
            assert_eq!(got, [10, 11, 12, 13]);
            let full = ports.allocate_next(random).expect_err("none is left");
            assert!(full.to_string().starts_with("no remaining ports in 10-13"));
        }
    }

    #[test]
    fn the_widest_range_has_every_port() {
        let mut ports = PortAllocator::new(PortRange::parse("1-65535").expect("a range"));
        assert_eq!(ports.allocate_next(0.0), Ok(1));
        assert_eq!(ports.allocate_next(0.999_999_9), Ok(65535));
    }

    #[test]
    fn a_claimed_port_is_not_given() {
        let mut ports = PortAllocator::new(PortRange::parse("10-11").expect("a range"));
        assert!(ports.claim(10) && !ports.claim(10) && !ports.claim(12));
        assert_eq!(ports.allocate_next(0.0), Ok(11));
    }
}
