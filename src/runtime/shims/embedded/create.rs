//! `create` and `start` on libcontainer.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, OpenHow, ResolveFlag, openat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::Value;

use super::cause::{self, Cause};
use super::cgroups::{self, Hierarchy};
use super::config::{cgroups_path, prepare, take_last_steps};
use super::executor::Payload;
use super::record::{self, Record};
use super::{Error, launch, proc_mounts, process};
use crate::runtime::shims::device_program;

/// Longest time from the start signal to execve; no step in between waits for anything.
const START_LIMIT_MS: u16 = 30_000;

/// What `create` is asked for.
pub(super) struct Request<'a> {
    /// `--root`.
    pub root: &'a Path,
    pub id: &'a str,
    pub bundle: &'a Path,
    pub pid_file: Option<&'a Path>,
    pub console_socket: Option<&'a Path>,
    /// Goes on where the kernel cannot filter the container's devices.
    pub unfiltered_devices: bool,
    /// Where the procfs of the process namespace that it joins is mounted.
    pub pod_proc: Option<&'a Path>,
}

/// Makes the container, up to but without its own program. Its stdio is ours, or a terminal that is sent to the socket.
pub(super) fn create(request: &Request<'_>) -> Result<(), Error> {
    let Request { root, id, .. } = *request;
    let what = || format!("create container {id}");
    single_threaded().map_err(|e| Error::new(what(), e))?;
    seal().map_err(|e| Error::new(what(), e))?;
    let bundle = fs::canonicalize(request.bundle)
        .map_err(|e| Error::new(format!("open bundle {}", request.bundle.display()), e))?;
    let hierarchies = cgroups::hierarchies()?;
    let config = prepare(&bundle, &hierarchies).map_err(|e| Error::new(what(), e))?;
    let record = Record {
        bundle,
        cgroups_path: cgroups_path(&config, id),
        ..Default::default()
    };
    claim(root, id).map_err(|e| Error::new(what(), e))?;
    let made = make(request, &config, record.clone(), &hierarchies);
    if made.is_err() {
        cgroups::leave_rest(&hierarchies);
        // The first error is the one to tell; what could not be removed now, `delete --force` will find by the record.
        if cgroups::kill_and_remove(&hierarchies, &record.cgroups_path).is_ok() {
            let _ = process::remove_state(root, id);
        }
    }
    made.map_err(|e| Error::new(what(), e.0))
}

/// libcontainer clones and allocates in the child: another thread that holds the allocator's lock would stop it for ever.
fn single_threaded() -> Result<(), String> {
    let tasks = fs::read_dir("/proc/self/task")
        .map_err(|e| format!("/proc/self/task: {e}"))?
        .count();
    if tasks == 1 {
        Ok(())
    } else {
        Err(format!(
            "this process has {tasks} threads; it must be a process of its own with one"
        ))
    }
}

