//! Validates the cluster IPs and the families of a Service (kube-services 1).

use std::collections::HashSet;

use super::addresses::valid_ip;
use super::checks::supported;
use crate::api::field::{FieldError, item};
use crate::api::service::IpFamily;
use crate::api::service::written::{NONE, WrittenServiceSpec};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["SingleStack", "PreferDualStack", "RequireDualStack"];

/// Checks the rules of the API's `ValidateServiceClusterIPsRelatedFields`, and those rules of its allocator that do
/// not depend on other services.
pub(super) fn validate(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    families(errors, spec);
    cluster_ips(errors, spec);
}

/// Returns the path of a cluster IP: `clusterIPs[index]` as in the API, or `clusterIP` if the file has only this
/// field.
pub(super) fn ip_path(spec: &WrittenServiceSpec, index: usize) -> String {
    match index == 0 && spec.cluster_ips.len() == 1 && !spec.cluster_ip.is_empty() {
        true => "spec.clusterIP".into(),
        false => item("spec.clusterIPs", index),
    }
}

fn families(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let mut seen = HashSet::new();
    for (index, family) in spec.ip_families.iter().enumerate() {
        let path = item("spec.ipFamilies", index);
        supported(errors, &path, family, &FAMILIES);
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(path, family.as_str()));
        }
    }
    let path = "spec.ipFamilyPolicy";
    let policy = spec.ip_family_policy.as_deref();
    if let Some(policy) = policy {
        supported(errors, path, policy, &POLICIES);
    }
    // A policy that is left out means SingleStack, except for a headless service without a selector.
    let single =
        policy == Some("SingleStack") || policy.is_none() && !spec.is_headless_without_selector();
    for (given, what) in [
        (spec.cluster_ips.len(), "cluster IPs"),
        (spec.ip_families.len(), "IP families"),
    ] {
        if single && given == 2 {
            let detail = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            );
            errors.push(FieldError::invalid(
                path,
                policy.unwrap_or("SingleStack"),
                detail,
            ));
        }
    }
}

fn cluster_ips(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec) {
    let path = "spec.clusterIPs";
    let ips = &spec.cluster_ips;
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid(path, ips.as_slice(), detail));
    };
    if spec.cluster_ip.is_empty() && !ips.is_empty() {
        refuse("must be empty when `clusterIP` is not specified");
    } else if ips.first().is_some_and(|ip| *ip != spec.cluster_ip) {
        refuse("first value must match `clusterIP`");
    }
    if ips.len() > 1 && ips[0] == NONE {
        return refuse("'None' must be the first and only value");
    }
    if ips.len() > 2 {
        refuse("may only hold up to 2 values");
    }
    if spec.is_headless() {
        return;
    }
    let texts = ips.iter().enumerate();
    let parsed: Vec<_> = texts
        .filter_map(|(index, ip)| valid_ip(errors, &ip_path(spec, index), ip))
        .map(IpFamily::of)
        .collect();
    if parsed.len() == ips.len() {
        agree_with_families(errors, spec, &parsed);
    }
}

fn agree_with_families(errors: &mut Vec<FieldError>, spec: &WrittenServiceSpec, of: &[IpFamily]) {
    let ips = spec.cluster_ips.as_slice();
    if of.len() > 1 && of.iter().all(|family| *family == of[0]) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", ips, detail));
    }
    for (index, (family, wanted)) in of.iter().zip(&spec.ip_families).enumerate() {
        let is_other = FAMILIES.contains(&wanted.as_str()) && family.to_string() != *wanted;
        if is_other {
            let detail =
                format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            let path = ip_path(spec, index);
            errors.push(FieldError::invalid(path, ips[index].as_str(), detail));
        }
    }
}
