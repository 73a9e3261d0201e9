//! The form `top pods`: shows the processor time and memory that pods use, in the columns of `kubectl top
//! pods`.
//!
//! Invariants: [`rows`] is pure. A rate of processor time needs two measurements that are at least a second apart.

use std::cmp::Reverse;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::cli::args::Raw;
use crate::cli::client::Client;
use crate::cli::columns;
use crate::cli::error::CliError;
use crate::cli::kinds;
use crate::cli::names;
use crate::cli::selector::Selector;
use crate::cli::suggest::did_you_mean;
use crate::cli::table::write_rows;
use crate::cli::workload_pods::{self, Choice, Target};
use crate::face::views::{PodView, Snapshot};
use crate::workloads::view::WorkloadView;

/// The time between two measurements of processor time. The daemon computes no rate over less than a second.
const APART: Duration = Duration::from_millis(1050);

/// The arguments of `top pods`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Usage {
    root: PathBuf,
    /// The pods, and the workloads whose pods are meant; empty means all pods.
    targets: Vec<Target>,
    /// Namespace of the pods; None means all namespaces.
    namespace: Option<String>,
    all_namespaces: bool,
    /// True if each container has its own row.
    containers: bool,
    selector: Option<Selector>,
    sort_by: Option<SortBy>,
    no_headers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortBy {
    Cpu,
    Memory,
}

/// Tells whether the command line has the form `top pods`, which shows the usage of pods. Without words after the
/// verb, `top` shows probes.
pub(super) fn is_asked_for(raw: &Raw) -> bool {
    !raw.words.is_empty()
}

pub(super) fn parse(raw: &Raw) -> Result<Usage, String> {
    let words = raw.text_words()?;
    let (namespace, all_namespaces) = raw.namespaces()?;
    let names = match words.split_first() {
        Some((kind, names)) if kinds::is_pod_word(kind) => names.iter(),
        Some((first, _)) if first.contains('/') => words.iter(),
        _ => {
            let word = words.first().map_or("", String::as_str);
            let likely = did_you_mean(word, ["pods", "pod"], "");
            return Err(format!("'top' takes nothing or pods, not '{word}'{likely}"));
        }
    };
    let targets = names.map(|word| Target::parse(word));
    let usage = Usage {
        root: raw.root()?,
        targets: targets.collect::<Result<_, _>>()?,
        namespace,
        all_namespaces,
        containers: raw.has("containers"),
        selector: raw.selector()?,
        sort_by: match raw.text("sort-by")?.as_deref() {
            None => None,
            Some("cpu") => Some(SortBy::Cpu),
            Some("memory") => Some(SortBy::Memory),
            Some(other) => return Err(format!("--sort-by takes cpu or memory, not '{other}'")),
        },
        no_headers: raw.has("no-headers"),
    };
    match usage.selector.is_some() && !usage.targets.is_empty() {
        true => Err("-l and names exclude each other".into()),
        false => Ok(usage),
    }
}

/// Shows the usage of the pods on `out`.
///
/// # Errors
/// Returns a [`CliError`] if there is no such pod, or if the daemon cannot be asked.
pub(super) fn run(usage: &Usage, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&usage.root)?;
    let snapshot = client.snapshot()?;
    let is_workload = |target: &Target| matches!(target, Target::Workload(_));
    let workloads = match usage.targets.iter().any(is_workload) {
        true => client.workloads(None)?.items,
        false => Arc::default(),
    };
    let wanted = wanted(usage, &snapshot, &workloads)?;
    let mut figures = client.usage()?;
    if has_no_rate(&figures) {
        thread::sleep(APART);
        figures = client.usage()?;
    }
    let (rows, without) = rows(usage, &wanted, &figures);
    match rows.len() {
        0 | 1 if usage.no_headers == rows.is_empty() => writeln!(err, "No resources found")?,
        _ => write_rows(&rows, &mut Vec::new(), out)?,
    }
    out.flush()?;
    for name in without {
        writeln!(err, "pod {name} has no container that runs")?;
    }
    Ok(())
}

/// The UID, the namespace and the name of a requested pod.
type Wanted = (String, String, String);

