//! The pods of the status page: a row for each pod, and the cause of each pod's last restart.

use super::html::{cell, left_out, text, time_ago};
use super::{Facts, MAX_PODS, pod_name};
use crate::face::views::columns::{Row, is_at_work};
use crate::face::views::{PodView, human};
use crate::pods::history::PodHistory;

/// Widths of the columns NAME, STATUS and RESTARTS, in characters of a text browser.
const WIDTHS: [usize; 3] = [32, 20, 14];

pub(super) fn section(facts: &Facts<'_>) -> String {
    let mut out = String::from("<h2>Pods</h2>\n");
    let all = facts.snapshot.pods.len();
    if all == 0 {
        return out + "<p class=\"soft\">none</p>\n";
    }
    out += "<div><table>\n<tr><th>Name</th><th>Ready</th><th>Status</th><th>Restarts</th><th>Age</th></tr>\n";
    facts.pods().for_each(|(pod, _)| out += &row(pod, facts));
    out += "</table></div>\n";
    out += &left_out(all, MAX_PODS, "pod");
    let restarts: String = facts
        .pods()
        .map(|(pod, history)| last_restart(pod, history, facts))
        .collect();
    if !restarts.is_empty() {
        out += &format!("<h2>Last restarts</h2>\n<ul>\n{restarts}</ul>\n");
    }
    out
}

fn row(pod: &PodView, facts: &Facts<'_>) -> String {
    let row = Row::new(pod, facts.now);
    let class = match (is_at_work(pod), pod.status.is_ready()) {
        (true, false) => "bad",
        (_, true) => "good",
        (false, false) => "soft",
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td class=\"{class}\">{}</td><td>{}</td><td>{}</td></tr>\n",
        cell(&pod_name(pod), WIDTHS[0]),
        text(&row.ready),
        cell(&row.status, WIDTHS[1]),
        cell(&row.restarts, WIDTHS[2]),
        text(&row.age)
    )
}

fn last_restart(pod: &PodView, history: &PodHistory, facts: &Facts<'_>) -> String {
    let Some(restart) = history.restarts.back() else {
        return String::new();
    };
    format!(
        "<li>{} {}/{}: {}</li>\n",
        time_ago(restart.time, facts.now),
        text(&pod_name(pod)),
        text(&restart.container),
        text(&restart.cause)
    )
}

/// Returns a sentence for each paused probe of a pod, for example `web/main liveness is paused and goes on in 29m`.
pub(super) fn paused(pod: &PodView, facts: &Facts<'_>) -> Vec<String> {
    let one = |p: &crate::pods::prober::pauses::PausedProbe| {
        format!(
            "{}/{} {} is paused and goes on in {}",
            pod_name(pod),
            p.container,
            p.probe_type.word(),
            human::since(Some(facts.now), p.until)
        )
    };
    pod.paused.iter().map(one).collect()
}
