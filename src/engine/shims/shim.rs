//! The shim, `podprobe shim DIR`: the parent of one container, from its creation until its end is recorded.
//!
//! Invariants:
//! - The shim is single-threaded, small, and has no logger.
//! - The shim needs no daemon after it has reported that the container started. No signal but KILL ends the shim before
//!   its container.
//! - The shim has left the daemon's cgroup, so a TERM means the node's shutdown: the shim sends the container its stop
//!   signal, and KILL after [`SHUTDOWN_GRACE`].
//! - Every mount of the container is made in the shim's own mount namespace, so no process has to unmount anything.
//! - The shim is a subreaper: it waits for every child it inherits, and no other process waits for them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::console::ConsoleSocket;
use super::exits;
use super::output::Output;
use super::state::{
    self, CONTAINER, ContainerRecord, ContainerState, EXIT, EXIT_COPY, ExitRecord, ImageMount,
    Process, REMOVING, STATE,
};
use super::{oci_cli, roles, sandbox, sub_path, termination};
use crate::base::clock::{Moment, boot_id};
use crate::base::paths::directories::make_private;
use crate::base::sys::cgroup::{self, Cgroups};
use crate::base::sys::process;
use crate::base::sys::task::reap_any;
use crate::base::sys::terminal::slave_of;
use crate::engine::images::overlay::{self, OverlayError};

/// The shim's message to the daemon when the container is created. On a failure the message is `error <kind> <text>`.
pub const CREATED: &str = "created\n";
/// The daemon's message that makes the shim start the container.
pub const START: &str = "start\n";
/// The daemon's message that the container must not start any more. It is as long as [`START`].
pub const GIVE_UP: &str = "leave\n";
/// The shim's message to the daemon when the container runs. On a failure the message is `error <kind> <text>`.
pub const STARTED: &str = "started\n";
/// Reason and exit code of a container that never ran, the same as in containerd.
pub(super) const CANNOT_RUN: &str = "StartError";
pub(super) const NEVER_RAN: i32 = 128;
/// Kind of an error whose cause is the container's configuration.
pub const INVALID: &str = "invalid";
/// Kind of the error that the daemon ended before the container ran. It is told to nobody.
const DAEMON_GONE: &str = "daemon gone";
/// Kind of every other error.
const FAILED: &str = "failed";
/// Message of a created container that was given up.
const GIVEN_UP: &str = "the container was given up before it was started";

/// Runs the role of the shim. The one argument is the container's record directory.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(dir) = args.into_iter().next().map(PathBuf::from) else {
        eprintln!("podprobe shim: this role is started by the daemon, with a container directory");
        return ExitCode::from(2);
    };
    match Shim::new(dir) {
        Ok(shim) => shim.run(),
        Err(e) => {
            report(&format!("error {FAILED} {e}"));
            ExitCode::FAILURE
        }
    }
}

