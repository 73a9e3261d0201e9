//! The verb `apply`: checks files and puts them into the directory that the running daemon watches.
//!
//! Invariants: nothing is written unless every file is good. The verb returns after the daemon has read the files,
//! so the next verb sees the objects of these files.

mod plan;
mod progress;
mod settle;
mod workloads;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use self::plan::{Plan, Verdict, plan};
use self::settle::Expected;
use super::args::{self, Opt, ROOT, Raw};
use super::client::Client;
use super::error::CliError;
use super::output::yaml;
use super::pod_files::{self, Content, Input, Objects, Source, Watched, objects};
use super::validate::{self, Node, Validate};
use super::wait;
use crate::api::decode;
use crate::pods::sources::files::is_pod_file;

/// The time limit of `--wait` if there is no `--timeout`.
const WAIT: Duration = Duration::from_secs(5 * 60);

/// The verb `apply`.
pub const VERB: args::Verb = args::Verb {
    name: "apply",
    summary: &[(
        "apply -f FILE",
        "check a file and put it into the daemon's directory",
    )],
    help: "\
usage: podprobe apply -f FILE|DIR|- [-f …] [--wait [--timeout=TIME]] [--root DIR]

Checks files as 'validate' does and puts each into the directory that the running daemon watches (staticPodPath), under
the same name; the daemon acts on it as on any other change there. With '-' it reads stdin; an object that a file there
has stays in that file, and a new one gets a file with its name. So it is with what 'get pod NAME -o yaml' prints. Of a
DIR it reads the files that end with .yaml, .yml or .json. Says of each object whether it is created, configured or
unchanged, and returns when the daemon has read it.

Nothing is written when one of the files has an error, when another file has one of its objects, or when the file that
it would replace has objects that it has not. Exit code 1 then.

  -f, --filename FILE      pods, Deployments, ConfigMaps, Services and other objects, JSON or YAML; may be repeated
      --wait               then wait until every pod of the files is ready or has done its work, every rollout is
                           complete, and every Job has completed
      --timeout=TIME       of --wait; default 5m
",
    options: &[
        ROOT,
        Opt::value("filename", Some('f')),
        Opt::flag("wait", None),
        Opt::value("timeout", None),
    ],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `apply`.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Sources of the objects. There is at least one source.
    files: Vec<Source>,
    /// Longest time to wait for pods and workloads (`--wait`); None means that the verb does not wait.
    pub wait: Option<Duration>,
}

fn parse(raw: &Raw) -> Result<Apply, String> {
    let files = pod_files::sources(raw)?;
    if files.is_empty() {
        return Err("'apply' needs a file: podprobe apply -f FILE, or -f - for stdin".into());
    }
    raw.no_words()?;
    let timeout = raw
        .text("timeout")?
        .map(|t| wait::timeout(&t))
        .transpose()?;
    let wait = match (raw.has("wait"), timeout) {
        (false, Some(_)) => return Err("--timeout is that of --wait, which is not given".into()),
        (false, None) => None,
        (true, timeout) => Some(timeout.unwrap_or(WAIT)),
    };
    Ok(Apply {
        root: raw.root()?,
        files,
        wait,
    })
}

/// A text that is to be written as a file.
struct New {
    bytes: Vec<u8>,
    /// Name of the text's source, for messages.
    shown: PathBuf,
    /// Name of the file in the daemon's directory. None means that an existing object stays in its present
    /// file, and a new object gets a file with its own name.
    name: Option<OsString>,
    /// True if the text is output of a daemon. Such a text has lost the user's remarks and order, so the file
    /// is left as it is if nothing changes.
    was_shown: bool,
}

