//! Runs the plugins of one network one after the other (cni-plugins 5.1).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::conf::{NetworkList, Plugin, Version};
use super::error::{Cause, CniError, Command, PluginError, ResultError};
use super::exec::Run;
use super::lock::{SandboxLock, unlocked_input};
use super::request::{self, Attachment};
use super::{CniSettings, Limits, Slow, result};
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;

/// A network, and everything that is needed to run the network's plugins.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
    pub(super) settings: &'a CniSettings,
    pub(super) limits: Limits,
    pub(super) cancel: &'a Cancel,
    pub(super) list: &'a NetworkList,
    pub(super) file: &'a Path,
    pub(super) version: Version,
    /// The lock that the daemon shares with the plugins of a sandbox.
    pub(super) lock: Option<&'a SandboxLock>,
}

impl Chain<'_> {
    /// Returns the paths of the programs of all plugins.
    ///
    /// # Errors
    /// Returns [`CniError`] for the first program that is missing.
    pub(super) fn programs(&self, command: Command) -> Result<Vec<PathBuf>, CniError> {
        let plugins = self.list.plugins.iter();
        plugins.map(|p| self.program(p, command)).collect()
    }

    /// Runs ADD of each plugin to connect the sandbox. Returns the result of the last plugin.
    pub(super) fn add(&self, attachment: &Attachment) -> Result<Value, CniError> {
        let until = Moment::now() + self.limits.chain;
        let mut previous = None;
        for plugin in &self.list.plugins {
            let input = self.input(plugin, previous.as_ref(), attachment);
            let answer = self.run(plugin, Command::Add, attachment, input, until)?;
            let parsed = result::parse(&answer, self.version);
            previous = Some(parsed.map_err(|e| self.failed(plugin, Command::Add, e))?);
        }
        Ok(previous.unwrap_or_default())
    }

    /// Releases the sandbox. Runs the plugins in reverse order. Each plugin gets the result of ADD, if the
    /// specification's version passes a result to DEL.
    pub(super) fn del(
        &self,
        attachment: &Attachment,
        added: Option<&Value>,
    ) -> Result<(), CniError> {
        let until = Moment::now() + self.limits.chain;
        let added = added.filter(|_| self.version >= Version::CHECK);
        for plugin in self.list.plugins.iter().rev() {
            let input = self.input(plugin, added, attachment);
            match self.run(plugin, Command::Del, attachment, input, until) {
                Err(CniError::Plugin(e)) if nothing_left(&e.cause, attachment) => {
                    log::warn!(
                        "plugin {} has nothing to release for sandbox {}: {}",
                        plugin.kind,
                        attachment.container_id,
                        e.cause
                    );
                }
                done => _ = done?,
            }
        }
        Ok(())
    }

    /// Checks with the plugins that the sandbox is still connected as ADD left it.
    pub(super) fn check(&self, attachment: &Attachment, added: &Value) -> Result<(), CniError> {
        let until = Moment::now() + self.limits.chain;
        for plugin in &self.list.plugins {
            let input = self.input(plugin, Some(added), attachment);
            self.run(plugin, Command::Check, attachment, input, until)?;
        }
        Ok(())
    }

    /// Asks the plugins whether ADD would work now.
    pub(super) fn status(&self) -> Result<(), CniError> {
        for plugin in &self.list.plugins {
            let input = request::status_input(plugin, &self.list.name, self.version);
            let until = Moment::now() + self.limits.status;
            self.run(
                plugin,
                Command::Status,
                &Attachment::default(),
                input,
                until,
            )?;
        }
        Ok(())
    }

    /// Makes the plugins release everything that belongs to none of the sandboxes in `valid`. Returns the
    /// errors. After a failure the next plugin still runs.
    pub(super) fn gc(&self, valid: &[&str]) -> Vec<CniError> {
        let until = Moment::now() + self.limits.chain;
        let run = |plugin: &Plugin| {
            let input = request::gc_input(plugin, &self.list.name, self.version, valid);
            let done = self.run(plugin, Command::Gc, &Attachment::default(), input, until);
            done.err()
        };
        self.list.plugins.iter().filter_map(run).collect()
    }

    /// Returns the versions of the specification that a plugin supports.
    pub(super) fn speaks(&self, plugin: &Plugin) -> Result<Vec<String>, CniError> {
        let until = Moment::now() + self.limits.status;
        let (command, none) = (Command::Version, Attachment::default());
        let answer = match self.run(plugin, command, &none, request::version_input(), until) {
            // Plugins that support only version 0.1.0 do not know the command VERSION.
            Err(CniError::Plugin(e)) if e.cause.says("unknown CNI_COMMAND: VERSION") => {
                return Ok(vec!["0.1.0".into()]);
            }
            answer => answer?,
        };
        result::supported(&answer).ok_or_else(|| {
            let cause = Cause::BadResult {
                why: ResultError::NoVersions,
                stdout: result::head(&answer),
            };
            self.failed(plugin, command, cause)
        })
    }

    fn input(&self, plugin: &Plugin, previous: Option<&Value>, attachment: &Attachment) -> Vec<u8> {
        request::input(plugin, &self.list.name, self.version, previous, attachment)
    }

    /// Runs a plugin and returns its standard output.
    fn run(
        &self,
        plugin: &Plugin,
        command: Command,
        attachment: &Attachment,
        input: Vec<u8>,
        until: Moment,
    ) -> Result<Vec<u8>, CniError> {
        let program = self.program(plugin, command)?;
        let failed = |cause| self.failed(plugin, command, cause);
        let input = self
            .file_of(&input)
            .map_err(|e| failed(Cause::Run(program.clone(), e)))?;
        let dirs = &self.settings.bin_dirs;
        let path = std::env::var_os("PATH");
        let limit = self.limit(command).min(until.since(Moment::now()));
        let say = || {
            log::warn!(
                "plugin {} of network {:?} has not answered {} for sandbox {:?} after {} s; it is killed after {} s",
                plugin.kind,
                self.list.name,
                command.as_str(),
                attachment.container_id,
                self.limits.slow.as_secs(),
                limit.as_secs()
            );
        };
        let run = Run {
            program: &program,
            environment: request::environment(command, attachment, dirs, path),
            input,
            limit,
            slow: Slow {
                after: self.limits.slow,
                say: &say,
            },
            cancel: self.cancel,
        };
        run.output().map_err(failed)
    }

    fn limit(&self, command: Command) -> Duration {
        match command {
            Command::Status | Command::Version => self.limits.status,
            _ => self.limits.plugin,
        }
    }

    fn file_of(&self, input: &[u8]) -> io::Result<File> {
        match self.lock {
            Some(lock) => lock.input(input),
            None => unlocked_input(input),
        }
    }

    fn program(&self, plugin: &Plugin, command: Command) -> Result<PathBuf, CniError> {
        let dirs = &self.settings.bin_dirs;
        let mut programs = dirs.iter().map(|dir| dir.join(&plugin.kind));
        let found = programs.find(|program| program.is_file());
        found.ok_or_else(|| self.failed(plugin, command, Cause::Missing(dirs.clone())))
    }

    fn failed(&self, plugin: &Plugin, command: Command, cause: Cause) -> CniError {
        match cause {
            Cause::Stopped => CniError::Stopped,
            cause => CniError::Plugin(Box::new(PluginError {
                kind: plugin.kind.clone(),
                command,
                network: self.list.name.clone(),
                file: self.file.to_owned(),
                cause,
            })),
        }
    }
}

/// Tells whether a failed DEL means that there is nothing to release (cni-plugins 5.3). Plugins of older versions
/// report only in the text of the error that the network namespace is gone.
fn nothing_left(cause: &Cause, attachment: &Attachment) -> bool {
    // A plugin that cannot find the program iptables has released nothing.
    let absent = cause.says("not found") && !cause.says("executable file not found");
    let gone = attachment.netns.as_os_str().is_empty();
    let unknown = matches!(cause, Cause::Reported { code: 3, .. });
    unknown || absent || gone && cause.says("no such file or directory")
}
