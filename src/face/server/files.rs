//! `/podprobe/v1/files/NAMESPACE/POD[/UID]/CONTAINER?path=P`: files of a container as a tar stream. `GET` reads the
//! files at the path. `PUT` writes the files in the body to the path; with `extract=true` the path is a directory, and
//! the body may be any tar.
//!
//! Invariants: each use is in the log. At most [`MAX_COPIES`] copies run at a time, because each copy holds descriptors
//! and a buffer. Only that buffer of the files is kept in memory.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;

use super::containers::{Audit, ContainerName};
use super::error::Unreachable;
use super::exchange::Exchange;
use super::protocol::Copied;
use super::response::{JSON, TAR};
use super::{Backend, ContainerFiles};
use crate::base::sys::task::Process;
use crate::engine::file_copy::{CopyError, Failed, Placement, Root, Source, Target, unpack};

/// Largest number of copies at a time.
const MAX_COPIES: usize = 4;

static COPIES: AtomicUsize = AtomicUsize::new(0);

/// A seat among the [`MAX_COPIES`] copies that may run at a time. A dropped seat is free for another copy.
struct Seat;

impl Seat {
    fn take() -> Option<Self> {
        let free = |n| (n < MAX_COPIES).then_some(n + 1);
        let taken = COPIES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free);
        taken.is_ok().then_some(Self)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        COPIES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A copy that is ready to begin.
struct Copying {
    path: String,
    files: ContainerFiles,
    audit: Audit,
    _seat: Seat,
}

/// Writes the first line to the log and takes a seat. Returns None if the copy cannot be done. In this case the request
/// is already answered.
fn begin(
    exchange: &mut Exchange<'_>,
    backend: &dyn Backend,
    (verb, name): (&'static str, &ContainerName),
) -> io::Result<Option<Copying>> {
    let path = exchange.request.value("path").unwrap_or_default();
    let path = path.to_owned();
    let words = std::slice::from_ref(&path);
    let audit = Audit::begin(verb, name, words, &exchange.client());
    match prepared(&path, backend, name) {
        Ok((files, seat)) => Ok(Some(Copying {
            path,
            files,
            audit,
            _seat: seat,
        })),
        Err(why) => {
            audit.end(&why.to_string());
            let answered = exchange.error(why.status(), &why.to_string());
            answered.map(|()| None)
        }
    }
}

/// The reasons why a copy cannot begin.
#[derive(Debug, Error)]
enum NoCopy {
    #[error("the query needs path: a path in the container")]
    NoPath,
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{MAX_COPIES} copies are under way, which is the most; try again later")]
    NoSeat,
}

impl NoCopy {
    fn status(&self) -> u16 {
        match self {
            Self::NoPath => 400,
            Self::Unreachable(e) => e.status(),
            Self::NoSeat => 503,
        }
    }
}

/// Returns the container's files and a seat for the copy.
fn prepared(
    path: &str,
    backend: &dyn Backend,
    name: &ContainerName,
) -> Result<(ContainerFiles, Seat), NoCopy> {
    if path.is_empty() {
        return Err(NoCopy::NoPath);
    }
    let files = backend.files(name)?;
    let seat = Seat::take().ok_or(NoCopy::NoSeat)?;
    Ok((files, seat))
}

fn status(e: &CopyError) -> u16 {
    match e {
        CopyError::NotFound(_) => 404,
        CopyError::Refused(_) => 422,
        CopyError::Stream(_) => 400,
    }
}

/// Checks that the container still runs. When a container has ended, its mounts are gone, so the copy may have used
/// other files than the container's.
fn still_runs(process: Process) -> Result<(), CopyError> {
    match process.alive() {
        true => Ok(()),
        false => Err(CopyError::Refused(
            "the container has ended during the copy; it is not whole".into(),
        )),
    }
}

/// Answers `GET`: sends the files at the path as a tar.
pub(super) fn send(
    exchange: &mut Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let Some(copying) = begin(exchange, backend, ("cp from", name))? else {
        return Ok(());
    };
    let (path, audit) = (copying.path, copying.audit);
    let process = copying.files.root.process;
    let root = Root::Container(copying.files.root.dir);
    let source = match Source::find(&root, path.as_bytes()) {
        Ok(source) => source,
        Err(e) => {
            audit.end(&e.to_string());
            return exchange.error(status(&e), &e.to_string());
        }
    };
    exchange.stream(TAR, true, |out| {
        let packed = source.pack(out, || still_runs(process));
        match packed {
            Ok(packed) => {
                audit.end(&format!("{} bytes", packed.bytes));
                Ok(())
            }
            // The answer is cut off, so that no client takes it for complete.
            Err(e) => {
                audit.end(&e.to_string());
                Err(io::Error::other(e))
            }
        }
    })
}

/// Answers `PUT`: writes the files of the body into the container.
pub(super) fn receive(
    exchange: &mut Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let Some(copying) = begin(exchange, backend, ("cp to", name))? else {
        return Ok(());
    };
    let (path, files, audit) = (copying.path, copying.files, copying.audit);
    let process = files.root.process;
    let target = Target {
        root: &Root::Container(files.root.dir),
        path: path.as_bytes(),
        owner: files.owner,
        placement: match exchange.request.flag("extract") {
            true => Placement::Extract,
            false => Placement::Copy,
        },
    };
    let written = unpack(&target, &mut exchange.body_that_streams());
    let written = written.and_then(|done| match still_runs(process) {
        Ok(()) => Ok(done),
        Err(error) => Err(Box::new(Failed {
            error,
            current: None,
            done,
        })),
    });
    match written {
        Ok(done) => {
            audit.end(&format!("{} files, {} bytes", done.files, done.bytes));
            let copied = Copied {
                files: done.files,
                bytes: done.bytes,
                notes: done.notes.into_texts(),
            };
            exchange.reply(200, JSON, &serde_json::to_vec(&copied)?)
        }
        Err(failed) => {
            let text = failed.to_string();
            audit.end(&text);
            exchange.error(status(&failed.error), &text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_copies_run_at_a_time() {
        let mut seats: Vec<Seat> = (0..MAX_COPIES).map(|_| Seat::take().unwrap()).collect();
        assert!(Seat::take().is_none());
        seats.pop();
        assert!(Seat::take().is_some(), "a copy that has ended gives way");
    }
}
