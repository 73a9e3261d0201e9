//! Why libcontainer failed. Its processes tell each other only the outermost words ("failed to prepare rootfs"); the cause
//! is in the error events it logs first. They are kept, never printed.

use std::fmt::{Debug, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::executor::MARK;

/// Appends each error event as one line to a file; all of libcontainer's processes inherit the descriptor.
struct Capture(File);

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let _ = (&self.0).write_all(
            format!("{}{}\n", line.message, line.fields)
                .replace("\n\n", "\n")
                .as_bytes(),
        );
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            // They would make equal failures differ.
            "pid" | "init" => Ok(()),
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name} {value:?}"),
        };
    }
}

/// Keeps the error events of this process and of those it makes in `file`.
pub(super) fn capture(file: &Path) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(file)?;
    // Only a second call could fail, and this role makes one container.
    let _ = tracing::subscriber::set_global_default(Capture(log));
    Ok(())
}

/// The innermost cause.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// For people, and whole.
    Sentence(String),
    /// libcontainer's own words, which need the outer ones.
    Event(String),
}

/// What the first event, which is the innermost, says.
pub(super) fn first(file: &Path) -> Option<Cause> {
    read(&fs::read_to_string(file).ok()?)
}

fn read(events: &str) -> Option<Cause> {
    let first = events.lines().next()?;
    let sentence = mount(first, events).or_else(|| cgroup(first));
    Some(sentence.map_or_else(|| Cause::Event(first.to_owned()), Cause::Sentence))
}

/// libcontainer prints the mount as Rust has it; the number of the error is often only in a later event.
fn mount(first: &str, events: &str) -> Option<String> {
    let mount = first.strip_prefix("failed to mount Mount { ")?;
    let (fields, said) = mount.rsplit_once(" }: ")?;
    let at = quoted(fields, "destination: \"")?;
    let what = quoted(fields, "source: Some(\"").or_else(|| quoted(fields, "typ: Some(\""))?;
    let why = system_error(events).unwrap_or(said);
    Some(format!("cannot mount {what} at {at}: {why}"))
}

fn cgroup(first: &str) -> Option<String> {
    if first.starts_with("failed to add task to cgroup") {
        let why = system_error(first)?;
        return Some(format!("cannot put the container into its cgroup: {why}"));
    }
    let error = first.strip_prefix("failed to apply cgroup")?;
    if let Some((_, rest)) = error.split_once("UnableToSet { target: ") {
        let (limit, _) = rest.split_once(',')?;
        // Most likely a slip: 64m is 0.064 bytes, which is rounded up to 1.
        let suffix = match limit.parse::<u64>() {
            Ok(..1024) => " (the suffix m means thousandths, M and Mi megabytes)",
            _ => "",
        };
        return Some(format!(
            "cannot set a memory limit of {limit} B: a container needs more to start; raise resources.limits.memory{suffix}"
        ));
    }
    let (before, _) = error.split_once("Controller(")?;
    let controller = before.rsplit('(').next()?.to_lowercase();
    let why = system_error(error)?;
    Some(format!("cannot set the {controller} limits: {why}"))
}

/// The value after `before`, up to its closing quote.
fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once('"').map(|(value, _)| value)
}

/// The system's error in an error as Rust prints it: the text of an `io::Error`, or the name of an errno.
fn system_error(text: &str) -> Option<&str> {
    quoted(text, "message: \"").or_else(|| {
        let (_, rest) = text.split_once("Nix(")?;
        rest.split_once(')').map(|(name, _)| name)
    })
}

/// The chain of causes in one line. Our own executor's text stands alone; otherwise the words that only say "failed"
/// again are left out.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(e) = next {
        let text = e.to_string();
        if let Some((_, own)) = text.split_once(MARK) {
            return own.to_owned();
        }
        if parts.last().is_none_or(|last| !last.contains(&text)) {
            parts.push(text);
        }
        next = e.source();
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(events: &str, expected: &str) {
        assert_eq!(read(events), Some(Cause::Sentence(expected.into())));
    }

    #[test]
    fn a_memory_limit_that_cannot_be_set_is_one_sentence() {
        for used in ["278528", "282624"] {
            let event = |limit: u64| {
                format!(
                    "failed to apply cgroup, err V1(MemoryController(UnableToSet {{ target: {limit}, current: {used}, peak: {used} }}))\n"
                )
            };
            check(
                &event(4096),
                "cannot set a memory limit of 4096 B: a container needs more to start; raise resources.limits.memory",
            );
            check(
                &event(1),
                "cannot set a memory limit of 1 B: a container needs more to start; raise resources.limits.memory (the suffix m means thousandths, M and Mi megabytes)",
            );
        }
    }

    #[test]
    fn other_cgroup_files_that_cannot_be_written_name_the_controller_and_the_error() {
        check(
            r#"failed to apply cgroup, err V1(CpuController(Write { err: Os { code: 22, kind: InvalidInput, message: "Invalid argument" }, path: "/sys/fs/cgroup/cpu/ab/cpu.shares", data: "1" }))"#,
            "cannot set the cpu limits: Invalid argument",
        );
        check(
            r#"failed to add task to cgroup, err V2(WrappedIo(Write { err: Os { code: 16, kind: ResourceBusy, message: "Device or resource busy" }, path: "/sys/fs/cgroup/ab/cgroup.procs", data: "7" }))"#,
            "cannot put the container into its cgroup: Device or resource busy",
        );
    }

    #[test]
    fn a_mount_that_fails_is_one_sentence() {
        let mount = r#"failed to mount Mount { destination: "/etc/x", typ: Some("bind"), source: Some("/srv/x"), options: Some(["rbind", "ro"]), uid_mappings: None, gid_mappings: None }: "#;
        check(
            &format!(
                "{mount}io error\nfailed to prepare rootfs, err Mount(Io(Os {{ code: 20, kind: NotADirectory, message: \"Not a directory\" }}))"
            ),
            "cannot mount /srv/x at /etc/x: Not a directory",
        );
        check(
            &format!("{mount}syscall\nfailed to prepare rootfs, err Mount(Syscall(Nix(EPERM)))"),
            "cannot mount /srv/x at /etc/x: EPERM",
        );
        check(
            &format!("{mount}it is odd"),
            "cannot mount /srv/x at /etc/x: it is odd",
        );
    }

    #[test]
    fn other_events_stay_as_they_are() {
        let event = "failed to set hostname, err EPERM";
        assert_eq!(read(event), Some(Cause::Event(event.into())));
        assert_eq!(read(""), None);
    }

    #[test]
    fn process_ids_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("errors");
        let log = File::create(&file).unwrap();
        tracing::subscriber::with_default(Capture(log), || {
            tracing::error!(
                pid = 22399,
                err = "odd",
                init = true,
                "failed to apply cgroup"
            );
        });
        let event = "failed to apply cgroup, err \"odd\"".to_owned();
        assert_eq!(first(&file), Some(Cause::Event(event)));
    }
}
