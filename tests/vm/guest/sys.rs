//! The system calls that std lacks. The program is built by rustc alone, so it has no crates.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::io::{self, Error};
use std::os::fd::RawFd;
use std::path::Path;

pub const MS_NOSUID: c_ulong = 2;
pub const MS_MOVE: c_ulong = 8192;
pub const BLOCK: u32 = 0o060_000;

const RB_AUTOBOOT: c_int = 0x0123_4567;
const AF_PACKET: c_int = 17;
const SOCK_RAW: c_int = 3;
#[cfg(target_arch = "x86_64")]
const SYS_FINIT_MODULE: c_long = 313;
#[cfg(target_arch = "x86_64")]
const SYS_RENAMEAT2: c_long = 316;
#[cfg(target_arch = "aarch64")]
const SYS_FINIT_MODULE: c_long = 273;
#[cfg(target_arch = "aarch64")]
const SYS_RENAMEAT2: c_long = 276;
#[cfg(target_arch = "arm")]
const SYS_FINIT_MODULE: c_long = 379;
#[cfg(target_arch = "arm")]
const SYS_RENAMEAT2: c_long = 382;

/// `struct sockaddr_ll`.
#[repr(C)]
struct LinkAddress {
    family: u16,
    protocol: u16,
    index: c_int,
    hardware: u16,
    kind: u8,
    length: u8,
    address: [u8; 8],
}

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn umount2(target: *const c_char, flags: c_int) -> c_int;
    fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn reboot(how: c_int) -> c_int;
    fn sethostname(name: *const c_char, length: usize) -> c_int;
    fn wait(status: *mut c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn sync();
    fn syscall(number: c_long, ...) -> c_long;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn sendto(
        socket: c_int,
        bytes: *const c_void,
        length: usize,
        flags: c_int,
        to: *const c_void,
        to_length: u32,
    ) -> isize;
    fn if_nametoindex(name: *const c_char) -> u32;
}

fn text(s: impl AsRef<Path>) -> CString {
    CString::new(s.as_ref().as_os_str().as_encoded_bytes()).expect("no NUL in a path")
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub fn mount_at(
    source: &str,
    target: impl AsRef<Path>,
    kind: &str,
    flags: c_ulong,
    data: &str,
) -> io::Result<()> {
    let (source, target, kind, data) = (text(source), text(target), text(kind), text(data));
    // SAFETY: four C strings that live until the call returns.
    check(unsafe {
        mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    })
    .map(drop)
}

pub fn unmount(target: &str) -> io::Result<()> {
    let target = text(target);
    // SAFETY: a C string that lives until the call returns.
    check(unsafe { umount2(target.as_ptr(), 0) }).map(drop)
}

pub fn make_node(path: &str, mode: u32, device: u64) -> io::Result<()> {
    let path = text(path);
    // SAFETY: a C string that lives until the call returns.
    check(unsafe { mknod(path.as_ptr(), mode, device) }).map(drop)
}

/// Makes the present directory the root.
pub fn root_here() -> io::Result<()> {
    // SAFETY: a C string.
    check(unsafe { chroot(c".".as_ptr()) }).map(drop)
}

/// Ends the machine: QEMU runs with -no-reboot.
pub fn end_machine() -> ! {
    // SAFETY: no memory is involved.
    unsafe {
        sync();
        reboot(RB_AUTOBOOT);
    }
    loop {
        std::thread::park();
    }
}

pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length are of one string.
    check(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// Waits for any child and returns its pid, or `None` when there is none.
pub fn wait_any() -> Option<u32> {
    let mut status = 0;
    // SAFETY: `status` is written while the call runs.
    u32::try_from(unsafe { wait(&raw mut status) }).ok()
}

pub fn signal(pid: u32, number: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { kill(pid.cast_signed(), number) }).map(drop)
}

/// Two entries take each other's place.
pub fn exchange(a: &str, b: &str) -> io::Result<()> {
    const HERE: c_int = -100;
    const RENAME_EXCHANGE: u32 = 2;
    let (a, b) = (text(a), text(b));
    // SAFETY: two C strings that live until the call returns, and numbers.
    let result = unsafe {
        syscall(
            SYS_RENAMEAT2,
            HERE,
            a.as_ptr(),
            HERE,
            b.as_ptr(),
            RENAME_EXCHANGE,
        )
    };
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

pub fn insert_module(file: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor, a C string and flags, as finit_module(2) wants them.
    let result = unsafe { syscall(SYS_FINIT_MODULE, file, c"".as_ptr(), 0) };
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A socket that sends whole frames on an interface.
pub struct FrameSocket {
    socket: RawFd,
    to: LinkAddress,
}

impl FrameSocket {
    pub fn open(interface: &str) -> io::Result<FrameSocket> {
        let name = text(interface);
        // SAFETY: numbers, and a C string that lives until the call returns.
        let (socket, index) = unsafe {
            (
                socket(AF_PACKET, SOCK_RAW, 0),
                if_nametoindex(name.as_ptr()),
            )
        };
        let to = LinkAddress {
            family: AF_PACKET as u16,
            protocol: 0x86dd_u16.to_be(),
            index: index.cast_signed(),
            hardware: 0,
            kind: 0,
            length: 6,
            address: [0; 8],
        };
        Ok(FrameSocket {
            socket: check(socket)?,
            to,
        })
    }

    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: both pointers come with their lengths.
        let sent = unsafe {
            sendto(
                self.socket,
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.to).cast(),
                size_of::<LinkAddress>() as u32,
            )
        };
        if sent < 0 {
            Err(Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
