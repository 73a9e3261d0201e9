//! The display of `try`: on a terminal a table that is refreshed in place, and elsewhere a line for each change.
//!
//! Invariants: [`frame`] and [`changes`] are pure. The terminal is restored when the display ends, even after an
//! error.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::columns::{self, Row};
use super::problems::{write_node_lines, write_problems};
use super::pull_text;
use super::table::write_rows;
use super::terminal::{Printable, one_line};
use crate::base::clock::Time;
use crate::engine::images::ImagePull;
use crate::face::server::Backend;
use crate::face::views::{PodView, Snapshot};
use crate::pods::events::Event;

/// The longest time between two updates of the table. Updates are needed without changes, too, because ages
/// grow and the terminal may be resized.
const REFRESH: Duration = Duration::from_millis(500);

/// The number of terminal columns from which a pull is shown with a bar.
const WITH_A_BAR: usize = 120;

/// Shows the backend's pods on stdout. Returns when stdout is closed, or within [`REFRESH`] after `stop` is
/// set.
pub fn show(backend: &dyn Backend, title: &str, stop: &AtomicBool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        show_table(backend, title, stop, &mut out)
    } else {
        show_lines(backend, title, stop, &mut Printable::new(out))
    }
}

fn show_table(
    backend: &dyn Backend,
    title: &str,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut screen = Screen::enter(out)?;
    let mut snapshot = backend.snapshot();
    while !stop.load(Ordering::SeqCst) {
        let (width, height) = terminal_size();
        screen.draw(&frame(&snapshot, title, Time::now(), width, height))?;
        snapshot = Arc::new(snapshot.updated(backend.watch(snapshot.version, REFRESH)));
    }
    Ok(())
}

/// The terminal's alternate screen, without a cursor. Dropping the value restores the first screen.
pub(super) struct Screen<'a>(&'a mut dyn Write);

impl<'a> Screen<'a> {
    pub(super) fn enter(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self(out))
    }

    /// Draws the lines over the old lines. The screen is not cleared first, because it would flicker.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let text = lines.join("\x1b[K\r\n");
        write!(self.0, "\x1b[H{text}\x1b[K\x1b[J")?;
        self.0.flush()
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = self.0.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = self.0.flush();
    }
}

/// Returns the numbers of columns and lines of the terminal, or 80 by 24 if the size is not known.
pub(super) fn terminal_size() -> (usize, usize) {
    let size = crate::base::sys::terminal::size(&io::stdout()).unwrap_or((80, 24));
    (usize::from(size.0).max(20), usize::from(size.1).max(8))
}

