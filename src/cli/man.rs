//! The verb `man`: prints the manual page, which is made from the help texts.
//!
//! Invariants: pure except for the writer. No line of text can be mistaken for a roff request.

use std::process::ExitCode;

use super::args::{self, ROOT, Verb};
use super::error::CliError;

/// The verb `man`.
pub const VERB: Verb = args::Verb {
    name: "man",
    summary: &[("man", "print the manual page")],
    help: "\
usage: podprobe man

Prints the manual page: podprobe man | man -l -, or into /usr/local/share/man/man8/podprobe.8.
",
    options: &[ROOT],
    run: |raw, out, _| {
        raw.no_words().map_err(CliError::Usage)?;
        out.write_all(page(raw.verbs()).as_bytes())?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    },
};

/// Returns the manual page of these verbs.
pub fn page(verbs: &[&Verb]) -> String {
    let mut page = format!(
        ".TH PODPROBE 8 \"\" \"podprobe {}\" \"System Administration\"\n",
        env!("CARGO_PKG_VERSION")
    );
    page.push_str(
        ".SH NAME\npodprobe \\- runs the pods in a directory, probes them and restarts them as a kubelet does\n\
         .SH SYNOPSIS\n.B podprobe\nVERB [ARGUMENT]... [OPTION]...\n.SH VERBS\n",
    );
    for verb in verbs {
        page.push_str(&format!(".SS {}\n", escape(verb.name)));
        section(verb.help, &mut page);
    }
    page.push_str(".SH ENVIRONMENT\n");
    for (name, meaning) in ENVIRONMENT {
        page.push_str(&format!(".TP\n.B {name}\n{}\n", escape(meaning)));
    }
    page.push_str(
        ".SH EXIT STATUS\n0 done, 1 not done (stderr says why), 2 wrong command line. The verbs probe and status have their own.\n.SH FILES\nEvery path lies below the root.\n",
    );
    for (path, meaning) in FILES {
        page.push_str(&format!(".TP\n.I {}\n{}\n", escape(path), escape(meaning)));
    }
    page
}

const ENVIRONMENT: [(&str, &str); 3] = [
    (
        "PODPROBE_ROOT",
        "the root, where --root is not given; 'try' does not take it from here",
    ),
    (
        "PODPROBE_LOG",
        "the level of the log: error, warn, info, debug, trace or off, with other levels for single subjects: warn,probes=debug",
    ),
    (
        "NO_COLOR",
        "no colours on a terminal, if it is set and not empty",
    ),
];

const FILES: [(&str, &str); 4] = [
    (
        "/etc/podprobe/config.json",
        "the configuration, which may be missing",
    ),
    ("/etc/podprobe/pods", "files of pods and objects"),
    (
        "/var/lib/podprobe",
        "images, volumes and what outlives a boot",
    ),
    ("/var/log/pods", "logs of containers"),
];

/// The indentation, in characters, of a line that continues the previous row of a help text. A line with a deeper
/// indentation continues the previous row, too.
const CONTINUED: usize = 20;

/// Appends a help text: the usage, paragraphs, and rows of words with their meaning.
fn section(help: &str, page: &mut String) {
    let (usage, rest) = help.split_once("\n\n").unwrap_or((help, ""));
    let usage = usage.replacen("usage: ", "", 1).replace("\n       ", "\n");
    page.push_str(&format!(".nf\n{}\n.fi\n", escape(usage.trim_end())));
    let mut is_new = true;
    for line in rest.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        match (indent, text.split_once("  ")) {
            (_, None) if text.is_empty() => {}
            (0, _) if is_new => page.push_str(&format!(".PP\n{}\n", escape(text))),
            (0 | CONTINUED.., _) => page.push_str(&format!("{}\n", escape(text))),
            (_, Some((words, meaning))) => {
                let (words, meaning) = (escape(words), escape(meaning.trim_start()));
                page.push_str(&format!(".TP\n{words}\n{meaning}\n"));
            }
            (_, None) => page.push_str(&format!(".TP\n{}\n", escape(text))),
        }
        is_new = indent > 0 || text.is_empty();
    }
}

/// Escapes text for roff. No line of the result begins a request, and roff prints every character unchanged.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut at_line_start = true;
    for c in text.chars() {
        if at_line_start && matches!(c, '.' | '\'') {
            out.push_str("\\&");
        }
        at_line_start = c == '\n';
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            '`' => out.push_str("\\(ga"),
            c if c.is_ascii() => out.push(c),
            c => out.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_a_request() {
        assert_eq!(escape(".TH\n'x\n-\\"), "\\&.TH\n\\&\\(aqx\n\\-\\e");
        assert_eq!(escape("a.b … ^C"), "a.b \\[u2026] \\(haC");
    }

    #[test]
    fn a_help_text_has_usage_paragraphs_and_rows() {
        let help = "usage: podprobe x [-f]\n       podprobe x y\n\nDoes it\nwell.\n\n  -f, --follow   goes\n                         on\n  -x\n                         long\n\nThe end.\n";
        let mut page = String::new();
        section(help, &mut page);
        let expected = ".nf\npodprobe x [\\-f]\npodprobe x y\n.fi\n.PP\nDoes it\nwell.\n.TP\n\\-f, \\-\\-follow\ngoes\non\n.TP\n\\-x\nlong\n.PP\nThe end.\n";
        assert_eq!(page, expected);
    }
}
