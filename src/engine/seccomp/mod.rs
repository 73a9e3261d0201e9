//! Compiles seccomp profiles. The OCI form (`linux.seccomp` in config.json) is turned into the program that the kernel
//! runs.
//!
//! A process that enters a container does not inherit the container's filter. So the filter is given to each command
//! again (exec-in-container 2). The embedded runtime uses the same code. A profile has the same meaning as with runc and
//! libseccomp:
//! - Names that this kernel's ABI does not have are skipped.
//! - A rule without conditions wins over rules with conditions.
//! - If several conditions of one rule are about the same argument, they are alternatives.
//! - Calls that are newer than all calls of the profile get ENOSYS instead of the default error, so that programs use
//!   older calls instead.
//!
//! Invariants: pure, except for tables that are read once. A profile that cannot be applied exactly is an error. There
//! is one difference from libseccomp: for 32-bit x86, rules for `socket` and similar calls also hold for `socketcall`.

mod bpf;
mod cache;
pub mod default;
mod error;
pub mod localhost;
mod syscalls;

use serde_json::{Number, Value};

use crate::engine::oci::{Seccomp, SeccompArg, Syscall};

pub use cache::compiled;
pub use error::SeccompError;

use bpf::{MAX_LENGTH, Outcome, Range, Section};
use syscalls::{ABIS, Abi, X32_BIT};

const KILL: u32 = libc::SECCOMP_RET_KILL_THREAD;
const ERRNO: u32 = libc::SECCOMP_RET_ERRNO;

/// A compiled filter in the form that the kernel accepts: a program, and flags (SECCOMP_FILTER_FLAG_*).
#[derive(Clone, Debug)]
pub struct Filter {
    /// The program, at most 4096 instructions.
    pub program: Vec<libc::sock_filter>,
    /// The flags: SECCOMP_FILTER_FLAG_LOG and SECCOMP_FILTER_FLAG_SPEC_ALLOW, or 0.
    pub flags: u32,
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        let words = |f: &Filter| {
            f.program
                .iter()
                .map(|i| (i.code, i.jt, i.jf, i.k))
                .collect::<Vec<_>>()
        };
        (words(self), self.flags) == (words(other), other.flags)
    }
}

impl Eq for Filter {}

/// Way in which an argument is compared with `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// Holds if the argument and `value_two` are equal in the bits that are set in `value`.
    Masked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    /// Index of the compared argument, 0 to 5.
    index: u32,
    operator: Operator,
    value: u64,
    value_two: u64,
}

/// An entry of the list `syscalls` in a profile.
struct Rule<'a> {
    names: &'a [String],
    value: u32,
    /// Lists of conditions. The rule applies if all conditions of one list hold. Without any list the rule always
    /// applies.
    alternatives: Vec<Vec<Condition>>,
}

/// Compiles a profile (`linux.seccomp`) into a filter.
///
/// # Errors
/// Returns [`SeccompError`] if an action, operator or flag is unknown or needs a listener, if a number is not valid, or
/// if the profile is too large for the kernel.
pub fn compile(profile: &Seccomp) -> Result<Filter, SeccompError> {
    let default = action(&profile.default_action, &profile.default_errno_ret)?;
    // A rule with the default action has no effect. libseccomp refuses such a rule, so runc leaves it out, and podprobe
    // does too.
    let rules: Vec<Rule<'_>> = listed(&profile.syscalls)
        .iter()
        .map(rule)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .filter(|r| r.value != default)
        .collect();
    let wanted = |abi: &&Abi| {
        let named = listed(&profile.architectures);
        abi.name == ABIS[0].name || named.iter().any(|a| a == abi.name)
    };
    let mut sections: Vec<Section> = Vec::new();
    for abi in ABIS.iter().filter(wanted) {
        let mut ranges = ranges(abi, &rules, default);
        match sections.iter_mut().find(|s| s.audit == abi.audit) {
            // The ABI is x32. Its numbers lie above those of x86-64, so its ranges come after the ranges of x86-64.
            Some(section) => {
                section.ranges.retain(|r| r.0 < abi.bit);
                section.ranges.append(&mut ranges);
            }
            None => {
                if cfg!(target_arch = "x86_64") && abi.audit == ABIS[0].audit {
                    ranges.push((X32_BIT, Outcome::Return(KILL)));
                }
                sections.push(Section {
                    audit: abi.audit,
                    ranges,
                });
            }
        }
    }
    let program = bpf::program(&sections, KILL);
    if program.len() > MAX_LENGTH {
        return Err(SeccompError::TooLarge(program.len()));
    }
    Ok(Filter {
        program,
        flags: flags(listed(&profile.flags))?,
    })
}

fn listed<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// Returns a word of a profile as a JSON value. A missing word becomes `null`.
fn shown(word: &Option<String>) -> Value {
    word.clone().into()
}

