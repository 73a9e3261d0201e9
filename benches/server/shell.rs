//! How soon a shell shows a key: `podprobe exec -it` on a terminal, and the same shell on a terminal of the node.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};

use super::support::figures::{Report, quantile};
use super::support::node::Node;
use super::support::wait_until;
use super::{BUSYBOX, POD, verb};

/// Of a line that does nothing, so that no key is what the one before it was.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx";
const PROMPT: &str = "# ";

pub(super) fn measure(report: &mut Report, node: &Node, keys: usize) {
    let mut shells = [
        (
            "a key's echo in `exec -it`",
            Some(2.0),
            Shell::start(&mut verb(node, &["exec", "-it", POD, "--", "sh"])),
        ),
        (
            "a key's echo in a shell of the node",
            None,
            Shell::start(Command::new(BUSYBOX).arg("sh").env("PS1", PROMPT)),
        ),
    ];
    let mut took = [Vec::new(), Vec::new()];
    while took[0].len() < keys {
        for ((_, _, shell), took) in shells.iter_mut().zip(&mut took) {
            took.extend(shell.line(keys - took.len()));
        }
    }
    for ((name, target, _), took) in shells.iter().zip(&took) {
        took.iter()
            .for_each(|ms| report.add(name, "ms", *target, *ms));
        report.add(&format!("{name}, p99"), "ms", None, quantile(took, 0.99));
    }
}

/// It ends with this.
struct Shell {
    master: File,
    child: Child,
}

impl Shell {
    fn start(command: &mut Command) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let terminal = openpty(Some(&size), None).unwrap();
        let (master, slave) = (File::from(terminal.master), File::from(terminal.slave));
        // A child that had it would keep its own terminal open.
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let command = command.stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = command.spawn().unwrap();
        let mut shell = Self { master, child };
        shell.shows(PROMPT);
        shell
    }

    /// Milliseconds from each of so many keys, or of those of a line, to its echo.
    fn line(&mut self, keys: usize) -> Vec<f64> {
        // Otherwise this terminal would show the keys by itself.
        wait_until("the shell to read keys", || {
            let now = tcgetattr(&self.master).unwrap();
            !now.local_flags.contains(LocalFlags::ECHO)
        });
        self.types(": ");
        self.shows(": ");
        let took = LETTERS.chars().take(keys).map(|key| {
            let key = key.to_string();
            let begun = Instant::now();
            self.types(&key);
            self.shows(&key);
            begun.elapsed().as_secs_f64() * 1e3
        });
        let took = took.collect();
        self.types("\r");
        self.shows(PROMPT);
        took
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    fn shows(&mut self, text: &str) {
        let (mut shown, mut bytes) = (String::new(), [0; 4096]);
        while !shown.contains(text) {
            let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
            assert_eq!(ready, 1, "waited for {text:?}, shown is {shown:?}");
            let n = self.master.read(&mut bytes).unwrap();
            shown.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
