//! Random misbehaviour: unhealthy, unready, slow, stuck, with closed ports, ignoring TERM, gone.
//!
//! Invariant: the seed and the number of the instance (the `start` lines in its stamp file)
//! determine each fault, its length and the pause before it; only calm interrupts it.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{FAIL, OK, SLOW, STUCK, Target, stamp};

/// TERM is ignored.
pub(crate) static IS_DEAF: AtomicBool = AtomicBool::new(false);

/// How often it checks for the calm file.
const LOOK: Duration = Duration::from_millis(200);

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// Milliseconds from `low` up to `high`.
    fn time(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }

    fn state(&mut self) -> u8 {
        [FAIL, FAIL, SLOW, STUCK][self.below(4) as usize]
    }
}

enum Fault {
    State(&'static str, u8),
    Closed,
    Exit(u8),
}

impl Fault {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(10) {
            0..4 => Self::State("ready", dice.state()),
            4..7 => Self::State("health", dice.state()),
            7 => Self::Closed,
            _ => Self::Exit(dice.below(4) as u8),
        }
    }

    fn begin(&self, target: &Target) {
        match self {
            Self::State(which, state) => _ = target.set(which, *state),
            Self::Closed => target.doors.shut(true, target),
            Self::Exit(_) => {}
        }
    }

    fn end(&self, target: &Target) {
        match self {
            Self::State(which, _) => _ = target.set(which, OK),
            Self::Closed => target.doors.shut(false, target),
            Self::Exit(_) => {}
        }
    }
}

/// Misbehaves until it ends by itself.
pub(crate) fn play(target: &Target, seed: u64, calm: Option<&str>) -> ExitCode {
    let stamps = target
        .stamps
        .as_ref()
        .and_then(|f| std::fs::read_to_string(f).ok())
        .unwrap_or_default();
    let instance = stamps.lines().filter(|l| l.starts_with("start ")).count() as u64;
    let mut dice = Dice(seed.wrapping_mul(0x1_0000_0001).wrapping_add(instance));
    let calm = calm.map(Path::new);
    IS_DEAF.store(dice.below(10) == 0, Ordering::Relaxed);
    match dice.below(10) {
        // Longer than the startup probe may allow.
        0 => last(
            Fault::State("start", STUCK),
            dice.time(6000, 12000),
            target,
            calm,
        ),
        1..5 => last(
            Fault::State("start", FAIL),
            dice.time(0, 2500),
            target,
            calm,
        ),
        _ => {}
    }
    loop {
        while is_calm(calm) {
            thread::sleep(LOOK);
        }
        if !rest(dice.time(3000, 30000), calm) {
            continue;
        }
        match Fault::any(&mut dice) {
            Fault::Exit(code) => {
                target.stamps.iter().for_each(|f| stamp(f, "exit"));
                target.say(&format!("ending by itself with code {code}"));
                return ExitCode::from(code);
            }
            fault => last(fault, dice.time(500, 7000), target, calm),
        }
    }
}

/// Holds a fault for a time; calm ends it.
fn last(fault: Fault, time: Duration, target: &Target, calm: Option<&Path>) {
    if !is_calm(calm) {
        fault.begin(target);
        rest(time, calm);
        fault.end(target);
    }
}

fn is_calm(calm: Option<&Path>) -> bool {
    calm.is_some_and(Path::exists)
}

/// Waits; returns false when calm has come meanwhile.
fn rest(time: Duration, calm: Option<&Path>) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if is_calm(calm) || left.is_zero() {
            return left.is_zero();
        }
        thread::sleep(left.min(LOOK));
    }
}
