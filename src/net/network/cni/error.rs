//! Errors of CNI networks. Their texts name the plugin, the network and the file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::INTERFACE;
use crate::api::field::FieldError;
use crate::base::clock::go_duration;

/// A CNI command, for which podprobe runs a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect a sandbox to the network.
    Add,
    /// Release the connection of a sandbox.
    Del,
    /// Check that a sandbox is connected as ADD left it.
    Check,
    /// Report whether ADD would work.
    Status,
    /// Release everything that belongs to no existing sandbox.
    Gc,
    /// List the versions of the specification that the plugin supports.
    Version,
}

impl Command {
    /// Returns the value of the environment variable `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// Returns libcni's word for the command in error texts.
    fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Del => "delete",
            Self::Check => "check",
            Self::Status => "status",
            Self::Gc => "gc",
            Self::Version => "version",
        }
    }
}

/// An error of a CNI network: pods get no network, or a network cannot be released.
#[derive(Debug)]
pub enum CniError {
    /// This directory has no network configuration.
    NotInitialized(PathBuf),
    /// The configuration cannot be used.
    Conf(ConfError),
    /// A plugin failed.
    Plugin(Box<PluginError>),
    /// The configuration of a network and its plugins have no version in common.
    Versions {
        /// The name of the network.
        network: String,
        /// The file that the network was read from.
        file: PathBuf,
        /// The versions of the configuration, and the versions that each plugin supports.
        detail: NoCommonVersion,
    },
    /// A file, the cache, or the network namespace of a sandbox cannot be read, written or used. The text says
    /// which operation failed.
    Io(String, io::Error),
    /// The daemon is ending.
    Stopped,
    /// Several errors at once.
    Several(Vec<CniError>),
}

/// The versions of a configuration, and the plugins that support none of these versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the configuration is written for CNI {}, but {}",
    .written.join(", "),
    what_they_speak(.lacking)
)]
pub struct NoCommonVersion {
    /// The versions of the configuration, oldest first.
    pub written: Vec<&'static str>,
    /// The plugins that support none of these versions. The list is empty if each plugin supports some of these
    /// versions, but no version is common to all plugins.
    pub lacking: Vec<Speaker>,
}

/// A plugin, and the versions that it supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// Name of the plugin's program (`type` in the configuration).
    pub kind: String,
    /// The versions, with the plugin's spelling and in the plugin's order.
    pub speaks: Vec<String>,
}

/// A plugin that failed.
#[derive(Debug)]
pub struct PluginError {
    /// Name of the plugin's program (`type` in the configuration).
    pub kind: String,
    /// The command for which the plugin was run.
    pub command: Command,
    /// The name of the network.
    pub network: String,
    /// The file that the network was read from.
    pub file: PathBuf,
    /// The cause of the failure.
    pub cause: Cause,
}

/// The cause of a plugin's failure.
#[derive(Debug)]
pub enum Cause {
    /// The plugin's program is in none of these directories.
    Missing(Vec<PathBuf>),
    /// The program cannot be started, or waiting for its end fails.
    Run(PathBuf, io::Error),
    /// The plugin reported an error in JSON.
    Reported {
        /// The error's code; 0 if the plugin gave none.
        code: u64,
        /// The error's short message.
        msg: String,
        /// The error's long message.
        details: String,
        /// The end of the plugin's standard error.
        stderr: String,
    },
    /// The plugin failed without an error in JSON.
    Failed {
        /// A text that says how the program ended, such as `exit status 3` or `ended by signal 9`.
        ended: String,
        /// The beginning of the plugin's standard output.
        stdout: String,
        /// The end of the plugin's standard error.
        stderr: String,
    },
    /// The plugin wrote something that is not a result.
    BadResult {
        /// The reason why the output is no result.
        why: ResultError,
        /// The beginning of the plugin's standard output.
        stdout: String,
    },
    /// The plugin wrote more than this number of bytes, and was killed.
    TooMuch(usize),
    /// The plugin was still running after this time, and was killed.
    TimedOut(Duration),
    /// The daemon is ending. The plugin was killed, or was not started at all.
    Stopped,
}

/// A reason why the output of a plugin is no result, or why a pod cannot use the result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The plugin wrote nothing.
    #[error("it succeeded without a result")]
    Nothing,
    /// The output is not valid JSON.
    #[error("its result is not valid JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// The output is JSON, but not an object.
    #[error("its result is not a JSON object")]
    NoObject,
    /// The version of the result is not a version of the specification.
    #[error("its result has a cniVersion that is not known")]
    UnknownVersion,
    /// The result has the form of one version, but the request was for another version.
    #[error("its result is one of CNI {written}, but {asked} was asked for")]
    OtherVersion {
        /// The version of the result.
        written: &'static str,
        /// The version of the request.
        asked: &'static str,
    },
    /// The plugin's answer to VERSION has no list of versions.
    #[error("its answer has no list of versions")]
    NoVersions,
    /// The result is not an object, so podprobe cannot search it for addresses.
    #[error("it is no object")]
    AddressesOfNoObject,
    /// The result has no address for the pod's interface.
    #[error("the network gave no address for {INTERFACE}")]
    NoAddress,
    /// An address belongs to an interface that the result does not have. The number is the index of the
    /// address in the list `ips`.
    #[error("ips[{0}].interface is not in the list of interfaces")]
    NoInterface(usize),
    /// An address has no valid prefix length.
    #[error("{0} is not an address with its prefix length, such as \"10.1.0.5/16\"")]
    Address(Value),
}

