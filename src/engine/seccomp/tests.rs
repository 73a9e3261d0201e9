//! Tests which system calls a profile allows. The filter's program is run by an interpreter in the tests.

use super::*;
use serde_json::json;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;

/// Compiles a profile that is given as JSON, in the form of a profile's file.
fn compile(profile: &Value) -> Result<Filter, SeccompError> {
    super::compile(&serde_json::from_value(profile.clone()).unwrap())
}

/// Returns the filter of RuntimeDefault for a container that has one capability.
fn default_filter(capability: &str) -> Filter {
    super::compile(&default::profile(&[capability.to_owned()])).unwrap()
}

fn call(filter: &Filter, abi: usize, name: &str, arguments: [u64; 6]) -> u32 {
    let abi = &ABIS[abi];
    bpf::run(
        &filter.program,
        abi.bit | abi.number(name).unwrap(),
        abi.audit,
        arguments,
    )
}

#[track_caller]
fn check(profile: Value, name: &str, arguments: [u64; 6], expected: u32) {
    assert_eq!(
        call(&compile(&profile).unwrap(), 0, name, arguments),
        expected,
        "{name}"
    );
}

fn profile(rules: Value) -> Value {
    json!({ "defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules })
}

fn arg(index: u32, op: &str, value: u64) -> Value {
    json!({ "index": index, "op": op, "value": value })
}

#[test]
fn an_unnamed_call_gets_the_default_and_a_later_one_enosys() {
    let p = profile(
        json!([{ "names": ["read", "mseal", "no_such_call"], "action": "SCMP_ACT_ALLOW" }]),
    );
    check(p.clone(), "read", [0; 6], ALLOW);
    check(p.clone(), "mseal", [0; 6], ALLOW);
    check(p.clone(), "write", [0; 6], EPERM);
    let filter = compile(&p).unwrap();
    assert_eq!(
        bpf::run(&filter.program, 463, ABIS[0].audit, [0; 6]),
        ENOSYS
    );
    assert_eq!(
        bpf::run(&filter.program, 0, 1, [0; 6]),
        KILL,
        "another architecture"
    );
    // A profile that only forbids calls has a default action that allows all other calls.
    let p = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5 }] });
    check(p.clone(), "read", [0; 6], ERRNO | 5);
    check(p, "mseal", [0; 6], ALLOW);
    check(
        json!({ "defaultAction": "SCMP_ACT_KILL_PROCESS", "syscalls": [] }),
        "read",
        [0; 6],
        ENOSYS,
    );
    check(
        json!({ "defaultAction": "SCMP_ACT_LOG" }),
        "read",
        [0; 6],
        libc::SECCOMP_RET_LOG,
    );
}

