//! The probes of a container: when each is tried, and by which handler.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actions::{ExecAction, GrpcAction, HttpGetAction, TcpSocketAction};

/// The type of a probe. A container has at most one probe of each type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeType {
    /// Probe that tells whether the container has started. The liveness and readiness probes wait until the startup
    /// probe has succeeded once.
    Startup,
    /// Probe that decides whether the container gets traffic.
    Readiness,
    /// Probe that decides whether the container is restarted.
    Liveness,
}

impl ProbeType {
    /// All types of probes, in the order in which workers are added (kubelet-probes 4.2 A2).
    pub const ALL: [ProbeType; 3] = [
        ProbeType::Startup,
        ProbeType::Readiness,
        ProbeType::Liveness,
    ];

    /// Returns the word that events and metrics use: `Startup`, `Readiness` or `Liveness`.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeType::Startup => "Startup",
            ProbeType::Readiness => "Readiness",
            ProbeType::Liveness => "Liveness",
        }
    }

    /// Returns the lower-case word, as commands and messages use it: `startup`, `readiness` or `liveness`.
    pub fn word(self) -> &'static str {
        match self {
            ProbeType::Startup => "startup",
            ProbeType::Readiness => "readiness",
            ProbeType::Liveness => "liveness",
        }
    }
}

impl fmt::Display for ProbeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A probe: when to probe, and how. All numbers have their defaults (kubelet-probes 1.1), and validation refuses
/// negative ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// Time from the container's start to the first probe, in seconds; default 0.
    pub initial_delay_seconds: i32,
    /// Longest time of one try, in seconds; default 1.
    pub timeout_seconds: i32,
    /// Time between two probes, in seconds; default 10.
    pub period_seconds: i32,
    /// Initial delay in milliseconds, 0 or at least 10. It replaces `initialDelaySeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_milliseconds: Option<i32>,
    /// Timeout in milliseconds, at least 10. It replaces `timeoutSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_milliseconds: Option<i32>,
    /// Period in milliseconds, at least 10. It replaces `periodSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_milliseconds: Option<i32>,
    /// Number of successes in a row that make the probe succeed; default 1.
    pub success_threshold: i32,
    /// Number of failures in a row that make the probe fail; default 3.
    pub failure_threshold: i32,
    /// Grace period in seconds, for liveness and startup probes only. It replaces the pod's grace period when this
    /// probe kills the container (kubelet-probes 8.5).
    pub termination_grace_period_seconds: Option<i64>,
    /// Handler that runs a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// Handler that sends an HTTP GET to a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Handler that opens a TCP connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Handler that asks a gRPC server for its health (`grpc.health.v1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcAction>,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            initial_delay_seconds: 0,
            timeout_seconds: 1,
            period_seconds: 10,
            initial_delay_milliseconds: None,
            timeout_milliseconds: None,
            period_milliseconds: None,
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace_period_seconds: None,
            exec: None,
            http_get: None,
            tcp_socket: None,
            grpc: None,
        }
    }
}

/// The handler of a probe: what one try does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handler<'a> {
    /// Runs a command in the container.
    Exec(&'a ExecAction),
    /// Sends an HTTP GET to a server.
    HttpGet(&'a HttpGetAction),
    /// Opens a TCP connection.
    TcpSocket(&'a TcpSocketAction),
    /// Asks a gRPC server for its health (`grpc.health.v1`).
    Grpc(&'a GrpcAction),
}

impl Probe {
    /// Returns the handler of the probe: the first that is set in the order exec, httpGet, tcpSocket, grpc.
    /// Validation refuses a probe without a handler.
    pub fn handler(&self) -> Option<Handler<'_>> {
        let exec = self.exec.as_ref().map(Handler::Exec);
        exec.or(self.http_get.as_ref().map(Handler::HttpGet))
            .or(self.tcp_socket.as_ref().map(Handler::TcpSocket))
            .or(self.grpc.as_ref().map(Handler::Grpc))
    }

    /// Returns the time between two probes.
    pub fn period(&self) -> Duration {
        time(self.period_milliseconds, self.period_seconds)
    }

    /// Returns the longest time of one try.
    pub fn timeout(&self) -> Duration {
        time(self.timeout_milliseconds, self.timeout_seconds)
    }

    /// Returns the time from the container's start to its first probe.
    pub fn initial_delay(&self) -> Duration {
        time(self.initial_delay_milliseconds, self.initial_delay_seconds)
    }
}

/// Returns the duration in milliseconds if it is given, else the one in seconds.
fn time(milliseconds: Option<i32>, seconds: i32) -> Duration {
    match milliseconds {
        Some(milliseconds) => Duration::from_millis(milliseconds.max(0) as u64),
        None => Duration::from_secs(seconds.max(0) as u64),
    }
}
