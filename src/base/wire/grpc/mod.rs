//! Unary gRPC calls over an HTTP/2 link (kubelet-probes 3.6), without a runtime or generated code, one call at a time.
//!
//! Invariants: the texts of a failed call are those of gRPC's Go client.

mod call;
mod message;
pub mod status;

use super::link::Ended;

pub use call::{Call, CallError};

/// Largest total size in bytes of the headers that are accepted from a server.
pub const MAX_HEADERS: u32 = 16 * 1024;

/// Returns the error text for a server that never answered as a gRPC server.
pub fn preface_error(e: Ended) -> String {
    let cause = match e {
        Ended::Expired => "i/o timeout".to_owned(),
        Ended::Closed(None) => "EOF".to_owned(),
        Ended::Closed(Some(e)) => e.to_string(),
        Ended::Socket(e) => e.to_string(),
    };
    format!("error reading server preface: {cause}")
}
