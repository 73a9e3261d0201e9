//! The verb `run`: runs the daemon until a signal ends it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::args::{self, Opt, ROOT, Raw};
use super::error::CliError;
use super::terminal::printable;
use crate::base::log_pipe;
use crate::base::paths::Layout;
use crate::daemon::settings::{Overrides, Settings};
use crate::daemon::{Daemon, DaemonError};
use crate::engine::shims::RuntimeChoice;
use crate::net::network::{NetworkChoice, NetworkChoiceError};

/// The longest time for all threads to end after a signal.
const SHUTDOWN: Duration = Duration::from_secs(5);
/// The longest time for writing the pending lines of the log when the daemon ends.
const FLUSH: Duration = Duration::from_millis(500);

/// The option `--pods DIR`.
pub(super) const PODS: Opt = Opt::value("pods", None);
/// The option `--runtime embedded|PATH`.
pub(super) const RUNTIME: Opt = Opt::value("runtime", None);
/// The option `--network auto|bridge|cni|none`.
pub(super) const NETWORK: Opt = Opt::value("network", None);

/// The verb `run`.
pub const VERB: args::Verb = args::Verb {
    name: "run",
    summary: &[
        ("run", "run the daemon on a directory of pod files"),
    ],
    help: "\
usage: podprobe run [--config FILE] [--root DIR] [--pods DIR] [--runtime embedded|PATH]
                    [--network auto|bridge|cni|none] [--node-name NAME]

Runs the pods whose files lie in DIR until TERM or INT ends the daemon. Containers keep running without the daemon, and
the next daemon with the same root finds them again. Needs root.

HUP lets the daemon read its configuration again, as 'podprobe config reload' does. Under nohup HUP is ignored, and a
daemon that was started on a terminal ends with it.

  --config FILE            default ROOT/etc/podprobe/config.json, which may be missing
  --root DIR               every path lies below it; default /
  --pods DIR               default ROOT/etc/podprobe/pods
  --runtime embedded|PATH  this program's own OCI runtime (default), or the path of runc, crun or youki
  --network auto|bridge|cni|none
                           what connects pods; auto is CNI where it is configured, else a bridge where the kernel can;
                           none is a loopback interface alone
  --node-name NAME         every pod's name ends with it; default the host name

Exit codes: 0 a signal has ended the daemon, 1 it could not run, 2 wrong command line, 69 another daemon runs with this
root, 78 the configuration cannot be used. A service manager is told when the daemon is ready (NOTIFY_SOCKET) and
that it makes progress (WATCHDOG_USEC), as systemd's services do.

PODPROBE_LOG sets the log level: error, warn, info (default), debug, trace, or a level for each module such as
'warn,podprobe::pods::prober=debug'.
",
    options: &[ROOT, Opt::value("config", None), PODS, RUNTIME, NETWORK, Opt::value("node-name", None)],
    run: |raw, _, _| run(&parse(raw).map_err(CliError::Usage)?),
};

/// The arguments of `run`.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Root directory. Every path of the daemon is below it.
    pub root: PathBuf,
    /// Path of the configuration file; None means the file below the root, which may be missing.
    pub config: Option<PathBuf>,
    /// Directory of pod files. Overrides the configuration.
    pub pods: Option<PathBuf>,
    /// OCI runtime. Overrides the configuration.
    pub runtime: Option<RuntimeChoice>,
    /// Kind of network. Overrides the configuration.
    pub network: Option<NetworkChoice>,
    /// Name of the node. Overrides the configuration.
    pub node_name: Option<String>,
}

fn parse(raw: &Raw) -> Result<Run, String> {
    raw.no_words()?;
    Ok(Run {
        root: raw.root()?,
        config: raw.path("config")?,
        pods: raw.path(PODS.name)?,
        runtime: runtime(raw)?,
        network: network(raw)?,
        node_name: raw.text("node-name")?,
    })
}

/// Parses the option `--runtime`.
pub(super) fn runtime(raw: &Raw) -> Result<Option<RuntimeChoice>, String> {
    let choice = |v: PathBuf| match v.to_str() {
        Some("embedded") => Ok(RuntimeChoice::Embedded),
        _ if v.is_absolute() => Ok(RuntimeChoice::Path(v)),
        _ => Err(format!(
            "--runtime is 'embedded' or an absolute path such as /usr/bin/runc, not '{}'",
            v.display()
        )),
    };
    raw.path(RUNTIME.name)?.map(choice).transpose()
}

