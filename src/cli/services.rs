//! The form `describe service`: shows a service as kubectl does. podprobe adds the pods that get traffic, and the
//! reasons.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

use super::args::Raw;
use super::client::Client;
use super::describe::lines::{labels, line, put};
use super::error::CliError;
use super::names::missing;
use super::tabwriter;
use crate::net::services::explain::PodTraffic;
use crate::net::services::view::ServiceView;

/// The arguments of `describe service`.
#[derive(Clone, Debug, PartialEq)]
pub struct Services {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Names of the services; empty means all.
    pub names: Vec<String>,
    /// Namespace of the services; None means all namespaces.
    pub namespace: Option<String>,
}

/// Tells whether the first word after `describe` means services.
pub fn is_word(word: &OsStr) -> bool {
    let word = word.to_str().unwrap_or_default();
    let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
    matches!(kind, "services" | "service" | "svc")
}

/// Parses the words after the verb.
pub fn parse(raw: &Raw) -> Result<Services, String> {
    let words = raw.text_words()?;
    let name = |word: &String| match word.split_once('/') {
        None => Ok(word.clone()),
        Some((kind, name)) if is_word(OsStr::new(kind)) => Ok(name.to_owned()),
        Some((kind, name)) => Err(format!("write 'service/{name}', not '{kind}/{name}'")),
    };
    let names = match words[0].contains('/') {
        true => &words[..],
        false => &words[1..],
    };
    Ok(Services {
        root: raw.root()?,
        names: names.iter().map(name).collect::<Result<_, _>>()?,
        // Without -n, services of all namespaces are shown, so -A changes nothing.
        namespace: raw.namespaces()?.0,
    })
}

/// Shows the services on `out`.
///
/// # Errors
/// Returns a [`CliError`] if there is no such service or no daemon.
pub fn run(args: &Services, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let all = Client::connect(&args.root)?.services()?;
    let shown = select(args, &all)?;
    if shown.is_empty() {
        writeln!(err, "No resources found")?;
        return Ok(());
    }
    let texts: Vec<String> = shown.iter().map(|s| description(s)).collect();
    out.write_all(texts.join("\n\n").as_bytes())?;
    out.flush()?;
    for line in problems(&shown) {
        writeln!(err, "{line}")?;
    }
    Ok(())
}

/// Returns a line for each problem, with the first service that has the problem. A problem of the data path
/// affects all services, so the line has only the number of the further services.
pub(super) fn problems(services: &[&ServiceView]) -> Vec<String> {
    let mut found: Vec<(&str, &ServiceView, usize)> = Vec::new();
    for service in services {
        for problem in &service.problems {
            match found.iter_mut().find(|(text, ..)| text == problem) {
                Some((.., others)) => *others += 1,
                None => found.push((problem, service, 0)),
            }
        }
    }
    let line = |(problem, service, others): (&str, &ServiceView, usize)| {
        let more = match others {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let ServiceView {
            namespace, name, ..
        } = service;
        format!("service {namespace}/{name}{more}: {problem}")
    };
    found.into_iter().map(line).collect()
}

fn select<'a>(args: &Services, all: &'a [ServiceView]) -> Result<Vec<&'a ServiceView>, CliError> {
    let in_namespace = |s: &&ServiceView| args.namespace.as_ref().is_none_or(|n| s.namespace == *n);
    if args.names.is_empty() {
        return Ok(all.iter().filter(in_namespace).collect());
    }
    let mut found = Vec::new();
    for name in &args.names {
        let before = found.len();
        found.extend(all.iter().filter(in_namespace).filter(|s| s.name == *name));
        if found.len() == before {
            let places = all.iter().map(|s| (s.namespace.as_str(), s.name.as_str()));
            let namespace = args.namespace.as_deref();
            return Err(CliError::Failed(missing(
                "services", name, namespace, places,
            )));
        }
    }
    Ok(found)
}

pub(super) fn or_none(text: String) -> String {
    match text.is_empty() {
        true => "<none>".into(),
        false => text,
    }
}

fn description(s: &ServiceView) -> String {
    let mut w = String::new();
    line(&mut w, "Name", &s.name);
    line(&mut w, "Namespace", &s.namespace);
    if !s.dns_name.is_empty() {
        line(&mut w, "DNS Name", &s.dns_name);
    }
    labels(&mut w, "Labels", &s.labels);
    line(&mut w, "Selector", &or_none(s.selector.join(",")));
    line(&mut w, "Type", &s.type_);
    line(
        &mut w,
        "IP",
        &or_none(s.cluster_ips.first().cloned().unwrap_or_default()),
    );
    line(&mut w, "IPs", &or_none(s.cluster_ips.join(",")));
    if !s.external.is_empty() {
        line(&mut w, "External", &s.external.join(","));
    }
    for port in &s.ports {
        let name = match port.name.is_empty() {
            true => "<unset>",
            false => &port.name,
        };
        line(
            &mut w,
            "Port",
            &format!("{name}\t{}/{}", port.port, port.protocol),
        );
        line(
            &mut w,
            "TargetPort",
            &format!("{}/{}", port.target_port, port.protocol),
        );
        if let Some(node) = port.node_port {
            line(
                &mut w,
                "NodePort",
                &format!("{name}\t{node}/{}", port.protocol),
            );
        }
        line(&mut w, "Endpoints", &or_none(port.endpoints.join(",")));
    }
    line(&mut w, "Session Affinity", &s.session_affinity);
    if !s.external_traffic_policy.is_empty() {
        line(
            &mut w,
            "External Traffic Policy",
            &s.external_traffic_policy,
        );
    }
    line(
        &mut w,
        "Internal Traffic Policy",
        &s.internal_traffic_policy,
    );
    if !s.note.is_empty() {
        line(&mut w, "Note", &s.note);
    }
    pods(&mut w, "Pods", &s.pods);
    pods(&mut w, "Nearly selected", &s.near);
    for problem in &s.problems {
        line(&mut w, "Problem", problem);
    }
    tabwriter::align(&w, 0, 2)
}

fn pods(w: &mut String, title: &str, pods: &[PodTraffic]) {
    if pods.is_empty() {
        return;
    }
    put!(w, "{title}:");
    for pod in pods {
        let traffic = match pod.gets_traffic {
            true => "gets traffic",
            false => "no traffic",
        };
        let why = match pod.why.is_empty() {
            true => String::new(),
            false => format!(": {}", pod.why.join("; ")),
        };
        put!(w, "  {}\t{traffic}{why}", pod.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str, problems: &[&str]) -> ServiceView {
        ServiceView {
            namespace: namespace.into(),
            name: name.into(),
            problems: problems.iter().map(|p| (*p).to_owned()).collect(),
            ..ServiceView::default()
        }
    }

    #[test]
    fn a_problem_of_many_services_is_said_once() {
        let all = [
            service("default", "a", &["cannot program", "own"]),
            service("default", "b", &["cannot program"]),
            service("default", "c", &["cannot program", "other"]),
        ];
        let all: Vec<&ServiceView> = all.iter().collect();
        assert_eq!(
            problems(&all),
            [
                "service default/a and 2 more: cannot program",
                "service default/a: own",
                "service default/c: other"
            ]
        );
    }
}