/// Applies the files. Writes the outcome for each object to `out`. Writes errors, and fields that have no effect,
/// to `err`.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, or if a file is refused or cannot be written. With
/// `--wait`, also returns a [`CliError`] if a pod or workload does not become ready.
pub fn run(args: &Apply, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let inputs = pod_files::read(&args.files)?;
    let mut client = Client::connect(&args.root)?;
    let watched = Watched::of(&mut client)?;
    let new = all_new(inputs, &watched.node_name)?;
    check(args, &watched.node_name, &new, err)?;
    let snapshot = client.snapshot()?;
    let expected = {
        let _alone = watched.alone()?;
        let mut there = watched.all_there(&snapshot, &client.workloads(None)?)?;
        let plans = plans(&new, &watched, &mut there)?;
        for (new, plan) in new.iter().zip(&plans) {
            match plan {
                Some(plan) => write(new, plan, out)?,
                None => writeln!(out, "{}: nothing in it runs here", new.shown.display())?,
            }
        }
        out.flush()?;
        Expected::new(plans.iter().flatten(), &watched.node_name)
    };
    settle::until_read(&expected, &mut client, &snapshot, &watched, err)?;
    match args.wait {
        Some(time) => settle::until_ready(&expected, &args.root, time, (out, err)),
        None => Ok(()),
    }
}

/// Converts the inputs into texts to be written. If an input is output of a daemon, each object of the input
/// becomes a text of its own, in the form of a file.
fn all_new(inputs: Vec<Input>, node_name: &str) -> Result<Vec<New>, CliError> {
    let mut all = Vec::new();
    for input in inputs {
        if let Some(objects) = decode::as_in_files(&input.bytes, node_name) {
            all.extend(objects.iter().map(|object| New {
                bytes: yaml::document(object).into_bytes(),
                shown: input.shown.clone(),
                name: None,
                was_shown: true,
            }));
            continue;
        }
        all.push(New {
            name: input.path.as_deref().map(file_name).transpose()?,
            bytes: input.bytes,
            shown: input.shown,
            was_shown: false,
        });
    }
    Ok(all)
}

