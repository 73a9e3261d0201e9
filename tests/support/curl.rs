//! curl, as a client that podprobe's tests did not write.

use std::net::TcpListener;
use std::process::Command;

use super::skip;

/// Whether there is curl; a test that needs it ends where there is none.
#[track_caller]
pub(crate) fn has_curl() -> bool {
    skip::has("curl", "curl")
}

/// Asks with these arguments, and returns status and body; the status is 0 where nobody answers.
pub(crate) fn curl(arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "60"])
        .args(["--write-out", "\n%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// A TCP port of loopback that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
