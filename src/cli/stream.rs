//! Connects a terminal, or the pipes of a script, to a stream of the daemon, for `exec` and `attach`.
//!
//! Invariants: when the verb ends, even by a signal, the terminal is as it was before the verb. The output of a
//! container is passed on byte for byte, as in kubectl.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::error::CliError;
use super::terminal::say;
use crate::base::json;
use crate::base::sys::terminal;
use crate::face::server::channels::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use crate::face::server::web_socket::{Received, Socket};

/// The WebSocket subprotocol of these verbs.
pub const SUBPROTOCOL: &str = "v5.channel.k8s.io";
/// The number of bytes of input that are sent at once.
const CHUNK: usize = 32 << 10;

/// Signals that end the verb. The verb handles these signals, because otherwise the terminal would stay in raw
/// mode.
const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
];

/// The terminal on standard input, which is in raw mode until the value is dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enter(wanted: bool) -> Self {
        let stdin = io::stdin();
        let before = wanted.then(|| tcgetattr(stdin.as_fd()).ok()).flatten();
        if let Some(before) = &before {
            let mut raw = before.clone();
            cfmakeraw(&mut raw);
            let _ = tcsetattr(stdin.as_fd(), SetArg::TCSADRAIN, &raw);
        }
        Self(before)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, before);
        }
    }
}

/// The streams that the user wants for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// True if standard input is passed on.
    pub stdin: bool,
    /// True if the container has a terminal for the command.
    pub tty: bool,
}

impl Streams {
    /// Returns the part of a query that requests these streams.
    pub fn query(self) -> String {
        let input = if self.stdin { "&input=1" } else { "" };
        match self.tty {
            true => format!("output=1&tty=1{input}"),
            false => format!("output=1&error=1{input}"),
        }
    }
}

/// Tells whether standard input is a terminal.
pub fn is_terminal() -> bool {
    tcgetattr(io::stdin().as_fd()).is_ok()
}

/// Connects the terminal to a stream until the stream ends, and returns the exit code of the command.
///
/// # Errors
/// Returns a [`CliError`] if the daemon has ended, or if the command could not continue.
pub fn join(socket: Socket, streams: Streams) -> Result<ExitCode, CliError> {
    let is_raw = streams.tty && streams.stdin && is_terminal();
    let mut signals = SigSet::from_iter([Signal::SIGWINCH]);
    if is_raw {
        signals.extend(ENDING);
    }
    // The ending signals are blocked before the terminal is changed. A signal that is not blocked would end the
    // verb and leave the terminal in raw mode.
    let _ = signals.thread_block();
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let signals = signals.map_err(|e| CliError::Failed(format!("cannot wait for signals: {e}")))?;
    let raw = RawTerminal::enter(is_raw);
    let mut joined = Joined {
        socket,
        signals,
        is_open: streams.stdin,
        end: None,
    };
    if streams.tty {
        joined.send_size();
    }
    let over = joined.run();
    drop(raw);
    match over {
        Ok(Over::Signal(n)) => Ok(ExitCode::from(128u8.wrapping_add(n as u8))),
        Ok(Over::Closed) => verdict(joined.end.as_ref()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(CliError::BrokenPipe),
        Err(e) => Err(CliError::Failed(format!("the stream has broken off: {e}"))),
    }
}

/// Converts the daemon's Status into the exit code, or into an error in kubectl's words.
fn verdict(status: Option<&Value>) -> Result<ExitCode, CliError> {
    let Some(status) = status else {
        return Err(CliError::Failed(
            "the stream has ended without a word of how: the daemon has stopped or is being restarted".into(),
        ));
    };
    if status["status"] == "Success" {
        return Ok(ExitCode::SUCCESS);
    }
    let code = status["details"]["causes"][0]["message"].as_str();
    let code = code.and_then(|code| code.parse::<i32>().ok());
    match code.filter(|_| status["reason"] == "NonZeroExitCode") {
        Some(code) => {
            say(&format!("command terminated with exit code {code}"));
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => Err(CliError::Failed(
            status["message"].as_str().unwrap_or_default().to_owned(),
        )),
    }
}

/// The reason why the stream has ended.
enum Over {
    Closed,
    Signal(i32),
}

struct Joined {
    socket: Socket,
    signals: SignalFd,
    /// True if standard input may have more bytes.
    is_open: bool,
    /// The Status that the daemon has sent at the end of the stream.
    end: Option<Value>,
}

impl Joined {
    fn run(&mut self) -> io::Result<Over> {
        let stdin = io::stdin();
        // Messages that came with the handshake are in the socket's own buffer, where `poll` does not see these
        // messages.
        if !self.receive()? {
            return Ok(Over::Closed);
        }
        loop {
            let reads = self.is_open && !self.socket.has_backlog();
            let (has_input, has_signal) = {
                let mut fds = vec![
                    PollFd::new(self.socket.as_fd(), self.socket.events(true)),
                    PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                ];
                fds.extend(reads.then(|| PollFd::new(stdin.as_fd(), PollFlags::POLLIN)));
                match poll(&mut fds, PollTimeout::NONE) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(e) => return Err(e.into()),
                }
                let is_ready = |n: usize| fds.get(n).is_some_and(|fd| fd.any() == Some(true));
                (is_ready(2), is_ready(1))
            };
            let flushed = match self.socket.has_backlog() {
                true => self.socket.flush(),
                false => Ok(()),
            };
            if let Err(e) = flushed {
                return self.broken(&e);
            }
            if has_signal && let Some(n) = self.signalled() {
                return Ok(Over::Signal(n));
            }
            if has_input && let Err(e) = self.send_input() {
                return self.broken(&e);
            }
            if !self.receive()? {
                return Ok(Over::Closed);
            }
        }
    }

    /// Handles a failed write to the daemon. If the daemon has already reported how the command ended, the stream
    /// has ended normally. Otherwise returns an error about the connection to the daemon. Without this text, the
    /// error could be mistaken for a closed output pipe.
    fn broken(&mut self, why: &io::Error) -> io::Result<Over> {
        let received = self.receive();
        match (received, &self.end) {
            (Err(e), _) if e.kind() == io::ErrorKind::BrokenPipe => Err(e),
            (_, Some(_)) => Ok(Over::Closed),
            (_, None) => Err(io::Error::other(why.to_string())),
        }
    }

    /// Reads the pending signals. Returns the number of a signal that ends the verb, if there is one.
    fn signalled(&mut self) -> Option<i32> {
        while let Ok(Some(info)) = self.signals.read_signal() {
            match info.ssi_signo.cast_signed() {
                n if n == Signal::SIGWINCH as i32 => self.send_size(),
                n => return Some(n),
            }
        }
        None
    }

    fn send_size(&mut self) {
        if let Some((width, height)) = terminal::size(&io::stdin()) {
            let size = json!({"Width": width, "Height": height}).to_string();
            // The next read notices a broken stream.
            let _ = self.socket.send(RESIZE, size.as_bytes());
        }
    }

    fn send_input(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        match nix::unistd::read(io::stdin(), &mut chunk) {
            Ok(0) => {
                self.is_open = false;
                self.socket.send(CLOSE, &[STDIN])
            }
            Ok(n) => self.socket.send(STDIN, &chunk[..n]),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            // The terminal was closed.
            Err(_) => {
                self.is_open = false;
                Ok(())
            }
        }
    }

    /// Passes on the messages that have arrived. Returns false at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        loop {
            let received = self.socket.receive();
            let message = match received.map_err(|e| io::Error::other(e.to_string()))? {
                Received::Message(message) => message,
                Received::Nothing => return Ok(true),
                Received::Closed => return Ok(false),
            };
            match message.split_first() {
                Some((&STDOUT, data)) => pass_on(&mut io::stdout().lock(), data)?,
                Some((&STDERR, data)) => pass_on(&mut io::stderr().lock(), data)?,
                Some((&ERROR, status)) if !status.is_empty() => {
                    self.end = json::from_slice(status).ok();
                }
                _ => {}
            }
        }
    }
}

