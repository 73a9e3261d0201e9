//! The verb `probe`: makes the daemon run a probe now, and shows each step.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::probe_names::{self, ProbeSelector, select, spelled};
use super::probe_text::probe_text;
use super::terminal::one_line;
use crate::api::validation::probe_field;
use crate::api::{Probe, ProbeType};
use crate::base::clock::go_duration;
use crate::base::json;
use crate::face::server::protocol::ProbeTarget;
use crate::face::views::PodView;
use crate::face::views::ProbeReport;
use crate::pods::history::RunOutcome;
use crate::pods::prober::prober::MAX_TRIES;

/// The verb `probe`.
pub const VERB: args::Verb = args::Verb {
    name: "probe",
    summary: &[
        ("probe POD TYPE", "run a probe now and show what it does"),
    ],
    help: "\
usage: podprobe probe POD[/CONTAINER] startup|readiness|liveness [-n NAMESPACE] [--root DIR]

Runs the probe now, as the daemon would, and shows each step with its time. The result is only shown: it does not count
for the thresholds, no event is written, and a paused probe stays paused. CONTAINER is needed when several containers
have that probe.

Exit codes: 0 success (or a warning), 1 failure, 2 it could not be run.
",
    options: &[ROOT, NAMESPACE],
    run: |raw, out, _| run(&parse(raw).map_err(CliError::Usage)?, out),
};

/// The arguments of `probe`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeNow {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The probe to run. The type is always given.
    pub wanted: ProbeSelector,
}

fn parse(raw: &Raw) -> Result<ProbeNow, String> {
    let words = raw.text_words()?;
    let [pod, probe_type] = words.as_slice() else {
        return Err(
            "'probe' needs a pod and a type: podprobe probe POD[/CONTAINER] startup|readiness|liveness"
                .into(),
        );
    };
    Ok(ProbeNow {
        root: raw.root()?,
        wanted: probe_names::parse(pod, Some(probe_type), raw.namespace()?)?,
    })
}

/// Runs the probe, and returns exit code 0 for success and 1 for failure.
///
/// # Errors
/// Returns a [`CliError`] with exit code 2 if the probe cannot run, or if its run ends in an error.
pub fn run(args: &ProbeNow, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let report = ask(args, out).map_err(CliError::cannot_run)?;
    out.write_all(text(&report).as_bytes())?;
    out.flush()?;
    match report.outcome {
        RunOutcome::Success | RunOutcome::Warning => Ok(ExitCode::SUCCESS),
        RunOutcome::Failure => Ok(ExitCode::from(1)),
        RunOutcome::Errored => Err(CliError::CannotRun(String::new())),
    }
}

fn ask(args: &ProbeNow, out: &mut dyn Write) -> Result<ProbeReport, CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let (pod, probes) = select(&snapshot, &args.wanted).map_err(CliError::Failed)?;
    let (container, probe_type) = match probes.as_slice() {
        [one] => one,
        several => {
            let names: Vec<String> = several.iter().map(spelled).collect();
            return Err(CliError::Failed(format!(
                "the pod has {}; write POD/CONTAINER to choose one",
                names.join(", ")
            )));
        }
    };
    let spec = spec(pod, container, *probe_type);
    if let Some(spec) = &spec {
        writeln!(
            out,
            "{} probe of {container}: {}",
            probe_type.as_str(),
            probe_text(spec)
        )?;
        out.flush()?;
    }
    let limit = spec.map_or(Duration::from_secs(3600), |s| {
        s.timeout().saturating_mul(MAX_TRIES)
    });
    let uid = pod.object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .into();
    Ok(client.probe(
        ProbeTarget {
            uid,
            container: container.clone(),
            probe_type: *probe_type,
        },
        limit,
    )?)
}

fn spec(pod: &PodView, container: &str, probe_type: ProbeType) -> Option<Probe> {
    let spec = &pod.object["spec"];
    let all = ["initContainers", "containers"]
        .into_iter()
        .filter_map(|key| spec[key].as_array())
        .flatten();
    let object = all.into_iter().find(|c| c["name"] == container)?;
    json::from_value(&object[probe_field(probe_type)]).ok()
}

/// Returns a report as text. Each step is a line with the time since the beginning. The result and the
/// probe's output follow.
fn text(report: &ProbeReport) -> String {
    let line = |micros: u64, text: &str| {
        format!("{:>9.3} ms  {}\n", micros as f64 / 1000.0, one_line(text))
    };
    let mut lines: String = report
        .steps
        .iter()
        .map(|s| line(s.micros, &s.text))
        .collect();
    let took = go_duration(Duration::from_micros(report.micros));
    let phase = match report.outcome {
        RunOutcome::Success | RunOutcome::Warning => String::new(),
        RunOutcome::Failure | RunOutcome::Errored => format!(" at {}", report.phase),
    };
    lines.push_str(&format!(
        "{}{phase} after {took}\n",
        report.outcome.as_str()
    ));
    for said in report.output.trim_end().lines() {
        lines.push_str(&format!("  {}\n", one_line(said)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;
    use crate::pods::prober::trace::Step;

    #[test]
    fn steps_have_their_times_and_the_result_its_words() {
        let step = |micros, text: &str| Step {
            micros,
            text: text.into(),
        };
        let report = ProbeReport {
            steps: vec![step(12, "target 10.0.0.7"), step(1_234_567, "status 500\n")],
            outcome: RunOutcome::Failure,
            phase: "read".into(),
            output: "HTTP probe failed\n\u{1b}[2Jmore\n".into(),
            micros: 1_500_000,
        };
        let expected = "    0.012 ms  target 10.0.0.7\n 1234.567 ms  status 500 \nfailure at read after 1.5s\n  HTTP probe failed\n  ^[[2Jmore\n";
        assert_eq!(text(&report), expected);
        let good = ProbeReport {
            outcome: RunOutcome::Success,
            output: String::new(),
            steps: vec![],
            ..report
        };
        assert_eq!(text(&good), "success after 1.5s\n");
    }

    #[track_caller]
    fn check(line: &str, expected: ProbeNow) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
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
    fn probe_takes_a_pod_and_a_type() {
        let probe = |wanted| ProbeNow {
            root: "/".into(),
            wanted,
        };
        check(
            "probe web liveness",
            probe(wanted("web", None, Some(ProbeType::Liveness))),
        );
        check(
            "probe web/main Startup",
            probe(wanted("web", Some("main"), Some(ProbeType::Startup))),
        );
        check(
            "probe pod/web/main readiness",
            probe(wanted("web", Some("main"), Some(ProbeType::Readiness))),
        );
        let usage = "'probe' needs a pod and a type: podprobe probe POD[/CONTAINER] startup|readiness|liveness";
        check_error("probe web", usage);
        check_error("probe", usage);
        check_error("probe web/ liveness", "'web/' is not POD or POD/CONTAINER");
        check_error(
            "probe web rediness",
            "unknown probe type 'rediness', did you mean 'readiness'?; there are startup, readiness and liveness",
        );
    }
}
