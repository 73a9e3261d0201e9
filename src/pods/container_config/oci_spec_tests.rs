//! Compares chosen parts of the configuration with what containerd 1.7 writes for the same pod.

use std::path::Path;

use serde_json::{Value, json};

use crate::api::pod::{EnvVar, SeccompProfile};
use crate::api::{Container, Pod};
use crate::engine::images::ImageConfig;
use crate::engine::oci::Seccomp;
use crate::engine::runtime::{ContainerId, RuntimeErrorKind};
use crate::engine::shims::oci_spec::{Bind, Host, HostDevice, Inputs, Namespaces, build};
use crate::net::network::etc_files::EtcFiles;
use crate::pods::container_config::{self, NodeFacts};
use crate::pods::volumes::MountedVolumes;

struct Case {
    pod: Pod,
    container: Container,
    image: ImageConfig,
    host: Host,
    namespaces: Namespaces,
    mounts: Vec<Bind>,
    localhost: Option<Seccomp>,
    app_armor: Option<String>,
}

impl Case {
    fn new() -> Self {
        let mut pod = Pod {
            metadata: Default::default(),
            spec: Default::default(),
            raw: Default::default(),
        };
        pod.metadata.name = "web".into();
        pod.metadata.namespace = "default".into();
        pod.metadata.uid = "u1".into();
        Self {
            pod,
            container: Container {
                name: "c".into(),
                image: "busybox".into(),
                ..Default::default()
            },
            image: ImageConfig {
                entrypoint: words("/entry e"),
                cmd: words("cmd"),
                ..Default::default()
            },
            host: Host {
                bounding: 0x1ff_ffff_ffff,
                ..Default::default()
            },
            namespaces: Namespaces::default(),
            mounts: vec![],
            localhost: None,
            app_armor: None,
        }
    }

    fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self::new();
        change(&mut case);
        case
    }

    fn build(&self) -> Result<Value, Box<dyn std::error::Error>> {
        let mut pod = self.pod.clone();
        pod.spec_mut().containers = vec![self.container.clone()];
        let volumes = MountedVolumes::default();
        let node = NodeFacts {
            memory_capacity: 1 << 30,
            ..Default::default()
        };
        let sandbox_config = container_config::sandbox(&container_config::SandboxInputs {
            pod: &pod,
            attempt: 0,
            hostname: "web",
            runtime_handler: String::new(),
            log_directory: "/logs".into(),
            cgroup_parent: "/podprobe/u1".into(),
            resource_policy: Default::default(),
            volumes: &volumes,
        });
        let config = container_config::container(&container_config::Inputs {
            pod: &pod,
            container: &self.container,
            attempt: 0,
            image_id: "sha256:1",
            image_user: &self.image.user,
            volumes: &volumes,
            image_volumes: &Default::default(),
            etc_files: &EtcFiles::below(Path::new("/pods/u1")),
            termination_log: None,
            seccomp_profiles: Path::new("/seccomp"),
            node: &node,
            resource_policy: Default::default(),
            objects: &Default::default(),
            services: &[],
            pod_ips: &[],
        })
        .map_err(|e| e.to_string())?;
        let inputs = Inputs {
            config: &config,
            sandbox_config: &sandbox_config,
            sandbox: &ContainerId::from("s1"),
            image: &self.image,
            layers: &[],
            rootfs: Path::new("/run/rootfs"),
            namespaces: self.namespaces.clone(),
            mounts: self.mounts.clone(),
            cgroups_path: "/podprobe/u1/c-0".into(),
            host: &self.host,
            localhost_seccomp: self.localhost.clone(),
            app_armor: self.app_armor.clone(),
        };
        match build(&inputs) {
            Ok(spec) => Ok(json!(spec)),
            Err(e) => {
                assert_eq!(e.kind, RuntimeErrorKind::InvalidConfig);
                Err(e.into())
            }
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[track_caller]
fn check(change: impl FnOnce(&mut Case), pointer: &str, expected: Value) {
    let config = Case::with(change).build().unwrap();
    assert_eq!(
        config.pointer(pointer).unwrap_or(&Value::Null),
        &expected,
        "{pointer}"
    );
}

#[track_caller]
fn check_error(change: impl FnOnce(&mut Case), expected: &str) {
    let error = Case::with(change).build().unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn command_and_args() {
    let args = "/process/args";
    check(|_| (), args, json!(["/entry", "e", "cmd"]));
    check(
        |c| c.container.args = words("a b"),
        args,
        json!(["/entry", "e", "a", "b"]),
    );
    check(|c| c.container.command = words("/x"), args, json!(["/x"]));
    check(
        |c| (c.container.command, c.container.args) = (words("/x"), words("y")),
        args,
        json!(["/x", "y"]),
    );
    check(|c| c.image.entrypoint.clear(), args, json!(["cmd"]));
    check_error(
        |c| c.image = ImageConfig::default(),
        "no command specified; the image has neither Entrypoint nor Cmd, so set command",
    );
    check_error(
        |c| c.container.command = vec![String::new()],
        "first word of its command is empty",
    );
    check_error(|c| c.container.args = vec!["a\0b".into()], "NUL");
}

fn env(pairs: &[(&str, &str)]) -> Vec<EnvVar> {
    pairs
        .iter()
        .map(|(name, value)| EnvVar {
            name: (*name).into(),
            value: (*value).into(),
            ..EnvVar::default()
        })
        .collect()
}

#[test]
fn environment_and_expansion() {
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    check(
        |_| (),
        "/process/env",
        json!([path, "HOSTNAME=web", "HOME=/"]),
    );
    check(
        |c| {
            c.image.env = words("PATH=/opt A=image");
            c.container.env = env(&[
                ("B", "1"),
                ("A", "$(B)-$(LATER)"),
                ("LATER", "$$(B)"),
                ("B", "2"),
                ("C", "$(B)$(A)"),
            ]);
        },
        "/process/env",
        json!([
            "PATH=/opt",
            "HOSTNAME=web",
            "A=1-$(LATER)",
            "B=2",
            "LATER=$(B)",
            "C=21-$(LATER)",
            "HOME=/"
        ]),
    );
    check(
        |c| {
            c.container.env = env(&[("A", "x")]);
            c.container.command = words("$(A) $(PATH)");
            c.container.args = words("$$(A)");
        },
        "/process/args",
        json!(["x", "$(PATH)", "$(A)"]),
    );
}

#[test]
fn working_directory() {
    check(|_| (), "/process/cwd", json!("/"));
    check(
        |c| c.image.working_dir = "/app".into(),
        "/process/cwd",
        json!("/app"),
    );
    check(
        |c| (c.image.working_dir, c.container.working_dir) = ("/app".into(), "/own".into()),
        "/process/cwd",
        json!("/own"),
    );
    check_error(
        |c| c.image.working_dir = "app".into(),
        "must be an absolute path",
    );
}

#[test]
fn privileges() {
    let default = "/process/capabilities/effective";
    check(|_| (), "/process/capabilities/inheritable", json!([]));
    check(|_| (), "/process/capabilities/ambient", json!([]));
    check(
        |c| c.container.security_context.capabilities.drop = words("ALL"),
        default,
        json!([]),
    );
    check(
        |c| c.container.security_context.capabilities.drop = words("ALL"),
        "/process/capabilities/bounding",
        json!([]),
    );
    // A container of another user has the same sets; the kernel clears them at execve.
    check(
        |c| {
            c.container.security_context.run_as_user = Some(7);
            c.container.security_context.capabilities = crate::api::pod::Capabilities {
                add: words("CHOWN"),
                drop: words("ALL"),
            };
        },
        default,
        json!(["CAP_CHOWN"]),
    );
    check(|_| (), "/process/noNewPrivileges", json!(false));
    check(
        |c| c.container.security_context.allow_privilege_escalation = Some(true),
        "/process/noNewPrivileges",
        json!(false),
    );
    check(
        |c| c.container.security_context.allow_privilege_escalation = Some(false),
        "/process/noNewPrivileges",
        json!(true),
    );
    check(
        |c| c.container.security_context.run_as_group = Some(7),
        "/process/user",
        json!({ "uid": 0, "gid": 7, "additionalGids": [7] }),
    );
    check(
        |c| c.host.oom_score_adj_floor = Some(1000),
        "/process/oomScoreAdj",
        json!(1000),
    );
    let open_files =
        |soft: u64, hard: u64| json!([{ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }]);
    check(|_| (), "/process/rlimits", open_files(1024, 524_288));
    for (ceiling, soft, hard) in [(4096, 1024, 4096), (512, 512, 512)] {
        check(
            |c| c.host.open_files_ceiling = Some(ceiling),
            "/process/rlimits",
            open_files(soft, hard),
        );
    }
}

#[test]
fn seccomp_profiles() {
    let profile = |type_: &str| {
        Some(SeccompProfile {
            type_: type_.into(),
            localhost_profile: None,
        })
    };
    let action = "/linux/seccomp/defaultAction";
    check(|_| (), "/linux/seccomp", Value::Null);
    check(
        |c| c.container.security_context.seccomp_profile = profile("Unconfined"),
        "/linux/seccomp",
        Value::Null,
    );
    check(
        |c| c.container.security_context.seccomp_profile = profile("RuntimeDefault"),
        action,
        json!("SCMP_ACT_ERRNO"),
    );
    check(
        |c| c.pod.spec_mut().security_context.seccomp_profile = profile("RuntimeDefault"),
        action,
        json!("SCMP_ACT_ERRNO"),
    );
    let own = || Seccomp {
        default_action: Some("SCMP_ACT_LOG".into()),
        ..Seccomp::default()
    };
    check(|c| c.localhost = Some(own()), "/linux/seccomp", Value::Null);
    let localhost = |c: &mut Case| {
        c.container.security_context.seccomp_profile = Some(SeccompProfile {
            type_: "Localhost".into(),
            localhost_profile: Some("own.json".into()),
        });
        c.localhost = Some(own());
    };
    check(localhost, action, json!("SCMP_ACT_LOG"));
    check_error(
        |c| c.container.security_context.seccomp_profile = profile("Localhost"),
        "cannot apply seccompProfile Localhost",
    );
    // The container's own profile replaces the pod's, and a privileged container has none.
    let own = |c: &mut Case| {
        c.pod.spec_mut().security_context.seccomp_profile = profile("RuntimeDefault");
        c.container.security_context.seccomp_profile = profile("Unconfined");
    };
    check(own, "/linux/seccomp", Value::Null);
    let privileged = |c: &mut Case| {
        c.container.security_context.seccomp_profile = profile("RuntimeDefault");
        c.container.security_context.privileged = Some(true);
    };
    check(privileged, "/linux/seccomp", Value::Null);
    // An added capability allows its system calls in the profile.
    let boot = |add: &str| {
        let case = Case::with(|c| {
            c.container.security_context.seccomp_profile = profile("RuntimeDefault");
            c.container.security_context.capabilities.add = words(add);
        });
        case.build().unwrap()["linux"]["seccomp"]
            .to_string()
            .contains("\"reboot\"")
    };
    assert_eq!((boot("SYS_BOOT"), boot("SYS_TIME")), (true, false));
}

#[test]
fn paths_and_devices() {
    let privileged = |c: &mut Case| {
        c.container.security_context.privileged = Some(true);
        c.host.devices = vec![HostDevice {
            path: "/dev/sda".into(),
            block: true,
            number: (8, 0),
            mode: 0o660,
            uid: 0,
            gid: 6,
        }];
    };
    check(|_| (), "/linux/maskedPaths/0", json!("/proc/asound"));
    check(|_| (), "/linux/readonlyPaths/0", json!("/proc/bus"));
    check(
        |_| (),
        "/linux/resources/devices",
        json!([{ "allow": false, "access": "rwm" }]),
    );
    check(
        |_| (),
        "/root",
        json!({ "path": "/run/rootfs", "readonly": false }),
    );
    check(
        |c| c.container.security_context.read_only_root_filesystem = Some(true),
        "/root/readonly",
        json!(true),
    );
    check(privileged, "/linux/maskedPaths", Value::Null);
    check(privileged, "/linux/readonlyPaths", Value::Null);
    check(
        privileged,
        "/linux/resources/devices",
        json!([{ "allow": true, "access": "rwm" }]),
    );
    let device = json!([{ "path": "/dev/sda", "type": "b", "major": 8, "minor": 0, "fileMode": 432, "uid": 0, "gid": 6 }]);
    check(privileged, "/linux/devices", device);
}

#[track_caller]
fn check_mount(change: impl FnOnce(&mut Case), destination: &str, expected: Value) {
    let config = Case::with(change).build().unwrap();
    let all = config["mounts"].as_array().unwrap();
    let found: Vec<&Value> = all
        .iter()
        .filter(|m| m["destination"] == destination)
        .collect();
    assert_eq!(found.len(), 1, "{destination} is mounted once");
    assert_eq!(
        found[0],
        &json!({ "destination": destination, "type": expected[0], "source": expected[1], "options": expected[2] })
    );
}

fn volume(source: &str, destination: &str, read_only: bool) -> Bind {
    Bind {
        source: source.into(),
        destination: destination.into(),
        read_only,
        ..Default::default()
    }
}

#[test]
fn mounts_as_containerd() {
    let privileged = |c: &mut Case| c.container.security_context.privileged = Some(true);
    check_mount(
        |_| (),
        "/proc",
        json!(["proc", "proc", ["nosuid", "noexec", "nodev"]]),
    );
    check_mount(
        |_| (),
        "/dev",
        json!([
            "tmpfs",
            "tmpfs",
            ["nosuid", "strictatime", "mode=755", "size=65536k"]
        ]),
    );
    check_mount(
        |_| (),
        "/sys",
        json!(["sysfs", "sysfs", ["nosuid", "noexec", "nodev", "ro"]]),
    );
    check_mount(
        privileged,
        "/sys",
        json!(["sysfs", "sysfs", ["nosuid", "noexec", "nodev", "rw"]]),
    );
    check_mount(
        |_| (),
        "/sys/fs/cgroup",
        json!([
            "cgroup",
            "cgroup",
            ["nosuid", "noexec", "nodev", "relatime", "ro"]
        ]),
    );
    check_mount(
        privileged,
        "/sys/fs/cgroup",
        json!([
            "cgroup",
            "cgroup",
            ["nosuid", "noexec", "nodev", "relatime", "rw"]
        ]),
    );
    check_mount(
        |_| (),
        "/dev/shm",
        json!([
            "tmpfs",
            "shm",
            ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]
        ]),
    );
    check_mount(
        |c| c.pod.spec_mut().host_ipc = true,
        "/dev/shm",
        json!(["bind", "/dev/shm", ["rbind", "rprivate", "rw"]]),
    );
    check_mount(
        |c| c.mounts = vec![volume("/s", "/dev/shm", false)],
        "/dev/shm",
        json!(["bind", "/s", ["rbind", "rprivate", "rw"]]),
    );
    check_mount(
        |c| c.mounts = vec![volume("/v", "/data", true)],
        "/data",
        json!(["bind", "/v", ["rbind", "rprivate", "ro"]]),
    );
    // Parents are mounted first, whatever the order in the spec.
    let config =
        Case::with(|c| c.mounts = vec![volume("/b", "/a/b", false), volume("/a", "/a", false)])
            .build()
            .unwrap();
    let destinations: Vec<_> = config["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["destination"].as_str().unwrap())
        .collect();
    assert_eq!(destinations[destinations.len() - 2..], ["/a", "/a/b"]);
}

#[test]
fn namespaces_as_asked() {
    let pointer = "/linux/namespaces";
    check(
        |_| (),
        pointer,
        json!([{ "type": "mount" }, { "type": "pid" }]),
    );
    check(
        |c| c.pod.spec_mut().host_pid = true,
        pointer,
        json!([{ "type": "mount" }]),
    );
    check(
        |c| c.host.cgroup_v2_only = true,
        pointer,
        json!([{ "type": "mount" }, { "type": "pid" }, { "type": "cgroup" }]),
    );
    let privileged = |c: &mut Case| {
        (
            c.host.cgroup_v2_only,
            c.container.security_context.privileged,
        ) = (true, Some(true))
    };
    check(
        privileged,
        pointer,
        json!([{ "type": "mount" }, { "type": "pid" }]),
    );
    let all = Namespaces {
        net: Some("/n".into()),
        ipc: Some("/i".into()),
        uts: Some("/u".into()),
        pid: Some("/p".into()),
    };
    check(
        |c| c.namespaces = all,
        pointer,
        json!([{ "type": "mount" }, { "type": "pid", "path": "/p" }, { "type": "network", "path": "/n" },
            { "type": "ipc", "path": "/i" }, { "type": "uts", "path": "/u" }]),
    );
}

#[test]
fn identity() {
    check(|_| (), "/linux/cgroupsPath", json!("/podprobe/u1/c-0"));
    check(
        |_| (),
        "/annotations",
        json!({
            "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "c",
            "io.kubernetes.cri.image-name": "busybox", "io.kubernetes.cri.sandbox-id": "s1",
            "io.kubernetes.cri.sandbox-name": "web", "io.kubernetes.cri.sandbox-namespace": "default",
            "io.kubernetes.cri.sandbox-uid": "u1",
        }),
    );
}

#[test]
fn the_profile_of_app_armor_is_named_only_where_there_is_one() {
    let named = Case::with(|c| c.app_armor = Some("mine".into()));
    let of = |case: Case| case.build().unwrap()["process"]["apparmorProfile"].clone();
    assert_eq!((of(named), of(Case::new())), ("mine".into(), Value::Null));
}
