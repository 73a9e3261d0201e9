//! The daemon on kernels unlike the machine's. Needs root.
//!
//! cgroup v2 alone: v2 takes the place of the machine's hierarchies in a mount namespace of the test's own, and has the
//! controllers that v1 leaves it. An older kernel: a seccomp filter has a system call fail as if there were none.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use podprobe::base::sys::{cgroup_mounts, mountinfo};
use podprobe::engine::shims::RuntimeChoice;
use serde_json::json;

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::skip::skip;
use crate::support::{Node, on_own_thread, with_v2_alone};

/// A directory in the root of v2, as VPN clients make one for their hierarchy. It goes when this is dropped.
struct Place {
    name: String,
    /// The root of v2 as the machine has it.
    v2: PathBuf,
}

impl Place {
    fn new(v2: &Path) -> Self {
        let name = format!("net_cls-{}", std::process::id());
        fs::create_dir(v2.join(&name)).unwrap();
        Self {
            name,
            v2: v2.to_owned(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.v2.join(&self.name));
    }
}

/// A hierarchy of v1 that this machine has mounted, and the place of its v2.
fn hierarchies() -> Option<(mountinfo::Mount, PathBuf)> {
    let mounts = mountinfo::read().unwrap();
    let v1 = mounts.iter().find(|m| {
        m.kind == "cgroup" && m.options.iter().any(|o| o == "pids" || o == "name=systemd")
    });
    let v2 = mounts.iter().find(|m| m.kind == "cgroup2");
    let found = v1.cloned().zip(v2.map(|m| m.at.clone()));
    if found.is_none() {
        skip("needs cgroup v2, and a hierarchy of v1 to mount beside it");
    }
    found
}

fn a_v1_hierarchy_beside_v2_stops_no_pod(node: &Node) {
    let Some((v1, v2)) = hierarchies() else {
        return;
    };
    let place = Place::new(&v2);
    with_v2_alone(|| {
        let beside = Path::new(cgroup_mounts::ROOT).join(&place.name);
        let option = v1.options.last().unwrap().as_str();
        let flags = MsFlags::empty();
        mount(Some("none"), &beside, Some("cgroup"), flags, Some(option)).unwrap();

        let day = Day::begin(node);
        let checked = day.says(&["check-host"]);
        let line = checked.lines().find(|l| l.starts_with("PASS  cgroups "));
        let says = |word: &str| line.is_some_and(|l| l.contains(word));
        assert!(
            says(" v2; left alone, of v1: ") && says(beside.to_str().unwrap()),
            "{checked}"
        );

        let probe = json!({"exec": {"command": ["/bin/cat", "/tmp/noted"]}, "periodSeconds": 1});
        day.put(
            "web",
            day.pod("web", FOREVER, json!({"readinessProbe": probe})),
        );
        day.wait_ready("web");
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", day.process("web").pid));
        let ours = |line: &&str| line.contains(&node.layout.id());
        let cgroups = cgroups.unwrap();
        let cgroups: Vec<&str> = cgroups.lines().filter(ours).collect();
        assert!(
            matches!(cgroups[..], [line] if line.starts_with("0::")),
            "{cgroups:?}"
        );
        day.end();
    });
}

/// Runs `inside` on a thread whose children have no such system call.
fn without(call: &str, inside: impl FnOnce() + Send) {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}],
    });
    let profile = serde_json::from_value(profile).unwrap();
    let filter = podprobe::engine::seccomp::compile(&profile).unwrap();
    on_own_thread(|| {
        podprobe::base::sys::process::apply_seccomp(&filter.program, filter.flags).unwrap();
        inside();
    });
}

/// A restart mends nothing, so there is none, and no crash loop.
fn a_container_waits_where_the_built_in_runtime_cannot_run(node: &Node) {
    without("mount_setattr", || {
        let day = Day::begin(node);
        day.put("web", day.pod("web", FOREVER, json!({})));
        let (reason, message, restarts) = day.wait("the container to wait for long", |s| {
            let status = find(s, "web")?.status.container_statuses.first()?;
            let waiting = serde_json::to_value(status).unwrap()["state"]["waiting"].clone();
            let text = |key: &str| waiting[key].as_str().map(str::to_owned);
            let reason = text("reason").filter(|r| r != "ContainerCreating")?;
            Some((reason, text("message")?, status.restart_count))
        });
        assert_eq!((reason.as_str(), restarts), ("CreateContainerError", 0));
        assert!(message.contains("needs Linux 5.12"), "{message}");
        day.end();
    });
}

#[test]
fn what_no_restart_mends_is_no_crash() {
    support::on(
        RuntimeChoice::Embedded,
        a_container_waits_where_the_built_in_runtime_cannot_run,
    );
}

#[test]
fn a_pod_runs_on_v2_with_a_v1_hierarchy_beside_it() {
    support::on(
        RuntimeChoice::Embedded,
        a_v1_hierarchy_beside_v2_stops_no_pod,
    );
}
