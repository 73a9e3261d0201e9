//! Validates the limits of rolling updates.

use serde_json::json;

use super::super::checks::not_negative;
use crate::api::field::{FieldError, child};
use crate::api::workload::{
    DaemonSetUpdateStrategy, DeploymentStrategy, IntOrPercent, RollingUpdateDaemonSet,
    RollingUpdateDeployment, RollingUpdateStatefulSet,
};

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const TOO_MUCH: &str = "must not be greater than 100%";

/// Adds the errors of `strategy` of a Deployment.
pub(super) fn deployment(errors: &mut Vec<FieldError>, strategy: &DeploymentStrategy, path: &str) {
    let rolling = child(path, "rollingUpdate");
    match (strategy.type_.as_str(), &strategy.rolling_update) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(rolling, detail));
        }
        ("RollingUpdate", Some(limits)) => deployment_limits(errors, limits, &rolling),
        ("RollingUpdate", None) => {
            let detail = "this should be defaulted and never be nil";
            errors.push(FieldError::required(rolling, detail));
        }
        (other, _) => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, other, &known));
        }
    }
}

fn deployment_limits(errors: &mut Vec<FieldError>, limits: &RollingUpdateDeployment, path: &str) {
    let (unavailable, surge) = (&limits.max_unavailable, &limits.max_surge);
    let at = child(path, "maxUnavailable");
    number_or_percentage(errors, unavailable.as_ref(), &at);
    number_or_percentage(errors, surge.as_ref(), &child(path, "maxSurge"));
    if is_zero(unavailable.as_ref()) && is_zero(surge.as_ref()) {
        let detail = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(&at, json!(unavailable), detail));
    }
    not_more_than_all(errors, unavailable.as_ref(), &at);
}

/// Adds the errors of `updateStrategy` of a DaemonSet.
pub(super) fn daemon_set(
    errors: &mut Vec<FieldError>,
    strategy: &DaemonSetUpdateStrategy,
    path: &str,
) {
    let rolling = child(path, "rollingUpdate");
    match (strategy.type_.as_str(), &strategy.rolling_update) {
        ("OnDelete", _) => {}
        ("RollingUpdate", Some(limits)) => daemon_set_limits(errors, limits, &rolling),
        ("RollingUpdate", None) => errors.push(FieldError::required(rolling, "")),
        (other, _) => {
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(path, other, &known));
        }
    }
}

fn daemon_set_limits(errors: &mut Vec<FieldError>, limits: &RollingUpdateDaemonSet, path: &str) {
    let both = [
        (
            limits.max_unavailable.as_ref(),
            child(path, "maxUnavailable"),
        ),
        (limits.max_surge.as_ref(), child(path, "maxSurge")),
    ];
    for (limit, path) in &both {
        number_or_percentage(errors, *limit, path);
    }
    for (limit, path) in &both {
        not_more_than_all(errors, *limit, path);
    }
    let [(unavailable, unavailable_at), (surge, surge_at)] = both;
    match (is_zero(unavailable), is_zero(surge)) {
        (false, false) => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(FieldError::invalid(surge_at, json!(surge), detail));
        }
        (true, true) => {
            let detail = "cannot be 0 when maxSurge is 0";
            errors.push(FieldError::required(unavailable_at, detail));
        }
        _ => {}
    }
}

/// Adds the errors of `updateStrategy.rollingUpdate` of a StatefulSet.
pub(super) fn stateful_set(
    errors: &mut Vec<FieldError>,
    rolling: &RollingUpdateStatefulSet,
    path: &str,
) {
    if let Some(partition) = rolling.partition {
        not_negative(errors, &child(path, "partition"), partition);
    }
    if let Some(limit) = &rolling.max_unavailable {
        let path = child(path, "maxUnavailable");
        number_or_percentage(errors, Some(limit), &path);
        if is_zero(Some(limit)) {
            errors.push(FieldError::invalid(&path, json!(limit), "cannot be 0"));
        }
        not_more_than_all(errors, Some(limit), &path);
    }
}

fn number_or_percentage(errors: &mut Vec<FieldError>, limit: Option<&IntOrPercent>, path: &str) {
    match limit {
        Some(IntOrPercent::Int(number)) => not_negative(errors, path, *number),
        Some(IntOrPercent::Text(text)) if digits(text).is_none() => {
            errors.push(FieldError::invalid(path, text.as_str(), PERCENT));
        }
        _ => {}
    }
}

/// Returns the digits of a percentage. Returns None for a text that is no percentage.
fn digits(text: &str) -> Option<&str> {
    let digits = text.strip_suffix('%')?;
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    (all_digits && !digits.is_empty()).then_some(digits)
}

/// True if the limit is 0 or 0 %. A text that is neither a percentage nor a number counts as 0
/// (pkg/apis/apps/validation: getIntOrPercentValue).
fn is_zero(limit: Option<&IntOrPercent>) -> bool {
    match limit {
        None => true,
        Some(IntOrPercent::Int(number)) => *number == 0,
        Some(IntOrPercent::Text(text)) => match digits(text) {
            Some(digits) => digits.bytes().all(|digit| digit == b'0'),
            None => text.parse::<i64>().unwrap_or_default() == 0,
        },
    }
}

fn not_more_than_all(errors: &mut Vec<FieldError>, limit: Option<&IntOrPercent>, path: &str) {
    let Some(IntOrPercent::Text(text)) = limit else {
        return;
    };
    // More digits than fit into the number are more than 100 % too.
    let is_more = |digits: &str| digits.parse::<i64>().is_ok_and(|it| it > 100) || is_huge(digits);
    if digits(text).is_some_and(is_more) {
        errors.push(FieldError::invalid(path, text.as_str(), TOO_MUCH));
    }
}

fn is_huge(digits: &str) -> bool {
    digits.trim_start_matches('0').len() > 18
}
