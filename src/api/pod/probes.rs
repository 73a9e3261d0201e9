//! The probes of a container: when each is tried, and by which handler.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actions::{ExecAction, GrpcAction, HttpGetAction, TcpSocketAction};

/// The three probes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ProbeType {
    /// The other two probes wait until it has succeeded once.
    Startup,
    /// Decides whether the container gets traffic.
    Readiness,
    /// Decides whether the container is restarted.
    Liveness,
}

impl ProbeType {
    /// All types of probes, in the order in which workers are added (kubelet-probes 4.2 A2).
    pub const ALL: [ProbeType; 3] = [
        ProbeType::Startup,
        ProbeType::Readiness,
        ProbeType::Liveness,
    ];

    /// `Startup`, `Readiness`, `Liveness`: the form of events and metrics.
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

/// A probe: when to probe and how. Numbers are after defaults (kubelet-probes 1.1); negative ones never pass validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// Seconds after the container's start; default 0.
    pub initial_delay_seconds: i32,
    /// Timeout in seconds; default 1.
    pub timeout_seconds: i32,
    /// Period in seconds; default 10.
    pub period_seconds: i32,
    /// Initial delay in milliseconds, 0 or at least 10; used instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_milliseconds: Option<i32>,
    /// Timeout in milliseconds, at least 10; counts instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_milliseconds: Option<i32>,
    /// Period in milliseconds, at least 10; counts instead of the seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_milliseconds: Option<i32>,
    /// Successes in a row; default 1.
    pub success_threshold: i32,
    /// Failures in a row; default 3.
    pub failure_threshold: i32,
    /// Grace period in seconds, for liveness and startup probes only: it replaces the pod's grace period when the probe
    /// kills (kubelet-probes 8.5).
    pub termination_grace_period_seconds: Option<i64>,
    /// Run a command in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// GET a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGetAction>,
    /// Open a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocketAction>,
    /// Call grpc.health.v1.
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

/// The one handler of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Handler<'a> {
    /// Run a command in the container.
    Exec(&'a ExecAction),
    /// GET a URL.
    HttpGet(&'a HttpGetAction),
    /// Open a connection.
    TcpSocket(&'a TcpSocketAction),
    /// Call grpc.health.v1.
    Grpc(&'a GrpcAction),
}

impl Probe {
    /// The handler; the first present in the order exec, httpGet, tcpSocket, grpc. None never passes validation.
    pub fn handler(&self) -> Option<Handler<'_>> {
        let exec = self.exec.as_ref().map(Handler::Exec);
        exec.or(self.http_get.as_ref().map(Handler::HttpGet))
            .or(self.tcp_socket.as_ref().map(Handler::TcpSocket))
            .or(self.grpc.as_ref().map(Handler::Grpc))
    }

    /// Time between two probes.
    pub fn period(&self) -> Duration {
        time(self.period_milliseconds, self.period_seconds)
    }

    /// Returns the longest time of one try.
    pub fn timeout(&self) -> Duration {
        time(self.timeout_milliseconds, self.timeout_seconds)
    }

    /// Time from the container's start to its first probe.
    pub fn initial_delay(&self) -> Duration {
        time(self.initial_delay_milliseconds, self.initial_delay_seconds)
    }
}

/// The milliseconds if they are given, else the seconds.
fn time(milliseconds: Option<i32>, seconds: i32) -> Duration {
    match milliseconds {
        Some(milliseconds) => Duration::from_millis(milliseconds.max(0) as u64),
        None => Duration::from_secs(seconds.max(0) as u64),
    }
}
