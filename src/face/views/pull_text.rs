//! The progress of an image pull, in words and as a bar, for `image pull`, `describe` and the live table. All
//! functions are pure.

use super::human::{duration, size};
use crate::base::clock::Time;
use crate::base::text::visible::one_line;
use crate::engine::images::registry::PullState;
use crate::engine::images::{ImagePull, PullStage};

/// Number of characters between the brackets of a bar.
const BAR: u64 = 30;
/// Time in milliseconds without data, after which the words of a pull mention it.
const QUIET: u64 = 3000;

/// Returns a bar, for example `[##########                    ]`. The bar is blank until the size is known.
pub fn bar(state: PullState) -> String {
    let full = state.bytes.min(state.of_bytes).saturating_mul(BAR) / state.of_bytes.max(1);
    let [full, rest] = [full, BAR - full].map(|n| usize::try_from(n).unwrap_or(0));
    format!("[{}{}]", "#".repeat(full), " ".repeat(rest))
}

/// Returns the percentage, for example `31%`; None until the size is known.
pub fn percent(state: PullState) -> Option<String> {
    let done = state.bytes.min(state.of_bytes).saturating_mul(100);
    (state.of_bytes > 0).then(|| format!("{}%", done / state.of_bytes))
}

/// Returns the figures of a pull, for example `123MB of 389MB, 2 of 5 layers, 2.56MB/s, 48s`, and its problems.
pub fn figures(state: PullState) -> String {
    let PullState { bytes, millis, .. } = state;
    let age = seconds(millis);
    if state.of_bytes == 0 {
        return format!("asking the registry, {age}");
    }
    let mut out = format!(
        "{} of {}, {} of {} layers",
        size(bytes),
        size(state.of_bytes),
        state.layers,
        state.of_layers
    );
    if millis >= 1000 {
        let speed = size(bytes.saturating_mul(1000) / millis);
        out += &format!(", {speed}/s, {age}");
    }
    if bytes < state.of_bytes && state.quiet_millis >= QUIET {
        out += &format!(", nothing for {}", seconds(state.quiet_millis));
    }
    match state.cuts {
        0 => {}
        1 => out += ", cut off once",
        n => out += &format!(", cut off {n} times"),
    }
    out
}

/// Returns the percentage and the figures of a pull.
pub fn words(state: PullState) -> String {
    let figures = figures(state);
    match percent(state) {
        Some(percent) => format!("{percent}, {figures}"),
        None => figures,
    }
}

/// Describes a pull at any stage, without its percentage.
pub fn stage(pull: &ImagePull, now: Time) -> String {
    match &pull.stage {
        PullStage::Queued { millis } => format!("waiting for other pulls, {}", seconds(*millis)),
        PullStage::Pulling { state, .. } => figures(*state),
        PullStage::BackOff { until } => {
            let left = until.unix_seconds() - now.unix_seconds();
            format!("next try in {}", duration(left.max(0)))
        }
    }
}

/// Returns why a layer was cut off, in one line, if the layer waits to be continued.
pub fn cut_off(pull: &ImagePull) -> Option<String> {
    match &pull.stage {
        PullStage::Pulling { cut_off, .. } => cut_off.as_deref().map(one_line),
        _ => None,
    }
}

/// Returns the figures of a pull; None if the pull is not running.
pub fn state(pull: &ImagePull) -> Option<PullState> {
    match &pull.stage {
        PullStage::Pulling { state, .. } => Some(*state),
        _ => None,
    }
}

/// Returns the size, the number of layers, the tenths of the bytes, and the number of cuts. An output that only adds
/// lines gets a new line when one of these numbers changes.
pub fn milestone(state: PullState) -> [u64; 4] {
    let tenths = state.bytes.min(state.of_bytes).saturating_mul(10) / state.of_bytes.max(1);
    [state.of_bytes, state.layers, tenths, state.cuts]
}

fn seconds(millis: u64) -> String {
    duration(i64::try_from(millis / 1000).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HALF: PullState = PullState {
        bytes: 1_500_000,
        of_bytes: 3_000_000,
        layers: 1,
        of_layers: 2,
        cuts: 0,
        millis: 500,
        quiet_millis: 0,
    };

    #[track_caller]
    fn check(state: PullState, expected: &str) {
        assert_eq!(words(state), expected);
    }

    #[test]
    fn the_words_of_a_pull() {
        check(
            PullState {
                millis: 7200,
                ..PullState::default()
            },
            "asking the registry, 7s",
        );
        check(HALF, "50%, 1.50MB of 3.00MB, 1 of 2 layers");
        let later = PullState {
            millis: 4000,
            ..HALF
        };
        check(later, "50%, 1.50MB of 3.00MB, 1 of 2 layers, 375kB/s, 4s");
        let stuck = PullState {
            cuts: 1,
            quiet_millis: 3000,
            ..later
        };
        check(
            stuck,
            "50%, 1.50MB of 3.00MB, 1 of 2 layers, 375kB/s, 4s, nothing for 3s, cut off once",
        );
        // Everything is downloaded, and only unpacking is left.
        let all = PullState {
            bytes: 3_000_000,
            cuts: 2,
            ..stuck
        };
        check(
            all,
            "100%, 3.00MB of 3.00MB, 1 of 2 layers, 750kB/s, 4s, cut off 2 times",
        );
        // The figures do not overflow if a registry reports wrong sizes.
        let huge = PullState {
            bytes: u64::MAX,
            of_bytes: u64::MAX,
            ..HALF
        };
        assert!(words(huge).contains(" of 2 layers"));
    }

    #[test]
    fn the_bar_grows_with_the_bytes() {
        assert_eq!(bar(HALF), format!("[{}{}]", "#".repeat(15), " ".repeat(15)));
        assert_eq!(bar(PullState::default()), format!("[{}]", " ".repeat(30)));
        let more = PullState {
            bytes: 4_000_000,
            ..HALF
        };
        assert_eq!(bar(more), format!("[{}]", "#".repeat(30)));
    }

    #[test]
    fn a_pull_that_does_not_run_says_what_it_waits_for() {
        let pull = |stage| -> ImagePull {
            serde_json::from_value(json!({"image": "app:1", "stage": stage})).unwrap()
        };
        let now: Time = serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap();
        let queued = pull(json!({"queued": {"millis": 12_000}}));
        assert_eq!(stage(&queued, now), "waiting for other pulls, 12s");
        let held = pull(json!({"backOff": {"until": "2026-01-01T00:01:37Z"}}));
        assert_eq!(stage(&held, now), "next try in 37s");
        let due = pull(json!({"backOff": {"until": "2025-01-01T00:00:00Z"}}));
        assert_eq!(stage(&due, now), "next try in 0s");
        let cut = pull(json!({"pulling": {"state": HALF, "cutOff": "a\nb\u{1b}"}}));
        assert_eq!(cut_off(&cut).as_deref(), Some("a b^["));
        assert_eq!((cut_off(&held), state(&cut)), (None, Some(HALF)));
    }

    #[test]
    fn a_line_is_due_for_each_layer_each_tenth_and_each_cut() {
        let differs = |now: PullState| milestone(now) != milestone(HALF);
        let at = |bytes| PullState { bytes, ..HALF };
        assert!(!differs(at(1_799_999)) && differs(at(1_800_000)));
        assert!(differs(PullState { layers: 2, ..HALF }));
        assert!(differs(PullState { cuts: 1, ..HALF }));
        assert!(!differs(PullState {
            millis: 9999,
            quiet_millis: 9999,
            ..HALF
        }));
    }
}
