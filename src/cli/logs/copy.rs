//! Copies logs to the output. Logs that are not followed are copied one after another. Logs that are followed take
//! turns.
//!
//! Invariants: lines are never mixed. While logs are followed, each log gets at most [`STEPS`] reads in its turn.
//! So a container that writes much does not delay the lines of another container.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::choose::Target;
use crate::base::paths::Layout;
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::engine::runtime::logs::{LogError, LogOptions, LogReader, Progress};
use crate::engine::shims::is_log_written;
use crate::face::views::Snapshot;

/// The time between two looks at followed logs.
const POLL: Duration = Duration::from_millis(100);
/// The number of looks at the logs between two checks whether the containers are still running.
const ASK_EVERY: u32 = 5;
/// The largest number of reads of one log in one turn.
const STEPS: u32 = 16;

/// The source that tells whether a container is still running.
pub enum Witness {
    /// The daemon.
    Daemon(Box<Client>),
    /// The records of the shims.
    Shims(Layout),
}

impl Witness {
    /// Tells for each target whether its container is running.
    fn which_run(&mut self, targets: &[&Target]) -> Result<Vec<bool>, CliError> {
        Ok(match self {
            Self::Daemon(client) => {
                let snapshot = client.snapshot()?;
                let runs = |t: &&Target| runs(&snapshot, t);
                targets.iter().map(runs).collect()
            }
            Self::Shims(layout) => {
                let runs = |t: &&Target| is_log_written(layout, &t.file);
                targets.iter().map(runs).collect()
            }
        })
    }
}

fn runs(snapshot: &Snapshot, target: &Target) -> bool {
    let pod = snapshot.pods.iter().find(|p| p.uid() == target.uid);
    let status = pod.and_then(|p| p.status.container(&target.container));
    status.is_some_and(|s| s.state.running.is_some() && s.restart_count == target.attempt)
}

/// The options for printing logs.
pub struct Form<'a> {
    /// The part of each log to show.
    pub options: &'a LogOptions,
    /// True if each line begins with pod and container.
    pub prefix: bool,
}

/// A log that is being read.
struct Log<'a> {
    target: &'a Target,
    reader: LogReader,
    prefix: Vec<u8>,
    at_line_start: bool,
}

impl<'a> Log<'a> {
    fn open(target: &'a Target, form: &Form<'_>) -> Result<Self, CliError> {
        let reader = LogReader::open(&target.file, form.options);
        let Target { pod, container, .. } = target;
        let prefix = form.prefix.then(|| format!("[pod/{pod}/{container}] "));
        Ok(Self {
            reader: reader.map_err(|e| cannot_read(&target.file, &e))?,
            target,
            prefix: prefix.unwrap_or_default().into_bytes(),
            at_line_start: true,
        })
    }

    /// Copies the next part of the log. Returns the reader's [`Progress`]: whether there may be more to read now.
    fn step(&mut self, out: &mut dyn Write) -> Result<Progress, CliError> {
        let mut out = Prefixed {
            out,
            prefix: &self.prefix,
            at_line_start: &mut self.at_line_start,
        };
        self.reader.step(&mut out).map_err(|e| match e {
            LogError::Read(e) => cannot_read(&self.target.file, &e),
            LogError::Write(e) => e.into(),
        })
    }

    /// Copies at most `STEPS` parts of the log. Returns the reader's [`Progress`]: whether there may be more to
    /// read now.
    fn turn(&mut self, out: &mut dyn Write) -> Result<Progress, CliError> {
        for _ in 0..STEPS {
            match self.step(out)? {
                Progress::More => {}
                end => return Ok(end),
            }
        }
        Ok(Progress::More)
    }

    /// Copies the part of the log that has not been copied yet. The last line is included even if this line is
    /// incomplete.
    fn finish(mut self, out: &mut dyn Write) -> Result<(), CliError> {
        while self.step(out)? == Progress::More {}
        let mut out = Prefixed {
            out,
            prefix: &self.prefix,
            at_line_start: &mut self.at_line_start,
        };
        Ok(self.reader.finish(&mut out)?)
    }
}

fn cannot_read(file: &Path, e: &io::Error) -> CliError {
    CliError::Failed(format!("cannot read the log {}: {e}", file.display()))
}

