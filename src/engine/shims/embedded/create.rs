//! `create` and `start`.

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

/// Longest time from the start signal to execve; no step in between waits for anything.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The most that is read of the text of a failed execve, in bytes.
const MOST_TEXT: usize = 4096;

/// The arguments of `create`.
pub(super) struct Request<'a> {
    /// `--root`.
    pub root: &'a Path,
    pub id: &'a str,
    pub bundle: &'a Path,
    pub pid_file: Option<&'a Path>,
    pub console_socket: Option<&'a Path>,
    /// The container is made even where the kernel cannot filter its devices.
    pub unfiltered_devices: bool,
    /// Where the procfs of the process namespace that it joins is mounted.
    pub pod_proc: Option<&'a Path>,
}

/// Makes the container, up to but without its own program. Its stdio is ours, or a terminal that is sent to the socket.
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
        // The first error is the one to tell; what could not be removed now, `delete --force` will find by the record.
        if cgroups::kill_and_remove(&hierarchies, &record.cgroups_path).is_ok() {
            let _ = process::remove_state(root, id);
        }
    }
    made.map_err(|e| Error::of("create", id, e))
}

/// The container's process is a copy of this one: another thread that holds the allocator's lock would stop it for ever.
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

/// Seals this process: nothing that a container can reach of it can be written. Returns at once when the daemon, and so this
/// process, runs sealed already. Where the kernel cannot do that, only non-dumpability and, while this process runs, ETXTBSY
/// protect it.
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

/// Where no controller of v1 filters devices, a program on v2 does. It is attached before any process of the container
/// exists. A container that is not privileged is not made without a filter, unless the configuration allows that.
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

/// The id is ours from here on, or somebody else's.
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
    // The container must not depend on how the daemon was started.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    nix::unistd::setgroups(&[]).map_err(|e| Error::step("drop", "supplementary groups", e))?;
    // Only a dumpable process may write its own score; the children inherit it.
    if let Some(score) = orders.oom_score_adj {
        fs::write("/proc/self/oom_score_adj", score.to_string())
            .map_err(|e| Error::step("write", "/proc/self/oom_score_adj", e))?;
    }
    // Nobody in a namespace that is joined can look into this process or its children.
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

/// A terminal and its socket belong together.
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

/// Without AppArmor there is no file to write the profile to; that says less than this.
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

/// True in a user namespace that is not the node's first. Even as its root this process may make no devices.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = ["0", "0", "4294967295"];
    !map.is_empty() && !map.split_whitespace().eq(whole)
}

/// Both ends open, so that neither this open nor a write of the other side ever blocks.
fn fifo(path: &Path) -> Result<File, Error> {
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|e| Error::path("make", path, e))?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::path("open", path, e))
}

/// Reads what the container's process says before it ends. The text is empty when the container's program runs, because no
/// descriptor is left then.
///
/// Another container of the pod may be able to trace that process and keep its descriptors. So the time and the text both
/// have a limit.
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

/// Lets the container's own program run. Returns when it does; an execve that failed is an error.
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
    // Without blocking it is an error that nobody waits there.
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
