//! The verb `status`: tells on one screen whether all is well. Otherwise shows the three most important problems,
//! each with its cause and what to do.

mod counts;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use self::counts::{Counts, counts};
use super::args::{self, Opt, ROOT, Raw};
use super::client::{Client, ClientError};
use super::error::CliError;
use super::human;
use super::output::json::write_json;
use crate::base::clock::Time;
use crate::base::paths::Layout;
use crate::face::views::findings::{Facts, Finding, findings};

/// The largest number of problems on the screen.
const SHOWN: usize = 3;
/// The least free space for the daemon's files in bytes: 64 MiB. With less free space, the daemon will soon be
/// unable to write its files.
const LEAST_ROOM: u64 = 64 << 20;

/// The verb `status`.
pub const VERB: args::Verb = args::Verb {
    name: "status",
    summary: &[("status", "say whether all is well, else what is wrong and why")],
    help: "\
usage: podprobe status [-o json] [--root DIR]

Says in one screen whether all is well. If not, the three things that matter most, with the cause and the command that
shows more: a daemon that stands still, a full disk, crash loops, refused files, pods that have failed, cannot start or
are not ready, services that lead nowhere.

  -o, --output json        everything that is wrong, and what was counted

Exit code: 0 all is well, 1 something is wrong, 2 the daemon cannot be asked.
",
    options: &[ROOT, Opt::value("output", Some('o'))],
    run: |raw, out, _| {
        let status = parse(raw).map_err(CliError::Usage)?;
        run(&status, out).map_err(CliError::cannot_run)
    },
};

/// The arguments of `status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// True if the state is printed as JSON.
    pub json: bool,
}

fn parse(raw: &Raw) -> Result<Status, String> {
    raw.no_words()?;
    let json = match raw.text("output")?.as_deref() {
        None => false,
        Some("json") => true,
        Some(other) => return Err(format!("unknown output form '{other}'; -o takes json")),
    };
    Ok(Status {
        root: raw.root()?,
        json,
    })
}

/// Prints the state of the daemon and the node on `out`.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked.
pub fn run(status: &Status, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let mut client = Client::connect(&status.root)?;
    let snapshot = client.snapshot()?;
    let services = client.services()?;
    let workloads = client.workloads(None)?.items;
    let histories = snapshot.pods.iter().map(|pod| {
        let history = client.history(pod.uid().into())?;
        Ok((pod.uid(), history))
    });
    let histories: HashMap<&str, _> = histories.collect::<Result<_, ClientError>>()?;
    let facts = Facts {
        snapshot: &snapshot,
        services: &services,
        workloads: &workloads,
        histories: histories.iter().map(|(uid, h)| (*uid, h)).collect(),
        disk: full_disk(&Layout::new(&status.root).lib_dir()),
        now: Time::now(),
    };
    let (wrong, counts) = (findings(&facts), counts(&facts));
    match status.json {
        true => {
            let node = &snapshot.node_name;
            write_json(
                &json!({"well": wrong.is_empty(), "node": node, "counts": counts, "findings": wrong}),
                out,
            )?;
        }
        false => out.write_all(text(&wrong, &counts).as_bytes())?,
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(!wrong.is_empty())))
}

/// Returns a sentence if the disk of this directory has too little free space. The daemon is reached by a unix
/// socket, so it runs on this machine and uses this disk.
// These numbers have 32 bits on some machines.
#[allow(clippy::useless_conversion)]
fn full_disk(dir: &Path) -> Option<String> {
    let disk = nix::sys::statvfs::statvfs(dir).ok()?;
    let free = u64::from(disk.blocks_available()).saturating_mul(u64::from(disk.fragment_size()));
    (free < LEAST_ROOM).then(|| format!("{} has {} left", dir.display(), human::size(free)))
}

