//! `try`: a daemon under a root of its own, shown live; a signal stops and removes everything it started.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::args::{Run, Try};
use super::error::CliError;
use super::{connect, image, live, run};
use crate::layout::Layout;

/// Time for stopping every pod at the end; their grace periods lie within it.
const REMOVE: Duration = Duration::from_secs(60);

/// Time for the daemon's threads after that.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// Runs until a signal. Exit code 0 when everything is removed.
pub fn run(args: &Try) -> Result<ExitCode, CliError> {
    run::need_root("try")?;
    let sealed = run::seal();
    let root = Root::new(args.root.as_deref())?;
    let layout = Layout::new(&root.path);
    let images = connect::open_images(&layout).map_err(CliError::Failed)?;
    for source in &args.images {
        image::add(source, &*images).map_err(CliError::Failed)?;
    }
    log_to_file(&root.path)?;
    run::warn_unsealed(sealed);
    let settings = run::settings(&as_run(args, &root.path), &layout).map_err(CliError::Failed)?;
    let title = format!(
        "pods in {} (log and files in {}); Ctrl-C stops and removes everything",
        settings.static_pod_path.display(),
        root.path.display()
    );
    let daemon = connect::start_daemon(settings, layout).map_err(CliError::Failed)?;
    show_until_signal(&*daemon, &title)?;
    eprintln!("podprobe: stopping and removing every pod");
    let removed = daemon.remove_all_pods(REMOVE);
    let ended = daemon.shutdown(SHUTDOWN);
    removed.and(ended).map_err(|e| {
        let kept = root.keep();
        CliError::Failed(format!("{e}; what is left lies in {}", kept.display()))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn as_run(args: &Try, root: &Path) -> Run {
    Run {
        root: root.into(),
        config: None,
        pods: Some(args.pods.clone()),
        runtime: args.runtime.clone(),
        node_name: None,
    }
}

/// The display has a thread of its own; this one waits for the signal. A display that ends early (its reader has gone)
/// ends nothing else.
fn show_until_signal(daemon: &dyn connect::Daemon, title: &str) -> Result<(), CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (backend, title, stopped) = (daemon.backend(), title.to_owned(), Arc::clone(&stop));
    let display = thread::Builder::new()
        .name("display".into())
        .spawn(move || live::show(&*backend, &title, &stopped))
        .map_err(|e| CliError::Failed(format!("cannot start the display: {e}")))?;
    daemon.wait_for_signal();
    stop.store(true, Ordering::SeqCst);
    // Its own words, if it has any, are of no use once its terminal has gone.
    let _ = display.join();
    Ok(())
}

fn log_to_file(root: &Path) -> Result<(), CliError> {
    let path = root.join("podprobe.log");
    let file = File::create(&path)
        .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", path.display())))?;
    run::log_to(env_logger::Target::Pipe(Box::new(file)));
    Ok(())
}

/// The root: the one given, which stays, or a fresh directory that goes with this value.
struct Root {
    path: PathBuf,
    fresh: std::cell::Cell<bool>,
}

impl Root {
    fn new(given: Option<&Path>) -> Result<Self, CliError> {
        let (path, fresh) = match given {
            Some(path) => (path.to_owned(), false),
            None => (fresh_dir()?, true),
        };
        std::fs::create_dir_all(&path)
            .map_err(|e| CliError::Failed(format!("cannot create {}: {e}", path.display())))?;
        Ok(Self {
            path,
            fresh: fresh.into(),
        })
    }

    /// Leaves the directory where it is.
    fn keep(&self) -> &Path {
        self.fresh.set(false);
        &self.path
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.fresh.get()
            && let Err(e) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("podprobe: cannot remove {}: {e}", self.path.display());
        }
    }
}

/// A name nobody can have made before us: mkdtemp creates it, readable by us alone.
fn fresh_dir() -> Result<PathBuf, CliError> {
    let template = std::env::temp_dir().join("podprobe-try-XXXXXX");
    nix::unistd::mkdtemp(&template).map_err(|e| {
        CliError::Failed(format!(
            "cannot create a directory in {}: {e}",
            std::env::temp_dir().display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_root_goes_and_a_given_one_stays() {
        let fresh = Root::new(None).unwrap();
        let path = fresh.path.clone();
        assert!(path.is_dir());
        drop(fresh);
        assert!(!path.exists());

        let dir = tempfile::tempdir().unwrap();
        drop(Root::new(Some(&dir.path().join("given"))).unwrap());
        assert!(dir.path().join("given").is_dir());
    }

    #[test]
    fn what_is_kept_is_kept() {
        let fresh = Root::new(None).unwrap();
        let path = fresh.keep().to_owned();
        drop(fresh);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
