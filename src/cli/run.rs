//! `run`: the daemon, until a signal ends it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::Run;
use super::connect;
use super::error::CliError;
use crate::layout::Layout;
use crate::settings::{Overrides, Settings};

/// Every thread ends within this time of a signal.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Runs the daemon. Exit code 0 when a signal ended it and every thread was in time, 1 otherwise.
pub fn run(args: &Run) -> Result<ExitCode, CliError> {
    need_root("run")?;
    let sealed = seal();
    let layout = Layout::new(&args.root);
    let settings = settings(args, &layout).map_err(CliError::Failed)?;
    log_to(env_logger::Target::Stderr);
    warn_unsealed(sealed);
    let daemon = connect::start_daemon(settings, layout).map_err(CliError::Failed)?;
    let signal = daemon.wait_for_signal();
    log::info!("signal {signal}: stopping; containers go on running");
    daemon.shutdown(SHUTDOWN).map_err(CliError::Failed)?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration, with the command line over it.
pub(super) fn settings(args: &Run, layout: &Layout) -> Result<Settings, String> {
    // Absolute, for the path is part of each pod's identity.
    let absolute = |p: &PathBuf| {
        std::path::absolute(p).map_err(|e| format!("cannot use {}: {e}", p.display()))
    };
    let static_pod_path = args.pods.as_ref().map(absolute).transpose()?;
    let overrides = Overrides {
        static_pod_path,
        runtime: None,
        node_name: args.node_name.clone(),
    };
    let mut settings = connect::load_settings(args.config.as_deref(), layout, &overrides)?;
    if let Some(runtime) = &args.runtime {
        settings.runtime = runtime.clone();
    }
    Ok(settings)
}

/// So that no container writes to the daemon's program (exec-in-container 4), which goes on under its own name: the
/// kernel takes that of a descriptor.
pub(super) fn seal() -> std::io::Result<()> {
    let _ = nix::sys::prctl::set_name(c"podprobe");
    crate::sys::exe::run_sealed()
}

/// Before Linux 5.12, or without CAP_SYS_ADMIN.
pub(super) fn warn_unsealed(sealed: std::io::Result<()>) {
    if let Err(e) = sealed {
        log::warn!(
            "cannot run from a read-only mount: {e}; a container may overwrite the program of podprobe once it has stopped"
        );
    }
}

/// One sentence for whoever is not root.
pub(super) fn need_root(verb: &str) -> Result<(), CliError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(CliError::Failed(format!(
            "podprobe {verb} needs root, for containers need mounts, namespaces and cgroups: run it again with sudo"
        ))),
    }
}

/// Level info unless PODPROBE_LOG says otherwise (`debug`, `warn`, `podprobe::prober=trace`).
pub(super) fn log_to(target: env_logger::Target) {
    let filter = env_logger::Env::new().filter_or("PODPROBE_LOG", "info");
    // A second logger in one process can only come from a test.
    let _ = env_logger::Builder::from_env(filter)
        .target(target)
        .format_timestamp_millis()
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_wins() {
        let args = Run {
            root: "/r".into(),
            config: None,
            pods: Some("/p".into()),
            runtime: Some(crate::settings::RuntimeChoice::Path("/usr/bin/crun".into())),
            node_name: Some("n1".into()),
        };
        let s = settings(&args, &Layout::new("/r")).unwrap();
        assert_eq!((s.static_pod_path, s.node_name), ("/p".into(), "n1".into()));
        assert_eq!(
            s.runtime,
            crate::settings::RuntimeChoice::Path("/usr/bin/crun".into())
        );
    }
}
