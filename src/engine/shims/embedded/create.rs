//! The verbs `create` and `start`.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use super::cgroups::{self, Hierarchy};
use super::config::{cgroups_path, prepare};
use super::error::Error;
use super::first_process::FirstProcess;
use super::record::{self, Record};
use super::root::open_root;
use super::{limits, process};
use crate::base::clock::Moment;
use crate::engine::nsexec;
use crate::engine::oci::{Namespace, Process, Spec};
use crate::engine::shims::device_program;

/// Longest time from the start byte to the execve. No step in between waits for anything.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of bytes that are read of the error text of a failed execve.
const MOST_TEXT: usize = 4096;

/// The arguments of the verb `create`.
pub(super) struct Request<'a> {
    /// State directory of the runtime (`--root`).
    pub root: &'a Path,
    pub id: &'a str,
    pub bundle: &'a Path,
    pub pid_file: Option<&'a Path>,
    pub console_socket: Option<&'a Path>,
    /// True if the container is created even if the kernel cannot filter its devices.
    pub unfiltered_devices: bool,
    /// Mount point of the procfs of the process namespace that the container joins.
    pub pod_proc: Option<&'a Path>,
}

/// Creates the container, without starting its program. The container's standard streams are those of this process, or
/// a terminal that is sent to the console socket.
pub(super) fn create(request: &Request<'_>) -> Result<(), Error> {
    let Request { root, id, .. } = *request;
    single_threaded().map_err(|e| Error::of("create", id, e))?;
    seal().map_err(|e| Error::of("create", id, e))?;
    let bundle = fs::canonicalize(request.bundle)
        .map_err(|e| Error::path("open bundle", request.bundle, e))?;
    let hierarchies = cgroups::hierarchies()?;
    let config = prepare(&bundle, id, &hierarchies).map_err(|e| Error::of("create", id, e))?;
    let record = Record {
        bundle,
        cgroups_path: cgroups_path(&config.linux, id),
        ..Default::default()
    };
    claim(root, id).map_err(|e| Error::of("create", id, e))?;
    let made = make(request, &config, record.clone(), &hierarchies);
    if made.is_err() {
        // The first error is reported. If something cannot be removed here, the record stays, and by the record `delete
        // --force` finds what is left.
        if cgroups::kill_and_remove(&hierarchies, &record.cgroups_path).is_ok() {
            let _ = process::remove_state(root, id);
        }
    }
    made.map_err(|e| Error::of("create", id, e))
}

/// Checks that this process has one thread. The container's process is a copy of this process: if another thread held
/// the allocator's lock, the copy would wait forever.
fn single_threaded() -> Result<(), Error> {
    let tasks = fs::read_dir("/proc/self/task").map_err(|source| Error::File {
        path: "/proc/self/task".into(),
        source,
    })?;
    match tasks.count() {
        1 => Ok(()),
        several => Err(Error::Threads(several)),
    }
}

