//! Rules of the house that a machine can check: ARCHITECTURE.md says them, this keeps them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::sources::{root, sources, walk};

/// Lines of code (no comments) that hold one of the words, as `file: line`.
fn uses(words: &[&str], allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().into_iter().filter(|s| !allowed(&s.path)) {
        let hits = source.lines.iter();
        found.extend(
            hits.filter(|l| words.iter().any(|w| l.contains(w)))
                .map(|l| format!("{}: {}", source.path, l.trim())),
        );
    }
    found
}

#[track_caller]
fn none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// In tests too: what fills up there would be an error that nobody sees.
#[test]
fn every_channel_is_bounded() {
    let words = ["unbounded(", "unbounded::<", "mpsc::channel("];
    none(uses(&words, |_| false), "a channel without a capacity");
    let mut others = Vec::new();
    for dir in ["tests", "benches", "examples"] {
        walk(&root().join(dir), &mut others);
    }
    let is_rust = |f: &PathBuf| f.extension().is_some_and(|e| e == "rs");
    let others = others
        .into_iter()
        .filter(|f| is_rust(f) && !f.ends_with("tests/project/project_rules.rs"));
    let has_one = |f: &PathBuf| {
        let text = fs::read_to_string(f).expect("a source is text");
        words.iter().any(|w| text.contains(w))
    };
    let found = others.filter(has_one).map(|f| f.display().to_string());
    none(found.collect(), "a channel without a capacity");
}

/// The second argument of each `Result<…>` in the code, as it is written there.
fn errors_of_results(code: &str) -> Vec<String> {
    let of_one = |after: &str| {
        let (mut depth, mut arguments) = (0, vec![String::new()]);
        let mut last = ' ';
        for c in after.chars() {
            match c {
                // The end of `->` is no bracket.
                '>' if last != '-' && depth == 0 => break,
                '>' if last != '-' => depth -= 1,
                '<' | '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                _ => {}
            }
            last = c;
            match c == ',' && depth == 0 {
                true => arguments.push(String::new()),
                false => arguments.last_mut().expect("there is one").push(c),
            }
        }
        arguments.get(1).map(|error| error.trim().to_owned())
    };
    code.split("Result<").skip(1).filter_map(of_one).collect()
}

/// An error that only carries a sentence can be mistaken for any other text, and a caller must read it to tell two apart.
#[test]
fn errors_below_the_command_line_have_types() {
    let code = "fn f() -> Result<Vec<(u8, String)>, Text> where F: Fn() -> Result<u8,\n String,\n>";
    assert_eq!(errors_of_results(code), ["Text", "String"]);
    let found = sources()
        .into_iter()
        .filter(|source| !source.path.starts_with("cli/"))
        .filter(|source| {
            let errors = errors_of_results(&source.lines.join("\n"));
            errors.iter().any(|error| error == "String")
        });
    none(
        found.map(|source| source.path).collect(),
        "an error that is only text",
    );
}

#[test]
fn unsafe_stays_in_sys() {
    none(
        uses(
            &["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"],
            |f| f.starts_with("base/sys/"),
        ),
        "unsafe outside src/base/sys",
    );
}

/// What a panic has poisoned is used on, in one way.
#[test]
fn locks_are_taken_by_one_rule() {
    let words = [
        ".lock().expect(",
        ".lock().unwrap(",
        ".lock().unwrap_or_else(",
        "no panic while the lock",
    ];
    let joined = sources().into_iter().filter_map(|s| {
        // rustfmt may have put the call on the next line
        let text: String = s.lines.iter().map(|l| l.trim()).collect();
        let found = words.iter().find(|w| text.contains(**w))?;
        (s.path != "base/locks.rs").then(|| format!("{}: {found}", s.path))
    });
    none(joined.collect(), "use `locked()` of base/locks.rs");
}

/// Files that start threads of their own: of one task, or of one client, pod, probe or pull; or, of the loops that catch
/// the panics of each of their turns themselves, the one thread.
const STARTS_THREADS: [&str; 22] = [
    "cluster/client/dial.rs",
    "pods/controllers/images_ahead.rs",
    "daemon/checks.rs",
    "engine/images/registry/layers.rs",
    "engine/images/registry/puller.rs",
    "pods/kuberuntime/port_forward.rs",
    "net/network/kernel.rs",
    "net/network/rtnetlink.rs",
    "engine/nsexec/spawner.rs",
    "pods/pleg/mod.rs",
    "pods/sources/http.rs",
    "pods/sync_loop.rs",
    "pods/workers/killing.rs",
    "pods/workers/mod.rs",
    "pods/prober/manager.rs",
    "pods/prober/now.rs",
    "pods/prober/target.rs",
    "pods/prober/thread.rs",
    "face/server/containers.rs",
    "face/server/mod.rs",
    "face/server/threads.rs",
    "face/server/worker.rs",
];

