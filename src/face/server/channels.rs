//! The channels of a stream over a WebSocket: which number stands for which stream, and how the end of a command is
//! reported (`channel.k8s.io`).
//!
//! Invariants: pure. The first byte of a message is its channel.

use serde_json::{Value, json};
use thiserror::Error;

use crate::engine::runtime::TerminalSize;

/// A version of the channel protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `channel.k8s.io`, or no subprotocol named: an error is plain text, and a success has no message.
    V1,
    /// `v4.channel.k8s.io`: the end of the command is a Status in JSON, with the exit code.
    V4,
    /// `v5.channel.k8s.io`: like version 4, but the client can close a channel.
    V5,
}

/// The subprotocols by name, the newest first.
const PROTOCOLS: [(&str, Protocol); 3] = [
    ("v5.channel.k8s.io", Protocol::V5),
    ("v4.channel.k8s.io", Protocol::V4),
    ("channel.k8s.io", Protocol::V1),
];

/// The channel of the client's input.
pub const STDIN: u8 = 0;
/// The channel of the command's output.
pub const STDOUT: u8 = 1;
/// The channel of the command's error output.
pub const STDERR: u8 = 2;
/// The channel that reports how the stream has ended.
pub const ERROR: u8 = 3;
/// The channel of the size of the client's terminal.
pub const RESIZE: u8 = 4;
/// The channel on which the client names another channel that it closes.
pub const CLOSE: u8 = 255;

/// The server does not speak any of the client's subprotocols.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("none of the subprotocols {offered:?} is spoken here; {} are", PROTOCOLS.map(|(name, _)| name).join(", "))]
pub struct SubprotocolError {
    /// The client's subprotocols.
    offered: Vec<String>,
}

impl Protocol {
    /// Chooses the first of the client's subprotocols that the server speaks. Returns the protocol, and its name for
    /// the answer; None if the client has named no subprotocol.
    ///
    /// # Errors
    /// Returns [`SubprotocolError`] if the server speaks none of the subprotocols.
    pub fn choose(offered: &[String]) -> Result<(Self, Option<&'static str>), SubprotocolError> {
        if offered.is_empty() {
            return Ok((Self::V1, None));
        }
        let known = |name: &String| PROTOCOLS.iter().find(|(known, _)| name == known);
        match offered.iter().find_map(known) {
            Some((name, protocol)) => Ok((*protocol, Some(name))),
            None => Err(SubprotocolError {
                offered: offered.to_vec(),
            }),
        }
    }

    /// Returns the message for the channel [`ERROR`] that reports the end of the stream; None if the protocol sends no
    /// message for such an end.
    pub fn end(self, end: &StreamEnd) -> Option<Vec<u8>> {
        match (self, end) {
            (Self::V1, StreamEnd::Exited { code: 0, .. }) => None,
            (Self::V1, end) => Some(end.text().into_bytes()),
            (_, end) => Some(end.status().to_string().into_bytes()),
        }
    }
}

/// How a stream has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The command has ended by itself.
    Exited {
        /// Exit code of the command; 0 is a success.
        code: i32,
        /// Words of the command; empty for the container's own process.
        command: Vec<String>,
    },
    /// The stream could not go on. The text is the reason.
    Failed(String),
}

impl StreamEnd {
    /// Returns a text that reports how the stream has ended, in the words of containerd and the kubelet.
    fn text(&self) -> String {
        match self {
            Self::Exited { code, command } => format!(
                "command terminated with non-zero exit code: error executing command [{}], exit code {code}",
                command.join(" ")
            ),
            Self::Failed(why) => format!("Internal error occurred: {why}"),
        }
    }

