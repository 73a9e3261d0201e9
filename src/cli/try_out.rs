//! The verb `try`: runs a daemon under its own root and shows its pods live. After a signal, the verb stops and
//! removes everything that it has started.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::args::{self, Opt, ROOT, Raw};
use super::error::CliError;
use super::image::{self, ImageSource};
use super::run::{NETWORK, PODS, RUNTIME, Run};
use super::terminal::say;
use super::{live, run};
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::daemon::{Daemon, logging};
use crate::engine::shims::RuntimeChoice;
use crate::net::network::NetworkChoice;

/// The longest time for stopping all pods at the end, including their grace periods.
const REMOVE: Duration = Duration::from_secs(60);

/// The longest time for the daemon's threads to end after the pods.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// The verb `try`.
pub const VERB: args::Verb = args::Verb {
    name: "try",
    summary: &[
        ("try --pods DIR", "run a daemon under a root of its own, show the pods live, remove all at Ctrl-C"),
    ],
    help: "\
usage: podprobe try --pods DIR [--image FILE[=NAME]]… [--root DIR] [--runtime embedded|PATH]
                    [--network auto|bridge|cni|none]

Runs a daemon on the pods in DIR and shows them: on a terminal as a table that refreshes in place, elsewhere with one
line for each change. Ctrl-C stops and removes everything, and so does closing the terminal. Needs root.

Where a daemon runs already, the range of pod addresses is in use: give --network none, or --root DIR with a
DIR/etc/podprobe/config.json that has another podCIDR and another serviceCIDR.

  --pods DIR               the directory of pod files
  --image FILE             load an OCI layout or docker archive first; may be repeated
  --image PATH=NAME        make an image NAME of a root directory or tar first; may be repeated
  --root DIR               every path lies below it; default a new directory that is removed at the end. A directory
                           that you name stays.
  --runtime embedded|PATH  this program's own OCI runtime (default), or the path of runc, crun or youki
  --network auto|bridge|cni|none
                           what connects pods; auto is CNI where it is configured, else a bridge where the kernel can;
                           none is a loopback interface alone
",
    options: &[ROOT, PODS, RUNTIME, NETWORK, Opt::value("image", None)],
    run: |raw, _, _| run(&parse(raw).map_err(CliError::Usage)?),
};

/// The arguments of `try`.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    /// Root directory; None means a new directory that is removed at the end.
    pub root: Option<PathBuf>,
    /// The directory of pod files.
    pub pods: PathBuf,
    /// Images that are added before the daemon starts.
    pub images: Vec<ImageSource>,
    /// OCI runtime; None means the default runtime.
    pub runtime: Option<RuntimeChoice>,
    /// Kind of network. Overrides the configuration.
    pub network: Option<NetworkChoice>,
}

fn parse(raw: &Raw) -> Result<Try, String> {
    raw.no_words()?;
    let images = raw.values("image").map(ImageSource::parse);
    Ok(Try {
        images: images.collect::<Result<_, _>>()?,
        pods: raw
            .path(PODS.name)?
            .ok_or("'try' needs a directory of pod files: podprobe try --pods DIR")?,
        root: raw.given_root()?,
        runtime: run::runtime(raw)?,
        network: run::network(raw)?,
    })
}

/// Runs until a signal arrives. Returns exit code 0 if everything was removed.
pub fn run(args: &Try) -> Result<ExitCode, CliError> {
    run::need_root("try")?;
    need_pods(&args.pods)?;
    let sealed = run::seal();
    let root = Root::new(args.root.as_deref())?;
    let layout = Layout::new(&root.path);
    let images = image::open(&layout)?;
    args.images
        .iter()
        .try_for_each(|source| source.add(&images))?;
    log_to_file(&root.path)?;
    run::warn_unsealed(sealed);
    let mut settings =
        run::settings(&as_run(args, &root.path), &layout).map_err(CliError::Failed)?;
    // The node's own daemon may use this port.
    settings.healthz_bind_address = None;
    settings.healthz_port = None;
    let title = title(&settings.static_pod_path, &root.path);
    let daemon = run::start_daemon(settings, layout)?;
    // From here on containers use the root directory. The directory must stay until the containers are gone, even
    // if a step before that fails.
    root.keep();
    let shown = show_until_signal(&daemon, &title);
    say("podprobe: stopping and removing every pod");
    let removed = daemon.remove_all_pods(REMOVE);
    let ended = daemon.shutdown(SHUTDOWN);
    removed.and(ended).map_err(|e| {
        let left = root.path.display();
        CliError::Failed(format!("{e}; what is left lies in {left}"))
    })?;
    root.release();
    shown.map(|()| ExitCode::SUCCESS)
}

