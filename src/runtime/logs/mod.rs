//! Reading a container's log as CRI runtimes write it: what the container wrote, from the oldest file that is kept.
//!
//! Invariants: knows no pod, no client and no daemon: a path goes in, bytes come out. A log that does not exist is
//! empty. Only the log of one instance is read; which instance is the caller's choice.

mod files;
mod lines;

use std::io::{self, Write};
use std::path::Path;

use files::Files;
use lines::Lines;

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// A log could not be copied.
#[derive(Debug)]
pub enum LogError {
    /// The log cannot be read.
    Read(io::Error),
    /// The writer failed.
    Write(io::Error),
}

/// The log of one instance of a container, read from its beginning.
pub struct LogReader {
    files: Files,
    lines: Lines,
}

impl LogReader {
    /// Opens the log whose current file is `path` (`<attempt>.log`); the rotated files lie beside it.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            files: Files::open(path)?,
            lines: Lines::default(),
        })
    }

    /// Writes every line that has come since the last call, without its CRI prefix.
    ///
    /// # Errors
    /// The log cannot be read, or the writer failed.
    pub fn copy(&mut self, out: &mut dyn Write) -> Result<(), LogError> {
        let mut bytes = vec![0; CHUNK];
        loop {
            match self.files.read(&mut bytes).map_err(LogError::Read)? {
                0 => return Ok(()),
                n => self.lines.push(&bytes[..n], out).map_err(LogError::Write)?,
            }
        }
    }

    /// Writes the last line without an end of line: nothing more will come.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        self.lines.finish(out)
    }
}