/// Returns the lines of the screen: the title, the table, pulls, problems with files, and as many of the latest
/// events as fit.
fn frame(snapshot: &Snapshot, title: &str, now: Time, width: usize, height: usize) -> Vec<String> {
    let mut text = Vec::new();
    let mut rows = vec![
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(
        snapshot
            .pods
            .iter()
            .map(|p| Row::new(p, now))
            .map(|r| vec![r.name, r.ready, r.status, r.restarts, r.age]),
    );
    // Writing to a vector cannot fail.
    let _ = write_rows(&rows, &mut Vec::new(), &mut text);
    let pulls = pulls(snapshot);
    for (n, (pod, pull)) in pulls.iter().enumerate() {
        let blank = if n == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{blank}{}", pull_line(pod, pull, now, width));
    }
    let _ = write_node_lines(snapshot, &mut text);
    let _ = write_problems(snapshot, |_| true, &mut text);
    let mut lines: Vec<String> = title.lines().map(str::to_owned).collect();
    lines.push(String::new());
    lines.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
    let room = height.saturating_sub(lines.len() + 2);
    if room > 0 {
        lines.push(String::new());
        lines.extend(last_events(snapshot, room, now));
    }
    lines.truncate(height.saturating_sub(1));
    lines.iter().map(|l| cut(l, width)).collect()
}

fn pulls(snapshot: &Snapshot) -> Vec<(&PodView, &ImagePull)> {
    let pods = snapshot.pods.iter();
    pods.flat_map(|pod| pod.pulls.iter().map(move |pull| (&**pod, pull)))
        .collect()
}

/// Returns the line of a running pull. The most important words come first, because a narrow terminal cuts the end
/// of the line.
fn pull_line(pod: &PodView, pull: &ImagePull, now: Time, width: usize) -> String {
    let state = pull_text::state(pull);
    let percent = state.and_then(pull_text::percent).unwrap_or_default();
    let bar = match state.filter(|s| s.of_bytes > 0 && width >= WITH_A_BAR) {
        Some(state) => format!("{}  ", pull_text::bar(state)),
        None => String::new(),
    };
    let (name, image) = (columns::name(pod), one_line(&pull.image));
    let stage = pull_text::stage(pull, now);
    let why = cut_off(pull);
    format!("{percent:>5}  {bar}{name}  {stage}{why}  {image}")
}

fn cut_off(pull: &ImagePull) -> String {
    pull_text::cut_off(pull).map_or(String::new(), |why| format!(" ({why})"))
}

fn last_events(snapshot: &Snapshot, room: usize, now: Time) -> Vec<String> {
    let mut events: Vec<&Event> = snapshot
        .pods
        .iter()
        .flat_map(|p| &p.events)
        .map(AsRef::as_ref)
        .collect();
    events.sort_by_key(|e| e.last_timestamp);
    let skip = events.len().saturating_sub(room);
    let text = |e: &&Event| format!("{:>5}  {}", columns_age(e, now), event_text(e));
    events[skip..].iter().map(text).collect()
}

fn columns_age(e: &Event, now: Time) -> String {
    super::human::since(Some(e.last_timestamp), now)
}

fn event_text(e: &Event) -> String {
    let times = if e.count > 1 {
        format!(" (x{})", e.count)
    } else {
        String::new()
    };
    format!("{}  {}{times}: {}", e.pod, e.reason, e.message.trim())
}

/// Returns at most `width` characters of the line.
pub(super) fn cut(line: &str, width: usize) -> String {
    one_line(line).chars().take(width).collect()
}

fn show_lines(
    backend: &dyn Backend,
    title: &str,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let begun = Instant::now();
    writeln!(out, "{title}")?;
    let mut shown: Arc<Snapshot> = Arc::default();
    let mut next = backend.snapshot();
    while !stop.load(Ordering::SeqCst) {
        for line in changes(&shown, &next) {
            writeln!(out, "{:7.1}s  {line}", begun.elapsed().as_secs_f64())?;
        }
        out.flush()?;
        shown = next;
        next = Arc::new(shown.updated(backend.watch(shown.version, REFRESH)));
    }
    Ok(())
}

/// Returns the lines about the changes from `before` to `now`. There is a line for each pod whose row changed, for
/// each step of a pull, for each event that is new or counted again, and for each new problem with a file.
fn changes(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for pod in &now.pods {
        let old = find(before, pod);
        lines.extend(new_events(old, pod).map(|e| format!("event  {}", cut(&event_text(e), 500))));
        if old.is_none_or(|old| columns::visible(old) != columns::visible(pod)) {
            lines.push(format!(
                "pod    {}  {}",
                columns::name(pod),
                row_text(old, pod)
            ));
        }
    }
    let known: Vec<_> = steps(before).map(|(step, _)| step).collect();
    let news = steps(now).filter(|(step, _)| !known.contains(step));
    lines.extend(news.map(|(_, line)| line));
    let gone = before.pods.iter().filter(|p| find(now, p).is_none());
    lines.extend(gone.map(|p| format!("pod    {}  gone", columns::name(p))));
    let problems = now.problems.iter().filter(|p| !before.problems.contains(p));
    lines.extend(problems.map(|p| format!("file   {}: {}", p.file, p.error)));
    lines
}

/// Returns the progress of each running pull as a value that can be compared, and the line about the pull.
fn steps(snapshot: &Snapshot) -> impl Iterator<Item = ((&str, &str, [u64; 4]), String)> {
    pulls(snapshot).into_iter().filter_map(|(pod, pull)| {
        let state = pull_text::state(pull)?;
        let step = (pod.uid(), pull.image.as_str(), pull_text::milestone(state));
        let (name, words) = (columns::name(pod), pull_text::words(state));
        let why = cut_off(pull);
        let line = format!("pull   {name}  {}: {words}{why}", one_line(&pull.image));
        Some((step, line))
    })
}

fn find<'a>(snapshot: &'a Snapshot, pod: &PodView) -> Option<&'a PodView> {
    let same = |p: &&Arc<PodView>| {
        columns::name(p) == columns::name(pod) && columns::namespace(p) == columns::namespace(pod)
    };
    snapshot.pods.iter().find(same).map(AsRef::as_ref)
}

