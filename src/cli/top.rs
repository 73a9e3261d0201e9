//! The verb `top`: shows pods and their probes on a screen that is drawn again each second, with the
//! latencies of the last runs.
//!
//! Invariants: [`frame`] and [`sparkline`] are pure. When the verb ends, even by the signals TERM, INT or HUP, the
//! terminal is as it was before the verb: its first screen is shown and its mode is restored. If stdout is not a
//! terminal, one frame is printed as text.

mod usage;

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};

use super::args::{self, ALL_NAMESPACES, NAMESPACE, NO_HEADERS, Opt, ROOT, Raw, SELECTOR};
use super::client::Client;
use super::columns::Row;
use super::describe::history::rounded;
use super::error::CliError;
use super::live::{Screen, cut, terminal_size};
use super::names;
use super::probe_names::{self, NamedProbe, spelled};
use super::problems::{node_lines, problem_lines};
use super::table::write_rows;
use crate::base::clock::{Time, go_duration};
use crate::face::views::{PodView, Snapshot};
use crate::pods::history::{PodHistory, Run, RunOutcome};

/// The time between two frames, in milliseconds.
const REFRESH: u16 = 1000;
/// The number of runs in a sparkline.
const RUNS: usize = 20;
/// The levels of a sparkline, and the mark for a run without success.
const BLOCKS: ([char; 8], char) = (['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'], '×');
/// The levels of a sparkline, and the mark for a run without success, on a terminal without UTF-8.
const ASCII: ([char; 8], char) = (['.', ':', '-', '=', '+', '*', '%', '@'], 'x');

