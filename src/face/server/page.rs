//! The status page at `/`: one page without scripts, for browsers and for text browsers of 80 columns.
//!
//! Invariants: pure. Every text of a pod, a file or a container passes [`text`], which cuts the text, makes invisible
//! characters visible, and escapes markup. A page shows a limited number of things, and says how many things it leaves
//! out. Long texts stand in lists and never in tables, because a text browser breaks up a table that is wider than its
//! screen.

mod html;
mod pods;
mod probes;
mod workloads;

use std::sync::Arc;

use self::html::{plural, text, time_ago};
use super::health::Check;
use crate::base::clock::Time;
use crate::face::views::columns;
use crate::face::views::findings::{self, Finding, Severity, findings};
use crate::face::views::human;
use crate::face::views::{PodView, Snapshot};
use crate::net::services::explain::PodTraffic;
use crate::net::services::view::{PortView, ServiceView};
use crate::pods::events::{Event, EventType};
use crate::pods::history::PodHistory;
use crate::workloads::view::WorkloadView;

pub(super) use html::escaped;

/// Largest number of pods that a page shows, each with its history.
pub(super) const MAX_PODS: usize = 200;
/// Largest number of services, of workloads, and of refused files, that a page shows.
const MAX_ITEMS: usize = 200;
/// Largest number of pods that a page shows for a service.
const MAX_ENDPOINTS: usize = 20;
/// Largest number of sentences about problems that a page shows. `status` shows three; a page has room for more.
const MAX_FINDINGS: usize = 10;
/// Largest number of events that a page shows.
const MAX_EVENTS: usize = 50;
/// Number of characters to which a text is cut.
const MAX_TEXT: usize = 400;
/// Number of seconds after which a browser loads the page again.
const REFRESH: u32 = 10;

/// The facts that a page is made from.
pub(super) struct Facts<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) services: &'a [ServiceView],
    pub(super) workloads: &'a [WorkloadView],
    /// The histories of the first [`MAX_PODS`] pods, in the order of the pods.
    pub(super) histories: &'a [PodHistory],
    /// The events, the most recent last.
    pub(super) events: &'a [Arc<Event>],
    pub(super) checks: &'a [Check],
    /// The daemon's version.
    pub(super) version: &'a str,
    pub(super) now: Time,
}

impl Facts<'_> {
    /// Returns the pods that the page shows, with their histories.
    fn pods(&self) -> impl Iterator<Item = (&PodView, &PodHistory)> {
        let pods = self.snapshot.pods.iter().map(|pod| &**pod);
        pods.zip(self.histories).take(MAX_PODS)
    }
}

/// Returns the HTML of the page.
pub(super) fn render(facts: &Facts<'_>) -> String {
    let node = text(&facts.snapshot.node_name);
    let wrong = wrong(facts);
    let (class, verdict) = match wrong.is_empty() {
        true => ("good", well(facts)),
        false => ("bad", not_well(wrong.len())),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"{REFRESH}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{node}: {}</title>\n\
         <style>{}</style></head>\n<body><h1>podprobe on {node}</h1>\n<p class=\"verdict {class}\">{verdict}</p>\n",
        if wrong.is_empty() {
            "all is well"
        } else {
            "not all is well"
        },
        include_str!("page.css"),
    );
    out += &worst(&wrong);
    out += &files(facts);
    out += &workloads::section(facts);
    out += &pods::section(facts);
    out += &probes::section(facts);
    out += &services(facts);
    out += &events(facts);
    out += &format!(
        "<p class=\"soft\">podprobe {}, at {}; asked again every {REFRESH} s</p>\n</body></html>\n",
        text(facts.version),
        facts.now
    );
    out
}

fn not_well(things: usize) -> String {
    let verb = if things == 1 { "is" } else { "are" };
    format!("Not all is well: {} {verb} wrong.", plural(things, "thing"))
}

fn well(facts: &Facts<'_>) -> String {
    let pods = facts.snapshot.pods.len();
    match pods {
        0 => "All is well: there are no pods.".into(),
        _ => format!("All is well: {}.", plural(pods, "pod")),
    }
}

/// Returns everything that is wrong: the health checks that fail, and the findings that `status` would report.
fn wrong(facts: &Facts<'_>) -> Vec<Finding> {
    let failing = facts.checks.iter().filter_map(|check| {
        let why = check.failure.as_ref()?;
        Some(Finding {
            severity: Severity::Stalled,
            subject: "podprobe".into(),
            message: format!("check {}: {why}", check.name),
            way_out: String::new(),
        })
    });
    let histories = facts
        .pods()
        .map(|(pod, history)| (pod.uid(), history))
        .collect();
    let found = findings(&findings::Facts {
        snapshot: facts.snapshot,
        services: facts.services,
        workloads: facts.workloads,
        histories,
        // A health check already reports a full disk.
        disk: None,
        now: facts.now,
    });
    failing.chain(found).collect()
}

