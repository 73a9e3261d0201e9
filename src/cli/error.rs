//! How a client verb fails, and which exit code tells of it: 1 for what could not be done, 2 for a wrong command line.

use std::fmt;
use std::io;
use std::process::ExitCode;

use super::client::ClientError;
use super::names::NameError;

/// Why a verb did not do its work.
#[derive(Debug)]
pub enum CliError {
    /// The command line is wrong (exit code 2).
    Usage(String),
    /// It could not be done (exit code 1).
    Failed(String),
    /// A probe that was asked for could not be run (exit code 2: 1 says that it has failed). Empty when all has been said.
    CannotRun(String),
    /// It could not be done and everything has been said (exit code 1).
    Reported,
    /// Whoever read the output has gone (`| head`): silent, and no failure.
    BrokenPipe,
}

impl CliError {
    /// The same failure of a verb whose exit code 1 means something else.
    pub fn cannot_run(self) -> Self {
        match self {
            Self::Failed(text) => Self::CannotRun(text),
            Self::Reported => Self::CannotRun(String::new()),
            other => other,
        }
    }

    /// Prints what is to be said on stderr and gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::BrokenPipe => ExitCode::SUCCESS,
            Self::Reported => ExitCode::from(1),
            Self::CannotRun(text) => {
                if !text.is_empty() {
                    eprintln!("{text}");
                }
                ExitCode::from(2)
            }
            Self::Failed(_) => {
                eprintln!("{self}");
                ExitCode::from(1)
            }
            Self::Usage(_) => {
                eprintln!("podprobe: {self}");
                ExitCode::from(2)
            }
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) | Self::CannotRun(text) => f.write_str(text),
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
