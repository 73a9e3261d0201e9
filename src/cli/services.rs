//! `get services`, `get endpoints` and `describe service`: kubectl's columns and words, and which pod gets traffic and why.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

use super::args::Raw;
use super::client::Client;
use super::describe::lines::{line, put};
use super::error::CliError;
use super::table::write_rows;
use super::tabwriter;
use crate::services::explain::PodTraffic;
use crate::services::view::{PortView, ServiceView};

/// What is shown of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A row each.
    Services,
    /// A row each with the endpoints.
    Endpoints,
    /// Everything.
    Description,
}

/// `get services`, `get endpoints`, `describe service`.
#[derive(Clone, Debug, PartialEq)]
pub struct Services {
    /// Where the daemon is.
    pub root: PathBuf,
    /// Empty means all.
    pub names: Vec<String>,
    /// None means all.
    pub namespace: Option<String>,
    /// Show the NAMESPACE column also when every service is in `default`.
    pub all_namespaces: bool,
    /// What of them.
    pub shown: Shown,
}

/// What the word after `get` or `describe` stands for, if it is about services.
pub fn kind(word: &OsStr) -> Option<Shown> {
    let word = word.to_str()?;
    let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
    match kind {
        "services" | "service" | "svc" => Some(Shown::Services),
        "endpoints" | "ep" => Some(Shown::Endpoints),
        _ => None,
    }
}

/// What stands after the verb.
pub fn parse(raw: &Raw, shown: Shown) -> Result<Services, String> {
    let words = raw.text_words()?;
    if let Some(form) = raw.text("output")? {
        let verb = raw.verb();
        return Err(format!(
            "'{verb} {}' has no output form '{form}'; it prints a table",
            words[0]
        ));
    }
    let name = |word: &String| match word.split_once('/') {
        None => Ok(word.clone()),
        Some((kind, name)) if self::kind(OsStr::new(kind)).is_some() => Ok(name.to_owned()),
        Some((kind, name)) => Err(format!("write 'service/{name}', not '{kind}/{name}'")),
    };
    let names = match words[0].contains('/') {
        true => &words[..],
        false => &words[1..],
    };
    let (namespace, all_namespaces) = raw.namespaces()?;
    Ok(Services {
        root: raw.root()?,
        names: names.iter().map(name).collect::<Result<_, _>>()?,
        namespace,
        all_namespaces,
        shown,
    })
}

/// Shows them on `out`.
///
/// # Errors
/// There is no such service, or there is no daemon.
pub fn run(args: &Services, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let all = Client::connect(&args.root)?.services()?;
    let shown = select(args, &all)?;
    if shown.is_empty() {
        writeln!(err, "No resources found")?;
        return Ok(());
    }
    match args.shown {
        Shown::Description => {
            let texts: Vec<String> = shown.iter().map(|s| description(s)).collect();
            out.write_all(texts.join("\n\n").as_bytes())?;
        }
        Shown::Services | Shown::Endpoints => {
            let namespaces = args.all_namespaces || shown.iter().any(|s| s.namespace != "default");
            let rows = rows(&shown, args.shown, namespaces);
            write_rows(&rows, &mut Vec::new(), out)?;
        }
    }
    for line in problems(&shown) {
        writeln!(err, "{line}")?;
    }
    Ok(())
}

/// Each problem once, with the first service that has it: what is wrong with the data path is wrong for all.
fn problems(services: &[&ServiceView]) -> Vec<String> {
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
            let here = all.iter().filter(in_namespace).map(|s| s.name.as_str());
            let likely = elsewhere(name, all)
                .unwrap_or_else(|| super::suggest::did_you_mean(name, here, ""));
            return Err(CliError::Failed(format!(
                "services \"{name}\" not found{likely}"
            )));
        }
    }
    Ok(found)
}

/// Where else there is one of that name.
fn elsewhere(name: &str, all: &[ServiceView]) -> Option<String> {
    let others = all.iter().filter(|s| s.name == name);
    let namespaces: Vec<&str> = others.map(|s| s.namespace.as_str()).collect();
    match namespaces[..] {
        [] => None,
        [one] => Some(format!("; there is one in another namespace: -n {one}")),
        _ => Some(format!(
            "; there are some in other namespaces, choose one with -n: {}",
            namespaces.join(", ")
        )),
    }
}

fn rows(services: &[&ServiceView], shown: Shown, namespaces: bool) -> Vec<Vec<String>> {
    let columns: &[&str] = match shown {
        Shown::Endpoints => &["NAME", "ENDPOINTS"],
        _ => &["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)"],
    };
    let head = namespaces.then_some("NAMESPACE").into_iter();
    let mut rows = vec![
        head.chain(columns.iter().copied())
            .map(str::to_owned)
            .collect(),
    ];
    for service in services {
        let mut row: Vec<String> = namespaces
            .then(|| service.namespace.clone())
            .into_iter()
            .collect();
        row.push(service.name.clone());
        match shown {
            Shown::Endpoints => row.push(endpoints(service)),
            _ => row.extend([
                service.type_.clone(),
                or_none(service.cluster_ips.first().cloned().unwrap_or_default()),
                or_none(service.external.join(",")),
                or_none(service.ports.iter().map(port).collect::<Vec<_>>().join(",")),
            ]),
        }
        rows.push(row);
    }
    rows
}

fn port(port: &PortView) -> String {
    match port.node_port {
        Some(node) => format!("{}:{node}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    }
}

/// As kubectl: three, and how many more.
fn endpoints(service: &ServiceView) -> String {
    let all: Vec<&str> = service
        .ports
        .iter()
        .flat_map(|p| &p.endpoints)
        .map(String::as_str)
        .collect();
    match all.len() {
        0..=3 => or_none(all.join(",")),
        n => format!("{} + {} more...", all[..3].join(","), n - 3),
    }
}

fn or_none(text: String) -> String {
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

    #[track_caller]
    fn check(namespace: Option<&str>, name: &str, expected: &str) {
        let all = [
            service("shop", "web", &[]),
            service("shop", "cart", &[]),
            service("test", "cart", &[]),
            service("default", "api", &[]),
        ];
        let args = Services {
            root: PathBuf::new(),
            names: vec![name.into()],
            namespace: namespace.map(str::to_owned),
            all_namespaces: false,
            shown: Shown::Services,
        };
        let Err(CliError::Failed(error)) = select(&args, &all) else {
            panic!("it was found")
        };
        assert_eq!(error, format!("services {expected}"));
    }

    #[test]
    fn a_service_that_is_not_found_is_suggested_where_it_is() {
        check(
            Some("default"),
            "web",
            "\"web\" not found; there is one in another namespace: -n shop",
        );
        check(
            Some("default"),
            "cart",
            "\"cart\" not found; there are some in other namespaces, choose one with -n: shop, test",
        );
        check(
            Some("default"),
            "apo",
            "\"apo\" not found, did you mean 'api'?",
        );
        check(Some("default"), "wbe", "\"wbe\" not found");
        check(None, "wbe", "\"wbe\" not found, did you mean 'web'?");
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
