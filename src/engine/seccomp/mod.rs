//! Seccomp profiles: from the OCI form (`linux.seccomp` of a config.json) to the program that the kernel runs.
//!
//! A filter is not inherited by a process that enters a container, so it is compiled again for each
//! command (exec-in-container 2); the embedded runtime uses the same. A profile means what it means
//! to runc with libseccomp: names that this kernel's ABI lacks are skipped, a rule without
//! conditions wins over those with, conditions of one rule on one argument are alternatives, and
//! calls newer than all that the profile names get ENOSYS instead of its default error, so that
//! programs fall back on older ones.
//!
//! Invariants: pure, except for tables that are read once; a profile that cannot be applied exactly
//! is an error. One difference from libseccomp: for 32-bit x86 it also applies rules on `socket`
//! and similar calls to `socketcall`.

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

/// A filter in the form that the kernel takes: a program, and SECCOMP_FILTER_FLAG_*.
#[derive(Clone, Debug)]
pub struct Filter {
    /// At most 4096 instructions.
    pub program: Vec<libc::sock_filter>,
    /// SECCOMP_FILTER_FLAG_LOG and SPEC_ALLOW.
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

/// How an argument is compared with `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// The bits of `value` are those of `value_two`.
    Masked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    /// 0 to 5.
    index: u32,
    operator: Operator,
    value: u64,
    value_two: u64,
}

/// An entry of `syscalls`.
struct Rule<'a> {
    names: &'a [String],
    value: u32,
    /// The rule applies when one of these holds, or always when there are none.
    alternatives: Vec<Vec<Condition>>,
}

/// The filter of `linux.seccomp`.
///
/// # Errors
/// Returns [`SeccompError`] when an action, operator or flag is unknown or needs a listener, or when the profile is too
/// large for the kernel.
pub fn compile(profile: &Seccomp) -> Result<Filter, SeccompError> {
    let default = action(&profile.default_action, &profile.default_errno_ret)?;
    // A rule whose action is the default has no effect. libseccomp refuses it, so runc leaves it
    // out; we do too.
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
            // x32 has the numbers above x86-64's.
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

/// A word of a profile as JSON has it: a missing one is `null`.
fn shown(word: &Option<String>) -> Value {
    word.clone().into()
}

/// The SECCOMP_RET_* of an action. SCMP_ACT_NOTIFY is refused, because it needs a process that
/// answers.
fn action(name: &Option<String>, errno: &Option<Number>) -> Result<u32, SeccompError> {
    let data = match errno {
        None => libc::EPERM as u32,
        // The kernel takes no larger one.
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
        // This flag is for processes with several threads; ours has one.
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

/// The outcome of each number of an ABI; neighbours with the same outcome form one range.
fn ranges(abi: &Abi, rules: &[Rule<'_>], default: u32) -> Vec<Range> {
    // Ascending by number; a tree of its own type would cost the static file more than this costs time.
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

/// Adds a rule to an outcome: the first rule without conditions decides; until there is one, each
/// alternative is tried in order.
fn add(outcome: &mut Outcome, rule: &Rule<'_>) {
    let Outcome::First(tried, _) = outcome else {
        return;
    };
    match rule.alternatives.is_empty() {
        true => *outcome = Outcome::Return(rule.value),
        false => tried.extend(rule.alternatives.iter().map(|a| (a.clone(), rule.value))),
    }
}

/// The outcome of calls newer than all that the profile names: the profile was written before they
/// existed.
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
