//! Reads texts such as `0-2,5`, which name indexes of a Job, as validation does (pkg/apis/batch/validation:
//! validateIndexesFormat).

/// The reasons for which a text does not name indexes, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IndexesError {
    #[error(
        "the fragment {0:?} violates the requirement that an index interval can have at most two parts separated by '-'"
    )]
    Interval(String),
    #[error("cannot convert string to integer for index: {0:?}")]
    Number(String),
    #[error("too large index: {0:?}")]
    TooLarge(String),
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order {
        /// Index before.
        previous: i64,
        /// Index that is not greater.
        current: i64,
    },
}

/// Returns the number of indexes that the text names, all below `completions`.
pub(super) fn count(text: &str, completions: i32) -> Result<i32, IndexesError> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut previous) = (0_i64, None);
    for part in text.split(',') {
        let (first, last) = interval(part, completions)?;
        if let Some(previous) = previous {
            increasing(previous, first)?;
        }
        total = total
            .saturating_add(last.saturating_sub(first))
            .saturating_add(1);
        previous = Some(last);
    }
    Ok(i32::try_from(total).unwrap_or(i32::MAX))
}

fn interval(part: &str, completions: i32) -> Result<(i64, i64), IndexesError> {
    let limits: Vec<&str> = part.split('-').collect();
    match limits[..] {
        [only] => {
            let only = index(only, completions)?;
            Ok((only, only))
        }
        [first, last] => {
            let (first, last) = (index(first, completions)?, index(last, completions)?);
            increasing(first, last)?;
            Ok((first, last))
        }
        _ => Err(IndexesError::Interval(part.to_owned())),
    }
}

fn index(text: &str, completions: i32) -> Result<i64, IndexesError> {
    let number: i64 = text
        .parse()
        .map_err(|_| IndexesError::Number(text.to_owned()))?;
    match number >= i64::from(completions) {
        true => Err(IndexesError::TooLarge(text.to_owned())),
        false => Ok(number),
    }
}

fn increasing(previous: i64, current: i64) -> Result<(), IndexesError> {
    match previous < current {
        true => Ok(()),
        false => Err(IndexesError::Order { previous, current }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<i32, &str>) {
        let found = count(text, 5).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn indexes_are_counted_and_must_grow() {
        check("", Ok(0));
        check("0,2-4", Ok(4));
        check("+1", Ok(1));
        check("5", Err("too large index: \"5\""));
        check("3-1", Err("non-increasing order, previous: 3, current: 1"));
        check(
            "0,,1",
            Err("cannot convert string to integer for index: \"\""),
        );
        check(
            "-1",
            Err("cannot convert string to integer for index: \"\""),
        );
    }
}
