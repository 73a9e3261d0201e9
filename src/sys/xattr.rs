//! Extended attributes, which neither std nor nix wraps.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The first 256 bytes of an attribute of the file itself, not of what a link points to; None when it has none, is longer, or cannot be read.
pub fn get(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut buffer = vec![0_u8; 256];
    // SAFETY: both strings end in NUL and live through the call; the kernel writes at most `buffer.len()` bytes.
    let n = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.truncate(usize::try_from(n).ok()?);
    Some(buffer)
}

/// Sets an attribute of the file itself.
pub fn set(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end in NUL; the kernel reads `value.len()` bytes of `value`.
    let r = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
