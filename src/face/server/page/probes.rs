//! The probes of the status page: the last results of each probe as a line of characters, and the output of the probes
//! that fail.

use std::time::Duration;

use super::html::{cell, left_out, plural, text, time_ago};
use super::{Facts, pod_name, pods};
use crate::base::clock::go_duration;
use crate::face::views::PodView;
use crate::pods::history::{ProbeHistory, Run, RunOutcome};

/// Number of results in a line.
const RUNS: usize = 20;
/// Largest number of probes that are shown.
const MAX_PROBES: usize = 500;
/// Width of the column CONTAINER, in characters of a text browser.
const NAME: usize = 32;
/// The characters for the time that a result took, from the fastest to the slowest. The last character stands for the
/// slowest result of the line.
const LEVELS: [char; 5] = ['▁', '▂', '▃', '▅', '▇'];
/// The character for a result that is no success.
const FAILED: char = '×';

pub(super) fn section(facts: &Facts<'_>) -> String {
    let of_pod = |(pod, history): (_, &'_ crate::pods::history::PodHistory)| {
        let probes = history.probes.clone();
        probes.into_iter().map(move |probe| (pod, probe))
    };
    let all: Vec<(&PodView, ProbeHistory)> = facts
        .pods()
        .flat_map(of_pod)
        .filter(|(_, probe)| !probe.runs.is_empty())
        .collect();
    let pauses: Vec<String> = facts
        .pods()
        .flat_map(|(pod, _)| pods::paused(pod, facts))
        .collect();
    if all.is_empty() && pauses.is_empty() {
        return String::new();
    }
    let shown = &all[..all.len().min(MAX_PROBES)];
    let mut out = String::from("<h2>Probes</h2>\n");
    if !shown.is_empty() {
        out += "<div><table>\n<tr><th>Container</th><th>Probe</th><th>Last results</th><th>Last</th></tr>\n";
        shown
            .iter()
            .for_each(|(pod, probe)| out += &row(pod, probe));
        out += "</table></div>\n";
    }
    let failing = shown
        .iter()
        .filter_map(|(pod, probe)| failing(pod, probe, facts));
    let pauses = pauses
        .iter()
        .take(MAX_PROBES)
        .map(|said| format!("<li class=\"warn\">{}</li>\n", text(said)));
    let said: String = failing.chain(pauses).collect();
    if !said.is_empty() {
        out += &format!("<ul>\n{said}</ul>\n");
    }
    out + &left_out(all.len(), MAX_PROBES, "probe")
}

fn container(pod: &PodView, probe: &ProbeHistory) -> String {
    format!("{}/{}", pod_name(pod), probe.container)
}

fn row(pod: &PodView, probe: &ProbeHistory) -> String {
    let last = probe.runs.back();
    let (class, result) = match last {
        Some(run) if is_good(run) => ("", took(run.micros)),
        Some(run) => ("bad", run.outcome.as_str().to_owned()),
        None => ("", String::new()),
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{result}</td></tr>\n",
        cell(&container(pod, probe), NAME),
        probe.probe_type.word(),
        line(probe)
    )
}

/// Returns the list item with the output of a failing probe; None if the probe is good.
fn failing(pod: &PodView, probe: &ProbeHistory, facts: &Facts<'_>) -> Option<String> {
    let run = probe.runs.back().filter(|run| !is_good(run))?;
    let verb = match run.outcome {
        RunOutcome::Errored => "cannot be run",
        _ => "fails",
    };
    Some(format!(
        "<li>{} {}: the {} probe <span class=\"bad\">{verb}</span>: {}</li>\n",
        time_ago(run.time, facts.now),
        text(&container(pod, probe)),
        probe.probe_type.word(),
        text(&run.output)
    ))
}

fn is_good(run: &Run) -> bool {
    matches!(run.outcome, RunOutcome::Success | RunOutcome::Warning)
}

fn took(micros: u64) -> String {
    // The time is rounded down to two digits.
    let unit = 10_u64.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(1));
    go_duration(Duration::from_micros(micros / unit * unit))
}

/// Draws the last results, the oldest first, with a character for each result. A higher character means a slower
/// result, and a mark means a failure. A text in words says the same for people who do not see the line.
fn line(probe: &ProbeHistory) -> String {
    let skipped = probe.runs.len().saturating_sub(RUNS);
    let runs: Vec<&Run> = probe.runs.iter().skip(skipped).collect();
    let times = || runs.iter().filter(|r| is_good(r)).map(|r| r.micros);
    let (least, most) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let failed = runs.iter().filter(|r| !is_good(r)).count();
    let words = match times().next() {
        None => format!("{}, all failed", plural(runs.len(), "result")),
        Some(_) => format!(
            "{}, {failed} failed, {} to {}",
            plural(runs.len(), "result"),
            took(least),
            took(most)
        ),
    };
    let mut shown = String::new();
    for run in &runs {
        match is_good(run) {
            true => shown.push(level(run.micros, most)),
            false => shown += &format!("<span class=\"bad\">{FAILED}</span>"),
        }
    }
    format!(
        "<span class=\"spark\" role=\"img\" aria-label=\"{words}\" title=\"{words}\">{shown}</span>"
    )
}

fn level(micros: u64, slowest: u64) -> char {
    let top = LEVELS.len() as u64 - 1;
    let place = micros.saturating_mul(top).div_ceil(slowest.max(1));
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    LEVELS[place.min(LEVELS.len() - 1)]
}
