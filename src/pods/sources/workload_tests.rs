//! Workloads of files, through the real decoder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{Files, Listing, Step};
use super::problem::FileProblem;
use super::read::sha256;
use super::reading::{ContentError, Reading};
use crate::api::PodOrigin;
use crate::api::decode;
use crate::base::clock::Moment;

fn deployment(name: &str, app: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  selector: {{matchLabels: {{app: {app}}}}}\n  template:\n    metadata: {{labels: {{app: {app}}}}}\n    spec: {{containers: [{{name: c, image: 'i:1'}}]}}\n"
    )
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: 'i:1'}]}\n";

const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n";

fn at(ms: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(ms))
}

fn parsed(path: &str, text: &str) -> (PathBuf, Reading) {
    let origin = PodOrigin::File {
        node_name: "node",
        path: Path::new(path),
    };
    let reading = Reading::Parsed {
        signature: None,
        digest: sha256(text.as_bytes()),
        result: decode::objects(text.as_bytes(), &origin).map_err(ContentError::from),
    };
    (path.into(), reading)
}

fn files() -> Files {
    Files::new("/p".into(), Default::default())
}

fn step(files: &mut Files, ms: u64, there: &[(&str, &str)]) -> Step {
    let there = there.iter().map(|(path, text)| parsed(path, text));
    files.step(at(ms), Listing::Dir(there.collect()))
}

/// Each workload of the step as `name replicas file`.
fn shown(step: &Step) -> Vec<String> {
    let workloads = step.workloads.iter().flatten();
    let show = |filed: &super::FiledWorkload| {
        let replicas = filed.workload.raw.at("/spec/replicas").unwrap_or_default();
        let name = &filed.workload.metadata.name;
        format!("{name} {replicas} {}", filed.file.file)
    };
    workloads.map(show).collect()
}

fn problems(step: &Step) -> Vec<&str> {
    step.problems.iter().map(|p| p.error.as_str()).collect()
}

#[test]
fn a_file_with_pods_and_workloads_has_both() {
    let mut files = files();
    let both = format!("{POD}---\n{}---\n{INGRESS}", deployment("web", "web", 2));
    let step = step(&mut files, 0, &[("/p/a", &both)]);
    assert_eq!(step.set.as_ref().map(Vec::len), Some(1));
    assert_eq!(shown(&step), ["web 2 /p/a"]);
    assert!(
        step.workloads.unwrap()[0].file.warnings.is_empty(),
        "the pod has the notes"
    );
}

#[test]
fn a_file_without_pods_has_its_notes_with_its_first_workload() {
    let mut files = files();
    let both = format!(
        "{}---\n{INGRESS}---\n{}",
        deployment("a", "a", 1),
        deployment("b", "b", 1)
    );
    let step = step(&mut files, 0, &[("/p/a", &both)]);
    let warnings: Vec<usize> = step
        .workloads
        .iter()
        .flatten()
        .map(|it| it.file.warnings.len())
        .collect();
    assert_eq!(warnings, [1, 0]);
    assert_eq!(step.log, [""; 0], "no line beside the warning");
}

#[test]
fn a_policy_that_nobody_enforces_is_a_problem_of_a_file_in_use() {
    let mut files = files();
    let policy =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed}\n";
    let step = step(&mut files, 0, &[("/p/a", &format!("{POD}---\n{policy}"))]);
    let expected = "NetworkPolicy \"closed\": not run here: it is NOT enforced: nothing restricts the connections of pods here";
    assert_eq!(problems(&step), [expected]);
    assert!(step.problems[0].is_in_use);
}

#[test]
fn a_bad_file_keeps_its_last_good_workload() {
    let mut files = files();
    step(&mut files, 0, &[("/p/a", &deployment("web", "web", 1))]);
    let bad = deployment("web", "web", 2).replace("image", "imag");
    let step = step(&mut files, 10, &[("/p/a", &bad), ("/p/b", &bad)]);
    assert_eq!(shown(&step), ["web 1 /p/a"]);
    let word = |p: &FileProblem| format!("{} {}", p.file, p.word());
    let words: Vec<String> = step.problems.iter().map(word).collect();
    assert_eq!(words, ["/p/a last good version runs", "/p/b not in use"]);
    assert!(step.problems.iter().all(|problem| !problem.is_valid));
    let error = step.workloads.as_ref().unwrap()[0]
        .file
        .file_error
        .as_deref();
    assert!(
        error.is_some_and(|e| e.contains("spec.template.spec.containers[0].imag")),
        "{error:?}"
    );
    assert!(
        step.log[0].ends_with("; its last good version stays"),
        "{:?}",
        step.log
    );
}