/// An error in a file of the network configuration.
#[derive(Debug)]
pub struct ConfError {
    /// The path of the file, or of its directory.
    pub file: PathBuf,
    /// The problem with the file.
    pub problem: ConfProblem,
}

/// A problem with a file of the network configuration.
#[derive(Debug)]
pub enum ConfProblem {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The path is not a regular file.
    NoFile,
    /// The file has more than this number of bytes.
    TooLong(u64),
    /// The file has no content.
    Empty,
    /// The content is not valid JSON.
    Syntax(serde_json::Error),
    /// The content is JSON, but not an object. The string names the type of the value.
    NoObject(&'static str),
    /// Fields are missing or wrong.
    Fields(Vec<FieldError>),
    /// The file has no list of plugins, and this directory has no file of a plugin.
    NoPlugins(PathBuf),
}

impl From<FieldError> for ConfProblem {
    fn from(error: FieldError) -> Self {
        Self::Fields(vec![error])
    }
}

impl From<ConfError> for CniError {
    fn from(error: ConfError) -> Self {
        Self::Conf(error)
    }
}

impl From<CniError> for io::Error {
    fn from(error: CniError) -> Self {
        Self::other(error)
    }
}

impl std::error::Error for CniError {}
impl std::error::Error for ConfError {}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The text has the words of the kubelet's container runtimes, because people search for these words.
            Self::NotInitialized(dir) => write!(
                f,
                "cni plugin not initialized: no network config found in {}",
                dir.display()
            ),
            Self::Conf(error) => write!(f, "cni config load failed: {error}"),
            Self::Plugin(error) => error.fmt(f),
            Self::Versions {
                network,
                file,
                detail,
            } => write!(f, "{detail} (network {network:?}, {})", file.display()),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Stopped => f.write_str("the daemon ends"),
            Self::Several(errors) => list(f, errors),
        }
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, cause, .. } = self;
        write!(
            f,
            "plugin type={kind:?} failed ({}): {cause} (network {:?}, {})",
            self.command.word(),
            self.network,
            self.file.display()
        )
    }
}

impl Cause {
    /// Tells whether the error that the plugin reported contains these words.
    pub(super) fn says(&self, words: &str) -> bool {
        match self {
            Self::Reported { msg, details, .. } => msg.contains(words) || details.contains(words),
            _ => false,
        }
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.problem)
    }
}

impl fmt::Display for ConfProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "cannot read it: {error}"),
            Self::NoFile => f.write_str("it is not a regular file"),
            Self::TooLong(limit) => write!(f, "it has more than {limit} bytes"),
            Self::Empty => f.write_str("the file is empty"),
            Self::Syntax(error) => write!(f, "it is not valid JSON: {error}"),
            Self::NoObject(kind) => write!(f, "must be a JSON object, not {kind}"),
            Self::Fields(errors) => list(f, errors),
            Self::NoPlugins(dir) => write!(
                f,
                "plugins: Required value: there is no list of plugins, and no .conf file in {}",
                dir.display()
            ),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, errors: &[impl fmt::Display]) -> fmt::Result {
    for (i, error) in errors.iter().enumerate() {
        let between = if i == 0 { "" } else { "; " };
        write!(f, "{between}{error}")?;
    }
    Ok(())
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(dirs) => {
                let dirs: Vec<_> = dirs.iter().map(|d| d.display().to_string()).collect();
                write!(
                    f,
                    "there is no such program in {}: install the plugin there, or set cniBinDir",
                    dirs.join(", ")
                )
            }
            Self::Run(program, error) => write!(f, "cannot run {}: {error}", program.display()),
            Self::Reported {
                code,
                msg,
                details,
                stderr,
            } => {
                f.write_str(if msg.is_empty() { "no message" } else { msg })?;
                after(f, "; ", details)?;
                write!(f, " (code {code}{})", meaning(*code))?;
                after(f, "; stderr: ", stderr)
            }
            Self::Failed {
                ended,
                stdout,
                stderr,
            } => {
                write!(f, "{ended} without an error message")?;
                after(f, "; stdout: ", stdout)?;
                after(f, "; stderr: ", stderr)
            }
            Self::BadResult { why, stdout } => {
                write!(f, "{why}")?;
                after(f, "; stdout: ", stdout)
            }
            Self::TooMuch(limit) => {
                write!(f, "it wrote more than {limit} bytes and was killed")
            }
            Self::TimedOut(limit) => {
                write!(f, "not done after {}; it was killed", go_duration(*limit))
            }
            Self::Stopped => f.write_str("killed, because the daemon ends"),
        }
    }
}

fn what_they_speak(plugins: &[Speaker]) -> String {
    if plugins.is_empty() {
        return "its plugins have none of them in common".into();
    }
    let plugins = plugins.iter();
    let each = plugins.map(|p| format!("plugin type={:?} speaks {}", p.kind, p.speaks.join(", ")));
    each.collect::<Vec<_>>().join("; ")
}

fn after(f: &mut fmt::Formatter<'_>, before: &str, text: &str) -> fmt::Result {
    if text.is_empty() {
        Ok(())
    } else {
        write!(f, "{before}{text}")
    }
}

/// Returns the meaning of an error's code in the specification (cni-plugins 6.2).
fn meaning(code: u64) -> &'static str {
    match code {
        1 => ", incompatible CNI version",
        2 => ", unsupported field in the configuration",
        3 => ", unknown container",
        4 => ", invalid environment variables",
        5 => ", input or output failed",
        6 => ", cannot decode content",
        7 => ", invalid network configuration",
        11 => ", try again later",
        50 => ", the plugin is not available",
        51 => ", the plugin is not available and connected pods may be cut off",
        _ => "",
    }
}
