//! Names of workloads on the command line: `deployment/web`, `deploy web db`, or a kind with `-l`.
//!
//! Invariants: pure. Without `-n`, a name may be of any namespace, but of one only.

use super::args::{Raw, SELECTOR};
use super::columns::string_map;
use super::get::kind::Kind;
use super::names::missing;
use super::selector::Selector;
use super::suggest::did_you_mean;
use crate::api::workload::WorkloadKind;
use crate::face::views::workloads;
use crate::workloads::view::WorkloadView;

/// A workload that the user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Name of the workload.
    pub name: String,
}

impl Named {
    /// Parses `KIND/NAME`. Returns None if the word is not of this form, or if the kind is not one of a workload.
    pub fn of_kind(word: &str) -> Option<Self> {
        let (kind, name) = word.split_once('/')?;
        Some(Self {
            kind: kind_of(kind).filter(|_| !name.is_empty())?,
            name: name.to_owned(),
        })
    }

    /// Returns the workloads of this kind and name, which are in several namespaces.
    pub fn all<'a>(
        &self,
        all: &'a [WorkloadView],
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &'a WorkloadView> {
        all.iter().filter(move |v| {
            workloads::kind(v) == Some(self.kind)
                && workloads::name(v) == self.name
                && namespace.is_none_or(|n| workloads::namespace(v) == n)
        })
    }

    /// Finds the workload.
    ///
    /// # Errors
    /// Returns a sentence if there is no such workload, or if several namespaces have one.
    pub fn find<'a>(
        &self,
        all: &'a [WorkloadView],
        namespace: Option<&str>,
    ) -> Result<&'a WorkloadView, String> {
        let mut found = self.all(all, namespace);
        let plural = workloads::plural(self.kind);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => {
                let of_kind = all.iter().filter(|v| workloads::kind(v) == Some(self.kind));
                let places = of_kind.map(|v| (workloads::namespace(v), workloads::name(v)));
                Err(missing(plural, &self.name, namespace, places))
            }
            (Some(first), Some(second)) => {
                let views = [first, second].into_iter().chain(found);
                let namespaces: Vec<&str> = views.map(workloads::namespace).collect();
                Err(format!(
                    "{plural} \"{}\" is in several namespaces: {}; choose one with -n",
                    self.name,
                    namespaces.join(", ")
                ))
            }
        }
    }
}

/// Returns the kind of workload for this word.
pub fn kind_of(word: &str) -> Option<WorkloadKind> {
    match Kind::of(word)? {
        Kind::Workload(kind) => Some(kind),
        _ => None,
    }
}

/// Tells whether the word, or its part before the slash, is a kind of workload.
pub fn is_word(word: &str) -> bool {
    let kind = word.split_once('/').map_or(word, |(kind, _)| kind);
    kind_of(kind).is_some()
}

/// The workloads that a command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// The workloads of these names.
    Named(Vec<Named>),
    /// All workloads of these kinds, or those with these labels.
    Kinds(Vec<WorkloadKind>, Option<Selector>),
}

impl Asked {
    /// Parses `KIND NAME…`, `KIND/NAME…`, `KIND`, or with `-l` the kinds `KIND[,KIND]…`.
    ///
    /// # Errors
    /// Returns a sentence if the words are not of these forms.
    pub fn parse(raw: &Raw, words: &[String]) -> Result<Self, String> {
        let selector = match raw.has(SELECTOR.name) {
            true => raw.selector()?,
            false => None,
        };
        let [first, names @ ..] = words else {
            return Err(needs(raw));
        };
        if first.contains('/') {
            if selector.is_some() {
                return Err("-l and names exclude each other".into());
            }
            return words
                .iter()
                .map(|word| pair(word))
                .collect::<Result<_, _>>()
                .map(Self::Named);
        }
        let kinds = first.split(',').map(known).collect::<Result<Vec<_>, _>>()?;
        match (names, kinds.as_slice()) {
            ([], _) => Ok(Self::Kinds(kinds, selector)),
            _ if selector.is_some() => Err("-l and names exclude each other".into()),
            (names, [kind]) => {
                let named = |word: &String| one(*kind, word);
                names
                    .iter()
                    .map(named)
                    .collect::<Result<_, _>>()
                    .map(Self::Named)
            }
            _ => Err("several kinds take no names; write KIND/NAME each".into()),
        }
    }

    /// Refuses a kind without names and labels, for verbs that would change all workloads of the kind.
    ///
    /// # Errors
    /// Returns a sentence that says what to write.
    pub fn chosen(self, raw: &Raw) -> Result<Self, String> {
        match self {
            Self::Kinds(_, None) => Err(needs(raw)),
            chosen => Ok(chosen),
        }
    }

    /// Finds the workloads. The second list has a sentence for each name that is not found.
    pub fn find<'a>(
        &self,
        all: &'a [WorkloadView],
        namespace: Option<&str>,
    ) -> (Vec<&'a WorkloadView>, Vec<String>) {
        let (mut found, mut lacking) = (Vec::new(), Vec::new());
        match self {
            Self::Named(names) => {
                for named in names {
                    match named.find(all, namespace) {
                        Ok(view) => found.push(view),
                        Err(why) => lacking.push(why),
                    }
                }
            }
            Self::Kinds(kinds, selector) => {
                let is_it = |view: &&WorkloadView| {
                    let labels = string_map(&view.object["metadata"]["labels"]);
                    workloads::kind(view).is_some_and(|kind| kinds.contains(&kind))
                        && namespace.is_none_or(|n| workloads::namespace(view) == n)
                        && selector.as_ref().is_none_or(|s| s.matches(&labels))
                };
                found.extend(all.iter().filter(is_it));
            }
        }
        (found, lacking)
    }
}

