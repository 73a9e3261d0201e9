//! The daemon's side of the userspace data path. This side starts the process of the role `proxy`, connects to the
//! process, and sends it tables.
//!
//! Invariants: a running process of the role is used, even if another daemon has started it. If the process runs
//! another program than the daemon, a new process takes over its work; a daemon tries this once. If the process
//! cannot be replaced, it continues. Every wait has a limit. The process runs a newly executed program, never a
//! fork of the daemon, and inherits no descriptor of the daemon.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::base::clock::{Moment, boot_id};
use crate::base::json;
use crate::base::sys::exe;
use crate::net::proxy::process_end::ProcessEnd;
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

/// The longest time that the role may take to answer or to start.
const LIMIT: Duration = Duration::from_secs(5);
/// The time between two attempts to connect to a role that is running but does not listen yet.
const PAUSE: Duration = Duration::from_millis(10);
/// The greatest length of the role's answer, in bytes.
const LONGEST_ANSWER: u64 = LONGEST as u64;

/// A client of the process of the role `proxy`.
pub struct ProxyRole {
    dir: PathBuf,
    program: PathBuf,
    orders: Orders,
    stream: Option<BufReader<UnixStream>>,
    /// The process of the role; None if this daemon has not started it.
    child: Option<Child>,
    /// The place for the news that the process has ended; None if nobody wants to know.
    end: Option<Arc<ProcessEnd>>,
}

impl ProxyRole {
    /// Makes a client for the role of the directory `dir`. A process of the role that starts moves into the cgroup
    /// `cgroup`.
    pub fn new(dir: impl Into<PathBuf>, cgroup: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            program: "/proc/self/exe".into(),
            orders: Orders {
                cgroup: cgroup.into(),
            },
            stream: None,
            child: None,
            end: None,
        }
    }

    /// Sets the place for the news that the process of the role has ended.
    #[must_use]
    pub fn with_end(mut self, end: Arc<ProcessEnd>) -> Self {
        self.end = Some(end);
        self
    }

    /// Sets the binary of the role. Tests need this, because their own binary does not contain the role.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Sends a request to the role and returns its answer. Starts the role if it is not running.
    ///
    /// # Errors
    /// Returns [`RoleError`] if the request is too long or refused, or if the role cannot be started, or if it
    /// does not answer in time.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, RoleError> {
        let frame = frame(request)?;
        // If the role was killed since the last request, the first attempt fails and the second attempt starts a
        // new process.
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

    /// Tells whether the role of this directory is running.
    pub fn runs(&self) -> bool {
        Record::running(&self.dir).is_some()
    }

    /// Tells whether the role is running, or was killed since the node booted. A killed role may have left
    /// addresses behind.
    fn has_left(&self) -> bool {
        Record::read(&self.dir).is_some_and(|r| r.boot_id == boot_id())
    }

    /// Returns the addresses in the record of the last role. These addresses are needed if that role was killed.
    fn left_addresses(&self) -> Vec<IpAddr> {
        let recorded = std::fs::read(self.dir.join(ADDRESSES)).unwrap_or_default();
        json::from_slice(&recorded).unwrap_or_default()
    }

    /// Removes the recorded table, so that the next process of the role serves nothing at its start.
    fn forget_table(&self) {
        let _ = std::fs::remove_file(self.dir.join(TABLE));
    }

    /// Closes the connection to the role. The next request connects to the process that is running at that time.
    fn hang_up(&mut self) {
        self.stream = None;
    }

    fn exchange(&mut self, frame: &[u8]) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(self.connect()?),
        };
        if let Some((end, record)) = self.end.as_ref().zip(Record::running(&self.dir)) {
            end.await_end(record.process);
        }
        stream.get_mut().write_all(frame)?;
        let mut line = Vec::new();
        (&mut stream)
            .take(LONGEST_ANSWER)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = json::from_slice(&line)?;
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
                // The process does not listen yet, because it is starting or makes its directory again.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Replaces the process of the role if this process runs another program than `program`. A new process takes
    /// over its work. Does nothing if no process of the role is running, or if the process runs the same program.
    ///
    /// # Errors
    /// Returns [`RenewalError`] if the old process cannot be replaced and continues.
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

    /// Starts the process of the role and waits until it listens.
    fn start(&mut self) -> io::Result<()> {
        if self.has_left() {
            log::warn!(
                "the process podprobe proxy has ended, or was killed: another one is started"
            );
        }
        self.spawn(&[])
    }

    /// Starts the program and waits until it listens. The first argument of the program is the role's directory,
    /// and the arguments `more` follow. The program's stderr goes to a file in the role's directory.
    fn spawn(&mut self, more: &[&OsStr]) -> io::Result<()> {
        self.reap();
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.dir)?;
        replace(
            &self.dir.join(ORDERS),
            &[&serde_json::to_vec(&self.orders)?],
        )?;
        // The new process gets a new file. An older process that is still running keeps writing to its own file.
        let stderr = self.dir.join("stderr");
        let _ = std::fs::remove_file(&stderr);
        let stderr = File::create(stderr)?;
        let mut command = exe::role(&self.program);
        command.arg("proxy").arg(&self.dir).args(more);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()?;
        let said = child.stdout.take().map_or(Ok(String::new()), first_line);
        if said.is_err() {
            // The process is killed, because a process that does not listen would obstruct the next process.
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

/// The outcome of the check whether the role runs the daemon's program. The daemon checks this at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// No role is running, or the role runs the same program.
    Needless,
    /// A new process has taken over from the old process.
    TakenOver {
        /// The pid of the old process, which continues with its connections.
        old: i32,
        /// The pid of the new process, which accepts new clients.
        new: i32,
    },
}

