//! Validates a container's own restart policy and its rules (kubelet-probes 1.5).

use crate::api::field::{FieldError, child, item};
use crate::api::pod::{Container, RestartExitCodes};

const MOST_RULES: usize = 20;
const MOST_VALUES: usize = 255;

pub(super) fn validate_restart_policy(
    errors: &mut Vec<FieldError>,
    container: &Container,
    path: &str,
) {
    let rules = &container.restart_policy_rules;
    if container.restart_policy.is_none() && !rules.is_empty() {
        errors.push(FieldError::required(
            child(path, "restartPolicy"),
            "must specify restartPolicy when restart rules are used",
        ));
    }
    let path = child(path, "restartPolicyRules");
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(path.as_str(), rules.len(), MOST_RULES));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = item(&path, index);
        supported(
            errors,
            &rule.action,
            &["Restart", "RestartAllContainers"],
            &child(&path, "action"),
        );
        match &rule.exit_codes {
            Some(codes) => exit_codes(errors, codes, &child(&path, "exitCodes")),
            None => errors.push(FieldError::required(
                child(&path, "exitCodes"),
                "must be specified",
            )),
        }
    }
}

fn exit_codes(errors: &mut Vec<FieldError>, codes: &RestartExitCodes, path: &str) {
    supported(
        errors,
        &codes.operator,
        &["In", "NotIn"],
        &child(path, "operator"),
    );
    if codes.values.len() > MOST_VALUES {
        errors.push(FieldError::too_many(
            child(path, "values"),
            codes.values.len(),
            MOST_VALUES,
        ));
    }
}

fn supported(errors: &mut Vec<FieldError>, value: &str, supported: &[&str], path: &str) {
    if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}
