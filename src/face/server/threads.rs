//! `/debug/threads`: the threads of this process, with the state and the processor time of each.

use std::fmt::Write;
use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use crate::base::sys::wide;

/// Returns a line for each thread, sorted by name.
pub(super) fn text() -> String {
    let mut lines: Vec<String> = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            line(&stat, wide(sysconf(SysconfVar::CLK_TCK).ok()??))
        })
        .collect();
    lines.sort();
    let mut out = format!("{:<16} {:>7} {:>5} {:>10}\n", "NAME", "ID", "STATE", "CPU");
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Makes a thread's line from `/proc/self/task/ID/stat`. The thread's name may contain spaces and brackets.
fn line(stat: &str, ticks_per_second: i64) -> Option<String> {
    let (id, rest) = stat.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: i64 = fields.get(11)?.parse::<i64>().ok()? + fields.get(12)?.parse::<i64>().ok()?;
    let milliseconds = ticks * 1000 / ticks_per_second.max(1);
    let state = fields.first()?;
    Some(format!(
        "{name:<16} {id:>7} {state:>5} {milliseconds:>7} ms"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_a_line_whatever_its_name() {
        let stat = "4365 (pod:a) (b c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(
            line(stat, 100).unwrap(),
            "pod:a) (b c         4365     S    2000 ms"
        );
        assert_eq!(line("no stat", 100), None);
        let own = std::thread::Builder::new().name("shown-here".into());
        let text = own.spawn(text).unwrap().join().unwrap();
        assert!(text.contains("\nshown-here "), "{text}");
    }
}
