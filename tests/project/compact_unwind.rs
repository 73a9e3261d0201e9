//! .ci/compact_unwind.rs, on a program that panics.

#![cfg(target_arch = "x86_64")]

use std::fs;
use std::path::Path;
use std::process::Command;

use self::skip::skip;

#[path = "../support/skip.rs"]
mod skip;
#[path = "../../.ci/compact_unwind.rs"]
#[allow(dead_code, reason = "its main")]
mod tool;

/// Panics below frames that hold values in registers, and that are cleaned up, and goes on with those values. The sums are
/// wrong if a register is not where it was. Functions that are unwound alike stand beside others.
const PROGRAM: &str = r#"
use std::hint::black_box;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

static CLEANED: AtomicU64 = AtomicU64::new(0);

struct Guard<'a>(&'a [u64; 6]);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        CLEANED.fetch_add(self.0.iter().sum(), Ordering::Relaxed);
    }
}

#[inline(never)]
fn descend(depth: u64, a: u64, b: u64) -> u64 {
    let held = [a, b, a ^ b, a.wrapping_mul(b), a + depth, b + depth].map(black_box);
    let [c, d, e, f, g, h] = held;
    let guard = Guard(&held);
    if depth == 0 {
        panic!("at the bottom");
    }
    let below = if depth % 7 == 0 {
        catch_unwind(|| descend(depth - 1, c + d, e ^ f)).unwrap_or(1)
    } else {
        descend(depth - 1, a + 1, b + 2)
    };
    let all = [c, d, e, f, g, h, below].iter().fold(0u64, |sum, n| sum.rotate_left(5) ^ n);
    drop(guard);
    all
}

/// A function that holds values while it calls the next one.
macro_rules! through {
    ($name:ident, $next:ident, $($held:ident)*) => {
        #[inline(never)]
        fn $name(from: u64) -> u64 {
            $(let $held = black_box(from + 1);)*
            $next(from + 1) $(.rotate_left(3) ^ $held)*
        }
    };
}

/// The same, with something to clean up.
macro_rules! guarded {
    ($name:ident, $next:ident) => {
        #[inline(never)]
        fn $name(from: u64) -> u64 {
            let held = [from; 6].map(black_box);
            let guard = Guard(&held);
            let below = $next(from + 1);
            drop(guard);
            below ^ 1
        }
    };
}

// They lie in the order of their names, so that those that are unwound alike and those that are not stand side by side.
through!(f1, last, a b c d e);
through!(f2, f4, a);
through!(f3, f1, a b c d e);
through!(f4, f6, a);
through!(f5, f8, a b c d e);
through!(f6, f5, a b c d e);
guarded!(f7, f9);
guarded!(f8, f7);
through!(f9, f3, a b c);

#[inline(never)]
fn last(from: u64) -> u64 {
    if black_box(from) > 0 {
        panic!("at the end");
    }
    from
}

/// Adds up values that it has in registers while the others are unwound.
#[inline(never)]
fn above(from: u64) -> u64 {
    let (a, b, c, d) = (black_box(from), black_box(from * 3), black_box(from * 5), black_box(from * 7));
    let caught = u64::from(catch_unwind(|| f2(from)).is_err());
    caught ^ a.rotate_left(5) ^ b.rotate_left(9) ^ c.rotate_left(17) ^ d
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut sum = 0u64;
    for depth in 0..60 {
        let one = catch_unwind(|| descend(depth, black_box(3), black_box(5))).unwrap_or(2);
        sum = sum.rotate_left(9) ^ one ^ above(depth + 1);
    }
    println!("{sum:x} {:x}", CLEANED.load(Ordering::Relaxed));
}
"#;

fn built(dir: &Path) -> Vec<u8> {
    let (source, program) = (dir.join("program.rs"), dir.join("program"));
    fs::write(&source, PROGRAM).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "-C",
            "opt-level=z",
            "-C",
            "force-frame-pointers=yes",
            "-o",
        ])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    fs::read(program).unwrap()
}

#[track_caller]
fn said(program: &Path) -> String {
    let done = Command::new(program).output().unwrap();
    assert!(done.status.success(), "{:?}", done.status);
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_program_with_smaller_tables_unwinds_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let before = built(dir.path());
    let after = match tool::compact(before.clone()) {
        Ok(after) => after,
        Err(e) if e.to_string().starts_with("the segment of .eh_frame") => {
            return skip("a linker that ends a segment with the tables, such as lld");
        }
        Err(e) => panic!("{e}"),
    };
    assert!(
        after.len() + 0x1000 <= before.len(),
        "{} bytes are {}",
        before.len(),
        after.len()
    );
    let [some, all] = [&after, &before].map(|file| tool::entries(file).unwrap());
    assert!(some + 5 < all, "{all} entries are {some}");
    let program = dir.path().join("program");
    let expected = said(&program);
    let compacted = dir.path().join("compacted");
    fs::copy(&program, &compacted).unwrap();
    fs::write(&compacted, &after).unwrap();
    assert_eq!(said(&compacted), expected);
    assert_eq!(tool::compact(after.clone()).unwrap(), after, "once more");
}

#[test]
fn a_file_of_another_form_is_named() {
    let refused = |file: &[u8]| tool::compact(file.to_vec()).unwrap_err().to_string();
    let other = "the file, which is not of x86-64, does not have the form that is known here";
    assert_eq!(
        refused(b"#!/bin/sh\n# and so on, for a few more bytes"),
        other
    );
    assert_eq!(
        refused(b"\x7fELF"),
        "the end of the file does not have the form that is known here"
    );
}
