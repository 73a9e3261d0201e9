//! The reason and the termination message of a container that has ended (kubelet-probes 8.8).

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::cri_log::rotated;

/// Maximum number of bytes that are read from the end of the termination-log file.
pub const MAX_MESSAGE: u64 = 4096;
/// Maximum size in bytes of a message that is taken from the log.
pub const MAX_LOG_BYTES: usize = 2048;
/// Maximum number of lines of a message that is taken from the log.
pub const MAX_LOG_LINES: usize = 80;

/// Returns `state.terminated.reason` for an exit code.
pub fn reason(code: i32, oom_killed: bool) -> &'static str {
    match (code, oom_killed) {
        (0, _) => "Completed",
        (_, true) => "OOMKilled",
        (_, false) => "Error",
    }
}

/// Returns the container's termination message: the content of the file `termination_log`. If this file is empty, the
/// container failed and `from_log` is set, the message is the end of the log.
pub fn message(termination_log: &Path, from_log: bool, code: i32, log: &Path) -> String {
    let left = tail(termination_log, MAX_MESSAGE);
    if left.is_empty() && from_log && code != 0 {
        log_tail(log)
    } else {
        String::from_utf8_lossy(&left).into_owned()
    }
}

fn tail(path: &Path, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Reads only a regular file: a container may have put a FIFO there, and reading a FIFO would block.
    if !fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        return bytes;
    }
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(limit)));
        let _ = file.take(limit).read_to_end(&mut bytes);
    }
    bytes
}

/// Returns the text of the last log lines without time and stream. If the current log file is short, the newest rotated
/// file is read too.
fn log_tail(log: &Path) -> String {
    // A log line has 40 bytes in addition to its text, so the limit is enough for many short lines.
    let limit = (MAX_LOG_BYTES + MAX_LOG_LINES * 48) as u64;
    let mut bytes = tail(log, limit);
    if (bytes.len() as u64) < limit
        && let Some(before) = rotated(log).last()
    {
        let mut both = tail(before, limit);
        both.append(&mut bytes);
        bytes = both;
    }
    last_lines(&bytes)
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let mut parts: Vec<String> = text.lines().filter_map(plain).collect();
    let first = parts.len()
        - parts
            .iter()
            .rev()
            .scan(0, |n, p| {
                *n += usize::from(p.ends_with('\n'));
                (*n <= MAX_LOG_LINES).then_some(())
            })
            .count();
    let joined = parts.split_off(first).concat();
    let mut start = joined.len().saturating_sub(MAX_LOG_BYTES);
    while !joined.is_char_boundary(start) {
        start += 1;
    }
    joined[start..].to_owned()
}

/// Returns the text of a CRI log line, with a newline unless the line goes on (tag `P`). Returns None for a line that
/// is not in CRI's form, such as a first line that was cut.
fn plain(line: &str) -> Option<String> {
    let mut fields = line.splitn(4, ' ');
    let (stamp, stream, tag) = (fields.next()?, fields.next()?, fields.next()?);
    if !stamp.ends_with('Z') || !matches!(stream, "stdout" | "stderr") {
        return None;
    }
    let text = fields.next().unwrap_or_default();
    Some(if tag == "P" {
        text.to_owned()
    } else {
        format!("{text}\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: Option<&str>, from_log: bool, code: i32, log: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let (message_file, log_file) = (dir.path().join("m"), dir.path().join("0.log"));
        if let Some(text) = file {
            fs::write(&message_file, text).unwrap();
        }
        fs::write(&log_file, log).unwrap();
        assert_eq!(message(&message_file, from_log, code, &log_file), expected);
    }

    fn cri(lines: &[&str]) -> String {
        lines
            .iter()
            .map(|l| format!("2026-11-21T00:00:00.000000000Z stdout F {l}\n"))
            .collect()
    }

    #[test]
    fn the_file_wins_and_the_log_stands_in_only_for_errors() {
        check(Some("why"), true, 1, &cri(&["log"]), "why");
        check(Some(""), true, 1, &cri(&["log", "end"]), "log\nend\n");
        check(None, true, 1, &cri(&["log"]), "log\n");
        check(Some(""), true, 0, &cri(&["log"]), "");
        check(Some(""), false, 1, &cri(&["log"]), "");
    }

    #[test]
    fn both_are_cut_from_the_front() {
        let long = format!("{}{}", "a".repeat(100), "b".repeat(MAX_MESSAGE as usize));
        check(Some(&long), true, 1, "", &long[100..]);
        let many: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let refs: Vec<&str> = many.iter().map(String::as_str).collect();
        let expected: String = many[20..].iter().map(|l| format!("{l}\n")).collect();
        check(None, true, 1, &cri(&refs), &expected);
        let wide = "x".repeat(3000);
        check(
            None,
            true,
            1,
            &cri(&[&wide]),
            &format!("{}\n", &wide[..MAX_LOG_BYTES - 1]),
        );
    }

    #[test]
    fn a_fifo_in_place_of_the_file_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("m");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(message(&fifo, false, 1, Path::new("/nonexistent")), "");
    }

    #[test]
    fn reasons() {
        assert_eq!(reason(0, false), "Completed");
        assert_eq!(reason(1, false), "Error");
        assert_eq!(reason(137, true), "OOMKilled");
    }
}
