//! Connects to a daemon that may still be starting: `podprobe run &` returns at once, and the next line of a
//! script may already need the daemon.
//!
//! Invariants: a client waits only while there is a daemon process that will listen. If no daemon runs, the client
//! fails after a tenth of a second.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::base::clock::Moment;

/// The environment variable that sets the root if `--root` is not given.
pub const ROOT_VARIABLE: &str = "PODPROBE_ROOT";

/// The longest time that a starting daemon may take to listen.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait if no starting daemon is found. A short wait is needed, because a shell's `podprobe run
/// &` returns before the new process has become podprobe.
const MOMENT: Duration = Duration::from_millis(100);
/// The time between two attempts to connect.
const STEP: Duration = Duration::from_millis(5);

/// Connects to the socket of the daemon with this root. Waits for a daemon that is starting.
///
/// # Errors
/// Returns the `io::Error` of the connection if no daemon listens, or if connecting to the socket fails.
pub(super) fn connect(socket: &Path, root: &Path) -> io::Result<UnixStream> {
    let mut starting: Option<PathBuf> = None;
    let begin = Moment::now();
    loop {
        let error = match UnixStream::connect(socket) {
            Err(e) if is_nobody_there(&e) => e,
            result => return result,
        };
        let starts = match &starting {
            // All processes are searched again only if the process that was found has ended, because a node may
            // have hundreds of processes.
            Some(process) if is_daemon(process, root) => true,
            _ => {
                starting = daemon_of(root);
                starting.is_some()
            }
        };
        let patience = if starts { PATIENCE } else { MOMENT };
        if Moment::now() >= begin + patience {
            return Err(error);
        }
        thread::sleep(STEP);
    }
}

fn is_nobody_there(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Finds a process that is a daemon with this root. Returns the directory of the process in /proc.
fn daemon_of(root: &Path) -> Option<PathBuf> {
    let all = fs::read_dir("/proc").ok()?.flatten();
    let is_process = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    let mut processes = all.filter(|e| is_process(e.file_name().as_bytes()));
    processes.find_map(|e| Some(e.path()).filter(|process| is_daemon(process, root)))
}

/// Tells whether a process is `podprobe run` or `podprobe try` with this root. A podprobe process without a
/// command line counts, too, because the kernel writes the command line a moment after it has replaced the
/// program.
fn is_daemon(process: &Path, root: &Path) -> bool {
    let words = |file: &str| fs::read(process.join(file)).map(|bytes| words(&bytes));
    let Ok(line) = words("cmdline") else {
        return false;
    };
    if line.is_empty() {
        let program = fs::read_link(process.join("exe"));
        return program.is_ok_and(|program| is_podprobe(&program));
    }
    if !line
        .first()
        .is_some_and(|program| is_podprobe(Path::new(program)))
    {
        return false;
    }
    let variable = words("environ").ok().and_then(|all| root_variable(&all));
    let of = root_of(&line, variable);
    // A relative root starts at the working directory of that process.
    let here = fs::read_link(process.join("cwd")).unwrap_or_default();
    of.is_some_and(|of| here.join(of) == root)
}

/// Splits text into words that each end with a zero byte.
fn words(bytes: &[u8]) -> Vec<OsString> {
    let words = bytes.split(|b| *b == 0);
    let mut words: Vec<OsString> = words.map(|w| OsString::from_vec(w.to_vec())).collect();
    words.pop();
    words
}

fn is_podprobe(program: &Path) -> bool {
    let own = std::env::current_exe().unwrap_or_default();
    let name = program.file_name();
    name.is_some_and(|name| name == "podprobe" || Some(name) == own.file_name())
}

fn root_variable(environment: &[OsString]) -> Option<OsString> {
    let prefix = format!("{ROOT_VARIABLE}=");
    let mut all = environment.iter();
    all.find_map(|set| set.as_bytes().strip_prefix(prefix.as_bytes()))
        .map(|value| OsString::from_vec(value.to_vec()))
}

/// Returns the root in a command line that starts a daemon, exactly as it was written. Errors in the command line
/// are ignored, because a process with a wrong command line ends with an error itself.
fn root_of(line: &[OsString], variable: Option<OsString>) -> Option<PathBuf> {
    let (mut verb, mut root) = (None, None);
    let mut words = line.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--root" => root = words.next().cloned(),
            // Besides `--root`, `-n` is the only option with a value that can stand before a verb.
            b"-n" | b"--namespace" => drop(words.next()),
            word => match (word.strip_prefix(b"--root="), word.first()) {
                (Some(value), _) => root = Some(OsString::from_vec(value.to_vec())),
                (None, Some(b'-') | None) => {}
                (None, Some(_)) => drop(verb.get_or_insert(word)),
            },
        }
    }
    match verb? {
        b"run" => {
            let root = root.or(variable).map(PathBuf::from);
            Some(root.unwrap_or_else(|| "/".into()))
        }
        // The verb `try` removes its root, so `try` does not take the root from the environment.
        b"try" => root.map(PathBuf::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, variable: Option<&str>, expected: Option<&str>) {
        let line = line.replace(' ', "\0") + "\0";
        let root = root_of(&words(line.as_bytes()), variable.map(Into::into));
        assert_eq!(root, expected.map(PathBuf::from), "{line:?}");
    }

    #[test]
    fn the_root_of_a_daemon_is_that_of_its_command_line() {
        check("podprobe run", None, Some("/"));
        check("podprobe run --root /tmp/pp", None, Some("/tmp/pp"));
        check("podprobe --root=pp run --pods x", None, Some("pp"));
        check("podprobe run", Some("/tmp/a"), Some("/tmp/a"));
        check("podprobe run --root /b", Some("/tmp/a"), Some("/b"));
        check("podprobe try --root /t --pods x", None, Some("/t"));
        check("podprobe get pods --root /tmp/pp", None, None);
        check("podprobe run --pods run --root /r", None, Some("/r"));
        check("podprobe -n x get pods --root run", None, None);
        check("podprobe", None, None);
    }

    #[test]
    fn where_no_daemon_starts_the_answer_comes_soon() {
        let root = tempfile::tempdir().unwrap();
        let begin = Moment::now();
        let error = connect(&root.path().join("x.sock"), root.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let took = Moment::now().since(begin);
        assert!(took < PATIENCE, "{took:?}");
    }
}