/// Parses the option `--network`.
pub(super) fn network(raw: &Raw) -> Result<Option<NetworkChoice>, String> {
    let choice = raw.text(NETWORK.name)?.map(|t| t.parse());
    choice
        .transpose()
        .map_err(|e: NetworkChoiceError| format!("--network: {e}"))
}

/// Runs the daemon. Returns exit code 0 if a signal has ended the daemon and all threads ended in time. Otherwise
/// returns an error.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    need_root("run")?;
    let sealed = seal();
    let layout = Layout::new(&args.root);
    let settings = settings(args, &layout).map_err(CliError::Configuration)?;
    Daemon::block_signals();
    // The reader of the log may stop reading, so a thread writes the log. If this thread cannot be started, the
    // log is written directly.
    log_to(
        log_pipe::to_stderr().map_or(env_logger::Target::Stderr, |pipe| {
            env_logger::Target::Pipe(Box::new(pipe))
        }),
    );
    warn_unsealed(sealed);
    let ended = run_daemon(settings, layout);
    log_pipe::flush(FLUSH);
    ended
}

fn run_daemon(settings: Settings, layout: Layout) -> Result<ExitCode, CliError> {
    let daemon = start_daemon(settings, layout)?;
    // A terminal that is closed sends HUP, and the daemon on it ends.
    let on_terminal = File::open("/dev/tty").is_ok();
    let signal = loop {
        match daemon.wait_for_signal() {
            Signal::SIGHUP if !on_terminal => daemon.reload(),
            signal => break signal,
        }
    };
    log::info!("{signal}: stopping; containers go on running");
    daemon
        .shutdown(SHUTDOWN)
        .map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a daemon in this process.
pub(super) fn start_daemon(settings: Settings, layout: Layout) -> Result<Daemon, CliError> {
    Daemon::start(settings, layout).map_err(|e| match e {
        DaemonError::RootInUse(_) => CliError::RunsAlready(e.to_string()),
        _ => CliError::Failed(e.to_string()),
    })
}

/// Loads the configuration. Values of the command line override values of the configuration.
pub(super) fn settings(args: &Run, layout: &Layout) -> Result<Settings, String> {
    // The path of the pod files is made absolute, because this path is part of each pod's identity.
    let absolute = |p: &PathBuf| {
        std::path::absolute(p).map_err(|e| format!("cannot use {}: {e}", p.display()))
    };
    let static_pod_path = args.pods.as_ref().map(absolute).transpose()?;
    let config = args.config.as_ref().map(absolute).transpose()?;
    let overrides = Overrides {
        static_pod_path,
        runtime: args.runtime.clone(),
        network: args.network,
        node_name: args.node_name.clone(),
    };
    Settings::load(layout, config.as_deref(), &overrides).map_err(|e| e.to_string())
}

/// Makes this process run from a read-only copy of its program, so that no container can write to the program file
/// (exec-in-container 4). Also sets the name of the process, because for a program that runs from such a copy the
/// kernel would show the name of a descriptor.
pub(super) fn seal() -> std::io::Result<()> {
    let _ = nix::sys::prctl::set_name(c"podprobe");
    crate::base::sys::exe::run_sealed()
}

/// Logs a warning if sealing has failed. Sealing fails before Linux 5.12 and without CAP_SYS_ADMIN.
pub(super) fn warn_unsealed(sealed: std::io::Result<()>) {
    if let Err(e) = sealed {
        log::warn!(
            "cannot run from a read-only mount: {e}; a container may overwrite the program of podprobe once it has stopped"
        );
    }
}

/// Returns an error unless this process runs as root.
pub(super) fn need_root(verb: &str) -> Result<(), CliError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(CliError::Failed(format!(
            "podprobe {verb} needs root, because containers need mounts, namespaces and cgroups: run it again with sudo"
        ))),
    }
}

/// The environment variable that sets the log level.
const LOG_VARIABLE: &str = "PODPROBE_LOG";
/// The log level if the variable is not set.
const DEFAULT_LOG: &str = "info";

