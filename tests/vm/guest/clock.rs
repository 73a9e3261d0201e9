//! Jumps of the machine's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::case::{Verdict, equal, until};
use crate::node::{Node, Process, command, read};
use crate::pods::Files;

/// The machine's clock, and when it was read.
pub struct Clock(SystemTime, Instant);

impl Clock {
    pub fn now() -> Self {
        Self(SystemTime::now(), Instant::now())
    }

    /// Sets the clock to what it would be if nobody had set it.
    pub fn restore(&self) -> Result<(), String> {
        let time = self.0 + self.1.elapsed();
        let seconds = time.duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
        set(&format!("@{}", seconds.as_secs()))
    }
}

/// Sets the clock to a time as busybox's date takes it.
pub fn set(time: &str) -> Result<(), String> {
    command(&["/bin/busybox", "date", "-u", "-s", time]).map(drop)
}

/// Probes go on at once after a jump, in either direction, and no jump ends a pod or a readiness. A node without a battery
/// for its clock begins in 1970, with records of years ahead.
pub fn pods_over_jumps(node: &Node) -> Verdict {
    let clock = Clock::now();
    let said = over_jumps(node);
    clock.restore()?;
    said
}

fn over_jumps(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    set("2027-03-10 10:00:00")?;
    let probe = |command: &str| {
        format!(
            "{{exec: {{command: [/bin/sh, -c, {command:?}]}}, periodSeconds: 1, failureThreshold: 1}}"
        )
    };
    let (lives, is_ready) = (probe("exit 0"), probe("test ! -e /tmp/unready"));
    let probes = format!("    livenessProbe: {lives}\n    readinessProbe: {is_ready}");
    files.tool("lasting", &["idle", "lasting"], &probes)?;
    node.wait_ready(&["lasting"])?;
    let process = Process::of(&["idle", "lasting"])?;
    let goes_on = |when: &str| -> Result<(), String> {
        let told = |e: String| format!("{when}: {e}");
        equal("ready", &ready(node)?, "true").map_err(told)?;
        // The next probes are not years away.
        for (touched, wanted) in [("touch", "false"), ("rm", "true")] {
            node.exec("lasting", &["/busybox", touched, "/tmp/unready"]);
            until(&format!("readiness to be {wanted} {when}"), || {
                equal("ready", &ready(node)?, wanted)
            })?;
        }
        let of =
            |field: &str| node.field("lasting", &format!(".status.containerStatuses[0].{field}"));
        equal("restarts", &of("restartCount")?, "0").map_err(told)?;
        match Process::of(&["idle", "lasting"])? == process {
            true => Ok(()),
            false => Err(format!("{when} another process runs")),
        }
    };
    for (time, when) in [
        ("2028-03-10 10:00:00", "a year ahead"),
        ("2027-03-10 10:05:00", "a year back"),
        ("1970-01-01 00:00:10", "in 1970"),
    ] {
        set(time)?;
        goes_on(when)?;
    }
    node.kill()?;
    node.start(&read("/etc/podprobe/config.json")?)?;
    node.wait_ready(&["lasting"])?;
    goes_on("with a daemon that began in 1970")?;
    let new = "    readinessProbe: {exec: {command: [/bin/sh, -c, 'exit 0']}, periodSeconds: 1}";
    files.tool("new", &["idle", "new"], new)?;
    node.wait_ready(&["new"])?;
    set("2027-03-10 10:10:00")?;
    goes_on("when the time has come")?;
    Ok(files.end()?)
}

fn ready(node: &Node) -> Result<String, String> {
    node.field("lasting", ".status.containerStatuses[0].ready")
}
