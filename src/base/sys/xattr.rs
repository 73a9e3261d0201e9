//! Reads and writes extended attributes of a path. A symlink at the end of the path is not followed.
//!
//! Invariant: every buffer length that the kernel gets is the length of the slice beside it.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn length(returned: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// Sets the attribute `name` of `path` to `value`, whether the attribute exists or not. Returns the kernel's error
/// (`ENOTSUP` if the file system has no attributes).
pub fn set(path: &Path, name: &OsStr, value: &[u8]) -> io::Result<()> {
    let (path, name) = (
        c_string(path.as_os_str().as_bytes())?,
        c_string(name.as_bytes())?,
    );
    // SAFETY: both strings end in NUL and `value` is readable for the length given; the kernel keeps none of them.
    let r = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if r == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the value of the attribute `name` of `path`, at most 64 KiB (the kernel's limit). Returns None if `path` has
/// no such attribute.
pub fn get(path: &Path, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let (path, name) = (
        c_string(path.as_os_str().as_bytes())?,
        c_string(name.as_bytes())?,
    );
    match read(|p, n| get_raw(&path, &name, p, n)) {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODATA | libc::ENOTSUP)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns the names of the attributes of `path`. The list is empty if the file system has no attributes.
pub fn list(path: &Path) -> io::Result<Vec<OsString>> {
    let path = c_string(path.as_os_str().as_bytes())?;
    match read(|p, n| list_raw(&path, p, n)) {
        Ok(names) => Ok(names
            .split(|b| *b == 0)
            .filter(|n| !n.is_empty())
            .map(|n| OsString::from_vec(n.to_vec()))
            .collect()),
        Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Calls `call` once for the length and once for the bytes. If the value grows between the two calls, the result is
/// `ERANGE`.
fn read(call: impl Fn(*mut u8, usize) -> libc::ssize_t) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; length(call(std::ptr::null_mut(), 0))?];
    if !buffer.is_empty() {
        let n = length(call(buffer.as_mut_ptr(), buffer.len()))?;
        buffer.truncate(n);
    }
    Ok(buffer)
}

fn get_raw(path: &CStr, name: &CStr, buffer: *mut u8, size: usize) -> libc::ssize_t {
    // SAFETY: both strings end in NUL. `read` passes a buffer that is writable for `size` bytes, or null with size 0.
    unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), buffer.cast(), size) }
}

fn list_raw(path: &CStr, buffer: *mut u8, size: usize) -> libc::ssize_t {
    // SAFETY: the string ends in NUL. `read` passes a buffer that is writable for `size` bytes, or null with size 0.
    unsafe { libc::llistxattr(path.as_ptr(), buffer.cast(), size) }
}
