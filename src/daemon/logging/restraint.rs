//! Decides which lines of the log are written, so that a log that nobody looks at for a year stays small.
//!
//! Rules:
//! - After a line was written, an equal line is counted for [`FIRST_WAIT`] and not written. Then it is written once more with
//!   the count, and the next wait is twice as long, up to [`LONGEST_WAIT`]. After so long without it the line is new again.
//! - Of lines from one place in the code, also of those with a count, [`BURST`] are written at once, and then one for each
//!   [`INTERVAL`]. Others are counted. The last of them is written with the count when [`LONGEST_WAIT`] has passed since the
//!   first of them.
//! - Lines of the levels debug and trace are always written, because somebody has asked for them.
//!
//! Invariants: the clock is an argument. At most [`MOST`] lines are remembered, each without its text unless it was counted.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use log::Level;

use super::line::{Line, More, Place};
use crate::base::clock::Moment;

/// Time after a line in which equal lines are counted at first.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// Longest time in which lines are counted.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Largest number of lines that one place in the code may write at once.
const BURST: u32 = 1000;
/// Time in which one place in the code may write one more line after its burst.
const INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of lines that are remembered.
const MOST: usize = 512;

/// Memory of the lines that were written.
#[derive(Default)]
pub(super) struct Restraint {
    hasher: RandomState,
    lines: Vec<Known>,
    places: Vec<Bucket>,
    next: Option<Moment>,
}

/// A line that was written, and the equal ones since then.
struct Known {
    hash: u64,
    wait: Duration,
    counted: Counted,
}

/// The lines that were counted since a moment, and the last of them.
struct Counted {
    since: Moment,
    count: u64,
    last: Option<Line>,
}

impl Counted {
    const fn begun(since: Moment) -> Self {
        Self {
            since,
            count: 0,
            last: None,
        }
    }

    fn add(&mut self, line: Line) {
        self.count += match line.more {
            Some(More::Same(n, _) | More::Like(n, _)) => n,
            None => 1,
        };
        self.last = Some(line);
    }

    /// Returns the last line that was counted, with the count as `more` gives it, and begins anew. Does nothing if no line was
    /// counted.
    fn sum(&mut self, now: Moment, more: fn(u64, Duration) -> More) -> Option<Line> {
        let line = self.last.take()?;
        let time = Duration::from_secs(now.since(self.since).as_secs());
        let more = Some(more(self.count, time));
        *self = Self::begun(now);
        Some(Line { more, ..line })
    }
}

/// Number of lines that a place in the code may write.
struct Bucket {
    place: Place,
    left: u32,
    /// Moment at which `left` last grew.
    filled: Moment,
    held: Option<Counted>,
}

impl Bucket {
    const fn full(place: Place, now: Moment) -> Self {
        Self {
            place,
            left: BURST,
            filled: now,
            held: None,
        }
    }

    fn take(&mut self, now: Moment) -> bool {
        let earned = now.since(self.filled).as_secs() / INTERVAL.as_secs();
        let earned = u32::try_from(earned).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.filled = now;
        }
        let has_room = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_room
    }
}

impl Restraint {
    /// Takes a new line, and returns the lines that are to be written now.
    pub(super) fn take(&mut self, now: Moment, line: Line) -> Vec<Line> {
        if line.level >= Level::Debug {
            return vec![line];
        }
        let mut written = self.due(now);
        let hash = self.hasher.hash_one((line.level, line.subject, &line.text));
        match self.lines.iter_mut().find(|known| known.hash == hash) {
            Some(known) => {
                let quiet = now.since(known.counted.since);
                if quiet < known.wait {
                    known.counted.add(line);
                    let due = known.counted.since + known.wait;
                    self.wake_at(due);
                    return written;
                }
                known.wait = match quiet < LONGEST_WAIT {
                    true => (known.wait * 2).min(LONGEST_WAIT),
                    false => FIRST_WAIT,
                };
                known.counted = Counted::begun(now);
            }
            None => {
                let forgotten = self.make_room(now);
                written.extend(forgotten.and_then(|line| self.take_from_place(now, line)));
                self.lines.push(Known {
                    hash,
                    wait: FIRST_WAIT,
                    counted: Counted::begun(now),
                });
            }
        }
        written.extend(self.take_from_place(now, line));
        written
    }

    fn take_from_place(&mut self, now: Moment, line: Line) -> Option<Line> {
        let known = self.places.iter().position(|b| b.place == line.place);
        let at = known.unwrap_or_else(|| {
            self.places.push(Bucket::full(line.place, now));
            self.places.len() - 1
        });
        let bucket = &mut self.places[at];
        if bucket.take(now) {
            return Some(line);
        }
        let held = bucket.held.get_or_insert(Counted::begun(now));
        held.add(line);
        let due = held.since + LONGEST_WAIT;
        self.wake_at(due);
        None
    }

