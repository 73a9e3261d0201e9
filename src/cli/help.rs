//! The overview that `help` prints. The help text of each verb is in the verb's own file.

use super::args::Verb;

/// Width of the column for the words to type, in characters. Longer words get a line of their own.
const COLUMN: usize = 25;

/// Returns the overview of these verbs.
pub fn overview(verbs: &[&Verb]) -> String {
    let mut text = String::from(
        "\
podprobe runs the pods in a directory, probes them and restarts them as a kubelet does.

usage: podprobe VERB [ARGUMENT]… [OPTION]…

",
    );
    let rows = verbs.iter().flat_map(|v| v.summary.iter().copied());
    for (words, what) in rows.chain([("help [VERB]", "explain a verb")]) {
        let words = match words.chars().count() < COLUMN {
            true => format!("{words:COLUMN$}"),
            false => format!("{words}\n  {:COLUMN$}", ""),
        };
        text.push_str(&format!("  {words}{what}\n"));
    }
    text.push_str(
        "
Every verb takes --root DIR: every path of the daemon lies below DIR, and clients find it there. Its default is the
environment variable PODPROBE_ROOT, else /. Options may stand before the verb too.
Exit codes: 0 done, 1 not done (stderr says why), 2 wrong command line.
",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::verbs::VERBS;
    use super::*;

    #[test]
    fn every_verb_is_explained_in_lines_that_fit() {
        let overview = overview(&VERBS);
        for verb in VERBS {
            let name = verb.name;
            assert!(overview.contains(&format!("\n  {name}")), "{name}");
            assert!(
                verb.help.starts_with(&format!("usage: podprobe {name}")),
                "{name}"
            );
            assert!(
                verb.help.lines().all(|l| l.chars().count() <= 120),
                "{name}"
            );
            // The overview explains --root, so the help texts of the verbs need not explain it.
            for option in verb.options.iter().filter(|o| o.name != "root") {
                let letter = option.letter.map(|l| format!("-{l}"));
                let explained = |o: &str| verb.help.contains(o);
                assert!(
                    explained(&format!("--{}", option.name))
                        || letter.is_some_and(|l| explained(&l)),
                    "{name} does not explain --{}",
                    option.name
                );
            }
        }
        assert!(overview.lines().all(|l| l.chars().count() <= 120));
    }
}
