//! The display of `try`: a table that refreshes in place on a terminal, one plain line per change
//! elsewhere.
//!
//! Invariants: [`frame`] and [`changes`] are pure; the terminal is restored however the display
//! ends.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::columns::{self, Row};
use super::problems::{write_problems, write_stalled};
use super::table::write_rows;
use super::terminal::{Printable, one_line};
use crate::clock::Time;
use crate::events::Event;
use crate::server::Backend;
use crate::views::{PodView, Snapshot};

/// The table is drawn at least this often, because ages grow and the terminal may be resized.
const REFRESH: Duration = Duration::from_millis(500);

/// Shows the backend's pods on stdout until `stop` is set (within [`REFRESH`]) or stdout is closed.
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

/// The terminal's second screen without a cursor. At the end the first screen is shown again as it was.
struct Screen<'a>(&'a mut dyn Write);

impl<'a> Screen<'a> {
    fn enter(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self(out))
    }

    /// Overwrites line by line instead of clearing first, which would flicker.
    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
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

/// Columns and lines; 80 by 24 when the terminal does not say.
fn terminal_size() -> (usize, usize) {
    let size = crate::sys::terminal::size(&io::stdout()).unwrap_or((80, 24));
    (usize::from(size.0).max(20), usize::from(size.1).max(8))
}

/// The screen's lines: those of the title, the table, problems with files, and as many of the last events as fit.
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
    // Writing to a vector does not fail.
    let _ = write_rows(&rows, &mut Vec::new(), &mut text);
    let _ = write_stalled(snapshot, &mut text);
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

/// At most `width` characters of one line.
fn cut(line: &str, width: usize) -> String {
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

/// One line per pod whose row changed, per event that is new or counted again, and per new problem with a file.
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
    let gone = before.pods.iter().filter(|p| find(now, p).is_none());
    lines.extend(gone.map(|p| format!("pod    {}  gone", columns::name(p))));
    let problems = now.problems.iter().filter(|p| !before.problems.contains(p));
    lines.extend(problems.map(|p| format!("file   {}: {}", p.file, p.error)));
    lines
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

/// `0/1 ContainerCreating -> 1/1 Running, 2 restarts`.
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

    /// Lessons F3.
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
