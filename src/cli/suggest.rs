//! Suggests a known word that the user probably meant, as the end of an error text.

use crate::base::spelling::nearest;

/// Returns `, did you mean 'x'?`, or an empty string if no known word is similar. `prefix` is put before the
/// word, for example `--` for an option.
pub fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    prefix: &str,
) -> String {
    nearest(word, known)
        .map(|likely| format!(", did you mean '{prefix}{likely}'?"))
        .unwrap_or_default()
}