/// Runs this program from a sealed copy, so that a container cannot write to any file of this process. Returns at once
/// if the daemon, and so this process, is sealed already. On a kernel that cannot seal, two protections are left: the
/// process is not dumpable, and its file cannot be opened for writing while it runs (ETXTBSY).
fn seal() -> std::io::Result<()> {
    match crate::base::sys::exe::run_sealed() {
        Err(e)
            if matches!(
                e.raw_os_error().map(Errno::from_raw),
                Some(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL)
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Filters the container's devices, before any of its processes exists: with the controller of v1 if there is one,
/// otherwise with a program on v2. An unprivileged container is not created without a filter, unless `unfiltered`
/// allows it.
fn filter_devices(
    config: &Spec,
    record: &Record,
    hierarchies: &[Hierarchy],
    unfiltered: bool,
) -> Result<(), Error> {
    let rules = device_program::rules(&config.linux.resources.devices)?;
    if let Some(v1) = hierarchies.iter().find(|h| h.is_of("devices")) {
        return limits::filter_devices(v1, &record.cgroups_path, &rules);
    }
    if device_program::allows_everything(&rules) {
        return Ok(());
    }
    let attached = match hierarchies.iter().find(|h| h.v2) {
        Some(h) => device_program::attach(&rules, &h.dir(&record.cgroups_path)),
        None => Err(std::io::Error::other(
            "no cgroup file system can do that here",
        )),
    };
    match attached {
        Err(_) if unfiltered => Ok(()),
        Err(e) => Err(Error::Unfiltered(e)),
        Ok(()) => Ok(()),
    }
}

/// Claims the container's id by making its directory. Fails if another container has the id.
fn claim(root: &Path, id: &str) -> Result<(), Error> {
    let path = record::dir(root, id);
    fs::create_dir_all(root).map_err(|source| Error::File {
        path: root.to_owned(),
        source,
    })?;
    fs::create_dir(&path).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => Error::Exists,
        _ => Error::File { path, source },
    })
}

fn make(
    request: &Request<'_>,
    config: &Spec,
    mut record: Record,
    hierarchies: &[Hierarchy],
) -> Result<(), Error> {
    let Request { root, id, .. } = *request;
    record.save(root, id)?;
    let console = console(&config.process, request.console_socket)?;
    check_app_armor(&config.process)?;
    let rootfs = open_root(config).map_err(|e| Error::step("open", "the root", e))?;
    let Spec { process, linux, .. } = config;
    let joins = Namespace::joins_processes(&linux.namespaces);
    let orders = nsexec::orders_of_first_process(process, linux.seccomp.as_ref(), &rootfs, joins)?;
    drop(rootfs);
    let (report, start) = (
        fifo(&record::report(root, id))?,
        fifo(&record::start(root, id))?,
    );
    cgroups::make(hierarchies, &record.cgroups_path)?;
    filter_devices(config, &record, hierarchies, request.unfiltered_devices)?;
    // The container must not inherit the umask with which the daemon was started.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    nix::unistd::setgroups(&[]).map_err(|e| Error::step("drop", "supplementary groups", e))?;
    // Only a dumpable process may write its own score. Its children inherit the score.
    if let Some(score) = orders.oom_score_adj {
        fs::write("/proc/self/oom_score_adj", score.to_string())
            .map_err(|e| Error::step("write", "/proc/self/oom_score_adj", e))?;
    }
    // From here on no process in a joined namespace can look into this process or its children.
    crate::base::sys::harden_process();
    crate::base::sys::process::close_on_exec_from(3)
        .map_err(|e| Error::step("have", "what is open closed later", e))?;
    let first = FirstProcess {
        config,
        orders,
        hierarchies,
        cgroups_path: &record.cgroups_path,
        pod_proc: request.pod_proc,
        bound_devices: in_user_namespace(),
        start,
        report,
        console,
    };
    record.pid = first.launch()?;
    record.start_time = record::stat(record.pid).map_or(0, |s| s.1);
    record.save(root, id)?;
    match request.pid_file {
        Some(file) => {
            fs::write(file, record.pid.to_string()).map_err(|e| Error::path("write", file, e))
        }
        None => Ok(()),
    }
}

/// Connects to the console socket. A terminal without a socket is an error, and so is a socket without a terminal.
fn console(process: &Process, socket: Option<&Path>) -> Result<Option<UnixStream>, Error> {
    match (process.terminal, socket) {
        (true, None) => Err(Error::NoConsoleSocket),
        (false, Some(_)) => Err(Error::NoTerminal),
        (_, None) => Ok(None),
        (_, Some(socket)) => {
            UnixStream::connect(socket)
                .map(Some)
                .map_err(|source| Error::Console {
                    path: socket.to_owned(),
                    source,
                })
        }
    }
}

/// Checks that AppArmor is enabled if the container has a profile. Otherwise writing the profile would fail with a less
/// clear error.
fn check_app_armor(process: &Process) -> Result<(), Error> {
    let Some(profile) = &process.apparmor_profile else {
        return Ok(());
    };
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    match enabled.is_ok_and(|text| text.trim() == "Y") {
        true => Ok(()),
        false => Err(Error::NoAppArmor(profile.clone())),
    }
}

/// Returns true if this process is in a user namespace other than the node's first. Even root cannot make devices
/// there.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = ["0", "0", "4294967295"];
    !map.is_empty() && !map.split_whitespace().eq(whole)
}

/// Makes a fifo and opens both its ends. With both ends open, this open does not block, and a later write of another
/// process does not block.
fn fifo(path: &Path) -> Result<File, Error> {
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|e| Error::path("make", path, e))?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::path("open", path, e))
}

/// Reads the error text of the container's process until all its descriptors of the fifo are closed. The text is empty
/// if the container's program runs, because the execve closes these descriptors.
///
/// Another container of the pod may be able to trace that process and keep its descriptors. So both the time and the
/// length of the text are limited.
fn hear(report: &mut File) -> Result<String, Error> {
    let end = Moment::now() + START_LIMIT;
    let mut text = Vec::new();
    loop {
        let mut part = [0; 1024];
        match report.read(&mut part) {
            Ok(0) => break,
            Ok(_) if text.len() >= MOST_TEXT => break,
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let left =
                    PollTimeout::try_from(end.since(Moment::now())).unwrap_or(PollTimeout::ZERO);
                let ready = poll(&mut [PollFd::new(report.as_fd(), PollFlags::POLLIN)], left);
                if !matches!(ready, Ok(1) | Err(Errno::EINTR)) {
                    return Err(Error::Late(START_LIMIT.as_secs()));
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Starts the container's own program, and returns once it runs. A failed execve is an error.
pub(super) fn start(root: &Path, id: &str) -> Result<(), Error> {
    let failed = |why: Error| Error::of("start", id, why);
    let mut record = Record::load(root, id)?.ok_or_else(|| failed(Error::NotThere))?;
    match (record.started, record.is_alive()) {
        (true, _) => return Err(failed(Error::StartedBefore)),
        (_, false) => return Err(failed(Error::Ended)),
        _ => {}
    }
    let mut report = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(record::report(root, id))
        .map_err(|e| failed(e.into()))?;
    record.started = true;
    record.save(root, id)?;
    // Opened without blocking: if no process waits at the other end of the fifo, the open is an error.
    File::options()
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(record::start(root, id))
        .and_then(|mut start| start.write_all(&[1]))
        .map_err(|e| failed(Error::NotWaiting(e)))?;
    let text = hear(&mut report).map_err(failed)?;
    match text.is_empty() {
        true => Ok(()),
        false => Err(failed(Error::Said(text))),
    }
}
