//! The role `podprobe oci`: an OCI runtime with runc's verbs and arguments.
//!
//! Invariants: the runtime runs in a new process with one thread, and the container's first process is a copy of this
//! process. The runtime's [`record`] names the first process by pid *and* start time. The record is written before any
//! other part of the container, so that a half-made container can always be removed. A setting that is not supported is
//! refused, never ignored.

mod cgroups;
mod config;
mod create;
mod error;
mod first_process;
mod limits;
mod process;
mod record;
mod root;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

use self::error::Error;

/// Default of `--root`: a directory below /run, as in runc.
const DEFAULT_ROOT: &str = "/run/podprobe/oci";
/// Maximum length of a container id in bytes. The limit is runc's: the id is part of file names.
const MAX_ID: usize = 255;

/// The verb of a command line, with its options.
#[derive(Debug, PartialEq)]
enum Verb {
    Create {
        bundle: PathBuf,
        pid_file: Option<PathBuf>,
        console_socket: Option<PathBuf>,
        unfiltered_devices: bool,
        pod_proc: Option<PathBuf>,
    },
    Start,
    Kill {
        signal: i32,
        all: bool,
    },
    Delete {
        force: bool,
    },
    State,
    Version,
}

/// A parsed command line: a verb, and the container that it applies to.
#[derive(Debug, PartialEq)]
struct Invocation {
    root: PathBuf,
    verb: Verb,
    id: String,
}

/// Runs one verb: `oci [--root DIR] create --bundle B --pid-file P [--console-socket S] ID | start ID | kill ID SIGNAL
/// | delete [--force] ID | state ID | --version`. `args` begins after the word `oci`. A verb that fails writes one line
/// to stderr, and the exit code is 1. If the arguments are wrong, the exit code is 2.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let invocation = match parse(args.collect()) {
        Ok(i) => i,
        Err(e) => {
            eprintln!("podprobe oci: {e}");
            return ExitCode::from(2);
        }
    };
    match run(&invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}", e.to_string().replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn run(i: &Invocation) -> Result<(), Error> {
    match &i.verb {
        Verb::Create {
            bundle,
            pid_file,
            console_socket,
            unfiltered_devices,
            pod_proc,
        } => create::create(&create::Request {
            root: &i.root,
            id: &i.id,
            bundle,
            pid_file: pid_file.as_deref(),
            console_socket: console_socket.as_deref(),
            unfiltered_devices: *unfiltered_devices,
            pod_proc: pod_proc.as_deref(),
        }),
        Verb::Start => create::start(&i.root, &i.id),
        Verb::Kill { signal, all } => process::kill(&i.root, &i.id, *signal, *all),
        Verb::Delete { force } => process::delete(&i.root, &i.id, *force),
        Verb::State => process::state(&i.root, &i.id),
        Verb::Version => {
            println!(
                "podprobe version {}\nspec: 1.0.2",
                env!("CARGO_PKG_VERSION")
            );
            Ok(())
        }
    }
}

fn parse(args: Vec<OsString>) -> Result<Invocation, lexopt::Error> {
    let (mut root, mut bundle) = (PathBuf::from(DEFAULT_ROOT), PathBuf::from("."));
    let (mut pid_file, mut console_socket) = (None, None);
    let (mut force, mut all, mut version) = (false, false, false);
    let (mut unfiltered_devices, mut pod_proc) = (false, None);
    let mut words: Vec<String> = Vec::new();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("root") => root = parser.value()?.into(),
            Long("bundle") | Short('b') => bundle = parser.value()?.into(),
            Long("pid-file") => pid_file = Some(parser.value()?.into()),
            Long("console-socket") => console_socket = Some(parser.value()?.into()),
            // The next two options are UNFILTERED_DEVICES and POD_PROC, which stand before the verb.
            Long("unfiltered-devices") => unfiltered_devices = true,
            Long("pod-proc") => pod_proc = Some(parser.value()?.into()),
            Long("force") | Short('f') => force = true,
            Long("all") | Short('a') => all = true,
            Long("version") | Short('v') => version = true,
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if version {
        return Ok(Invocation {
            root,
            verb: Verb::Version,
            id: String::new(),
        });
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (verb, id) = match words[..] {
        ["create", id] => (
            Verb::Create {
                bundle,
                pid_file,
                console_socket,
                unfiltered_devices,
                pod_proc,
            },
            id,
        ),
        ["start", id] => (Verb::Start, id),
        ["kill", id] => (
            Verb::Kill {
                signal: nix::libc::SIGTERM,
                all,
            },
            id,
        ),
        ["kill", id, name] => (
            Verb::Kill {
                signal: signal(name)?,
                all,
            },
            id,
        ),
        ["delete", id] => (Verb::Delete { force }, id),
        ["state", id] => (Verb::State, id),
        _ => {
            return Err(
                "usage: podprobe oci [--root DIR] create|start|kill|delete|state ... ID".into(),
            );
        }
    };
    check_id(id)?;
    Ok(Invocation {
        root,
        verb,
        id: id.into(),
    })
}

fn check_id(id: &str) -> Result<(), lexopt::Error> {
    let sound = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'+' | b'-' | b'.');
    let first = id.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if id.ends_with(".podprobe") {
        return Err(format!(
            "{id:?} is no container id: what ends in .podprobe is a record of podprobe 0.1"
        )
        .into());
    }
    if first && id.len() <= MAX_ID && OsString::from(id).as_bytes().iter().all(sound) {
        return Ok(());
    }
    Err(format!(
        "{id:?} is no container id: letters, digits and _+-. only, a letter or digit first"
    )
    .into())
}

