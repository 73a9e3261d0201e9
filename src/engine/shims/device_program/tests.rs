//! Tests of the device program, in an interpreter for its few instructions and in the kernel.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::*;

/// A request for access to a device. The kernel lets the program decide about the request.
#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    major: u32,
    minor: u32,
    access: u8,
}

/// Runs the program as the kernel would. Fails on everything that the kernel's verifier refuses: an unknown
/// instruction, a register that was not written, a jump backwards or out of the program.
fn run(program: &[Instruction], r: Request) -> bool {
    let kind = match r.kind {
        Kind::Block => BLOCK_DEVICE,
        _ => CHAR_DEVICE,
    };
    let context = [kind | u32::from(r.access) << 16, r.major, r.minor];
    let mut registers: [Option<u64>; 10] = [None; 10];
    let mut at = 0;
    loop {
        let [code, both, o0, o1, c0, c1, c2, c3] = program[at];
        let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
        let offset = i16::from_ne_bytes([o0, o1]);
        let constant = i32::from_ne_bytes([c0, c1, c2, c3]);
        // The kernel extends the sign of constants of 64-bit operations.
        let wide = i64::from(constant) as u64;
        let read = |n: usize| registers[n].expect("a register that was written");
        let jump = match code {
            JUMP_IF => read(to) == wide,
            JUMP_IF_NOT => read(to) != wide,
            JUMP_IF_NOT_32 => read(to) as u32 != constant as u32,
            _ => false,
        };
        match code {
            LOAD_WORD => {
                assert_eq!((from, offset % 4), (usize::from(CONTEXT), 0));
                registers[to] = Some(context[offset as usize / 4].into());
            }
            MOVE => registers[to] = Some(wide),
            MOVE_REGISTER => registers[to] = Some(read(from)),
            AND => registers[to] = Some(read(to) & wide),
            SHIFT_RIGHT => registers[to] = Some(read(to) >> wide),
            JUMP_IF | JUMP_IF_NOT | JUMP_IF_NOT_32 => assert!(offset >= 0),
            EXIT => return read(0) & 1 == 1,
            other => panic!("instruction {at} is {other:#x}"),
        }
        at += 1;
        if jump {
            at += offset as usize;
        }
    }
}

/// Decides a request without the program, by the rule of the specification: for each kind of access the last rule that
/// matches the device decides.
fn expected(rules: &[Rule], r: Request) -> bool {
    let names = |rule: &&Rule| {
        (rule.kind == Kind::Any || rule.kind == r.kind)
            && rule.major.is_none_or(|n| n == r.major)
            && rule.minor.is_none_or(|n| n == r.minor)
    };
    [MAKE, READ, WRITE]
        .iter()
        .filter(|bit| r.access & **bit != 0)
        .all(|bit| {
            let mut last = rules.iter().rev().filter(names);
            last.find(|rule| rule.access & bit != 0)
                .is_some_and(|rule| rule.allow)
        })
}

/// Compares the program with `expected`, for all device numbers that a rule has and for their neighbours.
fn compare(rules: &[Rule]) {
    let program = program(rules);
    let mut numbers: Vec<u32> = vec![0, 1, u32::MAX];
    for rule in rules {
        for n in [rule.major, rule.minor].into_iter().flatten() {
            numbers.extend([n, n.wrapping_add(1)]);
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    for kind in [Kind::Block, Kind::Char] {
        for (major, minor) in numbers
            .iter()
            .flat_map(|a| numbers.iter().map(move |b| (*a, *b)))
        {
            for access in 1..=ALL {
                let r = Request {
                    kind,
                    major,
                    minor,
                    access,
                };
                assert_eq!(run(&program, r), expected(rules, r), "{r:?} of {rules:?}");
            }
        }
    }
}

fn listed(list: Value) -> Vec<DeviceRule> {
    serde_json::from_value(list).unwrap()
}

fn of(list: Value) -> Vec<Rule> {
    rules(&listed(list)).unwrap()
}

#[test]
fn a_container_has_its_few_devices_and_no_other() {
    let rules = of(json!([{"allow": false, "access": "rwm"}]));
    compare(&rules);
    let program = program(&rules);
    let asked = |kind, major, minor, access| {
        run(
            &program,
            Request {
                kind,
                major,
                minor,
                access,
            },
        )
    };
    // The devices are null, a terminal, urandom and a tunnel.
    assert!(asked(Kind::Char, 1, 3, READ | WRITE));
    assert!(asked(Kind::Char, 136, 7, READ | WRITE));
    assert!(asked(Kind::Char, 1, 9, READ));
    assert!(asked(Kind::Char, 10, 200, READ | WRITE));
    // The devices are a disk, memory, the kernel's log and the console.
    assert!(!asked(Kind::Block, 8, 0, READ));
    assert!(!asked(Kind::Block, 1, 3, READ));
    assert!(!asked(Kind::Char, 1, 1, READ));
    assert!(!asked(Kind::Char, 1, 11, READ));
    assert!(!asked(Kind::Char, 5, 1, WRITE));
    // Nodes may be made, but they cannot be opened.
    assert!(asked(Kind::Block, 8, 0, MAKE));
    assert!(!asked(Kind::Block, 8, 0, MAKE | READ));
}

#[test]
fn for_each_kind_of_access_the_last_rule_decides() {
    compare(&[]);
    compare(&of(json!([])));
    compare(&of(json!([{"allow": true, "access": "rwm"}])));
    compare(&of(json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "b", "major": 8, "minor": 1, "access": "r"},
        {"allow": true, "type": "b", "major": 8, "minor": -1, "access": "w"},
        {"allow": false, "type": "b", "major": 8, "minor": 2, "access": "w"},
        {"allow": true, "type": "c", "major": 4294967295u32, "access": "rw"},
        {"allow": false, "type": "c", "major": 1, "minor": 3, "access": "m"},
    ])));
}

