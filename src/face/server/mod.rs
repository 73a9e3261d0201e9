//! The HTTP server: it answers clients of the unix socket, health requests, and clients of a TCP address with TLS
//! (kubelet-probes 11).
//!
//! Invariants: at most [`MAX_CLIENTS`] clients of each listener are connected at once. One thread that waits for no
//! single client reads the heads of requests and answers health (front.rs). Every other request gets a small thread
//! for its answer (worker.rs). On TCP nothing but health is answered without credentials (access.rs). Every thread
//! ends when the [`Server`] is stopped.
//!
//! A browser shows its client certificate for every page. So requests from a page of another site are refused. The
//! read-only port also refuses a `Host` that is a name, because a page's own name server could resolve that name to
//! 127.0.0.1 (access.rs).
//!
//! Deliberately absent: `/debug/pprof`, `/spec/`, and SPDY for anything but port-forward.

mod access;
mod authorization;
mod backend;
pub mod channels;
mod client_certificate;
mod connection;
pub mod containers;
mod credentials;
mod der;
mod error;
mod exchange;
mod files;
mod front;
pub mod health;
mod logs;
mod node_logs;
mod page;
pub mod protocol;
pub mod request;
mod response;
mod routes;
mod self_signed;
mod spdy;
mod stream;
mod tcp_door;
mod threads;
pub mod transport;
mod unix_door;
pub mod web_socket;
mod worker;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use crate::base::live::Live;
use access::Door;
use front::Front;
use unix_door::UnixDoor;
use worker::Shared;

pub use backend::{
    Backend, ContainerFiles, Containers, Health, Metrics, Registry, Requests, Resources, Reviews,
    Shown,
};
pub use credentials::CredentialFiles;
pub use error::{NotRestarted, RequestError, SummaryError, Unreachable};
pub use front::MAX_CLIENTS;
pub use self_signed::Host;

/// The addresses on which the server listens besides the unix socket, and the requests that it answers.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The port of `healthzPort`, on loopback; None if the server does not listen on such a port.
    pub health: Option<u16>,
    /// The port of `readOnlyPort`, on loopback; None if the server does not listen on such a port.
    pub read_only: Option<u16>,
    /// The address of `address` and `port`, with the files of TLS; None if the server does not listen on such an
    /// address.
    pub main: Option<(SocketAddr, CredentialFiles)>,
    /// The value of `enableDebuggingHandlers`.
    pub debugging: Live<bool>,
    /// The questions about clients that the cluster answers.
    pub webhooks: Webhooks,
}

/// The questions about the clients of the main port that the API server of the cluster answers. A node that stands alone
/// asks none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// True if the API server is asked who has a token.
    pub authentication: bool,
    /// True if the API server is asked what a user may do; false if every user may do everything.
    pub authorization: bool,
}

/// The default is to listen on the unix socket alone.
impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            health: None,
            read_only: None,
            main: None,
            debugging: Live::new(true),
            webhooks: Webhooks::default(),
        }
    }
}

impl ServerConfig {
    fn doors(self) -> Vec<(Door, SocketAddr, Option<CredentialFiles>)> {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let health = self.health.map(|port| (Door::Health, local(port), None));
        let read_only = self
            .read_only
            .map(|port| (Door::ReadOnly, local(port), None));
        let main = self.main.map(|(at, files)| (Door::Main, at, Some(files)));
        health.into_iter().chain(read_only).chain(main).collect()
    }
}

/// The server cannot listen on the unix socket.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {cause}", path.display())]
pub struct ListenError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// The running server. A dropped server stops, and the drop does not wait.
pub struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    stop: UnixStream,
    front: JoinHandle<()>,
}

/// Starts the server. The server listens on the unix socket `path` and on the addresses of `config`, and answers from
/// `backend` until it is stopped. The mode of the socket is 0600, or 0660 with the group `podprobe` if that group
/// exists. Addresses that are in use are tried again; the unix socket must work.
///
/// # Errors
/// Returns [`ListenError`] if the unix socket cannot be made, or if no thread can be started.
pub fn spawn(
    path: &Path,
    config: ServerConfig,
    backend: Arc<dyn Backend>,
) -> Result<Server, ListenError> {
    open(path, config, backend).map_err(|cause| ListenError {
        path: path.to_owned(),
        cause,
    })
}

fn open(path: &Path, config: ServerConfig, backend: Arc<dyn Backend>) -> io::Result<Server> {
    let door = UnixDoor::open(path)?;
    let (stop, stopped) = UnixStream::pair()?;
    let shared = Arc::new(Shared::new(backend, &config, stopped.into())?);
    let of_thread = shared.clone();
    let front = thread::Builder::new()
        .name("server".into())
        .stack_size(worker::STACK)
        .spawn(move || Front::new(of_thread, door, config.doors()).run())?;
    Ok(Server {
        path: path.to_owned(),
        shared,
        stop,
        front,
    })
}

impl Server {
    /// Ends every wait for a client and removes the socket. Does not wait, and may be called again. A client still
    /// gets the part of its answer that can be sent at once.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::SeqCst) {
            let _ = self.stop.shutdown(Shutdown::Both);
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Returns true if every thread of the server has ended.
    pub fn is_finished(&self) -> bool {
        self.front.is_finished() && self.shared.is_idle()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
