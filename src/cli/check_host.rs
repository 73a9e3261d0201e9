//! The verb `check-host`: tells whether this node can run podprobe, what would be missing, and what to do.
//!
//! Invariants: the verb needs no daemon and changes nothing. [`read`] collects the facts about the node, and
//! [`judge`] judges these facts.

mod facts;
mod finding;
mod judge;
mod read;
mod resources;

use std::io::{self, Write};
use std::process::ExitCode;

use self::finding::{Finding, Grade};
use super::args::{self, Opt, ROOT};
use super::error::CliError;
use super::terminal::one_line;
use crate::base::paths::Layout;

/// The verb `check-host`.
pub const VERB: args::Verb = args::Verb {
    name: "check-host",
    summary: &[("check-host", "can this node run podprobe, and what to do if not")],
    help: "\
usage: podprobe check-host [--config FILE] [--root DIR]

Looks at what podprobe needs of a node: rights, kernel, cgroups, overlayfs, network, packet filter, inotify, clock,
disk, memory, configuration. Each is PASS, WARN (some pods do not run, or something is worse) or FAIL (nothing runs),
with what follows and what to do. Needs no daemon and changes nothing; the kernel may load modules, as it would for the
daemon.

  --config FILE            default ROOT/etc/podprobe/config.json, which may be missing

Exit codes: 0 nothing fails, 1 something fails.
",
    options: &[ROOT, Opt::value("config", None)],
    run: |raw, out, _| {
        raw.no_words().map_err(CliError::Usage)?;
        let root = raw.root().map_err(CliError::Usage)?;
        let config = raw.path("config").map_err(CliError::Usage)?;
        let facts = read::facts(&Layout::new(root), config.as_deref());
        let findings = judge::judge(&facts);
        write(&findings, out)?;
        let fails = findings.iter().any(|f| f.grade == Grade::Fail);
        Ok(ExitCode::from(u8::from(fails)))
    },
};

/// Writes a line for each finding. A second line has the consequence and the advice, if any.
fn write(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for finding in findings {
        let found = one_line(&finding.found);
        writeln!(
            out,
            "{}  {:width$}  {found}",
            finding.grade.as_str(),
            finding.name
        )?;
        if !finding.advice.is_empty() {
            writeln!(out, "      {}", one_line(&finding.advice))?;
        }
    }
    let count = |grade| findings.iter().filter(|f| f.grade == grade).count();
    let (pass, warn, fail) = (count(Grade::Pass), count(Grade::Warn), count(Grade::Fail));
    writeln!(out, "{pass} passed, {warn} with a warning, {fail} failed")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_below_what_was_found() {
        let findings = [
            Finding::pass("kernel", "Linux 6.18"),
            Finding::fail("overlayfs", "no\nsuch", "no pod starts; load it"),
        ];
        let mut out = Vec::new();
        write(&findings, &mut out).unwrap();
        let expected = "PASS  kernel     Linux 6.18\n\
                        FAIL  overlayfs  no such\n      no pod starts; load it\n\
                        1 passed, 0 with a warning, 1 failed\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
