//! Has libcontainer make a container's first process, up to but without its own program.
//!
//! libcontainer's builder would read the configuration anew, as types of every platform that OCI has, and brings resctrl with an
//! engine for regular expressions: together a megabyte of the file. Nothing of that is podprobe's, so this does the few steps
//! of the builder itself, and refuses what they leave out.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libcgroups::common::CgroupConfig;
use libcontainer::notify_socket::{NOTIFY_FILE, NotifyListener, NotifySocket};
use libcontainer::oci_spec::runtime::{Process, Spec};
use libcontainer::process::args::{ContainerArgs, ContainerType};
use libcontainer::process::container_main_process::container_main_process;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::user_ns::UserNamespaceConfig;
use libcontainer::validator::Validator;
use libcontainer::{apparmor, tty, utils};
use serde::Deserialize;
use serde_json::Value;

use super::cause::causes;
use super::executor::Payload;

/// What a container is made of.
pub(super) struct Container<'a> {
    pub id: &'a str,
    /// libcontainer's own directory of it, which must not be there.
    pub dir: PathBuf,
    /// With an absolute root.
    pub config: &'a Value,
    /// `linux.cgroupsPath`, or its default.
    pub cgroups_path: &'a str,
    pub payload: Payload,
    pub console_socket: Option<&'a Path>,
}

impl Container<'_> {
    /// The pid of the process, which waits for [`start`].
    pub fn launch(self) -> Result<i32, String> {
        let spec = spec(self.config)?;
        check(&spec)?;
        check_terminal(&spec, self.console_socket.is_some())?;
        fs::create_dir(&self.dir).map_err(|e| format!("make {}: {e}", self.dir.display()))?;
        let console = self
            .console_socket
            .map(|socket| tty::setup_console_socket(&self.dir, socket, "console-socket"))
            .transpose()
            .map_err(|e| causes(&e))?;
        let rootfs = spec.root().as_ref().map(|root| root.path().clone());
        let score = spec.process().as_ref().and_then(Process::oom_score_adj);
        let user_ns_config = UserNamespaceConfig::new(&spec).map_err(|e| causes(&e))?;
        let notify = NotifyListener::new(&self.dir.join(NOTIFY_FILE)).map_err(|e| causes(&e))?;
        // Only a dumpable process may write its own score; the children inherit it.
        if let Some(score) = score {
            fs::write("/proc/self/oom_score_adj", score.to_string())
                .map_err(|e| format!("write /proc/self/oom_score_adj: {e}"))?;
        }
        // Nobody in a namespace that is joined can look into this process.
        nix::sys::prctl::set_dumpable(false).map_err(|e| format!("set dumpable to false: {e}"))?;
        let args = ContainerArgs {
            container_type: ContainerType::InitContainer,
            syscall: SyscallType::default(),
            rootfs: rootfs.ok_or("config.json has no root")?,
            console_socket: console.as_ref().map(AsRawFd::as_raw_fd),
            notify_listener: notify,
            preserve_fds: 0,
            // For hooks only, and there are none.
            container: None,
            cgroup_config: CgroupConfig {
                cgroup_path: self.cgroups_path.into(),
                systemd_cgroup: user_ns_config.is_some(),
                container_name: self.id.to_owned(),
            },
            user_ns_config,
            detached: true,
            executor: Box::new(self.payload),
            no_pivot: false,
            stdin: None,
            stdout: None,
            stderr: None,
            as_sibling: false,
            // The container's process may be a copy of libcontainer's.
            pid_file: None,
            spec: Rc::new(spec),
        };
        let pid = container_main_process(&args).map_err(|e| causes(&e))?;
        Ok(pid.as_raw())
    }
}

/// Lets the process that waits in that directory run the container's own program.
pub(super) fn start(dir: &Path) -> Result<(), String> {
    let mut socket = NotifySocket::new(dir.join(NOTIFY_FILE));
    socket.notify_container_start().map_err(|e| causes(&e))
}

/// What libcontainer's builder would do something with, and nobody here.
const LEFT_OUT: [&str; 4] = [
    "/hooks",
    "/linux/intelRdt",
    "/linux/netDevices",
    "/process/execCPUAffinity",
];