/// Returns the requested pods. A pod that is named twice, by itself and by its workload, is returned once.
fn wanted(
    usage: &Usage,
    snapshot: &Snapshot,
    workloads: &[WorkloadView],
) -> Result<Vec<Wanted>, CliError> {
    let namespace = usage.namespace.as_deref();
    let of = |pod: &PodView| -> Wanted {
        let texts = [pod.uid(), columns::namespace(pod), columns::name(pod)];
        let [uid, namespace, name] = texts.map(str::to_owned);
        (uid, namespace, name)
    };
    if usage.targets.is_empty() {
        let has = |pod: &&PodView| {
            let labels = columns::string_map(&pod.object["metadata"]["labels"]);
            usage.selector.as_ref().is_none_or(|s| s.matches(&labels))
        };
        let pods = names::in_namespace(snapshot, namespace).filter(has);
        return Ok(pods.map(of).collect());
    }
    let mut all: Vec<Wanted> = Vec::new();
    for target in &usage.targets {
        let pods = match target {
            Target::Pod(name) => vec![names::resolve(snapshot, namespace, name)?],
            Target::Workload(named) => {
                let view = named.find(workloads, namespace);
                let pods = view.and_then(|view| workload_pods::of(view, snapshot, Choice::Logs));
                pods.map_err(CliError::Failed)?
            }
        };
        let new = pods.into_iter().map(of).filter(|pod| !all.contains(pod));
        let new: Vec<Wanted> = new.collect();
        all.extend(new);
    }
    Ok(all)
}

