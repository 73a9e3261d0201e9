//! The known word that a person has probably meant, as the end of an error.

use crate::base::spelling::nearest;

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