/// The configuration in libcontainer's types.
fn spec(config: &Value) -> Result<Spec, String> {
    let is_there = |value: Option<&Value>| value.is_some_and(|v| !v.is_null());
    let mut left_out = LEFT_OUT.iter();
    if let Some(at) = left_out.find(|at| is_there(config.pointer(at))) {
        return Err(format!("{} is not supported", named(at)));
    }
    let mut mounts = config["mounts"].as_array().into_iter().flatten();
    if mounts.any(is_mapped) {
        return Err(
            "mounts with uidMappings, gidMappings, idmap or ridmap are not supported".into(),
        );
    }
    let mut needed = ["/process", "/process/user"].iter();
    if let Some(at) = needed.find(|at| !is_there(config.pointer(at))) {
        return Err(format!("config.json has no {}", named(at)));
    }
    let version: String = part(config, "/ociVersion")?.unwrap_or_default();
    if !version.starts_with("1.") {
        return Err(format!("ociVersion {version:?} is not 1.x"));
    }
    let mut spec = Spec::default();
    spec.set_version(version)
        .set_root(part(config, "/root")?)
        .set_mounts(part(config, "/mounts")?)
        .set_hostname(part(config, "/hostname")?)
        .set_domainname(part(config, "/domainname")?)
        .set_annotations(part(config, "/annotations")?)
        .set_linux(part(config, "/linux")?)
        .set_process(Some(process(config)?));
    Ok(spec)
}

/// Whether the ids of its files are to be other ones.
fn is_mapped(mount: &Value) -> bool {
    let mut options = mount["options"].as_array().into_iter().flatten();
    !mount["uidMappings"].is_null()
        || !mount["gidMappings"].is_null()
        || options.any(|o| o == "idmap" || o == "ridmap")
}

fn process(config: &Value) -> Result<Process, String> {
    let mut process = Process::default();
    process
        .set_terminal(part(config, "/process/terminal")?)
        .set_console_size(part(config, "/process/consoleSize")?)
        .set_user(part(config, "/process/user")?.unwrap_or_default())
        .set_args(part(config, "/process/args")?)
        .set_env(part(config, "/process/env")?)
        .set_cwd(part(config, "/process/cwd")?.unwrap_or_else(|| "/".into()))
        .set_capabilities(part(config, "/process/capabilities")?)
        .set_rlimits(part(config, "/process/rlimits")?)
        .set_no_new_privileges(part(config, "/process/noNewPrivileges")?)
        .set_apparmor_profile(part(config, "/process/apparmorProfile")?)
        .set_oom_score_adj(part(config, "/process/oomScoreAdj")?)
        .set_selinux_label(part(config, "/process/selinuxLabel")?)
        .set_io_priority(part(config, "/process/ioPriority")?)
        .set_scheduler(part(config, "/process/scheduler")?);
    Ok(process)
}

/// What is at that place; None where nothing or null is.
fn part<'a, T: Deserialize<'a>>(config: &'a Value, at: &str) -> Result<Option<T>, String> {
    let value = config.pointer(at).filter(|v| !v.is_null());
    let part = value.map(T::deserialize).transpose();
    part.map_err(|e| format!("config.json: {}: {e}", named(at)))
}

/// `process.cwd` of `/process/cwd`.
fn named(at: &str) -> String {
    at.trim_start_matches('/').replace('/', ".")
}

fn check(spec: &Spec) -> Result<(), String> {
    Validator::validate_spec(spec).map_err(|e| causes(&e))?;
    if let Some(mounts) = spec.mounts() {
        utils::validate_mount_options(mounts).map_err(|e| causes(&e))?;
    }
    let profile = spec
        .process()
        .as_ref()
        .and_then(|p| p.apparmor_profile().as_ref());
    match (profile, apparmor::is_enabled()) {
        (None, _) | (Some(_), Ok(true)) => Ok(()),
        (Some(profile), Ok(false)) => Err(format!(
            "AppArmor is not enabled here, and the profile is {profile}"
        )),
        (Some(_), Err(e)) => Err(format!("look whether AppArmor is enabled: {e}")),
    }
}

