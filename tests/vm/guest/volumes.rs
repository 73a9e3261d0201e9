//! Volumes, and what must not be reached through them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::case::{Verdict, equal, until};
use crate::node::Node;
use crate::pods::{Files, claim, container};
use crate::roots::runs_or_is_refused;

const CONFIG_MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words}\ndata: {greeting: GREETING}\n";

const VOLUMES: &str = "  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: words, configMap: {name: words}}
  - {name: host, hostPath: {path: /vm/shared, type: DirectoryOrCreate}}
  - {name: claim, persistentVolumeClaim: {claimName: kept}}";

const MOUNTS: &str = "    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: memory, mountPath: /memory}
    - {name: words, mountPath: /words}
    - {name: host, mountPath: /host}
    - {name: claim, mountPath: /claim}";

pub fn usual(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.put("kept", &claim("kept"))?;
    files.put("words", &CONFIG_MAP.replace("GREETING", "hello"))?;
    let containers = ["a", "b"]
        .map(|name| container(name, &["idle"], MOUNTS))
        .concat();
    files.pod(
        "volumes",
        &format!("  containers:\n{containers}\n{VOLUMES}"),
    )?;
    node.wait_ready(&["volumes"])?;
    let write = "set -e; for v in disk memory host claim; do echo of a > /$v/f; done";
    let said = node.exec("volumes", &["/bin/sh", "-c", write]);
    equal("the exit code of writing", &said.code.to_string(), "0")
        .map_err(|e| format!("{e}: {}", said.err))?;
    let read = "cd /; for v in disk memory host claim; do /busybox cat $v/f; done; /busybox cat words/greeting; /busybox stat -f -c %T /memory";
    let said = node.run(&["exec", "volumes", "-c", "b", "--", "/bin/sh", "-c", read]);
    let wanted = "of a\nof a\nof a\nof a\nhellotmpfs\n";
    equal("what the other container reads", &said.out, wanted)
        .map_err(|e| format!("{e}: {}", said.err))?;
    equal(
        "what the node reads",
        &crate::node::read("/vm/shared/f")?,
        "of a",
    )?;
    Ok(files.end()?)
}

pub fn config_map_is_updated(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.put("kept", &claim("kept"))?;
    files.put("words", &CONFIG_MAP.replace("GREETING", "first"))?;
    files.pod(
        "reader",
        &format!(
            "  containers:\n{}\n{VOLUMES}",
            container("c", &["idle"], MOUNTS)
        ),
    )?;
    node.wait_ready(&["reader"])?;
    files.put("words", &CONFIG_MAP.replace("GREETING", "second"))?;
    until("the new value", || {
        let said = node.exec("reader", &["/busybox", "cat", "/words/greeting"]);
        if said.out == "second" {
            Ok(())
        } else {
            Err(said.all())
        }
    })?;
    Ok(files.end()?)
}

/// A user of the node can neither run a file of a claim's, which may be root's and set-user-id, nor remove one.
pub fn claims_are_closed_to_users(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let spec = container(
        "c",
        &["idle"],
        "    volumeMounts: [{name: claim, mountPath: /claim}]",
    );
    files.put("database", &claim("database"))?;
    files.pod(
        "claimant",
        &format!("  containers:\n{spec}\n  volumes: [{{name: claim, persistentVolumeClaim: {{claimName: database}}}}]"),
    )?;
    node.wait_ready(&["claimant"])?;
    let script = "/busybox cp /guest /claim/suid && /busybox chmod 4755 /claim/suid && echo data > /claim/data";
    equal(
        "writing",
        &node.exec("claimant", &["/bin/sh", "-c", script]).all(),
        "exit code 0: ",
    )?;
    let suid = find(Path::new("/var/lib/podprobe"), "suid").ok_or("the claim's file is nowhere")?;
    let ran = as_user(suid.to_str().unwrap_or(""), &["resolve", "127.0.0.1"]);
    if ran.is_ok() {
        return Err(format!("a user of the node ran {}", suid.display()).into());
    }
    let data = suid.with_file_name("data");
    let removed = as_user("/bin/busybox", &["rm", "-f", data.to_str().unwrap_or("")]);
    if removed.is_ok() || !data.exists() {
        return Err(format!("a user of the node removed {}", data.display()).into());
    }
    Ok(files.end()?)
}

fn as_user(program: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new(program)
        .args(args)
        .uid(1000)
        .gid(1000)
        .output();
    let done = done.map_err(|e| e.to_string())?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = fs::read_dir(directory).ok()?.flatten().collect();
    entries.iter().find_map(|entry| {
        let kind = entry.file_type().ok()?;
        if kind.is_dir() {
            find(&entry.path(), name)
        } else {
            (entry.file_name() == name).then(|| entry.path())
        }
    })
}

/// Two containers share a volume at /dev. One exchanges a directory in it for a link to the node's while the other is made, whose
/// devices are to lie in that directory. The pod may be refused.
pub fn volume_at_dev(node: &Node) -> Verdict {
    let target = "/vm/target-of-devices";
    fs::create_dir_all(target).map_err(|e| format!("{target}: {e}"))?;
    let mut files = Files::new(node);
    let shared = "    volumeMounts: [{name: dev, mountPath: /DEV}]";
    let attacker = container(
        "attacker",
        &["swap", "/attacked", target],
        &shared.replace("/DEV", "/attacked"),
    );
    let victim = container("victim", &["idle"], &shared.replace("/DEV", "/dev"));
    files.pod(
        "shared-dev",
        &format!("  containers:\n{attacker}{victim}\n  volumes: [{{name: dev, emptyDir: {{}}}}]"),
    )?;
    runs_or_is_refused(node, "shared-dev")?;
    for _ in 0..6 {
        // A container that waits for its back-off is not restarted; its next start is attacked all the same.
        let _ = node.run(&["restart", "shared-dev/victim"]);
        thread::sleep(Duration::from_millis(500));
    }
    files.end()?;
    let left: Vec<_> = fs::read_dir(target)
        .map_err(|e| format!("{target}: {e}"))?
        .flatten()
        .map(|e| e.file_name())
        .collect();
    if !left.is_empty() {
        return Err(format!("a container made {left:?} on the node").into());
    }
    Ok(())
}
