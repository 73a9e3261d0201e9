//! `create` and `start` on libcontainer.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, OpenHow, ResolveFlag, openat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, mkdirat};
use serde_json::{Value, json};

use super::cause::{self, Cause};
use super::cgroups::{self, Hierarchy};
use super::executor::{MARK, Payload, SYS_ADMIN, Seccomp};
use super::record::{self, Record};
use super::{Error, proc_mounts, process};

/// Longest time from the start signal to execve; no step in between waits for anything.
const START_LIMIT_MS: u16 = 30_000;

/// Makes the container, up to but without its own program. Its stdio is ours, or a terminal that is sent to the socket.
pub(super) fn create(
    root: &Path,
    id: &str,
    bundle: &Path,
    pid_file: Option<&Path>,
    console_socket: Option<&Path>,
) -> Result<(), Error> {
    let what = || format!("create container {id}");
    single_threaded().map_err(|e| Error::new(what(), e))?;
    seal().map_err(|e| Error::new(what(), e))?;
    let bundle = fs::canonicalize(bundle)
        .map_err(|e| Error::new(format!("open bundle {}", bundle.display()), e))?;
    let hierarchies = cgroups::hierarchies()?;
    let mut config = prepare(&bundle, &hierarchies).map_err(|e| Error::new(what(), e))?;
    let filter = take_seccomp(&mut config)
        .map_err(|e| Error::new(what(), format!("seccomp profile: {e}")))?;
    let record = Record {
        bundle,
        cgroups_path: cgroups_path(&config, id),
        ..Default::default()
    };
    claim(root, id).map_err(|e| Error::new(what(), e))?;
    let made = make(
        root,
        id,
        &config,
        record.clone(),
        pid_file,
        console_socket,
        &hierarchies,
        filter,
    );
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

/// The bundle's configuration with an absolute root, less what libcontainer does in another way than runc.
fn prepare(bundle: &Path, hierarchies: &[Hierarchy]) -> Result<Value, String> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config: Value =
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let rootfs = config
        .pointer("/root/path")
        .and_then(Value::as_str)
        .unwrap_or("rootfs");
    let rootfs = fs::canonicalize(bundle.join(rootfs))
        .map_err(|e| format!("root file system {rootfs}: {e}"))?;
    config["root"]["path"] = json!(rootfs);
    config["linux"]["rootfsPropagation"] = json!(rootfs_propagation(&config));
    proc_mounts::check_config(&config, &rootfs)?;
    make_cwd(&config, &rootfs).map_err(|e| format!("make the working directory: {e}"))?;
    if hierarchies.iter().all(|h| h.v2) && !all_devices(&config) {
        drop_mknod(&mut config);
    } else {
        let cgroups_path = config
            .pointer("/linux/cgroupsPath")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let (Some(path), Some(mounts)) = (cgroups_path, config["mounts"].as_array_mut()) {
            *mounts = mounts
                .drain(..)
                .flat_map(|m| cgroup_v1_mounts(m, hierarchies, &path))
                .collect();
        }
    }
    Ok(config)
}

/// libcontainer ignores the propagation of bind mounts, so each has that of what it is bound from: with a private root
/// none is tied to the node's mounts. It knows only words without the `r`, and applies them to all mounts.
fn rootfs_propagation(config: &Value) -> &'static str {
    let wanted = config.pointer("/linux/rootfsPropagation");
    match wanted.and_then(Value::as_str) {
        Some("rshared" | "shared") => "shared",
        Some("rslave" | "slave") => "slave",
        _ => "private",
    }
}

/// libcontainer would ignore the profile (exec-in-container 6): its executor, ours, applies it. Without no_new_privs that
/// needs CAP_SYS_ADMIN, which the container's process has until then and no longer.
fn take_seccomp(config: &mut Value) -> Result<Option<Seccomp>, String> {
    let profile = config
        .pointer_mut("/linux/seccomp")
        .map(Value::take)
        .unwrap_or_default();
    if profile.is_null() {
        return Ok(None);
    }
    let filter = crate::seccomp::compile(&profile)?;
    if config.pointer("/process/noNewPrivileges") == Some(&json!(true)) {
        return Ok(Some(Seccomp {
            filter,
            early: None,
        }));
    }
    let mut drop = 0;
    for set in ["effective", "permitted"] {
        let Some(names) = config["process"]["capabilities"][set].as_array_mut() else {
            return Err(format!(
                "it needs process.capabilities.{set} where noNewPrivileges is not set"
            ));
        };
        if !names.iter().any(|n| n == "CAP_SYS_ADMIN") {
            names.push(json!("CAP_SYS_ADMIN"));
            drop = SYS_ADMIN;
        }
    }
    Ok(Some(Seccomp {
        filter,
        early: Some(drop),
    }))
}