/// Returns the value (SECCOMP_RET_*) of an action. SCMP_ACT_NOTIFY is an error, because it needs a process that answers
/// in place of the kernel.
fn action(name: &Option<String>, errno: &Option<Number>) -> Result<u32, SeccompError> {
    let data = match errno {
        None => libc::EPERM as u32,
        // The kernel accepts no error number above this one.
        Some(n) => n
            .as_u64()
            .filter(|n| *n <= 4095)
            .ok_or_else(|| SeccompError::ErrorNumber(n.clone()))? as u32,
    };
    Ok(match name.as_deref().unwrap_or_default() {
        "SCMP_ACT_ALLOW" => libc::SECCOMP_RET_ALLOW,
        "SCMP_ACT_ERRNO" => ERRNO | data,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => KILL,
        "SCMP_ACT_KILL_PROCESS" => libc::SECCOMP_RET_KILL_PROCESS,
        "SCMP_ACT_TRAP" => libc::SECCOMP_RET_TRAP,
        "SCMP_ACT_LOG" => libc::SECCOMP_RET_LOG,
        "SCMP_ACT_TRACE" => libc::SECCOMP_RET_TRACE | data,
        "SCMP_ACT_NOTIFY" => return Err(SeccompError::Listener),
        _ => return Err(SeccompError::Action(shown(name))),
    })
}

fn flags(names: &[String]) -> Result<u32, SeccompError> {
    names.iter().try_fold(0, |flags, name| match name.as_str() {
        "SECCOMP_FILTER_FLAG_LOG" => Ok(flags | libc::SECCOMP_FILTER_FLAG_LOG as u32),
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Ok(flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW as u32),
        // This flag is left out: it is for processes with several threads, and the filtered process has one thread.
        "SECCOMP_FILTER_FLAG_TSYNC" => Ok(flags),
        other => Err(SeccompError::Flag(other.to_owned())),
    })
}

fn rule(entry: &Syscall) -> Result<Rule<'_>, SeccompError> {
    let value = action(&entry.action, &entry.errno_ret)?;
    let args = listed(&entry.args).iter();
    let conditions: Vec<Condition> = args.map(condition).collect::<Result<_, _>>()?;
    let repeated = conditions
        .iter()
        .any(|c| conditions.iter().filter(|o| o.index == c.index).count() > 1);
    let alternatives = match repeated {
        true => conditions.into_iter().map(|c| vec![c]).collect(),
        false if conditions.is_empty() => Vec::new(),
        false => vec![conditions],
    };
    Ok(Rule {
        names: listed(&entry.names),
        value,
        alternatives,
    })
}

fn condition(arg: &SeccompArg) -> Result<Condition, SeccompError> {
    use Operator::*;
    let operator = match arg.op.as_deref().unwrap_or_default() {
        "SCMP_CMP_EQ" => Equal,
        "SCMP_CMP_NE" => NotEqual,
        "SCMP_CMP_GT" => Greater,
        "SCMP_CMP_GE" => GreaterOrEqual,
        "SCMP_CMP_LT" => Less,
        "SCMP_CMP_LE" => LessOrEqual,
        "SCMP_CMP_MASKED_EQ" => Masked,
        _ => return Err(SeccompError::Operator(shown(&arg.op))),
    };
    let number = |key, given: &Option<Number>| match given {
        None => Ok(0),
        Some(n) => n.as_u64().ok_or_else(|| SeccompError::Argument {
            key,
            number: n.clone(),
        }),
    };
    let index = number("index", &arg.index)?;
    if index > 5 {
        return Err(SeccompError::Index(index));
    }
    Ok(Condition {
        index: index as u32,
        operator,
        value: number("value", &arg.value)?,
        value_two: number("valueTwo", &arg.value_two)?,
    })
}

/// Returns the outcome for each number of an ABI. Neighbouring numbers with the same outcome form one range.
fn ranges(abi: &Abi, rules: &[Rule<'_>], default: u32) -> Vec<Range> {
    // The list is in ascending order of numbers. A `BTreeMap` would be a little faster, but would make the static file
    // larger.
    let mut calls: Vec<Range> = Vec::new();
    for rule in rules {
        for number in rule.names.iter().filter_map(|n| abi.number(n)) {
            let at = calls
                .binary_search_by_key(&number, |c| c.0)
                .unwrap_or_else(|at| {
                    calls.insert(at, (number, Outcome::First(Vec::new(), default)));
                    at
                });
            add(&mut calls[at].1, rule);
        }
    }
    let end = calls.last().map_or(0, |c| c.0 + 1);
    let mut out: Vec<Range> = Vec::new();
    let mut push = |number: u32, outcome: Outcome| {
        if out.last().is_none_or(|(_, last)| *last != outcome) {
            out.push((abi.bit | number, outcome));
        }
    };
    let mut next = 0;
    for (number, outcome) in calls {
        if number > next || number == 0 && next == 0 {
            push(
                next,
                if number == 0 {
                    outcome.clone()
                } else {
                    Outcome::Return(default)
                },
            );
        }
        push(number, outcome);
        next = number + 1;
    }
    push(end, Outcome::Return(unknown(default)));
    out
}

/// Adds a rule to the outcome of a call. The first rule without conditions decides alone: the alternatives of earlier
/// rules are dropped, and later rules are ignored. If there is no such rule, the alternatives of all rules are tried in
/// their order.
fn add(outcome: &mut Outcome, rule: &Rule<'_>) {
    let Outcome::First(tried, _) = outcome else {
        return;
    };
    match rule.alternatives.is_empty() {
        true => *outcome = Outcome::Return(rule.value),
        false => tried.extend(rule.alternatives.iter().map(|a| (a.clone(), rule.value))),
    }
}

/// Returns the outcome for calls that are newer than all calls of the profile, which the profile's author did not know.
fn unknown(default: u32) -> u32 {
    let permits = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_LOG].contains(&default)
        || default >> 16 == libc::SECCOMP_RET_TRACE >> 16;
    if permits {
        default
    } else {
        ERRNO | libc::ENOSYS as u32
    }
}

#[cfg(test)]
mod tests;