    /// Returns a v1 Status that reports how the stream has ended.
    fn status(&self) -> Value {
        match self {
            Self::Exited { code: 0, .. } => json!({"metadata": {}, "status": "Success"}),
            Self::Exited { code, .. } => json!({
                "metadata": {},
                "status": "Failure",
                "message": self.text(),
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Failed(why) => json!({
                "metadata": {},
                "status": "Failure",
                "message": self.text(),
                "reason": "InternalError",
                "details": {"causes": [{"message": why}]},
                "code": 500,
            }),
        }
    }
}

/// The meaning of a client's message.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Bytes for the command's input.
    Input(&'a [u8]),
    /// The client has closed the input.
    InputEnds,
    /// The new size of the client's terminal.
    Size(TerminalSize),
    /// A valid message that has no effect.
    Nothing,
}

/// A message that breaks the protocol.
#[derive(Debug, Error)]
pub enum MessageError {
    /// The message is empty.
    #[error("a message has no channel")]
    NoChannel,
    /// A message on the channel `CLOSE` must name exactly one channel.
    #[error("a channel is closed with one byte: its number")]
    Close,
    /// The client has written to a channel on which only the server writes, or to a channel that does not exist.
    #[error("a client does not write to channel {0}")]
    Channel(u8),
    /// The size of the terminal is not valid JSON.
    #[error("the size of a terminal cannot be read: {0}")]
    Size(#[from] serde_json::Error),
    /// The width or the height of the terminal is missing, or out of range.
    #[error("{0} of a terminal must be 0 to 65535")]
    Side(&'static str),
}

/// Reads a message of a client.
///
/// # Errors
/// Returns [`MessageError`] if the message breaks the protocol. The connection ends in this case.
pub fn said(protocol: Protocol, message: &[u8]) -> Result<Said<'_>, MessageError> {
    match message {
        [] => Err(MessageError::NoChannel),
        [STDIN, data @ ..] => Ok(match data {
            [] => Said::Nothing,
            data => Said::Input(data),
        }),
        [RESIZE, size @ ..] => size_of(size).map(Said::Size),
        [CLOSE, channel @ ..] if protocol == Protocol::V5 => match channel {
            [STDIN] => Ok(Said::InputEnds),
            [_] => Ok(Said::Nothing),
            _ => Err(MessageError::Close),
        },
        [channel, ..] => Err(MessageError::Channel(*channel)),
    }
}

/// Reads the size of a terminal from JSON, for example `{"Width":80,"Height":24}`.
fn size_of(json: &[u8]) -> Result<TerminalSize, MessageError> {
    let value: Value = serde_json::from_slice(json)?;
    let side = |name| {
        let n = value[name].as_u64().and_then(|n| u16::try_from(n).ok());
        n.ok_or(MessageError::Side(name))
    };
    Ok(TerminalSize {
        width: side("Width")?,
        height: side("Height")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(names: &[&str]) -> Result<(Protocol, Option<&'static str>), SubprotocolError> {
        Protocol::choose(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_client_s_first_that_is_spoken_here_counts() {
        assert_eq!(offered(&[]), Ok((Protocol::V1, None)));
        let v5 = Some("v5.channel.k8s.io");
        assert_eq!(
            offered(&["v9.channel.k8s.io", "v5.channel.k8s.io", "channel.k8s.io"]),
            Ok((Protocol::V5, v5))
        );
        assert_eq!(
            offered(&["channel.k8s.io", "v5.channel.k8s.io"]).map(|(p, _)| p),
            Ok(Protocol::V1)
        );
        assert!(
            offered(&["base64.channel.k8s.io"])
                .unwrap_err()
                .to_string()
                .contains("v4.channel.k8s.io")
        );
    }

    #[test]
    fn an_end_has_the_form_of_its_version() {
        let exited = |code| StreamEnd::Exited {
            code,
            command: vec!["sh".into(), "-c".into()],
        };
        let text = |p: Protocol, end: &StreamEnd| {
            p.end(end).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(text(Protocol::V1, &exited(0)), None);
        assert_eq!(
            text(Protocol::V4, &exited(0)).unwrap(),
            r#"{"metadata":{},"status":"Success"}"#
        );
        let failed = "command terminated with non-zero exit code: error executing command [sh -c], exit code 3";
        assert_eq!(text(Protocol::V1, &exited(3)).unwrap(), failed);
        let status: Value = serde_json::from_str(&text(Protocol::V5, &exited(3)).unwrap()).unwrap();
        assert_eq!(status["message"], failed);
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(
            status["details"]["causes"],
            json!([{"reason": "ExitCode", "message": "3"}])
        );
        let lost = StreamEnd::Failed("no memory".into());
        let status: Value = serde_json::from_str(&text(Protocol::V4, &lost).unwrap()).unwrap();
        assert_eq!(status["code"], 500);
        assert_eq!(status["message"], "Internal error occurred: no memory");
    }

    #[test]
    fn messages_are_what_their_channel_says() {
        let v5 = |message: &'static [u8]| said(Protocol::V5, message).map_err(|e| e.to_string());
        assert_eq!(v5(b"\0abc"), Ok(Said::Input(b"abc")));
        assert_eq!(v5(b"\0"), Ok(Said::Nothing));
        assert_eq!(v5(b"\xff\0"), Ok(Said::InputEnds));
        assert_eq!(v5(b"\xff\x01"), Ok(Said::Nothing));
        assert!(v5(b"\xff").is_err() && v5(b"\xff\0\0").is_err());
        assert!(said(Protocol::V4, b"\xff\0").is_err(), "unknown before v5");
        let size = TerminalSize {
            width: 120,
            height: 40,
        };
        let json = b"\x04{\"Width\":120,\"Height\":40}";
        assert_eq!(v5(json), Ok(Said::Size(size)));
        for bad in [
            &b""[..],
            b"\x01x",
            b"\x03",
            b"\x04",
            b"\x04{}",
            b"\x04{\"Width\":-1,\"Height\":1}",
            b"\x04{\"Width\":65536,\"Height\":1}",
        ] {
            assert!(said(Protocol::V5, bad).is_err(), "{bad:?}");
        }
    }
}
