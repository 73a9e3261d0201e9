//! The history of probes and restarts in the output of `describe pod`, and the paused probes.

use super::lines::put;
use crate::base::clock::{Time, go_duration};
use crate::cli::human;
use crate::cli::terminal::one_line;
use crate::pods::history::{PodHistory, ProbeHistory, Run};
use crate::pods::prober::pauses::PausedProbe;

/// The greatest length of a probe's output in a row, in characters. The cause of a restart is shown in full.
const MAX_TEXT: usize = 100;

/// Writes the sections of the history. Leaves out sections that would be empty.
pub(super) fn all(w: &mut String, history: &PodHistory, paused: &[PausedProbe], now: Time) {
    if !paused.is_empty() {
        put!(
            w,
            "Paused Probes:\n  Container\tProbe\tGoes On\n  ---------\t-----\t-------"
        );
    }
    for p in paused {
        put!(
            w,
            "  {}\t{}\tin {} ({})",
            p.container,
            p.probe_type.word(),
            human::since(Some(now), p.until),
            human::date(p.until)
        );
    }
    probes(w, &history.probes, now);
    if !history.restarts.is_empty() {
        put!(
            w,
            "Restarts:\n  Age\tContainer\tAttempt\tCause\n  ---\t---------\t-------\t-----"
        );
    }
    for r in &history.restarts {
        put!(
            w,
            "  {}\t{}\t{}\t{}",
            human::since(Some(r.time), now),
            r.container,
            r.attempt,
            one_line(r.cause.trim())
        );
    }
}

fn probes(w: &mut String, probes: &[ProbeHistory], now: Time) {
    if probes.iter().all(|p| p.runs.is_empty()) {
        return;
    }
    put!(
        w,
        "Probe History:\n  Container\tProbe\tAge\tTook\tResult\tText\n  ---------\t-----\t---\t----\t------\t----"
    );
    for probe in probes {
        for same in runs_of_equals(probe) {
            let (first, last) = (same[0], same[same.len() - 1]);
            let count = u32::try_from(same.len()).unwrap_or(u32::MAX);
            let age = human::last_seen(count, first.time, last.time, now);
            let phase = last
                .phase
                .map_or_else(String::new, |phase| format!(" at {phase}"));
            let text = head(&last.output);
            let result = last.outcome.as_str();
            put!(
                w,
                "  {}\t{}\t{age}\t{}\t{result}{phase}\t{text}",
                probe.container,
                probe.probe_type.word(),
                took(&same)
            );
        }
    }
}

/// Groups consecutive runs with equal results. Each group becomes one row.
fn runs_of_equals(probe: &ProbeHistory) -> Vec<Vec<&Run>> {
    let mut rows: Vec<Vec<&Run>> = Vec::new();
    let says = |r: &Run| (r.outcome, r.phase, r.output.clone());
    for run in &probe.runs {
        match rows.last_mut().filter(|row| says(row[0]) == says(run)) {
            Some(row) => row.push(run),
            None => rows.push(vec![run]),
        }
    }
    rows
}

/// Returns the durations of runs as text: `3ms` if all are equal, or the shortest and the longest duration, such
/// as `2ms-9ms`.
fn took(runs: &[&Run]) -> String {
    let times = || runs.iter().map(|r| r.micros);
    let text = |micros: u64| go_duration(std::time::Duration::from_micros(rounded(micros)));
    let (least, most) = (
        text(times().min().unwrap_or(0)),
        text(times().max().unwrap_or(0)),
    );
    if least == most {
        least
    } else {
        format!("{least}-{most}")
    }
}

/// Rounds a number of microseconds down to two significant digits.
pub(in crate::cli) fn rounded(micros: u64) -> u64 {
    let unit = 10_u64.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(1));
    micros / unit * unit
}

/// Returns the text on one line. Cuts the text after [`MAX_TEXT`] characters.
fn head(text: &str) -> String {
    let text = one_line(text.trim());
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tabwriter;

    #[test]
    fn the_cause_of_a_restart_is_shown_whole_and_in_one_line() {
        let cause = format!("failed liveness probe: {}\n\u{1b}[2J", "long ".repeat(40));
        let history: PodHistory = serde_json::from_value(json!({"probes": [],
            "restarts": [{"time": "2026-01-01T00:00:40Z", "container": "web", "attempt": 1, "cause": cause}]}))
        .unwrap();
        let now: Time = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let mut w = String::new();
        all(&mut w, &history, &[], now);
        let shown = format!("\t{} ^[[2J\n", cause.lines().next().unwrap());
        assert!(w.ends_with(&shown), "{w}");
    }

    #[test]
    fn equal_runs_share_a_row_and_sections_without_content_are_left_out() {
        let at = |s: u32| format!("2026-01-01T00:00:{s:02}Z");
        let run = |s, micros, outcome: &str, phase: Option<&str>, output: &str| json!({"time": at(s), "micros": micros, "outcome": outcome, "phase": phase, "output": output});
        let history: PodHistory = serde_json::from_value(json!({
            "probes": [{"container": "web", "probeType": "Liveness", "runs": [
                run(1, 2049, "success", None, "ok"), run(11, 9870, "success", None, "ok"),
                run(21, 1_000_000, "failure", Some("read"), "HTTP probe failed\nwith statuscode: 500"), run(31, 5, "errored", Some("prepare"), "no port \"x\"")]}],
            "restarts": [{"time": at(40), "container": "web", "attempt": 1, "cause": "failed liveness probe (exit code 137)"}]}))
        .unwrap();
        let now: Time = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let paused: Vec<PausedProbe> =
            serde_json::from_value(json!([{"container": "web", "probeType": "Readiness", "until": "2026-01-01T00:31:00Z"}])).unwrap();
        let mut w = String::new();
        all(&mut w, &history, &paused, now);
        let expected = "Paused Probes:\n  Container  Probe      Goes On\n  ---------  -----      -------\n  web        readiness  in 30m (Thu, 01 Jan 2026 00:31:00 +0000)\n\
            Probe History:\n  Container  Probe     Age                Took       Result              Text\n  ---------  -----     ---                ----       ------              ----\n\
            \x20 web        liveness  49s (x2 over 59s)  2ms-9.8ms  success             ok\n\
            \x20 web        liveness  39s                1s         failure at read     HTTP probe failed with statuscode: 500\n\
            \x20 web        liveness  29s                5µs        errored at prepare  no port \"x\"\n\
            Restarts:\n  Age  Container  Attempt  Cause\n  ---  ---------  -------  -----\n  20s  web        1        failed liveness probe (exit code 137)\n";
        assert_eq!(tabwriter::align(&w, 0, 2), expected);
        let mut nothing = String::new();
        all(&mut nothing, &PodHistory::default(), &[], now);
        assert_eq!(nothing, "");
    }
}
