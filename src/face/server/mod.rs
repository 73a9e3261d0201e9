//! The HTTP server: clients of the unix socket, health, and a TCP address with TLS (kubelet-probes 11).
//!
//! Invariants: at most [`MAX_CLIENTS`] clients of each address are connected at once.
//! Heads are read, and health is answered, by one thread that waits for nobody (front.rs); every other request gets a small
//! thread for its answer (worker.rs). On TCP nothing but health is answered without credentials (access.rs). Every
//! thread ends when the [`Server`] is stopped.
//!
//! A browser shows its client certificate whichever page makes it ask, so a page of another site is refused; so is, on the
//! read-only port, a `Host` that a page could have given the address of the loopback (access.rs).
//!
//! Deliberately absent: `/debug/pprof`, `/spec/` and SPDY.

mod access;
mod backend;
pub mod channels;
mod connection;
pub mod containers;
mod credentials;
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

use access::Door;
use front::Front;
use unix_door::UnixDoor;
use worker::Shared;

pub use backend::{
    Backend, ContainerFiles, Containers, Health, Metrics, Registry, Requests, Resources, Shown,
};
pub use credentials::CredentialFiles;
pub use error::{NotRestarted, RequestError, SummaryError, Unreachable};
pub use front::MAX_CLIENTS;

/// Where the server listens besides the unix socket, and what it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// `healthzPort`, on loopback.
    pub health: Option<u16>,
    /// `readOnlyPort`, on loopback.
    pub read_only: Option<u16>,
    /// `address` and `port`, with the files of TLS.
    pub main: Option<(SocketAddr, CredentialFiles)>,
    /// `enableDebuggingHandlers`.
    pub debugging: bool,
}

/// The unix socket alone.
impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            health: None,
            read_only: None,
            main: None,
            debugging: true,
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

/// The socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {}: {cause}", path.display())]
pub struct ListenError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// The running server. Dropping it stops it without waiting.
pub struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
    stop: UnixStream,
    front: JoinHandle<()>,
}

/// Listens on the unix socket `path` (mode 0600, or 0660 and of the group `podprobe` where there is one) and on the addresses of
/// `config`, and answers from `backend` until stopped. Addresses that are in use are tried again; the unix socket must work.
///
/// # Errors
/// Returns [`ListenError`] if the unix socket cannot be made, or there is no thread for it.
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
    let shared = Arc::new(Shared::new(backend, config.debugging, stopped.into())?);
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
    /// Ends every wait for a client and removes the socket. Does not wait; idempotent. A client gets what of its answer it
    /// takes at once.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::SeqCst) {
            let _ = self.stop.shutdown(Shutdown::Both);
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Tells whether every thread has ended.
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
