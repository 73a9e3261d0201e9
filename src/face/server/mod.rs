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
pub mod channels;
mod connection;
pub mod containers;
mod credentials;
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

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{
    AttachRequest, ContainerRoot, ExecOutcome, ExecRequest, Session, Started,
};
use crate::face::views::ProbeReport;
use crate::face::views::history::PodHistory;
use crate::face::views::{PodView, Snapshot, SnapshotUpdate};
use crate::net::services::view::ServiceView;
use crate::pods::events::EventList;
use access::Door;
use containers::{ContainerName, Unreachable};
use front::Front;
use health::Check;
use protocol::{ConditionSet, DeleteTarget, Deleted, PauseTarget, ProbeTarget, RestartTarget};
use unix_door::UnixDoor;
use worker::Shared;

pub use credentials::CredentialFiles;
pub use front::MAX_CLIENTS;

/// The kubelet's registries of metrics besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// `/metrics/probes`.
    Probes,
    /// `/metrics/resource`.
    Resource,
    /// `/metrics/cadvisor`.
    Cadvisor,
}

/// The files of a running container.
pub struct ContainerFiles {
    /// Its root directory.
    pub root: ContainerRoot,
    /// User and group of its first process; None where the runtime does not say.
    pub owner: Option<(u32, u32)>,
}

/// Where the answers come from: the daemon, or a test.
pub trait Backend: Send + Sync {
    /// What is known now. Waits only right after the daemon's start, until the pod files have been read.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// What has changed after `version`, as soon as something has; nothing after `ceiling`. Complete for a reader that is
    /// too far behind.
    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate;

    /// The daemon's version.
    fn version(&self) -> String;

    /// The events after that version as soon as there is one, or none after `ceiling`. Without a version all, at once.
    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList;

    /// What is kept of a pod's probes and restarts; empty for an unknown pod.
    fn history(&self, uid: &PodUid) -> PodHistory;

    /// Runs a probe now; returns when it has run, after three times its timeout at most.
    ///
    /// # Errors
    /// Why it cannot be run.
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String>;

    /// Pauses probes for so long; gives their names.
    ///
    /// # Errors
    /// There is no such probe, or the time is out of range.
    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String>;

    /// Lets paused probes go on; gives the names of those that were paused.
    ///
    /// # Errors
    /// There is no such probe.
    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, String>;

    /// Has containers killed and started again by the pod's worker; gives their names at once.
    ///
    /// # Errors
    /// There is no such container, or it would not start again.
    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, String>;

    /// Ends a pod until its file changes; returns when that is on disk, and the pod may still be ending.
    ///
    /// # Errors
    /// There is no such pod, it has ended, or the disk does not take it.
    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, String>;

    /// Sets or removes a condition of a pod; returns when it is on disk, or cannot be.
    ///
    /// # Errors
    /// There is no such pod, or it cannot have this condition.
    fn set_condition(&self, uid: &PodUid, change: &ConditionChange)
    -> Result<ConditionSet, String>;

    /// Every metric, in the Prometheus text format.
    fn metrics(&self) -> String;

    /// Every service, in the order of namespace and name.
    fn services(&self) -> Vec<ServiceView>;

    /// Every object of a kind that pods refer to, as an API server has it, in the same order. Those of Secrets hold their
    /// values.
    fn objects(&self, kind: ObjectKind) -> Vec<Value>;

    /// A pod by its full name; None when there is none. Without its events.
    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>>;

    /// The pods that the runtime has, as v1 objects with what it knows of them.
    fn running_pods(&self) -> Vec<Value>;

    /// The metrics of one of the kubelet's other registries.
    fn metrics_of(&self, registry: Registry) -> String;

    /// The body of `/stats/summary`.
    ///
    /// # Errors
    /// Why nothing can be read.
    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, String>;

    /// The configuration in force, without passwords.
    fn config(&self) -> Value;

    /// The directory of the node's logs.
    fn log_dir(&self) -> PathBuf;

    /// Counts a panic of the server that was caught.
    fn panicked(&self);

    /// How the daemon is, for `/healthz`. Takes at most milliseconds.
    fn checks(&self) -> Vec<Check>;

    /// Starts a command with streams in a container.
    ///
    /// # Errors
    /// There is no such container, or it does not run.
    fn exec(&self, name: &ContainerName, request: &ExecRequest) -> Result<Started, Unreachable>;

    /// Runs a command to its end, at most for so long, and keeps at most so many bytes of what it writes. Killed when cancelled.
    ///
    /// # Errors
    /// There is no such container, or it does not run.
    fn run(
        &self,
        name: &ContainerName,
        command: &[String],
        bounds: (Duration, usize),
        cancel: &Cancel,
    ) -> Result<ExecOutcome, Unreachable>;

    /// Attaches to a container's own process.
    ///
    /// # Errors
    /// There is no such container, or it does not run.
    fn attach(
        &self,
        name: &ContainerName,
        request: AttachRequest,
    ) -> Result<Box<dyn Session>, Unreachable>;

    /// The files of a container.
    ///
    /// # Errors
    /// There is no such container, or it does not run.
    fn files(&self, name: &ContainerName) -> Result<ContainerFiles, Unreachable>;

    /// Connects to a port of a pod, from inside of it.
    ///
    /// # Errors
    /// There is no such pod (404), or nobody listens there.
    fn dial(&self, name: &ContainerName, port: u16) -> Result<PortSocket, Unreachable>;
}

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
#[derive(Debug)]
pub struct ListenError {
    path: PathBuf,
    cause: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot listen on {}: {}",
            self.path.display(),
            self.cause
        )
    }
}

impl std::error::Error for ListenError {}

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
/// The unix socket cannot be made, or there is no thread for it.
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

    /// Whether every thread has ended.
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
