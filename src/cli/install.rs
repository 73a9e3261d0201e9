//! The verbs `install` and `uninstall`: put podprobe on a node so that it starts at boot, and take it away again.
//!
//! Invariants: `plan` decides and touches nothing, `step` carries out. What was installed is on record, so that an upgrade
//! knows what a person has edited since, and `uninstall` knows what is podprobe's. Both can be run again after a failure.

mod init_system;
mod plan;
mod record;
mod step;
mod uninstall;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::init_system::InitSystem;
use self::plan::Place;
use self::record::Installed;
use self::step::Step;
use super::args::{self, Opt, ROOT, Raw, Verb};
use super::error::CliError;
use super::{completion, man, run};
use crate::base::paths::Layout;

pub use uninstall::VERB as UNINSTALL;

/// The option `--dry-run`.
const DRY_RUN: Opt = Opt::flag("dry-run", None);

/// The verb `install`.
pub const INSTALL: Verb = args::Verb {
    name: "install",
    summary: &[("install", "put this program on the node, to start at boot")],
    help: "\
usage: podprobe install [--init systemd|openrc|sysv|none] [--prefix DIR] [--root DIR] [--no-start] [--dry-run]

Copies this program to PREFIX/bin, and writes a service for the node's init system, an empty configuration, the
directory of pod files, completions and the manual page; then it starts the service. Run it again with a newer program
to upgrade: containers run on. A file of the installation that somebody has edited stays, and the new one is put beside
it with the ending .new. Needs root.

  --init systemd|openrc|sysv|none
                   default the one that is found; none writes no service
  --prefix DIR     where the program goes; default /usr/local
  --root DIR       every path lies below it. Of another root than / nothing is started, as for an image.
  --no-start       start or restart nothing
  --dry-run        say what would be done, and do nothing
",
    options: &[ROOT, Opt::value("init", None), Opt::value("prefix", None), Opt::flag("no-start", None), DRY_RUN],
    run: |raw, out, _| install(raw, out),
};

fn install(raw: &Raw, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    raw.no_words().map_err(CliError::Usage)?;
    let root = raw.root().map_err(CliError::Usage)?;
    let prefix = raw.path("prefix").map_err(CliError::Usage)?;
    let wanted = raw.text("init").map_err(CliError::Usage)?;
    let wanted = wanted.map(|word| InitSystem::named(&word)).transpose();
    let wanted = wanted.map_err(CliError::Usage)?;
    let layout = Layout::new(&root);
    let is_dry = raw.has(DRY_RUN.name);
    if !is_dry {
        run::need_root("install")?;
    }
    let prefix = prefix.unwrap_or_else(|| PathBuf::from("/usr/local"));
    if !prefix.is_absolute() {
        return Err(CliError::Usage(format!(
            "--prefix is an absolute path, not '{}'",
            prefix.display()
        )));
    }
    let place = Place {
        init: match wanted {
            Some(init) => init,
            None => InitSystem::found_below(&root).map_err(CliError::Failed)?,
        },
        run_levels: init_system::run_levels(&root),
        has_update_rc: init_system::has_update_rc(&root),
        starts: root == Path::new("/") && !raw.has("no-start"),
        prefix,
        root,
    };
    let mut installed = Installed::read(&layout).map_err(CliError::Failed)?;
    let verbs = raw.verbs();
    let shells = ["bash", "zsh", "fish"];
    let texts = plan::Texts {
        completions: shells.map(|shell| completion::script(shell, verbs).unwrap_or_default()),
        manual: man::page(verbs),
    };
    let steps = plan::steps(&place, texts);
    if is_dry {
        for step in &steps {
            writeln!(out, "{}", step.foretell(&place.root))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    installed.init = place.init;
    let mut carry_out = |step: &Step| -> Result<(), CliError> {
        let done = step.carry_out(&place.root, &mut installed)?;
        Ok(writeln!(out, "{done}")?)
    };
    let carried_out = steps.iter().try_for_each(&mut carry_out);
    // What was written before a failure is podprobe's too.
    installed.write(&layout).map_err(CliError::Failed)?;
    carried_out?;
    writeln!(out, "{}", plan::next(&place))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
