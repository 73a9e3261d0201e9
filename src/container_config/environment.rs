//! A container's own variables, and `$(NAME)` in its command (kubelet-probes 3.2.1).

use crate::api::Container;
use crate::api::expansion::expand;

/// The container's own variables, each expanded against those before it. When a name is repeated,
/// the last one counts.
pub(super) fn variables(container: &Container) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::with_capacity(container.env.len());
    for e in &container.env {
        let value = expand(&e.value, |name| find(&all, name));
        match all.iter_mut().find(|v| v.0 == e.name) {
            Some(v) => v.1 = value,
            None => all.push((e.name.clone(), value)),
        }
    }
    all
}

/// Expands the words of a command with the container's own variables; the image's variables are not
/// used.
pub(super) fn expand_words(words: &[String], variables: &[(String, String)]) -> Vec<String> {
    words
        .iter()
        .map(|w| expand(w, |name| find(variables, name)))
        .collect()
}

fn find(all: &[(String, String)], name: &str) -> Option<String> {
    all.iter().find(|v| v.0 == name).map(|v| v.1.clone())
}