/// What a container can reach of us cannot be written; at once when the daemon, and so this, runs sealed already. Where the
/// kernel cannot do that there is only non-dumpability (which libcontainer sets) and ETXTBSY while we run.
fn seal() -> std::io::Result<()> {
    match crate::sys::exe::run_sealed() {
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

/// The controller of cgroup v1 that filters devices. libcontainer hands it the rules.
fn devices_of_v1(hierarchies: &[Hierarchy]) -> Option<&Hierarchy> {
    let is_devices = |name: &str| name.split(',').any(|n| n == "devices");
    hierarchies.iter().find(|h| {
        let name = h.mount_point.file_name().and_then(|n| n.to_str());
        !h.v2 && name.is_some_and(is_devices)
    })
}

/// Where no controller of v1 filters devices, a program on v2 does. It is attached before any process of the container
/// exists. A container that is not privileged is not made without a filter, unless the configuration allows that.
fn filter_devices(
    config: &Value,
    record: &Record,
    hierarchies: &[Hierarchy],
    unfiltered: bool,
) -> Result<(), Error> {
    let rules = device_program::rules(config).map_err(Error)?;
    if devices_of_v1(hierarchies).is_some() || device_program::allows_everything(&rules) {
        return Ok(());
    }
    let attached = match hierarchies.iter().find(|h| h.v2) {
        Some(h) => cgroups::make_v2(h, &record.cgroups_path)
            .and_then(|dir| device_program::attach(&rules, &dir)),
        None => Err(std::io::Error::other(
            "no cgroup file system can do that here",
        )),
    };
    match attached {
        Err(_) if unfiltered => Ok(()),
        Err(e) => Err(Error(format!(
            "cannot filter the container's devices: {e}; without a filter any image could read and write the node's disks. \
             'podprobe check-host' says what is missing; \"allowUnfilteredDevices\": true in the configuration does without"
        ))),
        Ok(()) => Ok(()),
    }
}

/// libcontainer lets every container have the node's console (5:1), which runc does not.
fn deny_console(config: &Value, record: &Record, hierarchies: &[Hierarchy]) -> Result<(), Error> {
    let rules = device_program::rules(config).map_err(Error)?;
    let Some(file) = devices_of_v1(hierarchies)
        .filter(|_| !device_program::allows_everything(&rules))
        .map(|h| h.dir(&record.cgroups_path).join("devices.deny"))
    else {
        return Ok(());
    };
    fs::write(&file, "c 5:1 rwm").map_err(|e| Error::new(format!("write {}", file.display()), e))
}

/// libcontainer makes the directories of a privileged container's devices writable for all. Another container of the pod may
/// have a volume there, so no link is followed.
fn tighten_device_dirs(config: &Value, pid: i32) -> std::io::Result<()> {
    let devices = config
        .pointer("/linux/devices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let paths = devices.filter_map(|d| d["path"].as_str()).map(Path::new);
    let dev = Path::new("/dev");
    let dirs: BTreeSet<&Path> = paths
        .flat_map(|p| p.ancestors().skip(1))
        .filter_map(|p| p.strip_prefix(dev).ok())
        .filter(|p| !p.as_os_str().is_empty())
        .collect();
    if dirs.is_empty() {
        return Ok(());
    }
    let root = File::open(format!("/proc/{pid}/root"))?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    dirs.into_iter().try_for_each(|dir| {
        let dir = File::from(openat2(&root, &Path::new("dev").join(dir), how)?);
        dir.set_permissions(Permissions::from_mode(0o755))
    })
}

/// The id is ours from here on, or somebody else's.
fn claim(root: &Path, id: &str) -> Result<(), String> {
    let dir = record::dir(root, id);
    fs::create_dir_all(root).map_err(|e| format!("{}: {e}", root.display()))?;
    fs::create_dir(&dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => "a container of that id exists".to_owned(),
        _ => format!("{}: {e}", dir.display()),
    })
}

fn make(
    request: &Request<'_>,
    config: &Value,
    mut record: Record,
    hierarchies: &[Hierarchy],
) -> Result<(), Error> {
    let Request { root, id, .. } = *request;
    record.save(root, id)?;
    let own = record::dir(root, id);
    cgroups::make_v1(hierarchies, &record.cgroups_path)?;
    let (pid_of_copy, pid) = std::io::pipe().map_err(|e| Error::new("make a pipe", e))?;
    let mut jailed = config.clone();
    let last_steps = take_last_steps(&mut jailed, request.pod_proc, pid).map_err(Error)?;
    let copied = last_steps.processes.is_some();
    let report = report_fifo(root, id)?;
    // libcontainer leaves both as they are; the container must not depend on how the daemon was started.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    nix::unistd::setgroups(&[]).map_err(|e| Error::new("drop supplementary groups", e))?;
    // Neither may it hold the keys of whoever started the daemon; libcontainer keeps the session keyring, runc does not.
    crate::sys::process::new_session_keyring()
        .map_err(|e| Error::new("make a session keyring", e))?;
    cgroups::join_rest(hierarchies, &record.cgroups_path)?;
    filter_devices(config, &record, hierarchies, request.unfiltered_devices)?;
    let payload = Payload {
        report: Rc::new(report),
        home: Rc::default(),
        last_steps: Rc::new(last_steps),
    };
    let container = launch::Container {
        id,
        dir: root.join(id),
        config: &jailed,
        cgroups_path: &record.cgroups_path,
        payload,
        console_socket: request.console_socket,
    };
    let log = own.join("errors");
    cause::capture(&log).map_err(|e| Error::new(format!("open {}", log.display()), e))?;
    let launched = container
        .launch()
        .map_err(|text| Error(with_first(text, cause::first(&log))))?;
    record.pid = match copied {
        true => copy_of(launched, pid_of_copy)?,
        false => launched,
    };
    if let Some(file) = request.pid_file {
        fs::write(file, record.pid.to_string())
            .map_err(|e| Error::new(format!("write {}", file.display()), e))?;
    }
    proc_mounts::check_mounts(config, record.pid)?;
    deny_console(config, &record, hierarchies)?;
    tighten_device_dirs(config, record.pid).map_err(|e| Error::new("set modes below /dev", e))?;
    record.start_time = record::stat(record.pid).map_or(0, |s| s.1);
    record.save(root, id)
}

/// The container's process where libcontainer's has made a copy of itself and ended.
fn copy_of(original: i32, mut pid: PipeReader) -> Result<i32, Error> {
    let mut said = String::new();
    let read = pid.read_to_string(&mut said);
    let _ = waitpid(Pid::from_raw(original), None);
    let what = "start a process in the process namespace of the pod";
    read.map_err(|e| Error::new(what, e))?;
    said.parse()
        .map_err(|_| Error::new(what, "its first process was killed"))
}

/// Both ends open, so that neither this open nor the container's write ever blocks.
fn report_fifo(root: &Path, id: &str) -> Result<File, Error> {
    let path = record::fifo(root, id);
    nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|e| Error::new(format!("make {}", path.display()), e))?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| Error::new(format!("open {}", path.display()), e))
}

