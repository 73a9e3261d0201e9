//! The Prometheus text format, version 0.0.4, as far as podprobe needs it.
//!
//! Invariants: nothing in this file is shared between threads, except [`counters`]. A family is written as a whole: first
//! its HELP and TYPE lines, then its samples. A family without samples is left out, as client_golang does.

pub mod counters;

use std::fmt::Write;
use std::time::Duration;

/// Upper bounds in seconds of client_golang's default buckets (kubelet-probes 2.7).
pub const DEFAULT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// A histogram of durations, in the buckets of [`DEFAULT_BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Number of durations in each bucket, not cumulative. The last number counts durations above every bound.
    counts: [u64; DEFAULT_BUCKETS.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&mut self, d: Duration) {
        let seconds = d.as_secs_f64();
        let at = DEFAULT_BUCKETS
            .iter()
            .position(|b| seconds <= *b)
            .unwrap_or(DEFAULT_BUCKETS.len());
        self.counts[at] += 1;
        self.sum += seconds;
    }

    /// Adds the durations that another histogram has counted.
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .iter_mut()
            .zip(other.counts)
            .for_each(|(mine, theirs)| *mine += theirs);
        self.sum += other.sum;
    }

    /// Tells whether the histogram has counted nothing.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|n| *n == 0)
    }
}

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// A number of durations in each bucket.
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Names and values of a sample's labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// A family of metrics while it is written. Writing to a String cannot fail.
pub struct Family<'a> {
    out: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: Kind,
    begun: bool,
    /// Bounds of the buckets as text: `le="0.005"} `. The texts are kept, because a thousand histograms share them.
    bounds: Vec<String>,
    /// The beginning of every bucket line of a histogram. The text is kept, so its memory is used again.
    head: String,
    /// The end of a line of a counter or gauge: empty, or the time of its value.
    end: String,
}

impl<'a> Family<'a> {
    /// Begins a family, which has no samples yet.
    pub fn new(out: &'a mut String, name: &'a str, kind: Kind, help: &'a str) -> Self {
        Self {
            out,
            name,
            help,
            kind,
            begun: false,
            bounds: Vec::new(),
            head: String::new(),
            end: String::new(),
        }
    }

    /// Adds to each value of the family the time at which the value was true, in milliseconds since 1970.
    #[must_use]
    pub fn at(mut self, milliseconds: i64) -> Self {
        self.end = format!(" {milliseconds}");
        self
    }

    /// Writes a counter or gauge.
    pub fn value(&mut self, labels: &Labels<'_>, value: u64) {
        self.value_of(&[&pairs(labels)], value);
    }

    /// Writes a gauge that is not a whole number.
    pub fn real(&mut self, labels: &Labels<'_>, value: f64) {
        self.real_of(&[&pairs(labels)], value);
    }

    /// Writes a gauge like [`Self::real`], with labels that [`pairs`] has already written.
    pub fn real_of(&mut self, pairs: &[&str], value: f64) {
        self.begin();
        self.out.push_str(self.name);
        push_braces(pairs, self.out);
        let _ = writeln!(self.out, " {value}{}", self.end);
    }

    /// Writes a counter or gauge like [`Self::value`], with labels that [`pairs`] has already written. The texts in
    /// `pairs` are written one after another without a separator.
    pub fn value_of(&mut self, pairs: &[&str], value: u64) {
        self.begin();
        self.out.push_str(self.name);
        push_braces(pairs, self.out);
        self.out.push(' ');
        push_number(value, self.out);
        self.out.push_str(&self.end);
        self.out.push('\n');
    }

    /// Writes the buckets, sum and count of a histogram, with labels that [`pairs`] has already written.
    pub fn histogram_of(&mut self, pairs: &[&str], h: &Histogram) {
        self.buckets_of(pairs, &DEFAULT_BUCKETS, &h.counts, h.sum);
    }

    /// Writes the buckets, sum and count of a histogram with these upper bounds. `counts` is not cumulative. It has one
    /// number more than `bounds`, for the values above all bounds.
    pub fn buckets_of(&mut self, pairs: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        self.begin();
        if self.bounds.len() != counts.len() {
            let texts = bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
            self.bounds = texts.map(|le| format!("le=\"{le}\"}} ")).collect();
        }
        self.head.clear();
        self.head.push_str(self.name);
        self.head.push_str("_bucket{");
        pairs.iter().for_each(|part| self.head.push_str(part));
        if pairs.iter().any(|part| !part.is_empty()) {
            self.head.push(',');
        }
        // Memory for all lines of the histogram is reserved at once.
        let line = self.head.len() + LONGEST_VALUE;
        self.out.reserve((counts.len() + 2) * line);
        let mut count = 0;
        for (bound, n) in self.bounds.iter().zip(counts) {
            count += n;
            self.out.push_str(&self.head);
            self.out.push_str(bound);
            push_number(count, self.out);
            self.out.push('\n');
        }
        self.out.push_str(self.name);
        self.out.push_str("_sum");
        push_braces(pairs, self.out);
        let _ = writeln!(self.out, " {sum}");
        self.out.push_str(self.name);
        self.out.push_str("_count");
        push_braces(pairs, self.out);
        self.out.push(' ');
        push_number(count, self.out);
        self.out.push('\n');
    }

    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            let _ = writeln!(
                self.out,
                "# HELP {0} {1}\n# TYPE {0} {2}",
                self.name,
                self.help,
                self.kind.as_str()
            );
        }
    }
}

