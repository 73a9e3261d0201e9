//! Fetches from http servers that are not trusted: bounded, with redirects, TLS and an end from outside.
//!
//! ```text
//! client (redirects) ─▶ transport (TCP, TLS, pace) ─▶ roots (whom to trust)
//! ```
//!
//! Invariants: what is for one server only never goes to another. Every wait is bounded, and ends with its [`Stop`]. A proxy
//! in the environment is not used.

mod client;
mod error;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod redirect;
mod roots;
mod stop;
mod transport;
mod url;

pub(crate) use client::{Answer, Ask, Client, host_of, of_io};
pub(crate) use error::{FetchError, Kind, quoted};
pub use redirect::AddressError;
pub(crate) use roots::Sources;
pub(crate) use stop::{SLICE, Stop};
pub(crate) use transport::{Dialer, Pacing, carried};
pub use url::{WebUrl, WebUrlError};

/// Texts that tell a person what to do when TLS with a server does not work. Each function takes host and port, and
/// gives the end of a sentence.
#[derive(Clone, Copy)]
pub(crate) struct WaysOut {
    /// The server speaks without TLS.
    pub(crate) without_tls: fn(&str) -> String,
    /// This node does not know who has signed the server's certificate.
    pub(crate) own_authority: fn(&str) -> String,
}
