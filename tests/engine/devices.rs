//! Devices of the node as hostPath volumes, on the embedded runtime and again on runc: the device that is mounted is the
//! node's, and as under a kubelet only a privileged container may open it. Needs root and a loop device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::support::skip::skip;
use crate::support::{Node, on_both, pod, sh};

/// A file as a block device, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    fn of(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        match made {
            Ok(out) if out.status.success() => {
                Some(Self(String::from_utf8(out.stdout).unwrap().trim().into()))
            }
            other => {
                skip(&format!("needs losetup and a free loop device: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// What the script prints in a container with the device at `/disk`.
fn with_device(node: &Node, device: &Path, type_: &str, privileged: bool, script: &str) -> String {
    let rt = node.runtime();
    let mut c = sh("main", script);
    c["volumeMounts"] = json!([{"name": "v", "mountPath": "/disk"}]);
    c["securityContext"] = json!({"privileged": privileged});
    let volumes = json!([{"name": "v", "hostPath": {"path": device, "type": type_}}]);
    let pod = pod("device", json!({"containers": [c], "volumes": volumes}));
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let id = rt
        .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
        .unwrap();
    let ended = node.wait_exit(&rt, &pod, &id);
    let log = fs::read_to_string(&ended.log_path).unwrap();
    node.remove_pod(&rt, &pod);
    let text = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
    log.lines().map(text).collect::<Vec<_>>().join("\n")
}

fn a_block_device_is_read_and_written_by_a_privileged_container_alone(node: &Node) {
    let file = node.dir.path().join("disk");
    fs::write(&file, "hello").unwrap();
    let grown = fs::File::options().write(true).open(&file).unwrap();
    grown.set_len(1 << 20).unwrap();
    let Some(device) = Loop::of(&file) else {
        return;
    };
    let script =
        "stat -c %F /disk; head -c 5 /disk; echo; echo -n HELLO > /disk; head -c 5 /disk; echo";
    assert_eq!(
        with_device(node, &device.0, "BlockDevice", true, script),
        "block special file\nhello\nHELLO"
    );
    let script = "stat -c %F /disk; head -c 5 /disk 2>&1";
    assert_eq!(
        with_device(node, &device.0, "BlockDevice", false, script),
        "block special file\nhead: /disk: Operation not permitted"
    );
}

fn a_character_device_is_as_usable(node: &Node) {
    let kmsg = Path::new("/dev/kmsg");
    let script = "stat -c %F /disk; exec 3</disk && echo open";
    let text = with_device(node, kmsg, "CharDevice", false, script);
    assert!(
        text.contains("character special file") && text.contains("Operation not permitted"),
        "{text}"
    );
    let text = with_device(node, kmsg, "CharDevice", true, script);
    assert!(text.ends_with("open"), "{text}");
    // One that every container has anyway.
    let text = with_device(node, Path::new("/dev/zero"), "CharDevice", false, script);
    assert!(text.ends_with("open"), "{text}");
}

on_both!(
    a_block_device_is_read_and_written_by_a_privileged_container_alone,
    a_character_device_is_as_usable,
);
