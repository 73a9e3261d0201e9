//! The log of the daemon: which lines are written, in which form, and where to.
//!
//! Invariants: a line has a subject and no name of a module. What the log writes is bounded: equal lines are counted, one place
//! in the code cannot flood the log ([`restraint`]), and a file is renamed when it is full ([`log_file`]).

mod levels;
mod line;
mod log_file;
mod restraint;
mod subject;
mod writer;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use log::{Log, Metadata, Record};

pub use self::levels::{Levels, LevelsError};
use self::line::Line;
pub use self::line::{Format, FormatError};
pub use self::log_file::LARGEST;
use self::log_file::LogFile;
use self::subject::subject;
use self::writer::Pipe;
use crate::base::live::Live;
use crate::base::locks::Locked;

/// The logger of this process.
static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    levels: Live<Levels>,
    out: Out,
}

/// Where the lines go.
enum Out {
    Thread(Pipe),
    /// Without a thread, for programs that end soon, or if the thread cannot be started.
    Direct(Mutex<Box<dyn Write + Send>>, Format),
}

/// Where the log of the daemon goes.
pub struct Destination {
    out: Box<dyn Write + Send>,
    /// Why the log goes to stderr and not to the file that was asked for.
    problem: Option<String>,
}

impl Destination {
    /// Returns stderr.
    pub fn stderr() -> Self {
        Self {
            out: Box::new(io::stderr()),
            problem: None,
        }
    }

    /// Returns a file, which stderr goes to from now on. If the file cannot be opened, the log goes to stderr and says so.
    pub fn file(path: &Path) -> Self {
        match LogFile::in_place_of_stderr(path) {
            Ok(file) => Self {
                out: Box::new(file),
                problem: None,
            },
            Err(e) => Self {
                problem: Some(format!(
                    "cannot write the log to {}: {e}; it goes to stderr",
                    path.display()
                )),
                ..Self::stderr()
            },
        }
    }
}

/// Starts the log of the daemon, which has a thread that writes. Without a form, it is that of the journal if stderr is the
/// journal, and text otherwise.
pub fn start(levels: Levels, format: Option<Format>, to: Destination) {
    let format = format.unwrap_or_else(|| match is_journal(&io::stderr()) {
        true => Format::Journald,
        false => Format::Text,
    });
    let out = match Pipe::start(to.out, format) {
        Ok(pipe) => Out::Thread(pipe),
        Err(_) => Out::Direct(Mutex::new(Box::new(io::stderr())), format),
    };
    install(Logger {
        levels: Live::new(levels),
        out,
    });
    to.problem.inspect(|problem| log::error!("{problem}"));
}

/// Starts the log of a program that ends soon, which each line is written to at once.
pub fn start_direct(levels: Levels, out: Box<dyn Write + Send>) {
    install(Logger {
        levels: Live::new(levels),
        out: Out::Direct(Mutex::new(out), Format::Text),
    });
}

fn install(logger: Logger) {
    let most = logger.levels.get().most();
    // A process has one logger. In tests there may be one already.
    let logger = LOGGER.get_or_init(|| logger);
    if log::set_logger(logger).is_ok() {
        log::set_max_level(most);
        log_panics();
    }
}

/// Changes the levels of the log from now on.
pub fn set_levels(levels: Levels) {
    if let Some(logger) = LOGGER.get() {
        log::set_max_level(levels.most());
        logger.levels.set(levels);
    }
}

/// Returns the number of lines that were dropped since the start of this process.
pub fn dropped() -> u64 {
    LOGGER.get().map_or(0, |logger| match &logger.out {
        Out::Thread(pipe) => pipe.dropped(),
        Out::Direct(..) => 0,
    })
}

/// Waits until all lines are written, but at most for `limit`. The process calls this function at its end.
pub fn flush(limit: Duration) {
    if let Some(Out::Thread(pipe)) = LOGGER.get().map(|logger| &logger.out) {
        pipe.flush(limit);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let levels = self.levels.get();
        metadata.level() <= levels.of(subject(metadata.target()))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = Line {
            time: Timestamp::now(),
            level: record.level(),
            subject: subject(record.target()),
            place: (
                record.file_static().unwrap_or_default(),
                record.line().unwrap_or_default(),
            ),
            text: record.args().to_string(),
            more: None,
        };
        match &self.out {
            Out::Thread(pipe) => pipe.send(line),
            Out::Direct(out, format) => {
                // The reader of stderr may be gone, which is no error of this process.
                let _ = out.locked().write_all(line.written(*format).as_bytes());
            }
        }
    }

    fn flush(&self) {}
}

/// Logs panics with their places, so that the log has them in the form of all lines. A stack trace goes to stderr, if
/// RUST_BACKTRACE asks for it.
fn log_panics() {
    let with_trace = panic::take_hook();
    let has_trace = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        log::error!("thread {} has {info}", thread.name().unwrap_or("unnamed"));
        if has_trace {
            with_trace(info);
        }
    }));
}

/// Tells whether a descriptor goes to systemd's journal, which names the descriptor in JOURNAL_STREAM.
fn is_journal(fd: &impl AsFd) -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stat = nix::sys::stat::fstat(fd.as_fd());
    stat.is_ok_and(|s| named == format!("{}:{}", s.st_dev, s.st_ino))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.locked().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_a_line_of_the_log_with_its_place() {
        let memory = Memory::default();
        start_direct(Levels::default(), Box::new(memory.clone()));
        let worker = std::thread::Builder::new().name("worker".into());
        let thread = worker.spawn(|| panic!("lost")).unwrap();
        assert!(thread.join().is_err());
        drop(panic::take_hook());
        let text = String::from_utf8(memory.0.locked().clone()).unwrap();
        let start = "ERROR daemon] thread worker has panicked at src/daemon/logging/mod.rs:";
        assert!(
            text.contains(start) && text.contains(":\n    lost\n"),
            "{text}"
        );
    }
}
