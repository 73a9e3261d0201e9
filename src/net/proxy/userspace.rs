//! The daemon's end of the userspace data path: it starts the role, finds it again, and sends it tables.
//!
//! Invariants: a role that runs is used, whoever has started it; where it runs another program than the daemon, a new process
//! takes its work over once. One that cannot be replaced goes on. Every wait has a limit. The role is a new program, never
//! a fork of the daemon, and no descriptor of the daemon is left open in it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::base::clock::{Moment, boot_id};
use crate::net::proxy::{Applied, DataPath, ProxyError, RoleError};
use crate::net::proxyd::dns::counters::Counters;
use crate::net::proxyd::home::{ADDRESSES, ORDERS, Orders, Record, SOCKET, TABLE, replace};
use crate::net::proxyd::message::{
    Answer, Configuration, LONGEST, Metrics, NotBound, Options, Request,
};
use crate::net::proxyd::program;
use crate::net::proxyd::proxy::{READY, TAKE_OVER};
use crate::net::services::names::Names;
use crate::net::services::table::ServiceTable;

/// The longest time that the role may take to answer, and to start.
const LIMIT: Duration = Duration::from_secs(5);
/// The time between two attempts to connect to a role that runs but does not listen yet.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest answer of the role, in bytes.
const LONGEST_ANSWER: u64 = LONGEST as u64;

/// The role as its clients see it.
pub struct ProxyRole {
    dir: PathBuf,
    program: PathBuf,
    orders: Orders,
    stream: Option<BufReader<UnixStream>>,
    /// The process of the role, if this process has started it.
    child: Option<Child>,
}

impl ProxyRole {
    /// The role of a directory; it moves to `cgroup` when it starts.
    pub fn new(dir: impl Into<PathBuf>, cgroup: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            program: "/proc/self/exe".into(),
            orders: Orders {
                cgroup: cgroup.into(),
            },
            stream: None,
            child: None,
        }
    }

    /// Takes the role from another binary than this process's own; for tests, whose own binary has none.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Sends a request to the role and returns its answer. Starts the role if none runs.
    ///
    /// # Errors
    /// Returns [`RoleError`] if the request is too long, or if the role cannot be started, does not answer in time,
    /// or refuses the request.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, RoleError> {
        let frame = frame(request)?;
        // The role may have been killed since the last request.
        let answer = self.exchange(&frame).or_else(|_| self.exchange(&frame));
        let answer = answer.map_err(|cause| RoleError::Unreachable {
            dir: self.dir.clone(),
            cause,
        })?;
        match answer.error {
            Some(error) => Err(RoleError::Refused(error)),
            None => Ok(answer),
        }
    }

    /// True if the role of this directory runs.
    pub fn runs(&self) -> bool {
        Record::running(&self.dir).is_some()
    }

    /// True if the role runs, or if it was killed since the node booted and has left what it had claimed.
    fn has_left(&self) -> bool {
        Record::read(&self.dir).is_some_and(|r| r.boot_id == boot_id())
    }

    /// The addresses that the last role has recorded, for a role that was killed.
    fn left_addresses(&self) -> Vec<IpAddr> {
        let recorded = std::fs::read(self.dir.join(ADDRESSES)).unwrap_or_default();
        serde_json::from_slice(&recorded).unwrap_or_default()
    }

    /// Removes the recorded table, so that the next role that starts serves nothing.
    fn forget_table(&self) {
        let _ = std::fs::remove_file(self.dir.join(TABLE));
    }

    /// Closes the connection to the role, so that the next request goes to whichever role runs then.
    fn hang_up(&mut self) {
        self.stream = None;
    }

    fn exchange(&mut self, frame: &[u8]) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(self.connect()?),
        };
        stream.get_mut().write_all(frame)?;
        let mut line = Vec::new();
        (&mut stream)
            .take(LONGEST_ANSWER)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = serde_json::from_slice(&line)?;
        self.stream = Some(stream);
        Ok(answer)
    }

    fn connect(&mut self) -> io::Result<UnixStream> {
        let limit = Moment::now() + LIMIT;
        loop {
            match UnixStream::connect(self.dir.join(SOCKET)) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(LIMIT))?;
                    stream.set_write_timeout(Some(LIMIT))?;
                    return Ok(stream);
                }
                Err(_) if Record::running(&self.dir).is_none() => self.start()?,
                Err(e) if Moment::now() >= limit => return Err(e),
                // It is starting, or makes its directory anew.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Replaces a role that runs another program than `program`: a new process takes over its work. Does nothing if no role
    /// runs, or if the role runs the same program.
    ///
    /// # Errors
    /// Returns [`RenewalError`] if the old process stays.
    pub fn bring_up_to_date(&mut self) -> Result<Renewal, RenewalError> {
        let Some(record) = Record::running(&self.dir) else {
            return Ok(Renewal::Needless);
        };
        let old = record.process.pid;
        let same = program::is_run_by(&self.program, old)
            .map_err(|cause| RenewalError::Program { old, cause })?;
        if same {
            return Ok(Renewal::Needless);
        }
        if !record.hands_over {
            return Err(RenewalError::TooOld {
                old,
                version: record.version,
            });
        }
        self.hang_up();
        self.spawn(&[TAKE_OVER.as_ref()])
            .map_err(|cause| RenewalError::HandOver { old, cause })?;
        let new = Record::running(&self.dir).map_or(0, |r| r.process.pid);
        Ok(Renewal::TakenOver { old, new })
    }

    /// Starts the role and waits until it listens.
    fn start(&mut self) -> io::Result<()> {
        if self.has_left() {
            log::warn!(
                "the process podprobe proxy has ended, or was killed: another one is started"
            );
        }
        self.spawn(&[])
    }

    /// Starts the program and waits until it serves. The arguments `more` follow the directory. The program's stderr goes to
    /// a file in that directory.
    fn spawn(&mut self, more: &[&OsStr]) -> io::Result<()> {
        self.reap();
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.dir)?;
        replace(
            &self.dir.join(ORDERS),
            &[&serde_json::to_vec(&self.orders)?],
        )?;
        // One that still runs writes to the file it has.
        let stderr = self.dir.join("stderr");
        let _ = std::fs::remove_file(&stderr);
        let stderr = File::create(stderr)?;
        let mut command = Command::new(&self.program);
        command.arg0("podprobe").arg("proxy").arg(&self.dir);
        command.args(more);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()?;
        let said = child.stdout.take().map_or(Ok(String::new()), first_line);
        if said.is_err() {
            // It would be in the way of the next one.
            let _ = child.kill();
            let _ = child.wait();
        }
        let said = said?;
        self.child = Some(child);
        match said {
            line if line == READY => Ok(()),
            line => {
                let why = line.strip_prefix("error ").unwrap_or("it ended").trim_end();
                Err(io::Error::other(format!("it does not start: {why}")))
            }
        }
    }

    fn reap(&mut self) {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
    }
}

