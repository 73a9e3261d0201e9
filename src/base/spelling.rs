//! Finds the known name that a misspelt name likely means. Used for fields, keys, verbs, pods and images.

/// Returns the known name that `word` most likely means: a name that differs only in case, `-` and `_`, or in a few typing
/// errors. Allowed is one error for each four letters, but at least one and at most three.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = simplified(word);
    let length = plain.chars().count();
    let most = (length / 4).clamp(1, 3);
    known
        .into_iter()
        .filter(|name| name.len() > 1 && length > 1 && name.len().abs_diff(length) <= most + 2)
        .map(|name| (distance(&plain, &simplified(name)), name))
        .filter(|(slips, _)| *slips <= most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

fn simplified(word: &str) -> String {
    word.chars()
        .filter(|c| !"-_ ".contains(*c))
        .flat_map(char::to_lowercase)
        .take(64)
        .collect()
}

/// Returns the number of edits that turn `a` into `b` (optimal string alignment). An edit is an insertion, a deletion, a
/// replacement or a swap of neighbours.
pub fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 8] = [
        "name",
        "image",
        "livenessProbe",
        "readinessProbe",
        "ports",
        "env",
        "envFrom",
        "args",
    ];

    #[track_caller]
    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, KNOWN), expected, "{word}");
    }

    #[test]
    fn slips_and_other_case_are_understood() {
        check("livenessProb", Some("livenessProbe"));
        check("livenessprobe", Some("livenessProbe"));
        check("liveness_probe", Some("livenessProbe"));
        check("livnessPorbe", Some("livenessProbe"));
        check("imge", Some("image"));
        check("port", Some("ports"));
        check("agrs", Some("args"));
        check("envform", Some("envFrom"));
    }

    #[test]
    fn distance_counts_edits_and_swaps() {
        assert_eq!(distance("web-edge", "web-edge"), 0);
        assert_eq!(distance("wbe", "web"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
    }

    #[test]
    fn other_words_are_not() {
        for word in [
            "note", "impose", "x", "", "hostname", "comment", "ü", "live",
        ] {
            check(word, None);
        }
    }
}
