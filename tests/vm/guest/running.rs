//! Pods as they run: probes, commands, and restarts of the daemon.

use crate::case::{Verdict, equal, until};
use crate::node::{ADDRESS, Node, Process};
use crate::pods::{Files, container};
use crate::tools::get;

pub fn check_host(node: &Node) -> Verdict {
    let said = node.run(&["check-host"]);
    let bad: Vec<_> = said.out.lines().filter(|l| l.contains("FAIL")).collect();
    if said.code != 0 || !bad.is_empty() {
        return Err(format!("{bad:?} {}", said.err).into());
    }
    Ok(())
}

/// One container for each type of probe.
pub fn probes(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let of = |name: &str, port: &str, action: &str| {
        let probe = format!("    readinessProbe: {{{action}, periodSeconds: 1}}");
        container(name, &["serve", port, name], &probe)
    };
    let spec = [
        of("http", "8001", "httpGet: {port: 8001, path: /}"),
        of("tcp", "8002", "tcpSocket: {port: 8002}"),
        of(
            "exec",
            "8003",
            "exec: {command: [/guest, get, localhost, '8003']}",
        ),
    ];
    files.pod("probes", &format!("  containers:\n{}", spec.concat()))?;
    node.wait_ready(&["probes"])?;
    // Nobody listens there.
    files.tool(
        "unready",
        &["idle"],
        "    readinessProbe: {tcpSocket: {port: 8004}, periodSeconds: 1}",
    )?;
    until("a failed probe", || {
        let text = node.ask(&["describe", "pod", "unready"])?;
        if text.contains("Readiness probe failed") {
            Ok(())
        } else {
            Err(text)
        }
    })?;
    equal(
        "ready of a pod whose probe fails",
        &node.field("unready", ".status.containerStatuses[0].ready")?,
        "false",
    )?;
    Ok(files.end()?)
}

pub fn liveness(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool(
        "liveness",
        &["idle"],
        "    livenessProbe: {exec: {command: [/guest, get, localhost, '1']}, periodSeconds: 1, failureThreshold: 2}",
    )?;
    until("a restart", || {
        match node
            .field("liveness", ".status.containerStatuses[0].restartCount")?
            .as_str()
        {
            "0" | "" => Err(node.states("liveness")),
            _ => Ok(()),
        }
    })?;
    Ok(files.end()?)
}

pub fn exec(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("exec", &["idle"], "    env: [{name: OF, value: container}]")?;
    node.wait_ready(&["exec"])?;
    let said = node.exec("exec", &["/bin/sh", "-c", "echo $OF; echo err >&2; exit 7"]);
    equal("output", &said.out, "container\n")?;
    equal("exit code", &said.code.to_string(), "7")?;
    if !said.err.contains("err") {
        return Err(said.all().into());
    }
    Ok(files.end()?)
}

/// What a command has is what the container's first process has.
pub fn command_as_first_process(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("default", &["idle", "default"], "")?;
    let bounded = "    securityContext:\n      runAsUser: 1000\n      allowPrivilegeEscalation: false\n      readOnlyRootFilesystem: true\n      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}\n      seccompProfile: {type: RuntimeDefault}";
    files.tool("bounded", &["idle", "bounded"], bounded)?;
    node.wait_ready(&["default", "bounded"])?;
    for pod in ["default", "bounded"] {
        let first = Process::of(&["idle", pod])?;
        let said = node.exec(pod, &["/busybox", "cat", "/proc/self/status"]);
        for name in [
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
        ] {
            let mut lines = said.out.lines();
            let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
            let its = line.ok_or_else(|| format!("no {name}: {}", said.all()))?;
            equal(
                &format!("{name} of a command in {pod}"),
                its.trim(),
                &first.status(name),
            )?;
        }
    }
    Ok(files.end()?)
}

pub fn daemon_ends_and_starts(node: &Node) -> Verdict {
    survives(node, Node::stop)
}

pub fn daemon_is_killed(node: &Node) -> Verdict {
    survives(node, Node::kill)
}

/// Containers and their host ports go on without a daemon, and the next one finds them as they were.
fn survives(node: &Node, end: fn(&Node) -> Result<(), String>) -> Verdict {
    let mut files = Files::new(node);
    files.tool(
        "lasting",
        &["serve", "8080", "lasting"],
        "    ports: [{containerPort: 8080, hostPort: 8088}]\n    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}",
    )?;
    node.wait_ready(&["lasting"])?;
    let process = Process::of(&["serve", "lasting"])?;
    let id = node.field("lasting", ".status.containerStatuses[0].containerID")?;
    end(node)?;
    equal(
        "an answer without a daemon",
        &get(ADDRESS, "8088")?,
        "lasting",
    )?;
    node.start(&crate::node::read("/etc/podprobe/config.json")?)?;
    node.wait_ready(&["lasting"])?;
    equal(
        "the container's id",
        &node.field("lasting", ".status.containerStatuses[0].containerID")?,
        &id,
    )?;
    equal(
        "the number of restarts",
        &node.field("lasting", ".status.containerStatuses[0].restartCount")?,
        "0",
    )?;
    if Process::of(&["serve", "lasting"])? != process {
        return Err("another process runs".into());
    }
    Ok(files.end()?)
}
