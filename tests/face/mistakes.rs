//! docs/mistakes.md says what podprobe says: each file of it is given to a real daemon, what its verbs print is compared, and
//! the way out is taken. With `PODPROBE_WRITE_DOCS=1` what they print is written there instead.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::bridged::on_the_bridge;
use crate::support::daemon::{Day, NODE};
use crate::support::{CEILING, PROGRAM, wait_until};

/// A test for each mistake, and one for the page.
macro_rules! mistakes {
    ($($test:ident = $number:literal),* $(,)?) => {
        $(#[test] fn $test() { check($number); })*

        #[test]
        fn every_mistake_is_made() {
            every_one_is_in(&[$($number),*]);
        }
    };
}

mistakes![
    a_misspelled_field = 1,
    a_tab = 2,
    no_selector = 3,
    a_wrong_unit = 4,
    a_missing_image = 5,
    a_command_in_one_piece = 6,
    a_probe_of_the_wrong_port = 7,
    a_probe_without_its_program = 8,
    a_missing_key = 9,
    a_slow_start = 10,
    too_little_memory = 11,
    a_task_that_starts_again = 12,
    a_selector_of_other_labels = 13,
    a_job_that_never_ends = 14,
    a_server_that_may_end = 15,
    sunday_as_seven = 16,
    a_zone_in_the_schedule = 17,
    a_day_that_does_not_exist = 18,
    surge_alone = 19,
    recreate_with_numbers = 20,
    replicas_as_a_text = 21,
    a_mount_without_its_claim = 22,
    one_port_for_two = 23,
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/mistakes.md")
}

fn every_one_is_in(numbers: &[usize]) {
    let text = fs::read_to_string(page()).unwrap();
    let headings = text.lines().filter_map(|l| l.strip_prefix("## "));
    let found: Vec<usize> = headings
        .map(|h| h.split_once(". ").unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(found, numbers);
}

/// A section of the page.
struct Mistake {
    manifest: String,
    /// Commands that begin with `$ `, and what they print.
    console: String,
    /// The change that mends the manifest.
    diff: String,
}

impl Mistake {
    fn of(text: &str, number: usize) -> Self {
        let (_, after) = text.split_once(&format!("\n## {number}. ")).unwrap();
        let section = after.split("\n## ").next().unwrap();
        let block = |language: &str| {
            let (_, after) = section.split_once(&format!("\n```{language}\n")).unwrap();
            after.split_once("\n```\n").unwrap().0.to_owned() + "\n"
        };
        Self {
            manifest: block("yaml"),
            console: block("text"),
            diff: block("diff"),
        }
    }

    fn commands(&self) -> impl Iterator<Item = &str> {
        self.console
            .lines()
            .filter_map(|l| l.strip_prefix("$ podprobe "))
    }

    fn file(&self) -> &str {
        let mut files = self.commands().filter_map(|c| c.strip_prefix("validate "));
        files.next().expect("a command validates the file")
    }

    /// True for a CronJob, which makes its first pod at a time of its schedule.
    fn has_no_pod_yet(&self) -> bool {
        self.manifest.contains("\nkind: CronJob\n")
    }

    /// The manifest with the change.
    fn mended(&self) -> String {
        let of = |other: char| {
            let lines = self.diff.lines().filter(|l| !l.starts_with(other));
            lines.map(|l| l[1..].to_owned() + "\n").collect::<String>()
        };
        let (old, new) = (of('+'), of('-'));
        assert_eq!(self.manifest.matches(&old).count(), 1, "{old}");
        self.manifest.replace(&old, &new)
    }

    /// What the commands print now, as the page has it.
    fn shown(&self, day: &Day) -> String {
        let one = |command: &str| {
            let printed = cut(command, &printed(day, command));
            format!("$ podprobe {command}\n{printed}")
        };
        let all: Vec<String> = self.commands().map(one).collect();
        all.join("\n")
    }
}

/// What a command prints in the directory of the pod files, on a node without `--root`.
fn printed(day: &Day, command: &str) -> String {
    let layout = &day.node.layout;
    let output = Command::new(PROGRAM)
        .args(command.split(' '))
        .env("PODPROBE_ROOT", layout.root())
        .current_dir(layout.pods_dir())
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    text.replace(layout.root().to_str().unwrap(), "")
}

/// Parts of `describe` that say nothing of a mistake.
const LEFT_OUT: [&str; 23] = [
    "Namespace:",
    "Node:",
    "Start Time:",
    "Labels:",
    "Annotations:",
    "IP:",
    "IPs:",
    "Container ID:",
    "Image ID:",
    "Port:",
    "Host Port:",
    "Image:",
    "Command:",
    "Environment: <none>",
    "Requests:",
    "Mounts:",
    "Conditions:",
    "Volumes:",
    "QoS Class:",
    "Node-Selectors:",
    "Normal Pulled",
    "Normal Created",
    "Normal Started",
];

/// `describe` without those parts.
fn cut(command: &str, text: &str) -> String {
    if !command.starts_with("describe ") {
        return text.to_owned();
    }
    let mut shown: Vec<&str> = Vec::new();
    let mut left_out = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if left_out.is_some_and(|of| indent > of) {
            continue;
        }
        let plain = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_out = LEFT_OUT.iter().any(|part| plain.starts_with(part));
        left_out = is_out.then_some(indent);
        match is_out {
            false => shown.push(line),
            true if shown.last() != Some(&"...") => shown.push("..."),
            true => {}
        }
    }
    shown.join("\n") + "\n"
}

/// The lines without what differs from run to run: times, ids, how often something was repeated, the order of events.
fn lasting(console: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in console.lines() {
        let line = without_what_differs(line);
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    for events in lines.split_mut(|l| !(l.starts_with("Warning ") || l.starts_with("Normal "))) {
        events.sort();
    }
    lines.dedup();
    lines
}

fn without_what_differs(line: &str) -> String {
    let line = without_repetition(line);
    let mut words: Vec<&str> = line.split_whitespace().collect();
    if let ["Started:" | "Finished:", ..] = words[..] {
        words.truncate(1);
    }
    if let ["Restart", "Count:", count] = &mut words[..] {
        *count = "N";
    }
    // A row of restarts: age, container, number of the instance.
    if let [age, _, attempt, ..] = &mut words[..]
        && is_time(age)
        && attempt.parse::<u32>().is_ok()
    {
        *attempt = "N";
    }
    let word = |w: &&str| match is_time(w) {
        true => "TIME".to_owned(),
        false => without_uid(w),
    };
    let words: Vec<String> = words.iter().map(word).collect();
    without_count(&words.join(" "))
}

/// `restarted 3 times: …`, or `restarted once: …`, without the number.
fn without_count(line: &str) -> String {
    let is_count = |words: &str| words == "once" || words.ends_with(" times");
    let parts = line.split_once(" restarted ");
    let parts = parts.and_then(|(begin, rest)| Some((begin, rest.split_once(": ")?)));
    match parts {
        Some((begin, (count, why))) if is_count(count) => format!("{begin} restarted: {why}"),
        _ => line.to_owned(),
    }
}

/// Without `(x3 over 12s)`.
fn without_repetition(line: &str) -> String {
    let Some((begin, rest)) = line.split_once(" (x") else {
        return line.to_owned();
    };
    match rest.split_once(')') {
        Some((times, end)) if times.contains(" over ") => format!("{begin}{end}"),
        _ => line.to_owned(),
    }
}

/// `web_default(0123…)` without the UID.
fn without_uid(word: &str) -> String {
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let mut parts = word.splitn(2, '(');
    let (begin, rest) = (parts.next().unwrap(), parts.next().unwrap_or_default());
    match rest.find(|c| !is_hex(c)) {
        Some(32) => format!("{begin}(UID{}", &rest[32..]),
        _ => word.to_owned(),
    }
}

/// `3s`, `1.2ms`, `170µs-2.5ms`.
fn is_time(word: &str) -> bool {
    let is_one = |text: &str| {
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        unit.len() < text.len() && ["s", "ms", "µs"].contains(&unit)
    };
    word.split('-').all(is_one)
}

fn check(number: usize) {
    let text = fs::read_to_string(page()).unwrap();
    let mistake = Mistake::of(&text, number);
    on_the_bridge(json!({"nodeName": NODE}), |day, _| {
        import(day);
        put(day, mistake.file(), &mistake.manifest);
        match std::env::var_os("PODPROBE_WRITE_DOCS") {
            None => compare(day, &mistake),
            Some(_) => write(number, &mistake, &settled(day, &mistake)),
        }
        put(day, mistake.file(), &mistake.mended());
        wait_until("the mended file to be well", || {
            day.kill_what_ends();
            let status = printed(day, "status");
            let is_done = mistake.has_no_pod_yet()
                || ["1 pod ready", "1 completed"]
                    .iter()
                    .any(|s| status.contains(s));
            status.starts_with("all is well: ") && is_done && !status.contains(" of ")
        });
        fs::remove_file(day.node.layout.pods_dir().join(mistake.file())).unwrap();
        wait_until("the pod to be gone", || {
            day.kill_what_ends();
            day.snapshot().is_some_and(|s| s.pods.is_empty())
        });
    });
}

/// The image of the page.
fn import(day: &Day) {
    let root = day.node.dir.path().join("image");
    for applet in ["httpd", "tail"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    let root = root.to_str().unwrap();
    for words in [
        &["image", "import", root, "busybox:1.36"][..],
        &["image", "rm", "busybox:test"],
    ] {
        let output = day.client(words);
        assert!(output.status.success(), "{output:?}");
    }
}

/// By rename, as an editor does.
fn put(day: &Day, name: &str, content: &str) {
    let temporary = day.node.dir.path().join("being-written");
    fs::write(&temporary, content).unwrap();
    fs::rename(temporary, day.node.layout.pods_dir().join(name)).unwrap();
}

fn compare(day: &Day, mistake: &Mistake) {
    let expected = lasting(&mistake.console);
    let deadline = Instant::now() + CEILING;
    loop {
        let shown = mistake.shown(day);
        let seen = lasting(&shown);
        if seen == expected {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "docs/mistakes.md is not what is printed (PODPROBE_WRITE_DOCS=1 writes it):\n{}\n{shown}\n{}",
            differences(&expected, &seen),
            day.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn differences(expected: &[String], seen: &[String]) -> String {
    let only = |sign: &str, of: &[String], other: &[String]| {
        let lines = of.iter().filter(|l| !other.contains(l));
        lines.map(|l| format!("{sign} {l}\n")).collect::<String>()
    };
    only("-", expected, seen) + &only("+", seen, expected)
}

/// What is printed when it has not changed for some seconds. For writing only.
fn settled(day: &Day, mistake: &Mistake) -> String {
    let mut shown = mistake.shown(day);
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(200));
        let now = mistake.shown(day);
        if lasting(&now) != lasting(&shown) {
            since = Instant::now();
        }
        shown = now;
    }
    shown
}

/// Puts what is shown into the page, unless it says the same. Other tests may be writing too.
fn write(number: usize, mistake: &Mistake, shown: &str) {
    if lasting(shown) == lasting(&mistake.console) {
        return;
    }
    let lock = File::open(page()).unwrap();
    lock.lock().unwrap();
    let text = fs::read_to_string(page()).unwrap();
    let at = text.find(&format!("\n## {number}. ")).unwrap();
    let (before, section) = text.split_at(at);
    fs::write(
        page(),
        before.to_owned() + &section.replacen(&mistake.console, shown, 1),
    )
    .unwrap();
}

#[test]
fn what_differs_from_run_to_run_is_left_out() {
    let check = |line: &str, expected: &str| assert_eq!(lasting(line).join("\n"), expected);
    check(
        "  Warning  BackOff  14s (x3 over 26s)  podprobe  Back-off in pod web-edge_default(0123456789abcdef0123456789abcdef)",
        "Warning BackOff TIME podprobe Back-off in pod web-edge_default(UID)",
    );
    check(
        "      Started:      Mon, 23 Nov 2026 06:41:10 +0000",
        "Started:",
    );
    check(
        "  24s  web  1  by itself: exit code 1\n  13s  web  2  by itself: exit code 1",
        "TIME web N by itself: exit code 1",
    );
    check("    Restart Count:  2", "Restart Count: N");
    check(
        "  web  readiness  0s (x28 over 25s)  170µs-2.5ms  failure  dial",
        "web readiness TIME TIME failure dial",
    );
    check(
        "pod/x: container web ends again and again, restarted 2 times: why: so",
        "pod/x: container web ends again and again, restarted: why: so",
    );
    check(
        "Normal b\nWarning a\nFile: x",
        "Normal b\nWarning a\nFile: x",
    );
    check(
        "Warning b\nNormal a\nFile: x",
        "Normal a\nWarning b\nFile: x",
    );
    check(
        "memory:  64m\n  Exit Code:  137",
        "memory: 64m\nExit Code: 137",
    );
}
