//! The command line of an OCI runtime, and the meaning of its error output.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the command `<runtime> --root ROOT`. The caller adds the verb, its arguments and the streams.
pub(super) fn command(runtime: &[PathBuf], root: &Path) -> Command {
    let mut c = Command::new(&runtime[0]);
    c.args(&runtime[1..]).arg("--root").arg(root);
    // The embedded runtime copies its own process for the container's first process. So its environment must be empty:
    // otherwise the daemon's environment would be in the memory of the first process.
    if runtime.len() > 1 {
        c.env_clear();
    }
    c
}

/// Maximum length in bytes of the error text that is passed on.
const MAX_TEXT: usize = 1024;

/// Cuts an OCI runtime's error output down to the useful part: the message of its last error line. Time stamps, log
/// fields and the prefixes that every error of the runtime has are removed.
pub(super) fn useful_sentence(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|l| !l.is_empty());
    let of_error = lines().rfind(|l| {
        l.contains("level=error") || l.contains("\"level\":\"error\"") || l.starts_with("Error:")
    });
    let line = of_error
        .or_else(|| lines().next_back())
        .unwrap_or("the OCI runtime gave no reason");
    let mut text = logged(line).unwrap_or_else(|| without_time(line).to_owned());
    for prefix in [
        "Error: ",
        "runc create failed: ",
        "runc run failed: ",
        "unable to start container process: ",
        "error executing hook: ",
    ] {
        if let Some(rest) = text.strip_prefix(prefix) {
            text = rest.to_owned();
        }
    }
    // The embedded runtime names the container by its id. The reader knows the container already.
    for prefix in ["cannot create container ", "cannot start container "] {
        let rest = text.strip_prefix(prefix).and_then(|r| r.split_once(": "));
        if let Some((_, rest)) = rest {
            text = rest.to_owned();
        }
    }
    let end = (0..=MAX_TEXT.min(text.len()))
        .rev()
        .find(|&n| text.is_char_boundary(n))
        .unwrap_or(0);
    text.truncate(end);
    text
}

/// Returns the `msg` field of a logrus line, in text or JSON form; None if the line has no such field.
fn logged(line: &str) -> Option<String> {
    if line.starts_with('{') {
        return serde_json::from_slice::<serde_json::Value>(line.as_bytes())
            .ok()?
            .get("msg")?
            .as_str()
            .map(str::to_owned);
    }
    let message = line.split_once("msg=\"")?.1.strip_suffix('"')?;
    Some(
        message
            .replace("\\\"", "\"")
            .replace("\\n", " ")
            .replace("\\\\", "\\"),
    )
}

/// Removes the RFC 3339 time and the colon with which crun begins its lines.
fn without_time(line: &str) -> &str {
    match line.split_once(": ") {
        Some((time, rest))
            if time.starts_with(|c: char| c.is_ascii_digit()) && time.ends_with('Z') =>
        {
            rest
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &str) {
        assert_eq!(useful_sentence(output), expected);
    }

    #[test]
    fn the_sentence_is_found_in_each_runtime_s_output() {
        check(
            r#"time="2026-11-21T02:00:00Z" level=warning msg="x"
time="2026-11-21T02:00:00Z" level=error msg="runc create failed: unable to start container process: exec: \"/nope\": stat /nope: no such file or directory""#,
            r#"exec: "/nope": stat /nope: no such file or directory"#,
        );
        check(
            "2026-11-21T02:00:00.000000Z: executable file `/nope` not found in $PATH: No such file or directory",
            "executable file `/nope` not found in $PATH: No such file or directory",
        );
        check(
            r#"{"level":"error","msg":"permission denied","time":"t"}"#,
            "permission denied",
        );
        check("some text\nError: it broke\n", "it broke");
        check(
            r#"cannot create container 12ab: exec: "nope": executable file not found in $PATH (/bin)"#,
            r#"exec: "nope": executable file not found in $PATH (/bin)"#,
        );
        check(
            "cannot start container 12ab: it broke: twice",
            "it broke: twice",
        );
        check("", "the OCI runtime gave no reason");
    }
}
