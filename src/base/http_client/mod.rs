//! A client for http servers that are not trusted: answers are bounded, and a caller can end every wait from outside.
//!
//! ```text
//! client (redirects) ─▶ transport (TCP, TLS, pace) ─▶ roots (trusted certificates)
//! ```
//!
//! Invariants: credentials for one server never go to another. Every wait is bounded, and ends when its [`Stop`] is set. A
//! proxy in the environment is ignored.

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
pub(crate) use roots::{Sources, error_text as tls_error_text};
pub(crate) use stop::{SLICE, Stop};
pub(crate) use transport::{Dialer, Pacing, carried};
pub use url::{WebUrl, WebUrlError};

/// Advice for a person when TLS with a server does not work. Each function takes the server's host and port, and returns
/// the end of a sentence.
#[derive(Clone, Copy)]
pub(crate) struct WaysOut {
    /// Advice for a server that does not speak TLS.
    pub(crate) without_tls: fn(&str) -> String,
    /// Advice for a server that has a certificate of an authority that this node does not trust.
    pub(crate) own_authority: fn(&str) -> String,
}
