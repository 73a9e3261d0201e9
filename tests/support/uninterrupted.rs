//! A call that a signal interrupts is made again. Where the socket has a time limit, the kernel does not do so by itself, and
//! a machine that is stopped and goes on interrupts every call.

use std::io;

pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
