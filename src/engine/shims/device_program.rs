//! The device filter of a container on cgroup v2: it turns the rules of the OCI specification into a BPF program.
//!
//! On cgroup v1 the controller `devices` enforces the rules itself. On v2 the kernel runs a program of type
//! BPF_PROG_TYPE_CGROUP_DEVICE whenever a process in the cgroup makes or opens a device.
//!
//! Invariants:
//! - Access that no rule allows is refused.
//! - For each kind of access the last rule that matches the device decides, as with cgroup v1. A request for several
//!   kinds of access is allowed if each kind is allowed.
//! - The program is attached before any process of the container runs, and vanishes with the cgroup. The program also
//!   filters for the cgroups of commands, which are below the container's cgroup.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::base::sys::bpf::{self, Instruction, ProgramType};
use crate::engine::oci::DeviceRule;

/// Access that makes a device node.
const MAKE: u8 = 1;
/// Access that opens a device for reading.
const READ: u8 = 2;
/// Access that opens a device for writing.
const WRITE: u8 = 4;
/// All three kinds of access.
const ALL: u8 = MAKE | READ | WRITE;

/// The type of device that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Block,
    Char,
}

/// A rule of `linux.resources.devices`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    allow: bool,
    kind: Kind,
    /// Major number; `None` matches every number.
    major: Option<u32>,
    /// Minor number; `None` matches every number.
    minor: Option<u32>,
    access: u8,
}

/// The reason why a rule cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleFault {
    /// The device type is not a letter of the specification.
    #[error("type {0:?} is not a, b or c")]
    Type(String),
    /// The access has a letter that is not `r`, `w` or `m`.
    #[error("access has {0:?}; it is of r, w and m")]
    Access(char),
    /// The major or minor number is not a device number.
    #[error("{what} {number} is no device number")]
    Number { what: &'static str, number: i64 },
}

/// Error about a rule of a configuration: the index of the rule, and the reason why it cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("config.json: linux.resources.devices[{index}]: {source}")]
pub(crate) struct DeviceRuleError {
    index: usize,
    source: RuleFault,
}

const fn allow(kind: Kind, numbers: (Option<u32>, Option<u32>), access: u8) -> Rule {
    Rule {
        allow: true,
        kind,
        major: numbers.0,
        minor: numbers.1,
        access,
    }
}

/// The rules that every container has, as in runc. They allow making any node, and opening null, zero, full, random,
/// urandom, tty, terminals and tun. The interfaces of tun belong to the container's network namespace.
const EVERY_CONTAINER: [Rule; 11] = [
    allow(Kind::Char, (None, None), MAKE),
    allow(Kind::Block, (None, None), MAKE),
    allow(Kind::Char, (Some(1), Some(3)), ALL),
    allow(Kind::Char, (Some(1), Some(5)), ALL),
    allow(Kind::Char, (Some(1), Some(7)), ALL),
    allow(Kind::Char, (Some(1), Some(8)), ALL),
    allow(Kind::Char, (Some(1), Some(9)), ALL),
    allow(Kind::Char, (Some(5), Some(0)), ALL),
    allow(Kind::Char, (Some(5), Some(2)), ALL),
    allow(Kind::Char, (Some(10), Some(200)), ALL),
    allow(Kind::Char, (Some(136), None), ALL),
];

impl Rule {
    /// Returns the name of the cgroup v1 file for this rule (`devices.allow` or `devices.deny`), and the text to write
    /// there.
    pub(crate) fn on_v1(&self) -> (&'static str, String) {
        let file = if self.allow {
            "devices.allow"
        } else {
            "devices.deny"
        };
        let kind = match self.kind {
            Kind::Any => return (file, "a".into()),
            Kind::Block => 'b',
            Kind::Char => 'c',
        };
        let number = |n: Option<u32>| n.map_or_else(|| "*".into(), |n| n.to_string());
        let letters = [(READ, 'r'), (WRITE, 'w'), (MAKE, 'm')].into_iter();
        let access = letters
            .filter(|(bit, _)| self.access & bit != 0)
            .map(|(_, l)| l);
        let access: String = access.collect();
        (
            file,
            format!(
                "{kind} {}:{} {access}",
                number(self.major),
                number(self.minor)
            ),
        )
    }
}

/// Parses the rules of `linux.resources.devices`, and adds the rules that every container has.
///
/// # Errors
/// Returns [`DeviceRuleError`] if a rule cannot be parsed.
pub(crate) fn rules(listed: &[DeviceRule]) -> Result<Vec<Rule>, DeviceRuleError> {
    let own = listed
        .iter()
        .enumerate()
        .map(|(index, rule)| read(rule).map_err(|source| DeviceRuleError { index, source }));
    own.chain(EVERY_CONTAINER.map(Ok)).collect()
}

fn read(rule: &DeviceRule) -> Result<Rule, RuleFault> {
    let kind = match rule.kind.as_deref() {
        None | Some("a" | "") => Kind::Any,
        Some("b") => Kind::Block,
        Some("c" | "u") => Kind::Char,
        Some(other) => return Err(RuleFault::Type(other.to_owned())),
    };
    let mut access = 0;
    for letter in rule.access.as_deref().unwrap_or("rwm").chars() {
        access |= match letter {
            'r' => READ,
            'w' => WRITE,
            'm' => MAKE,
            other => return Err(RuleFault::Access(other)),
        };
    }
    Ok(Rule {
        allow: rule.allow,
        kind,
        major: number(rule.major, "major")?,
        minor: number(rule.minor, "minor")?,
        access,
    })
}

