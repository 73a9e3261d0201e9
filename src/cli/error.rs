//! The errors of verbs and their exit codes: 1 if the work could not be done, 2 if the command line is wrong, and two of
//! `run` after which another start would fail in the same way.

use std::fmt;
use std::io;
use std::process::ExitCode;

use super::client::ClientError;
use super::names::NameError;
use super::terminal::say;

/// The reason why a verb failed.
#[derive(Debug)]
pub enum CliError {
    /// The command line is wrong (exit code 2).
    Usage(String),
    /// The work failed (exit code 1).
    Failed(String),
    /// The probe could not run (exit code 2, because 1 means that the probe has failed). The text is empty if
    /// the verb has already printed the cause.
    CannotRun(String),
    /// The configuration cannot be used (exit code 78, EX_CONFIG of sysexits.h).
    Configuration(String),
    /// Another daemon runs with this root (exit code 69, EX_UNAVAILABLE of sysexits.h).
    RunsAlready(String),
    /// The work failed, and the verb has already printed the cause (exit code 1).
    Reported,
    /// The reader of the output has closed the pipe (`| head`). A closed pipe is no failure and has no message.
    BrokenPipe,
}

impl CliError {
    /// Converts a failure into [`CliError::CannotRun`], for a verb in which exit code 1 has another meaning.
    pub fn cannot_run(self) -> Self {
        match self {
            Self::Failed(text) => Self::CannotRun(text),
            Self::Reported => Self::CannotRun(String::new()),
            other => other,
        }
    }

    /// Prints the message on stderr and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Reported => ExitCode::from(1),
            Self::CannotRun(text) => {
                if !text.is_empty() {
                    say(text);
                }
                ExitCode::from(2)
            }
            Self::Failed(text) => said(text, 1),
            Self::Configuration(text) => said(text, 78),
            Self::RunsAlready(text) => said(text, 69),
            Self::Usage(_) => {
                say(&format!("podprobe: {self}"));
                ExitCode::from(2)
            }
        }
    }
}

fn said(text: &str, code: u8) -> ExitCode {
    say(text);
    ExitCode::from(code)
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Failed(text)
            | Self::Configuration(text)
            | Self::RunsAlready(text)
            | Self::CannotRun(text) => f.write_str(text),
            Self::Reported | Self::BrokenPipe => Ok(()),
        }
    }
}

impl std::error::Error for CliError {}

impl From<io::Error> for CliError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Failed(format!("cannot write the output: {e}")),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(e: ClientError) -> Self {
        Self::Failed(e.to_string())
    }
}

impl From<NameError> for CliError {
    fn from(e: NameError) -> Self {
        Self::Failed(e.to_string())
    }
}
