//! Kubernetes quantities (`100m`, `64Mi`, `1.5`, `2e3`), exact to a nano unit.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A quantity, kept and serialised as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

/// The value of a quantity. The value saturates at ±(2⁶³−1) units, as in Kubernetes. Parts of a nano unit are rounded
/// away from zero, so a small value never becomes 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    nanos: i128,
}

/// The error of a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError;

/// Largest number of characters in a quantity. The longest number in JSON has fewer characters, and only the first 20
/// digits of a quantity count.
pub const LONGEST: usize = 400;

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "must be a quantity: a number with one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent, such as 100m, 1.5, 64Mi or 2e3",
        )
    }
}

impl std::error::Error for QuantityError {}

const NANO: i128 = 1_000_000_000;
const MOST: i128 = i64::MAX as i128 * NANO;

impl Amount {
    /// Returns the number of units, rounded up.
    pub fn value(self) -> i64 {
        self.in_steps_of(NANO)
    }

    /// Returns the number of thousandths, rounded up. The number saturates at 2⁶³−1.
    pub fn milli_value(self) -> i64 {
        self.in_steps_of(NANO / 1000)
    }

    /// True if the quantity is below 0. The rounded value does not show this: -0.5 becomes 0.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// True if the quantity is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    fn in_steps_of(self, step: i128) -> i64 {
        let up = self.nanos.div_euclid(step) + i128::from(self.nanos.rem_euclid(step) != 0);
        up.clamp(-i128::from(i64::MAX), i64::MAX.into()) as i64
    }
}

impl Quantity {
    /// Reads the text as an amount.
    ///
    /// # Errors
    /// Returns a `QuantityError` if the text is not a quantity. A quantity from the decoder never causes this error.
    pub fn parse(&self) -> Result<Amount, QuantityError> {
        let text = self.0.as_str();
        if text.len() > LONGEST {
            return Err(QuantityError);
        }
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError);
        }
        let magnitude = magnitude(whole, fraction, Scale::of(suffix).ok_or(QuantityError)?);
        Ok(Amount {
            nanos: if negative { -magnitude } else { magnitude },
        })
    }

    /// Returns the number of thousandths, rounded up; None if the text is not a quantity.
    pub fn milli_value(&self) -> Option<i64> {
        self.parse().ok().map(Amount::milli_value)
    }

    /// Returns the number of units, rounded up; None if the text is not a quantity.
    pub fn value(&self) -> Option<i64> {
        self.parse().ok().map(Amount::value)
    }
}

/// Multiplier of a suffix: `factor` · 10^`tens`.
#[derive(Clone, Copy)]
struct Scale {
    factor: i128,
    tens: i32,
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        const DECIMAL: [(&str, i32); 10] = [
            ("n", -9),
            ("u", -6),
            ("m", -3),
            ("", 0),
            ("k", 3),
            ("M", 6),
            ("G", 9),
            ("T", 12),
            ("P", 15),
            ("E", 18),
        ];
        const BINARY: [(&str, u32); 6] = [
            ("Ki", 10),
            ("Mi", 20),
            ("Gi", 30),
            ("Ti", 40),
            ("Pi", 50),
            ("Ei", 60),
        ];
        if let Some((_, tens)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
            return Some(Self {
                factor: 1,
                tens: *tens,
            });
        }
        if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
            return Some(Self {
                factor: 1 << bits,
                tens: 0,
            });
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        exponent.parse().ok().map(|tens| Self { factor: 1, tens })
    }
}

