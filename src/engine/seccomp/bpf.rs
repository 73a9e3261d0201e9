//! Makes the BPF program of a filter, which the kernel runs before each system call. Pure.
//!
//! Invariants: the program is a tree of comparisons over ranges of numbers. So a system call costs about eight
//! comparisons, even if the profile is long. Every jump is forward and every path ends in a return, as the kernel
//! demands.

use super::Condition;

/// An instruction of classic BPF, in the form that the kernel accepts.
pub(super) type Instruction = libc::sock_filter;

/// Largest number of instructions in a program that the kernel accepts (BPF_MAXINSNS).
pub(super) const MAX_LENGTH: usize = 4096;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in bytes of the number, the architecture and the arguments in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn plain(code: u16, k: u32) -> Instruction {
    instruction(code, k, 0, 0)
}

/// The kernel's answer to a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A value (`SECCOMP_RET_…`) that does not depend on the arguments.
    Return(u32),
    /// The value of the first entry whose conditions all hold. If there is no such entry, the value of the second
    /// field.
    First(Vec<(Vec<Condition>, u32)>, u32),
}

/// A range of system calls with their outcome. The range goes from this number up to the start of the next range.
pub(super) type Range = (u32, Outcome);

/// The system calls of one architecture (`AUDIT_ARCH_…`). The ranges start at number 0 and are in ascending order.
pub(super) struct Section {
    pub(super) audit: u32,
    pub(super) ranges: Vec<Range>,
}

/// Returns the whole program. System calls of an architecture without a section get the value `other`.
pub(super) fn program(sections: &[Section], other: u32) -> Vec<Instruction> {
    let mut out = vec![plain(LOAD, ARCH)];
    for section in sections {
        let mut body = vec![plain(LOAD, NUMBER)];
        body.extend(tree(&section.ranges));
        // If the call is of another architecture, the program jumps over the whole section.
        out.push(instruction(EQUAL, section.audit, 1, 0));
        out.push(plain(JUMP, body.len() as u32));
        out.extend(body);
    }
    out.push(plain(RETURN, other));
    out
}

fn tree(ranges: &[Range]) -> Vec<Instruction> {
    if let [(_, outcome)] = ranges {
        return leaf(outcome);
    }
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let (below, above) = (tree(left), tree(right));
    let from = right.first().map_or(0, |r| r.0);
    // A conditional jump skips at most 255 instructions.
    let mut out = match u8::try_from(below.len()) {
        Ok(over) => vec![instruction(AT_LEAST, from, over, 0)],
        Err(_) => vec![
            instruction(AT_LEAST, from, 0, 1),
            plain(JUMP, below.len() as u32),
        ],
    };
    out.extend(below);
    out.extend(above);
    out
}

fn leaf(outcome: &Outcome) -> Vec<Instruction> {
    match outcome {
        Outcome::Return(value) => vec![plain(RETURN, *value)],
        Outcome::First(rules, otherwise) => {
            let mut out: Vec<Instruction> = rules
                .iter()
                .flat_map(|(conditions, value)| rule(conditions, *value))
                .collect();
            out.push(plain(RETURN, *otherwise));
            out
        }
    }
}

/// Returns the instructions that test the conditions of a rule and return its value. If a condition does not hold, the
/// program continues after these instructions, at the next rule. A rule has at most six conditions, each of at most six
/// instructions, so every jump is short enough.
fn rule(conditions: &[Condition], value: u32) -> Vec<Instruction> {
    let mut out = vec![plain(RETURN, value)];
    for condition in conditions.iter().rev() {
        let mut test = compare(condition, out.len() as u8);
        test.extend(out);
        out = test;
    }
    out
}

/// Returns the instructions that test a condition. If the condition does not hold, they jump over `rest` more
/// instructions. An argument has 64 bits, and its two halves are compared one after the other.
fn compare(c: &Condition, rest: u8) -> Vec<Instruction> {
    use super::Operator::*;
    // All supported architectures are little-endian.
    let low = plain(LOAD, ARGUMENTS + 8 * c.index);
    let high = plain(LOAD, ARGUMENTS + 8 * c.index + 4);
    let (v_low, v_high) = (c.value as u32, (c.value >> 32) as u32);
    // Compares the high half of the argument first. If the high half does not decide, compares the low half.
    let decide = |greater: Option<bool>, last: Instruction| {
        let (over, holds) = (rest + 2, 2);
        match greater {
            Some(greater) => {
                let first = instruction(
                    GREATER,
                    v_high,
                    if greater { holds + 1 } else { over + 1 },
                    0,
                );
                let equal = instruction(EQUAL, v_high, 0, if greater { over } else { holds });
                vec![high, first, equal, low, last]
            }
            None => vec![high, instruction(EQUAL, v_high, 0, over), low, last],
        }
    };
    match c.operator {
        Equal => decide(None, instruction(EQUAL, v_low, 0, rest)),
        NotEqual => vec![
            high,
            instruction(EQUAL, v_high, 0, 2),
            low,
            instruction(EQUAL, v_low, rest, 0),
        ],
        Greater => decide(Some(true), instruction(GREATER, v_low, 0, rest)),
        GreaterOrEqual => decide(Some(true), instruction(AT_LEAST, v_low, 0, rest)),
        Less => decide(Some(false), instruction(AT_LEAST, v_low, rest, 0)),
        LessOrEqual => decide(Some(false), instruction(GREATER, v_low, rest, 0)),
        Masked => {
            let wanted = c.value_two & c.value;
            vec![
                high,
                plain(AND, v_high),
                instruction(EQUAL, (wanted >> 32) as u32, 0, rest + 3),
                low,
                plain(AND, v_low),
                instruction(EQUAL, wanted as u32, 0, rest),
            ]
        }
    }
}

