//! `/logs/`: the files of the node's log directory, as a kubelet shows them.
//!
//! Invariants: the kernel resolves every path below the directory, and follows no link, because a container may have
//! put a link into the directory. Only files and directories are opened, because opening a device can have an effect.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::exchange::Exchange;
use super::page::escaped;
use super::request::encoded;
use super::response::{HTML, TEXT};

/// Largest number of names of a directory that are listed.
const MAX_NAMES: usize = 10_000;
/// Number of bytes that one read takes.
const CHUNK: usize = 64 << 10;

/// Answers with the file or the directory at the path `parts` below `dir`.
pub(super) fn serve(exchange: &mut Exchange<'_>, dir: &Path, parts: &[&str]) -> io::Result<()> {
    match open(dir, parts) {
        Ok(found) => match found.metadata() {
            Ok(m) if m.is_dir() => list(exchange, found, parts),
            Ok(m) if m.is_file() => send(exchange, found),
            _ => exchange.error(404, "404 page not found"),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => exchange.error(404, "404 page not found"),
        // The path contains a link, or leads out of the directory.
        Err(e)
            if matches!(
                e.raw_os_error().map(Errno::from_raw),
                Some(Errno::ELOOP | Errno::EXDEV)
            ) =>
        {
            exchange.error(404, "404 page not found")
        }
        Err(e) => exchange.error(500, &format!("cannot read the log directory: {e}")),
    }
}

fn open(dir: &Path, parts: &[&str]) -> io::Result<File> {
    let top = File::open(dir)?;
    if parts.is_empty() {
        return Ok(top);
    }
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        );
    let found: File = openat2(&top, Path::new(&parts.join("/")), how)?.into();
    let kind = found.metadata()?.file_type();
    match kind.is_file() || kind.is_dir() {
        true => File::open(format!("/proc/self/fd/{}", found.as_raw_fd())),
        false => Err(ErrorKind::NotFound.into()),
    }
}

fn send(exchange: &mut Exchange<'_>, mut file: File) -> io::Result<()> {
    exchange.stream(TEXT, true, |out| {
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(()),
                n => out.write_all(&chunk[..n])?,
            }
        }
    })
}

/// Lists a directory as Go's file server does.
fn list(exchange: &mut Exchange<'_>, dir: File, parts: &[&str]) -> io::Result<()> {
    let names = names(dir.into())?;
    let base: String = parts
        .iter()
        .map(|part| format!("{}/", encoded(part)))
        .collect();
    exchange.stream(HTML, false, |out| {
        out.write_all(b"<!doctype html>\n<pre>\n")?;
        for name in names {
            let (link, shown) = (name.trim_end_matches('/'), escaped(&name));
            let slash = if name.ends_with('/') { "/" } else { "" };
            let link = encoded(link);
            writeln!(out, "<a href=\"/logs/{base}{link}{slash}\">{shown}</a>")?;
        }
        out.write_all(b"</pre>\n")
    })
}

/// Returns the names in a directory, sorted; names of directories end with a slash.
fn names(dir: OwnedFd) -> io::Result<Vec<String>> {
    let mut dir = Dir::from_fd(dir)?;
    let mut names = Vec::new();
    for entry in dir.iter().take(MAX_NAMES) {
        let entry = entry?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        let slash = match entry.file_type() {
            Some(Type::Directory) => "/",
            _ => "",
        };
        match name.to_str() {
            None | Some("." | "..") => {}
            Some(name) => names.push(format!("{name}{slash}")),
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leads_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("log");
        std::fs::create_dir_all(logs.join("pods/a")).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(logs.join("pods/a/0.log"), "l").unwrap();
        symlink("../secret", logs.join("link")).unwrap();
        symlink(dir.path(), logs.join("pods/up")).unwrap();
        symlink("pods", logs.join("inside")).unwrap();
        nix::unistd::mkfifo(&logs.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let read = |parts: &[&str]| {
            let mut text = String::new();
            open(&logs, parts)?.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        assert_eq!(read(&["pods", "a", "0.log"]).unwrap(), "l");
        for parts in [
            &["link"][..],
            &["pods", "up", "secret"],
            &["inside", "a", "0.log"],
            &["..", "secret"],
            &["pods", "..", "..", "secret"],
            &[""],
        ] {
            assert!(read(parts).is_err(), "{parts:?}");
        }
        let fifo = open(&logs, &["fifo"]).unwrap_err();
        assert_eq!(fifo.kind(), ErrorKind::NotFound, "it is not opened");
        let names = names(File::open(&logs).unwrap().into()).unwrap();
        assert_eq!(names, ["fifo", "inside", "link", "pods/"]);
    }
}