fn check_terminal(spec: &Spec, has_socket: bool) -> Result<(), &'static str> {
    let terminal = spec.process().as_ref().and_then(Process::terminal);
    match (terminal.unwrap_or(false), has_socket) {
        (true, false) => Err("process.terminal needs --console-socket"),
        (false, true) => Err("--console-socket needs process.terminal"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A value for everything that is read.
    fn full() -> Value {
        json!({
            "ociVersion": "1.2.0",
            "root": {"path": "/bundle/rootfs", "readonly": true},
            "hostname": "web",
            "domainname": "local",
            "annotations": {"a": "b"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]}],
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/web"}],
                "resources": {"memory": {"limit": 1 << 20}, "devices": [{"allow": false, "access": "rwm"}]},
                "cgroupsPath": "/podprobe/web",
                "rootfsPropagation": "private",
                "maskedPaths": ["/proc/keys"],
            },
            "process": {
                "terminal": true,
                "consoleSize": {"height": 24, "width": 80},
                "user": {"uid": 1000, "gid": 100, "additionalGids": [5], "umask": 18},
                "args": ["sh", "-c", "true"],
                "env": ["A=1"],
                "cwd": "/srv",
                "capabilities": {"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"]},
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 10, "soft": 5}],
                "noNewPrivileges": true,
                "apparmorProfile": "podprobe-default",
                "oomScoreAdj": -998,
                "selinuxLabel": "label",
                "ioPriority": {"class": "IOPRIO_CLASS_IDLE", "priority": 3},
                "scheduler": {"policy": "SCHED_OTHER", "nice": 5},
            },
        })
    }

    #[test]
    fn everything_is_read_as_the_whole_configuration_would_be() {
        let whole: Spec = serde_json::from_value(full()).unwrap();
        assert_eq!(spec(&full()), Ok(whole));
    }

    #[test]
    fn what_libcontainer_needs_and_is_not_given_is_empty() {
        let least = json!({"ociVersion": "1.0.2", "process": {"args": ["true"], "user": {"uid": 0, "gid": 0}}});
        let spec = spec(&least).unwrap();
        assert_eq!(
            (spec.root(), spec.mounts(), spec.linux()),
            (&None, &None, &None)
        );
        let process = spec.process().as_ref().unwrap();
        assert_eq!((process.env(), process.cwd()), (&None, &PathBuf::from("/")));
    }

    #[track_caller]
    fn check_refused(at: &str, value: Value, expected: &str) {
        let mut config = full();
        let (parent, key) = at.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[key] = value;
        assert_eq!(spec(&config), Err(expected.into()));
    }

    #[test]
    fn what_would_be_left_out_is_refused() {
        let unsupported = |at: &str| format!("{} is not supported", named(at));
        for at in LEFT_OUT {
            check_refused(at, json!({}), &unsupported(at));
        }
        let mapped = "mounts with uidMappings, gidMappings, idmap or ridmap are not supported";
        check_refused("/mounts/0/gidMappings", json!([]), mapped);
        check_refused("/mounts/0/options", json!(["ro", "idmap"]), mapped);
        check_refused("/process", Value::Null, "config.json has no process");
        check_refused(
            "/process/user",
            Value::Null,
            "config.json has no process.user",
        );
        check_refused("/ociVersion", json!("2.0"), "ociVersion \"2.0\" is not 1.x");
        check_refused(
            "/process/cwd",
            json!(1),
            "config.json: process.cwd: invalid type: integer `1`, expected path string",
        );
    }

    #[test]
    fn a_terminal_and_its_socket_belong_together() {
        let checked = |terminal: bool, has_socket: bool| {
            let mut config = full();
            config["process"]["terminal"] = terminal.into();
            check_terminal(&spec(&config).unwrap(), has_socket)
        };
        assert_eq!(
            (checked(true, true), checked(false, false)),
            (Ok(()), Ok(()))
        );
        let wrong = [checked(true, false), checked(false, true)];
        assert_eq!(
            wrong.map(Result::unwrap_err),
            [
                "process.terminal needs --console-socket",
                "--console-socket needs process.terminal"
            ]
        );
    }
}
