//! Functions for terminals: their size, their master and slave, and the controlling terminal of a process.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// Returns the columns and lines of the terminal behind `fd`. Returns None if `fd` is not a terminal or its size is
/// unknown.
pub fn size(fd: &impl AsFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize through the pointer, which is valid for the call; the descriptor is open.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (result == 0 && size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Takes ownership of a descriptor that has just come with a message (SCM_RIGHTS).
pub fn received(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for this process, and no other code knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Opens the slave of a terminal by the descriptor of its master. The slave's file need not be visible in this mount
/// namespace. The terminal does not become the controlling terminal of this process.
///
/// # Errors
/// Returns the kernel's error, such as ENOTTY if the descriptor is not a master.
pub fn slave_of(master: &impl AsFd) -> nix::Result<File> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes the flags of an open as an integer and returns a new descriptor; the master is open.
    let fd = unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGPTPEER, flags) };
    Errno::result(fd).map(|fd| File::from(received(fd)))
}

/// Sets the columns and lines of a terminal. If the size changes, the processes in the terminal's foreground get
/// SIGWINCH.
///
/// # Errors
/// Returns ENOTTY if the descriptor is not a terminal.
pub fn set_size(fd: &impl AsFd, (columns, lines): (u16, u16)) -> nix::Result<()> {
    let size = libc::winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one winsize through the pointer, which is valid for the call; the descriptor is open.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    Errno::result(result).map(drop)
}

/// Unlocks the slave of a new terminal, so that it can be opened.
///
/// # Errors
/// Returns the kernel's error, such as ENOTTY if the descriptor is not a master.
pub fn unlock(master: &impl AsFd) -> nix::Result<()> {
    let locked: libc::c_int = 0;
    let fd = master.as_fd().as_raw_fd();
    // SAFETY: TIOCSPTLCK reads one int through the pointer, which is valid for the call; the descriptor is open.
    let result = unsafe { libc::ioctl(fd, libc::TIOCSPTLCK, &raw const locked) };
    Errno::result(result).map(drop)
}

/// Makes a terminal the controlling terminal of this process, which must lead a session without one. The terminal is never
/// taken away from another session.
///
/// # Errors
/// Returns EPERM if the terminal belongs to another session, and ENOTTY if the descriptor is not a terminal.
pub fn become_controlling(fd: RawFd) -> nix::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    Errno::result(unsafe { libc::ioctl(fd, libc::TIOCSCTTY, 0) }).map(drop)
}
