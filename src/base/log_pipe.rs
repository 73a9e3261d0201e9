//! Writes the daemon's log to stderr from a thread of its own.
//!
//! Invariants: a thread that logs never waits for the reader of the log. At most [`MOST`] bytes wait. Lines that do not
//! fit are dropped and counted. When writing goes on, a line in the log gives the number of dropped lines.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::clock::Moment;
use crate::base::threads;

/// Largest number of bytes that wait.
const MOST: usize = 256 << 10;
/// Largest number of lines that wait.
const LINES: usize = 1024;
const STACK: usize = 64 << 10;
/// Time between two looks of [`flush`] at the waiting bytes.
const STEP: Duration = Duration::from_millis(2);

/// Number of lines that were dropped since the start of this process.
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Number of bytes that wait for stderr.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of lines that were dropped since the start of this process.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Starts the thread that writes to stderr, and returns the writer that the logger uses in place of stderr.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
pub fn to_stderr() -> io::Result<impl Write + Send + 'static> {
    start(io::stderr(), &DROPPED, &WAITING)
}

/// Waits until all logged lines are written, but at most for `limit`. The process calls this function at its end.
pub fn flush(limit: Duration) {
    let end = Moment::now() + limit;
    while WAITING.load(Ordering::Acquire) > 0 && Moment::now() < end {
        std::thread::park_timeout(STEP);
    }
}

/// The logger's end of the pipe. Each call of `write` sends one line.
struct Pipe {
    lines: Sender<Vec<u8>>,
    dropped: &'static AtomicU64,
    waiting: &'static AtomicUsize,
}

fn start(
    out: impl Write + Send + 'static,
    dropped: &'static AtomicU64,
    waiting: &'static AtomicUsize,
) -> io::Result<Pipe> {
    let (lines, written) = bounded(LINES);
    let mut drain = Drain {
        out,
        written,
        dropped,
        waiting,
        told: 0,
    };
    threads::spawn("log", STACK, move |_, _| drain.round())?;
    Ok(Pipe {
        lines,
        dropped,
        waiting,
    })
}

impl Write for Pipe {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let before = self.waiting.fetch_add(line.len(), Ordering::AcqRel);
        let has_room = before + line.len() <= MOST;
        if !has_room || self.lines.try_send(line.to_vec()).is_err() {
            self.waiting.fetch_sub(line.len(), Ordering::AcqRel);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Drain<W> {
    out: W,
    written: Receiver<Vec<u8>>,
    dropped: &'static AtomicU64,
    waiting: &'static AtomicUsize,
    /// Number of dropped lines that the log has already reported.
    told: u64,
}

impl<W: Write> Drain<W> {
    fn round(&mut self) -> ControlFlow<()> {
        let Ok(line) = self.written.recv() else {
            return ControlFlow::Break(());
        };
        // A failed write means that the reader of stderr is gone. That is not an error of this process.
        let _ = self.out.write_all(&line).and_then(|()| self.out.flush());
        self.waiting.fetch_sub(line.len(), Ordering::AcqRel);
        let dropped = self.dropped.load(Ordering::Relaxed);
        // The drop is reported only when all waiting lines are written.
        if dropped > self.told && self.written.is_empty() {
            let n = dropped - self.told;
            let _ = writeln!(
                self.out,
                "[podprobe] {n} lines of the log were dropped here, because nobody read it"
            );
            self.told = dropped;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A log that is not read blocks no thread that logs, and the number of dropped lines is logged once. The pipe in
    /// this test holds 64 KiB, and a write that does not fit blocks until somebody reads.
    #[test]
    fn nobody_waits_for_a_log_that_is_not_read_and_what_is_dropped_is_told_once() {
        static OF_TEST: AtomicU64 = AtomicU64::new(0);
        static WAITS: AtomicUsize = AtomicUsize::new(0);
        let (read, write) = nix::unistd::pipe().unwrap();
        let out = std::fs::File::from(write);
        let mut log = start(out, &OF_TEST, &WAITS).unwrap();
        let line = [b'x'; 1023];
        let all = 1000_u64;
        for _ in 0..all {
            log.write_all(&line).unwrap();
            log.write_all(b"\n").unwrap();
        }
        let dropped = OF_TEST.load(Ordering::Relaxed);
        assert!(dropped > 0 && dropped < 2 * all, "{dropped}");
        assert!(WAITS.load(Ordering::Relaxed) <= MOST);
        drop(log);
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        let told = format!("[podprobe] {dropped} lines of the log were dropped here");
        assert_eq!(text.matches("were dropped").count(), 1);
        assert!(text.contains(&told));
        assert_eq!(WAITS.load(Ordering::Relaxed), 0);
    }
}
