//! The conformance vectors: every case of tests/vectors/*.json, or of the directory `PODPROBE_VECTORS` names, through
//! the functions the daemon runs.
//!
//! Nothing is left out in silence: an unknown file, group, field or word fails, and so does a case described in
//! words without a test of its id. Cases that a decision of podprobe overrules are listed with the
//! reason, and so are cases that need root. Understands libtest's `--list`, `--exact` and filters; a
//! test is `<file>::<group>`.

#[path = "support/wings/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/probed.rs"]
mod probed;
mod vector_groups;
mod workload_vectors;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

// The file of the wings finds them by these names.
use podprobe::{api, base, engine};
use serde_json::Value;
use vector_groups::{
    Case, FILES, Group, Passed, Rows, Run, Test, Verdict, cases, harness, http, same_words,
};

fn main() -> ExitCode {
    // A process of its own for the one case that is about the environment.
    if std::env::var_os(http::PROXY_CHILD).is_some() {
        http::proxy_child();
        return ExitCode::SUCCESS;
    }
    let args = Args::parse(std::env::args().skip(1));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let given = std::env::var_os("PODPROBE_VECTORS").map(PathBuf::from);
    let mut report = Report::default();
    let found = read(given.as_deref().unwrap_or(&own), &mut report);
    report.own = read(&own, &mut Report::default());
    for (file, groups) in FILES {
        let Some(mut values) = found.get(*file).cloned() else {
            report.absent(file, "*", given.is_none());
            continue;
        };
        for group in *groups {
            let value = values.shift_remove(group.key);
            if !args.wants(
                &format!("{file}::{}", group.key),
                matches!(group.run, Run::Text),
            ) {
                continue;
            }
            match value {
                Some(value) if args.list => report.list(file, group, &value),
                Some(value) => report.run(file, group, &value),
                None => report.absent(file, group.key, given.is_none()),
            }
        }
        for key in values.keys() {
            report.problem(format!("{file}: unknown group \"{key}\": nothing runs it"));
        }
    }
    let directory = given.as_deref().unwrap_or(&own);
    let has_workloads = directory.join(workload_vectors::DIRECTORY).is_dir();
    if !has_workloads {
        report.absent(workload_vectors::DIRECTORY, "*", given.is_none());
    }
    let groups = workload_vectors::groups()
        .into_iter()
        .filter(|_| has_workloads);
    for (group, run) in groups {
        let name = format!("{}::{group}", workload_vectors::DIRECTORY);
        match args.wants(&name, false) {
            true if args.list => println!("{name}: test"),
            true => report.tell(
                workload_vectors::DIRECTORY,
                group,
                workload_vectors::run(directory, group, run),
            ),
            false => {}
        }
    }
    for file in workload_vectors::unknown(directory) {
        report.problem(format!("workloads/{file}: nothing runs it"));
    }
    if given.is_none() && args.wants("harness::trials", false) {
        match args.list {
            true => println!("harness::trials: test"),
            false => report.tell("harness", "trials", harness::check()),
        }
    }
    report.finish(&args)
}

/// The objects of all files by the files' names.
fn read(dir: &Path, report: &mut Report) -> BTreeMap<String, serde_json::Map<String, Value>> {
    let mut found = BTreeMap::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) => {
            report.problem(format!("cannot list {}: {e}", dir.display()));
            return found;
        }
    };
    for path in entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
    {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let parsed = std::fs::read(&path)
            .map_err(|e| e.to_string())
            .and_then(|b| serde_json::from_slice(&b).map_err(|e| e.to_string()));
        match parsed {
            Ok(Value::Object(_)) if !FILES.iter().any(|(file, _)| *file == name) => {
                report.problem(format!("unknown file {}: nothing runs it", path.display()));
            }
            Ok(Value::Object(groups)) => drop(found.insert(name, groups)),
            Ok(_) => report.problem(format!("{} holds no object of groups", path.display())),
            Err(e) => report.problem(format!("cannot read {}: {e}", path.display())),
        }
    }
    found
}

#[derive(Default)]
struct Args {
    list: bool,
    ignored: bool,
    exact: bool,
    filters: Vec<String>,
}

impl Args {
    fn parse(given: impl Iterator<Item = String>) -> Self {
        let mut args = Self::default();
        let mut given = given;
        while let Some(arg) = given.next() {
            match arg.as_str() {
                "--list" => args.list = true,
                "--ignored" => args.ignored = true,
                "--exact" => args.exact = true,
                // Options of libtest with a value; they change nothing here.
                "--format" | "--test-threads" | "--color" | "--skip" | "-Z" => drop(given.next()),
                flag if flag.starts_with('-') => {}
                filter => args.filters.push(filter.into()),
            }
        }
        args
    }

