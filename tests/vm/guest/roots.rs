//! The node's root stays out of reach while a container is made.

use std::fs;

use crate::case::{Verdict, equal, until};
use crate::node::{Node, read};
use crate::pods::{Files, container, container_of, image, import};

/// A container that may look into its siblings' processes looks for one that still has the node's root.
pub fn of_another_process(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let hunter = container(
        "hunter",
        &["hunt", "/vm/marker"],
        "    securityContext: {capabilities: {add: [SYS_PTRACE]}}",
    );
    let siblings: String = (1..=4)
        .map(|n| container(&format!("s{n}"), &["idle"], ""))
        .collect();
    files.pod(
        "hunt",
        &format!("  shareProcessNamespace: true\n  containers:\n{hunter}{siblings}"),
    )?;
    node.logged("hunt", "hunting")?;
    node.wait_ready(&["hunt"])?;
    for round in 1..=3 {
        for n in 1..=4 {
            node.ask(&["restart", &format!("hunt/s{n}")])?;
        }
        for n in 1..=4 {
            until("a restarted sibling", || {
                let path = format!(".status.containerStatuses[?(@.name==\"s{n}\")].restartCount");
                match node.field("hunt", &path)?.parse::<u32>() {
                    Ok(count) if count >= round => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })?;
        }
    }
    let log = node.ask(&["logs", "hunt", "-c", "hunter"])?;
    if let Some(found) = log.lines().find(|l| l.starts_with("FOUND")) {
        return Err(format!("a container had the node's root: {found}").into());
    }
    Ok(files.end()?)
}

/// In these images a directory that the runtime makes and mounts in is a link, to a directory that the image has and the node too.
pub fn image_with_dev_as_link(node: &Node) -> Verdict {
    for name in ["dev", "proc", "sys"] {
        let target = format!("/vm/target-of-{name}");
        let kept = format!("{target}/ptmx");
        fs::create_dir_all(&target)
            .and_then(|()| fs::write(&kept, "kept"))
            .map_err(|e| format!("{target}: {e}"))?;
        let mut tar = image()?.without(name);
        tar.directory("vm", 0o755);
        tar.directory(&target[1..], 0o755);
        tar.link(name, &target);
        import(node, "linked:1", tar)?;
        let pod = format!("linked-{name}");
        let mut files = Files::new(node);
        let security = "    securityContext: {runAsUser: 1000, capabilities: {drop: [ALL]}}";
        let spec = container_of("linked:1", "c", &["idle"], security);
        files.pod(&pod, &format!("  containers:\n{spec}"))?;
        runs_or_is_refused(node, &pod)?;
        let left: Vec<_> = fs::read_dir(&target)
            .map_err(|e| format!("{target}: {e}"))?
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        equal(
            &format!("the node's directory behind {name}"),
            &left.join(" "),
            "ptmx",
        )?;
        equal(&kept, &read(&kept)?, "kept")?;
        files.end()?;
        node.ask(&["image", "rm", "linked:1"])?;
    }
    Ok(())
}

/// A container with its own directories there is as good as one that does not start.
pub fn runs_or_is_refused(node: &Node, pod: &str) -> Result<(), String> {
    until("the container, or its refusal", || {
        let said = node.states(pod);
        let listed = node.run(&["get", "pods"]).out;
        let ended = ["running", "Error", "BackOff"];
        if ended.iter().any(|word| said.contains(word)) || listed.contains("Refused") {
            Ok(())
        } else {
            Err(said)
        }
    })
}
