//! The action `image pull`: pulls in this process and shows the progress on stderr. On a terminal the progress is
//! a bar. Elsewhere the progress is a line for each layer and for each tenth of the bytes.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::pull_text::{bar, milestone, words};
use super::terminal::say;
use crate::engine::images::manager::PullRequest;
use crate::engine::images::registry::{PullProgress, PullState, RegistryPuller};
use crate::engine::images::{LoadedImage, Reference};

/// The time between two updates of the progress.
const STEP: Duration = Duration::from_millis(200);

/// Pulls one image. Returns a sentence as the error.
pub(super) fn pull(puller: &RegistryPuller, name: &str) -> Result<LoadedImage, String> {
    let image = Reference::parse(name).map_err(|e| e.to_string())?;
    let progress = Arc::new(PullProgress::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shown = scope.spawn(|| show(&image.to_string(), &progress, &done));
        let request = PullRequest {
            image: &image,
            credentials: &[],
            cancelled: &|| false,
        };
        let pulled = puller.pull_watched(&request, progress.clone());
        done.store(true, Ordering::Release);
        shown.thread().unpark();
        pulled.map_err(|e| e.to_string())
    })
}

fn show(name: &str, progress: &PullProgress, done: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let mut last = milestone(PullState::default());
    while !done.load(Ordering::Acquire) {
        let now = progress.state();
        if terminal {
            let line = line(now, columns());
            // An error of the terminal is ignored, because it affects only the progress.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        } else if milestone(now) != last {
            last = milestone(now);
            say(&format!("{name}: {}", words(now)));
        }
        std::thread::park_timeout(STEP);
    }
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Returns the number of the terminal's columns, or 80 if this number is not known.
fn columns() -> usize {
    let size = crate::base::sys::terminal::size(&std::io::stderr());
    size.map_or(80, |(columns, _)| usize::from(columns))
}

/// Returns the line with the progress: the bar and the words, or only the words if the line would be too long. A
/// line that wraps could not be overwritten.
fn line(state: PullState, columns: usize) -> String {
    let words = words(state);
    let whole = format!("{} {words}", bar(state));
    match whole.len() < columns {
        true => whole,
        false => words.chars().take(columns.saturating_sub(1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_the_terminal() {
        let state = PullState {
            bytes: 1_500_000,
            of_bytes: 3_000_000,
            layers: 1,
            of_layers: 2,
            ..PullState::default()
        };
        let words = "50%, 1.50MB of 3.00MB, 1 of 2 layers";
        let bar = format!("[{}{}]", "#".repeat(15), " ".repeat(15));
        assert_eq!(line(state, 80), format!("{bar} {words}"));
        assert_eq!(line(state, 69), words);
        assert_eq!(line(state, 20), &words[..19]);
        assert_eq!(line(state, 0), "");
    }
}
