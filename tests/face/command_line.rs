//! What a shell and a terminal make of the command line: completion, the manual page, colours.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::pty::openpty;

use crate::support::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_podprobe");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program with a text on its stdin; None, and said so, where it is not installed.
#[track_caller]
fn piped(words: &[&str], stdin: &str) -> Option<Output> {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "100")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip::skip(&format!("needs {}", words[0]));
        return None;
    };
    let mut to = child.stdin.take().unwrap();
    let stdin = stdin.to_owned();
    let writer = std::thread::spawn(move || {
        // A program that has refused the text may be gone.
        let _ = to.write_all(stdin.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Some(output)
}

fn printed(words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A stand-in for podprobe that knows two pods, two Deployments and a Job, and writes down what it is asked.
fn pods_program(dir: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("podprobe");
    let asked = dir.join("asked");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>'{}'\ncase $2 in\ndeploy*) printf 'deployment.apps/web\\ndeployment.apps/db\\n' ;;\n\
         job*) echo job.batch/backup ;;\n*) printf 'pod/web-edge\\npod/db-edge\\n' ;;\nesac\n",
        asked.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// What bash offers at the end of the line, which has one word for each of `words`.
#[track_caller]
fn completed(program: &str, words: &[&str]) -> Option<Vec<String>> {
    let quoted = |word: &&str| format!("'{word}'");
    let line: Vec<String> = [program].iter().chain(words).map(quoted).collect();
    let script = format!(
        "set -u\n{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_podprobe\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        printed(&["completion", "bash"]),
        line.join(" "),
        words.len()
    );
    let output = piped(&["bash", "--norc"], &script)?;
    assert_eq!(text(&output.stderr), "", "{words:?}");
    let lines = text(&output.stdout);
    Some(
        lines
            .lines()
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

#[test]
fn bash_completes_verbs_nouns_options_and_pods() {
    let dir = tempfile::tempdir().unwrap();
    let program = pods_program(dir.path());
    let check = |line: &str, expected: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(got) = completed(&program, &words) {
            assert_eq!(got.join(" "), expected, "{line}");
        }
    };
    check("lo", "logs");
    check("--root /r des", "describe");
    check("--root = /r des", "describe");
    check("image ins", "inspect");
    check("completion ", "bash zsh fish");
    check("logs web --ta", "--tail");
    check("logs --tail 5 w", "web-edge");
    check("logs ", "web-edge db-edge");
    check("describe pod d", "db-edge");
    check("get pods web-edge d", "db-edge");
    check("help vers", "version");
    // Workloads have a kind before their names.
    check("exec deploy/w", "deploy/web");
    check("scale deployments.apps/w", "");
    check("logs deployment/", "deployment/web deployment/db");
    check("rollout undo deploy ", "web db");
    check("rollout undo dep", "deployment");
    check("scale st", "statefulset");
    check("get deploy d", "db");
    check("delete dep", "deployment");
    check("delete w", "web-edge");
    check("rerun ", "backup");
    check("create job ", "");
    // A path is no kind.
    check("validate tests/w", "");
    // The value of an option is no verb, and not completed from the table.
    check("logs --container ", "");
    let asked = dir.path().join("asked");
    std::fs::remove_file(&asked).unwrap();
    check("--root /r logs -n x w", "web-edge");
    let asked = std::fs::read_to_string(asked).unwrap();
    assert_eq!(asked, "get pods -o name --root /r -n x\n");
}

/// It calls the real program, and nothing is said where no daemon runs.
#[test]
fn without_a_daemon_no_pod_is_completed() {
    let none = completed(PROGRAM, &["--root", "/nonexistent", "logs", ""]);
    assert_eq!(none.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn shellcheck_finds_nothing_in_the_completion_of_bash() {
    let script = printed(&["completion", "bash"]);
    if let Some(output) = piped(&["shellcheck", "--shell=bash", "-"], &script) {
        assert!(output.status.success(), "{}", text(&output.stdout));
    }
}

#[test]
fn zsh_and_fish_can_read_their_completions() {
    for (shell, check) in [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])] {
        let script = printed(&["completion", shell]);
        if let Some(output) = piped(&check, &script) {
            assert_eq!(text(&output.stderr), "", "{shell}");
            assert!(output.status.success(), "{shell}");
        }
    }
}

#[test]
fn the_manual_page_is_rendered_without_a_warning() {
    let page = printed(&["man"]);
    let Some(output) = piped(&["man", "--warnings", "-l", "-"], &page) else {
        return;
    };
    assert_eq!(text(&output.stderr), "");
    let shown = text(&output.stdout);
    for part in [
        "podprobe logs POD [-c CONTAINER | --all-containers]",
        "-f, --follow",
        "keep printing until the container ends",
        "PODPROBE_ROOT",
        "check-host",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
}

/// What check-host shows on a terminal.
fn on_a_terminal(variables: &[(&str, &str)]) -> String {
    let terminal = openpty(None, None).unwrap();
    let mut master = File::from(terminal.master);
    let mut command = Command::new(PROGRAM);
    command.args(["check-host", "--root", "/nonexistent"]);
    command.env_remove("NO_COLOR").env("TERM", "xterm");
    command.envs(variables.iter().copied());
    command.stdout(Stdio::from(terminal.slave));
    let mut child = command.spawn().unwrap();
    // Its end of the terminal closes with it, and the read fails then.
    drop(command);
    let mut shown = Vec::new();
    let _ = master.read_to_end(&mut shown);
    child.wait().unwrap();
    text(&shown)
}

#[test]
fn a_terminal_gets_colours_unless_it_refuses_them_and_a_pipe_gets_none() {
    assert!(on_a_terminal(&[]).contains("\x1b[32mPASS\x1b[0m  kernel"));
    for refused in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let shown = on_a_terminal(&refused);
        assert!(
            shown.contains("PASS  kernel") && !shown.contains('\x1b'),
            "{shown}"
        );
    }
    let mut piped = Command::new(PROGRAM);
    piped.args(["check-host", "--root", "/nonexistent"]);
    let output = piped.env("TERM", "xterm").output().unwrap();
    let shown = text(&output.stdout);
    assert!(
        shown.contains("PASS  kernel") && !shown.contains('\x1b'),
        "{shown}"
    );
}