/// Checks the texts as `validate` does, with the daemon's node name. Advice that is not an error is also printed,
/// but does not stop the verb.
fn check(args: &Apply, node_name: &str, new: &[New], err: &mut dyn Write) -> Result<(), CliError> {
    let (node, _) = Node::of(&Validate {
        paths: Vec::new(),
        node_name: Some(node_name.to_owned()),
        root: args.root.clone(),
    });
    let mut is_refused = false;
    for New { bytes, shown, .. } in new {
        let decoded = validate::decode(bytes, &node, shown);
        is_refused |= !decoded.errors.is_empty();
        if !decoded.errors.is_empty() || decoded.has_advice() {
            validate::verdict(shown, &decoded, err)?;
        }
    }
    if is_refused && new.len() > 1 {
        writeln!(err, "nothing is written, because not every file is good")?;
    }
    match is_refused {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

/// Plans to which file each text is written. The plan is None for a text that has no objects for this node and
/// replaces no file. Updates `there`, the content of the directory, to the content after the plans are carried
/// out.
fn plans(
    new: &[New],
    watched: &Watched,
    there: &mut BTreeMap<PathBuf, Objects<Content>>,
) -> Result<Vec<Option<Plan>>, CliError> {
    let mut plans = Vec::new();
    for new in new {
        let mut all = objects(&new.bytes, &watched.node_name).map_err(CliError::Failed)?;
        if new.was_shown {
            take_over(&mut all, there);
        }
        let name = match &new.name {
            Some(name) => name.clone(),
            None => name_of(&new.bytes, &all).into(),
        };
        let named = watched.path.join(name);
        if all.is_empty() && !there.contains_key(&named) {
            plans.push(None);
            continue;
        }
        let plan = plan(&all, &named, new.name.is_none(), there).map_err(CliError::Failed)?;
        there.insert(plan.file.clone(), all);
        plans.push(Some(plan));
    }
    Ok(plans)
}

/// Replaces a pod from the daemon's output by the pod in the directory if these two pods differ only in the UID.
/// So the pod counts as unchanged.
fn take_over(shown: &mut Objects<Content>, there: &BTreeMap<PathBuf, Objects<Content>>) {
    for (key, content) in shown {
        let known = there.values().find_map(|objects| objects.get(key));
        if let (
            Content::Pod { without_uid: a, .. },
            Some(known @ Content::Pod { without_uid: b, .. }),
        ) = (&*content, known)
            && a == b
        {
            *content = known.clone();
        }
    }
}

fn write(new: &New, plan: &Plan, out: &mut dyn Write) -> Result<(), CliError> {
    let mut verdicts = plan.verdicts.iter();
    let is_same = verdicts.all(|(_, verdict)| *verdict == Verdict::Unchanged);
    let stays = new.was_shown && is_same;
    if !stays && fs::read(&plan.file).ok().as_ref() != Some(&new.bytes) {
        pod_files::put(&plan.file, &new.bytes)?;
    }
    for (object, verdict) in &plan.verdicts {
        writeln!(out, "{object} {}", verdict.as_str())?;
    }
    Ok(())
}

fn file_name(file: &Path) -> Result<OsString, CliError> {
    let name = file.file_name().filter(|name| is_pod_file(name));
    name.map(OsString::from).ok_or_else(|| {
        CliError::Failed(format!(
            "the daemon does not read files named like {}; give it another name",
            file.display()
        ))
    })
}

/// Returns the name of a new file: the name of the first pod, or if there is no pod, the name of the first object.
fn name_of(bytes: &[u8], all: &Objects<Content>) -> String {
    let is_pod = |key: &&String| key.starts_with("pod/");
    let first = all.keys().find(is_pod).or_else(|| all.keys().next());
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    // If the first object is not a pod, the name of the file contains its kind. Otherwise a Service would replace
    // the file of a pod with the same name.
    let name = first.map_or("objects", String::as_str);
    let name = name
        .trim_start_matches("pod/")
        .replace('/', "-")
        .replace(" in ", ".");
    format!("{name}.{}", if is_json { "json" } else { "yaml" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[test]
    fn files_and_how_long_to_wait() {
        let parsed = |line: &str| testing::parse(&VERB, parse, line);
        let files = |line: &str| parsed(line).map(|apply| apply.files);
        let path = |path: &str| Source::Path(path.into());
        assert_eq!(files("apply -f web.yaml"), Ok(vec![path("web.yaml")]));
        assert_eq!(files("apply --filename=-"), Ok(vec![Source::Stdin]));
        let several = vec![path("a"), Source::Stdin, path("b")];
        assert_eq!(files("apply -f a -f - -f b"), Ok(several));
        let needs = "'apply' needs a file: podprobe apply -f FILE, or -f - for stdin";
        assert_eq!(files("apply"), Err(needs.into()));
        assert!(files("apply web.yaml").is_err());
        assert!(files("apply -f - -f -").is_err());
        let wait = |line: &str| parsed(line).map(|apply| apply.wait);
        assert_eq!(wait("apply -f a"), Ok(None));
        assert_eq!(wait("apply -f a --wait"), Ok(Some(WAIT)));
        let a_minute = Ok(Some(Duration::from_secs(60)));
        assert_eq!(wait("apply -f a --wait --timeout=1m"), a_minute);
        assert!(wait("apply -f a --timeout=1m").is_err());
    }

    #[test]
    fn an_object_without_a_file_gets_one_of_its_name() {
        let name =
            |text: &str| name_of(text.as_bytes(), &objects(text.as_bytes(), "edge").unwrap());
        let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: shop}\n";
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
        assert_eq!(name(&format!("{map}---\n{pod}")), "web.yaml");
        assert_eq!(name(map), "configmap-m.shop.yaml");
        let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n";
        assert_eq!(name(job), "job.batch-j.yaml");
        let json = r#" {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}"#;
        assert_eq!(name(json), "configmap-m.json");
    }

    #[test]
    fn what_the_daemon_does_not_read_is_not_written() {
        assert!(file_name(Path::new("/a/web.yaml")).is_ok());
        for name in ["/a/.web", "/a/web.tmp", "/a/web~", "/"] {
            assert!(file_name(Path::new(name)).is_err(), "{name}");
        }
    }
}
