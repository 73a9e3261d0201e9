//! The verbs `pause` and `resume`: stop probes for a limited time at a user's request, and start them again.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::probe_names::{self, ProbeSelector, select};
use crate::base::clock::go_duration;
use crate::base::clock::parse_go_duration;
use crate::face::server::protocol::PauseTarget;
use crate::pods::prober::pauses::{MAX_PAUSE, MIN_PAUSE};

/// The verb `pause`.
pub const PAUSE: args::Verb = args::Verb {
    name: "pause",
    summary: &[
        ("pause POD --for TIME", "stop running the probes of a pod for a time"),
    ],
    help: "\
usage: podprobe pause POD[/CONTAINER] [startup|readiness|liveness] --for TIME [-n NAMESPACE] [--root DIR]

Stops running the probes for TIME. Their last result and their counts stay as they are. The probes run again when TIME
has passed, or after 'podprobe resume'. A pause survives a restart of the daemon and of the node. It ends when the pod
is removed, or replaced because its file has changed. A container that restarts meanwhile starts like every new one:
not ready, if it has a readiness probe.

  --for TIME               1s to 168h, such as 30m or 1h30m
",
    options: &[ROOT, NAMESPACE, Opt::value("for", None)],
    run: |raw, out, _| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The verb `resume`.
pub const RESUME: args::Verb = args::Verb {
    name: "resume",
    summary: &[("resume POD", "end a pause")],
    help: "\
usage: podprobe resume POD[/CONTAINER] [startup|readiness|liveness] [-n NAMESPACE] [--root DIR]

Ends pauses: each probe runs again at its next period.
",
    options: &[ROOT, NAMESPACE],
    run: |raw, out, _| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `pause` and `resume`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The probes to pause or to resume.
    pub wanted: ProbeSelector,
    /// Length of the pause; None for `resume`.
    pub length: Option<Duration>,
}

fn parse(raw: &Raw) -> Result<Pause, String> {
    let (words, verb) = (raw.text_words()?, raw.verb());
    let (pod, probe_type) = match words.as_slice() {
        [pod] => (pod, None),
        [pod, probe_type] => (pod, Some(probe_type)),
        _ => {
            let length = if verb == PAUSE.name { " --for 30m" } else { "" };
            return Err(format!(
                "'{verb}' needs a pod: podprobe {verb} POD[/CONTAINER] [startup|readiness|liveness]{length}"
            ));
        }
    };
    let length = match (verb == PAUSE.name, raw.text("for")?) {
        (false, _) => None,
        (true, Some(length)) => Some(pause_length(&length)?),
        (true, None) => {
            return Err(
                "'pause' needs a time after which the probes run again, such as --for 30m".into(),
            );
        }
    };
    Ok(Pause {
        root: raw.root()?,
        wanted: probe_names::parse(pod, probe_type, raw.namespace()?)?,
        length,
    })
}

/// Parses the length of a pause: a Go duration in whole seconds, of at most a week.
fn pause_length(text: &str) -> Result<Duration, String> {
    let length = parse_go_duration(text).map_err(|e| format!("cannot use --for: {e}"))?;
    if length < MIN_PAUSE || length > MAX_PAUSE || length.subsec_nanos() != 0 {
        return Err(format!(
            "--for takes 1s to 168h in whole seconds, not '{text}'"
        ));
    }
    Ok(length)
}

/// Pauses or resumes the probes, and prints their names.
///
/// # Errors
/// Returns a [`CliError`] if there is no such probe or no daemon.
pub fn run(args: &Pause, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let (pod, _) = select(&snapshot, &args.wanted).map_err(CliError::Failed)?;
    let uid = pod.object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .into();
    let target = PauseTarget {
        uid,
        container: args.wanted.container.clone(),
        probe_type: args.wanted.probe_type,
    };
    let name = columns::name(pod);
    match args.length {
        Some(length) => {
            for probe in client.pause(target, length)? {
                writeln!(out, "{name}/{probe} paused for {}", go_duration(length))?;
            }
        }
        None => {
            let resumed = client.resume(target)?;
            if resumed.is_empty() {
                writeln!(out, "{name}: nothing was paused")?;
            }
            for probe in resumed {
                writeln!(out, "{name}/{probe} resumed")?;
            }
        }
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ProbeType;
    use crate::cli::args::testing;

    fn parse_line(line: &str) -> Result<Pause, String> {
        let verb = if line.starts_with("resume") {
            &RESUME
        } else {
            &PAUSE
        };
        testing::parse(verb, parse, line)
    }

    #[track_caller]
    fn check(line: &str, expected: Pause) {
        assert_eq!(parse_line(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parse_line(line), Err(expected.into()), "{line}");
    }

    fn wanted(pod: &str, container: Option<&str>, probe_type: Option<ProbeType>) -> ProbeSelector {
        ProbeSelector {
            pod: pod.into(),
            namespace: None,
            container: container.map(Into::into),
            probe_type,
        }
    }

    #[test]
    fn pause_needs_its_end() {
        let pause = |wanted, seconds: Option<u64>| Pause {
            root: "/".into(),
            wanted,
            length: seconds.map(Duration::from_secs),
        };
        check(
            "pause web --for 30m",
            pause(wanted("web", None, None), Some(1800)),
        );
        check(
            "pause web/main liveness --for 1h30m",
            pause(
                wanted("web", Some("main"), Some(ProbeType::Liveness)),
                Some(5400),
            ),
        );
        check("resume web", pause(wanted("web", None, None), None));
        check_error(
            "pause web",
            "'pause' needs a time after which the probes run again, such as --for 30m",
        );
        check_error(
            "pause",
            "'pause' needs a pod: podprobe pause POD[/CONTAINER] [startup|readiness|liveness] --for 30m",
        );
        check_error(
            "resume",
            "'resume' needs a pod: podprobe resume POD[/CONTAINER] [startup|readiness|liveness]",
        );
        check_error(
            "resume web --for 1m",
            "'resume' has no option '--for'; see 'podprobe help resume'",
        );
        for text in ["0", "500ms", "169h", "1500ms"] {
            check_error(
                &format!("pause web --for {text}"),
                &format!("--for takes 1s to 168h in whole seconds, not '{text}'"),
            );
        }
        assert!(
            parse_line("pause web --for soon")
                .unwrap_err()
                .starts_with("cannot use --for: \"soon\" is not a duration")
        );
    }
}