/// Upper limit in bytes for the bound and the number in a line.
const LONGEST_VALUE: usize = 40;

/// Writes labels as `a="b",c="d"`, sorted by name like client_golang; empty if there are no labels. Callers use the
/// result for all samples with these labels, because a scrape of a thousand probes spends most of its time on labels.
pub fn pairs(labels: &Labels<'_>) -> String {
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    let mut pairs = String::new();
    for (name, value) in labels {
        if !pairs.is_empty() {
            pairs.push(',');
        }
        pairs.push_str(name);
        pairs.push_str("=\"");
        escape(value, &mut pairs);
        pairs.push('"');
    }
    pairs
}

fn push_braces(pairs: &[&str], out: &mut String) {
    if pairs.iter().any(|part| !part.is_empty()) {
        out.push('{');
        pairs.iter().for_each(|part| out.push_str(part));
        out.push('}');
    }
}

/// Appends a number without the machinery of `write!`, because a scrape of a thousand probes writes thirty thousand
/// numbers.
fn push_number(mut n: u64, out: &mut String) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    // The bytes are ASCII digits, so `from_utf8` never fails.
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

fn escape(value: &str, out: &mut String) {
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_head_once_and_nothing_without_samples() {
        let mut out = String::new();
        let mut family = Family::new(&mut out, "x_total", Kind::Counter, "What it is.");
        family.value(&[("b", "2"), ("a", "1\\\"\n")], 3);
        family.value(&[], 4);
        family.real(&[("a", "1")], 1.5);
        Family::new(&mut out, "unused", Kind::Gauge, "Never seen.");
        assert_eq!(
            out,
            "# HELP x_total What it is.\n# TYPE x_total counter\nx_total{a=\"1\\\\\\\"\\n\",b=\"2\"} 3\nx_total 4\nx_total{a=\"1\"} 1.5\n"
        );
    }

    #[test]
    fn a_value_may_have_its_time() {
        let mut out = String::new();
        let mut family = Family::new(&mut out, "x_bytes", Kind::Gauge, "X.").at(1_700_000_000_123);
        family.value(&[], 3);
        family.real(&[("a", "b")], 0.5);
        let lines: Vec<&str> = out.lines().skip(2).collect();
        let expected = [
            "x_bytes 3 1700000000123",
            "x_bytes{a=\"b\"} 0.5 1700000000123",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn numbers_are_written_as_they_are() {
        for n in [0, 9, 10, 1_234_567_890, u64::MAX] {
            let mut out = String::new();
            push_number(n, &mut out);
            assert_eq!(out, n.to_string());
        }
    }

    #[test]
    fn buckets_are_cumulative_and_hold_their_bound() {
        let mut h = Histogram::default();
        assert!(h.is_empty());
        for ms in [5, 6, 1000, 11_000] {
            h.observe(Duration::from_millis(ms));
        }
        let mut out = String::new();
        Family::new(&mut out, "d_seconds", Kind::Histogram, "D.")
            .histogram_of(&[&pairs(&[("t", "x")])], &h);
        let expected = "# HELP d_seconds D.\n# TYPE d_seconds histogram\n\
            d_seconds_bucket{t=\"x\",le=\"0.005\"} 1\nd_seconds_bucket{t=\"x\",le=\"0.01\"} 2\nd_seconds_bucket{t=\"x\",le=\"0.025\"} 2\n\
            d_seconds_bucket{t=\"x\",le=\"0.05\"} 2\nd_seconds_bucket{t=\"x\",le=\"0.1\"} 2\nd_seconds_bucket{t=\"x\",le=\"0.25\"} 2\n\
            d_seconds_bucket{t=\"x\",le=\"0.5\"} 2\nd_seconds_bucket{t=\"x\",le=\"1\"} 3\nd_seconds_bucket{t=\"x\",le=\"2.5\"} 3\n\
            d_seconds_bucket{t=\"x\",le=\"5\"} 3\nd_seconds_bucket{t=\"x\",le=\"10\"} 3\nd_seconds_bucket{t=\"x\",le=\"+Inf\"} 4\n\
            d_seconds_sum{t=\"x\"} 12.011\nd_seconds_count{t=\"x\"} 4\n";
        assert_eq!(out, expected);
        let mut twice = h.clone();
        twice.merge(&h);
        assert_eq!((twice.counts.iter().sum::<u64>(), twice.sum), (8, 24.022));
    }
}