fn new_events<'a>(old: Option<&PodView>, pod: &'a PodView) -> impl Iterator<Item = &'a Event> {
    let known: Vec<Arc<Event>> = old.map(|p| p.events.clone()).unwrap_or_default();
    let events = pod.events.iter().filter(move |e| !known.contains(e));
    events.map(AsRef::as_ref)
}

/// Returns the change of a pod's row, such as `0/1 ContainerCreating -> 1/1 Running, 2 restarts`.
fn row_text(old: Option<&PodView>, pod: &PodView) -> String {
    let text = |p: &PodView| format!("{} {}", columns::ready(p), columns::status_word(p));
    let restarts = match columns::restart_count(pod) {
        0 => String::new(),
        1 => ", 1 restart".into(),
        n => format!(", {n} restarts"),
    };
    match old.map(text).filter(|old| *old != text(pod)) {
        Some(old) => format!("{old} -> {}{restarts}", text(pod)),
        None => format!("{}{restarts}", text(pod)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(ready: bool, restarts: u32, events: &[(&str, u32)]) -> Snapshot {
        let event = |(reason, count): &(&str, u32)| {
            json!({"namespace": "default", "pod": "web-edge", "uid": "u", "fieldPath": "", "type": "Normal", "reason": reason,
                   "message": "why\u{1b}[2J", "count": count,
                   "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:50Z"})
        };
        let events: Vec<_> = events.iter().map(event).collect();
        serde_json::from_value(json!({"version": 1, "nodeName": "edge", "problems": [], "pods": [{
            "object": {"metadata": {"name": "web-edge", "namespace": "default"}, "spec": {"containers": [{"name": "c"}]}},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [
                {"name": "c", "ready": ready, "restartCount": restarts, "state": {"running": {"startedAt": null}}}]},
            "file": "web.json", "warnings": [], "terminating": false, "logDir": "", "events": events}]}))
        .unwrap()
    }

    fn at_one_minute() -> Time {
        serde_json::from_value(json!("2026-01-01T00:01:00Z")).unwrap()
    }

    #[test]
    fn the_frame_fits_the_terminal() {
        let snapshot = snapshot(true, 0, &[("Pulled", 1), ("Unhealthy", 3)]);
        let lines = frame(&snapshot, "title", at_one_minute(), 80, 24);
        let expected = [
            "title",
            "",
            "NAME       READY   STATUS    RESTARTS   AGE",
            "web-edge   1/1     Running   0          60s",
            "",
            "  10s  web-edge  Pulled: why^[[2J",
            "  10s  web-edge  Unhealthy (x3): why^[[2J",
        ];
        assert_eq!(lines, expected);
        for (width, height) in [(20, 8), (10, 5), (80, 7)] {
            let lines = frame(
                &snapshot,
                "a title that is rather long",
                at_one_minute(),
                width,
                height,
            );
            assert!(
                lines.len() < height && lines.iter().all(|l| l.chars().count() <= width),
                "{lines:?}"
            );
        }
        assert_eq!(
            frame(&snapshot, "t", at_one_minute(), 80, 7)
                .last()
                .unwrap(),
            "  10s  web-edge  Unhealthy (x3): why^[[2J"
        );
    }

    /// Lessons F3: users see that the sync loop of the daemon stands still.
    #[test]
    fn f3_a_daemon_that_stands_still_is_told_of() {
        let still = Snapshot {
            stalled: Some("the sync loop has not turned for 3m0s".into()),
            ..snapshot(true, 0, &[])
        };
        let lines = |snapshot: &Snapshot| frame(snapshot, "title", at_one_minute(), 80, 24);
        assert_eq!(
            lines(&still)[4],
            "podprobe: the sync loop has not turned for 3m0s"
        );
        assert!(
            !lines(&snapshot(true, 0, &[]))
                .iter()
                .any(|l| l.contains("sync loop"))
        );
    }

    #[test]
    fn plain_lines_tell_changes_only() {
        let before = snapshot(false, 0, &[("Started", 1)]);
        assert_eq!(
            changes(&Snapshot::default(), &before),
            [
                "event  web-edge  Started: why^[[2J",
                "pod    web-edge  0/1 Running"
            ]
        );
        assert_eq!(changes(&before, &before), Vec::<String>::new());
        let ready = snapshot(true, 0, &[("Started", 1)]);
        assert_eq!(
            changes(&before, &ready),
            ["pod    web-edge  0/1 Running -> 1/1 Running"]
        );
        let restarted = snapshot(true, 2, &[("Started", 3)]);
        assert_eq!(
            changes(&ready, &restarted),
            [
                "event  web-edge  Started (x3): why^[[2J",
                "pod    web-edge  1/1 Running, 2 restarts"
            ]
        );
        assert_eq!(
            changes(&ready, &Snapshot::default()),
            ["pod    web-edge  gone"]
        );
    }

    /// Makes a snapshot with one pull. The pull has read `bytes` of 3,000,000 bytes and `layers` of 2 layers.
    /// `cut_off` says why the pull was cut off.
    fn pulling(bytes: u64, layers: u64, cut_off: Option<&str>) -> Snapshot {
        let mut value = serde_json::to_value(snapshot(false, 0, &[])).unwrap();
        let state = json!({"bytes": bytes, "ofBytes": 3_000_000, "layers": layers, "ofLayers": 2,
            "cuts": u64::from(cut_off.is_some()), "millis": 4000, "quietMillis": 0});
        let stage = json!({"pulling": {"state": state, "cutOff": cut_off}});
        value["pods"][0]["pulls"] =
            json!([{"image": "registry.example/team/app:1", "stage": stage}]);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_frame_shows_pulls_and_a_narrow_one_how_far_they_are() {
        let half = pulling(1_500_000, 1, None);
        let shown = |snapshot: &Snapshot, width| {
            let lines = frame(snapshot, "title", at_one_minute(), width, 24);
            assert!(
                lines.iter().all(|l| l.chars().count() <= width),
                "{lines:?}"
            );
            assert_eq!(lines[4], "");
            lines[5].clone()
        };
        let whole = "  50%  web-edge  1.50MB of 3.00MB, 1 of 2 layers, 375kB/s, 4s  registry.example/team/app:1";
        assert_eq!(shown(&half, 110), whole);
        assert_eq!(shown(&half, 40), whole[..40]);
        let bar = format!("  50%  [{}{}]  web-edge", "#".repeat(15), " ".repeat(15));
        assert!(shown(&half, 120).starts_with(&bar), "{}", shown(&half, 120));
        let cut = pulling(1_500_000, 1, Some("the end\u{1b}"));
        let line = shown(&cut, 140);
        assert!(line.contains(", cut off once (the end^[)"), "{line}");
        let mut waits = half;
        let stage = json!({"backOff": {"until": "2026-01-01T00:01:37Z"}});
        Arc::make_mut(&mut waits.pods[0]).pulls[0].stage = serde_json::from_value(stage).unwrap();
        let line = shown(&waits, 80);
        assert!(
            line.starts_with("       web-edge  next try in 37s  registry"),
            "{line}"
        );
    }

    #[test]
    fn plain_lines_tell_the_steps_of_a_pull() {
        let lines = |from: (u64, u64), to: (u64, u64)| {
            changes(&pulling(from.0, from.1, None), &pulling(to.0, to.1, None))
        };
        assert_eq!(lines((1_500_000, 1), (1_600_000, 1)), [] as [&str; 0]);
        assert_eq!(
            lines((1_500_000, 1), (1_800_000, 1)),
            [
                "pull   web-edge  registry.example/team/app:1: 60%, 1.80MB of 3.00MB, 1 of 2 layers, 450kB/s, 4s"
            ]
        );
        assert_eq!(lines((3_000_000, 1), (3_000_000, 2)).len(), 1);
        let cut = pulling(1_500_000, 1, Some("the end"));
        let line = changes(&pulling(1_500_000, 1, None), &cut).remove(0);
        assert!(line.ends_with(", cut off once (the end)"), "{line}");
        assert_eq!(changes(&cut, &snapshot(false, 0, &[])), [] as [&str; 0]);
    }

    #[test]
    fn the_screen_is_restored_also_after_a_panic() {
        let mut out = Vec::new();
        let drawn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut screen = Screen::enter(&mut out).unwrap();
            screen.draw(&["x".into()]).unwrap();
            panic!("on purpose");
        }));
        assert!(drawn.is_err());
        assert!(out.ends_with(b"\x1b[?25h\x1b[?1049l"));
    }
}
