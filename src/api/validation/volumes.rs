//! Validates volumes, and their mounts in containers.

use std::collections::HashSet;

use super::checks::{
    NOT_NEGATIVE, PULL_POLICIES, descending_path, named, no_backsteps, no_nul, one_of,
};
use super::names::is_dns_label;
use super::volume_objects as objects;
use crate::api::field::{FieldError, child, item};
use crate::api::huge_pages::medium_page_size;
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

/// Checks the sources in the order in which the API does. The first source is checked; each further one is an error.
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

/// Validates an image volume. As in the API, the form of the reference is not checked.
fn image(errors: &mut Vec<FieldError>, image: &ImageVolume, path: &str) {
    if image.reference.is_empty() {
        errors.push(FieldError::required(child(path, "reference"), ""));
    }
    let policy = child(path, "pullPolicy");
    one_of(errors, &image.pull_policy, &PULL_POLICIES, &policy);
}

fn empty_dir(errors: &mut Vec<FieldError>, dir: &EmptyDir, path: &str) {
    let medium = dir.medium.as_str();
    if !["", "Memory", "HugePages"].contains(&medium) && medium_page_size(medium).is_none() {
        errors.push(FieldError::not_supported(
            child(path, "medium"),
            medium,
            &["", "Memory", "HugePages", "HugePages-<size>"],
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

/// Error of a block volume, with advice what to use instead.
pub(crate) const NO_BLOCK_VOLUMES: &str = "no volume is a block volume here: mount the device as a hostPath of type BlockDevice, in a privileged container";

/// Validates block devices by the API's own rules only. A claim that passes these rules is refused in
/// [`crate::api::support`].
pub(super) fn validate_devices(
    errors: &mut Vec<FieldError>,
    container: &Container,
    volumes: &[Volume],
    path: &str,
) {
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (index, device) in container.volume_devices.iter().enumerate() {
        let path = item(path, index);
        let (name, to) = (device.name.as_str(), device.device_path.as_str());
        let (name_at, path_at) = (child(&path, "name"), child(&path, "devicePath"));
        device_name(errors, name, volumes, &name_at);
        if !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::invalid(&name_at, name, "must be unique"));
        }
        device_path(errors, to, &path_at);
        if !to.is_empty() && !paths.insert(to) {
            errors.push(FieldError::invalid(&path_at, to, "must be unique"));
        }
        for mount in &container.volume_mounts {
            if !name.is_empty() && mount.name == name {
                let detail = "must not already exist in volumeMounts";
                errors.push(FieldError::invalid(&name_at, name, detail));
            }
            if !to.is_empty() && mount.mount_path == to {
                let detail = "must not already exist as a path in volumeMounts";
                errors.push(FieldError::invalid(&path_at, to, detail));
            }
        }
    }
}

fn device_name(errors: &mut Vec<FieldError>, name: &str, volumes: &[Volume], path: &str) {
    match volumes.iter().find(|v| v.name == name) {
        _ if name.is_empty() => errors.push(FieldError::required(path, "")),
        None => errors.push(FieldError::not_found(path, name)),
        Some(volume) if volume.persistent_volume_claim.is_some() => {}
        Some(_) => {
            let detail = format!(
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode; {NO_BLOCK_VOLUMES}"
            );
            errors.push(FieldError::invalid(path, name, detail));
        }
    }
}

fn device_path(errors: &mut Vec<FieldError>, to: &str, path: &str) {
    if to.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if to.split('/').any(|part| part == "..") {
        let detail = "can not contain backsteps ('..')";
        errors.push(FieldError::invalid(path, to, detail));
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
