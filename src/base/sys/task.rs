//! Other processes, identified by pid *and* start time, or by a descriptor. A pid alone may belong to another process by
//! the time it is used.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::base::clock::Moment;

/// A process, identified so that reuse of its pid does no harm. The default is a process that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id on the host.
    pub pid: i32,
    /// Start time of the process in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
}

impl Process {
    /// Identifies the running process `pid`. Returns None if no such process runs.
    pub fn of(pid: i32) -> Option<Self> {
        start_time(pid).map(|start_time| Self { pid, start_time })
    }

    /// Tells whether the process still runs. A zombie does not run. If no descriptors are left to read the start time, any
    /// process with the pid counts as this process, because podprobe's own shortage must not end a container.
    pub fn alive(self) -> bool {
        look(self.pid).map_or_else(
            |_| kill(Pid::from_raw(self.pid), None).is_ok(),
            |t| t == Some(self.start_time),
        )
    }

    /// Opens a descriptor of the process. Returns None if the process has ended.
    pub fn open(self) -> io::Result<Option<PidFd>> {
        // The kernel would refuse pid 0, which belongs to no process.
        if self.pid <= 0 {
            return Ok(None);
        }
        match PidFd::open(self.pid, self.start_time) {
            Ok(fd) => Ok(Some(fd)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Returns the start time of a process in clock ticks since boot (field 22 of `/proc/<pid>/stat`). Returns None if the
/// process has ended or is a zombie. A pid and a start time together identify one process until the next boot.
pub fn start_time(pid: i32) -> Option<u64> {
    look(pid).ok().flatten()
}

/// Returns the start time like [`start_time`], for a caller that must tell an unknown start time from an ended process.
///
/// # Errors
/// Returns the error of the read if no descriptors or no memory are left. The start time is then unknown.
pub fn look(pid: i32) -> io::Result<Option<u64>> {
    // The first 22 fields fit into one read. This function runs once a second for each process of a pod.
    let mut stat = [0; 1024];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut f| f.read(&mut stat));
    match read {
        Ok(length) => Ok(parse_start_time(&stat[..length])),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Parses the start time from the content of `/proc/<pid>/stat`. Returns None for a zombie.
///
/// The program name in parentheses may itself contain parentheses and blanks. Therefore the fields are counted from the
/// last parenthesis.
pub fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The reason why a wait for a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The process has ended.
    Ended,
    /// The process still runs after the timeout.
    TimedOut,
    /// A descriptor of the caller became readable or was closed.
    Told,
}

/// A descriptor of a process. Signals through it never reach another process that later gets the same pid.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has `pid` now. Returns `NotFound` if no process has this pid. The descriptor is
    /// close-on-exec.
    pub fn of(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = Errno::result(fd).map_err(gone)?;
        // SAFETY: the kernel has just made this descriptor, and no other code knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Opens the process `pid` if it started at `expected_start`. Returns `NotFound` if the process has ended, or if
    /// the process with this pid started at another time.
    pub fn open(pid: i32, expected_start: u64) -> io::Result<Self> {
        let fd = Self::of(pid)?;
        // Compared after the open: from here on a new process with the same pid cannot be taken for the expected
        // process.
        match look(pid)? {
            Some(t) if t == expected_start => Ok(fd),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Sends a signal, which may be a real-time signal. Returns `NotFound` if the process has ended.
    pub fn send(&self, signal: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        let fd = self.0.as_raw_fd();
        // SAFETY: a null siginfo stands for what kill(2) sends. The other arguments are numbers.
        let r = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) };
        Errno::result(r).map(drop).map_err(gone)
    }

    /// Reaps the process, which must be a child of this process. Returns its exit code, or 128 plus the number of the
    /// signal that ended the process. Returns None if the process still runs.
    pub fn reap(&self) -> nix::Result<Option<i32>> {
        reap(libc::P_PIDFD, self.0.as_raw_fd())
    }

    /// Waits until the process has ended. Returns false if the process still runs after `timeout`.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Ok(self.wait_unless(timeout, [])? == Waited::Ended)
    }

    /// Waits like [`Self::wait`], but the wait also ends if one of the descriptors in `told` becomes readable or is
    /// closed.
    pub fn wait_unless<'a>(
        &self,
        timeout: Duration,
        told: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Waited> {
        let mut fds = vec![PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            told.into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
        );
        let limit = Moment::now() + timeout;
        loop {
            // The time left is rounded up, so that the last wait is not a busy loop.
            let left = limit.since(Moment::now()) + Duration::from_micros(999);
            match poll(
                &mut fds,
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
            ) {
                Ok(0) if Moment::now() < limit => {}
                Ok(0) => return Ok(Waited::TimedOut),
                Ok(_) if fds[0].any() == Some(true) => return Ok(Waited::Ended),
                Ok(_) => return Ok(Waited::Told),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn gone(e: Errno) -> io::Error {
    if e == Errno::ESRCH {
        io::ErrorKind::NotFound.into()
    } else {
        e.into()
    }
}

/// Reaps a child by its pid, with the same result as [`PidFd::reap`]. No other code may reap the child. Otherwise the
/// pid could belong to another process by now.
pub fn reap_pid(pid: i32) -> nix::Result<Option<i32>> {
    reap(libc::P_PID, pid)
}

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Process id of the child.
    pub pid: i32,
    /// Exit code of the child, or 128 plus the number of the signal that ended the child.
    pub code: i32,
    /// Number of the signal that ended the child; None if the child exited. The number may be that of a real-time
    /// signal. nix has no name for such a signal, and nix's own waitpid reaps the child and then fails.
    pub signal: Option<i32>,
}

/// Reaps one child of this process that has ended. Returns None if no child has ended.
pub fn reap_any() -> Option<Ended> {
    reap_one(libc::P_ALL, 0).ok().flatten()
}

fn reap(kind: libc::idtype_t, id: i32) -> nix::Result<Option<i32>> {
    Ok(reap_one(kind, id)?.map(|ended| ended.code))
}

fn reap_one(kind: libc::idtype_t, id: i32) -> nix::Result<Option<Ended>> {
    // SAFETY: siginfo_t is plain data for which all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: waitid writes one siginfo_t, which `info` is.
    Errno::result(unsafe { libc::waitid(kind, id.cast_unsigned(), &mut info, flags) })?;
    // SAFETY: waitid filled the fields of SIGCHLD, or left all of them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let (code, signal) = match info.si_code {
        libc::CLD_EXITED => (status, None),
        _ => (128 + status, Some(status)),
    };
    Ok((pid != 0).then_some(Ended { pid, code, signal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stat: &str, expected: Option<u64>) {
        assert_eq!(parse_start_time(stat.as_bytes()), expected);
    }

    #[test]
    fn the_start_time_is_field_22_whatever_the_name() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        check(&format!("5 (sh) S {rest}"), Some(777));
        check(&format!("5 (a) S 1 (b) c) S {rest}"), Some(777));
        check(&format!("5 (sh) Z {rest}"), None);
        check("5 (sh) S 1 2", None);
        check("", None);
    }

    #[test]
    fn a_pidfd_opens_only_the_process_that_was_recorded() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let start = start_time(pid).unwrap();
        assert_eq!(
            PidFd::open(pid, start + 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let fd = PidFd::open(pid, start).unwrap();
        assert!(!fd.wait(Duration::from_millis(1)).unwrap());
        fd.send(libc::SIGKILL).unwrap();
        assert!(fd.wait(Duration::from_secs(10)).unwrap());
        assert_eq!(start_time(pid), None, "a zombie is gone");
        child.wait().unwrap();
        assert_eq!(
            fd.send(libc::SIGKILL).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