#[test]
fn long_lived_threads_are_started_in_one_place() {
    let allowed =
        |f: &str| f == "base/threads.rs" || f.starts_with("cli/") || STARTS_THREADS.contains(&f);
    let words = ["thread::spawn(", "thread::Builder", "thread::{Builder"];
    none(
        uses(&words, allowed),
        "use base/threads.rs: panics are caught, counted and told",
    );
}

#[test]
fn nothing_forks_the_daemon() {
    none(
        uses(&["fork()", "pre_exec", "before_exec"], |_| false),
        "fork copies the page tables of a thousand threads",
    );
}

/// Rooms whose files all decide, and parts of rooms, each a file with its directory.
const DECIDING_ROOMS: [&str; 11] = [
    "api/",
    "cluster/events/",
    "cluster/kubeconfig",
    "cluster/mirror_pods",
    "cluster/node/",
    "cluster/pod_set",
    "cluster/reflector",
    "cluster/status/",
    "cluster/tokens",
    "net/services/",
    "pods/actions/",
];

/// Files that decide in rooms that do more.
const DECIDING_FILES: [&str; 60] = [
    "cli/check_host/facts.rs",
    "cli/check_host/finding.rs",
    "cli/check_host/judge.rs",
    "cli/check_host/resources.rs",
    "cli/cp/spec.rs",
    "cli/get/item.rs",
    "cli/get/kind.rs",
    "cli/get/objects.rs",
    "cli/get/pods.rs",
    "cli/get/probes.rs",
    "cli/get/services.rs",
    "cli/jsonpath/eval.rs",
    "cli/jsonpath/parse.rs",
    "cli/logs/choose.rs",
    "cli/output/custom_columns.rs",
    "cli/output/yaml.rs",
    "cli/selector.rs",
    "cli/status/counts.rs",
    "cluster/exchange.rs",
    "engine/file_copy/names.rs",
    "engine/nsexec/plan.rs",
    "engine/runtime/logs/lines.rs",
    "engine/runtime/logs/options.rs",
    "engine/runtime/logs/record.rs",
    "engine/runtime/logs/tail.rs",
    "face/views/findings.rs",
    "face/views/findings/pods.rs",
    "face/views/hints.rs",
    "net/netfilter/batch.rs",
    "net/netfilter/transaction.rs",
    "net/network/bridge/addresses.rs",
    "net/proxy/health/answer.rs",
    "net/proxy/health/state.rs",
    "net/proxy/nftables/base.rs",
    "net/proxy/nftables/flows.rs",
    "net/proxy/nftables/plan.rs",
    "net/proxy/nftables/service.rs",
    "net/proxy/pace.rs",
    "net/proxyd/dns/answer.rs",
    "net/proxyd/dns/connections.rs",
    "net/proxyd/dns/counters.rs",
    "net/proxyd/dns/forward.rs",
    "net/proxyd/dns/frames.rs",
    "net/proxyd/dns/message.rs",
    "net/proxyd/dns/record.rs",
    "net/proxyd/dns/reply.rs",
    "net/proxyd/dns/reverse.rs",
    "net/proxyd/dns/upstreams.rs",
    "net/proxyd/dns/ways.rs",
    "net/proxyd/dns/zone.rs",
    "net/proxyd/userspace/balancer.rs",
    "net/proxyd/userspace/ports.rs",
    "pods/admission.rs",
    "pods/pleg/diff.rs",
    "pods/prober/worker.rs",
    "pods/status/conditions.rs",
    "pods/status/container_statuses.rs",
    "pods/status/generate.rs",
    "pods/status/phase.rs",
    "pods/workers/table.rs",
];