/// A writer that begins each line with a prefix.
struct Prefixed<'a> {
    out: &'a mut dyn Write,
    prefix: &'a [u8],
    at_line_start: &'a mut bool,
}

impl Write for Prefixed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.prefix.is_empty() {
            return self.out.write(bytes);
        }
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            if std::mem::replace(self.at_line_start, line.ends_with(b"\n")) {
                self.out.write_all(self.prefix)?;
            }
            self.out.write_all(line)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Copies the present content of the logs, one log after the other.
pub fn copy(targets: &[Target], form: &Form<'_>, out: &mut dyn Write) -> Result<(), CliError> {
    for target in targets {
        Log::open(target, form)?.finish(out)?;
    }
    Ok(out.flush()?)
}

/// Copies logs while they grow, as kubectl does. Ends when each container has ended, or when the daemon has ended.
pub fn follow(
    targets: &[Target],
    form: &Form<'_>,
    witness: &mut Witness,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let open = targets.iter().map(|t| Log::open(t, form));
    let mut logs = open.collect::<Result<Vec<_>, _>>()?;
    for look in 0_u32.. {
        // This check comes before the last read of each log. A container that has ended at the check has written
        // everything before that read.
        let mut running = vec![true; logs.len()];
        if look % ASK_EVERY == 0 {
            running = witness.which_run(&logs.iter().map(|l| l.target).collect::<Vec<_>>())?;
        }
        let mut is_busy = false;
        let mut left = Vec::with_capacity(logs.len());
        for (mut log, runs) in logs.into_iter().zip(running) {
            let progress = log.turn(out)?;
            is_busy |= progress == Progress::More;
            match runs && progress != Progress::Full {
                true => left.push(log),
                false => log.finish(out)?,
            }
        }
        out.flush()?;
        logs = left;
        if logs.is_empty() {
            break;
        }
        if !is_busy {
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(dir: &Path, container: &str, lines: usize) -> Target {
        let target = Target::new(dir, ("web", "u"), container, 0);
        fs::create_dir_all(target.file.parent().unwrap()).unwrap();
        let line = |i| format!("2026-01-01T00:00:00Z stdout F {container}{i}\n");
        fs::write(&target.file, (0..lines).map(line).collect::<String>()).unwrap();
        target
    }

    #[test]
    fn logs_come_one_after_the_other_each_line_with_its_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let targets = [write(dir.path(), "b", 2), write(dir.path(), "a", 1)];
        let (options, prefix) = (LogOptions::default(), true);
        let form = Form {
            options: &options,
            prefix,
        };
        let mut out = Vec::new();
        copy(&targets, &form, &mut out).unwrap();
        let expected = "[pod/web/b] b0\n[pod/web/b] b1\n[pod/web/a] a0\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// A container with 3 MB of logs does not delay the line of another container, and no line is torn.
    #[test]
    fn followed_logs_take_turns() {
        let dir = tempfile::tempdir().unwrap();
        let targets = [
            write(dir.path(), "much", 90_000),
            write(dir.path(), "little", 1),
        ];
        let (options, prefix) = (LogOptions::default(), false);
        let form = Form {
            options: &options,
            prefix,
        };
        let mut out = Vec::new();
        let open = targets.iter().map(|t| Log::open(t, &form).unwrap());
        for mut log in open {
            log.turn(&mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() < 60_000, "{} lines", lines.len());
        assert_eq!(lines.last(), Some(&"little0"));
        assert!(
            lines[..lines.len() - 1]
                .iter()
                .all(|l| l.starts_with("much"))
        );
    }

    /// Without a daemon, following a log ends when no shim writes the log. The log of this test has no shim at
    /// all.
    #[test]
    fn following_without_a_daemon_ends_with_the_shim() {
        let dir = tempfile::tempdir().unwrap();
        let targets = [write(dir.path(), "a", 2)];
        let (options, prefix) = (LogOptions::default(), false);
        let form = Form {
            options: &options,
            prefix,
        };
        let mut witness = Witness::Shims(Layout::new(dir.path()));
        let mut out = Vec::new();
        follow(&targets, &form, &mut witness, &mut out).unwrap();
        assert_eq!(out, b"a0\na1\n");
    }
}
