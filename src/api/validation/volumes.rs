//! Volumes and where they are mounted.

use std::collections::HashSet;

use super::checks::{
    NOT_NEGATIVE, PULL_POLICIES, descending_path, named, no_backsteps, no_nul, one_of,
};
use super::names::is_dns_label;
use super::volume_objects as objects;
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{Container, EmptyDir, HostPath, ImageVolume, Volume, VolumeMount};
use crate::api::quantity::Amount;

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
];

const PROPAGATIONS: [&str; 3] = ["None", "HostToContainer", "Bidirectional"];

pub(super) fn validate_volumes(volumes: &[Volume], path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = HashSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = item(path, index);
        source(&mut errors, volume, &path);
        let name = child(&path, "name");
        if volume.name.is_empty() {
            errors.push(FieldError::required(name, ""));
        } else if !names.insert(&volume.name) {
            errors.push(FieldError::duplicate(name, volume.name.as_str()));
        } else {
            named(&mut errors, &name, &volume.name, is_dns_label);
        }
    }
    errors
}

/// The sources in the order in which the API looks at them: the first is checked, each further one
/// is one too many.
fn source(errors: &mut Vec<FieldError>, volume: &Volume, path: &str) {
    let mut is_first = true;
    let mut add = |field: &str, check: &dyn Fn(&mut Vec<FieldError>, &str)| {
        let path = child(path, field);
        match std::mem::take(&mut is_first) {
            true => check(errors, &path),
            false => {
                let detail = "may not specify more than 1 volume type";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
    };
    if let Some(s) = &volume.empty_dir {
        add("emptyDir", &|errors, at| empty_dir(errors, s, at));
    }
    if let Some(s) = &volume.host_path {
        add("hostPath", &|errors, at| host_path(errors, s, at));
    }
    if let Some(s) = &volume.secret {
        add("secret", &|errors, at| objects::secret(errors, s, at));
    }
    if let Some(s) = &volume.persistent_volume_claim {
        add("persistentVolumeClaim", &|errors, at| {
            objects::claim(errors, s, at)
        });
    }
    if let Some(s) = &volume.downward_api {
        add("downwardAPI", &|errors, at| {
            objects::downward_api(errors, s, at)
        });
    }
    if let Some(s) = &volume.config_map {
        add("configMap", &|errors, at| {
            objects::config_map(errors, s, at)
        });
    }
    if let Some(s) = &volume.projected {
        add("projected", &|errors, at| objects::projected(errors, s, at));
    }
    if let Some(s) = &volume.image {
        add("image", &|errors, at| image(errors, s, at));
    }
}

/// As the API, it does not look at the form of the reference.
fn image(errors: &mut Vec<FieldError>, image: &ImageVolume, path: &str) {
    if image.reference.is_empty() {
        errors.push(FieldError::required(child(path, "reference"), ""));
    }
    let policy = child(path, "pullPolicy");
    one_of(errors, &image.pull_policy, &PULL_POLICIES, &policy);
}

fn empty_dir(errors: &mut Vec<FieldError>, dir: &EmptyDir, path: &str) {
    if !["", "Memory"].contains(&dir.medium.as_str()) {
        errors.push(FieldError::not_supported(
            child(path, "medium"),
            dir.medium.as_str(),
            &["", "Memory"],
        ));
    }
    if let Some(limit) = dir
        .size_limit
        .as_ref()
        .filter(|limit| limit.parse().is_ok_and(Amount::is_negative))
    {
        errors.push(FieldError::invalid(
            child(path, "sizeLimit"),
            limit.0.as_str(),
            NOT_NEGATIVE,
        ));
    }
}

fn host_path(errors: &mut Vec<FieldError>, host: &HostPath, path: &str) {
    if host.path.is_empty() {
        errors.push(FieldError::required(child(path, "path"), ""));
        return;
    }
    no_nul(errors, &child(path, "path"), &host.path);
    no_backsteps(errors, &child(path, "path"), &host.path);
    if !HOST_PATH_TYPES.contains(&host.type_.as_str()) {
        errors.push(FieldError::not_supported(
            child(path, "type"),
            host.type_.as_str(),
            &HOST_PATH_TYPES,
        ));
    }
}

pub(super) fn validate_mounts(
    errors: &mut Vec<FieldError>,
    container: &Container,
    volumes: &[Volume],
    path: &str,
) {
    let mut targets = HashSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = item(path, index);
        let (name, target) = (child(&path, "name"), child(&path, "mountPath"));
        if mount.name.is_empty() {
            errors.push(FieldError::required(name, ""));
        } else if !volumes.iter().any(|volume| volume.name == mount.name) {
            errors.push(FieldError::not_found(name, mount.name.as_str()));
        }
        if mount.mount_path.is_empty() {
            errors.push(FieldError::required(target, ""));
        } else {
            no_nul(errors, &target, &mount.mount_path);
            no_backsteps(errors, &target, &mount.mount_path);
            if !targets.insert(mount.destination().trim_end_matches('/').to_owned()) {
                errors.push(FieldError::invalid(
                    target,
                    mount.mount_path.as_str(),
                    "must be unique",
                ));
            }
        }
        descending_path(errors, &child(&path, "subPath"), &mount.sub_path);
        if !mount.sub_path_expr.is_empty() {
            let (at, expr) = (child(&path, "subPathExpr"), mount.sub_path_expr.as_str());
            if !mount.sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.push(FieldError::invalid(at.as_str(), expr, detail));
            }
            descending_path(errors, &at, expr);
        }
        let privileged = container.security_context.privileged == Some(true);
        let at = child(&path, "mountPropagation");
        propagation(errors, mount.mount_propagation.as_deref(), privileged, &at);
        recursive_read_only(errors, mount, &child(&path, "recursiveReadOnly"));
    }
}

fn propagation(errors: &mut Vec<FieldError>, mode: Option<&str>, privileged: bool, path: &str) {
    let Some(mode) = mode else { return };
    if !PROPAGATIONS.contains(&mode) {
        errors.push(FieldError::not_supported(path, mode, &PROPAGATIONS));
    }
    if mode == "Bidirectional" && !privileged {
        errors.push(FieldError::forbidden(
            path,
            "Bidirectional mount propagation is available only to privileged containers",
        ));
    }
}

fn recursive_read_only(errors: &mut Vec<FieldError>, mount: &VolumeMount, path: &str) {
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => {}
        Some("IfPossible" | "Enabled") => {
            if !mount.read_only {
                let detail = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(path, detail));
            }
            if !matches!(mount.mount_propagation.as_deref(), None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        Some(other) => {
            let modes = ["Disabled", "IfPossible", "Enabled"];
            errors.push(FieldError::not_supported(path, other, &modes));
        }
    }
}