    fn wants(&self, name: &str, always: bool) -> bool {
        let fits = |f: &String| {
            if self.exact {
                name == f
            } else {
                name.contains(f.as_str())
            }
        };
        !self.ignored
            && (always && !self.list || self.filters.is_empty() || self.filters.iter().any(fits))
    }
}

#[derive(Default)]
struct Report {
    /// Our own copy of the vectors.
    own: BTreeMap<String, serde_json::Map<String, Value>>,
    passed: usize,
    overruled: usize,
    skipped: usize,
    problems: Vec<String>,
}

impl Report {
    fn problem(&mut self, text: String) {
        println!("FAILED {text}");
        self.problems.push(text);
    }

    fn absent(&mut self, file: &str, key: &str, fails: bool) {
        if fails {
            self.problem(format!("{file} {key}: not there"));
        } else {
            eprintln!("{file:<12} {key:<24} not there");
        }
    }

    fn list(&self, file: &str, group: &Group, value: &Value) {
        if !matches!(group.run, Run::Text) && !value.is_null() {
            println!("{file}::{}: test", group.key);
        }
    }

    fn run(&mut self, file: &str, group: &Group, value: &Value) {
        let verdicts: Rows = match group.run {
            Run::Text if value.is_string() => return,
            Run::Text => vec![(group.key.into(), Err("expected a text".into()))],
            Run::Each(run) => cases(group.key, value)
                .into_iter()
                .map(|c| (c.id.clone(), guarded(|| run(&c))))
                .collect(),
            Run::Told(tests) => {
                let own = self
                    .own
                    .get(file)
                    .and_then(|groups| groups.get(group.key))
                    .cloned()
                    .unwrap_or_default();
                let one = |c: Case| match told(tests, &c) {
                    Ok(_) if !same_words(group.key, &c.id, value, &own) => (
                        c.id,
                        Err("the test of this id was written for other words".into()),
                    ),
                    verdict => (c.id, verdict),
                };
                cases(group.key, value).into_iter().map(one).collect()
            }
            Run::Rows(run) => match catch_unwind(|| run(value)) {
                Ok(Ok(verdicts)) => verdicts,
                Ok(Err(e)) => vec![(group.key.into(), Err(e))],
                Err(panic) => vec![(group.key.into(), Err(panic_text(&*panic)))],
            },
        };
        self.tell(file, group.key, verdicts);
    }

    fn tell(&mut self, file: &str, key: &str, verdicts: Rows) {
        let (mut passed, mut overruled, mut skipped, mut failed) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let total = verdicts.len();
        for (id, verdict) in verdicts {
            match verdict {
                Ok(Passed::AsTold) => passed.push(id),
                Ok(Passed::Overruled(reason)) => overruled.push((id, reason)),
                Ok(Passed::Skipped(reason)) => skipped.push((id, reason)),
                Err(text) => failed.push((id, text)),
            }
        }
        let count = |n: usize, what: &str| {
            if n == 0 {
                String::new()
            } else {
                format!(", {n} {what}")
            }
        };
        let rest = [
            count(overruled.len(), "overruled"),
            count(skipped.len(), "skipped"),
            count(failed.len(), "FAILED"),
        ]
        .concat();
        println!(
            "{file:<12} {key:<24} {total:>3} cases: {} passed{rest}",
            passed.len()
        );
        if !passed.is_empty() {
            println!("    passed: {}", passed.join(" "));
        }
        overruled
            .iter()
            .for_each(|(id, reason)| println!("    overruled: {id}: {reason}"));
        skipped
            .iter()
            .for_each(|(id, reason)| println!("    skipped: {id}: {reason}"));
        (self.passed, self.overruled, self.skipped) = (
            self.passed + passed.len(),
            self.overruled + overruled.len(),
            self.skipped + skipped.len(),
        );
        failed
            .into_iter()
            .for_each(|(id, text)| self.problem(format!("{file} {key} {id}: {text}")));
        if total == 0 {
            self.problem(format!("{file} {key}: no case in it"));
        }
    }

    fn finish(self, args: &Args) -> ExitCode {
        if !args.list {
            let Self {
                passed,
                overruled,
                skipped,
                ref problems,
                ..
            } = self;
            println!(
                "\nvectors: {passed} passed, {overruled} overruled by a decision, {skipped} skipped, {} failed",
                problems.len()
            );
            problems.iter().for_each(|p| println!("    {p}"));
        }
        if self.problems.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn told(tests: &[Test], case: &Case) -> Verdict {
    match tests.iter().find(|(id, _)| *id == case.id) {
        Some((_, test)) => guarded(|| test(case)),
        None => Err("told in words, and there is no test of this id".into()),
    }
}

fn guarded(run: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panic_text(&*panic)))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("panicked: {text}")
}
