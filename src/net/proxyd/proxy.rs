//! The proxy process: its setup and its event loop.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use nix::sys::epoll::EpollFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::control::{self, Control};
use super::hand_over::{Gift, Predecessor};
use super::home::Home;
use super::message::{Answer, Configuration, Handed, HandedSocket, Owner, Request};
use super::poller::{Events, Part, Poller, Token};
use super::slab::Key;
use crate::base::clock::Moment;
use crate::base::sys::cgroup;
use crate::base::sys::task::PidFd;
use crate::net::proxyd::dns::part::{self as dns, NamesPart};
use crate::net::proxyd::userspace::part::{self, Userspace};

/// The line that the proxy process writes to its standard output when it is ready for the daemon's requests. A process
/// that cannot start writes `error <text>` instead.
pub const READY: &str = "ready\n";

/// Number of descriptors that the process asks for. The number is the kernel's own limit for a process without a
/// special setting.
const DESCRIPTORS: u64 = 1 << 20;
/// The part number of the event loop's own descriptors in tokens.
const LOOP: u8 = 255;
/// The kind of token for the watch on the directory, which is ready when a file is removed.
const HOME: u8 = 0;
/// The kind of token for the signal TERM at the node's shutdown.
const SHUTDOWN: u8 = 1;
/// The kind of token for the process that has handed its work over. The token is reported when that process has ended.
const PREDECESSOR: u8 = 2;

/// The argument after the directory that makes the process take over from the proxy process of that directory.
pub const TAKE_OVER: &str = "take-over";

