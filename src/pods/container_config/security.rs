//! The privileges of a container's processes (the kubelet's `determineEffectiveSecurityContext` and
//! `pkg/securitycontext`).

use super::Inputs;
use crate::api::app_armor;
use crate::api::capabilities::{canonical, has_prefix};
use crate::api::pod::{AppArmorProfile as Profile, Capabilities, SeccompProfile as Wanted};
use crate::api::{Container, Pod};
use crate::engine::runtime::{AppArmorProfile, SeccompProfile, Security};

/// The paths that the kubelet hides in every runtime (pkg/securitycontext/util.go).
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// The paths that the kubelet makes read-only in every runtime (pkg/securitycontext/util.go).
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The reason why a container cannot have the privileges that its pod requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// The type of the seccomp profile is unknown, or its file is not given.
    #[error("cannot apply seccompProfile {0}")]
    Seccomp(String),
    /// The type of the AppArmor profile is unknown, or its name is not given.
    #[error("cannot apply appArmorProfile {0}")]
    AppArmor(String),
    /// The pod has `runAsNonRoot`, but the container may run as root.
    #[error("{breach} (pod: \"{pod}\", container: {container})")]
    NonRoot {
        /// The user that breaks the rule.
        breach: NonRootBreach,
        /// The pod as it is named in events.
        pod: String,
        /// The name of the container.
        container: String,
    },
    /// The kernel has no user or group with this number.
    #[error("cannot use {value} as {field}: must be between 0 and 2147483647")]
    Id {
        /// The value of the field.
        value: i64,
        /// The name of the field.
        field: &'static str,
    },
}

/// The user that breaks the rule `runAsNonRoot`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NonRootBreach {
    /// The user of the pod's spec is root.
    #[error("container's runAsUser breaks non-root policy")]
    RunAsUser,
    /// The user of the image is root.
    #[error("container has runAsNonRoot and image will run as root")]
    ImageOfRoot,
    /// The user of the image is a name. Only the image knows the number of that user.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root"
    )]
    ImageOfName(String),
}

/// Returns the privileges of a container. The container's own fields count before the pod's fields.
pub(super) fn security(i: &Inputs<'_>) -> Result<Security, SecurityError> {
    let (c, p) = (&i.container.security_context, &i.pod.spec.security_context);
    let run_as_user = c.run_as_user.or(p.run_as_user);
    if c.run_as_non_root.or(p.run_as_non_root) == Some(true) {
        verify_non_root(i, run_as_user)?;
    }
    let privileged = c.privileged == Some(true);
    let owned = |paths: &[&str]| paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
    let mut masked_paths = owned(&MASKED);
    masked_paths.extend(i.node.thermal_throttle.iter().cloned());
    let id = |value: Option<i64>, field| value.map(|v| id(v, field)).transpose();
    Ok(Security {
        privileged,
        add_capabilities: granted(&c.capabilities),
        drop_capabilities: names(&c.capabilities, |c| &c.drop),
        run_as_user: id(run_as_user, "runAsUser")?,
        run_as_group: id(c.run_as_group.or(p.run_as_group), "runAsGroup")?,
        supplemental_groups: p
            .supplemental_groups
            .iter()
            .map(|gid| (*gid, "supplementalGroups"))
            .chain(p.fs_group.map(|gid| (gid, "fsGroup")))
            .filter_map(|(gid, field)| id(Some(gid), field).transpose())
            .collect::<Result<_, _>>()?,
        strict_groups: p.supplemental_groups_policy.as_deref() == Some("Strict"),
        read_only_root: c.read_only_root_filesystem == Some(true),
        no_new_privileges: c.allow_privilege_escalation == Some(false),
        seccomp: match seccomp_profile(i.pod, i.container) {
            // A privileged container never has a profile, as in containerd.
            Some(_) if privileged => SeccompProfile::Unconfined,
            None => SeccompProfile::Unconfined,
            Some(wanted) => seccomp(i, wanted)?,
        },
        app_armor: app_armor(app_armor::profile(i.pod, i.container))?,
        masked_paths: if privileged { vec![] } else { masked_paths },
        readonly_paths: if privileged { vec![] } else { owned(&READONLY) },
    })
}

/// Returns the capabilities to add. As in containerd, a name with the prefix `CAP_` grants nothing.
fn granted(all: &Capabilities) -> Vec<String> {
    let plain = all.add.iter().filter(|name| !has_prefix(name)).cloned();
    let plain = Capabilities {
        add: plain.collect(),
        ..Capabilities::default()
    };
    names(&plain, |c| &c.add)
}

/// Returns the names of capabilities in upper case without `CAP_`. An unknown name is passed on, and the runtime
/// rejects it.
fn names(all: &Capabilities, which: impl Fn(&Capabilities) -> &Vec<String>) -> Vec<String> {
    let plain = |name: &String| match canonical(name) {
        Some(known) => known.to_owned(),
        None => name.to_ascii_uppercase(),
    };
    which(all).iter().map(plain).collect()
}

/// Returns the container's own profile, or the pod's profile if the container has none.
fn seccomp_profile<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a Wanted> {
    let of_pod = pod.spec.security_context.seccomp_profile.as_ref();
    container
        .security_context
        .seccomp_profile
        .as_ref()
        .or(of_pod)
}

fn seccomp(i: &Inputs<'_>, wanted: &Wanted) -> Result<SeccompProfile, SecurityError> {
    match (wanted.type_.as_str(), &wanted.localhost_profile) {
        ("Unconfined", _) => Ok(SeccompProfile::Unconfined),
        ("RuntimeDefault", _) => Ok(SeccompProfile::RuntimeDefault),
        ("Localhost", Some(name)) => Ok(SeccompProfile::Localhost(i.seccomp_profiles.join(name))),
        (other, _) => Err(SecurityError::Seccomp(other.to_owned())),
    }
}

fn app_armor(wanted: Option<Profile>) -> Result<AppArmorProfile, SecurityError> {
    let Some(wanted) = wanted else {
        return Ok(AppArmorProfile::Unspecified);
    };
    match (wanted.type_.as_str(), wanted.localhost_profile) {
        ("Unconfined", _) => Ok(AppArmorProfile::Unconfined),
        ("RuntimeDefault", _) => Ok(AppArmorProfile::RuntimeDefault),
        ("Localhost", Some(name)) => Ok(AppArmorProfile::Localhost(name)),
        (other, _) => Err(SecurityError::AppArmor(other.to_owned())),
    }
}

/// Checks `runAsNonRoot` like the kubelet's `verifyRunAsNonRoot`. A user name is always rejected, whatever its uid,
/// because the image itself maps names to uids.
fn verify_non_root(i: &Inputs<'_>, run_as_user: Option<i64>) -> Result<(), SecurityError> {
    let name = i.image_user.split(':').next().unwrap_or_default();
    let breach = match (run_as_user, name, name.parse::<u32>()) {
        (Some(0), ..) => NonRootBreach::RunAsUser,
        (Some(_), ..) | (None, _, Ok(1..)) => return Ok(()),
        (None, "", _) | (None, _, Ok(0)) => NonRootBreach::ImageOfRoot,
        (None, name, Err(_)) => NonRootBreach::ImageOfName(name.to_owned()),
    };
    Err(SecurityError::NonRoot {
        breach,
        pod: i.pod.reference().to_string(),
        container: i.container.name.clone(),
    })
}

fn id(value: i64, field: &'static str) -> Result<u32, SecurityError> {
    u32::try_from(value)
        .ok()
        .filter(|v| *v <= i32::MAX as u32)
        .ok_or(SecurityError::Id { value, field })
}
