//! Why libcontainer failed. Its processes tell each other only the outermost words ("failed to prepare rootfs"); the cause
//! is in the error events it logs first. They are kept, never printed.

use std::fmt::{Debug, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Appends each error event as one line to a file; all of libcontainer's processes inherit the descriptor.
struct Capture(File);

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let _ = (&self.0).write_all(
            format!("{}{}\n", line.message, line.fields)
                .replace("\n\n", "\n")
                .as_bytes(),
        );
    }

    // Spans are never enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name} {value:?}"),
        };
    }
}

/// Keeps the error events of this process and of those it makes in `file`.
pub(super) fn capture(file: &Path) -> io::Result<()> {
    let log = File::options().create(true).append(true).open(file)?;
    // Only a second call could fail, and this role makes one container.
    let _ = tracing::subscriber::set_global_default(Capture(log));
    Ok(())
}

/// The first event, which is the innermost cause.
pub(super) fn first(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().next().map(str::to_owned)
}