/// Returns the text of the screen.
fn text(wrong: &[Finding], counts: &Counts) -> String {
    if wrong.is_empty() {
        return format!("all is well: {}\n", counted(counts));
    }
    let what = match wrong.len() {
        1 => "1 thing is wrong".to_owned(),
        n => format!("{n} things are wrong"),
    };
    let mut text = format!("{what}: {}\n", counted(counts));
    for finding in wrong.iter().take(SHOWN) {
        text.push_str(&format!("\n{}: {}\n", finding.subject, finding.message));
        if !finding.way_out.is_empty() {
            text.push_str(&format!("    {}\n", finding.way_out));
        }
    }
    if wrong.len() > SHOWN {
        text.push_str(&format!(
            "\nand {} more: podprobe status -o json, podprobe describe pod\n",
            wrong.len() - SHOWN
        ));
    }
    text
}

/// Returns the counts as text, such as `3 pods ready, 4 probes passing, 1 service served`. Leaves out counts of
/// zero, except the count of pods.
fn counted(c: &Counts) -> String {
    let of = |some: usize, all: usize| {
        if some == all {
            all.to_string()
        } else {
            format!("{some} of {all}")
        }
    };
    let s = |n: usize| if n == 1 { "" } else { "s" };
    let parts = [
        (
            true,
            format!("{} pod{} ready", of(c.pods_ready, c.pods), s(c.pods)),
        ),
        (
            c.pods_completed > 0,
            format!("{} completed", c.pods_completed),
        ),
        (
            c.probes > 0,
            format!(
                "{} probe{} passing",
                of(c.probes_passing, c.probes),
                s(c.probes)
            ),
        ),
        (c.probes_paused > 0, format!("{} paused", c.probes_paused)),
        (
            c.services > 0,
            format!(
                "{} service{} served",
                of(c.services_served, c.services),
                s(c.services)
            ),
        ),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(is_shown, _)| *is_shown)
        .map(|(_, text)| text)
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;
    use crate::face::views::findings::Severity;

    #[test]
    fn status_takes_one_form() {
        let parse = |line: &str| testing::parse(&VERB, parse, line).map(|s| s.json);
        assert_eq!(
            (parse("status"), parse("status -o json")),
            (Ok(false), Ok(true))
        );
        assert_eq!(
            parse("status -o yaml"),
            Err("unknown output form 'yaml'; -o takes json".into())
        );
        assert_eq!(
            parse("status web"),
            Err("'status' takes no argument 'web'; see 'podprobe help status'".into())
        );
    }

    #[test]
    fn a_disk_that_nobody_can_ask_is_not_full() {
        assert_eq!(full_disk(Path::new("/nonexistent/x")), None);
        // The file system of /proc has no space at all.
        let proc = full_disk(Path::new("/proc")).unwrap();
        assert_eq!(proc, "/proc has 0B left");
    }

    fn wrong(n: usize) -> Vec<Finding> {
        let finding = |n: usize| Finding {
            severity: Severity::NotReady,
            subject: format!("pod/{n}"),
            message: "not ready".into(),
            way_out: if n == 1 { String::new() } else { "look".into() },
        };
        (0..n).map(finding).collect()
    }

    #[track_caller]
    fn check(findings: usize, counts: Counts, expected: &str) {
        assert_eq!(text(&wrong(findings), &counts), expected);
    }

    #[test]
    fn the_screen_has_one_line_or_the_three_that_matter() {
        let some = Counts {
            pods: 3,
            pods_ready: 3,
            pods_completed: 1,
            probes: 1,
            probes_passing: 1,
            probes_paused: 1,
            services: 2,
            services_served: 1,
        };
        check(0, Counts::default(), "all is well: 0 pods ready\n");
        let counted =
            "3 pods ready, 1 completed, 1 probe passing, 1 paused, 1 of 2 services served\n";
        check(0, some, &format!("all is well: {counted}"));
        check(
            1,
            some,
            &format!("1 thing is wrong: {counted}\npod/0: not ready\n    look\n"),
        );
        let three =
            "\npod/0: not ready\n    look\n\npod/1: not ready\n\npod/2: not ready\n    look\n";
        check(3, some, &format!("3 things are wrong: {counted}{three}"));
        let more = "\nand 2 more: podprobe status -o json, podprobe describe pod\n";
        check(
            5,
            some,
            &format!("5 things are wrong: {counted}{three}{more}"),
        );
    }
}
