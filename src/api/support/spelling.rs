//! The likely intended one among known names.

/// The known name `word` most likely stands for: the same but for case, `-` and `_`, or a few slips of a finger away
/// (one for each four letters, at most three).
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = simplified(word);
    let most = (plain.len() / 4).clamp(1, 3);
    known
        .into_iter()
        .filter(|name| {
            name.len() > 1 && plain.len() > 1 && name.len().abs_diff(plain.len()) <= most + 2
        })
        .map(|name| (distance(&plain, &simplified(name)), name))
        .filter(|(slips, _)| *slips <= most)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

fn simplified(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| !"-_ ".contains(*c))
        .flat_map(char::to_lowercase)
        .take(64)
        .collect()
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut best = (last[j] + usize::from(a[i] != b[j]))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
    fn other_words_are_not() {
        for word in [
            "note", "impose", "x", "", "hostname", "comment", "ü", "live",
        ] {
            check(word, None);
        }
    }
}