/// Parses a signal, such as `9`, `KILL`, `SIGKILL` or `RTMIN+3`.
fn signal(text: &str) -> Result<i32, lexopt::Error> {
    let unknown = || format!("{text:?} is no signal: a name such as TERM or a number from 1 to 64");
    if let Ok(n) = text.parse::<i32>() {
        return if (1..=64).contains(&n) {
            Ok(n)
        } else {
            Err(unknown().into())
        };
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(rest) = name.strip_prefix("RTMIN") {
        let offset: i32 = if rest.is_empty() {
            0
        } else {
            rest.parse().map_err(|_| unknown())?
        };
        let n = nix::libc::SIGRTMIN() + offset;
        return if n <= 64 && offset >= 0 {
            Ok(n)
        } else {
            Err(unknown().into())
        };
    }
    format!("SIG{name}")
        .parse::<nix::sys::signal::Signal>()
        .map(|s| s as i32)
        .map_err(|_| unknown().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expected: Result<(&str, Verb, &str), &str>) {
        let got = parse(args.split_whitespace().map(OsString::from).collect());
        match expected {
            Ok((root, verb, id)) => assert_eq!(
                got.unwrap(),
                Invocation {
                    root: root.into(),
                    verb,
                    id: id.into()
                }
            ),
            Err(text) => assert!(
                got.as_ref().is_err_and(|e| e.to_string().contains(text)),
                "{got:?}"
            ),
        }
    }

    #[test]
    fn arguments_of_runc() {
        let create = Verb::Create {
            bundle: "/b".into(),
            pid_file: Some("/p".into()),
            console_socket: Some("/c".into()),
            unfiltered_devices: false,
            pod_proc: None,
        };
        check(
            "--root /r create --bundle /b --pid-file /p --console-socket /c c1",
            Ok(("/r", create, "c1")),
        );
        check(
            "create c1",
            Ok((
                DEFAULT_ROOT,
                Verb::Create {
                    bundle: ".".into(),
                    pid_file: None,
                    console_socket: None,
                    unfiltered_devices: false,
                    pod_proc: None,
                },
                "c1",
            )),
        );
        let option = crate::engine::shims::UNFILTERED_DEVICES;
        let unfiltered = Verb::Create {
            bundle: ".".into(),
            pid_file: None,
            console_socket: None,
            unfiltered_devices: true,
            pod_proc: Some("/p".into()),
        };
        let proc = crate::engine::shims::POD_PROC;
        check(
            &format!("{option} {proc} /p --root /r create c1"),
            Ok(("/r", unfiltered, "c1")),
        );
        check(
            "kill c1 SIGTERM",
            Ok((
                DEFAULT_ROOT,
                Verb::Kill {
                    signal: 15,
                    all: false,
                },
                "c1",
            )),
        );
        check(
            "kill --all c1 kill",
            Ok((
                DEFAULT_ROOT,
                Verb::Kill {
                    signal: 9,
                    all: true,
                },
                "c1",
            )),
        );
        check(
            "kill c1 37",
            Ok((
                DEFAULT_ROOT,
                Verb::Kill {
                    signal: 37,
                    all: false,
                },
                "c1",
            )),
        );
        check(
            "kill c1 SIGRTMIN+3",
            Ok((
                DEFAULT_ROOT,
                Verb::Kill {
                    signal: nix::libc::SIGRTMIN() + 3,
                    all: false,
                },
                "c1",
            )),
        );
        check(
            "delete --force c1",
            Ok((DEFAULT_ROOT, Verb::Delete { force: true }, "c1")),
        );
        check("kill c1 65", Err("is no signal"));
        check("kill c1 NOPE", Err("is no signal"));
        check("delete ../etc", Err("is no container id"));
        check("state .", Err("is no container id"));
        check("exec c1", Err("usage"));
        check("create --preserve-fds 1 c1", Err("preserve-fds"));
    }
}