#[test]
fn deciding_files_own_nothing() {
    let pure = |f: &str| {
        DECIDING_ROOMS.iter().any(|room| f.starts_with(room)) || DECIDING_FILES.contains(&f)
    };
    let owning = [
        "std::thread",
        "crossbeam_channel",
        "std::fs",
        "File::open",
        "Moment::now()",
        "Instant::now()",
        "SystemTime::now()",
        "Mutex<",
        "std::net::Tcp",
        "log::",
    ];
    none(
        uses(&owning, |f| !pure(f)),
        "a deciding file has a thread, a channel, a file, a clock, a lock or a log",
    );
}

/// A file that was renamed would keep no rule.
#[test]
fn the_files_with_a_rule_are_there() {
    let named = [
        "base/sys/",
        "base/locks.rs",
        "base/threads.rs",
        "pods/sync_loop.rs",
    ];
    let all = named.iter().chain(&STARTS_THREADS);
    for path in all.chain(&DECIDING_ROOMS).chain(&DECIDING_FILES) {
        let is_there = root().join("src").join(path).exists();
        assert!(is_there, "src/{path} is not there: what is it called now?");
    }
}

#[test]
fn the_sync_loop_waits_in_its_select_only() {
    let blocking = [
        ".join()",
        ".send(",
        "sleep(",
        "recv_timeout(",
        ".wait(",
        "std::fs",
        "list_pods",
        "pod_status(",
        "start_container",
        "stop_container",
    ];
    none(
        uses(&blocking, |f| !f.starts_with("pods/sync_loop")),
        "the sync loop would wait",
    );
}

/// No async runtime among all that is linked.
#[test]
fn no_async_runtime() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--offline",
            "-e",
            "features,normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(root())
        .output();
    let tree = tree.expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let text = String::from_utf8_lossy(&tree.stdout);
    let bad = |l: &&str| {
        l.starts_with("tokio feature \"rt")
            || l.starts_with("async-std ")
            || l.starts_with("smol ")
            || l.starts_with("async-executor ")
    };
    assert_eq!(
        text.lines().filter(bad).collect::<Vec<_>>(),
        Vec::<&str>::new()
    );
    assert!(
        text.contains("crossbeam-channel"),
        "the tree is the right one"
    );
}

/// How many known bugs there are under each letter, and those that no test can keep away.
const LESSONS: [(char, usize); 7] = [
    ('a', 11),
    ('b', 5),
    ('c', 7),
    ('d', 9),
    ('e', 3),
    ('f', 5),
    ('g', 2),
];
const WITHOUT_A_TEST: [&str; 2] = ["g1", "g2"];

/// The number a test's name begins with: `a1` of `a1_started_is_…`.
fn lesson_of(test: &str) -> Option<&str> {
    let number = test.split_once('_')?.0;
    let (letter, digits) = number.split_at_checked(1)?;
    let is_one = matches!(letter, "a" | "b" | "c" | "d" | "e" | "f" | "g")
        && digits.parse::<usize>().is_ok();
    is_one.then_some(number)
}

/// Every test that is named after a lesson, as `file test`: functions with `#[test]` right above and nothing in between.
fn lesson_tests() -> BTreeSet<String> {
    let mut files: Vec<PathBuf> = [root().join("src"), root().join("tests")].to_vec();
    let mut found = BTreeSet::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                fs::read_dir(path)
                    .expect("it can be listed")
                    .map(|e| e.expect("it can be listed").path()),
            );
            continue;
        }
        let Some(text) = fs::read_to_string(&path)
            .ok()
            .filter(|_| path.extension().is_some_and(|e| e == "rs"))
        else {
            continue;
        };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let tests = lines
            .windows(2)
            .filter(|pair| pair[0] == "#[test]")
            .filter_map(|pair| pair[1].strip_prefix("fn ")?.split('(').next());
        let file = path.strip_prefix(root()).expect("below the root").display();
        found.extend(
            tests
                .filter(|test| lesson_of(test).is_some())
                .map(|test| format!("{file} {test}")),
        );
    }
    found
}

