//! Decides whether the success policy of an indexed Job is met (workloads 6.14).

use super::indexes::Indexes;
use crate::api::workload::{SuccessPolicy, SuccessRule};

/// Returns the message about the first rule that the succeeded indexes meet; None if they meet none
/// (matchSuccessPolicy).
pub fn met_rule(
    policy: Option<&SuccessPolicy>,
    completions: i32,
    succeeded: &Indexes,
) -> Option<String> {
    // Without a succeeded index no rule is met, not even one that asks for none.
    let rules = &policy.filter(|_| !succeeded.is_empty())?.rules;
    let met = |rule: &SuccessRule| is_met(rule, completions, succeeded);
    let position = rules.iter().position(met)?;
    Some(format!("Matched rules at index {position}"))
}

fn is_met(rule: &SuccessRule, completions: i32, succeeded: &Indexes) -> bool {
    let enough = |number: i64| rule.succeeded_count.is_some_and(|it| number >= it.into());
    let Some(text) = &rule.succeeded_indexes else {
        return enough(succeeded.total());
    };
    let required = Indexes::parse(text, completions);
    let shared = required.shared_with(succeeded);
    !required.is_empty() && (shared == required.total() || enough(shared))
}
