//! The verb `describe`: shows a pod or a workload in kubectl's layout. podprobe adds the file, the fields without
//! effect, and the reason why an older version of the file is in use.

mod containers;
mod environment;
mod events;
pub(super) mod history;
pub(super) mod lines;
pub(super) mod template;
mod volumes;
mod workload;
mod workloads;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use self::lines::{annotations, labels, line, listed, put};
use super::args::{self, ALL_NAMESPACES, NAMESPACE, ROOT, Raw, SELECTOR};
use super::client::Client;
use super::columns::{self, string_map};
use super::error::CliError;
use super::problems::write_node_lines;
use super::selector::Selector;
use super::{human, kinds, names, services, tabwriter, workload_names};
use crate::base::clock::Time;
use crate::face::views::findings::{self, Finding, Severity};
use crate::face::views::hints::hint;
use crate::face::views::{PodView, Snapshot};
use crate::pods::history::PodHistory;

/// The verb `describe`.
pub const VERB: args::Verb = args::Verb {
    name: "describe",
    summary: &[
        ("describe pod NAME", "show all that is known of a pod"),
        ("describe deployment NAME", "show how far a rollout is; also job, …"),
        ("describe service NAME", "show which pods get traffic, and why not"),
    ],
    help: "\
usage: podprobe describe pod [NAME]… [-l SELECTOR] [-n NAMESPACE | -A] [--root DIR]
       podprobe describe service [NAME]… [-n NAMESPACE | -A] [--root DIR]
       podprobe describe KIND [NAME]… [-l SELECTOR] [-n NAMESPACE | -A] [--root DIR]

KIND is deployment, replicaset, replicationcontroller, daemonset, statefulset, job or cronjob. Shows all that is known
of pods: what is wrong and what to do, state, how far pulls are, conditions, the last 32 results of each probe, why
containers were restarted, events, the file, and which of its fields have no effect. Of a service: its addresses and
endpoints, and for each pod whether it gets traffic, and why not. Of what makes pods: its template, conditions and
events, what it waits for, and what verbs have changed against its file. Control characters in what a container said
are shown as ^X.

  -l, --selector LABELS    of pods, and of a KIND that makes pods, those that have these labels
  -n, --namespace NS       of one namespace; default all
",
    options: &[ROOT, NAMESPACE, ALL_NAMESPACES, SELECTOR],
    run: |raw, out, err| {
        let first = raw.words.first().and_then(|word| word.to_str());
        if first.is_some_and(workload_names::is_word) {
            let asked = workloads::parse(raw).map_err(CliError::Usage)?;
            workloads::run(&asked, out, err)?;
            return Ok(ExitCode::SUCCESS);
        }
        if raw.words.first().is_some_and(|w| services::is_word(w)) {
            if raw.has(SELECTOR.name) {
                let text = "-l goes with pods and what makes pods, such as 'describe deployment'";
                return Err(CliError::Usage(text.into()));
            }
            services::run(&services::parse(raw).map_err(CliError::Usage)?, out, err)?;
            return Ok(ExitCode::SUCCESS);
        }
        let describe = parse(raw).map_err(CliError::Usage)?;
        run(&describe, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `describe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Describe {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Names of the pods; empty means all.
    pub names: Vec<String>,
    /// Namespace of the pods; None means all namespaces.
    pub namespace: Option<String>,
    /// The labels of the pods; None means any.
    selector: Option<Selector>,
}

fn parse(raw: &Raw) -> Result<Describe, String> {
    let names = kinds::pod_names(raw, &["pod", "service", "deployment"])?;
    let selector = raw.selector()?;
    if selector.is_some() && !names.is_empty() {
        return Err("-l and names exclude each other".into());
    }
    Ok(Describe {
        root: raw.root()?,
        names,
        selector,
        // Without -n, pods of all namespaces are described, so -A changes nothing.
        namespace: raw.namespaces()?.0,
    })
}

/// Describes the pods on `out`. Problems of files without a pod go to `err`.
pub fn run(describe: &Describe, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&describe.root)?;
    let snapshot = client.snapshot()?;
    let pods = select(describe, &snapshot)?;
    let mut texts = Vec::new();
    for pod in pods {
        let history = client.history(
            pod.object["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .into(),
        )?;
        texts.push(text(pod, &history, Time::now()));
    }
    if texts.is_empty() {
        writeln!(err, "No resources found")?;
    }
    out.write_all(texts.join("\n\n").as_bytes())?;
    out.flush()?;
    write_node_lines(&snapshot, err)?;
    let without_pod = snapshot
        .problems
        .iter()
        .filter(|_| describe.names.is_empty() && describe.selector.is_none())
        .filter(|p| !snapshot.pods.iter().any(|v| v.file == p.file));
    for problem in without_pod {
        writeln!(err, "{}", problem.line())?;
    }
    Ok(())
}

fn select<'a>(describe: &Describe, snapshot: &'a Snapshot) -> Result<Vec<&'a PodView>, CliError> {
    let namespace = describe.namespace.as_deref();
    if describe.names.is_empty() {
        let has = |pod: &&PodView| {
            let labels = string_map(&pod.object["metadata"]["labels"]);
            describe
                .selector
                .as_ref()
                .is_none_or(|s| s.matches(&labels))
        };
        return Ok(names::in_namespace(snapshot, namespace)
            .filter(has)
            .collect());
    }
    describe
        .names
        .iter()
        .map(|name| {
            names::resolve(snapshot, namespace, name).map_err(|e| with_problems(e, snapshot, name))
        })
        .collect()
}

/// Adds the problems of files to the error, because a pod whose file is bad may be missing.
fn with_problems(e: names::NameError, snapshot: &Snapshot, name: &str) -> CliError {
    let about = snapshot
        .problems
        .iter()
        .filter(|p| p.file.contains(name) || p.error.contains(name));
    let lines: String = about.map(|p| format!("\n{}", p.line())).collect();
    CliError::Failed(format!("{e}{lines}"))
}

/// Returns the description of a pod at the time `now`.
pub fn text(pod: &PodView, history: &PodHistory, now: Time) -> String {
    let mut w = String::new();
    head(&mut w, pod, findings::of_pod(pod, history, now));
    containers::all(
        &mut w,
        ("", "Init Containers"),
        (&pod.object, "initContainers"),
        &pod.status.init_container_statuses,
        Some((&pod.pulls, now)),
    );
    containers::all(
        &mut w,
        ("", "Containers"),
        (&pod.object, "containers"),
        &pod.status.container_statuses,
        Some((&pod.pulls, now)),
    );
    containers::all(
        &mut w,
        ("", "Ephemeral Containers"),
        (&pod.object, "ephemeralContainers"),
        &pod.status.ephemeral_container_statuses,
        Some((&pod.pulls, now)),
    );
    readiness_gates(&mut w, pod);
    conditions(&mut w, pod);
    volumes::volumes(&mut w, "", &pod.object["spec"]["volumes"]);
    line(&mut w, "QoS Class", &pod.status.qos_class);
    labels(
        &mut w,
        "Node-Selectors",
        string_map(&pod.object["spec"]["nodeSelector"]),
    );
    file(&mut w, pod);
    history::all(&mut w, history, &pod.paused, now);
    events::write(&mut w, &pod.events, now);
    tabwriter::align(&w, 0, 2)
}

fn head(w: &mut String, pod: &PodView, finding: Option<Finding>) {
    let (meta, spec, status) = (&pod.object["metadata"], &pod.object["spec"], &pod.status);
    line(w, "Name", columns::name(pod));
    line(w, "Namespace", columns::namespace(pod));
    line(w, "Node", spec["nodeName"].as_str().unwrap_or("<none>"));
    if let Some(start) = status.start_time {
        line(w, "Start Time", &human::date(start));
    }
    labels(w, "Labels", string_map(&meta["labels"]));
    annotations(w, "Annotations", &meta["annotations"]);
    line(
        w,
        "Status",
        if columns::is_terminating(pod) {
            "Terminating"
        } else {
            status.phase.as_str()
        },
    );
    for (title, value) in [("Reason", &status.reason), ("Message", &status.message)] {
        if !value.is_empty() {
            line(w, title, value);
        }
    }
    // The findings about a pod that is starting are left out, unless a user must act. The findings about a failed
    // pod are left out, because the message above says why the pod failed.
    let is_told = |f: &Finding| {
        let is_problem = f.severity != Severity::Waiting || hint(&f.message).is_some();
        is_problem && status.message.is_empty()
    };
    if let Some(finding) = finding.filter(is_told) {
        line(w, "Problem", &finding.message);
        // A way out that names `podprobe describe` itself is left out.
        let (hint, more) = (hint(&finding.message), finding.way_out.as_str());
        let more = Some(more).filter(|m| !m.starts_with("podprobe describe "));
        if let Some(way_out) = hint.or(more) {
            line(w, "What To Do", way_out);
        }
    }
    line(w, "IP", &status.pod_ip);
    if status.pod_ips.is_empty() {
        line(w, "IPs", "<none>");
        return;
    }
    put!(w, "IPs:");
    for ip in &status.pod_ips {
        put!(w, "  IP:\t{}", ip.ip);
    }
    network(w, pod);
}

fn network(w: &mut String, pod: &PodView) {
    let loopback = "loopback only: nothing outside of the pod reaches it; with hostNetwork: true it has the node's";
    let kind = columns::is_loopback_only(pod).then_some(loopback);
    let lacks = pod.network_lacks.iter().map(String::as_str);
    for (i, text) in kind.into_iter().chain(lacks).enumerate() {
        put!(w, "{}\t{text}", if i == 0 { "Network:" } else { "" });
    }
}

fn readiness_gates(w: &mut String, pod: &PodView) {
    let gates = columns::readiness_gates(pod);
    if gates.is_empty() {
        return;
    }
    put!(w, "Readiness Gates:\n  Type\tStatus");
    for type_ in gates {
        let status = pod.status.condition(type_).map_or("<none>", |c| &c.status);
        put!(w, "  {type_}\t{status}");
    }
}

fn conditions(w: &mut String, pod: &PodView) {
    if pod.status.conditions.is_empty() {
        return;
    }
    put!(w, "Conditions:\n  Type\tStatus");
    for c in &pod.status.conditions {
        // Unlike kubectl, this output shows the reason and the message of a condition, because reason and message
        // say why a pod is not ready.
        let why = [c.reason.as_str(), &c.message]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
        put!(
            w,
            "  {}\t{}{}{why}",
            c.type_,
            c.status,
            if why.is_empty() { "" } else { "\t" }
        );
    }
}

fn file(w: &mut String, pod: &PodView) {
    line(w, "File", &pod.file);
    if let Some(error) = &pod.file_error {
        put!(
            w,
            "File Error:\tlast good version runs: {}",
            error.replace('\n', "\n\t")
        );
    }
    listed(w, "Warnings", &pod.warnings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<&[&str], &str>) {
        let names = testing::parse(&VERB, parse, line).map(|d| d.names);
        let expected = expected.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(names, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn describe_takes_pods() {
        check("describe pod", Ok(&[]));
        check("describe pod a b", Ok(&["a", "b"]));
        check("describe pod/a pod/b", Ok(&["a", "b"]));
        check("describe pod -A", Ok(&[]));
        check("describe pod -A -n x", Err("-n and -A exclude each other"));
        check(
            "describe",
            Err("'describe' needs what to show: podprobe describe pod"),
        );
        check(
            "describe redis",
            Err(
                "'redis' is not a kind that podprobe knows; for the pod of that name write 'podprobe describe pod redis'",
            ),
        );
        check(
            "describe pdo web",
            Err("unknown kind 'pdo', did you mean 'pod'?"),
        );
    }
}
