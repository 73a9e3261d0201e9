//! `create` and `start` on libcontainer.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use nix::fcntl::{AtFlags, FcntlArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use serde_json::{Value, json};

use super::cgroups::{self, Hierarchy};
use super::executor::{MARK, Payload};
use super::record::{self, Record};
use super::{Error, process};

/// Longest time from the start signal to execve; no step in between waits for anything.
const START_LIMIT_MS: u16 = 30_000;

/// Makes the container, up to but without its own program. Its stdio is ours.
pub(super) fn create(root: &Path, id: &str, bundle: &Path, pid_file: Option<&Path>, args: &[OsString]) -> Result<(), Error> {
    let what = || format!("create container {id}");
    single_threaded().map_err(|e| Error::new(what(), e))?;
    seal_exe(args).map_err(|e| Error::new(what(), e))?;
    let bundle = fs::canonicalize(bundle).map_err(|e| Error::new(format!("open bundle {}", bundle.display()), e))?;
    let hierarchies = cgroups::hierarchies()?;
    let config = prepare(&bundle, &hierarchies).map_err(|e| Error::new(what(), e))?;
    let record = Record { bundle, cgroups_path: cgroups_path(&config, id), ..Default::default() };
    claim(root, id).map_err(|e| Error::new(what(), e))?;
    let made = make(root, id, &config, record.clone(), pid_file, &hierarchies);
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
    let tasks = fs::read_dir("/proc/self/task").map_err(|e| format!("/proc/self/task: {e}"))?.count();
    if tasks == 1 { Ok(()) } else { Err(format!("this process has {tasks} threads; it must be a process of its own with one")) }
}

/// Runs this program again through a read-only mount, unless it is: what a container can reach of us cannot be written.
/// On a kernel before 5.12 there is only non-dumpability (which libcontainer sets) and ETXTBSY while we run.
fn seal_exe(args: &[OsString]) -> Result<(), String> {
    if statvfs("/proc/self/exe").is_ok_and(|s| s.flags().contains(FsFlags::ST_RDONLY)) {
        return Ok(());
    }
    let Ok(exe) = crate::sys::exe::open_read_only() else { return Ok(()) };
    let c = |s: &[u8]| CString::new(s).map_err(|e| e.to_string());
    let own = [c(b"podprobe")?, c(b"oci")?];
    let args: Result<Vec<CString>, String> = own.into_iter().map(Ok).chain(args.iter().map(|a| c(a.as_bytes()))).collect();
    let env: Result<Vec<CString>, String> = std::env::vars_os().map(|(k, v)| c(&[k.as_bytes(), b"=", v.as_bytes()].concat())).collect();
    match nix::unistd::execveat(exe.as_fd(), c"", &args?, &env?, AtFlags::AT_EMPTY_PATH) {
        Ok(never) => match never {},
        Err(e) => Err(format!("run podprobe from a read-only mount: {e}")),
    }
}

/// The bundle's configuration with an absolute root, less what libcontainer does in another way than runc.
fn prepare(bundle: &Path, hierarchies: &[Hierarchy]) -> Result<Value, String> {
    let path = bundle.join("config.json");
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if config.pointer("/linux/seccomp").is_some_and(|s| !s.is_null()) {
        return Err("linux.seccomp is not supported by the embedded runtime; use --runtime with runc or crun".into());
    }
    let rootfs = config.pointer("/root/path").and_then(Value::as_str).unwrap_or("rootfs");
    let rootfs = fs::canonicalize(bundle.join(rootfs)).map_err(|e| format!("root file system {rootfs}: {e}"))?;
    config["root"]["path"] = json!(rootfs);
    if hierarchies.iter().all(|h| h.v2) && !all_devices(&config) {
        drop_mknod(&mut config);
    } else {
        let cgroups_path = config.pointer("/linux/cgroupsPath").and_then(Value::as_str).map(str::to_owned);
        if let (Some(path), Some(mounts)) = (cgroups_path, config["mounts"].as_array_mut()) {
            *mounts = mounts.drain(..).flat_map(|m| cgroup_v1_mounts(m, hierarchies, &path)).collect();
        }
    }
    Ok(config)
}

/// The last device rule of a privileged container.
fn all_devices(config: &Value) -> bool {
    let last = config.pointer("/linux/resources/devices").and_then(Value::as_array).and_then(|d| d.last());
    last.is_some_and(|d| d["allow"] == json!(true) && d["type"].as_str().is_none_or(|t| t == "a"))
}

/// On cgroup v2 device rules are an eBPF program, which this build of libcontainer has not: without CAP_MKNOD a
/// container has no device but those made for it. (The root file system is to be mounted nodev.)
fn drop_mknod(config: &mut Value) {
    let Some(sets) = config.pointer_mut("/process/capabilities").and_then(Value::as_object_mut) else { return };
    for set in sets.values_mut().filter_map(Value::as_array_mut) {
        set.retain(|c| c != "CAP_MKNOD");
    }
}

/// libcontainer lets every container have the node's console (5:1), which runc does not.
fn deny_console(config: &Value, record: &Record, hierarchies: &[Hierarchy]) -> Result<(), Error> {
    let devices = hierarchies.iter().find(|h| !h.v2 && h.mount_point.ends_with("devices"));
    let Some(file) = devices.filter(|_| !all_devices(config)).map(|h| h.dir(&record.cgroups_path).join("devices.deny")) else {
        return Ok(());
    };
    fs::write(&file, "c 5:1 rwm").map_err(|e| Error::new(format!("write {}", file.display()), e))
}

