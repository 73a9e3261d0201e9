//! The verb `uninstall`: ends all pods in order, and removes everything of podprobe from the node.
//!
//! Invariants: nothing is removed before the pods have ended, because their containers would run on unknown to anybody. The
//! record of the installation goes last, so that an uninstallation that failed can be run again.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::super::args::{self, Opt, ROOT, Raw, Verb};
use super::super::error::CliError;
use super::super::run;
use super::record::Installed;
use super::step::{below, beside};
use super::{DRY_RUN, init_system, plan};
use crate::base::clock::{go_duration, parse_go_duration};
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::daemon::Daemon;
use crate::daemon::settings::{Overrides, Settings};

/// Longest time for the pods to end, if the command line does not say.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time for the daemon's threads to end after the pods.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// The verb `uninstall`.
pub const VERB: Verb = args::Verb {
    name: "uninstall",
    summary: &[("uninstall", "end all pods, and remove podprobe from the node")],
    help: "\
usage: podprobe uninstall [--claims] [--timeout TIME] [--root DIR] [--dry-run]

Stops the service, ends every pod with its hooks and its grace period, and removes what 'podprobe install' has put on
the node, the configuration and the pod files in /etc/podprobe, images, volumes, records and logs of pods. What is in
persistentVolumeClaims stays unless --claims is given. Needs root.

  --claims         remove /var/lib/podprobe/claims too
  --timeout TIME   the longest time for the pods to end, such as 90s or 10m; default 5m. If they take longer, nothing is
                   removed.
  --root DIR       every path lies below it
  --dry-run        say what would be done, and do nothing
",
    options: &[ROOT, Opt::flag("claims", None), Opt::value("timeout", None), DRY_RUN],
    run: |raw, out, _| uninstall(raw, out),
};

fn uninstall(raw: &Raw, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    raw.no_words().map_err(CliError::Usage)?;
    let root = raw.root().map_err(CliError::Usage)?;
    let timeout = raw.text("timeout").map_err(CliError::Usage)?;
    let timeout = timeout.map_or(Ok(TIMEOUT), |text| {
        parse_go_duration(&text).map_err(|e| CliError::Usage(format!("cannot use --timeout: {e}")))
    })?;
    let layout = Layout::new(&root);
    let is_live = root == Path::new("/");
    let installed = Installed::read(&layout).map_err(CliError::Failed)?;
    if installed.is_empty() && !layout.lib_dir().exists() {
        return Err(CliError::Failed(format!(
            "nothing of podprobe is installed below {}",
            root.display()
        )));
    }
    let left = Leftovers::find(&layout, &installed, raw.has("claims"));
    if raw.has(DRY_RUN.name) {
        let stop = plan::stop(installed.init).into_iter().filter(|_| is_live);
        for step in stop {
            writeln!(out, "{}", step.foretell(&root))?;
        }
        writeln!(out, "would end every pod")?;
        for path in left.all() {
            writeln!(out, "would remove {}", path.display())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    run::need_root("uninstall")?;
    // The daemon that ends the pods runs in this process, and may start containers before it does.
    let _ = run::seal();
    Daemon::block_signals();
    let mut none = Installed::default();
    if is_live {
        for step in plan::stop(installed.init) {
            writeln!(out, "{}", step.carry_out(&root, &mut none)?)?;
        }
    }
    if is_live || has_entries(&layout.sandboxes()) {
        writeln!(
            out,
            "ending every pod, for at most {}",
            go_duration(timeout)
        )?;
        out.flush()?;
        end_pods(&layout, timeout)?;
    }
    for path in &left.before_the_program {
        remove(path).map_err(|e| cannot_remove(path, &e))?;
        writeln!(out, "removed {}", path.display())?;
    }
    if is_live {
        for step in plan::forget(installed.init, init_system::has_update_rc(&root)) {
            writeln!(out, "{}", step.carry_out(&root, &mut none)?)?;
        }
    }
    for path in &left.last {
        remove(path).map_err(|e| cannot_remove(path, &e))?;
        writeln!(out, "removed {}", path.display())?;
    }
    // These are shared with others, or have the claims.
    for dir in [
        layout.claims(),
        layout.lib_dir(),
        layout.logs_dir(),
        layout.container_log_links(),
    ] {
        let _ = fs::remove_dir(dir);
    }
    if layout.claims().exists() {
        writeln!(
            out,
            "left {}, which has the claims",
            layout.claims().display()
        )?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn cannot_remove(path: &Path, e: &io::Error) -> CliError {
    CliError::Failed(format!(
        "cannot remove {}: {e}; run 'podprobe uninstall' again",
        path.display()
    ))
}

/// Ends every pod by a daemon in this process, as if all pod files were deleted.
fn end_pods(layout: &Layout, timeout: Duration) -> Result<(), CliError> {
    let mut settings = Settings::load(layout, None, &Overrides::default())
        .map_err(|e| CliError::Configuration(e.to_string()))?;
    // Nobody is to be told while the pods end.
    (settings.port, settings.read_only_port) = (None, None);
    let daemon = run::start_daemon(settings, layout.clone())?;
    let removed = daemon.remove_all_pods(timeout);
    let ended = daemon.shutdown(SHUTDOWN);
    removed.and(ended).map_err(|e| {
        CliError::Failed(format!(
            "{e}; nothing was removed: try again, with a longer --timeout, or start the service again"
        ))
    })
}

/// Everything that is to be removed, in its order.
struct Leftovers {
    /// Files and links of the installation without the program, then directories of the daemon.
    before_the_program: Vec<PathBuf>,
    /// The program, and the record of the installation.
    last: Vec<PathBuf>,
}

impl Leftovers {
    fn find(layout: &Layout, installed: &Installed, has_claims: bool) -> Self {
        let here = |path: &PathBuf| below(layout.root(), path);
        let is_program = |path: &&PathBuf| path.ends_with("bin/podprobe");
        let files = installed.files.keys().filter(|path| !is_program(path));
        let mut first: Vec<PathBuf> = files.chain(&installed.links).map(here).collect();
        first.extend(installed.files.keys().map(here).map(|path| beside(&path)));
        if let Some(dir) = layout.config_file().parent() {
            first.push(dir.to_owned());
        }
        first.push(layout.run_dir());
        let record = Installed::path(layout);
        let mut state = entries(&layout.lib_dir());
        state.retain(|path| *path != record && (has_claims || *path != layout.claims()));
        first.extend(state);
        let program = installed.files.keys().filter(is_program).map(here);
        let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
        first.retain(is_there);
        Self {
            before_the_program: first,
            last: program.chain([record]).filter(is_there).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.before_the_program.iter().chain(&self.last)
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn has_entries(dir: &Path) -> bool {
    !entries(dir).is_empty()
}

/// Removes a file, a link or a directory with all that is in it.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => remove_tree(path),
        false => fs::remove_file(path),
    }
}
