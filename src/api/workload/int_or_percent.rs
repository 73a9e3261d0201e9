//! A number, or a percentage of another number, as in `maxSurge` and `maxUnavailable`.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A number or a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    /// A number.
    Int(i32),
    /// A percentage as it was written. The text ends with `%` in a valid object.
    Text(String),
}

impl IntOrPercent {
    /// Returns the number, or the percentage of `total`. A percentage that gives no whole number is rounded up or
    /// down. A text that is no percentage gives None (apimachinery util/intstr: GetScaledValueFromIntOrPercent).
    pub fn of(&self, total: i32, round_up: bool) -> Option<i32> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(_) => {
                let percent = i64::from(self.percent()?);
                let hundredths = percent * i64::from(total);
                let rounded = match round_up {
                    true => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0),
                    false => hundredths.div_euclid(100),
                };
                Some(i32::try_from(rounded).unwrap_or(i32::MAX))
            }
        }
    }

    /// Returns the number before the `%`, or None if this is no percentage.
    pub fn percent(&self) -> Option<i32> {
        match self {
            Self::Int(_) => None,
            Self::Text(text) => text.strip_suffix('%')?.parse().ok(),
        }
    }
}

impl fmt::Display for IntOrPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrPercent {
    /// Reads a number or a text. The function is written by hand, because the error of a derived untagged enum does
    /// not say what was expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = IntOrPercent;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a percentage such as \"25%\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrPercent, E> {
                Ok(IntOrPercent::Text(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrPercent, E> {
                i32::try_from(number)
                    .map(IntOrPercent::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrPercent, E> {
                i32::try_from(number)
                    .map(IntOrPercent::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_as_it_is_asked_for() {
        let quarter = IntOrPercent::Text("25%".into());
        assert_eq!(quarter.of(3, true), Some(1));
        assert_eq!(quarter.of(3, false), Some(0));
        assert_eq!(quarter.of(4, true), Some(1));
        assert_eq!(quarter.of(4, false), Some(1));
        assert_eq!(IntOrPercent::Int(7).of(3, true), Some(7));
        assert_eq!(IntOrPercent::Text("many".into()).of(3, true), None);
    }
}
