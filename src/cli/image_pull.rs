//! `image pull`: a pull in this process, with its progress on stderr: a bar on a terminal, else a line for each layer.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::human::size;
use super::terminal::say;
use crate::images::manager::PullRequest;
use crate::images::registry::{PullProgress, PullState, RegistryPuller};
use crate::images::{LoadedImage, Reference};

/// How often the progress is written.
const STEP: Duration = Duration::from_millis(200);
/// Characters of the bar.
const BAR: u64 = 30;

/// Pulls one image; the error is a sentence.
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
    let mut last = PullState::default();
    while !done.load(Ordering::Acquire) {
        let now = progress.state();
        if terminal && now.of_bytes > 0 {
            // Nobody reads an error of the terminal.
            let _ = write!(std::io::stderr(), "\r{}\x1b[K", bar(now));
        } else if now.layers != last.layers {
            say(&format!("{name}: {}", words(now)));
        }
        last = now;
        std::thread::park_timeout(STEP);
    }
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn words(state: PullState) -> String {
    format!(
        "{} of {} layers, {} of {}",
        state.layers,
        state.of_layers,
        size(state.bytes),
        size(state.of_bytes)
    )
}

fn bar(state: PullState) -> String {
    let full = state.bytes.min(state.of_bytes).saturating_mul(BAR) / state.of_bytes.max(1);
    let full = usize::try_from(full).unwrap_or(0);
    let rest = usize::try_from(BAR).unwrap_or(0).saturating_sub(full);
    format!(
        "[{}{}] {}",
        "#".repeat(full),
        " ".repeat(rest),
        words(state)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows_with_the_bytes() {
        let state = PullState {
            bytes: 1_500_000,
            of_bytes: 3_000_000,
            layers: 1,
            of_layers: 2,
        };
        let half = format!(
            "[{}{}] 1 of 2 layers, 1.50MB of 3.00MB",
            "#".repeat(15),
            " ".repeat(15)
        );
        assert_eq!(bar(state), half);
        assert!(bar(PullState::default()).starts_with(&format!("[{}]", " ".repeat(30))));
    }
}
