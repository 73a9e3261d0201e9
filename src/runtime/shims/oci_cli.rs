//! The command line of an OCI runtime, and what its error output means.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `<runtime> --root ROOT`, to which a verb and its arguments are added. Everything else about it is the caller's.
pub(super) fn command(runtime: &[PathBuf], root: &Path) -> Command {
    let mut c = Command::new(&runtime[0]);
    c.args(&runtime[1..]).arg("--root").arg(root);
    c
}

/// Longest error text passed on, in bytes.
const MAX_TEXT: usize = 1024;

/// What a person needs of an OCI runtime's error output: the message of its last error line, without time stamps, log
/// fields and the words every error of it starts with.
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
    // The embedded runtime says by its id which container it is; whoever is told knows that.
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

/// The `msg` of a logrus line, in its text or JSON form.
fn logged(line: &str) -> Option<String> {
    if line.starts_with('{') {
        return serde_json::from_str::<serde_json::Value>(line)
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

/// crun starts its lines with an RFC 3339 time and a colon.
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

/// 127 when the container's own command was not found, as a shell has it; 128 for everything else that never ran, a
/// missing source of a mount or working directory included.
pub(super) fn exit_code_of(text: &str) -> i32 {
    let text = text.to_ascii_lowercase();
    if is_about_the_command(&text)
        && [NO_SUCH_FILE, "not found"]
            .iter()
            .any(|cause| text.contains(cause))
    {
        127
    } else {
        128
    }
}

const NO_SUCH_FILE: &str = "no such file or directory";

/// runc and the embedded runtime say `exec: "<command>": <cause>`, runc's init `exec /<command>: <cause>` when the
/// interpreter is missing, crun ``executable file `<command>` not found`` and ``exec container process `<command>` ``;
/// other programs that runc runs are `fork/exec`.
fn is_about_the_command(text: &str) -> bool {
    let begins = |words: &str| {
        text.match_indices(words)
            .any(|(at, _)| at == 0 || text[..at].ends_with(": "))
    };
    begins("executable file `")
        || begins("exec container process `")
        || begins("exec: \"")
        || begins("exec /")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &str, code: i32) {
        let text = useful_sentence(output);
        assert_eq!((text.as_str(), exit_code_of(&text)), (expected, code));
    }

    #[test]
    fn the_sentence_is_found_in_each_runtime_s_output() {
        check(
            r#"time="2026-11-21T02:00:00Z" level=warning msg="x"
time="2026-11-21T02:00:00Z" level=error msg="runc create failed: unable to start container process: exec: \"/nope\": stat /nope: no such file or directory""#,
            r#"exec: "/nope": stat /nope: no such file or directory"#,
            127,
        );
        check(
            "2026-11-21T02:00:00.000000Z: executable file `/nope` not found in $PATH: No such file or directory",
            "executable file `/nope` not found in $PATH: No such file or directory",
            127,
        );
        check(
            r#"{"level":"error","msg":"permission denied","time":"t"}"#,
            "permission denied",
            128,
        );
        check("some text\nError: it broke\n", "it broke", 128);
        check(
            r#"cannot create container 12ab: exec: "nope": executable file not found in $PATH (/bin)"#,
            r#"exec: "nope": executable file not found in $PATH (/bin)"#,
            127,
        );
        check(
            "cannot start container 12ab: it broke: twice",
            "it broke: twice",
            128,
        );
        check("", "the OCI runtime gave no reason", 128);
    }

    #[test]
    fn only_the_containers_own_command_is_not_found() {
        for (text, code) in [
            (r#"exec: "/nope": no such file or directory"#, 127),
            (
                r#"cannot create the container: error during container init: exec: "nope": executable file not found in $PATH"#,
                127,
            ),
            (
                "cannot create the container: executable file `nope` not found: No such file or directory",
                127,
            ),
            (
                "cannot start the container: exec /run.sh: no such file or directory",
                127,
            ),
            (
                "cannot start the container: exec container process `/run.sh`: No such file or directory",
                127,
            ),
            (
                r#"error during container init: error mounting "/gone" to rootfs at "/x": stat /gone: no such file or directory"#,
                128,
            ),
            (
                r#"chdir to cwd ("/nope") set in config.json failed: no such file or directory"#,
                128,
            ),
            (
                "mount `/executable file `x` to `/y`: No such file or directory",
                128,
            ),
            (
                "error running prestart hook #0: fork/exec /bin/hook: no such file or directory",
                128,
            ),
            (
                "open `/sys/fs/cgroup/a/cgroup.procs`: No such file or directory",
                128,
            ),
            (r#"exec: "/data": permission denied"#, 128),
        ] {
            assert_eq!(exit_code_of(text), code, "{text}");
        }
    }
}
