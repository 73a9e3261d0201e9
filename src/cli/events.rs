//! The verb `events`, kubectl's short form of `get events`.

use std::process::ExitCode;

use super::args::{self, ALL_NAMESPACES, NAMESPACE, NO_HEADERS, Opt, ROOT, Raw};
use super::error::CliError;
use super::get::kind::Kind;
use super::get::{self, Get};
use super::kinds;
use super::workload_names::Named;

/// The verb `events`.
pub const VERB: args::Verb = args::Verb {
    name: "events",
    summary: &[("events", "list what happened to pods and workloads")],
    help: "\
usage: podprobe events [--for KIND/NAME] [--types TYPE,…] [-n NAMESPACE | -A] [-o FORM] [-w] [--no-headers] [--root DIR]

Lists events, the latest last. Equal events are one row with a count. Events of a pod that has been removed are kept for
an hour.

      --for KIND/NAME      of that pod or workload, such as pod/web or deployment/web
      --types TYPE,…       Normal, Warning or both
  -n, --namespace NS       of one namespace; default all
  -A, --all-namespaces     show the namespace also when all is in 'default'
  -o, --output FORM        json, yaml, name, jsonpath=TEMPLATE or custom-columns=SPEC, as with 'get'
  -w, --watch              then print each new one
      --no-headers         without the first row
",
    options: &[
        ROOT,
        NAMESPACE,
        ALL_NAMESPACES,
        Opt::value("for", None),
        Opt::value("types", None),
        Opt::value("output", Some('o')),
        Opt::flag("watch", Some('w')),
        NO_HEADERS,
    ],
    run: |raw, out, err| {
        let get = parse(raw).map_err(CliError::Usage)?;
        get::run(&get, out, err).map(|()| ExitCode::SUCCESS)
    },
};

fn parse(raw: &Raw) -> Result<Get, String> {
    raw.no_words()?;
    let object = raw.text("for")?.map(|word| object(&word));
    Ok(Get {
        kind: Kind::Events,
        names: object.transpose()?.into_iter().collect(),
        types: raw.text("types")?.map_or(Ok(Vec::new()), |t| types(&t))?,
        ..get::how(raw)?
    })
}

/// Parses the name of a pod, or a workload with its kind.
fn object(word: &str) -> Result<String, String> {
    match Named::of_kind(word) {
        Some(Named { kind, name }) => Ok(format!("{kind}/{name}")),
        None => kinds::pod_name(word),
    }
}

/// Parses the types of events. Upper and lower case are equal, as with kubectl.
fn types(text: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = text.split(',').map(|t| t.trim().to_lowercase()).collect();
    let is_known = |t: &&String| matches!(t.as_str(), "normal" | "warning");
    match all.iter().find(|t| !is_known(t)) {
        Some(_) => Err(format!(
            "--types takes Normal, Warning or both with a comma, not '{text}'"
        )),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[test]
    fn events_are_those_of_get_in_kubectls_words() {
        let parsed = |line: &str| testing::parse(&VERB, parse, line);
        let events = Get {
            kind: Kind::Events,
            ..Get::default()
        };
        assert_eq!(parsed("events"), Ok(events.clone()));
        let of_pod = Get {
            names: vec!["web".into()],
            types: vec!["warning".into()],
            watch: true,
            ..events
        };
        assert_eq!(
            parsed("events --for pod/web --types Warning -w"),
            Ok(of_pod)
        );
        assert!(parsed("events --for service/web").is_err());
        assert!(parsed("events --types Error").is_err());
        assert!(parsed("events web").is_err());
    }
}
