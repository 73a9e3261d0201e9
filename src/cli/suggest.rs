//! The known word that a person has probably meant.

/// The known word that needs the fewest changes, if it is few enough to be meant: a third of the word, at least one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|k| (strsim::osa_distance(word, k), k))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// `, did you mean 'x'?`, or nothing; `prefix` stands before the word, as `--` does before an option's.
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    prefix: &str,
) -> String {
    nearest(word, known)
        .map(|likely| format!(", did you mean '{prefix}{likely}'?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(
            nearest(word, ["get", "describe", "logs"]),
            expected,
            "{word}"
        );
    }

    #[test]
    fn few_changes_are_a_misspelling_and_many_another_word() {
        check("get", Some("get"));
        check("gte", Some("get"));
        check("descrbie", Some("describe"));
        check("lgos", Some("logs"));
        check("ge", Some("get"));
        check("frobnicate", None);
        check("", None);
    }
}