/// Returns an error if `pods` does not exist. The verb `run` accepts a directory that is made later, but `try`
/// does not.
fn need_pods(pods: &Path) -> Result<(), CliError> {
    let shown = pods.display();
    pods.metadata().map(drop).map_err(|e| {
        CliError::Failed(match e.kind() {
            io::ErrorKind::NotFound => format!(
                "cannot read pods from {shown}: it does not exist; create it, or name another with --pods"
            ),
            _ => format!("cannot read pods from {shown}: {e}"),
        })
    })
}

/// Returns the title of the display. The instruction comes first, because a narrow terminal cuts the paths.
fn title(pods: &Path, root: &Path) -> String {
    format!(
        "Ctrl-C stops and removes everything\npods in {}, log and files in {}",
        pods.display(),
        root.display()
    )
}

fn as_run(args: &Try, root: &Path) -> Run {
    Run {
        root: root.into(),
        config: None,
        pods: Some(args.pods.clone()),
        runtime: args.runtime.clone(),
        network: args.network,
        node_name: None,
        log_format: None,
        log_file: None,
    }
}

/// Shows the pods on another thread and waits for the signal. If the display ends before the signal, because the
/// reader of its output is gone, the daemon continues.
fn show_until_signal(daemon: &Daemon, title: &str) -> Result<(), CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (backend, title, stopped) = (daemon.backend(), title.to_owned(), Arc::clone(&stop));
    let display = thread::Builder::new()
        .name("display".into())
        .spawn(move || live::show(&*backend, &title, &stopped))
        .map_err(|e| CliError::Failed(format!("cannot start the display: {e}")))?;
    daemon.wait_for_signal();
    stop.store(true, Ordering::SeqCst);
    // The display fails only if it cannot write to its terminal. The terminal could not show the error either, so
    // the error is ignored.
    let _ = display.join();
    Ok(())
}

fn log_to_file(root: &Path) -> Result<(), CliError> {
    let path = root.join("podprobe.log");
    let file = File::create(&path)
        .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", path.display())))?;
    logging::start_direct(run::log_levels(), Box::new(file));
    Ok(())
}

/// The root directory of `try`. A directory that the user gave stays. A new directory is removed when the value is
/// dropped.
struct Root {
    path: PathBuf,
    fresh: bool,
    /// True while containers use the directory. A directory in use is not removed.
    kept: Cell<bool>,
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
            fresh,
            kept: Cell::new(false),
        })
    }

    /// Marks the directory as in use. Dropping the value does not remove a directory in use.
    fn keep(&self) {
        self.kept.set(true);
    }

    /// Undoes `keep`. After this call, dropping the value removes a new directory.
    fn release(&self) {
        self.kept.set(false);
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.fresh
            && !self.kept.get()
            && let Err(e) = remove_tree(&self.path)
        {
            say(&format!(
                "podprobe: cannot remove {}: {e}",
                self.path.display()
            ));
        }
    }
}

/// Makes a new directory in the temporary directory, with mkdtemp. The name of the new directory is unpredictable,
/// and only the owner can read the directory.
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
    use crate::cli::args::testing;

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
    fn a_narrow_terminal_says_how_to_end_it() {
        let title = title(
            Path::new(&"/long".repeat(20)),
            Path::new(&"/long".repeat(20)),
        );
        let first = title.lines().next().unwrap();
        assert!(first.contains("Ctrl-C") && first.len() < 40, "{first}");
    }

    #[test]
    fn what_is_kept_is_kept() {
        for released in [false, true] {
            let fresh = Root::new(None).unwrap();
            let path = fresh.path.clone();
            fresh.keep();
            if released {
                fresh.release();
            }
            drop(fresh);
            assert_eq!(path.is_dir(), !released);
            let _ = remove_tree(&path);
        }
    }

    #[track_caller]
    fn check(line: &str, expected: Try) {
        assert_eq!(testing::parse(&VERB, parse, line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        let got = testing::parse(&VERB, parse, line);
        assert_eq!(got, Err(expected.into()), "{line}");
    }

    #[test]
    fn try_takes_images_with_and_without_name() {
        let images = vec![
            ImageSource {
                path: "a.tar".into(),
                name: None,
            },
            ImageSource {
                path: "d=ir".into(),
                name: Some("x:latest".into()),
            },
        ];
        check(
            "try --pods p --image a.tar --image d=ir=x:latest",
            Try {
                root: None,
                pods: "p".into(),
                images,
                runtime: None,
                network: None,
            },
        );
        check_error(
            "try",
            "'try' needs a directory of pod files: podprobe try --pods DIR",
        );
        check_error(
            "try --pods p --image =x",
            "--image takes FILE or FILE=NAME, not '=x'",
        );
    }
}