fn needs(raw: &Raw) -> String {
    let verb = raw.verb();
    format!("'{verb}' needs a workload: podprobe help {verb}")
}

fn known(word: &str) -> Result<WorkloadKind, String> {
    kind_of(word).ok_or_else(|| {
        let words = WorkloadKind::ALL.map(WorkloadKind::resource);
        let likely = did_you_mean(word, words, "");
        format!("'{word}' is no kind of workload{likely}; write KIND/NAME, such as deployment/web")
    })
}

fn pair(word: &str) -> Result<Named, String> {
    let (kind, name) = word.split_once('/').unwrap_or((word, ""));
    one(known(kind)?, name)
}

/// Parses `NAME` or `KIND/NAME` after a kind.
fn one(kind: WorkloadKind, word: &str) -> Result<Named, String> {
    let name = match word.split_once('/') {
        Some((before, name)) if kind_of(before) == Some(kind) => name,
        Some(_) => "",
        None => word,
    };
    match name.is_empty() {
        true => Err(format!("'{word}' is no name of a {}", kind.resource())),
        false => Ok(Named {
            kind,
            name: name.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;
    use crate::cli::rollout::VERB;

    fn asked(line: &str) -> Result<Asked, String> {
        let parse = |raw: &Raw| Asked::parse(raw, &raw.text_words()?);
        testing::parse(&VERB, parse, &format!("rollout {line}"))
    }

    #[track_caller]
    fn check(line: &str, expected: &[(WorkloadKind, &str)]) {
        let named = |(kind, name): &(WorkloadKind, &str)| Named {
            kind: *kind,
            name: (*name).to_owned(),
        };
        let expected = Asked::Named(expected.iter().map(named).collect());
        assert_eq!(asked(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(asked(line), Err(expected.into()), "{line}");
    }

    #[test]
    fn workloads_are_named_as_kubectl_names_them() {
        let web = (WorkloadKind::Deployment, "web");
        check("deploy/web", &[web]);
        check("deployment web", &[web]);
        check(
            "deployments.apps web db",
            &[web, (WorkloadKind::Deployment, "db")],
        );
        check(
            "deploy web deployment/db",
            &[web, (WorkloadKind::Deployment, "db")],
        );
        check(
            "deploy/web sts/db",
            &[web, (WorkloadKind::StatefulSet, "db")],
        );
        let kinds = vec![WorkloadKind::Deployment, WorkloadKind::DaemonSet];
        let selector = Selector::parse("a=b").ok();
        assert_eq!(asked("deploy,ds -l a=b"), Ok(Asked::Kinds(kinds, selector)));
        assert_eq!(
            asked("job"),
            Ok(Asked::Kinds(vec![WorkloadKind::Job], None))
        );
        check_error("", "'rollout' needs a workload: podprobe help rollout");
        check_error(
            "pod/web",
            "'pod' is no kind of workload; write KIND/NAME, such as deployment/web",
        );
        check_error(
            "deploment web",
            "'deploment' is no kind of workload, did you mean 'deployment'?; write KIND/NAME, such as deployment/web",
        );
        check_error("deploy/", "'' is no name of a deployment");
        check_error("deploy sts/db", "'sts/db' is no name of a deployment");
        check_error("deploy/web -l a=b", "-l and names exclude each other");
        check_error("deploy web -l a=b", "-l and names exclude each other");
        check_error(
            "deploy,ds web",
            "several kinds take no names; write KIND/NAME each",
        );
    }

    fn view(kind: &str, namespace: &str, name: &str) -> WorkloadView {
        let metadata = json!({"namespace": namespace, "name": name, "labels": {"name": name}});
        WorkloadView {
            object: json!({"kind": kind, "metadata": metadata}).into(),
            ..WorkloadView::default()
        }
    }

    #[track_caller]
    fn check_found(line: &str, namespace: Option<&str>, found: &[&str], lacking: &[&str]) {
        let all = [
            view("Deployment", "default", "web"),
            view("Deployment", "shop", "web"),
            view("Deployment", "shop", "cart"),
            view("Job", "default", "cart"),
        ];
        let (views, errors) = asked(line).unwrap().find(&all, namespace);
        let place =
            |v: &&WorkloadView| format!("{} {}", workloads::namespace(v), workloads::full_name(v));
        assert_eq!(views.iter().map(place).collect::<Vec<_>>(), found);
        assert_eq!(errors, lacking);
    }

    #[test]
    fn a_workload_is_found_in_its_namespace() {
        let web = "default deployment.apps/web";
        check_found("deploy/web", Some("default"), &[web], &[]);
        let several =
            "deployments.apps \"web\" is in several namespaces: default, shop; choose one with -n";
        check_found("deploy/web", None, &[], &[several]);
        let elsewhere =
            "deployments.apps \"cart\" not found; there is one in another namespace: -n shop";
        check_found("deploy/cart", Some("default"), &[], &[elsewhere]);
        let none = "jobs.batch \"crat\" not found, did you mean 'cart'?";
        check_found(
            "job/crat deploy/cart",
            None,
            &["shop deployment.apps/cart"],
            &[none],
        );
        check_found(
            "deploy,job -l name=cart",
            None,
            &["shop deployment.apps/cart", "default job.batch/cart"],
            &[],
        );
        check_found("job", Some("shop"), &[], &[]);
    }
}
