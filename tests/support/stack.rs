//! How much of a worker's stack something takes.

use std::fs;

use podprobe::pods::prober::manager::STACK_SIZE;

/// Runs that on a thread with a worker's stack; the resident part of its mapping afterwards, in bytes: what was touched.
pub(crate) fn stack_use(run: impl FnOnce() + Send) -> usize {
    std::thread::scope(|s| {
        let measured = std::thread::Builder::new()
            .stack_size(STACK_SIZE)
            .spawn_scoped(s, move || {
                run();
                let marker = [0_u8; 1];
                resident((&raw const marker) as usize)
            });
        measured.unwrap().join().unwrap()
    })
}

/// Says the figure and fails when less than a quarter of the stack is left.
#[track_caller]
pub(crate) fn check_stack(what: &str, used: usize) {
    eprintln!(
        "stack: {what} {} KiB of {}, {} left",
        used >> 10,
        STACK_SIZE >> 10,
        (STACK_SIZE - used) >> 10
    );
    assert!(used <= STACK_SIZE * 3 / 4, "{what}: {used} of {STACK_SIZE}");
}

/// Resident bytes of the mapping that holds `at`.
fn resident(at: usize) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let range = line
            .split_whitespace()
            .next()
            .and_then(|r| r.split_once('-'));
        if let Some((from, to)) = range.and_then(|(a, b)| {
            Some((
                usize::from_str_radix(a, 16).ok()?,
                usize::from_str_radix(b, 16).ok()?,
            ))
        }) {
            inside = (from..to).contains(&at);
        }
        if inside && line.starts_with("Rss:") {
            return line
                .split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<usize>()
                .unwrap()
                * 1024;
        }
    }
    panic!("no stack mapping");
}