/// Lets the container's own program run. Returns when it does; an execve that failed is an error.
pub(super) fn start(root: &Path, id: &str) -> Result<(), Error> {
    let what = || format!("start container {id}");
    let mut record =
        Record::load(root, id)?.ok_or_else(|| Error::new(what(), "container does not exist"))?;
    if record.started || !record.is_alive() {
        return Err(Error::new(
            what(),
            if record.started {
                "it was started before"
            } else {
                "its process has ended"
            },
        ));
    }
    let mut report = File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(record::fifo(root, id))
        .map_err(|e| Error::new(what(), e))?;
    record.started = true;
    record.save(root, id)?;
    launch::start(&root.join(id)).map_err(|text| Error::new(what(), text))?;
    let ready = poll(
        &mut [PollFd::new(report.as_fd(), PollFlags::POLLIN)],
        PollTimeout::from(START_LIMIT_MS),
    );
    if ready != Ok(1) {
        return Err(Error::new(
            what(),
            format!("its program did not run within {} s", START_LIMIT_MS / 1000),
        ));
    }
    // From here on it blocks: a failed process writes its one line and ends, a running one has no descriptor left.
    nix::fcntl::fcntl(&report, FcntlArg::F_SETFL(OFlag::empty()))
        .map_err(|e| Error::new(what(), e))?;
    let mut text = String::new();
    report
        .read_to_string(&mut text)
        .map_err(|e| Error::new(what(), e))?;
    if text.is_empty() {
        Ok(())
    } else {
        Err(Error::new(what(), text))
    }
}

/// Our own executor's text needs no more, nor does a sentence; otherwise libcontainer's outer words follow the cause.
fn with_first(outer: String, first: Option<Cause>) -> String {
    match first {
        _ if outer.starts_with("exec: ") => outer,
        None => outer,
        Some(Cause::Sentence(text)) => text,
        Some(Cause::Event(first)) => {
            let noise = "exec process failed with error error in executing process : ";
            format!("{first} ({})", outer.replace(noise, ""))
        }
    }
}