/// The verb `top`.
pub const VERB: args::Verb = args::Verb {
    name: "top",
    summary: &[
        ("top", "show pods and the latencies of their probes, live"),
        ("top pods", "how much processor and memory pods use"),
    ],
    help: "\
usage: podprobe top [-n NAMESPACE] [--root DIR]
       podprobe top pods [NAME | KIND/NAME]… [--containers] [-l SELECTOR] [--sort-by cpu|memory]
                         [-n NAMESPACE | -A] [--no-headers]

Shows pods and their probes, each second anew: the latency of the last run, failures marked, and the last 20 runs as a
line, the oldest first and the highest the slowest. q or Ctrl-C ends it. Where stdout is no terminal it prints one
frame.

With 'pods' it says once how much processor time (in thousandths of a processor) and memory each pod uses, as 'kubectl
top pods'. A workload such as deploy/web stands for its pods. Nobody counts while nobody asks, so that the first answer
takes a second.

  -n, --namespace NS       pods of one namespace; default all
  -A, --all-namespaces     show the namespace also when all is in 'default'
      --containers         a row for each container
  -l, --selector LABELS    of pods that have them, as with 'get'
      --sort-by WORD       cpu or memory: the most first
      --no-headers         without the first row
",
    options: &[
        ROOT,
        NAMESPACE,
        ALL_NAMESPACES,
        Opt::flag("containers", None),
        SELECTOR,
        Opt::value("sort-by", None),
        NO_HEADERS,
    ],
    run: |raw, out, err| {
        if usage::is_asked_for(raw) {
            let usage = usage::parse(raw).map_err(CliError::Usage)?;
            return usage::run(&usage, out, err).map(|()| ExitCode::SUCCESS);
        }
        let top = parse(raw).map_err(CliError::Usage)?;
        run(&top, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `top`.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Namespace of the pods; None means all namespaces.
    pub namespace: Option<String>,
}

fn parse(raw: &Raw) -> Result<Top, String> {
    raw.no_words()?;
    let of_pods = [
        "all-namespaces",
        "containers",
        "selector",
        "sort-by",
        "no-headers",
    ];
    if let Some(option) = of_pods.iter().find(|option| raw.has(option)) {
        return Err(format!("--{option} goes with 'top pods'"));
    }
    Ok(Top {
        root: raw.root()?,
        namespace: raw.namespace()?,
    })
}

/// Shows the pods until a key or a signal ends the verb.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, or if the terminal cannot be used.
pub fn run(top: &Top, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&top.root)?;
    let is_utf8 = is_utf8(|name| std::env::var(name).ok());
    if !io::stdout().is_terminal() {
        let seen = Seen::ask(top, &mut client)?;
        for line in frame(&seen, Time::now(), is_utf8) {
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let mut seen = Seen::ask(top, &mut client)?;
    let keys =
        Keys::open().map_err(|e| CliError::Failed(format!("cannot use the terminal: {e}")))?;
    let mut stdout = io::stdout().lock();
    let mut screen = Screen::enter(&mut stdout)?;
    loop {
        let (width, height) = terminal_size();
        let mut lines = frame(&seen, Time::now(), is_utf8);
        lines.truncate(height.saturating_sub(1));
        let lines: Vec<String> = lines.iter().map(|line| cut(line, width)).collect();
        screen.draw(&lines)?;
        if keys.wait_for_the_end() {
            return Ok(());
        }
        seen = Seen::ask(top, &mut client)?;
    }
}

/// The data for one frame.
struct Seen {
    snapshot: Snapshot,
    /// The histories of the pods, by the UID of the pod.
    histories: HashMap<String, PodHistory>,
    namespace: Option<String>,
}

impl Seen {
    fn ask(top: &Top, client: &mut Client) -> Result<Self, CliError> {
        let snapshot = Snapshot::clone(&*client.snapshot()?);
        let mut histories = HashMap::new();
        for pod in names::in_namespace(&snapshot, top.namespace.as_deref()) {
            if !probe_names::all(pod).is_empty() {
                histories.insert(pod.uid().to_owned(), client.history(pod.uid().into())?);
            }
        }
        Ok(Self {
            snapshot,
            histories,
            namespace: top.namespace.clone(),
        })
    }
}

/// Returns the lines of a frame: a summary, a row for each pod and for each further probe of a pod, and
/// problems with files.
fn frame(seen: &Seen, now: Time, is_utf8: bool) -> Vec<String> {
    let pods: Vec<&PodView> =
        names::in_namespace(&seen.snapshot, seen.namespace.as_deref()).collect();
    let ready = pods.iter().filter(|p| p.status.is_ready()).count();
    let node = &seen.snapshot.node_name;
    let mut lines = vec![
        format!("q ends   {node}: {ready} of {} pods ready", pods.len()),
        String::new(),
    ];
    let header = [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "PROBE",
        "RESULT",
        "LATENCY",
        "LAST RUNS",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let none = PodHistory::default();
    for pod in pods {
        let history = seen.histories.get(pod.uid()).unwrap_or(&none);
        rows.extend(rows_of(pod, history, now, is_utf8));
    }
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = write_rows(&rows, &mut Vec::new(), &mut text);
    lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    lines.extend(node_lines(&seen.snapshot));
    lines.extend(problem_lines(&seen.snapshot, |_| true));
    lines
}

fn rows_of(pod: &PodView, history: &PodHistory, now: Time, is_utf8: bool) -> Vec<Vec<String>> {
    let row = Row::new(pod, now);
    let of_pod = [row.name, row.ready, row.status, row.restarts];
    let mut probes = probe_names::all(pod)
        .into_iter()
        .map(|p| cells(&p, history, is_utf8));
    let first = probes.next().unwrap_or_default();
    let mut rows = vec![of_pod.into_iter().chain(first).collect()];
    rows.extend(probes.map(|cells| std::iter::repeat_n(String::new(), 4).chain(cells).collect()));
    rows
}

fn cells(probe: &NamedProbe, history: &PodHistory, is_utf8: bool) -> [String; 4] {
    let (container, probe_type) = probe;
    let mut kept = history.probes.iter();
    let kept = kept.find(|p| p.container == *container && p.probe_type == *probe_type);
    let runs: Vec<&Run> = kept.into_iter().flat_map(|p| &p.runs).collect();
    let last = runs.last();
    [
        spelled(probe),
        last.map_or_else(|| "<none>".into(), |r| r.outcome.as_str().into()),
        last.map_or_else(String::new, |r| {
            go_duration(std::time::Duration::from_micros(rounded(r.micros)))
        }),
        sparkline(&runs[runs.len().saturating_sub(RUNS)..], is_utf8),
    ]
}

/// Returns a character for each run: a level for the duration of a successful run, or the mark for a run without
/// success. The slowest run has the highest level.
fn sparkline(runs: &[&Run], is_utf8: bool) -> String {
    let (levels, mark) = if is_utf8 { BLOCKS } else { ASCII };
    let is_good = |r: &Run| matches!(r.outcome, RunOutcome::Success | RunOutcome::Warning);
    let good = runs.iter().filter(|r| is_good(r));
    let slowest = good.map(|r| r.micros).max().unwrap_or(0).max(1);
    let level = |r: &Run| {
        let place = r.micros.saturating_mul(7).div_ceil(slowest);
        usize::try_from(place)
            .ok()
            .and_then(|place| levels.get(place).copied())
    };
    let of_run = |r: &&Run| is_good(r).then(|| level(r)).flatten().unwrap_or(mark);
    runs.iter().map(of_run).collect()
}

/// Tells whether the locale uses UTF-8. The first variable of the locale that is set decides.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let mut set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable);
    let locale = set
        .find(|value| !value.is_empty())
        .unwrap_or_default()
        .to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The keyboard in a mode without echo and without line editing, and the signals that end the verb.
struct Keys {
    /// The terminal's mode before the verb, which is restored at the end; None if stdin is not a terminal.
    before: Option<Termios>,
    signals: SignalFd,
}

impl Keys {
    fn open() -> nix::Result<Self> {
        let mut ends = SigSet::empty();
        for signal in [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ] {
            ends.add(signal);
        }
        ends.thread_block()?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = termios::tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut mode = before.clone();
            // In this mode, keys do not cause signals. Otherwise Ctrl-Z would stop the verb while the second
            // screen is shown.
            mode.local_flags -= LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
            termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &mode)?;
        }
        Ok(Self { before, signals })
    }

    /// Waits for the time of one frame. Returns true if a key or a signal ends the verb.
    fn wait_for_the_end(&self) -> bool {
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if self.before.is_some() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::from(REFRESH)) {
            Ok(0) | Err(Errno::EINTR) => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
        if fds[0].any() == Some(true) {
            return true;
        }
        let mut keys = [0; 64];
        match nix::unistd::read(&stdin, &mut keys) {
            // The terminal was closed.
            Ok(0) | Err(_) => true,
            Ok(n) => keys[..n].iter().any(ends),
        }
    }
}

/// Tells whether a key ends the verb: q, Ctrl-C or Ctrl-\.
fn ends(key: &u8) -> bool {
    matches!(key, b'q' | b'Q' | 3 | 0x1c)
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(micros: u64, outcome: &str) -> Value {
        json!({"time": "2026-01-01T00:00:00Z", "micros": micros, "outcome": outcome})
    }

    #[track_caller]
    fn check(runs: &[Value], blocks: &str, ascii: &str) {
        let runs: Vec<Run> = runs
            .iter()
            .map(|r| serde_json::from_value(r.clone()).unwrap())
            .collect();
        let runs: Vec<&Run> = runs.iter().collect();
        assert_eq!(
            (
                sparkline(&runs, true).as_str(),
                sparkline(&runs, false).as_str()
            ),
            (blocks, ascii)
        );
    }

    #[test]
    fn the_slowest_run_is_the_highest_and_failures_are_marked() {
        check(&[], "", "");
        check(&[run(0, "success")], "▁", ".");
        let rising: Vec<Value> = (0..8).map(|n| run(n * 100, "success")).collect();
        check(&rising, "▁▂▃▄▅▆▇█", ".:-=+*%@");
        let mixed = [
            run(1, "success"),
            run(9_000_000, "failure"),
            run(1000, "warning"),
            run(5, "errored"),
        ];
        check(&mixed, "▂×█×", ":x@x");
    }

    #[test]
    fn the_locale_says_which_characters_there_are() {
        let of = |set: &[(&str, &str)]| {
            let set: HashMap<&str, &str> = set.iter().copied().collect();
            is_utf8(|name| set.get(name).map(|v| (*v).to_owned()))
        };
        assert!(of(&[("LANG", "en_GB.UTF-8")]));
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8")]));
        assert!(!of(&[]));
    }

    #[test]
    fn each_further_probe_has_a_row() {
        let probe = json!({"tcpSocket": {"port": 1}});
        let containers = json!([{"name": "main", "readinessProbe": probe, "livenessProbe": probe}]);
        let pod = |name: &str, containers: &Value| {
            json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": containers}},
            "status": {}, "file": "", "warnings": [], "terminating": false, "logDir": "", "events": []})
        };
        let pods = [
            pod("web", &containers),
            pod("bare", &json!([{"name": "c"}])),
        ];
        let problems = json!([{"file": "/p/a", "error": "no"}]);
        let snapshot =
            json!({"version": 1, "nodeName": "edge", "pods": pods, "problems": problems});
        let runs: Vec<Value> = (0..25).map(|_| run(1500, "success")).collect();
        let history = json!({"probes": [{"container": "main", "probeType": "Readiness", "runs": runs}], "restarts": []});
        let seen = Seen {
            snapshot: serde_json::from_value(snapshot).unwrap(),
            histories: HashMap::from([(
                "web".to_owned(),
                serde_json::from_value(history).unwrap(),
            )]),
            namespace: None,
        };
        let expected = [
            "q ends   edge: 0 of 2 pods ready",
            "",
            "NAME   READY   STATUS    RESTARTS   PROBE            RESULT    LATENCY   LAST RUNS",
            "web    0/1     Pending   0          main/readiness   success   1.5ms     @@@@@@@@@@@@@@@@@@@@",
            "                                    main/liveness    <none>",
            "bare   0/1     Pending   0",
            "/p/a: not in use: no",
        ];
        assert_eq!(frame(&seen, Time::now(), false), expected);
    }
}