/// The outcome of bringing a role up to date at the start of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// No role runs, or the role runs the same program.
    Needless,
    /// A new process serves.
    TakenOver {
        /// The process that goes on with its connections.
        old: i32,
        /// The process that takes clients now.
        new: i32,
    },
}

/// A reason for which the old process of a role stays at work.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// Nobody can tell whether the process runs another program.
    #[error("cannot tell which program process {old} runs: {cause}")]
    Program {
        /// The process of the role.
        old: i32,
        /// The error of the comparison.
        #[source]
        cause: io::Error,
    },
    /// The process is of a version that knows no hand-over.
    #[error(
        "process {old} is of podprobe {version}, which cannot hand its work over; to have it replaced, end it with `kill -9 {old}` \
         when its connections may break"
    )]
    TooOld {
        /// The process of the role.
        old: i32,
        /// The version of podprobe that the process is of.
        version: String,
    },
    /// The new process does not start, or does not get the work.
    #[error("process {old} cannot hand its work over: {cause}")]
    HandOver {
        /// The process of the role.
        old: i32,
        /// The error of the start.
        #[source]
        cause: io::Error,
    },
}

/// Ends the role of a directory: waits `limit` for it to end, then kills it with the connections that it still has.
pub fn end(dir: &Path, limit: Duration) {
    let Some(Ok(Some(process))) = Record::running(dir).map(|r| r.process.open()) else {
        return;
    };
    if !matches!(process.wait(limit), Ok(true)) {
        let _ = process.send(nix::libc::SIGKILL);
        let _ = process.wait(limit);
    }
}

fn frame(request: &Request) -> Result<Vec<u8>, RoleError> {
    let body = serde_json::to_vec(request).map_err(RoleError::Request)?;
    if body.len() > LONGEST {
        return Err(RoleError::TooLong(body.len()));
    }
    Ok([&(body.len() as u32).to_be_bytes()[..], &body].concat())
}

