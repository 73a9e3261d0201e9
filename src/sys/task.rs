//! Processes by pid *and* start time, pidfds, and the loopback interface.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::process::{pidfd_open, pidfd_send_signal};
use crate::clock::Moment;

/// Field 22 of `/proc/<pid>/stat` (clock ticks since boot), or None when the process is gone or only its zombie is left.
/// A pid and its start time name one process for as long as the machine runs.
pub fn start_time(pid: i32) -> Option<u64> {
    look(pid).ok().flatten()
}

/// As [`start_time`], for those who must not take "cannot be told" for "is gone".
///
/// # Errors
/// It cannot be told right now: no descriptors or no memory are left.
pub fn look(pid: i32) -> io::Result<Option<u64>> {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_start_time(&stat)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The name in parentheses may hold anything, so the fields are counted from the last parenthesis.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// How a wait for a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The process has ended.
    Ended,
    /// It lives on.
    TimedOut,
    /// Somebody had the wait end.
    Told,
}

/// A descriptor of a process: signals through it never reach another process that got the same pid.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process `pid` if it is the one that started at `expected_start`; `NotFound` when it is gone or another.
    pub fn open(pid: i32, expected_start: u64) -> io::Result<Self> {
        let fd = pidfd_open(pid).map_err(gone)?;
        // Compared after the open: from here on the pid cannot be given to another process behind our back.
        match look(pid)? {
            Some(t) if t == expected_start => Ok(Self(fd)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Sends a signal; `NotFound` when the process has ended.
    pub fn send(&self, signal: i32) -> io::Result<()> {
        pidfd_send_signal(&self.0, signal).map_err(gone)
    }

    /// Waits until the process has ended; false when it lives on after `timeout`.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        Ok(self.wait_unless(timeout, [])? == Waited::Ended)
    }

    /// As [`Self::wait`], but no longer than until one of `told` is readable or closed.
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
            // Rounded up, so that the last wait is not a busy loop.
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

fn gone(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::ESRCH) {
        io::ErrorKind::NotFound.into()
    } else {
        e
    }
}

/// Sets `lo` of the calling thread's network namespace up; the kernel adds 127.0.0.1 and ::1 by itself.
pub fn loopback_up() -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let s = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call; the socket is open.
    let r = unsafe { libc::ioctl(s.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    Errno::result(r).map(drop).map_err(Into::into)
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
