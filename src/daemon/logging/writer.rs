//! Writes the daemon's log from a thread of its own.
//!
//! Invariants: a thread that logs never waits for the reader of the log. At most [`MOST`] bytes wait. Lines that do not
//! fit, or that cannot be written, are dropped and counted. When writing goes on, a line in the log gives the number of
//! dropped lines.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use jiff::Timestamp;
use log::Level;

use super::line::{Format, Line};
use super::restraint::Restraint;
use crate::base::clock::Moment;
use crate::base::threads;

/// Largest number of bytes that wait.
const MOST: usize = 256 << 10;
/// Largest number of lines that wait.
const LINES: usize = 1024;
const STACK: usize = 64 << 10;
/// Time between two looks of [`Pipe::flush`] at the waiting bytes.
const STEP: Duration = Duration::from_millis(2);

/// Counts of lines and bytes, which the thread shares with those who log.
#[derive(Default)]
struct Counts {
    /// Number of lines that were dropped since the start of the thread.
    dropped: AtomicU64,
    /// Number of bytes that wait to be written.
    waiting: AtomicUsize,
}

/// The end of the log at which lines are handed to the thread.
pub(super) struct Pipe {
    to_thread: Sender<Message>,
    counts: Arc<Counts>,
}

enum Message {
    Line(Line),
    /// The process ends.
    End,
}

impl Message {
    /// Returns the number of bytes that the message counts for.
    fn size(&self) -> usize {
        match self {
            Self::Line(line) => line.text.len() + 64,
            Self::End => 1,
        }
    }
}

impl Pipe {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub(super) fn start(out: Box<dyn Write + Send>, format: Format) -> io::Result<Self> {
        let (to_thread, messages) = bounded(LINES);
        let counts = Arc::new(Counts::default());
        let mut writer = Writer {
            out,
            format,
            messages,
            counts: counts.clone(),
            restraint: Restraint::default(),
            told: 0,
        };
        threads::spawn("log", STACK, move |_, _| writer.round())?;
        Ok(Self { to_thread, counts })
    }

    /// Hands a line to the thread. If there is no room for the line, it is dropped.
    pub(super) fn send(&self, line: Line) {
        self.hand_over(Message::Line(line));
    }

    fn hand_over(&self, message: Message) {
        let (size, waiting) = (message.size(), &self.counts.waiting);
        let before = waiting.fetch_add(size, Ordering::AcqRel);
        let has_room = before + size <= MOST;
        if !has_room || self.to_thread.try_send(message).is_err() {
            waiting.fetch_sub(size, Ordering::AcqRel);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written, and those that were counted, but at most for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        self.hand_over(Message::End);
        let end = Moment::now() + limit;
        while self.counts.waiting.load(Ordering::Acquire) > 0 && Moment::now() < end {
            std::thread::park_timeout(STEP);
        }
    }
}

/// The thread's end of the log.
struct Writer {
    out: Box<dyn Write + Send>,
    format: Format,
    messages: Receiver<Message>,
    counts: Arc<Counts>,
    restraint: Restraint,
    /// Number of dropped lines that the log has already reported.
    told: u64,
}

impl Writer {
    fn round(&mut self) -> ControlFlow<()> {
        let message = match self.restraint.next() {
            None => self.messages.recv().map_err(Into::into),
            Some(due) => self.messages.recv_timeout(due.since(Moment::now())),
        };
        let now = Moment::now();
        let (lines, size) = match message {
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
            Err(RecvTimeoutError::Timeout) => (self.restraint.due(now), 0),
            Ok(message) => {
                let size = message.size();
                let lines = match message {
                    Message::Line(line) => self.restraint.take(now, line),
                    Message::End => self.restraint.end(now),
                };
                (lines, size)
            }
        };
        for line in &lines {
            self.write(line);
        }
        self.tell_what_was_dropped();
        self.counts.waiting.fetch_sub(size, Ordering::AcqRel);
        ControlFlow::Continue(())
    }

    fn write(&mut self, line: &Line) {
        let text = line.written(self.format);
        let written = self.out.write_all(text.as_bytes());
        // The reader is gone, or the disk is full. Neither is an error of this process.
        if written.and_then(|()| self.out.flush()).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports dropped lines, but only when all waiting lines are written.
    fn tell_what_was_dropped(&mut self) {
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        if dropped == self.told || !self.messages.is_empty() {
            return;
        }
        let n = dropped - self.told;
        let line = Line {
            time: Timestamp::now(),
            level: Level::Warn,
            subject: "daemon",
            place: (file!(), line!()),
            text: format!(
                "{n} lines of the log were dropped here, because nobody read it or they could not be written"
            ),
            more: None,
        };
        let text = line.written(self.format);
        if self.out.write_all(text.as_bytes()).is_ok() {
            self.told = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use super::*;
    use crate::base::locks::Locked;

    fn line(n: u64, text: &str) -> Line {
        Line {
            time: Timestamp::now(),
            level: Level::Debug,
            subject: "pods",
            place: ("f.rs", 1),
            text: format!("{n} {text}"),
            more: None,
        }
    }

    /// A log that is not read blocks no thread that logs, and the number of dropped lines is logged once. The pipe in
    /// this test holds 64 KiB, and a write that does not fit blocks until somebody reads.
    #[test]
    fn nobody_waits_for_a_log_that_is_not_read_and_what_is_dropped_is_told_once() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let out = std::fs::File::from(write);
        let log = Pipe::start(Box::new(out), Format::Text).unwrap();
        let text = "x".repeat(1000);
        let all = 1000_u64;
        for n in 0..all {
            log.send(line(n, &text));
        }
        let dropped = log.dropped();
        assert!(dropped > 0 && dropped < all, "{dropped}");
        assert!(log.counts.waiting.load(Ordering::Relaxed) <= MOST);
        drop(log);
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        let told = format!("{dropped} lines of the log were dropped here");
        assert_eq!(text.matches("were dropped").count(), 1);
        assert!(text.contains(&told));
    }

    /// A disk that is full until somebody makes room.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.locked();
            match disk.0 {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => disk.1.write(text),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_for_which_the_disk_has_no_room_are_counted_and_told_later() {
        let disk = Disk::default();
        let log = Pipe::start(Box::new(disk.clone()), Format::Text).unwrap();
        let limit = Duration::from_secs(20);
        disk.0.locked().0 = true;
        log.send(line(1, "lost"));
        log.send(line(2, "lost"));
        log.flush(limit);
        assert_eq!(log.dropped(), 2);
        disk.0.locked().0 = false;
        log.send(line(3, "kept"));
        log.flush(limit);
        log.send(line(4, "kept"));
        log.flush(limit);
        let text = String::from_utf8(disk.0.locked().1.clone()).unwrap();
        assert!(!text.contains("lost") && text.contains("3 kept"), "{text}");
        assert_eq!(
            text.matches("2 lines of the log were dropped here").count(),
            1
        );
    }

    #[test]
    fn the_end_of_the_process_tells_what_was_counted() {
        let disk = Disk::default();
        let log = Pipe::start(Box::new(disk.clone()), Format::Text).unwrap();
        for _ in 0..3 {
            log.send(Line {
                level: Level::Warn,
                ..line(1, "again")
            });
        }
        log.flush(Duration::from_secs(20));
        let text = String::from_utf8(disk.0.locked().1.clone()).unwrap();
        assert_eq!(text.matches("1 again\n").count(), 1, "{text}");
        assert!(text.contains("1 again (2 times more in 0s)"), "{text}");
    }
}