/// runc makes a missing working directory, libcontainer fails. It is made in the volume it lies in, else in the root
/// file system; no link of the image leads out of either.
fn make_cwd(config: &Value, rootfs: &Path) -> nix::Result<()> {
    let cwd = Path::new(
        config
            .pointer("/process/cwd")
            .and_then(Value::as_str)
            .unwrap_or("/"),
    );
    let mounts = config["mounts"].as_array().into_iter().flatten();
    let around = mounts
        .filter_map(|m| Some((Path::new(m["destination"].as_str()?), m)))
        .filter(|(d, _)| cwd.starts_with(d));
    let (root, inside) = match around.max_by_key(|(d, _)| d.components().count()) {
        // A read-only volume is not ours to change, and in a tmpfs it would be gone.
        Some((_, m))
            if m["type"] != "bind"
                || m["options"]
                    .as_array()
                    .is_some_and(|o| o.contains(&json!("ro"))) =>
        {
            return Ok(());
        }
        Some((d, m)) => (
            Path::new(m["source"].as_str().unwrap_or("/")),
            cwd.strip_prefix(d).unwrap_or(cwd),
        ),
        None => (rootfs, cwd),
    };
    // A bind mount of a file, or one whose source is missing, has its own error later.
    let Ok(root) = File::open(root).map_err(drop).and_then(|f| {
        if f.metadata().is_ok_and(|m| m.is_dir()) {
            Ok(f)
        } else {
            Err(())
        }
    }) else {
        return Ok(());
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let mut path = PathBuf::from("/");
    for name in inside
        .components()
        .filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir))
    {
        let parent = openat2(&root, &path, how)?;
        path.push(name);
        match openat2(&root, &path, how) {
            Err(Errno::ENOENT) => {
                mkdirat(&parent, name.as_os_str(), Mode::from_bits_truncate(0o755))?
            }
            other => other.map(drop)?,
        }
    }
    Ok(())
}

/// The last device rule of a privileged container.
fn all_devices(config: &Value) -> bool {
    let last = config
        .pointer("/linux/resources/devices")
        .and_then(Value::as_array)
        .and_then(|d| d.last());
    last.is_some_and(|d| d["allow"] == json!(true) && d["type"].as_str().is_none_or(|t| t == "a"))
}

/// On cgroup v2 device rules are an eBPF program, which this build of libcontainer has not: without CAP_MKNOD a
/// container has no device but those made for it. (The root file system is to be mounted nodev.)
fn drop_mknod(config: &mut Value) {
    let Some(sets) = config
        .pointer_mut("/process/capabilities")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for set in sets.values_mut().filter_map(Value::as_array_mut) {
        set.retain(|c| c != "CAP_MKNOD");
    }
}

/// libcontainer lets every container have the node's console (5:1), which runc does not.
fn deny_console(config: &Value, record: &Record, hierarchies: &[Hierarchy]) -> Result<(), Error> {
    let devices = hierarchies
        .iter()
        .find(|h| !h.v2 && h.mount_point.ends_with("devices"));
    let Some(file) = devices
        .filter(|_| !all_devices(config))
        .map(|h| h.dir(&record.cgroups_path).join("devices.deny"))
    else {
        return Ok(());
    };
    fs::write(&file, "c 5:1 rwm").map_err(|e| Error::new(format!("write {}", file.display()), e))
}

/// libcontainer makes the directories of a privileged container's devices writable for all. Nothing of the container
/// has run yet, so nothing in its /dev can lead elsewhere.
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
        .filter(|p| p.starts_with(dev) && *p != dev)
        .collect();
    dirs.into_iter().try_for_each(|d| {
        fs::set_permissions(
            format!("/proc/{pid}/root{}", d.display()),
            Permissions::from_mode(0o755),
        )
    })
}

/// libcontainer mounts v1 cgroups writable whatever the options say: a container could lift its own memory limit. So a
/// cgroup mount becomes what runc makes of it: a tmpfs, and the container's own directory of each hierarchy below it.
fn cgroup_v1_mounts(mount: Value, hierarchies: &[Hierarchy], cgroups_path: &str) -> Vec<Value> {
    if mount["type"] != "cgroup" {
        return vec![mount];
    }
    let destination = mount["destination"]
        .as_str()
        .unwrap_or("/sys/fs/cgroup")
        .to_owned();
    let read_only = mount["options"]
        .as_array()
        .is_some_and(|o| o.contains(&json!("ro")));
    let options = json!([
        "bind",
        "nosuid",
        "noexec",
        "nodev",
        "relatime",
        if read_only { "ro" } else { "rw" }
    ]);
    let tmpfs = ["nosuid", "noexec", "nodev", "mode=755", "size=4k"];
    let mut all = vec![
        json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": tmpfs }),
    ];
    for h in hierarchies.iter().filter(|h| !h.v2) {
        let Some(name) = h.mount_point.file_name().and_then(|n| n.to_str()) else {
            continue;
        };
        // `cpu,cpuacct` is found under each of its names too.
        let mut names = vec![name];
        names.extend(name.split(',').filter(|n| *n != name));
        let bind = |n: &str| json!({ "destination": format!("{destination}/{n}"), "type": "bind", "source": h.dir(cgroups_path), "options": options });
        all.extend(names.into_iter().map(bind));
    }
    all
}