fn pass_on(out: &mut impl Write, data: &[u8]) -> io::Result<()> {
    out.write_all(data)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::server::transport::Transport;

    #[test]
    fn a_query_asks_for_the_streams() {
        let query = |stdin, tty| Streams { stdin, tty }.query();
        assert_eq!(query(false, false), "output=1&error=1");
        assert_eq!(query(true, false), "output=1&error=1&input=1");
        assert_eq!(query(true, true), "output=1&tty=1&input=1");
    }

    /// Makes a stream to a daemon that sends these messages and then ends.
    fn left_by(messages: &[(u8, &str)]) -> Joined {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let transport = |stream| Transport::unix(stream).unwrap();
        let mut daemon = Socket::of_client(transport(theirs), Vec::new());
        for (channel, text) in messages {
            daemon.send(*channel, text.as_bytes()).unwrap();
        }
        Joined {
            socket: Socket::of_server(transport(ours), Vec::new()),
            signals: SignalFd::new(&SigSet::empty()).unwrap(),
            is_open: true,
            end: None,
        }
    }

    #[test]
    fn a_daemon_that_takes_no_more_input_is_no_reader_that_has_gone() {
        let epipe = io::Error::from(io::ErrorKind::BrokenPipe);
        let lost = left_by(&[]).broken(&epipe).err().unwrap();
        assert_eq!(lost.kind(), io::ErrorKind::Other);
        let mut joined = left_by(&[(ERROR, r#"{"status": "Success"}"#)]);
        assert!(matches!(joined.broken(&epipe), Ok(Over::Closed)));
        assert!(verdict(joined.end.as_ref()).is_ok());
    }

    #[test]
    fn an_end_without_a_status_is_no_success() {
        assert!(verdict(None).is_err());
        let lost = json!({"status": "Failure", "reason": "InternalError", "message": "Internal error occurred: x",
            "details": {"causes": [{"message": "7"}]}});
        assert_eq!(
            verdict(Some(&lost)).unwrap_err().to_string(),
            "Internal error occurred: x"
        );
        assert!(verdict(Some(&json!({"status": "Success"}))).is_ok());
    }
}
