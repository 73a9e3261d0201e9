//! The outcome of one handler run: result, output, error, phase and duration.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper limit in bytes of the kept part of a body or of a command's output (kubelet-probes 3.2, 3.4).
pub const MAX_OUTPUT: usize = 10240;

/// The result of a handler (kubelet-probes 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandlerResult {
    /// The probe succeeded.
    Success,
    /// The probe succeeded with a warning. The result counts as Success, and writes an event.
    Warning,
    /// The probe failed.
    Failure,
    /// The probe has no result.
    Unknown,
}

impl fmt::Display for HandlerResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Warning => "warning",
            Self::Failure => "failure",
            Self::Unknown => "unknown",
        })
    }
}

/// The phase that a probe has reached. The serialized names are the texts that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The probe looks up port, host and namespace.
    Prepare,
    /// The probe opens the TCP connection.
    Connect,
    /// The probe does the TLS handshake.
    #[serde(rename = "TLS")]
    Tls,
    /// The probe sends the request.
    Send,
    /// The probe waits for the answer or reads it.
    Read,
    /// The runtime brings the command into the container.
    #[serde(rename = "exec start")]
    ExecStart,
    /// The command runs.
    Run,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::Connect => "connect",
            Self::Tls => "TLS",
            Self::Send => "send",
            Self::Read => "read",
            Self::ExecStart => "exec start",
            Self::Run => "run",
        })
    }
}

/// The outcome of one handler run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result of the handler.
    pub result: HandlerResult,
    /// The body, the command output or the failure text. A body or a command output has at most [`MAX_OUTPUT`] bytes.
    pub output: String,
    /// The error, if the probe itself did not work. A run with an error is tried again.
    pub error: Option<String>,
    /// True if the container had ended before the probe. A run against an ended container is not reported as unhealthy
    /// (lessons F1).
    pub container_gone: bool,
    /// The phase that the probe reached.
    pub phase: Phase,
    /// The time that the last try took.
    pub duration: Duration,
    /// The time that all tries took.
    pub all_tries: Duration,
}

impl Outcome {
    /// Makes an outcome without an error.
    pub fn new(result: HandlerResult, output: impl Into<String>, phase: Phase) -> Self {
        Self {
            result,
            output: output.into(),
            error: None,
            container_gone: false,
            phase,
            duration: Duration::ZERO,
            all_tries: Duration::ZERO,
        }
    }

    /// Makes the outcome of a run in which the probe itself did not work: the result Unknown with an error.
    pub fn error(error: impl Into<String>, phase: Phase) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::new(HandlerResult::Unknown, "", phase)
        }
    }

    /// Returns the beginning of the error, or of the output if there is no error. The text is one line of at most 300
    /// characters for the log, and may be empty.
    pub fn cause(&self) -> String {
        let text = self.error.as_deref().unwrap_or(&self.output).trim();
        text.chars()
            .take(300)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    }
}
