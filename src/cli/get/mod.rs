//! The verb `get`: lists objects in kubectl's formats, once or continuously.
//!
//! The other files of this directory find the objects of a kind. `printer` prints them.

mod events;
mod images;
mod item;
pub mod kind;
mod many;
mod objects;
mod pods;
mod printer;
mod probes;
mod services;
mod workloads;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value;

use self::item::{Found, Item};
use self::kind::Kind;
use self::printer::Printer;
use super::args::{self, ALL_NAMESPACES, NAMESPACE, NO_HEADERS, Opt, ROOT, Raw, SELECTOR};
use super::client::Client;
use super::columns::string_map;
use super::error::CliError;
use super::jsonpath::Path;
use super::names::missing;
use super::output::{self, Output};
use super::selector::Selector;
use crate::base::clock::Time;
use crate::base::paths::Layout;
use crate::face::views::Snapshot;
use crate::net::services::view::ServiceView;

/// The verb `get`.
pub const VERB: args::Verb = args::Verb {
    name: "get",
    summary: &[
        ("get pods", "list pods"),
        ("get probes", "list probes and what they found"),
        ("get events", "list what happened to pods"),
        ("get deployments", "list what makes pods; also jobs, …"),
        ("get services", "list services; also endpoints, images, …"),
    ],
    help: "\
usage: podprobe get KIND[,KIND…] [NAME]… [-n NAMESPACE | -A] [-l SELECTOR] [-o FORM] [-w] [--sort-by PATH]
                    [--no-headers] [--root DIR]
       podprobe get KIND/NAME…

KIND is pods (po), deployments (deploy), replicasets (rs), replicationcontrollers (rc), daemonsets (ds), statefulsets
(sts), jobs, cronjobs (cj), probes, events (ev), images, services (svc), endpoints (ep), endpointslices, secrets,
configmaps (cm) or persistentvolumeclaims (pvc); all is pods, services and what makes pods. The NAME of a pod may leave
out the node's name at its end; of events it is a pod's or KIND/NAME, of probes POD[/CONTAINER[/TYPE]].

What verbs such as 'scale' have changed against a file is said on stderr below the table. A pod file that is refused has
a row of its own with the file's name and STATUS Refused; why is said on stderr. In the list of -o json and -o yaml it
stands in metadata.refusedFiles. Equal events are one row with a count. Events of a pod that has been removed are kept
for an hour. Values of Secrets are shown in base64 by -o json and -o yaml.

  -n, --namespace NS       of one namespace; default all
  -A, --all-namespaces     show the namespace also when all is in 'default'
  -l, --selector LABELS    of objects that have them, and of probes whose pod has them: key=value, key!=value,
                           'key in (a,b)', 'key notin (a,b)', key, !key, with commas between them; not of events
                           and images
  -o, --output FORM        wide: more columns
                           json, yaml: a v1 List, or the object when one NAME is given
                           name: only kind/NAME
                           jsonpath=TEMPLATE: such as '{.items[*].metadata.name}'
                           custom-columns=SPEC: such as NAME:.metadata.name,IP:.status.podIP
  -w, --watch              then print each change; of pods, workloads and events
      --sort-by PATH       in the order of what the path finds, such as .status.startTime
      --no-headers         without the first row

Exit code 1: a NAME is not found, or its file is refused.
",
    options: &[
        ROOT,
        NAMESPACE,
        ALL_NAMESPACES,
        SELECTOR,
        Opt::value("output", Some('o')),
        Opt::flag("watch", Some('w')),
        Opt::value("sort-by", None),
        NO_HEADERS,
    ],
    run: |raw, out, err| {
        let gets = parse(raw).map_err(CliError::Usage)?;
        let done = match gets.as_slice() {
            [get] => run(get, out, err),
            several => many::run(several, out, err),
        };
        done.map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `get`.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Kind of the objects to list.
    pub kind: Kind,
    /// Names of the objects; empty means all.
    pub names: Vec<String>,
    /// Namespace of the objects; None means all namespaces.
    pub namespace: Option<String>,
    /// True if the column NAMESPACE is shown even when all objects are in `default`.
    pub all_namespaces: bool,
    /// Labels that the objects must have; None means any labels.
    pub selector: Option<Selector>,
    /// Output format.
    pub output: Output,
    /// The path of the value by which objects are sorted; None means the daemon's order.
    pub sort_by: Option<Path>,
    /// True if the first row of a table is left out.
    pub no_headers: bool,
    /// Types of events to list, in lower case; empty means all.
    pub types: Vec<String>,
    /// True if the command line names several kinds. If true, the printed names begin with their kind.
    pub is_one_of_many: bool,
    /// True if changes are printed after the list.
    pub watch: bool,
}

impl Default for Get {
    fn default() -> Self {
        Self {
            root: "/".into(),
            kind: Kind::Pods,
            names: Vec::new(),
            namespace: None,
            all_namespaces: false,
            selector: None,
            output: Output::Table,
            sort_by: None,
            no_headers: false,
            types: Vec::new(),
            is_one_of_many: false,
            watch: false,
        }
    }
}

impl Get {
    /// Tells whether the object has the labels of `-l`. Returns true for every object if there is no `-l`.
    fn has_labels(&self, object: &Value) -> bool {
        let labels = string_map(&object["metadata"]["labels"]);
        self.selector.as_ref().is_none_or(|s| s.matches(&labels))
    }
}

/// Parses the options that `get` and `events` share: all arguments except the kind, the names, the labels and the
/// order.
pub(super) fn how(raw: &Raw) -> Result<Get, String> {
    let (namespace, all_namespaces) = raw.namespaces()?;
    let output = raw.text("output")?;
    Ok(Get {
        root: raw.root()?,
        namespace,
        all_namespaces,
        output: output.map_or(Ok(Output::Table), |o| Output::parse(&o))?,
        no_headers: raw.has("no-headers"),
        watch: raw.has("watch"),
        ..Get::default()
    })
}

/// Parses the command line into one request for each kind.
fn parse(raw: &Raw) -> Result<Vec<Get>, String> {
    let asked = kind::targets(&raw.text_words()?)?;
    let sort_by = raw.text("sort-by")?;
    let all = Get {
        selector: raw.selector()?,
        sort_by: sort_by
            .map(|p| Path::parse(&p))
            .transpose()
            .map_err(|e| format!("--sort-by: {e}"))?,
        is_one_of_many: asked.len() > 1,
        ..how(raw)?
    };
    if all.watch && all.is_one_of_many {
        return Err("-w shows one kind at a time".into());
    }
    let one = |(kind, names)| {
        let get = Get {
            kind,
            names,
            ..all.clone()
        };
        check(&get).map(|()| get)
    };
    asked.into_iter().map(one).collect()
}

/// Returns an error for an option that would have no effect.
fn check(get: &Get) -> Result<(), String> {
    let (plural, facts) = (get.kind.plural(), get.kind.facts());
    // If there are several kinds, an option may apply to only some of the kinds.
    let has_namespace = get.kind != Kind::Images || get.is_one_of_many;
    let is_named = !get.names.is_empty();
    let refused = [
        (
            get.watch && !facts.is_watched,
            format!("-w goes with pods, workloads and events, not with {plural}"),
        ),
        (
            get.selector.is_some() && !facts.has_labels,
            format!("{plural} have no labels: leave out -l"),
        ),
        (
            get.selector.is_some() && is_named,
            "-l and names exclude each other".into(),
        ),
        (
            (get.namespace.is_some() || get.all_namespaces) && !has_namespace,
            format!("{plural} have no namespace: leave out -n and -A"),
        ),
        (
            get.watch && get.sort_by.is_some(),
            "--sort-by and -w exclude each other".into(),
        ),
    ];
    match refused.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

/// Prints the requested objects on `out`, and with `-w` their changes. Notes and errors go to `err`.
///
/// # Errors
/// Returns a [`CliError`] if a name is not found, or if the daemon cannot be asked.
pub fn run(get: &Get, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let mut printer = Printer::new(get);
    match get.kind {
        Kind::Images => show(get, images::find(get)?, &mut printer, out, err),
        Kind::Pods => {
            let mut client = Client::connect(&get.root)?;
            let snapshot = client.snapshot()?;
            let found = pods::find(get, &snapshot, Time::now())?;
            show(get, found.clone(), &mut printer, out, err)?;
            match get.watch {
                true => watch(get, &mut client, printer, &snapshot, found, out),
                false => Ok(()),
            }
        }
        Kind::Workload(_) => {
            let mut client = Client::connect(&get.root)?;
            let list = client.workloads(None)?;
            let found = workloads::find(get, &list, Time::now());
            let noted = workloads::noted(get, found.clone(), &list, &*client.snapshot()?);
            show(get, noted, &mut printer, out, err)?;
            match get.watch {
                true => workloads::watch(get, &mut client, printer, (&list, found), out),
                false => Ok(()),
            }
        }
        Kind::Events => {
            let mut client = Client::connect(&get.root)?;
            let list = client.events(None)?;
            show(
                get,
                events::find(get, &mut client, &list)?,
                &mut printer,
                out,
                err,
            )?;
            match get.watch {
                true => events::watch(get, &mut client, printer, list.version, out),
                false => Ok(()),
            }
        }
        _ => {
            let mut client = Client::connect(&get.root)?;
            show(get, find(get, &mut client)?, &mut printer, out, err)
        }
    }
}

/// Finds the objects of a kind once, without a watch.
fn find(get: &Get, client: &mut Client) -> Result<Found, CliError> {
    match get.kind {
        Kind::Images => return images::find(get),
        Kind::Pods => return pods::find(get, &*client.snapshot()?, Time::now()),
        Kind::Workload(_) => {
            let list = client.workloads(None)?;
            let found = workloads::find(get, &list, Time::now());
            return Ok(workloads::noted(get, found, &list, &*client.snapshot()?));
        }
        Kind::Events => {
            let list = client.events(None)?;
            return events::find(get, client, &list);
        }
        _ => {}
    }
    if get.kind == Kind::Probes {
        let snapshot = client.snapshot()?;
        let asked = probes::ask(get, &snapshot);
        return Ok(asked.found(|uid| client.history(uid.into()), Time::now())?);
    }
    if let Some(kind) = objects::kind(get.kind) {
        let all = client.objects(kind)?;
        let claims = Layout::new(&get.root).claims();
        let items = all.into_iter().map(|o| objects::item(get.kind, o, &claims));
        return Ok(requested(get, items.collect()));
    }
    let services = client.services()?;
    let items = services.iter();
    let items = items.flat_map(|s| services::items(get.kind, s, Time::now()));
    let mut found = requested(get, items.collect());
    // The name of a slice is the name of its service and a number.
    let is_of = |i: &Item, s: &ServiceView| {
        let rest = i.name.strip_prefix(&*s.name);
        i.namespace == s.namespace && rest.is_some_and(|r| r.is_empty() || r.starts_with('-'))
    };
    // If all services are listed, the problems of services without a slice are shown, too.
    let is_shown = |s: &&ServiceView| match get.names.is_empty() && get.selector.is_none() {
        true => get.namespace.as_ref().is_none_or(|n| s.namespace == *n),
        false => found.items.iter().any(|i| is_of(i, s)),
    };
    found.notes = super::services::problems(&services.iter().filter(is_shown).collect::<Vec<_>>());
    Ok(found)
}

/// Selects the items with the requested names, labels and namespace.
fn requested(get: &Get, all: Vec<Item>) -> Found {
    let is_inside = |i: &&Item| get.namespace.as_ref().is_none_or(|n| i.namespace == *n);
    let mut found = Found::default();
    if get.names.is_empty() {
        let has_labels = |i: &&Item| get.has_labels(&i.object);
        let items = all.iter().filter(is_inside).filter(has_labels);
        found.items = items.cloned().collect();
    }
    for name in &get.names {
        let before = found.items.len();
        let of_name = all.iter().filter(is_inside).filter(|i| i.name == *name);
        found.items.extend(of_name.cloned());
        if found.items.len() == before {
            let places = all.iter().map(|i| (i.namespace.as_str(), i.name.as_str()));
            found.missing.push(missing(
                get.kind.resource(),
                name,
                get.namespace.as_deref(),
                places,
            ));
        }
    }
    found
}

/// Prints the found objects, then notes and errors.
fn show(
    get: &Get,
    mut found: Found,
    printer: &mut Printer<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), CliError> {
    if let Some(path) = &get.sort_by {
        found.sort(path).map_err(output::failed)?;
    }
    printer.first(&found, out)?;
    if get.output.is_table() {
        if found.rows().next().is_none() && found.missing.is_empty() {
            writeln!(err, "{}", nothing(get))?;
        }
        found
            .notes
            .iter()
            .try_for_each(|note| writeln!(err, "{note}"))?;
    }
    found
        .missing
        .iter()
        .try_for_each(|why| writeln!(err, "{why}"))?;
    match found.missing.is_empty() {
        true => Ok(()),
        false => Err(CliError::Reported),
    }
}

/// Returns kubectl's sentence for an empty result.
fn nothing(get: &Get) -> String {
    let what = match get.kind {
        Kind::Events => "No events found",
        _ => "No resources found",
    };
    match &get.namespace {
        Some(namespace) => format!("{what} in {namespace} namespace."),
        None => what.into(),
    }
}

/// Prints changes of the requested pods. A pod that was removed and comes back is printed again.
fn watch(
    get: &Get,
    client: &mut Client,
    mut printer: Printer<'_>,
    snapshot: &Snapshot,
    mut before: Found,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut snapshot = snapshot.clone();
    loop {
        snapshot = snapshot.updated(client.watch(snapshot.version)?);
        let now = pods::find(get, &snapshot, Time::now())?;
        printer.again(&changed(get, &before, &now), out)?;
        before = now;
    }
}

/// Returns the rows that are new or have changed, and the last rows of removed pods, ordered by name. Includes the
/// rows of refused files only if the output is a table.
fn changed<'a>(get: &Get, before: &'a Found, now: &'a Found) -> Vec<&'a Item> {
    let old: HashMap<_, _> = before.rows().map(|i| (key(i), i)).collect();
    let new: HashSet<_> = now.rows().map(key).collect();
    let differs = |item: &&Item| {
        old.get(&key(item))
            .is_none_or(|o| o.visible != item.visible)
    };
    let refused = now.refused.iter().filter(|_| get.output.is_table());
    let gone = before.items.iter().filter(|i| !new.contains(&key(i)));
    let mut rows: Vec<&Item> = now
        .items
        .iter()
        .chain(refused)
        .filter(differs)
        .chain(gone)
        .collect();
    rows.sort_by_key(|i| key(i));
    rows
}

fn key(item: &Item) -> (&str, &str) {
    (&item.namespace, &item.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Get) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Ok(vec![expected]), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    fn names(names: &[&str]) -> Get {
        Get {
            names: names.iter().map(|n| (*n).to_owned()).collect(),
            ..Get::default()
        }
    }

    #[test]
    fn get_takes_kinds_names_and_forms() {
        check("get pods", Get::default());
        check(
            "get po -o wide -w --no-headers",
            Get {
                output: Output::Wide,
                watch: true,
                no_headers: true,
                ..Get::default()
            },
        );
        check(
            "get pods a b -ojson --root=/r",
            Get {
                root: "/r".into(),
                output: Output::Json,
                ..names(&["a", "b"])
            },
        );
        check("get pod/a", names(&["a"]));
        check(
            "get pods -A -o name",
            Get {
                all_namespaces: true,
                output: Output::Name,
                ..Get::default()
            },
        );
        check(
            "get svc -n kube --sort-by .spec.type -o yaml",
            Get {
                kind: Kind::Services,
                namespace: Some("kube".into()),
                sort_by: Path::parse(".spec.type").ok(),
                output: Output::Yaml,
                ..Get::default()
            },
        );
        check(
            "get probes -l app=web",
            Get {
                kind: Kind::Probes,
                selector: Selector::parse("app=web").ok(),
                ..Get::default()
            },
        );
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        check_error("get", "'get' needs what to show: podprobe get pods");
        check_error(
            "get pods --follow",
            "'get' has no option '--follow'; see 'podprobe help get'",
        );
        check_error(
            "get pods -x",
            "'get' has no option '-x'; see 'podprobe help get'",
        );
        check_error("get pods -A -n x", "-n and -A exclude each other");
        for line in ["get pods -w=yes", "get pods --watch=yes"] {
            let error = testing::parse(&VERB, parse, line).unwrap_err();
            let is_named = error.contains("unexpected") || error.contains("no value");
            assert!(is_named, "{line}: {error}");
        }
        check_error("get svc,ep -w", "-w shows one kind at a time");
        check_error(
            "get svc -w",
            "-w goes with pods, workloads and events, not with services",
        );
        check_error("get events -l a=b", "events have no labels: leave out -l");
        check_error("get pods a -l a=b", "-l and names exclude each other");
        check_error(
            "get images -n x",
            "images have no namespace: leave out -n and -A",
        );
        check_error(
            "get images -A",
            "images have no namespace: leave out -n and -A",
        );
        check_error(
            "get pods -w --sort-by .a",
            "--sort-by and -w exclude each other",
        );
        check_error(
            "get pods --sort-by {.a",
            "--sort-by: jsonpath, character 4: '}' is missing at the end",
        );
    }

    fn found(rows: &[(&str, &str)], refused: &[(&str, &str)]) -> Found {
        let item = |(name, visible): &(&str, &str)| Item {
            name: (*name).into(),
            visible: (*visible).into(),
            ..Item::default()
        };
        Found {
            items: rows.iter().map(item).collect(),
            refused: refused.iter().map(item).collect(),
            ..Found::default()
        }
    }

    #[test]
    fn a_watch_tells_what_is_new_changed_or_gone() {
        let before = found(
            &[("a", "1"), ("b", "1"), ("c", "1")],
            &[("f", "1"), ("g", "1"), ("h", "1")],
        );
        let now = found(
            &[("c", "1"), ("b", "2"), ("d", "1")],
            &[("f", "2"), ("g", "1")],
        );
        let names = |get: &Get| {
            changed(get, &before, &now)
                .iter()
                .map(|i| i.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&Get::default()), ["a", "b", "d", "f"]);
        let json = Get {
            output: Output::Json,
            ..Get::default()
        };
        assert_eq!(names(&json), ["a", "b", "d"]);
    }

    #[test]
    fn names_and_labels_are_looked_for_in_the_namespace() {
        let item = |namespace: &str, name: &str| Item {
            namespace: namespace.into(),
            name: name.into(),
            object: json!({"metadata": {"labels": {"tier": name}}}),
            ..Item::default()
        };
        let all = || vec![item("a", "web"), item("b", "web"), item("b", "db")];
        let of = |namespace: Option<&str>, wanted: &[&str]| {
            let get = Get {
                kind: Kind::Services,
                namespace: namespace.map(str::to_owned),
                ..names(wanted)
            };
            let found = requested(&get, all());
            (found.items.len(), found.missing)
        };
        assert_eq!(of(None, &[]), (3, vec![]));
        assert_eq!(of(Some("b"), &[]), (2, vec![]));
        assert_eq!(of(None, &["web"]), (2, vec![]));
        let of_labels = |selector: &str, namespace: Option<&str>| {
            let get = Get {
                selector: Selector::parse(selector).ok(),
                namespace: namespace.map(str::to_owned),
                ..Get::default()
            };
            requested(&get, all()).items.len()
        };
        assert_eq!(of_labels("tier=web", None), 2);
        assert_eq!(of_labels("tier=web", Some("b")), 1);
        assert_eq!(of_labels("tier!=web", Some("a")), 0);
        let missing = "services \"db\" not found; there is one in another namespace: -n b";
        assert_eq!(of(Some("a"), &["db", "web"]), (1, vec![missing.to_owned()]));
    }
}
