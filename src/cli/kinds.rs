//! Parses the names of pods after verbs such as `describe`.
//!
//! Invariants: pure. The error for a word that is no kind names the most similar kind, or the command that
//! shows the pod with this name.

use super::args::Raw;
use super::get::kind::Kind;
use super::suggest::did_you_mean;

/// Parses names of pods, written `pods NAME…`, `pod NAME…`, or `pod/NAME…`. `kinds` are the kinds that the verb
/// accepts. Errors recommend the first of these kinds.
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

/// Tells whether the word is `pod`, `pods` or `po`.
pub fn is_pod_word(word: &str) -> bool {
    matches!(word, "pod" | "pods" | "po")
}

/// Tells whether the word is a kind of `get` other than pods.
pub fn is_other_word(word: &str) -> bool {
    Kind::of(word).is_some_and(|kind| kind != Kind::Pods)
}

/// Parses the name of a pod, `NAME` or `pod/NAME`.
pub fn pod_name(word: &str) -> Result<String, String> {
    match word.split_once('/') {
        None => Ok(word.into()),
        Some((kind, name)) if is_pod_word(kind) && !name.is_empty() => Ok(name.into()),
        Some((kind, name)) => Err(format!(
            "podprobe knows pods only, not '{kind}'; write 'pod/{name}'"
        )),
    }
}