/// tests/LESSONS.md has a row for each bug, each row names tests that exist and are named after it, and none is left out.
#[test]
fn every_known_bug_has_its_test() {
    let table = fs::read_to_string(root().join("tests/LESSONS.md")).expect("tests/LESSONS.md");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|l| l.starts_with("| "))
        .skip(2)
        .map(|l| l.split('|').map(str::trim).collect())
        .collect();
    let numbers: Vec<String> = rows.iter().map(|row| row[1].to_lowercase()).collect();
    let all: Vec<String> = LESSONS
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}")))
        .collect();
    assert_eq!(numbers, all, "the rows of tests/LESSONS.md");
    let there = lesson_tests();
    let mut named = BTreeSet::new();
    for (number, row) in numbers.iter().zip(&rows) {
        let words: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        assert_eq!(
            words.is_empty(),
            WITHOUT_A_TEST.contains(&number.as_str()),
            "{number}: {}",
            row[3]
        );
        assert!(
            !words.is_empty() || row[3].starts_with("does not apply: "),
            "{number} gives no reason"
        );
        for place in words.chunks(2).map(|place| place.join(" ")) {
            let test = place.split(' ').next_back().and_then(lesson_of);
            assert_eq!(test, Some(number.as_str()), "{number} names {place}");
            assert!(
                there.contains(&place),
                "{number} names {place}, and there is no such test"
            );
            named.insert(place);
        }
    }
    assert_eq!(
        there.difference(&named).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "not in tests/LESSONS.md"
    );
}

/// Words with which a sentence leans on one that stands elsewhere.
const LEANING: [&str; 11] = [
    "Of", "Also", "As", "The same", "Its", "It", "Those", "One", "Whether", "Who", "What",
];

/// A doc comment begins with what the thing is, in a sentence that needs no other.
#[test]
fn doc_comments_carry_their_own_noun() {
    let mut files = Vec::new();
    walk(&root().join("src"), &mut files);
    let mut found = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "rs"))
    {
        let text = fs::read_to_string(file).expect("a source is text");
        let comment = |line: &str| line.trim_start().strip_prefix("/// ").map(str::to_owned);
        let mut before = false;
        for line in text.lines() {
            let said = comment(line);
            let leans = |text: &String| {
                let rest = LEANING.iter().find_map(|word| text.strip_prefix(word));
                rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if !before && said.as_ref().is_some_and(leans) {
                found.push(format!("{}: {}", file.display(), line.trim()));
            }
            before = line.trim_start().starts_with("///");
        }
    }
    none(found, "begin with what the thing is");
}

/// Every thread of the table is started where the table says.
#[test]
fn threads_are_started_where_the_table_says() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split("\n## ").find(|part| part.starts_with("Threads"));
    let rows = table.expect("a table of threads").lines();
    let names = |cell: &str| -> Vec<String> {
        let names = cell.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    };
    let mut seen = 0;
    for row in rows.filter(|row| row.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let (threads, files) = (names(cells[0]), names(cells[1]));
        assert_eq!(threads.len(), files.len(), "{row}");
        for (thread, file) in threads.iter().zip(&files) {
            let source = fs::read_to_string(root().join("src").join(file));
            let source = source.unwrap_or_else(|e| panic!("src/{file}: {e}"));
            // Some are named after what they are for, so that the table has a pattern.
            let is_there = thread.contains('<') || source.contains(&format!("\"{thread}\""));
            assert!(is_there, "src/{file} starts no thread {thread}");
            seen += 1;
        }
    }
    assert!(
        seen > 20,
        "only {seen} threads: is this reading the right table?"
    );
}

/// Every row of the code map exists, and every wing and every room is on it.
#[test]
fn the_code_map_is_true() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let named: Vec<&str> = map
        .split('`')
        .filter(|w| w.starts_with("src/") && !w.contains(' ') && !w.contains('{'))
        .collect();
    for path in &named {
        assert!(
            root().join(path).exists(),
            "ARCHITECTURE.md names {path}, which is not there"
        );
    }
    let names_of = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(dir)).expect("it can be listed");
        let name =
            |entry: std::io::Result<fs::DirEntry>| entry.expect("it can be listed").file_name();
        entries
            .map(|entry| format!("{dir}/{}", name(entry).display()))
            .collect()
    };
    let wings = names_of("src");
    let rooms =
        ["base", "net", "engine", "pods", "face"].map(|wing| names_of(&format!("src/{wing}")));
    for path in wings.into_iter().chain(rooms.into_iter().flatten()) {
        let is_root = ["lib.rs", "main.rs", "mod.rs", "Cargo.toml"]
            .iter()
            .any(|name| path.ends_with(name));
        assert!(
            is_root || named.iter().any(|p| p.trim_end_matches('/') == path),
            "{path} is not on the code map of ARCHITECTURE.md"
        );
    }
}