/// Runs the proxy process. Its arguments are its directory and, at an upgrade, [`TAKE_OVER`].
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let Some(dir) = args.next() else {
        eprintln!("podprobe proxy: this role is started by the daemon, with a directory");
        return ExitCode::from(2);
    };
    let takes_over = args.next().is_some_and(|word| word == TAKE_OVER);
    let role = leave_the_daemon_behind().and_then(|()| {
        let dir = std::path::absolute(dir)?;
        match takes_over {
            true => Role::take_over(&dir),
            false => Role::new(&dir),
        }
    });
    match role {
        Ok(role) => {
            say(READY);
            detach();
            role.run()
        }
        Err(e) => {
            say(&format!("error {e}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a text to the standard output. An error is ignored, because the reader may be gone.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Replaces standard input and output by `/dev/null`, so that the process does not hold the daemon's pipes open.
fn detach() {
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    if let Ok(null) = null {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
    }
}

/// Makes the signal TERM readable from a descriptor of the event loop. The process must have left the daemon's cgroup,
/// so that TERM comes only from the node's shutdown.
fn shutdown(poller: &Poller) -> io::Result<SignalFd> {
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signal = SignalFd::with_flags(&term, flags)?;
    poller.add(&signal, of_loop(SHUTDOWN), EpollFlags::EPOLLIN)?;
    Ok(signal)
}

fn of_loop(kind: u8) -> Token {
    Token {
        part: LOOP,
        kind,
        generation: 0,
        index: 0,
    }
}

struct Role {
    /// The directory; `None` once another proxy process may have the directory.
    home: Option<Home>,
    poller: Poller,
    control: Control,
    userspace: Userspace,
    names: NamesPart,
    /// Version of the configuration in force; `None` before the first request of the daemon.
    applied: Option<u64>,
    retired: bool,
    /// The client of the control socket that has asked for the sockets with `HandOver`; `None` if no client has asked.
    heir: Option<Key>,
    /// The process that had the sockets before, while that process still has connections. This process keeps the
    /// addresses of those connections, and so ends after its predecessor. A successor must wait only for this process.
    predecessor: Option<PidFd>,
    /// The descriptor that is readable at the node's shutdown; `None` if a TERM could be meant for the daemon.
    _shutdown: Option<SignalFd>,
}

impl Role {
    fn new(dir: &Path) -> io::Result<Self> {
        let home = Home::take(dir)?;
        let userspace = Userspace::new(dir, raise_descriptors());
        let mut role = Self::serving(home, userspace, NamesPart::default(), Control::listen)?;
        role.watch();
        Ok(role)
    }

    /// Takes over the work of the proxy process of a directory. If this fails, that process goes on.
    fn take_over(dir: &Path) -> io::Result<Self> {
        let mut userspace = Userspace::new(dir, raise_descriptors());
        let mut names = NamesPart::default();
        let mut predecessor = Predecessor::find(dir)?;
        let mut gift = predecessor.hand_over()?;
        let lock = gift.take_lock();
        let lock = lock.ok_or_else(|| io::Error::other("it has not given its lock"))?;
        let sockets = gift.take(|handed| &mut handed.sockets).into_iter();
        let (of_names, others) = sockets.partition(|(s, _)| s.owner == Owner::Names);
        names.inherit(of_names);
        userspace.inherit(others);
        let home = Home::inherit(dir, lock);
        home.prepare_record()?;
        let mut role = Self::serving(home, userspace, names, Control::prepare)?;
        // The request to let go is the last step that may fail.
        let gift = predecessor.let_go()?;
        role.adopt(gift);
        role.succeed(predecessor.process());
        Ok(role)
    }

    /// Serves clients with the last table, before the first request of the daemon.
    fn serving(
        home: Home,
        mut userspace: Userspace,
        mut names: NamesPart,
        control: impl FnOnce(&Path, &Poller) -> io::Result<Control>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let has_left = cgroup::leave_the_daemon(&home.orders().cgroup);
        let shutdown = has_left.then(|| shutdown(&poller)).transpose()?;
        let last = home.last();
        if let Some(last) = &last {
            userspace.apply(last, Moment::now(), &poller);
            names.apply(last, Moment::now(), &poller);
        }
        let control = control(home.dir(), &poller)?;
        Ok(Self {
            home: Some(home),
            poller,
            control,
            userspace,
            names,
            applied: last.map(|last| last.version),
            retired: false,
            heir: None,
            predecessor: None,
            _shutdown: shutdown,
        })
    }

    /// Goes on with the UDP clients, DNS connections and affinities of the other process.
    fn adopt(&mut self, mut gift: Gift) {
        let now = Moment::now();
        let flows = gift.take(|handed| &mut handed.flows);
        let questioners = gift.take(|handed| &mut handed.questioners);
        let affinities = gift.handed.affinities;
        self.userspace.adopt(flows, affinities, now, &self.poller);
        self.names.adopt(questioners, now, &self.poller);
    }

    /// Makes the directory this process's own. If that fails, clients are served all the same, but the daemon reaches
    /// this process only later.
    fn succeed(&mut self, predecessor: PidFd) {
        if let Some(home) = &self.home {
            let published = home.publish_record();
            if let Err(e) = published.and_then(|()| Control::publish(home.dir())) {
                eprintln!("cannot take the directory over: {e}");
            }
        }
        self.watch();
        let token = of_loop(PREDECESSOR);
        let watched = self.poller.add(&predecessor, token, EpollFlags::EPOLLIN);
        match watched {
            Ok(()) => self.predecessor = Some(predecessor),
            Err(_) => self.userspace.is_alone(),
        }
    }

    /// Returns true if the process is retired and has nothing left to do.
    fn is_done(&self) -> bool {
        self.retired
            && self.userspace.is_unused()
            && self.names.is_unused()
            && self.predecessor.is_none()
    }

    fn run(mut self) -> ExitCode {
        let mut events = Events::default();
        while !self.is_done() {
            let deadlines = [
                self.control.deadline(),
                self.userspace.deadline(),
                self.names.deadline(),
            ];
            let deadline = deadlines.into_iter().flatten().min();
            let ready = self.poller.wait(&mut events, deadline);
            let now = Moment::now();
            for (token, events) in ready {
                match token.part {
                    control::PART => self.control.ready(token, events, now, &self.poller),
                    part::PART => self.userspace.ready(token, events, now, &self.poller),
                    dns::PART => self.names.ready(token, events, now, &self.poller),
                    LOOP if token.kind == SHUTDOWN => return ExitCode::SUCCESS,
                    LOOP if token.kind == PREDECESSOR => {
                        self.predecessor = None;
                        self.userspace.is_alone();
                    }
                    _ => self.mend(),
                }
            }
            if deadline.is_some_and(|d| d <= now) {
                self.control.expire(now, &self.poller);
                self.userspace.expire(now, &self.poller);
                self.names.expire(now, &self.poller);
            }
            for (client, request) in self.control.requests() {
                self.obey(client, request);
            }
        }
        ExitCode::SUCCESS
    }

    fn obey(&mut self, client: Key, request: Request) {
        let answer = match request {
            Request::Apply(configuration) => self.apply(&configuration),
            Request::Metrics {} => {
                // The daemon asks for metrics every ten seconds, so removed addresses are regularly added again.
                self.userspace.mend();
                Answer {
                    metrics: Some(self.userspace.metrics()),
                    names: Some(self.names.counters()),
                    ..self.state()
                }
            }
            Request::Retire {} => {
                self.retire();
                self.state()
            }
            Request::HandOver {} => return self.hand_over(client),
            Request::LetGo {} => return self.let_go(client),
        };
        self.control.answer(client, &answer, &self.poller);
    }

    fn apply(&mut self, configuration: &Configuration) -> Answer {
        if self.retired {
            return refused(RETIRED.into());
        }
        let now = Moment::now();
        // The userspace part comes first, because it adds the addresses to the node that the DNS responder binds.
        self.userspace.apply(configuration, now, &self.poller);
        self.names.apply(configuration, now, &self.poller);
        self.userspace.forget_inherited();
        self.names.forget_inherited();
        // If the table cannot be kept on disk, it is still in force until this process ends.
        if let Some(Err(e)) = self.home.as_ref().map(|h| h.keep(configuration)) {
            eprintln!("cannot keep the table: {e}");
        }
        self.applied = Some(configuration.version);
        self.state()
    }

    fn state(&self) -> Answer {
        let mut failed = self.userspace.not_bound();
        failed.extend_from_slice(self.names.not_bound());
        Answer {
            applied: self.applied,
            addresses: self.userspace.addresses(),
            failed,
            portals: self.userspace.portals(),
            ..Answer::default()
        }
    }

    /// Gives the sockets and the lock to a client, and goes on to use them.
    fn hand_over(&mut self, client: Key) {
        let (answer, descriptors) = match self.offer() {
            Ok((handed, descriptors)) => {
                self.heir = Some(client);
                (given(handed), descriptors)
            }
            Err(e) => (refused(format!("cannot hand over: {e}")), Vec::new()),
        };
        self.control
            .answer_with(client, &answer, descriptors, &self.poller);
    }

    fn offer(&self) -> io::Result<(Handed, Vec<OwnedFd>)> {
        let Some(home) = &self.home else {
            return Err(io::Error::other(RETIRED));
        };
        let mut descriptors = vec![home.lock()?];
        let mut sockets = Vec::new();
        let of_userspace = self.userspace.to_hand_over();
        let of_userspace = of_userspace.into_iter().map(|(s, fd)| (s, fd.as_fd()));
        let all: Vec<(HandedSocket, BorrowedFd<'_>)> =
            of_userspace.chain(self.names.to_hand_over()).collect();
        for (socket, fd) in all {
            descriptors.push(fd.try_clone_to_owned()?);
            sockets.push(socket);
        }
        let handed = Handed {
            home: true,
            sockets,
            ..Handed::default()
        };
        Ok((handed, descriptors))
    }

    /// Leaves the clients to the process that has asked for the sockets. This process ends with its last connection.
    fn let_go(&mut self, client: Key) {
        if self.home.is_none() || self.heir != Some(client) {
            let answer = refused("the sockets were not handed over".into());
            return self.control.answer(client, &answer, &self.poller);
        }
        let now = Moment::now();
        self.retired = true;
        // The files now belong to the other process. So does the lock, once this process has closed its own descriptor.
        self.home = None;
        let affinities = self.userspace.affinities(now);
        let (flows, of_flows): (Vec<_>, Vec<_>) =
            self.userspace.let_go(now, &self.poller).into_iter().unzip();
        let (questioners, of_questioners): (Vec<_>, Vec<_>) =
            self.names.let_go(now, &self.poller).into_iter().unzip();
        let answer = given(Handed {
            flows,
            questioners,
            affinities,
            ..Handed::default()
        });
        let descriptors = of_flows.into_iter().chain(of_questioners).collect();
        self.control
            .answer_with(client, &answer, descriptors, &self.poller);
    }

    fn retire(&mut self) {
        self.retired = true;
        if let Some(home) = self.home.take() {
            home.leave();
        }
        // DNS sockets are closed before their addresses are removed.
        self.names.retire();
        self.userspace.retire();
    }

    /// Makes the directory anew if another program has removed or changed it or one of its files. If another proxy process has the
    /// directory by then, this process ends with its last connection.
    fn mend(&mut self) {
        let damaged = self.home.as_ref().filter(|home| home.is_damaged());
        let Some(dir) = damaged.map(|home| home.dir().to_owned()) else {
            return;
        };
        // The lock is released first. If the lock file is still there, this process could not take the lock a second
        // time.
        self.home = None;
        let taken = Home::take(&dir).and_then(|home| {
            let control = Control::listen(&dir, &self.poller)?;
            Ok((home, control))
        });
        match taken {
            Ok((home, control)) => {
                self.control = control;
                self.home = Some(home);
                self.watch();
            }
            Err(_) => self.retire(),
        }
    }

    fn watch(&mut self) {
        let Some(home) = &mut self.home else {
            return;
        };
        home.watch();
        if let Some(watched) = home.watched() {
            let _ = self.poller.add(watched, of_loop(HOME), EpollFlags::EPOLLIN);
        }
    }
}

/// The error of a proxy process that is retired, for requests that it refuses.
const RETIRED: &str = "this role is retired: another one has its place";

fn refused(error: String) -> Answer {
    Answer {
        error: Some(error),
        ..Answer::default()
    }
}

fn given(handed: Handed) -> Answer {
    Answer {
        handed: Some(Box::new(handed)),
        ..Answer::default()
    }
}

/// Separates this process from the daemon. Whatever ends the daemon does not end this process; only the signal of
/// [`shutdown`] does. When the node runs out of memory, the kernel kills this process last.
fn leave_the_daemon_behind() -> io::Result<()> {
    let _ = nix::sys::prctl::set_name(c"podprobe-proxy");
    std::env::set_current_dir("/")?;
    // setsid fails if a person has started the process, because such a process already leads its session.
    let _ = nix::unistd::setsid();
    crate::base::sys::process::protect_from_the_oom_killer();
    let mut ignored = SigSet::empty();
    ignored.extend([
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        // A splice to a closed socket sends SIGPIPE.
        Signal::SIGPIPE,
    ]);
    Ok(ignored.thread_block()?)
}

/// Raises the process's limit of descriptors as far as it is allowed, and returns the limit.
fn raise_descriptors() -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    for wanted in [DESCRIPTORS, hard] {
        let most = hard.max(wanted);
        if wanted > soft && setrlimit(Resource::RLIMIT_NOFILE, wanted, most).is_ok() {
            return wanted;
        }
    }
    soft
}
