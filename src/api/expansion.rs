//! `$(NAME)` references in command words, arguments and variables (kubelet-probes 3.2.1).

use super::pod::EnvVar;

/// Replaces each `$(NAME)` that `lookup` knows. An inserted value is not expanded again. `$$` becomes `$`, so `$$(A)`
/// gives `$(A)`. Everything else stays as it is. NAME ends at the first `)`.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let (put, after) = reference(&rest[dollar..], &lookup);
        out.push_str(&put);
        rest = after;
    }
    out + rest
}

/// Expands the reference at the start of `text`, which begins with `$`. Returns the text in place of the reference,
/// and the text after the reference.
fn reference<'t>(text: &'t str, lookup: &impl Fn(&str) -> Option<String>) -> (String, &'t str) {
    if let Some(after) = text.strip_prefix("$$") {
        return ("$".to_owned(), after);
    }
    match text
        .strip_prefix("$(")
        .and_then(|inner| inner.split_once(')'))
    {
        Some((name, after)) => (lookup(name).unwrap_or_else(|| format!("$({name})")), after),
        None => ("$".to_owned(), &text[1..]),
    }
}

/// Returns the command of an exec probe with its references expanded. The values come from the container's `env`: a
/// later variable replaces an earlier one of the same name, and a variable with `valueFrom` is empty.
pub fn probe_command(command: &[String], env: &[EnvVar]) -> Vec<String> {
    let lookup = |name: &str| {
        env.iter()
            .rev()
            .find(|v| v.name == name)
            .map(|v| v.value.clone())
    };
    command.iter().map(|word| expand(word, lookup)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let env = [("A", "1"), ("A", "2"), ("E", ""), ("R", "$(A)")].map(|(name, value)| EnvVar {
            name: name.into(),
            value: value.into(),
            ..EnvVar::default()
        });
        assert_eq!(probe_command(&[text.to_owned()], &env), [expected]);
    }

    #[test]
    fn a_later_entry_wins_and_values_are_not_scanned_again() {
        check("<$(A)>", "<2>");
        check("$(R)", "$(A)");
        check("[$(E)]", "[]");
        check("$(NONE)$(A)", "$(NONE)2");
        check("ü$(A)ü$", "ü2ü$");
        check("$$$(A)", "$2");
        check("$x$(A", "$x$(A");
        check("$$$", "$$");
    }
}
