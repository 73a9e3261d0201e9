//! Makes a connection to the API server, on a thread of its own: a name lookup cannot be bounded.
//!
//! Invariant: the thread ends with the connection or with an error. Nobody waits for a thread that is given up.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

use super::credentials::{Identity, WAYS_OUT};
use crate::base::bell::Bell;
use crate::base::http_client;
use crate::base::wire::connection::Connection;
use crate::base::wire::dial::{Address, Dialer, End};

/// Stack of the thread. A TLS handshake needs most of it.
const STACK: usize = 256 << 10;
/// Longest time for connecting and for the TLS handshake, after the name has been found.
const LIMIT: Duration = Duration::from_secs(10);

/// The reasons for which there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoConnection {
    /// The server cannot be reached.
    #[error("cannot reach the API server {authority}: {cause}")]
    Unreachable {
        /// Host and port.
        authority: String,
        /// Reason.
        cause: String,
    },
    /// The TLS handshake has failed.
    #[error("{0}")]
    Tls(String),
    /// The server does not speak HTTP/2.
    #[error(
        "the API server {0} does not offer HTTP/2, which every API server does: connect to it without a proxy for HTTP"
    )]
    NoHttp2(String),
}

/// A connection, or the reason why there is none.
pub(super) type Dialed = Result<Connection, NoConnection>;

/// Starts a thread that connects. It sends its result and rings the bell.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
pub(super) fn begin(identity: Identity, bell: Arc<Bell>) -> io::Result<Receiver<Dialed>> {
    let (send, receive) = bounded(1);
    let dial = move || {
        // Nobody receives the result if the client has given up.
        let _ = send.send(connect(&identity));
        drop(send);
        bell.ring();
    };
    std::thread::Builder::new()
        .name("cluster-dial".to_owned())
        .stack_size(STACK)
        .spawn(dial)?;
    Ok(receive)
}

fn connect(identity: &Identity) -> Dialed {
    let (server, authority) = (&identity.server, identity.server.authority());
    let failed = |cause: String| NoConnection::Unreachable {
        authority: authority.clone(),
        cause,
    };
    let addresses = (server.host.as_str(), server.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = addresses.map_err(|e| failed(e.to_string()))?.collect();
    let deadline = Instant::now() + LIMIT;
    let dialer = Dialer {
        namespace: None,
        deadline,
        observer: &(),
    };
    let addresses = addresses.into_iter().map(Address::Tcp);
    let socket = dialer.dial_first(addresses, End::HangUp);
    let socket = socket.map_err(|e| failed(e.to_string()))?;
    let tls = identity.tls.clone();
    let connection = Connection::tls(socket, deadline, &identity.server_name, tls, &());
    let connection = connection.map_err(|e| tls_error(&authority, &e))?;
    match connection.is_http2() {
        true => Ok(connection),
        false => Err(NoConnection::NoHttp2(authority)),
    }
}

fn tls_error(authority: &str, e: &io::Error) -> NoConnection {
    let inner = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    NoConnection::Tls(match inner {
        Some(e) => http_client::tls_error_text(authority, e, WAYS_OUT),
        None => format!(
            "TLS with {authority} failed: {e}; {}",
            (WAYS_OUT.without_tls)(authority)
        ),
    })
}
