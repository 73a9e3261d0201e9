//! Validates security contexts: ranges of numbers, names of capabilities, fields that contradict each other.

use std::collections::HashSet;

use super::app_armor;
use super::checks::{descending_path, no_nul, range};
use crate::api::capabilities::{canonical, is_all};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{Capabilities, PodSpec, SeccompProfile, SecurityContext};
use crate::api::sysctls::{self, SysctlNamespace};

const FS_GROUP_POLICIES: [&str; 2] = ["Always", "OnRootMismatch"];
const GROUPS_POLICIES: [&str; 2] = ["Merge", "Strict"];
const PROFILES: [&str; 3] = ["Unconfined", "RuntimeDefault", "Localhost"];

pub(super) fn validate_pod_security(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    let context = &spec.security_context;
    id(errors, &child(path, "runAsUser"), context.run_as_user);
    id(errors, &child(path, "runAsGroup"), context.run_as_group);
    for (index, group) in context.supplemental_groups.iter().enumerate() {
        id(
            errors,
            &item(&child(path, "supplementalGroups"), index),
            Some(*group),
        );
    }
    if let Some(policy) = &context.supplemental_groups_policy
        && !GROUPS_POLICIES.contains(&policy.as_str())
    {
        let at = child(path, "supplementalGroupsPolicy");
        let error = FieldError::not_supported(at, policy.as_str(), &GROUPS_POLICIES);
        errors.push(error);
    }
    id(errors, &child(path, "fsGroup"), context.fs_group);
    if let Some(policy) = &context.fs_group_change_policy
        && !FS_GROUP_POLICIES.contains(&policy.as_str())
    {
        let at = child(path, "fsGroupChangePolicy");
        let error = FieldError::not_supported(at, policy.as_str(), &FS_GROUP_POLICIES);
        errors.push(error);
    }
    sysctls(errors, spec, &child(path, "sysctls"));
    profile(
        errors,
        context.seccomp_profile.as_ref(),
        &child(path, "seccompProfile"),
    );
    let profile = context.app_armor_profile.as_ref();
    app_armor::validate_profile(errors, profile, &child(path, "appArmorProfile"));
}

fn sysctls(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    let mut names = HashSet::new();
    for (index, sysctl) in spec.security_context.sysctls.iter().enumerate() {
        let path = item(path, index);
        let (at, name) = (child(&path, "name"), sysctl.name.as_str());
        if name.is_empty() {
            errors.push(FieldError::required(at.as_str(), ""));
        } else if let Err(e) = sysctls::check_name(name) {
            errors.push(FieldError::invalid(at.as_str(), name, e.to_string()));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(at.as_str(), name));
        }
        let namespace = sysctls::namespace_of(&sysctls::normalized(name));
        let of_node = match namespace {
            Some(SysctlNamespace::Net) if spec.host_network => Some("hostNetwork"),
            Some(SysctlNamespace::Ipc) if spec.host_ipc => Some("hostIPC"),
            _ => None,
        };
        if let Some(field) = of_node {
            let detail = format!("may not be specified when '{field}' is true");
            errors.push(FieldError::invalid(at, name, detail));
        }
        no_nul(errors, &child(&path, "value"), &sysctl.value);
    }
}

pub(super) fn validate_security(
    errors: &mut Vec<FieldError>,
    context: &SecurityContext,
    path: &str,
) {
    id(errors, &child(path, "runAsUser"), context.run_as_user);
    id(errors, &child(path, "runAsGroup"), context.run_as_group);
    profile(
        errors,
        context.seccomp_profile.as_ref(),
        &child(path, "seccompProfile"),
    );
    capabilities(errors, &context.capabilities, &child(path, "capabilities"));
    escalation(errors, context, path);
    let profile = context.app_armor_profile.as_ref();
    app_armor::validate_profile(errors, profile, &child(path, "appArmorProfile"));
}

fn id(errors: &mut Vec<FieldError>, path: &str, id: Option<i64>) {
    if let Some(id) = id {
        range(errors, path, id, 0, i32::MAX.into());
    }
}

fn profile(errors: &mut Vec<FieldError>, profile: Option<&SeccompProfile>, path: &str) {
    let Some(profile) = profile else { return };
    if profile.type_.is_empty() {
        errors.push(FieldError::required(
            child(path, "type"),
            "type is required when seccompProfile is set",
        ));
    } else if !PROFILES.contains(&profile.type_.as_str()) {
        errors.push(FieldError::not_supported(
            child(path, "type"),
            profile.type_.as_str(),
            &PROFILES,
        ));
    }
    let path = child(path, "localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None | Some("")) => errors.push(FieldError::required(
            path,
            "must be set when seccomp type is Localhost",
        )),
        ("Localhost", Some(file)) => descending_path(errors, &path, file),
        (_, Some(file)) => errors.push(FieldError::invalid(
            path,
            file,
            "can only be set when seccomp type is Localhost",
        )),
        (_, None) => {}
    }
}

fn capabilities(errors: &mut Vec<FieldError>, capabilities: &Capabilities, path: &str) {
    for (field, names) in [("add", &capabilities.add), ("drop", &capabilities.drop)] {
        for (index, name) in names.iter().enumerate() {
            if !is_all(name) && canonical(name).is_none() {
                let detail = "must be ALL or the name of a Linux capability, such as NET_ADMIN";
                errors.push(FieldError::invalid(
                    item(&child(path, field), index),
                    name.as_str(),
                    detail,
                ));
            }
        }
    }
}

fn escalation(errors: &mut Vec<FieldError>, context: &SecurityContext, path: &str) {
    if context.allow_privilege_escalation != Some(false) {
        return;
    }
    if context.privileged == Some(true) {
        errors.push(FieldError::invalid(
            path,
            "",
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        ));
    }
    if context
        .capabilities
        .add
        .iter()
        .any(|name| canonical(name) == Some("SYS_ADMIN"))
    {
        errors.push(FieldError::invalid(
            path,
            "",
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        ));
    }
}