/// `linux.cgroupsPath`, or libcontainer's default.
fn cgroups_path(config: &Value, id: &str) -> String {
    config
        .pointer("/linux/cgroupsPath")
        .and_then(Value::as_str)
        .map_or_else(|| format!("/:youki:{id}"), str::to_owned)
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

#[expect(
    clippy::too_many_arguments,
    reason = "the steps of a creation have much to hand on"
)]
fn make(
    root: &Path,
    id: &str,
    config: &Value,
    mut record: Record,
    pid_file: Option<&Path>,
    console_socket: Option<&Path>,
    hierarchies: &[Hierarchy],
    seccomp: Option<Seccomp>,
) -> Result<(), Error> {
    let plain = |e: &dyn std::fmt::Display| Error(e.to_string());
    record.save(root, id)?;
    let own = record::dir(root, id);
    fs::write(own.join("config.json"), config.to_string()).map_err(|e| plain(&e))?;
    let report = report_fifo(root, id)?;
    // libcontainer leaves both as they are; the container must not depend on how the daemon was started.
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    nix::unistd::setgroups(&[]).map_err(|e| Error::new("drop supplementary groups", e))?;
    // Neither may it hold the keys of whoever started the daemon; libcontainer keeps the session keyring, runc does not.
    crate::sys::process::new_session_keyring()
        .map_err(|e| Error::new("make a session keyring", e))?;
    cgroups::join_rest(hierarchies, &record.cgroups_path)?;
    let payload = Payload {
        report: Rc::new(report),
        home: Rc::default(),
        seccomp: Rc::new(seccomp),
    };
    let builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
        .with_executor(payload)
        .with_console_socket(console_socket)
        .with_pid_file(pid_file)
        .and_then(|b| b.with_root_path(root))
        .map_err(|e| Error(causes(&e)))?;
    let log = own.join("errors");
    cause::capture(&log).map_err(|e| Error::new(format!("open {}", log.display()), e))?;
    let built = builder.as_init(&own).with_systemd(false).build();
    let container = built.map_err(|e| Error(with_first(causes(&e), cause::first(&log))))?;
    record.pid = container.pid().map_or(0, |p| p.as_raw());
    proc_mounts::check_mounts(config, record.pid)?;
    deny_console(config, &record, hierarchies)?;
    tighten_device_dirs(config, record.pid).map_err(|e| Error::new("set modes below /dev", e))?;
    record.start_time = record::stat(record.pid).map_or(0, |s| s.1);
    record.save(root, id)
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
    let mut container =
        Container::load(root.join(id)).map_err(|e| Error::new(what(), causes(&e)))?;
    record.started = true;
    record.save(root, id)?;
    container
        .start()
        .map_err(|e| Error::new(what(), causes(&e)))?;
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
            let noise = [
                "failed to create container: ",
                "exec process failed with error error in executing process : ",
            ];
            format!(
                "{first} ({})",
                noise.iter().fold(outer, |text, n| text.replace(n, ""))
            )
        }
    }
}

/// What libcontainer's first try to clean up could not remove: it is tried again.
const NOT_CLEANED_UP: &str = ". error during cleanup: ";

/// The chain of causes in one line. Our own executor's text stands alone; otherwise the words that only say "failed"
/// again are left out.
fn causes(error: &dyn std::error::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(e) = next {
        let text = e.to_string();
        let text = text.split(NOT_CLEANED_UP).next().unwrap_or_default();
        if let Some((_, own)) = text.split_once(MARK) {
            return own.to_owned();
        }
        if parts.last().is_none_or(|last| !last.contains(text)) {
            parts.push(text.to_owned());
        }
        next = e.source();
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_cleaned_up_at_once_is_not_told() {
        let check = |text: &str, expected: &str| {
            let text = format!("{text}. error during cleanup: cannot remove x");
            assert_eq!(causes(&std::io::Error::other(text)), expected);
        };
        check("cannot mount y", "cannot mount y");
        check(&format!("outer {MARK}exec: no"), "exec: no");
    }
}