/// Returns the number of nano units in `whole.fraction` at this scale, rounded up and at most [`MOST`].
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // The value is digits · factor · 10^tens nano units. `digits` does not begin with 0, so its length shows the
    // magnitude.
    let tens = i64::from(scale.tens) + 9 - fraction.len() as i64;
    let size = digits.len() as i64 + tens;
    if size > 30 {
        return MOST;
    }
    // Only the first 20 digits count; the digits after them only decide whether to round up. 10²⁰ · 2⁶⁰ still fits
    // into 128 bits.
    let (head, rest) = digits.split_at(digits.len().min(20));
    let mut inexact = rest.bytes().any(|digit| digit != b'0');
    let tens = tens + rest.len() as i64;
    let value = head
        .parse::<i128>()
        .unwrap_or(MOST)
        .saturating_mul(scale.factor);
    let nanos = if tens >= 0 {
        value.saturating_mul(10_i128.saturating_pow(tens as u32))
    } else {
        let divisor = 10_i128.saturating_pow(tens.unsigned_abs().min(39) as u32);
        inexact |= value % divisor != 0;
        value / divisor
    };
    nanos.saturating_add(inexact.into()).min(MOST)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Reads a string or a number, as in Kubernetes. A text that is not a quantity is refused here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 100m, 1.5, 64Mi or 2e3")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                if text.len() > LONGEST {
                    return Err(E::custom(format_args!(
                        "a quantity has at most {LONGEST} characters, not {}: write 64Mi or 2e3",
                        text.len()
                    )));
                }
                let quantity = Quantity(text.to_owned());
                quantity
                    .parse()
                    .map(|_| quantity)
                    .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, milli: i64, value: i64) {
        let quantity = Quantity(text.into());
        assert_eq!(
            (quantity.milli_value(), quantity.value()),
            (Some(milli), Some(value)),
            "{text}"
        );
    }

    #[test]
    fn every_suffix_has_its_value() {
        check("0", 0, 0);
        check("100m", 100, 1);
        check("1500m", 1500, 2);
        check("1.5", 1500, 2);
        check("-1.5", -1500, -1);
        check("+2", 2000, 2);
        check(".5", 500, 1);
        check("1.", 1000, 1);
        check("1n", 1, 1);
        check("3u", 1, 1);
        check("2k", 2_000_000, 2000);
        check("3M", 3_000_000_000, 3_000_000);
        check("4G", 4_000_000_000_000, 4_000_000_000);
        check("5T", 5_000_000_000_000_000, 5_000_000_000_000);
        check("6P", 6_000_000_000_000_000_000, 6_000_000_000_000_000);
        check("7E", i64::MAX, 7_000_000_000_000_000_000);
        check("1Ki", 1_024_000, 1024);
        check("64Mi", 67_108_864_000, 67_108_864);
        check("2Gi", 2_147_483_648_000, 2_147_483_648);
        check("1Ti", 1_099_511_627_776_000, 1_099_511_627_776);
        check("1Pi", 1_125_899_906_842_624_000, 1_125_899_906_842_624);
        check("1Ei", i64::MAX, 1_152_921_504_606_846_976);
        check("0.5Ki", 512_000, 512);
    }

    #[test]
    fn what_is_longer_than_any_number_is_refused_and_its_length_told() {
        let read = |text: &str| serde_json::from_value::<Quantity>(text.into());
        assert!(read(&"1".repeat(LONGEST)).is_ok());
        let error = read(&"1".repeat(1 << 20)).unwrap_err().to_string();
        assert_eq!(
            error,
            "a quantity has at most 400 characters, not 1048576: write 64Mi or 2e3"
        );
        assert!(Quantity("1".repeat(LONGEST + 1)).parse().is_err());
        for number in [f64::MAX, f64::MIN_POSITIVE, -f64::MIN_POSITIVE] {
            assert!(serde_json::from_value::<Quantity>(number.into()).is_ok());
        }
    }

    #[test]
    fn exponents_of_either_case() {
        check("2e3", 2_000_000, 2000);
        check("2E3", 2_000_000, 2000);
        check("2e+3", 2_000_000, 2000);
        check("25e-1", 2500, 3);
        check("1e-100", 1, 1);
        check("0e999", 0, 0);
    }

    #[test]
    fn what_is_too_big_stays_at_the_most_and_too_small_never_becomes_nothing() {
        check("99999999999999999999", i64::MAX, i64::MAX);
        check("8Ei", i64::MAX, i64::MAX);
        check("-9E99", -i64::MAX, -i64::MAX);
        check("1e2147483647", i64::MAX, i64::MAX);
        check("0.00000000000000000000000000000000000000000000000001", 1, 1);
        check("1.00000000000000000000000000000000000001", 1001, 2);
        check(&"9".repeat(LONGEST), i64::MAX, i64::MAX);
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in [
            "",
            ".",
            "-",
            "m",
            "1K",
            "1ki",
            "1mi",
            "1.2.3",
            "1 ",
            " 1",
            "1MiB",
            "1e",
            "1e1.5",
            "++1",
            "0x10",
            "1e9999999999",
            "ten",
            "1kk",
        ] {
            assert_eq!(Quantity(text.into()).parse(), Err(QuantityError), "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let amount = |text: &str| Quantity(text.into()).parse().unwrap();
        assert!(
            amount("1000m") == amount("1")
                && amount("1Gi") > amount("1G")
                && amount("-1") < amount("0")
        );
    }

    #[test]
    fn numbers_are_quantities_in_json_too() {
        let decode = |json: &str| serde_json::from_str::<Quantity>(json).map(|q| q.0);
        assert_eq!(decode("2").unwrap(), "2");
        assert_eq!(decode("-2").unwrap(), "-2");
        assert_eq!(decode("0.25").unwrap(), "0.25");
        assert_eq!(decode("\"1Gi\"").unwrap(), "1Gi");
        assert!(
            decode("\"1GB\"")
                .unwrap_err()
                .to_string()
                .contains("expected a quantity such as")
        );
        assert!(decode("true").is_err());
    }
}