/// libcontainer makes the directories of a privileged container's devices writable for all. Nothing of the container
/// has run yet, so nothing in its /dev can lead elsewhere.
fn tighten_device_dirs(config: &Value, pid: i32) -> std::io::Result<()> {
    let devices = config.pointer("/linux/devices").and_then(Value::as_array).into_iter().flatten();
    let paths = devices.filter_map(|d| d["path"].as_str()).map(Path::new);
    let dev = Path::new("/dev");
    let dirs: BTreeSet<&Path> = paths.flat_map(|p| p.ancestors().skip(1)).filter(|p| p.starts_with(dev) && *p != dev).collect();
    dirs.into_iter().try_for_each(|d| fs::set_permissions(format!("/proc/{pid}/root{}", d.display()), Permissions::from_mode(0o755)))
}

/// libcontainer mounts v1 cgroups writable whatever the options say: a container could lift its own memory limit. So a
/// cgroup mount becomes what runc makes of it: a tmpfs, and the container's own directory of each hierarchy below it.
fn cgroup_v1_mounts(mount: Value, hierarchies: &[Hierarchy], cgroups_path: &str) -> Vec<Value> {
    if mount["type"] != "cgroup" {
        return vec![mount];
    }
    let destination = mount["destination"].as_str().unwrap_or("/sys/fs/cgroup").to_owned();
    let read_only = mount["options"].as_array().is_some_and(|o| o.contains(&json!("ro")));
    let options = json!(["bind", "nosuid", "noexec", "nodev", "relatime", if read_only { "ro" } else { "rw" }]);
    let tmpfs = ["nosuid", "noexec", "nodev", "mode=755", "size=4k"];
    let mut all = vec![json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": tmpfs })];
    for h in hierarchies.iter().filter(|h| !h.v2) {
        let Some(name) = h.mount_point.file_name().and_then(|n| n.to_str()) else { continue };
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
    config.pointer("/linux/cgroupsPath").and_then(Value::as_str).map_or_else(|| format!("/:youki:{id}"), str::to_owned)
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
    root: &Path,
    id: &str,
    config: &Value,
    mut record: Record,
    pid_file: Option<&Path>,
    hierarchies: &[Hierarchy],
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
    crate::sys::process::new_session_keyring().map_err(|e| Error::new("make a session keyring", e))?;
    cgroups::join_rest(hierarchies, &record.cgroups_path)?;
    let payload = Payload { report: Rc::new(report), home: Rc::default() };
    let builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
        .with_executor(payload)
        .with_pid_file(pid_file)
        .and_then(|b| b.with_root_path(root))
        .map_err(|e| Error(causes(&e)))?;
    let container = builder.as_init(&own).with_systemd(false).build().map_err(|e| Error(causes(&e)))?;
    deny_console(config, &record, hierarchies)?;
    record.pid = container.pid().map_or(0, |p| p.as_raw());
    tighten_device_dirs(config, record.pid).map_err(|e| Error::new("set modes below /dev", e))?;
    record.start_time = record::stat(record.pid).map_or(0, |s| s.1);
    record.save(root, id)
}

/// Both ends open, so that neither this open nor the container's write ever blocks.
fn report_fifo(root: &Path, id: &str) -> Result<File, Error> {
    let path = record::fifo(root, id);
    nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|e| Error::new(format!("make {}", path.display()), e))?;
    OpenOptions::new().read(true).write(true).open(&path).map_err(|e| Error::new(format!("open {}", path.display()), e))
}

/// Lets the container's own program run. Returns when it does; an execve that failed is an error.
pub(super) fn start(root: &Path, id: &str) -> Result<(), Error> {
    let what = || format!("start container {id}");
    let mut record = Record::load(root, id)?.ok_or_else(|| Error::new(what(), "container does not exist"))?;
    if record.started || !record.is_alive() {
        return Err(Error::new(what(), if record.started { "it was started before" } else { "its process has ended" }));
    }
    let mut report =
        File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(record::fifo(root, id)).map_err(|e| Error::new(what(), e))?;
    let mut container = Container::load(root.join(id)).map_err(|e| Error::new(what(), causes(&e)))?;
    record.started = true;
    record.save(root, id)?;
    container.start().map_err(|e| Error::new(what(), causes(&e)))?;
    let ready = poll(&mut [PollFd::new(report.as_fd(), PollFlags::POLLIN)], PollTimeout::from(START_LIMIT_MS));
    if ready != Ok(1) {
        return Err(Error::new(what(), format!("its program did not run within {} s", START_LIMIT_MS / 1000)));
    }
    // From here on it blocks: a failed process writes its one line and ends, a running one has no descriptor left.
    nix::fcntl::fcntl(&report, FcntlArg::F_SETFL(OFlag::empty())).map_err(|e| Error::new(what(), e))?;
    let mut text = String::new();
    report.read_to_string(&mut text).map_err(|e| Error::new(what(), e))?;
    if text.is_empty() { Ok(()) } else { Err(Error::new(what(), text)) }
}

/// The chain of causes in one line. Our own executor's text stands alone; otherwise the words that only say "failed"
/// again are left out.
fn causes(error: &dyn std::error::Error) -> String {
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