/// Sets up the log. The level is info unless PODPROBE_LOG sets another (`debug`, `warn`,
/// `podprobe::pods::prober=trace`). Control characters are escaped, because messages quote the output of
/// containers, and the log may be read on a terminal.
pub(super) fn log_to(target: env_logger::Target) {
    let wanted = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let unknown = unknown_filter(&wanted);
    let filter = match (wanted.trim(), unknown) {
        ("", _) | (_, Some(_)) => DEFAULT_LOG,
        (filter, None) => filter,
    };
    // Setting the logger fails only if the process has a logger already, as in tests.
    let _ = env_logger::Builder::new()
        .parse_filters(filter)
        .target(target)
        .format(|out, record| {
            let (time, level) = (out.timestamp_millis(), record.level());
            // The second and later lines of a message are indented, because such a line could be mistaken for a
            // message of its own.
            let text = record.args().to_string().replace('\n', "\n    ");
            let text = printable(&text);
            writeln!(out, "[{time} {level:<5} {}] {text}", record.target())
        })
        .try_init();
    if let Some(word) = unknown {
        log::warn!(
            "{LOG_VARIABLE} is '{wanted}', and '{word}' is neither a level nor a module of podprobe; the level is {DEFAULT_LOG}. Levels are error, warn, info, debug, trace and off"
        );
    }
}

/// Returns a part of a log filter that matches no module. A filter with such a part would silence the log.
fn unknown_filter(filter: &str) -> Option<&str> {
    let is_level = |word: &str| word.trim().parse::<log::LevelFilter>().is_ok();
    let is_module = |word: &str| word == "podprobe" || word.starts_with("podprobe::");
    let directives = filter.split('/').next().unwrap_or_default();
    let mut parts = directives.split(',').map(str::trim);
    parts.find(|part| match part.split_once('=') {
        None => !part.is_empty() && !is_level(part) && !is_module(part),
        Some((_, level)) => !is_level(level),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[test]
    fn the_command_line_wins() {
        let args = Run {
            root: "/r".into(),
            config: None,
            pods: Some("/p".into()),
            runtime: Some(RuntimeChoice::Path("/usr/bin/crun".into())),
            network: Some(NetworkChoice::None),
            node_name: Some("n1".into()),
        };
        let s = settings(&args, &Layout::new("/r")).unwrap();
        assert_eq!((s.static_pod_path, s.node_name), ("/p".into(), "n1".into()));
        assert_eq!(s.runtime, RuntimeChoice::Path("/usr/bin/crun".into()));
        assert_eq!(s.network, NetworkChoice::None);
    }

    #[track_caller]
    fn check(line: &str, expected: Run) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    #[test]
    fn run_has_its_options() {
        check(
            "run --config c.json --root /r --pods p --runtime /usr/bin/runc --network bridge --node-name Edge1",
            Run {
                root: "/r".into(),
                config: Some("c.json".into()),
                pods: Some("p".into()),
                runtime: Some(RuntimeChoice::Path("/usr/bin/runc".into())),
                network: Some(NetworkChoice::Bridge),
                node_name: Some("Edge1".into()),
            },
        );
        check(
            "run",
            Run {
                root: "/".into(),
                config: None,
                pods: None,
                runtime: None,
                network: None,
                node_name: None,
            },
        );
    }

    #[test]
    fn what_is_missing_or_too_much_is_said() {
        check_error("run --root", "option '--root' needs a value");
        check_error(
            "run now",
            "'run' takes no argument 'now'; see 'podprobe help run'",
        );
        check_error(
            "run --rot /r",
            "'run' has no option '--rot', did you mean '--root'?; see 'podprobe help run'",
        );
        check_error(
            "run --runtime runc",
            "--runtime is 'embedded' or an absolute path such as /usr/bin/runc, not 'runc'",
        );
        check_error(
            "run --network host",
            "--network: \"host\" is no network; it is auto, bridge, cni or none",
        );
    }

    #[test]
    fn a_relative_root_is_made_absolute() {
        let run = testing::parse(&VERB, parse, "run --root rel/ative").unwrap();
        assert_eq!(run.root, std::env::current_dir().unwrap().join("rel/ative"));
    }

    #[test]
    fn a_filter_that_would_silence_the_log_is_named() {
        for good in [
            "",
            "debug",
            "WARN",
            "off",
            "podprobe",
            "warn,podprobe::pods::prober=trace",
            "info/regex",
        ] {
            assert_eq!(unknown_filter(good), None, "{good}");
        }
        assert_eq!(unknown_filter("foo"), Some("foo"));
        assert_eq!(unknown_filter("info, debgu"), Some("debgu"));
        assert_eq!(unknown_filter("podprobe=loud"), Some("podprobe=loud"));
    }
}