/// Checks a major or minor number. None and -1 mean every number. The parameter `what` names the number in the error.
fn number(value: Option<i64>, what: &'static str) -> Result<Option<u32>, RuleFault> {
    match value {
        None | Some(-1) => Ok(None),
        Some(number) => match u32::try_from(number) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(RuleFault::Number { what, number }),
        },
    }
}

/// Returns true if the last rule of the configuration allows everything, as for a privileged container. Such a
/// container needs no program.
pub(crate) fn allows_everything(rules: &[Rule]) -> bool {
    let own = rules.strip_suffix(&EVERY_CONTAINER).unwrap_or(rules);
    own.last().is_some_and(|r| {
        r.allow && r.kind == Kind::Any && (r.major, r.minor) == (None, None) && r.access == ALL
    })
}

// The registers of this program. r1 is the kernel's context: three 32-bit numbers. The first number has the type of the
// device in its lower half, and the access in its upper half.
const VERDICT: u8 = 0;
const CONTEXT: u8 = 1;
const TYPE: u8 = 2;
/// Register with the kinds of access that no rule has allowed yet.
const WANTED: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

// Operation codes (Documentation/bpf/standardization/instruction-set.rst of the kernel).
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_IF_NOT: u8 = 0x55;
const JUMP_IF: u8 = 0x15;
/// Operation code of a JUMP_IF_NOT that compares the lower 32 bits only. The constant of this operation has no sign.
const JUMP_IF_NOT_32: u8 = 0x56;
const EXIT: u8 = 0x95;

/// The kernel's `BPF_DEVCG_DEV_BLOCK` and `BPF_DEVCG_DEV_CHAR`: values of the device type in the context.
const BLOCK_DEVICE: u32 = 1;
const CHAR_DEVICE: u32 = 2;

fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: u32) -> Instruction {
    let [o0, o1] = offset.to_ne_bytes();
    let [c0, c1, c2, c3] = constant.to_ne_bytes();
    [code, to | from << 4, o0, o1, c0, c1, c2, c3]
}

fn answer(allowed: bool) -> [Instruction; 2] {
    [
        instruction(MOVE, VERDICT, 0, 0, u32::from(allowed)),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Makes the program for these rules. The program tests the last rule first. A rule that allows access removes its
/// kinds of access from the wanted ones. A rule that denies access refuses the request if it denies a wanted kind.
pub(crate) fn program(rules: &[Rule]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD_WORD, TYPE, CONTEXT, 0, 0),
        instruction(MOVE_REGISTER, WANTED, TYPE, 0, 0),
        instruction(AND, TYPE, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, WANTED, 0, 0, 16),
        instruction(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        instruction(LOAD_WORD, MINOR, CONTEXT, 8, 0),
    ];
    for rule in rules.iter().rev() {
        program.extend(one(rule));
    }
    program.extend(answer(false));
    program
}

fn one(rule: &Rule) -> Vec<Instruction> {
    let verdict = answer(rule.allow);
    let decide: Vec<Instruction> = if rule.allow {
        // If wanted access is left, the jump skips the two instructions of the answer, to the next rule.
        let left = [
            instruction(AND, WANTED, 0, 0, u32::from(ALL & !rule.access)),
            instruction(JUMP_IF_NOT, WANTED, 0, 2, 0),
        ];
        left.into_iter().chain(verdict).collect()
    } else {
        let denied = [
            instruction(MOVE_REGISTER, VERDICT, WANTED, 0, 0),
            instruction(AND, VERDICT, 0, 0, u32::from(rule.access)),
            instruction(JUMP_IF, VERDICT, 0, 2, 0),
        ];
        denied.into_iter().chain(verdict).collect()
    };
    let kind = match rule.kind {
        Kind::Any => None,
        Kind::Block => Some(BLOCK_DEVICE),
        Kind::Char => Some(CHAR_DEVICE),
    };
    let wanted = [(TYPE, kind), (MAJOR, rule.major), (MINOR, rule.minor)];
    let wanted: Vec<(u8, u32)> = wanted
        .into_iter()
        .filter_map(|(register, number)| Some((register, number?)))
        .collect();
    let mut all = Vec::with_capacity(wanted.len() + decide.len());
    for (i, (register, number)) in wanted.iter().enumerate() {
        let rest = wanted.len() - i - 1 + decide.len();
        all.push(instruction(
            JUMP_IF_NOT_32,
            *register,
            0,
            rest as i16,
            *number,
        ));
    }
    all.extend(decide);
    all
}

/// Attaches a program with these rules to a cgroup v2 directory. The program filters the device access of every process
/// that will ever run in this cgroup.
///
/// # Errors
/// Returns the error of bpf(2): EPERM without CAP_BPF and CAP_NET_ADMIN, ENOSYS or EINVAL in a kernel without
/// CONFIG_CGROUP_BPF.
pub(crate) fn attach(rules: &[Rule], cgroup: &Path) -> io::Result<()> {
    let loaded = bpf::load(ProgramType::CgroupDevice, &program(rules))?;
    bpf::attach_to_cgroup(&loaded, &File::open(cgroup)?)
}

/// Tests whether the kernel accepts a device program from this process. Nothing is attached.
///
/// # Errors
/// Returns the error of bpf(2), as [`attach`] does.
pub fn attempt() -> io::Result<()> {
    bpf::load(ProgramType::CgroupDevice, &program(&EVERY_CONTAINER)).map(drop)
}

#[cfg(test)]
mod tests;
