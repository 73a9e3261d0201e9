//! Finds the names of pods in the words after `get` and `describe`.
//!
//! Invariants: pure. The error for a word that is no kind names the likely kind, or the command
//! that shows the pod of this name.

use super::args::Raw;
use super::get::kind::Kind;
use super::suggest::did_you_mean;

/// Names of pods after `pods` or `pod`, or each as `pod/NAME`. `kinds` are the words that may stand after this verb;
/// the first of them is the one to recommend.
pub fn pod_names(raw: &Raw, kinds: &[&'static str]) -> Result<Vec<String>, String> {
    let words = raw.text_words()?;
    let (verb, kind) = (raw.verb(), kinds[0]);
    match words.split_first() {
        None => Err(format!(
            "'{verb}' needs what to show: podprobe {verb} {kind}"
        )),
        Some((first, names)) if is_pod_word(first) => {
            names.iter().map(|word| pod_name(word)).collect()
        }
        Some((first, _)) if !first.contains('/') => {
            let likely = did_you_mean(first, kinds.iter().copied(), "");
            Err(match likely.is_empty() {
                false => format!("unknown kind '{first}'{likely}"),
                true => format!(
                    "'{first}' is not a kind that podprobe knows; for the pod of that name write 'podprobe {verb} {kind} {first}'"
                ),
            })
        }
        Some(_) => words.iter().map(|word| pod_name(word)).collect(),
    }
}

/// `pod`, `pods` and `po`.
pub fn is_pod_word(word: &str) -> bool {
    matches!(word, "pod" | "pods" | "po")
}

/// The word of another kind that `get` lists.
pub fn is_other_word(word: &str) -> bool {
    Kind::of(word).is_some_and(|kind| kind != Kind::Pods)
}

/// `NAME` or `pod/NAME`.
pub fn pod_name(word: &str) -> Result<String, String> {
    match word.split_once('/') {
        None => Ok(word.into()),
        Some((kind, name)) if is_pod_word(kind) && !name.is_empty() => Ok(name.into()),
        Some((kind, name)) => Err(format!(
            "podprobe knows pods only, not '{kind}'; write 'pod/{name}'"
        )),
    }
}
