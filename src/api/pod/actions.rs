//! The actions of probes and hooks: run a command, ask a server, sleep.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// `sleep` of a hook: waits for some seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SleepAction {
    /// Seconds to sleep, from 0 to the grace period of the pod.
    pub seconds: i64,
}

/// `exec` of a probe or a hook: runs a command in the container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecAction {
    /// Command and its arguments. The command runs directly, without a shell.
    pub command: Vec<String>,
}

/// A port given as a number or as a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// Port number.
    Int(i32),
    /// Name of a port, or digits (kubelet-probes 3.3).
    String(String),
}

impl<'de> Deserialize<'de> for IntOrString {
    /// Reads a number or a text. The function is written by hand, because the error of a derived untagged enum does
    /// not say what was expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Port;
        impl Visitor<'_> for Port {
            type Value = IntOrString;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port number or the name of a port")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<IntOrString, E> {
                i32::try_from(number)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(Port)
    }
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => n.fmt(f),
            Self::String(s) => s.fmt(f),
        }
    }
}

/// `httpGet` of a probe or a hook: sends an HTTP GET.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpGetAction {
    /// Path of the URL, with its query; default `/`.
    pub path: String,
    /// Number of the port, or name of a port of the same container.
    pub port: IntOrString,
    /// Host to connect to; default the pod's IP.
    pub host: String,
    /// Scheme of the URL: `HTTP` (default) or `HTTPS`.
    pub scheme: String,
    /// Headers of the request, in order; repeats are allowed.
    pub http_headers: Vec<HttpHeader>,
}

/// A header of `httpGet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpHeader {
    /// Name of the header, of the form `[-A-Za-z0-9]+`.
    pub name: String,
    /// Value of the header, which is not validated.
    pub value: String,
}

/// `tcpSocket` of a probe or a hook: opens a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpSocketAction {
    /// Number of the port, or name of a port of the same container.
    pub port: IntOrString,
    /// Host to connect to; default the pod's IP.
    pub host: String,
}

/// `grpc` of a probe: asks a gRPC server for its health.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcAction {
    /// Port of the server, 1–65535.
    pub port: i32,
    /// Name of the gRPC service that the probe asks about; default the empty name.
    pub service: Option<String>,
}
