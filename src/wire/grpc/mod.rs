//! Unary gRPC calls over an HTTP/2 link (kubelet-probes 3.6): no runtime, no code generation, one call at a time.
//!
//! Invariants: the texts of a call that failed are those of gRPC's Go client.

mod call;
mod message;
pub mod status;

use super::link::Ended;

pub use call::{Call, CallError};

/// Most bytes of headers taken from a server.
pub const MAX_HEADERS: u32 = 16 * 1024;

/// The text of a server that never became one of gRPC.
pub fn preface_error(e: Ended) -> String {
    let cause = match e {
        Ended::Expired => "i/o timeout".to_owned(),
        Ended::Closed(None) => "EOF".to_owned(),
        Ended::Closed(Some(e)) => e.to_string(),
        Ended::Socket(e) => e.to_string(),
    };
    format!("error reading server preface: {cause}")
}
