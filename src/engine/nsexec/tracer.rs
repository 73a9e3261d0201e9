//! Ends the tracer of a command that has ended. The kernel reports the command's end first to the tracer, and to
//! podprobe only when the tracer has waited or ended. If a tracer in the container did neither, the ended command would
//! stay forever, and podprobe would wait for it.
//!
//! Invariants: only processes of the container are ended. Such a process is in another pid namespace than podprobe, or
//! in the container's cgroups.

use std::fs;
use std::path::Path;

use super::cgroup::places_of;
use crate::base::sys::task::PidFd;

/// Ends the tracer of the process `traced`, if the tracer belongs to the container with the cgroup directory `cgroup`.
pub(super) fn end(traced: i32, cgroup: Option<&Path>) {
    let Some(tracer) = tracer_of(traced) else {
        return;
    };
    // The pidfd is opened first, so that the checks that follow are about the process of the pidfd.
    let Ok(fd) = PidFd::of(tracer) else {
        return;
    };
    let is_it = tracer_of(traced) == Some(tracer) && is_of_container(tracer, cgroup);
    if is_it && fd.send(libc::SIGKILL).is_ok() {
        log::warn!(
            "process {tracer} of a container traces a command there and does not wait for its end: it is killed"
        );
    }
}

/// Returns the pid of the process with a thread that traces the process `pid`.
fn tracer_of(pid: i32) -> Option<i32> {
    let thread = in_status(pid, "TracerPid:").filter(|thread| *thread > 0)?;
    in_status(thread, "Tgid:")
}

fn in_status(pid: i32, name: &str) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn is_of_container(pid: i32, cgroup: Option<&Path>) -> bool {
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/pid")).ok();
    let theirs = namespace(&pid.to_string());
    if theirs.is_some() && theirs != namespace("self") {
        return true;
    }
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let is_below = |above: &Path| {
        places_of(&cgroups)
            .iter()
            .any(|p| p.dir().starts_with(above))
    };
    cgroup.is_some_and(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_node_is_of_no_container() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = places_of(&own).first().map(|p| p.dir().to_owned());
        let pid = std::process::id() as i32;
        assert!(!is_of_container(pid, None));
        assert!(!is_of_container(
            pid,
            Some(Path::new("/sys/fs/cgroup/none"))
        ));
        assert_eq!(is_of_container(pid, own.as_deref()), own.is_some());
        assert_eq!((tracer_of(pid), tracer_of(-1)), (None, None));
    }
}