/// Reads the line with which a new role says that it has started, or why not. Waits for at most `LIMIT`.
fn first_line(stdout: std::process::ChildStdout) -> io::Result<String> {
    let timeout = PollTimeout::try_from(LIMIT).unwrap_or(PollTimeout::MAX);
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
    if poll(&mut polled, timeout)? == 0 {
        let text = format!("it does not listen after {} s", LIMIT.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let mut line = String::new();
    // It writes the line at once, or ends.
    BufReader::new(stdout.take(64 * 1024)).read_line(&mut line)?;
    Ok(line)
}

/// The userspace data path.
pub struct UserspaceProxy {
    role: ProxyRole,
    options: Options,
    names: Option<Names>,
    version: u64,
    /// The configuration that the role was given last, if it took it.
    sent: Option<Sent>,
    last: Answer,
    /// The counters of names, as the role reported them last.
    counters: Option<Counters>,
    /// True if the role is known to answer names. A role of an earlier podprobe does not.
    knows_names: bool,
    /// True once this daemon has checked which program the role runs.
    is_current: bool,
}

struct Sent {
    options: Options,
    names: Option<Names>,
    table: ServiceTable,
}

impl UserspaceProxy {
    /// A data path through this role, with these options.
    pub fn new(role: ProxyRole, options: Options) -> Self {
        let mut proxy = Self {
            role,
            options,
            names: None,
            version: 0,
            sent: None,
            last: Answer::default(),
            counters: None,
            knows_names: false,
            is_current: false,
        };
        // One that runs already says which addresses are its own.
        if proxy.role.runs() {
            let _ = proxy.metrics();
        } else if proxy.role.has_left() {
            proxy.last.addresses = proxy.role.left_addresses();
        }
        proxy
    }

    /// Sets the options. They count from the next table on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// True if names are to be answered.
    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    /// The addresses that the role could not bind when it was asked last.
    pub fn not_bound(&self) -> &[NotBound] {
        &self.last.failed
    }

    /// Asks the role for its metrics. The answer also updates the list of addresses that could not be bound.
    ///
    /// # Errors
    /// Returns the errors of [`ProxyRole::ask`], and [`RoleError::NoMetrics`] if the answer has none.
    pub fn metrics(&mut self) -> Result<Metrics, RoleError> {
        let mut answer = self.role.ask(&Request::Metrics {})?;
        let metrics = answer.metrics.take();
        self.counters = answer.names.take();
        self.knows_names |= self.counters.is_some();
        self.last = answer;
        metrics.ok_or(RoleError::NoMetrics)
    }

    /// Tells whether the role still works by this table and the present names and options. Asks only for the version that
    /// the role has applied, so that a large table is not sent every time.
    fn is_up_to_date(&mut self, table: &ServiceTable) -> Result<bool, RoleError> {
        let same = |sent: &Sent| {
            sent.options == self.options && sent.table == *table && sent.names == self.names
        };
        if !self.sent.as_ref().is_some_and(same) {
            return Ok(false);
        }
        self.metrics()?;
        Ok(self.last.applied == Some(self.version))
    }

    /// Retires a role of an earlier podprobe if names are to be answered, because it would ignore them. The old role goes on
    /// with its connections, and another one starts.
    fn replace_an_older_role(&mut self) -> Result<(), ProxyError> {
        if self.names.is_none() || self.knows_names || !self.role.runs() {
            return Ok(());
        }
        self.metrics()?;
        if !self.knows_names {
            self.remove()?;
            // What starts now is this program.
            self.knows_names = true;
        }
        Ok(())
    }

    /// Upgrades the role with the daemon. Tries only once in the life of a daemon, even if that fails.
    fn bring_role_up_to_date(&mut self) {
        if std::mem::replace(&mut self.is_current, true) {
            return;
        }
        match self.role.bring_up_to_date() {
            Ok(Renewal::Needless) => {}
            Ok(Renewal::TakenOver { old, new }) => log::info!(
                "podprobe proxy: process {new} has taken over from process {old}, which ran another program and ends with its connections"
            ),
            Err(e) => {
                log::warn!("podprobe proxy goes on with another program than the daemon's: {e}")
            }
        }
    }

    fn send(&mut self, table: &ServiceTable) -> Result<(), ProxyError> {
        self.replace_an_older_role()?;
        self.bring_role_up_to_date();
        self.sent = None;
        self.version += 1;
        let answer = self.role.ask(&Request::Apply(Box::new(Configuration {
            version: self.version,
            boot_id: boot_id(),
            options: self.options.clone(),
            table: table.clone(),
            names: self.names.clone(),
        })))?;
        if answer.applied != Some(self.version) {
            return Err(ProxyError::from(RoleError::OtherVersion {
                applied: answer.applied,
                version: self.version,
            }));
        }
        self.last = answer;
        self.sent = Some(Sent {
            options: self.options.clone(),
            names: self.names.clone(),
            table: table.clone(),
        });
        Ok(())
    }
}

impl DataPath for UserspaceProxy {
    fn name(&self) -> &'static str {
        "userspace"
    }

    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        if self.is_up_to_date(table)? {
            return Ok(Applied {
                warning: not_bound(&self.last),
                ..Applied::default()
            });
        }
        let same = |sent: &Sent| sent.table == *table && sent.names == self.names;
        let before = self.sent.as_ref().map(same);
        let (repaired, full) = (before == Some(true), before != Some(false));
        self.send(table)?;
        Ok(Applied {
            changed: true,
            full,
            repaired,
            warning: not_bound(&self.last),
            ..Applied::default()
        })
    }

    fn set_names(&mut self, names: Option<Names>) {
        self.names = names;
    }

    fn name_counters(&self) -> Option<Counters> {
        self.counters.clone()
    }

    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.last.addresses.iter().copied().collect()
    }

    /// Retires the role, which ends with its last connection. If the role was killed, a new one starts and takes back what
    /// the old one has left.
    fn remove(&mut self) -> Result<bool, ProxyError> {
        self.sent = None;
        self.counters = None;
        if !self.role.has_left() {
            return Ok(false);
        }
        if !self.role.runs() {
            self.role.forget_table();
        }
        self.last = self.role.ask(&Request::Retire {})?;
        self.role.hang_up();
        Ok(true)
    }
}

fn not_bound(answer: &Answer) -> Option<String> {
    let all: Vec<&str> = answer.failed.iter().map(|n| n.error.as_str()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
