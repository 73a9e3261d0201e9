//! What a pod can cost at most, by the figures of docs/manual/what-a-pod-costs.md, also after many restarts.

use std::fs;
use std::path::{Path, PathBuf};

use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::CONTAINER;
use serde_json::{Value, json};

use crate::reload::configure;
use crate::support::daemon::{Day, FOREVER};
use crate::support::{self, on};

fn restarts(day: &Day) -> Option<u32> {
    crate::day::restarts(&*day.snapshot()?, "subject")
}

/// Returns all files below a directory, with their sizes in bytes.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => all.extend(files(&entry.path())),
            // What is removed meanwhile has no size.
            false => all.extend(entry.metadata().ok().map(|m| (entry.path(), m.len()))),
        }
    }
    all
}

fn total(files: &[(PathBuf, u64)]) -> u64 {
    files.iter().map(|(_, size)| size).sum()
}

#[test]
fn a_crash_loop_keeps_two_instances_of_logs_and_of_written_files() {
    const SIZE: u64 = 64 << 10;
    const FILES: u64 = 2;
    const WRITTEN: u64 = 100 << 10;
    on(RuntimeChoice::Embedded, |node| {
        configure(
            node,
            &json!({"containerLogMaxSize": "64Ki", "containerLogMaxFiles": FILES,
                    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}),
        );
        let day = Day::begin(node);
        // Each instance writes more than its logs may hold, and files into its own root.
        let script = format!(
            "i=0; while [ $i -lt 3000 ]; do echo \"line $i of a log that is too long to be kept as a whole\"; i=$((i+1)); done; \
             head -c {WRITTEN} /dev/zero >/tmp/data; exit 3"
        );
        day.put("subject", day.pod("subject", &script, json!({})));
        support::wait_until("six restarts", || restarts(&day) >= Some(6));
        let (logs, var) = (node.layout.logs_dir(), node.layout.root().join("var"));
        // A line is written as a whole.
        let most = (SIZE + 1024) * FILES * 2;
        support::wait_until("two instances to stay", || {
            let (logs, written) = (files(&logs), files(&var));
            let data = written
                .iter()
                .filter(|(path, _)| path.ends_with("tmp/data"));
            total(&logs) <= most && total(&logs) > SIZE && (1..=2).contains(&data.count())
        });
        day.end();
    });
}

#[test]
fn the_millionth_restart_is_like_any_other() {
    const BEFORE: u32 = 999_999;
    on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let script = format!("echo \"started\"\n{FOREVER}");
        day.put("subject", day.pod("subject", &script, json!({})));
        day.wait_ready("subject");
        let process = day.process("subject");
        day.terminate();
        let mut all = fs::read_dir(node.layout.containers()).unwrap().flatten();
        let dir = all.next().unwrap().path();
        let mut record: Value =
            serde_json::from_slice(&fs::read(dir.join(CONTAINER)).unwrap()).unwrap();
        record["attempt"] = BEFORE.into();
        let log = PathBuf::from(record["log_path"].as_str().unwrap());
        let new = log.with_file_name(format!("{BEFORE}.log"));
        fs::rename(&log, &new).unwrap();
        record["log_path"] = new.to_str().unwrap().into();
        record.as_object_mut().unwrap().remove("crc32");
        fs::write(dir.join(CONTAINER), record.to_string()).unwrap();

        day.start();
        support::wait_until("the old count", || restarts(&day) == Some(BEFORE));
        assert_eq!(day.process("subject"), process);
        support::kill9(process);
        support::wait_until("the restart", || restarts(&day) == Some(BEFORE + 1));
        day.wait_ready("subject");
        for words in [&["logs", "subject"][..], &["logs", "-p", "subject"]] {
            assert_eq!(day.says(words), "started\n", "{words:?}");
        }
        let shown = day.says(&["get", "pods"]);
        assert!(shown.contains(" 1000000 ("), "{shown}");
        // The next daemon takes the newest instance for the newest, although its number has one more digit.
        day.crash();
        day.wait_ready("subject");
        assert_eq!(restarts(&day), Some(BEFORE + 1));
        day.end();
    });
}