/// Tells whether there is a running pod or container whose rate of processor time is not known yet.
fn has_no_rate(figures: &Value) -> bool {
    let pods = figures["pods"].as_array().into_iter().flatten();
    pods.flat_map(|pod| {
        pod["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .chain([pod])
    })
    .any(|of| of["cpu"].is_object() && of["cpu"]["usageNanoCores"].is_null())
}

/// Returns the rows of the table, and the requested names of pods that are not running.
fn rows(usage: &Usage, wanted: &[Wanted], figures: &Value) -> (Vec<Vec<String>>, Vec<String>) {
    let pods: Vec<&Value> = figures["pods"].as_array().into_iter().flatten().collect();
    let is_elsewhere = |(_, namespace, _): &Wanted| namespace != "default";
    let namespaces =
        usage.all_namespaces || (usage.namespace.is_none() && wanted.iter().any(is_elsewhere));
    let mut all: Vec<(u64, u64, Vec<String>)> = Vec::new();
    let mut without = Vec::new();
    for (uid, namespace, name) in wanted {
        let Some(pod) = pods
            .iter()
            .find(|pod| pod["podRef"]["uid"] == *uid.as_str())
        else {
            if !usage.targets.is_empty() {
                without.push(name.clone());
            }
            continue;
        };
        let containers = pod["containers"].as_array().into_iter().flatten();
        let shown: Vec<(Option<&str>, &Value)> = match usage.containers {
            true => containers.map(|c| (c["name"].as_str(), c)).collect(),
            false => vec![(None, *pod)],
        };
        for (container, of) in shown {
            let (cpu, memory) = figures_of(of);
            let namespace = namespaces.then(|| namespace.clone());
            let names = [namespace, Some(name.clone()), container.map(str::to_owned)];
            let figures = [
                format!("{}m", cpu.div_ceil(1_000_000)),
                format!("{}Mi", memory >> 20),
            ];
            let cells = names.into_iter().flatten().chain(figures).collect();
            all.push((cpu, memory, cells));
        }
    }
    match usage.sort_by {
        Some(SortBy::Cpu) => all.sort_by_key(|(cpu, ..)| Reverse(*cpu)),
        Some(SortBy::Memory) => all.sort_by_key(|(_, memory, _)| Reverse(*memory)),
        None => {}
    }
    let first = match usage.containers {
        true => &["POD", "NAME"][..],
        false => &["NAME"],
    };
    let namespace = namespaces.then_some(&"NAMESPACE");
    let words = namespace.into_iter().chain(first);
    let words = words.chain(&["CPU(cores)", "MEMORY(bytes)"]);
    let header = words.map(|word| (*word).to_owned()).collect();
    let header = (!usage.no_headers).then_some(header);
    let rows = all.into_iter().map(|(.., cells)| cells);
    (header.into_iter().chain(rows).collect(), without)
}

/// Returns the used processor time in nanoseconds per second, and the used memory in bytes.
fn figures_of(of: &Value) -> (u64, u64) {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    (
        number(&of["cpu"]["usageNanoCores"]),
        number(&of["memory"]["workingSetBytes"]),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;
    use crate::cli::top::VERB;

    fn figures() -> Value {
        let of = |nano: u64, mib: u64| json!({"cpu": {"usageNanoCores": nano}, "memory": {"workingSetBytes": mib << 20}});
        let pod = |uid: &str, nano: u64, mib: u64| {
            let mut pod = of(nano, mib);
            pod["podRef"] = json!({"uid": uid});
            let mut container = of(nano, mib);
            container["name"] = "c".into();
            pod["containers"] = json!([container]);
            pod
        };
        json!({"pods": [pod("1", 1_500_000, 7), pod("2", 0, 300)]})
    }

    #[track_caller]
    fn check(line: &str, expected: &[&str], without: &[&str]) {
        let usage = testing::parse(&VERB, parse, line).unwrap();
        let wanted = [("1", "web-edge"), ("2", "db-edge"), ("3", "job-edge")]
            .map(|(uid, name)| (uid.to_owned(), "default".to_owned(), name.to_owned()));
        let (rows, missing) = rows(&usage, &wanted, &figures());
        let lines: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            (lines, missing),
            (
                expected.iter().map(|l| (*l).to_owned()).collect(),
                without.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>(),
            ),
            "{line}"
        );
    }

    #[test]
    fn the_columns_are_kubectls() {
        let header = "NAME CPU(cores) MEMORY(bytes)";
        check(
            "top pods",
            &[header, "web-edge 2m 7Mi", "db-edge 0m 300Mi"],
            &[],
        );
        check(
            "top pods --sort-by memory --no-headers",
            &["db-edge 0m 300Mi", "web-edge 2m 7Mi"],
            &[],
        );
        let header = "POD NAME CPU(cores) MEMORY(bytes)";
        check(
            "top pod --containers",
            &[header, "web-edge c 2m 7Mi", "db-edge c 0m 300Mi"],
            &[],
        );
        let with_namespace = ["default web-edge 2m 7Mi", "default db-edge 0m 300Mi"];
        check("top pods -A --no-headers", &with_namespace, &[]);
        check(
            "top pods web db job --no-headers",
            &["web-edge 2m 7Mi", "db-edge 0m 300Mi"],
            &["job-edge"],
        );
    }

    #[track_caller]
    fn check_wanted(line: &str, expected: Result<&[&str], &str>) {
        let pod = |name: &str, app: &str| {
            let metadata =
                json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": app}});
            json!({"object": {"metadata": metadata, "spec": {"containers": []}}, "status": {}, "file": "",
                "warnings": [], "terminating": false, "logDir": "", "events": []})
        };
        let pods = [pod("web-1", "web"), pod("web-2", "web"), pod("db-0", "db")];
        let snapshot = json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": []});
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let object = |kind: &str, app: &str| {
            let spec = json!({"selector": {"matchLabels": {"app": app}}});
            json!({"object": {"kind": kind, "metadata": {"name": app, "namespace": "default"}, "spec": spec}})
        };
        let workloads = json!([object("Deployment", "web"), object("StatefulSet", "none")]);
        let workloads: Vec<WorkloadView> = serde_json::from_value(workloads).unwrap();
        let usage = testing::parse(&VERB, parse, line).unwrap();
        let names = wanted(&usage, &snapshot, &workloads)
            .map(|all| all.into_iter().map(|(.., name)| name).collect::<Vec<_>>())
            .map_err(|e| e.to_string());
        let expected = expected.map(|all| all.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(names, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_workload_stands_for_its_pods() {
        check_wanted("top pods", Ok(&["web-1", "web-2", "db-0"]));
        check_wanted("top pods deploy/web", Ok(&["web-1", "web-2"]));
        check_wanted("top deployment/web", Ok(&["web-1", "web-2"]));
        check_wanted(
            "top pods web-2 deploy/web db-0",
            Ok(&["web-2", "web-1", "db-0"]),
        );
        check_wanted(
            "top pods sts/none",
            Err("statefulset.apps/none has no pods"),
        );
        check_wanted(
            "top pods deploy/db",
            Err("deployments.apps \"db\" not found"),
        );
    }

    #[test]
    fn a_rate_is_waited_for() {
        assert!(!has_no_rate(&figures()));
        let mut new = figures();
        new["pods"][0]["containers"][0]["cpu"] = json!({"usageCoreNanoSeconds": 5});
        assert!(has_no_rate(&new));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |line: &str| testing::parse(&VERB, parse, line).unwrap_err();
        assert_eq!(
            error("top podz"),
            "'top' takes nothing or pods, not 'podz', did you mean 'pods'?"
        );
        assert_eq!(
            error("top pods --sort-by x"),
            "--sort-by takes cpu or memory, not 'x'"
        );
        assert_eq!(
            error("top pods a -l b=c"),
            "-l and names exclude each other"
        );
    }
}