/// Returns the list of the findings that matter most, each with its way out.
fn worst(wrong: &[Finding]) -> String {
    if wrong.is_empty() {
        return String::new();
    }
    let mut out = String::from("<ul>\n");
    for finding in wrong.iter().take(MAX_FINDINGS) {
        let (subject, message) = (text(&finding.subject), text(&finding.message));
        out += &format!("<li><span class=\"bad\">{subject}</span>: {message}");
        if !finding.way_out.is_empty() {
            out += &format!("<br><code>{}</code>", text(&finding.way_out));
        }
        out += "</li>\n";
    }
    out + "</ul>\n" + &html::left_out(wrong.len(), MAX_FINDINGS, "thing")
}

fn files(facts: &Facts<'_>) -> String {
    let snapshot = facts.snapshot;
    let refused = snapshot.problems.iter().filter(|p| !p.is_in_use);
    let problems: Vec<_> = refused.collect();
    if problems.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>Refused files</h2>\n<ul>\n");
    for problem in problems.iter().take(MAX_ITEMS) {
        out += &format!("<li class=\"bad\">{}</li>\n", text(&problem.line()));
    }
    out + "</ul>\n" + &html::left_out(problems.len(), MAX_ITEMS, "file")
}

fn services(facts: &Facts<'_>) -> String {
    if facts.services.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>Services</h2>\n<dl>\n");
    for service in facts.services.iter().take(MAX_ITEMS) {
        out += &of_service(service);
    }
    out + "</dl>\n" + &html::left_out(facts.services.len(), MAX_ITEMS, "service")
}

fn of_service(service: &ServiceView) -> String {
    let name = html::named(&service.namespace, &service.name);
    let addresses = service.cluster_ips.iter().chain(&service.external);
    let addresses: Vec<&str> = addresses.map(String::as_str).collect();
    let mut out = format!(
        "<dt>{} <span class=\"soft\">{} {}</span></dt>\n",
        text(&name),
        text(&service.type_),
        text(&addresses.join(" "))
    );
    let mut item = |class: &str, said: &str| {
        out += &format!("<dd class=\"{class}\">{}</dd>\n", text(said));
    };
    for port in &service.ports {
        let class = if port.endpoints.is_empty() { "bad" } else { "" };
        item(class, &of_port(port));
    }
    for pod in service.pods.iter().take(MAX_ENDPOINTS) {
        let class = if pod.gets_traffic { "good" } else { "warn" };
        item(class, &of_endpoint(pod));
    }
    if service.pods.len() > MAX_ENDPOINTS {
        let more = service.pods.len() - MAX_ENDPOINTS;
        item("soft", &format!("and {more} more"));
    }
    if !service.note.is_empty() {
        item("soft", &service.note);
    }
    for problem in service.problems.iter().take(MAX_ENDPOINTS) {
        item("bad", problem);
    }
    out
}

/// Returns the text of a service's port, for example `80/TCP on the node's port 30080, sent to 10.0.0.1:80`.
fn of_port(port: &PortView) -> String {
    let node = port.node_port.map(|n| format!(" on the node's port {n}"));
    let shown = &port.endpoints[..port.endpoints.len().min(MAX_ENDPOINTS)];
    let to = match shown {
        [] => "sent nowhere".to_owned(),
        shown => format!("sent to {}", shown.join(", ")),
    };
    format!(
        "{}/{}{}, {to}",
        port.port,
        port.protocol,
        node.unwrap_or_default()
    )
}

fn of_endpoint(pod: &PodTraffic) -> String {
    let gets = match pod.gets_traffic {
        true => "gets traffic",
        false => "gets none",
    };
    match pod.why.is_empty() {
        true => format!("{} {gets}", pod.name),
        false => format!("{} {gets}: {}", pod.name, pod.why.join("; ")),
    }
}

fn events(facts: &Facts<'_>) -> String {
    let mut out = String::from("<h2>Events</h2>\n");
    if facts.events.is_empty() {
        return out + "<p class=\"soft\">none</p>\n";
    }
    out += "<ul>\n";
    for event in facts.events.iter().rev().take(MAX_EVENTS) {
        out += &of_event(event, facts.now);
    }
    out + "</ul>\n" + &html::left_out(facts.events.len(), MAX_EVENTS, "older event")
}

fn of_event(event: &Event, now: Time) -> String {
    let class = match event.type_ {
        EventType::Normal => "soft",
        EventType::Warning => "warn",
    };
    let times = match event.count {
        0 | 1 => String::new(),
        n => format!(
            " <span class=\"soft\">(x{n} over {})</span>",
            human::since(Some(event.first_timestamp), now)
        ),
    };
    format!(
        "<li>{} <span class=\"{class}\">{}</span> {}: {}{times}</li>\n",
        time_ago(event.last_timestamp, now),
        text(&event.reason),
        text(&html::named(&event.namespace, &event.pod)),
        text(&event.message),
    )
}

/// Returns the pod's name, for example `web`. Outside of the namespace `default` the namespace stands before it, for
/// example `shop/web`.
fn pod_name(pod: &PodView) -> String {
    html::named(columns::namespace(pod), columns::name(pod))
}

#[cfg(test)]
mod tests;
