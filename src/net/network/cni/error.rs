//! What went wrong with a network of CNI, in texts that name the plugin, the network and the file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::INTERFACE;
use crate::api::field::FieldError;
use crate::base::clock::go_duration;

/// A command for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Connect a sandbox.
    Add,
    /// Release it.
    Del,
    /// Look whether it is connected as it should be.
    Check,
    /// Say whether ADD would work.
    Status,
    /// Release what belongs to no sandbox.
    Gc,
    /// Name the versions it speaks.
    Version,
}

impl Command {
    /// The value of `CNI_COMMAND`.
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

    /// The word in errors, as libcni has it.
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

/// Why there is no network, or why it cannot be released.
#[derive(Debug)]
pub enum CniError {
    /// There is no configuration in this directory.
    NotInitialized(PathBuf),
    /// The configuration cannot be used.
    Conf(ConfError),
    /// A plugin failed.
    Plugin(Box<PluginError>),
    /// The plugins of a network have no version in common with its configuration.
    Versions {
        /// The name of the network.
        network: String,
        /// The file of the network.
        file: PathBuf,
        /// The versions that the configuration is written for, and the versions that each plugin speaks.
        detail: NoCommonVersion,
    },
    /// Something of the sandbox or of the cache cannot be read, written or used; the text says what.
    Io(String, io::Error),
    /// The daemon ends.
    Stopped,
    /// Several of them.
    Several(Vec<CniError>),
}

/// The versions that a configuration is written for, and the plugins that speak none of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the configuration is written for CNI {}, but {}",
    .written.join(", "),
    what_they_speak(.lacking)
)]
pub struct NoCommonVersion {
    /// The versions that the configuration is written for, oldest first.
    pub written: Vec<&'static str>,
    /// The plugins that speak none of these versions. Empty if each plugin speaks some, but none that all speak.
    pub lacking: Vec<Speaker>,
}

/// A plugin, and the versions that it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The plugin's `type`.
    pub kind: String,
    /// The versions, in the plugin's own words and order.
    pub speaks: Vec<String>,
}

/// A plugin that failed.
#[derive(Debug)]
pub struct PluginError {
    /// The plugin's `type`.
    pub kind: String,
    /// The command that the plugin was run for.
    pub command: Command,
    /// The name of the network.
    pub network: String,
    /// The file of the network.
    pub file: PathBuf,
    /// The cause of the failure.
    pub cause: Cause,
}

/// The cause of a plugin's failure.
#[derive(Debug)]
pub enum Cause {
    /// There is no such program in these directories.
    Missing(Vec<PathBuf>),
    /// The program cannot be started or waited for.
    Run(PathBuf, io::Error),
    /// The plugin reported an error in JSON.
    Reported {
        /// The error's code; 0 when the plugin gave none.
        code: u64,
        /// The error's short message.
        msg: String,
        /// The error's long message.
        details: String,
        /// The end of what it wrote on standard error.
        stderr: String,
    },
    /// The plugin failed without an error in JSON.
    Failed {
        /// `exit status 3`, `signal 9`.
        ended: String,
        /// The beginning of what it wrote on standard output.
        stdout: String,
        /// The end of what it wrote on standard error.
        stderr: String,
    },
    /// The plugin wrote something that is not a result.
    BadResult {
        /// Why the output is no result.
        why: ResultError,
        /// The beginning of what it wrote on standard output.
        stdout: String,
    },
    /// The plugin wrote more than this many bytes, and was killed.
    TooMuch(usize),
    /// The plugin was not done after this time, and was killed.
    TimedOut(Duration),
    /// The daemon ends: the plugin was killed, or not even started.
    Stopped,
}

/// A reason for which the output of a plugin is no result, or none that a pod can be given.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The plugin wrote nothing.
    #[error("it succeeded without a result")]
    Nothing,
    /// The output is no JSON.
    #[error("its result is not valid JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// The output is JSON, but no object.
    #[error("its result is not a JSON object")]
    NoObject,
    /// The result is of a version that the specification does not have.
    #[error("its result has a cniVersion that is not known")]
    UnknownVersion,
    /// The result has the form of another version than the request.
    #[error("its result is one of CNI {written}, but {asked} was asked for")]
    OtherVersion {
        /// The version of the result.
        written: &'static str,
        /// The version of the request.
        asked: &'static str,
    },
    /// The answer to VERSION names no versions.
    #[error("its answer has no list of versions")]
    NoVersions,
    /// The result that is looked through for addresses is no object.
    #[error("it is no object")]
    AddressesOfNoObject,
    /// The result has no address for the pod's interface.
    #[error("the network gave no address for {INTERFACE}")]
    NoAddress,
    /// An address, by its place in the list, belongs to an interface that the result does not have.
    #[error("ips[{0}].interface is not in the list of interfaces")]
    NoInterface(usize),
    /// An address is not written with its prefix length.
    #[error("{0} is not an address with its prefix length, such as \"10.1.0.5/16\"")]
    Address(Value),
}

/// An error in a file of the configuration.
#[derive(Debug)]
pub struct ConfError {
    /// The file, or the directory.
    pub file: PathBuf,
    /// The problem with the file.
    pub problem: ConfProblem,
}

/// The problem with a file of the configuration.
#[derive(Debug)]
pub enum ConfProblem {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The path leads to no regular file.
    NoFile,
    /// The file has more than this many bytes.
    TooLong(u64),
    /// The file has no content.
    Empty,
    /// The content is no JSON.
    Syntax(serde_json::Error),
    /// The content is JSON, but this kind of value instead of an object.
    NoObject(&'static str),
    /// Fields are missing or wrong.
    Fields(Vec<FieldError>),
    /// There is neither a list of plugins in the file nor a file of a plugin in this directory.
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
            // The words of the kubelet's container runtimes, which people search for.
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
    /// Tells whether the messages that the plugin reported have these words.
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