/// Runs a program as the kernel does, for tests. `number`, `arch` and `arguments` are those of the system call.
#[cfg(test)]
pub(super) fn run(program: &[Instruction], number: u32, arch: u32, arguments: [u64; 6]) -> u32 {
    let (mut at, mut a) = (0, 0u32);
    for _ in 0..MAX_LENGTH {
        let i = program[at];
        at += 1;
        let jump = |yes: bool| usize::from(if yes { i.jt } else { i.jf });
        match i.code {
            LOAD if i.k == NUMBER => a = number,
            LOAD if i.k == ARCH => a = arch,
            LOAD => {
                let argument = arguments[((i.k - ARGUMENTS) / 8) as usize];
                a = if i.k.is_multiple_of(8) {
                    argument as u32
                } else {
                    (argument >> 32) as u32
                };
            }
            AND => a &= i.k,
            JUMP => at += i.k as usize,
            EQUAL => at += jump(a == i.k),
            GREATER => at += jump(a > i.k),
            AT_LEAST => at += jump(a >= i.k),
            RETURN => return i.k,
            other => panic!("instruction {other:#x}"),
        }
    }
    panic!("no end")
}

#[cfg(test)]
mod tests {
    use super::super::Operator;
    use super::*;

    /// Checks each operator against Rust's own comparison of 64-bit numbers, for values at the edges of both halves.
    #[test]
    fn each_operator_compares_64_bits() {
        use Operator::*;
        let edges = [
            0,
            1,
            2,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            1 << 32,
            (1 << 32) + 1,
            2 << 32,
            u64::MAX - 1,
            u64::MAX,
        ];
        let mut compared = 0;
        for operator in [
            Equal,
            NotEqual,
            Greater,
            GreaterOrEqual,
            Less,
            LessOrEqual,
            Masked,
        ] {
            for value in edges {
                for value_two in [0, 1, 1 << 32, u64::MAX] {
                    // The rule gets a second condition, so that some jumps lead over it.
                    let second = Condition {
                        index: 5,
                        operator: Equal,
                        value: 7,
                        value_two: 0,
                    };
                    let first = Condition {
                        index: 2,
                        operator,
                        value,
                        value_two,
                    };
                    let outcome = Outcome::First(vec![(vec![first, second], 1), (vec![], 2)], 3);
                    let program = program(
                        &[Section {
                            audit: 9,
                            ranges: vec![(0, outcome)],
                        }],
                        4,
                    );
                    for argument in edges {
                        let holds = match operator {
                            Equal => argument == value,
                            NotEqual => argument != value,
                            Greater => argument > value,
                            GreaterOrEqual => argument >= value,
                            Less => argument < value,
                            LessOrEqual => argument <= value,
                            Masked => argument & value == value_two & value,
                        };
                        for last in [7, 8] {
                            let expected = if holds && last == 7 { 1 } else { 2 };
                            let got = run(&program, 0, 9, [0, 0, argument, 0, 0, last]);
                            assert_eq!(
                                got, expected,
                                "{operator:?} {value:#x} {value_two:#x} of {argument:#x}"
                            );
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(compared, 7 * 11 * 4 * 11 * 2);
    }

    #[test]
    fn every_number_finds_its_range() {
        // So many ranges need jumps of more than 255 instructions.
        let ranges: Vec<Range> = (0..700).map(|n| (n * 3, Outcome::Return(n))).collect();
        let program = program(
            &[
                Section {
                    audit: 1,
                    ranges: vec![(0, Outcome::Return(77))],
                },
                Section { audit: 2, ranges },
            ],
            99,
        );
        for number in 0..2200 {
            assert_eq!(run(&program, number, 2, [0; 6]), (number / 3).min(699));
            assert_eq!(run(&program, number, 1, [0; 6]), 77);
            assert_eq!(run(&program, number, 3, [0; 6]), 99);
        }
    }
}