    /// Forgets the line that was written first if there is no room for another. Returns it if it was counted.
    fn make_room(&mut self, now: Moment) -> Option<Line> {
        if self.lines.len() < MOST {
            return None;
        }
        let lines = self.lines.iter().enumerate();
        let (oldest, _) = lines.min_by_key(|(_, known)| known.counted.since)?;
        let mut oldest = self.lines.swap_remove(oldest);
        oldest.counted.sum(now, More::Same)
    }

    fn wake_at(&mut self, due: Moment) {
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
    }

    /// Returns the moment at which [`Self::due`] has something to do.
    pub(super) fn next(&self) -> Option<Moment> {
        self.next
    }

    /// Returns the lines with counts that are to be written now.
    pub(super) fn due(&mut self, now: Moment) -> Vec<Line> {
        if self.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        self.next = None;
        let (mut sums, mut next) = (Vec::new(), Vec::new());
        self.lines.retain_mut(|known| {
            let is_over = now.since(known.counted.since) >= known.wait;
            if is_over && let Some(line) = known.counted.sum(now, More::Same) {
                known.wait = (known.wait * 2).min(LONGEST_WAIT);
                sums.push(line);
            } else if known.counted.count > 0 {
                next.push(known.counted.since + known.wait);
            }
            known.counted.count > 0 || now.since(known.counted.since) < LONGEST_WAIT
        });
        let mut written: Vec<Line> = sums
            .into_iter()
            .filter_map(|line| self.take_from_place(now, line))
            .collect();
        for bucket in &mut self.places {
            let is_over = |held: &mut Counted| now.since(held.since) >= LONGEST_WAIT;
            let mut held = bucket.held.take_if(is_over);
            written.extend(held.as_mut().and_then(|held| held.sum(now, More::Like)));
            next.extend(bucket.held.as_ref().map(|held| held.since + LONGEST_WAIT));
        }
        next.into_iter().for_each(|due| self.wake_at(due));
        written
    }

