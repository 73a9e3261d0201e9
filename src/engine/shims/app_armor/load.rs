//! Loads the profile for `RuntimeDefault` at the start of the daemon, if the configuration allows it.
//!
//! Invariants: the profile is built into the program, so an upgrade also upgrades the profile. The parser is root's own
//! program: it is searched in fixed directories and not in `PATH`. The daemon waits at most [`LIMIT`] for the parser,
//! and starts even if the profile was not loaded.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{AppArmor, RUNTIME_DEFAULT};
use crate::base::sys::task::PidFd;

/// Text of the profile, with a comment at its beginning.
pub const PROFILE: &str = include_str!("../../../../config/apparmor.d/podprobe-default");
/// Longest time that the parser `apparmor_parser` may run before it is killed. On a slow board the parser needs a
/// second.
pub const LIMIT: Duration = Duration::from_secs(20);
/// Directories in which distributions install the parser.
const DIRECTORIES: [&str; 2] = ["/sbin", "/usr/sbin"];
/// Maximum size in bytes of the parser's error output in a message.
const MOST_WORDS: u64 = 2048;

/// Returns the path of this node's parser; None if the node has no parser.
pub fn parser() -> Option<PathBuf> {
    find(&DIRECTORIES)
}

fn find(directories: &[impl AsRef<Path>]) -> Option<PathBuf> {
    let paths = directories.iter();
    let mut paths = paths.map(|dir| dir.as_ref().join("apparmor_parser"));
    paths.find(|path| {
        let found = path.metadata();
        found.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}

/// The outcome of loading the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Nothing was loaded, because `loadAppArmorProfile` is false.
    NotAllowed,
    /// Nothing was loaded, because the kernel enforces no profiles.
    NoAppArmor,
    /// The kernel has the profile now. The profile applies to containers that start, and to running containers that
    /// already have it.
    Replaced,
}

/// The reason why the profile is not loaded. The text says what failed, what follows, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The node has no parser.
    #[error(
        "loadAppArmorProfile: cannot load {RUNTIME_DEFAULT}: there is no apparmor_parser in {}; install the package apparmor, and start \
         podprobe again",
        DIRECTORIES.join(" or ")
    )]
    NoParser,
    /// The parser did not load the profile.
    #[error(
        "loadAppArmorProfile: cannot load {RUNTIME_DEFAULT}: {}: {source}; what was loaded before stays in force",
        parser.display()
    )]
    Parser {
        /// Path of the parser.
        parser: PathBuf,
        /// The reason why the parser failed.
        source: ParserError,
    },
}

/// The reason why the parser failed.
#[derive(Debug, thiserror::Error)]
pub enum ParserError {
    /// The parser could not be run.
    #[error(transparent)]
    Run(#[from] io::Error),
    /// The parser was killed, because it had not ended after this time.
    #[error("it had not ended after {} s", .0.as_secs_f32())]
    Slow(Duration),
    /// The parser refused the profile.
    #[error("{status}: {words}")]
    Refused {
        /// Exit code or signal.
        status: ExitStatus,
        /// The parser's error output, as one line.
        words: String,
    },
}

/// Loads the profile into the kernel, if `allowed`.
///
/// # Errors
/// Returns [`LoadError`] if there is no parser, or if the parser does not load the profile.
pub fn load(
    allowed: bool,
    kernel: &AppArmor,
    parser: Option<&Path>,
    limit: Duration,
) -> Result<Loaded, LoadError> {
    match (allowed, kernel.is_enabled(), parser) {
        (false, ..) => Ok(Loaded::NotAllowed),
        (_, false, _) => Ok(Loaded::NoAppArmor),
        (.., None) => Err(LoadError::NoParser),
        (.., Some(parser)) => match run(parser, limit) {
            Ok(()) => Ok(Loaded::Replaced),
            Err(source) => Err(LoadError::Parser {
                parser: parser.to_owned(),
                source,
            }),
        },
    }
}

/// Runs the parser with the profile as input. The parser's error output goes to a file in memory: reading a pipe would
/// wait for every process that the parser has started.
fn run(parser: &Path, limit: Duration) -> Result<(), ParserError> {
    let mut input = in_memory()?;
    let mut said = in_memory()?;
    input.write_all(PROFILE.as_bytes())?;
    input.rewind()?;
    let mut command = Command::new(parser);
    // The parser neither reads nor writes its cache, which may have another profile of this name.
    command.args(["--skip-cache", "--replace"]);
    command.env_clear().current_dir("/");
    command.stdin(input).stdout(Stdio::null());
    command.stderr(said.try_clone()?);
    let mut child = command.spawn()?;
    let ended = PidFd::of(child.id() as i32).and_then(|process| process.wait(limit));
    if !ended.as_ref().is_ok_and(|ended| *ended) {
        let _ = child.kill();
    }
    let status = child.wait()?;
    if !ended? {
        return Err(ParserError::Slow(limit));
    }
    if status.success() {
        return Ok(());
    }
    let mut words = Vec::new();
    let _ = said.rewind();
    let _ = said.take(MOST_WORDS).read_to_end(&mut words);
    let words = one_line(&String::from_utf8_lossy(&words));
    Err(ParserError::Refused { status, words })
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create(c"apparmor", MFdFlags::MFD_CLOEXEC)?.into())
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::super::tests::fake;
    use super::*;