#[test]
fn actions_and_their_errors() {
    let of = |name: &str, errno: Value| {
        action(
            &Some(name.to_owned()),
            &serde_json::from_value(errno).unwrap(),
        )
    };
    assert_eq!(
        of("SCMP_ACT_KILL", Value::Null),
        Ok(libc::SECCOMP_RET_KILL_THREAD)
    );
    assert_eq!(of("SCMP_ACT_KILL_PROCESS", Value::Null), Ok(0x8000_0000));
    assert_eq!(of("SCMP_ACT_TRAP", Value::Null), Ok(0x3_0000));
    assert_eq!(of("SCMP_ACT_TRACE", json!(7)), Ok(0x7ff0_0007));
    assert_eq!(of("SCMP_ACT_ERRNO", json!(38)), Ok(ENOSYS));
    assert!(of("SCMP_ACT_ERRNO", json!(5000)).is_err() && of("SCMP_ACT_ERRNO", json!(-1)).is_err());
    assert!(of("SCMP_ACT_NOTIFY", Value::Null).is_err_and(|e| e == SeccompError::Listener));
    assert!(of("ALLOW", Value::Null).is_err());
    let bad = |p: Value| compile(&p).unwrap_err().to_string();
    assert!(bad(json!({})).contains("is no action"));
    assert!(bad(profile(json!([{ "names": ["read"], "action": "x" }]))).contains("is no action"));
    let with = |a: Value| {
        bad(profile(
            json!([{ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [a] }]),
        ))
    };
    assert!(with(arg(0, "EQ", 1)).contains("is no operator"));
    assert!(with(arg(6, "SCMP_CMP_EQ", 1)).contains("no argument 6"));
    assert!(with(json!({ "index": 0, "op": "SCMP_CMP_EQ", "value": -1 })).contains("is no number"));
    let flags = |f: &str| {
        compile(&json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": [f] })).map(|f| f.flags)
    };
    assert_eq!(flags("SECCOMP_FILTER_FLAG_LOG"), Ok(2));
    assert_eq!(flags("SECCOMP_FILTER_FLAG_TSYNC"), Ok(0));
    assert!(flags("SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV").is_err());
}

#[test]
fn conditions_of_a_rule_hold_together_unless_they_are_on_one_argument() {
    let rule = |args: Value| {
        profile(json!([{ "names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": args }]))
    };
    let both = rule(json!([arg(0, "SCMP_CMP_EQ", 3), arg(1, "SCMP_CMP_GT", 10)]));
    check(both.clone(), "ioctl", [3, 11, 0, 0, 0, 0], ALLOW);
    check(both.clone(), "ioctl", [3, 10, 0, 0, 0, 0], EPERM);
    check(both, "ioctl", [4, 11, 0, 0, 0, 0], EPERM);
    let either = rule(json!([arg(1, "SCMP_CMP_EQ", 3), arg(1, "SCMP_CMP_EQ", 4)]));
    check(either.clone(), "ioctl", [0, 3, 0, 0, 0, 0], ALLOW);
    check(either.clone(), "ioctl", [0, 4, 0, 0, 0, 0], ALLOW);
    check(either, "ioctl", [0, 5, 0, 0, 0, 0], EPERM);
}

#[test]
fn a_rule_without_conditions_wins_wherever_it_stands() {
    let some = json!({ "names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [arg(0, "SCMP_CMP_EQ", 3)] });
    let all = json!({ "names": ["ioctl", "read"], "action": "SCMP_ACT_ALLOW" });
    for rules in [json!([some, all]), json!([all, some])] {
        check(profile(rules.clone()), "ioctl", [3, 0, 0, 0, 0, 0], ALLOW);
        check(profile(rules), "read", [3, 0, 0, 0, 0, 0], ALLOW);
    }
    check(
        profile(json!([some])),
        "ioctl",
        [3, 0, 0, 0, 0, 0],
        ERRNO | 5,
    );
    check(profile(json!([some])), "ioctl", [4, 0, 0, 0, 0, 0], EPERM);
}

#[test]
fn only_the_architectures_of_the_profile_run() {
    let of = |architectures: Value| {
        let mut p = profile(json!([{ "names": ["read", "close"], "action": "SCMP_ACT_ALLOW" }]));
        p["architectures"] = architectures;
        compile(&p).unwrap()
    };
    for (n, abi) in ABIS.iter().enumerate() {
        // The machine's own architecture is always included, even if the profile does not name it.
        assert_eq!(
            call(&of(json!([])), n, "read", [0; 6]),
            if n == 0 { ALLOW } else { KILL },
            "{}",
            abi.name
        );
        assert_eq!(
            call(&of(json!(["SCMP_ARCH_MIPS", abi.name])), n, "read", [0; 6]),
            ALLOW,
            "{}",
            abi.name
        );
        assert_eq!(
            call(&of(json!([abi.name])), n, "write", [0; 6]),
            EPERM,
            "{}",
            abi.name
        );
        assert_eq!(
            bpf::run(
                &of(json!([abi.name])).program,
                abi.bit | 0xff_ffff,
                abi.audit,
                [0; 6]
            ),
            ENOSYS,
            "{}",
            abi.name
        );
    }
}

#[test]
fn the_default_profile_lets_through_what_it_should() {
    let plain = default_filter("CAP_CHOWN");
    let admin = default_filter("CAP_SYS_ADMIN");
    assert!(
        plain.program.len() < 900,
        "{} instructions",
        plain.program.len()
    );
    for name in [
        "read",
        "openat",
        "execve",
        "futex",
        "ptrace",
        "statx",
        "clock_gettime",
        "rseq",
        "close_range",
        "mseal",
        "faccessat2",
    ] {
        for abi in 0..ABIS.len() {
            assert_eq!(call(&plain, abi, name, [0; 6]), ALLOW, "{name}");
        }
    }
    for name in [
        "mount",
        "bpf",
        "keyctl",
        "add_key",
        "reboot",
        "init_module",
        "kexec_load",
        "unshare",
        "setns",
        "io_uring_setup",
        "swapon",
    ] {
        assert_eq!(call(&plain, 0, name, [0; 6]), EPERM, "{name}");
    }
    for (name, without) in [("mount", EPERM), ("unshare", EPERM), ("clone3", ENOSYS)] {
        assert_eq!(
            (call(&plain, 0, name, [0; 6]), call(&admin, 0, name, [0; 6])),
            (without, ALLOW),
            "{name}"
        );
    }
    let clone = |f: &Filter, flags: u64| call(f, 0, "clone", [flags, 0, 0, 0, 0, 0]);
    assert_eq!(clone(&plain, 0x3d_0f00), ALLOW);
    for flag in [
        0x2_0000,
        0x200_0000,
        0x400_0000,
        0x800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        assert_eq!(
            (clone(&plain, flag | 17), clone(&admin, flag | 17)),
            (EPERM, ALLOW),
            "{flag:#x}"
        );
    }
    let socket = |family: u64| call(&plain, 0, "socket", [family, 1, 0, 0, 0, 0]);
    let refused: Vec<u64> = (0..64).filter(|f| socket(*f) == EPERM).collect();
    assert_eq!(
        refused,
        [38, 40].into_iter().chain(46..64).collect::<Vec<_>>()
    );
    // For `socket`, the kernel uses only the low half of the argument.
    assert_eq!(socket(1 << 32 | 38), EPERM);
    for personality in [0, 8, 0x20000, 0x20008, 0xffff_ffff] {
        assert_eq!(
            call(&plain, 0, "personality", [personality, 0, 0, 0, 0, 0]),
            ALLOW
        );
    }
    assert_eq!(
        call(&plain, 0, "personality", [0x40000, 0, 0, 0, 0, 0]),
        EPERM
    );
}
