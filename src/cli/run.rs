//! The verb `run`: runs the daemon until a signal ends it.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::args::{self, Opt, ROOT, Raw};
use super::error::CliError;
use crate::base::paths::Layout;
use crate::daemon::logging::{self, Destination, Format, FormatError, Levels, LevelsError};
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
/// The option `--log-format text|json|journald`.
const LOG_FORMAT: Opt = Opt::value("log-format", None);
/// The option `--log-file FILE`.
const LOG_FILE: Opt = Opt::value("log-file", None);

/// The verb `run`.
pub const VERB: args::Verb = args::Verb {
    name: "run",
    summary: &[
        ("run", "run the daemon on a directory of pod files"),
    ],
    help: "\
usage: podprobe run [--config FILE] [--root DIR] [--pods DIR] [--runtime embedded|PATH]
                    [--network auto|bridge|cni|none] [--node-name NAME] [--log-format text|json|journald]
                    [--log-file FILE]

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
  --log-format text|json|journald
                           the form of the log; default journald if stderr is systemd's journal, else text
  --log-file FILE          the log goes to FILE in place of stderr; of 5 MiB it becomes FILE.1, and a new one begins

Exit codes: 0 a signal has ended the daemon, 1 it could not run, 2 wrong command line, 69 another daemon runs with this
root, 78 the configuration cannot be used. A service manager is told when the daemon is ready (NOTIFY_SOCKET) and
that it makes progress (WATCHDOG_USEC), as systemd's services do.

PODPROBE_LOG sets the level of the log: error, warn, info (default), debug, trace or off, with other levels for single
subjects such as 'warn,probes=debug'.
",
    options: &[
        ROOT, Opt::value("config", None), PODS, RUNTIME, NETWORK, Opt::value("node-name", None), LOG_FORMAT, LOG_FILE,
    ],
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
    /// Form of the log. Overrides the configuration.
    pub log_format: Option<Format>,
    /// File of the log; None means stderr.
    pub log_file: Option<PathBuf>,
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
        log_format: log_format(raw)?,
        log_file: raw.path(LOG_FILE.name)?,
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

/// Parses the option `--log-format`.
fn log_format(raw: &Raw) -> Result<Option<Format>, String> {
    let format = raw.text(LOG_FORMAT.name)?.map(|t| t.parse());
    format
        .transpose()
        .map_err(|e: FormatError| format!("--log-format: {e}"))
}

/// Runs the daemon. Returns exit code 0 if a signal has ended the daemon and all threads ended in time. Otherwise
/// returns an error.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    need_root("run")?;
    let sealed = seal();
    let layout = Layout::new(&args.root);
    // A file of the log also has the reason why the configuration cannot be used.
    let log = args.log_file.as_deref();
    let log = log.map_or_else(Destination::stderr, Destination::file);
    let settings = settings(args, &layout).map_err(CliError::Configuration)?;
    Daemon::block_signals();
    let (levels, format) = (settings.log_levels.clone(), settings.log_format);
    logging::start(levels, format, log);
    levels_of_variable().err().inspect(|e| log::warn!("{e}"));
    warn_unsealed(sealed);
    let ended = run_daemon(settings, layout);
    logging::flush(FLUSH);
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
        log_format: args.log_format,
        log_levels: levels_of_variable().ok().flatten(),
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

/// The environment variable that sets the levels of the log.
const LOG_VARIABLE: &str = "PODPROBE_LOG";

/// Returns the levels of the log that PODPROBE_LOG sets.
fn levels_of_variable() -> Result<Option<Levels>, String> {
    let wanted = std::env::var(LOG_VARIABLE).unwrap_or_default();
    match wanted.trim().is_empty() {
        true => Ok(None),
        false => wanted
            .parse()
            .map(Some)
            .map_err(|e: LevelsError| format!("{LOG_VARIABLE} counts for nothing: {e}")),
    }
}

/// Returns the levels of the log of a program without a configuration.
pub(super) fn log_levels() -> Levels {
    let levels = levels_of_variable().ok().flatten();
    levels.unwrap_or_default()
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
            log_format: Some(Format::Json),
            log_file: None,
        };
        let s = settings(&args, &Layout::new("/r")).unwrap();
        assert_eq!((s.static_pod_path, s.node_name), ("/p".into(), "n1".into()));
        assert_eq!(s.runtime, RuntimeChoice::Path("/usr/bin/crun".into()));
        assert_eq!(s.network, NetworkChoice::None);
        assert_eq!(s.log_format, Some(Format::Json));
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
            "run --config c.json --root /r --pods p --runtime /usr/bin/runc --network bridge --node-name Edge1 \
             --log-format journald --log-file /var/log/podprobe.log",
            Run {
                root: "/r".into(),
                config: Some("c.json".into()),
                pods: Some("p".into()),
                runtime: Some(RuntimeChoice::Path("/usr/bin/runc".into())),
                network: Some(NetworkChoice::Bridge),
                node_name: Some("Edge1".into()),
                log_format: Some(Format::Journald),
                log_file: Some("/var/log/podprobe.log".into()),
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
                log_format: None,
                log_file: None,
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
        check_error(
            "run --log-format xml",
            "--log-format: \"xml\" is no form of the log; forms are text, json and journald",
        );
    }

    #[test]
    fn a_relative_root_is_made_absolute() {
        let run = testing::parse(&VERB, parse, "run --root rel/ative").unwrap();
        assert_eq!(run.root, std::env::current_dir().unwrap().join("rel/ative"));
    }
}
