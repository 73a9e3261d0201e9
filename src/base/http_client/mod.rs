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
pub mod redirect;
mod roots;
mod stop;
mod transport;
mod url;

pub use client::{Answer, Ask, Client, host_of, of_io};
pub use error::{FetchError, Kind, quoted};
pub use redirect::AddressError;
pub use roots::{Sources, error_text as tls_error_text};
pub use stop::{SLICE, Stop};
pub use transport::{Dialer, Pacing, carried};
pub use url::{WebUrl, WebUrlError};

/// Advice for a person when TLS with a server does not work. Each function takes the server's host and port, and returns
/// the end of a sentence.
#[derive(Clone, Copy)]
pub struct WaysOut {
    /// Advice for a server that does not speak TLS.
    pub without_tls: fn(&str) -> String,
    /// Advice for a server that has a certificate of an authority that this node does not trust.
    pub own_authority: fn(&str) -> String,
}