    /// Writes a script that stands in for the parser. Another process writes it, because a file that is open for
    /// writing cannot be executed.
    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("apparmor_parser");
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", write]).arg(&path).arg(body);
        assert!(shell.status().unwrap().success());
        path
    }

    fn loaded_by(body: &str, limit: Duration) -> (tempfile::TempDir, Result<Loaded, LoadError>) {
        let (dir, kernel) = fake("Y\n", Some(""));
        let parser = script(dir.path(), body);
        let loaded = load(true, &kernel, Some(&parser), limit);
        (dir, loaded)
    }

    #[test]
    fn it_is_loaded_only_where_it_is_allowed_and_means_something() {
        let (dir, on) = fake("Y\n", Some(""));
        let (_dir, off) = fake("N\n", None);
        let ran = dir.path().join("ran");
        let parser = script(dir.path(), &format!("echo > {}", ran.display()));
        let parser = Some(parser.as_path());
        assert_eq!(load(false, &on, parser, LIMIT).unwrap(), Loaded::NotAllowed);
        assert_eq!(load(false, &off, None, LIMIT).unwrap(), Loaded::NotAllowed);
        assert_eq!(load(true, &off, parser, LIMIT).unwrap(), Loaded::NoAppArmor);
        assert_eq!(load(true, &off, None, LIMIT).unwrap(), Loaded::NoAppArmor);
        assert!(!ran.exists());
        assert_eq!(load(true, &on, parser, LIMIT).unwrap(), Loaded::Replaced);
        assert!(ran.exists());
    }

    #[test]
    fn without_a_parser_it_is_said_what_to_install() {
        let (_dir, on) = fake("Y\n", Some(""));
        assert_eq!(
            load(true, &on, None, LIMIT).unwrap_err().to_string(),
            "loadAppArmorProfile: cannot load podprobe-default: there is no apparmor_parser in /sbin or /usr/sbin; install the package \
             apparmor, and start podprobe again"
        );
    }

    #[test]
    fn the_parser_gets_the_profile_of_the_program_and_no_environment() {
        let write = "cat > \"${0%/*}/got\"; echo \"$@\" > \"${0%/*}/arguments\"; echo \"$HOME\" >> \"${0%/*}/arguments\"";
        let (dir, loaded) = loaded_by(write, LIMIT);
        assert_eq!(loaded.unwrap(), Loaded::Replaced);
        let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("got"), PROFILE);
        assert_eq!(read("arguments"), "--skip-cache --replace\n\n");
        let named = format!("\nprofile {RUNTIME_DEFAULT} flags=");
        assert!(PROFILE.contains(&named));
    }

    #[test]
    fn what_the_parser_says_is_told() {
        let (dir, loaded) = loaded_by("echo 'no such' >&2; echo 'abi' >&2; exit 3", LIMIT);
        let parser = dir.path().join("apparmor_parser");
        let expected = format!(
            "loadAppArmorProfile: cannot load podprobe-default: {}: exit status: 3: no such; abi; what was loaded before stays in force",
            parser.display()
        );
        assert_eq!(loaded.unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_parser_that_hangs_is_ended() {
        let began = Instant::now();
        let limit = Duration::from_millis(50);
        let (_dir, loaded) = loaded_by("exec sleep 1000", limit);
        let text = loaded.unwrap_err().to_string();
        assert!(text.contains("it had not ended after 0.05 s"), "{text}");
        assert!(began.elapsed() < Duration::from_secs(100));
    }

    #[test]
    fn the_parser_is_an_executable_file_of_the_first_directory_that_has_one() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        assert_eq!(find(&dirs), None);
        fs::write(dirs[0].path().join("apparmor_parser"), "text").unwrap();
        let second = script(dirs[1].path(), "");
        script(dirs[2].path(), "");
        assert_eq!(find(&dirs), Some(second));
    }
}
