//! What is wrong with a schedule.
//!
//! Invariants: the texts are those of robfig/cron and of Go's libraries.

use super::duration::DurationError;
use super::go_text::quote;
use super::zone::ZoneError;

/// A schedule that cannot be read, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is empty.
    #[error("empty spec string")]
    Empty,
    /// A prefix `TZ=` has no schedule behind it. Upstream's parser panics then, and this is what it says.
    #[error("invalid schedule format: runtime error: slice bounds out of range [:-1]")]
    OnlyZone,
    /// The time zone of a prefix `TZ=` is unknown.
    #[error("provided bad location {name}: {error}")]
    Zone {
        /// Name of the zone.
        name: String,
        /// The error of the name.
        error: ZoneError,
    },
    /// The number of fields is not five.
    #[error("expected exactly 5 fields, found {}: [{}]", .0.len(), .0.join(" "))]
    FieldCount(Vec<String>),
    /// A range has more than two ends.
    #[error("too many hyphens: {0}")]
    TooManyHyphens(String),
    /// A range has more than one step.
    #[error("too many slashes: {0}")]
    TooManySlashes(String),
    /// A range begins too low.
    #[error("beginning of range ({first}) below minimum ({min}): {range}")]
    BelowMinimum {
        /// Beginning of the range.
        first: u64,
        /// Lowest value of the field.
        min: u8,
        /// The range as written.
        range: String,
    },
    /// A range ends too high.
    #[error("end of range ({last}) above maximum ({max}): {range}")]
    AboveMaximum {
        /// End of the range.
        last: u64,
        /// Highest value of the field.
        max: u8,
        /// The range as written.
        range: String,
    },
    /// A range ends before it begins.
    #[error("beginning of range ({first}) beyond end of range ({last}): {range}")]
    Backwards {
        /// Beginning of the range.
        first: u64,
        /// End of the range.
        last: u64,
        /// The range as written.
        range: String,
    },
    /// The step of a range is 0.
    #[error("step of range should be a positive number: {0}")]
    ZeroStep(String),
    /// A value is neither a number nor a name of the field.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", quote(.text))]
    NotANumber {
        /// The value as written.
        text: String,
    },
    /// A number does not fit into 64 bits.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: value out of range", quote(.text))]
    TooLarge {
        /// The value as written.
        text: String,
    },
    /// A number is negative.
    #[error("negative number (-{magnitude}) not allowed: {text}")]
    Negative {
        /// The number without its sign.
        magnitude: u64,
        /// The number as written.
        text: String,
    },
    /// A word that begins with `@` is unknown.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// The duration of `@every` cannot be read.
    #[error("failed to parse duration {descriptor}: {error}")]
    Duration {
        /// The whole word with its duration.
        descriptor: String,
        /// The error of the duration.
        error: DurationError,
    },
}