/// Compares the program with `expected` for 200 lists of rules from a generator of pseudo-random numbers.
#[test]
fn any_rules_do_what_they_say() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..200 {
        let count = next(7);
        let rules: Vec<Rule> = (0..count)
            .map(|_| Rule {
                allow: next(2) == 1,
                kind: [Kind::Any, Kind::Block, Kind::Char][next(3) as usize],
                major: (next(3) > 0).then(|| next(3) as u32),
                minor: (next(3) > 0).then(|| next(3) as u32),
                access: next(8) as u8,
            })
            .collect();
        compare(&rules);
    }
}

#[test]
fn a_rule_that_cannot_be_read_is_named() {
    let refused = |rule: Value| {
        rules(&listed(json!([{"allow": false}, rule])))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(json!({"type": "x"})),
        "config.json: linux.resources.devices[1]: type \"x\" is not a, b or c"
    );
    assert_eq!(
        refused(json!({"access": "rx"})),
        "config.json: linux.resources.devices[1]: access has 'x'; it is of r, w and m"
    );
    assert_eq!(
        refused(json!({"minor": -2})),
        "config.json: linux.resources.devices[1]: minor -2 is no device number"
    );
}

#[test]
fn only_a_privileged_container_needs_no_program() {
    assert!(allows_everything(&of(
        json!([{"allow": true, "access": "rwm"}])
    )));
    for list in [
        json!([]),
        json!([{"allow": false, "access": "rwm"}]),
        json!([{"allow": true, "access": "rw"}]),
        json!([{"allow": true, "type": "b", "access": "rwm"}]),
        json!([{"allow": true, "access": "rwm"}, {"allow": false, "type": "b"}]),
    ] {
        assert!(!allows_everything(&of(list.clone())), "{list}");
    }
}

/// A directory of cgroup v2 that is removed when this value is dropped.
struct Cgroup(std::path::PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Attaches a program to a cgroup. A shell joins the cgroup and prints the names of the devices that it can open.
#[test]
fn the_kernel_does_what_the_program_says() {
    let mounts = crate::base::sys::mountinfo::read().unwrap();
    let v2 = mounts.into_iter().find(|m| m.kind == "cgroup2");
    let Some(v2) = v2.filter(|_| nix::unistd::geteuid().is_root()) else {
        return crate::skip::skip("needs root and a mounted cgroup v2");
    };
    let cgroup = Cgroup(
        v2.at
            .join(format!("podprobe-device-program-{}", std::process::id())),
    );
    let rules = of(json!([{"allow": false, "access": "rwm"}]));
    fs::create_dir(&cgroup.0).unwrap();
    attach(&rules, &cgroup.0).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs || exit 9
         for d in null zero full random urandom ptmx kmsg; do (: < /dev/$d) 2>/dev/null && echo $d; done
         sh -c 'mkdir {0}/below && echo $$ > {0}/below/cgroup.procs && (: < /dev/kmsg) 2>/dev/null && echo below'
         rmdir {0}/below; exit 0",
        cgroup.0.display()
    );
    let out = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let opened = String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        opened.split_whitespace().collect::<Vec<_>>().join(" "),
        "null zero full random urandom ptmx"
    );
    // Outside of the cgroup /dev/kmsg can be opened.
    assert!(File::open("/dev/kmsg").is_ok());
    attempt().unwrap();
}
