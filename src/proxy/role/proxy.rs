//! The process of the role: what it sets up, and its loop.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::epoll::EpollFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::control::{self, Control};
use super::home::Home;
use super::message::{Answer, Configuration, Request};
use super::poller::{Events, Part, Poller, Token};
use super::slab::Key;
use crate::clock::Moment;
use crate::proxy::dns::part::{self as dns, NamesPart};
use crate::proxy::userspace::part::{self, Userspace};
use crate::runtime::shims::cgroup;

/// What the role says on its standard output when the daemon may speak to it; else `error <text>`.
pub const READY: &str = "ready\n";

/// The most descriptors that are asked for: the kernel's own limit of a process without a special setting.
const DESCRIPTORS: u64 = 1 << 20;
/// The number of the loop's own descriptors in tokens.
const LOOP: u8 = 255;
/// Of these: something has happened to the directory, …
const HOME: u8 = 0;
/// … and the node shuts down.
const SHUTDOWN: u8 = 1;

/// The role: the one argument is its directory.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(dir) = args.into_iter().next().map(PathBuf::from) else {
        eprintln!("podprobe proxy: this role is started by the daemon, with a directory");
        return ExitCode::from(2);
    };
    match Role::new(dir) {
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

/// Nobody needs to listen.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The daemon's pipes are not held open.
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

/// TERM, as a descriptor of the loop. It is heard where the role has left the daemon's cgroup: then it is of the node's
/// shutdown.
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
    /// None once another role may have the directory.
    home: Option<Home>,
    poller: Poller,
    control: Control,
    userspace: Userspace,
    names: NamesPart,
    /// The version of the table that counts.
    applied: Option<u64>,
    retired: bool,
    /// Readable at the node's shutdown; None where a TERM may be for the daemon.
    _shutdown: Option<SignalFd>,
}

impl Role {
    fn new(dir: PathBuf) -> io::Result<Self> {
        let dir = std::path::absolute(dir)?;
        leave_the_daemon_behind()?;
        let mut home = Home::take(&dir)?;
        let has_left = cgroup::leave_the_daemon(&home.orders().cgroup);
        let poller = Poller::new()?;
        let shutdown = has_left.then(|| shutdown(&poller)).transpose()?;
        let mut userspace = Userspace::new(&dir, raise_descriptors());
        // Clients are served before the daemon has said anything.
        let mut names = NamesPart::default();
        let last = home.last();
        if let Some(last) = &last {
            userspace.apply(last, Moment::now(), &poller);
            names.apply(last, Moment::now(), &poller);
        }
        let control = Control::listen(&dir, &poller)?;
        watch(&mut home, &poller);
        Ok(Self {
            home: Some(home),
            poller,
            control,
            userspace,
            names,
            applied: last.map(|last| last.version),
            retired: false,
            _shutdown: shutdown,
        })
    }

    fn run(mut self) -> ExitCode {
        let mut events = Events::default();
        while !(self.retired && self.userspace.is_unused()) {
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
                // The daemon asks every ten seconds.
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
        };
        self.control.answer(client, &answer, &self.poller);
    }

    fn apply(&mut self, configuration: &Configuration) -> Answer {
        if self.retired {
            return Answer {
                error: Some("this role is retired: another one has its place".into()),
                ..Answer::default()
            };
        }
        let now = Moment::now();
        // It claims the addresses that names need, too.
        self.userspace.apply(configuration, now, &self.poller);
        self.names.apply(configuration, now, &self.poller);
        // Without it the table counts all the same, until this process ends.
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

    fn retire(&mut self) {
        self.retired = true;
        if let Some(home) = self.home.take() {
            home.leave();
        }
        // Before their addresses go.
        self.names.retire();
        self.userspace.retire();
    }

    /// Somebody has removed our directory, or a file of it. It is made anew; if another role has taken the place, this
    /// one ends with its connections.
    fn mend(&mut self) {
        let damaged = self.home.as_ref().filter(|home| home.is_damaged());
        let Some(dir) = damaged.map(|home| home.dir().to_owned()) else {
            return;
        };
        // Its lock would keep us out where only a file is gone.
        self.home = None;
        let taken = Home::take(&dir).and_then(|home| {
            let control = Control::listen(&dir, &self.poller)?;
            Ok((home, control))
        });
        match taken {
            Ok((mut home, control)) => {
                self.control = control;
                watch(&mut home, &self.poller);
                self.home = Some(home);
            }
            Err(_) => self.retire(),
        }
    }
}

fn watch(home: &mut Home, poller: &Poller) {
    home.watch();
    if let Some(watched) = home.watched() {
        let _ = poller.add(watched, of_loop(HOME), EpollFlags::EPOLLIN);
    }
}

/// Nothing that ends the daemon ends this process ([`shutdown`] is what does), and the kernel kills it last for want of memory.
fn leave_the_daemon_behind() -> io::Result<()> {
    let _ = nix::sys::prctl::set_name(c"podprobe-proxy");
    std::env::set_current_dir("/")?;
    // It is the leader of its session already when a person has started it.
    let _ = nix::unistd::setsid();
    crate::sys::process::protect_from_the_oom_killer();
    let mut ignored = SigSet::empty();
    ignored.extend([
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        // A splice to a closed socket.
        Signal::SIGPIPE,
    ]);
    Ok(ignored.thread_block()?)
}

/// As many descriptors as there may be; what there are then.
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