/// Sends a message to the daemon. A failure is ignored, because the container does not need the daemon.
fn report(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Longest time in seconds that a container may take to end at the node's shutdown: the API's default grace period. An
/// init system that waits for a shorter time kills the container earlier.
const SHUTDOWN_GRACE: u32 = 30;

/// The reason why a container could not be created or started.
struct Failure {
    kind: &'static str,
    text: String,
}

impl Failure {
    fn prepare(what: &str, cause: impl std::fmt::Display) -> Self {
        Self::plain(format!("cannot {what}: {cause}"))
    }

    fn plain(text: String) -> Self {
        Self { kind: FAILED, text }
    }

    fn daemon_gone() -> Self {
        Self {
            kind: DAEMON_GONE,
            text: "cannot start the container: the daemon has ended".into(),
        }
    }

    /// Makes the error of an image volume that cannot be mounted, in containerd's words.
    fn image(cause: &str) -> Self {
        Self::plain(format!(
            "failed to mount image volume: ImageVolumeMountFailed: {cause}"
        ))
    }

    fn sub_path(s: &state::SubPath, cause: &io::Error) -> Self {
        if !s.image.is_empty() {
            let (path, image) = (&s.path, &s.image);
            return Self::image(&format!(
                "failed to ensure image subpath {path:?} in {image:?}: {cause}"
            ));
        }
        let volume = s.volume.display();
        let text = match s.path.as_os_str().is_empty() {
            true => format!("cannot mount {volume}: {cause}"),
            false => format!("cannot mount subPath {:?} of {volume}: {cause}", s.path),
        };
        Self {
            kind: INVALID,
            text,
        }
    }
}

/// The reason why the image of a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
enum ImageMountError {
    #[error("cannot make {}: {source}", dir.display())]
    Make { dir: PathBuf, source: io::Error },
    #[error(transparent)]
    Overlay(#[from] OverlayError),
}

/// Mounts an image. Makes its mount point first, and empty directories for missing layers.
fn mount_image(image: &ImageMount) -> Result<(), ImageMountError> {
    let padding = image
        .layers
        .iter()
        .filter(|l| image.target.parent() == l.parent());
    for dir in padding.chain([&image.target]) {
        make_private(dir).map_err(|source| ImageMountError::Make {
            dir: dir.clone(),
            source,
        })?;
    }
    Ok(overlay::mount_read_only(&image.layers, &image.target)?)
}

struct Shim {
    dir: PathBuf,
    record: ContainerRecord,
    state: ContainerState,
    /// Descriptor for SIGCHLD, and for the signals of a shutdown: TERM, and ALRM at the end of the grace period.
    signals: SignalFd,
    /// True if a TERM means the node's shutdown.
    heeds_term: bool,
    /// Copy of the record, for a daemon that finds the record damaged or gone.
    _copy: Option<OwnedFd>,
}

impl Shim {
    fn new(dir: PathBuf) -> io::Result<Self> {
        let _ = nix::sys::prctl::set_name(c"podprobe-shim");
        std::env::set_current_dir("/")?;
        nix::unistd::setsid()?;
        nix::sys::prctl::set_child_subreaper(true)?;
        process::protect_from_the_oom_killer();
        // The container must not inherit what the daemon was started with.
        process::usual_surroundings();
        let signals = block_signals()?;
        let record: ContainerRecord = state::read(&dir, CONTAINER)
            .ok_or_else(|| io::Error::other("the container record cannot be read"))?;
        let shim = Process::of(std::process::id() as i32)
            .ok_or_else(|| io::Error::other("/proc is not mounted"))?;
        let state = ContainerState {
            boot_id: boot_id(),
            shim,
            process: None,
            cgroups: Vec::new(),
            started_at: None,
            started: None,
        };
        let mut me = Self {
            dir,
            _copy: roles::keep_copy(&record),
            record,
            state,
            signals,
            heeds_term: false,
        };
        me.save()?;
        me.heeds_term = cgroup::leave_the_daemon(&me.record.shims_cgroup);
        Ok(me)
    }

    fn run(mut self) -> ExitCode {
        let prepared = self.prepare_mounts();
        if daemon_is_gone() {
            self.take_back();
            return ExitCode::FAILURE;
        }
        // No process of the container has run yet. The daemon removes the container's record and files.
        if let Err(f) = prepared {
            report(&format!("error {} {}", f.kind, f.text));
            return ExitCode::FAILURE;
        }
        report(CREATED);
        match told_to_start() {
            Order::Start => {}
            Order::GiveUp => {
                self.record_exit(NEVER_RAN, None, CANNOT_RUN, GIVEN_UP);
                return ExitCode::FAILURE;
            }
            Order::None => {
                self.take_back();
                return ExitCode::FAILURE;
            }
        }
        match self.start() {
            Ok((pid, output)) => {
                sandbox::detach_stdio();
                self.look_after(pid, output);
                ExitCode::SUCCESS
            }
            Err(f) if f.kind == DAEMON_GONE => {
                self.clean_up();
                self.take_back();
                ExitCode::FAILURE
            }
            Err(f) => {
                self.record_exit(NEVER_RAN, None, CANNOT_RUN, &f.text);
                report(&format!("error {} {}", f.kind, f.text));
                self.clean_up();
                ExitCode::FAILURE
            }
        }
    }

    /// Renames the record directory of a container whose daemon ended before the container ran: otherwise the record
    /// would count as a restart. The next daemon removes the directory, which still has mount points now.
    fn take_back(&self) {
        let mut aside = self.dir.clone().into_os_string();
        aside.push(REMOVING);
        let _ = fs::rename(&self.dir, aside);
    }

    fn save(&self) -> io::Result<()> {
        state::write(&self.dir, STATE, &self.state, false)
    }

    /// Creates and starts the container. After an error nothing of the container runs any more.
    fn start(&mut self) -> Result<(i32, Output), Failure> {
        let mut output = Output::new(&self.record);
        output.clients.listen(&self.dir);
        let pid = self.create(&mut output)?;
        self.state.process = Process::of(pid);
        self.state.cgroups = Cgroups::detect()
            .map(|c| c.dirs_of(pid, &self.record.cgroup))
            .unwrap_or_default();
        self.save()
            .map_err(|e| Failure::prepare("record the container", e))?;
        if daemon_is_gone() {
            return Err(Failure::daemon_gone());
        }
        let stderr = self.dir.join("start.err");
        let to = File::create(&stderr).map_err(|e| Failure::prepare("start the container", e))?;
        let ok = self
            .runtime(&["start"])
            .stdout(Stdio::null())
            .stderr(to)
            .status();
        if !ok.as_ref().is_ok_and(std::process::ExitStatus::success) {
            let text = ok.map_or_else(
                |e| e.to_string(),
                |_| fs::read_to_string(&stderr).unwrap_or_default(),
            );
            return Err(Failure::plain(format!(
                "cannot start the container: {}",
                oci_cli::useful_sentence(&text)
            )));
        }
        let _ = fs::remove_file(stderr);
        (self.state.started_at, self.state.started) =
            (Some(SystemTime::now()), Some(Moment::now()));
        // If the state cannot be saved, the container runs all the same, and a daemon finds it by its process. Only its
        // start time is lost.
        let _ = self.save();
        report(STARTED);
        Ok((pid, output))
    }

    /// Mounts the container's root file system and volumes. The holder's mount namespace has the memory volumes; the
    /// shim makes its own copy of that namespace.
    fn prepare_mounts(&self) -> Result<(), Failure> {
        let r = &self.record;
        let of_node = r
            .sub_paths
            .iter()
            .map(|s| sub_path::of_node(s).map_err(|e| Failure::sub_path(s, &e)))
            .collect::<Result<Vec<_>, _>>()?;
        let namespace = File::open(format!("/proc/{}/ns/mnt", r.holder.pid))
            .map_err(|e| Failure::prepare("enter the sandbox", e))?;
        if !r.holder.alive() {
            return Err(Failure::prepare(
                "enter the sandbox",
                "its holder has ended",
            ));
        }
        setns(namespace, CloneFlags::CLONE_NEWNS)
            .map_err(|e| Failure::prepare("enter the sandbox", e))?;
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(|e| Failure::prepare("make a mount namespace", e))?;
        sandbox::slave_mounts().map_err(|e| Failure::prepare("set mount propagation", e))?;
        let (upper, work) = (r.data.join("upper"), r.data.join("work"));
        overlay::mount(&r.layers, &upper, &work, &r.rootfs, r.devices)
            .map_err(|e| Failure::plain(e.to_string()))?;
        for image in &r.image_mounts {
            mount_image(image).map_err(|e| Failure::image(&e.to_string()))?;
        }
        for (s, of_node) in r.sub_paths.iter().zip(of_node) {
            sub_path::bind(s, of_node).map_err(|e| Failure::sub_path(s, &e))?;
        }
        Ok(())
    }

    /// Makes the command `<runtime> --root R <verb…> ID`, with no input.
    fn runtime(&self, verb: &[&str]) -> Command {
        let mut c = oci_cli::command(&self.record.runtime, &self.record.oci_root);
        c.args(verb).arg(&self.record.id).stdin(Stdio::null());
        c
    }

    /// Creates the container with the shim's pipes. Output that is in the pipes when the OCI runtime has ended is the
    /// runtime's, not the container's.
    fn create(&mut self, output: &mut Output) -> Result<i32, Failure> {
        let (stdout, stderr) = output
            .open(self.record.user)
            .map_err(|e| Failure::prepare("make pipes", e))?;
        let stdin = output
            .open_input(&self.record)
            .map_err(|e| Failure::prepare("make pipes", e))?;
        let console = self.record.tty.then(|| ConsoleSocket::listen(&self.dir));
        let console = console
            .transpose()
            .map_err(|e| Failure::prepare("make a console socket", e))?;
        let pid_file = self.dir.join("pid");
        let bundle = self.dir.join("bundle");
        let mut command = oci_cli::command(&self.record.runtime, &self.record.oci_root);
        command
            .arg("create")
            .arg("--bundle")
            .arg(bundle)
            .arg("--pid-file")
            .arg(&pid_file);
        if let Some(console) = &console {
            command.arg("--console-socket").arg(console.path());
        }
        command
            .arg(&self.record.id)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        let result = unblocked(|| command.spawn()).and_then(|mut child| child.wait());
        drop(command);
        let said = output.take_unlogged();
        let run = |text: &str| {
            Failure::plain(format!(
                "cannot create the container: {}",
                oci_cli::useful_sentence(text)
            ))
        };
        match result {
            Ok(status) if status.success() => {}
            Ok(status) if said.is_empty() => {
                return Err(run(&format!(
                    "{} ended with {status}",
                    self.record.runtime[0].display()
                )));
            }
            Ok(_) => return Err(run(&said)),
            Err(e) => {
                return Err(Failure::prepare(
                    &format!("run {}", self.record.runtime[0].display()),
                    e,
                ));
            }
        }
        if let Some(console) = console {
            self.take_terminal(&console, output)
                .map_err(|e| Failure::prepare("take the container's terminal", e))?;
        }
        let pid = fs::read_to_string(&pid_file)
            .ok()
            .and_then(|p| p.trim().parse().ok());
        pid.ok_or_else(|| run("the OCI runtime wrote no pid"))
    }

    /// Puts the container's terminal in the place of the pipes. The container's user owns the terminal, so that it can
    /// be opened again.
    fn take_terminal(&self, console: &ConsoleSocket, output: &mut Output) -> io::Result<()> {
        let master = console.receive()?;
        let slave = slave_of(&master)?;
        nix::unistd::fchown(&slave, Some(self.record.user.into()), None)?;
        output.take_terminal(master, slave)
    }

    /// Copies output and reaps children until the container's first process has ended. Then records the end.
    fn look_after(&mut self, pid: i32, mut output: Output) {
        let status = loop {
            output.wait(self.signals.as_fd());
            while let Ok(Some(signal)) = self.signals.read_signal() {
                self.end_container(pid, signal.ssi_signo.cast_signed());
            }
            if let Some(status) = reap(pid) {
                break status;
            }
        };
        let cgroups = &self.state.cgroups;
        cgroup::kill_all(cgroups);
        cgroup::kill_until_empty(cgroups);
        output.drain();
        let (code, signal) = status;
        let oom_killed = cgroup::oom_killed(cgroups);
        let r = &self.record;
        let message =
            termination::message(&r.termination_log, r.message_from_log, code, &r.log_path);
        self.record_exit(
            code,
            signal,
            termination::reason(code, oom_killed),
            &message,
        );
        output.clients.end(code);
        self.clean_up();
    }

    /// Acts on a signal of the node's shutdown. The container's first process is the shim's child and is not reaped
    /// yet, so its pid cannot have been reused.
    fn end_container(&self, pid: i32, signal: i32) {
        let send = |signal| {
            let process = Process::of(pid).and_then(|p| p.open().ok().flatten());
            process.map(|p| p.send(signal));
        };
        let Some(step) = at_shutdown(signal, self.record.stop_signal, self.heeds_term) else {
            return;
        };
        send(step.send);
        if let Some(seconds) = step.alarm {
            nix::unistd::alarm::set(seconds);
        }
    }

    fn record_exit(&self, code: i32, signal: Option<i32>, reason: &str, message: &str) {
        let record = ExitRecord {
            code,
            signal,
            reason: reason.into(),
            message: message.into(),
            finished_at: SystemTime::now(),
            finished: Moment::now(),
            boot_id: boot_id(),
        };
        // If the disk is full, both writes fail: once the shim is gone, the daemon reports an unknown end, and goes on.
        // The copy is written first, so that it exists whenever the record does.
        let _ = state::write(&self.dir, EXIT_COPY, &record, false);
        let _ = state::write(&self.dir, EXIT, &record, true);
        exits::tell(&self.record.exits, &self.record.pod.uid);
    }

    /// Removes the container's processes, cgroups and OCI runtime state. Its records, its overlay and its log stay.
    fn clean_up(&self) {
        let _ = self
            .runtime(&["delete", "--force"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        cgroup::kill_all(&self.state.cgroups);
        for dir in &self.state.cgroups {
            let _ = cgroup::remove_tree(dir);
        }
        let _ = Cgroups::detect().and_then(|c| c.remove(&self.record.cgroup));
        while reap_any().is_some() {}
    }
}

/// Action of the shim on a signal at the node's shutdown.
#[derive(Debug, PartialEq, Eq)]
struct ShutdownStep {
    /// Number of the signal to send to the container.
    send: i32,
    /// Number of seconds until the shim gets ALRM; None sets no alarm.
    alarm: Option<u32>,
}

/// Returns the action for a signal; `None` if the signal does not belong to a shutdown.
fn at_shutdown(signal: i32, stop_signal: i32, heeds_term: bool) -> Option<ShutdownStep> {
    match signal {
        libc::SIGTERM if heeds_term => Some(ShutdownStep {
            send: stop_signal,
            alarm: Some(SHUTDOWN_GRACE),
        }),
        libc::SIGALRM => Some(ShutdownStep {
            send: libc::SIGKILL,
            alarm: None,
        }),
        _ => None,
    }
}

/// Runs `f` with the signals USR1 and USR2 unblocked. A child inherits the blocked signals. runc resets all of them
/// except these two, so a container could not get USR1 or USR2 as its stop signal.
fn unblocked<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let users = SigSet::from_iter([Signal::SIGUSR1, Signal::SIGUSR2]);
    users.thread_unblock()?;
    let result = f();
    users.thread_block()?;
    result
}

/// Blocks the shim's signals, and returns a descriptor for CHLD, TERM and ALRM. HUP, INT and the like are ignored. A
/// shim that could not leave the daemon's cgroup ignores TERM too, because the end of the daemon must not end its
/// containers.
fn block_signals() -> io::Result<SignalFd> {
    let mut blocked = SigSet::empty();
    blocked.extend([
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ]);
    blocked.thread_block()?;
    let read = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGALRM]);
    read.thread_block()?;
    Ok(SignalFd::with_flags(
        &read,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// The daemon's word on a created container.
enum Order {
    Start,
    /// The container must not start any more.
    GiveUp,
    /// Nothing: the daemon has ended.
    None,
}

/// Waits for the daemon's word on the created container.
fn told_to_start() -> Order {
    let mut word = [0; START.len()];
    match io::stdin().read_exact(&mut word) {
        Ok(()) if word == *START.as_bytes() => Order::Start,
        Ok(()) => Order::GiveUp,
        Err(_) => Order::None,
    }
}

/// Returns true if the daemon has closed the other end of stdin. The daemon holds that end until it has the shim's
/// answer.
fn daemon_is_gone() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

/// Reaps every child that has ended. Returns the exit code and signal of `pid` if it was among them.
fn reap(pid: i32) -> Option<(i32, Option<i32>)> {
    let mut found = None;
    while let Some(ended) = reap_any() {
        if ended.pid == pid {
            found = Some((ended.code, ended.signal));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_asks_with_the_stop_signal_and_kills_after_the_grace_period() {
        let asked = ShutdownStep {
            send: libc::SIGUSR1,
            alarm: Some(30),
        };
        let of = |signal, heeds_term| at_shutdown(signal, libc::SIGUSR1, heeds_term);
        assert_eq!(of(libc::SIGTERM, true), Some(asked));
        let killed = ShutdownStep {
            send: libc::SIGKILL,
            alarm: None,
        };
        assert_eq!(of(libc::SIGALRM, true), Some(killed));
        // Neither the daemon's end nor the end of a child is a shutdown.
        assert_eq!(of(libc::SIGTERM, false), None);
        assert_eq!(of(libc::SIGCHLD, true), None);
    }
}