#[test]
fn a_field_that_may_not_change_refuses_the_file_and_says_what_to_do() {
    let mut files = files();
    step(&mut files, 0, &[("/p/a", &deployment("web", "web", 1))]);
    let step_2 = step(&mut files, 10, &[("/p/a", &deployment("web", "other", 2))]);
    assert_eq!(shown(&step_2), ["web 1 /p/a"]);
    assert_eq!(
        problems(&step_2),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"other\"}}: field is immutable: Deployment default/web goes on as it was; give the field its old value again, or delete the workload and apply the file anew, or give the new one another name"
        ]
    );
    assert!(step_2.problems[0].is_valid, "validate finds nothing");
    // The workload leaves the file, and comes back.
    let without = step(&mut files, 20, &[("/p/a", POD)]);
    assert_eq!(shown(&without), [""; 0]);
    let again = step(&mut files, 30, &[("/p/a", &deployment("web", "other", 2))]);
    assert_eq!(
        (shown(&again), problems(&again)),
        (vec!["web 2 /p/a".into()], vec![])
    );
}

#[test]
fn a_field_that_may_not_change_refuses_the_file_also_after_a_restart() {
    let mut files = files();
    let (path, old) = parsed("/p/a", &deployment("web", "web", 1));
    let Reading::Parsed { digest, result, .. } = old else {
        panic!("parsed")
    };
    files.restore(&path, digest, result);
    let step = step(&mut files, 0, &[("/p/a", &deployment("web", "other", 1))]);
    assert_eq!((shown(&step).len(), problems(&step).len()), (1, 1));
}

#[test]
fn a_deleted_file_takes_its_workload_only_when_it_stays_away() {
    let mut files = files();
    let text = deployment("web", "web", 1);
    step(&mut files, 0, &[("/p/a", &text)]);
    let gone = step(&mut files, 10, &[]);
    assert_eq!((shown(&gone).len(), gone.wake), (1, Some(at(110))));
    assert_eq!(
        shown(&step(&mut files, 60, &[("/p/a", &text)])),
        ["web 1 /p/a"]
    );
    step(&mut files, 70, &[]);
    assert_eq!(shown(&step(&mut files, 170, &[])), [""; 0]);
}

#[test]
fn a_renamed_file_keeps_its_workload_all_the_time() {
    let mut files = files();
    let text = deployment("web", "web", 1);
    step(&mut files, 0, &[("/p/a", &text)]);
    let renamed = step(&mut files, 10, &[("/p/b", &text)]);
    assert_eq!(shown(&renamed), ["web 1 /p/b"]);
    assert_eq!(
        shown(&step(&mut files, 200, &[("/p/b", &text)])),
        ["web 1 /p/b"]
    );
}

#[test]
fn of_two_files_with_one_workload_the_first_stays_and_the_other_is_told() {
    let mut files = files();
    step(&mut files, 0, &[("/p/b", &deployment("web", "web", 1))]);
    let two = [
        ("/p/a", &*deployment("web", "web", 2)),
        ("/p/b", &*deployment("web", "web", 1)),
    ];
    step(&mut files, 10, &two);
    let step = step(&mut files, 500, &two);
    assert_eq!(shown(&step), ["web 1 /p/b"]);
    assert_eq!(
        problems(&step),
        [
            "Deployment default/web in /p/a is ignored: /p/b has it too and comes first; remove one of the two"
        ]
    );
}

#[test]
fn the_answer_of_a_url_has_workloads_too() {
    let mut files = Files::new("http://a/".into(), Default::default());
    let (_, reading) = parsed("http://a/", &deployment("web", "web", 1));
    let good = files.step(at(0), Listing::File(reading));
    assert_eq!(shown(&good), ["web 1 http://a/"]);
    let failed = files.step(at(10), Listing::File(Reading::Failed("no answer".into())));
    assert_eq!(shown(&failed), ["web 1 http://a/"]);
}

#[test]
fn workloads_are_not_known_before_a_directory_is_listed() {
    let unreadable = files().step(at(0), Listing::Unreadable("EIO".into()));
    assert!(unreadable.workloads.is_none());
    let (_, bad) = parsed("/p", "{");
    let never_good = files().step(at(0), Listing::File(bad));
    assert!(never_good.workloads.is_none());
}
