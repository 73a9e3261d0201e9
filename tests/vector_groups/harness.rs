//! The harness itself, run as a child on vectors defined here: it must refuse bad ones and run new
//! ones.

use std::process::Command;

use serde_json::{Value, json};

use super::{AS_TOLD, Rows, Verdict, ensure};

/// A directory of vectors, whether it passes, and what the report says of it.
struct Trial {
    name: &'static str,
    file: &'static str,
    content: Value,
    passes: bool,
    says: &'static str,
}

fn trial(name: &'static str, file: &'static str, content: Value, says: &'static str) -> Trial {
    Trial {
        name,
        file,
        content,
        passes: says.contains("passed"),
        says,
    }
}

fn sequence(more: Value) -> Value {
    let mut case = json!({"id": "unseen-1", "probe": "liveness", "failureThreshold": 2, "handler": ["F", "F"], "cached": ["Success", "Failure"]});
    for (key, value) in more.as_object().into_iter().flatten() {
        case[key] = value.clone();
    }
    json!({"sequences": [case]})
}

/// A failure of one instance and one of the next, and the run that is told then.
fn over_a_restart(run: u32) -> Value {
    let steps = json!([{"handler": "F", "cached": "Failure", "run": 1},
        {"newContainerID": true, "handler": "F", "cached": "Failure", "run": run}]);
    json!({"sequences": [{"id": "unseen-2", "probe": "readiness", "failureThreshold": 3, "steps": steps}]})
}

fn trials() -> Vec<Trial> {
    let name = |words: &str| json!({"mux": [{"id": "mx-1", "upstreamTest": "T", "expect": words}]});
    vec![
        trial(
            "unseen-case",
            "worker",
            sequence(json!({})),
            "worker       sequences                  1 cases: 1 passed",
        ),
        trial(
            "carried-over",
            "worker",
            over_a_restart(2),
            "1 cases: 0 passed, 1 overruled",
        ),
        trial(
            "not-carried-over",
            "worker",
            over_a_restart(3),
            "run of Readiness after step 1: expected 3, got 1",
        ),
        trial(
            "unseen-name",
            "validation",
            json!({"portName": {"good": ["abc"], "bad": ["ABC!"]}}),
            "2 cases: 2 passed",
        ),
        trial(
            "wrong-value",
            "worker",
            sequence(json!({"cached": ["Failure", "Failure"]})),
            "expected Some(Failure), got Some(Success)",
        ),
        trial("unknown-file", "surprise", json!({}), "unknown file"),
        trial(
            "unknown-group",
            "worker",
            json!({"surprise": []}),
            "unknown group \"surprise\"",
        ),
        trial(
            "unknown-field",
            "worker",
            sequence(json!({"surprise": 1})),
            "unknown field `surprise`",
        ),
        trial(
            "unknown-word",
            "worker",
            json!({"step": [{"id": "s", "status": "sleeping", "cont": true, "cached": null}]}),
            "unknown status",
        ),
        trial(
            "missing-field",
            "worker",
            json!({"restartRules": [{"id": "r"}]}),
            "missing field",
        ),
        trial(
            "told-without-a-test",
            "config",
            json!({"mux": [{"id": "mx-99", "expect": "x"}]}),
            "there is no test of this id",
        ),
        trial(
            "told-in-other-words",
            "config",
            name("something else"),
            "the test of this id was written for other words",
        ),
        trial(
            "empty-group",
            "worker",
            json!({"sequences": []}),
            "no case in it",
        ),
        trial(
            "no-object",
            "worker",
            json!([]),
            "holds no object of groups",
        ),
    ]
}

/// The name of each trial and what came of it.
pub fn check() -> Rows {
    trials()
        .into_iter()
        .map(|t| (t.name.to_owned(), run(&t)))
        .collect()
}

fn run(trial: &Trial) -> Verdict {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    std::fs::write(
        dir.path().join(trial.file).with_extension("json"),
        trial.content.to_string(),
    )
    .map_err(|e| e.to_string())?;
    let child = std::env::current_exe().and_then(|exe| {
        Command::new(exe)
            .env("PODPROBE_VECTORS", dir.path())
            .output()
    });
    let child = child.map_err(|e| format!("cannot run the harness: {e}"))?;
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    ensure(
        child.status.success() == trial.passes,
        &format!(
            "it {}: {said}",
            if trial.passes { "passes" } else { "fails" }
        ),
    )?;
    ensure(
        said.contains(trial.says),
        &format!("{:?} in {said}", trial.says),
    )?;
    AS_TOLD
}