    /// Returns all lines with counts, and forgets everything.
    pub(super) fn end(&mut self, now: Moment) -> Vec<Line> {
        let mut before = std::mem::take(self);
        let lines = before.lines.iter_mut();
        let same = lines.filter_map(|known| known.counted.sum(now, More::Same));
        let places = before.places.iter_mut();
        let held = places.filter_map(|bucket| bucket.held.as_mut());
        let like = held.filter_map(|held| held.sum(now, More::Like));
        same.chain(like).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, place: u32) -> Line {
        Line {
            time: jiff::Timestamp::UNIX_EPOCH,
            level: Level::Warn,
            subject: "pods",
            place: ("f.rs", place),
            text: text.into(),
            more: None,
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        let text = |l: &Line| {
            let more = l.more.map(|m| m.to_string());
            format!("{}{}", l.text, more.unwrap_or_default())
        };
        lines.iter().map(text).collect()
    }

    #[test]
    fn an_equal_line_is_counted_and_written_with_its_count_after_waits_that_double() {
        let mut log = Restraint::default();
        assert_eq!(texts(&log.take(at(0), line("a", 1))), ["a"]);
        assert_eq!(log.next(), None);
        let mut written = Vec::new();
        for second in 1..=2500 {
            let lines = log.take(at(second), line("a", 1));
            written.extend(texts(&lines).into_iter().map(|text| (second, text)));
        }
        let line = |second, text: &str| (second, text.to_owned());
        assert_eq!(
            written,
            [
                line(10, "a (9 times more in 10s)"),
                line(30, "a (20 times more in 20s)"),
                line(70, "a (40 times more in 40s)"),
                line(150, "a (80 times more in 1m20s)"),
                line(310, "a (160 times more in 2m40s)"),
                line(630, "a (320 times more in 5m20s)"),
                line(1230, "a (600 times more in 10m0s)"),
                line(1830, "a (600 times more in 10m0s)"),
                line(2430, "a (600 times more in 10m0s)"),
            ]
        );
        assert_eq!(log.next(), Some(at(3030)));
        let told = texts(&log.due(at(3030)));
        assert_eq!(told, ["a (71 times more in 10m0s)"]);
        assert_eq!(log.next(), None);
    }

    #[test]
    fn a_line_that_comes_after_its_wait_is_written_at_once_and_waits_longer() {
        let mut log = Restraint::default();
        let times = [0, 10, 30, 70].map(|second| log.take(at(second), line("a", 1)).len());
        assert_eq!(times, [1, 1, 1, 1]);
        assert!(log.take(at(149), line("a", 1)).is_empty());
        assert_eq!(texts(&log.due(at(150))), ["a (1 time more in 1m20s)"]);
        // After ten minutes of quiet the line is new.
        assert_eq!(log.take(at(750), line("a", 1)).len(), 1);
        assert!(log.take(at(759), line("a", 1)).is_empty());
        assert_eq!(texts(&log.due(at(760))), ["a (1 time more in 10s)"]);
    }

    #[test]
    fn a_line_that_does_not_come_again_is_forgotten() {
        let mut log = Restraint::default();
        log.take(at(0), line("a", 1));
        log.take(at(595), line("b", 1));
        log.take(at(596), line("b", 1));
        log.due(at(605));
        assert_eq!(log.lines.len(), 1);
    }

    #[test]
    fn lines_that_differ_in_level_subject_or_text_are_not_equal() {
        let mut log = Restraint::default();
        let other = [
            line("a", 1),
            line("b", 1),
            Line {
                level: Level::Info,
                ..line("a", 1)
            },
            Line {
                subject: "images",
                ..line("a", 1)
            },
        ];
        for line in other {
            assert_eq!(log.take(at(0), line.clone()), [line]);
        }
    }

    #[test]
    fn what_somebody_has_asked_for_is_always_written() {
        let mut log = Restraint::default();
        let debug = Line {
            level: Level::Debug,
            ..line("a", 1)
        };
        for _ in 0..2 * BURST {
            assert_eq!(log.take(at(0), debug.clone()).len(), 1);
        }
        assert_eq!(log.next(), None);
    }

    #[test]
    fn one_place_writes_a_burst_and_then_a_line_every_ten_seconds() {
        let mut log = Restraint::default();
        let mut n = 0;
        let mut take = |log: &mut Restraint, now, place| {
            n += 1;
            log.take(now, line(&n.to_string(), place)).len()
        };
        let written = (0..BURST).map(|_| take(&mut log, at(0), 1)).sum::<usize>();
        assert_eq!(written, BURST as usize);
        assert_eq!(take(&mut log, at(9), 1), 0);
        // Another place is not held up.
        assert_eq!(take(&mut log, at(9), 2), 1);
        assert_eq!(take(&mut log, at(10), 1), 1);
        assert_eq!(take(&mut log, at(10), 1), 0);
        assert_eq!(log.next(), Some(at(609)));
        let told = texts(&log.due(at(609)));
        assert_eq!(
            told,
            ["1004 (2 lines like it, which are not written, in 10m0s)"]
        );
        // Sixty lines were earned meanwhile, and no more than a burst ever.
        let later = (0..2 * BURST).map(|_| take(&mut log, at(610), 1));
        assert_eq!(later.sum::<usize>(), 60);
        log.due(at(1_000_000));
        let much_later = (0..2 * BURST).map(|_| take(&mut log, at(1_000_000), 1));
        assert_eq!(much_later.sum::<usize>(), BURST as usize);
        // A part of a burst that is left is not added to the next one.
        log.due(at(1_001_000));
        assert_eq!(take(&mut log, at(1_001_000), 1), 1);
        let still_later = (0..2 * BURST).map(|_| take(&mut log, at(2_000_000), 1));
        assert_eq!(still_later.sum::<usize>(), BURST as usize);
    }

    #[test]
    fn lines_with_counts_do_not_flood_the_log_either() {
        let mut log = Restraint::default();
        let lines = 300;
        let mut written = 0;
        for second in 0..7200 {
            for n in 0..lines {
                written += log.take(at(second), line(&n.to_string(), 1)).len();
            }
        }
        let most = u64::from(BURST) + 7200 / INTERVAL.as_secs() + 7200 / LONGEST_WAIT.as_secs();
        assert!(written as u64 <= most, "{written} lines, at most {most}");
        // Every line is told in one way or the other.
        let told: u64 = log
            .end(at(7200))
            .into_iter()
            .map(|line| match line.more {
                Some(More::Same(n, _) | More::Like(n, _)) => n,
                None => 0,
            })
            .sum();
        assert!(told > 100 * lines, "{told}");
    }

    #[test]
    fn a_line_that_is_forgotten_for_want_of_room_is_written_with_its_count() {
        let mut log = Restraint::default();
        for _ in 0..3 {
            log.take(at(0), line("first", 0));
        }
        for n in 1..MOST {
            assert_eq!(log.take(at(1), line(&n.to_string(), 1)).len(), 1);
        }
        assert_eq!(
            texts(&log.take(at(2), line("last", 1))),
            ["first (2 times more in 2s)", "last"]
        );
        assert_eq!(log.lines.len(), MOST);
    }

    #[test]
    fn the_end_tells_every_count() {
        let mut log = Restraint::default();
        for n in 0..BURST + 4 {
            log.take(at(0), line(&format!("n{n}"), 2));
        }
        for _ in 0..4 {
            log.take(at(1), line("a", 1));
        }
        let mut told = texts(&log.end(at(5)));
        told.sort();
        let last = format!("n{}", BURST + 3);
        assert_eq!(
            told,
            [
                "a (3 times more in 4s)".to_owned(),
                format!("{last} (4 lines like it, which are not written, in 5s)"),
            ]
        );
        assert_eq!(log.next(), None);
    }
}