/// A reason why the old process of a role continues.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// The program that the process runs cannot be compared with the daemon's.
    #[error("cannot tell which program process {old} runs: {cause}")]
    Program {
        /// The pid of the role's process.
        old: i32,
        /// The error of the comparison.
        #[source]
        cause: io::Error,
    },
    /// The process is too old to hand over its work.
    #[error(
        "process {old} is of podprobe {version}, which cannot hand its work over; to have it replaced, end it with `kill -9 {old}` \
         when its connections may break"
    )]
    TooOld {
        /// The pid of the role's process.
        old: i32,
        /// The version of podprobe that the process runs.
        version: String,
    },
    /// The new process does not start, or cannot take over the work.
    #[error("process {old} cannot hand its work over: {cause}")]
    HandOver {
        /// The pid of the role's old process.
        old: i32,
        /// The error from starting the new process.
        #[source]
        cause: io::Error,
    },
}

/// Waits until the role of a directory has ended, for at most `limit`. If the role is still running after `limit`,
/// kills it. A killed role loses its remaining connections.
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

/// Reads the line in which a new role reports that it has started, or why it has not. Waits for at most
/// `LIMIT`.
fn first_line(stdout: std::process::ChildStdout) -> io::Result<String> {
    let timeout = PollTimeout::try_from(LIMIT).unwrap_or(PollTimeout::MAX);
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
    if poll(&mut polled, timeout)? == 0 {
        let text = format!("it does not listen after {} s", LIMIT.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    let mut line = String::new();
    // The role writes the whole line at once, or ends without a line. So this read does not block.
    BufReader::new(stdout.take(64 * 1024)).read_line(&mut line)?;
    Ok(line)
}

/// The userspace data path: a process of the role `proxy` serves the table.
pub struct UserspaceProxy {
    role: ProxyRole,
    options: Options,
    names: Option<Names>,
    version: u64,
    /// The configuration that was sent last, if the role accepted it.
    sent: Option<Sent>,
    last: Answer,
    /// The counters of names, as the role last reported them.
    counters: Option<Counters>,
    /// True if the role is known to answer DNS queries for names. A role of an earlier podprobe cannot answer such
    /// queries.
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
    /// Makes a data path that uses this role, with these options.
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
        // A role that is already running reports which addresses it has added.
        if proxy.role.runs() {
            let _ = proxy.metrics();
        } else if proxy.role.has_left() {
            proxy.last.addresses = proxy.role.left_addresses();
        }
        proxy
    }

    /// Sets the options. The options apply from the next table on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// Tells whether there are names for which the role answers queries.
    pub fn has_names(&self) -> bool {
        self.names.is_some()
    }

    /// Returns the addresses that the role could not bind, from its last answer.
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

    /// Tells whether the role still uses this table with the present names and options. Asks the role only for the
    /// version of its table, so a large table is not sent each time.
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

    /// Retires a role of an earlier podprobe if there are names, because that role would ignore names. The old
    /// role continues with its connections, and the next request starts a new role.
    fn replace_an_older_role(&mut self) -> Result<(), ProxyError> {
        if self.names.is_none() || self.knows_names || !self.role.runs() {
            return Ok(());
        }
        self.metrics()?;
        if !self.knows_names {
            self.remove()?;
            // The next role runs this daemon's program, which can answer queries for names.
            self.knows_names = true;
        }
        Ok(())
    }

    /// Upgrades the role to the daemon's program. A daemon tries this only once in its life, even if the attempt
    /// fails.
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

    /// Retires the role, which ends with its last connection. If the role was killed, a new role starts and
    /// removes the addresses that the killed role has left behind.
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
