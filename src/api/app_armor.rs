//! The AppArmor profile that a container asks for (kubelet-probes 8.12).

use super::pod::{AppArmorProfile, Container, Pod};

/// Prefix of the name of an AppArmor annotation, which is the old form of a container's profile. The name of the
/// container follows the prefix.
pub const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Value of an AppArmor annotation that means `RuntimeDefault`.
pub const RUNTIME_DEFAULT: &str = "runtime/default";
/// Value of an AppArmor annotation that means `Unconfined`.
pub const UNCONFINED: &str = "unconfined";
/// Prefix of the value of an AppArmor annotation that means `Localhost`. The name of the profile follows the prefix.
pub const LOCALHOST: &str = "localhost/";

/// Returns the profile of a container: that of the container's field, else that of the container's annotation, else
/// the pod's profile.
pub fn profile(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.app_armor_profile.clone();
    own.or_else(|| annotated(pod, &container.name))
        .or_else(|| pod.spec.security_context.app_armor_profile.clone())
}

fn annotated(pod: &Pod, container: &str) -> Option<AppArmorProfile> {
    let annotations = &pod.metadata.annotations;
    let value = annotations.get(&format!("{ANNOTATION}{container}"))?;
    let of_type = |type_: &str, localhost_profile| AppArmorProfile {
        type_: type_.into(),
        localhost_profile,
    };
    match (value.as_str(), value.strip_prefix(LOCALHOST)) {
        (RUNTIME_DEFAULT, _) => Some(of_type("RuntimeDefault", None)),
        (UNCONFINED, _) => Some(of_type("Unconfined", None)),
        (_, Some(name)) => Some(of_type("Localhost", Some(name.into()))),
        _ => None,
    }
}

/// Returns the profiles of the pod's containers that the kernel must enforce.
pub fn required(pod: &Pod) -> impl Iterator<Item = AppArmorProfile> {
    let all = pod.spec.all_containers();
    all.filter_map(|c| profile(pod, c))
        .filter(|p| p.type_ != "Unconfined")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods;

    #[track_caller]
    fn check(own: Value, annotation: &str, of_pod: Value, expected: Option<(&str, Option<&str>)>) {
        let context = |profile: Value| json!({"appArmorProfile": profile});
        let pod = test_pods::pod("p")
            .annotation(&format!("{ANNOTATION}c"), annotation)
            .annotation(&format!("{ANNOTATION}other"), "localhost/other")
            .spec(json!({"securityContext": context(of_pod),
                "containers": [{"name": "c", "securityContext": context(own)}]}))
            .build();
        let found = profile(&pod, &pod.spec.containers[0]);
        let found = found.as_ref();
        let found = found.map(|p| (p.type_.as_str(), p.localhost_profile.as_deref()));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_container_s_own_profile_wins_over_its_annotation_and_that_over_the_pod_s() {
        let default = || json!({"type": "RuntimeDefault"});
        let localhost = || json!({"type": "Localhost", "localhostProfile": "mine"});
        let (mine, none) = (Some(("Localhost", Some("mine"))), Value::Null);
        check(localhost(), "unconfined", default(), mine);
        check(
            none.clone(),
            "unconfined",
            default(),
            Some(("Unconfined", None)),
        );
        check(
            none.clone(),
            "runtime/default",
            localhost(),
            Some(("RuntimeDefault", None)),
        );
        check(none.clone(), "localhost/mine", default(), mine);
        check(none.clone(), "", localhost(), mine);
        check(none.clone(), "", none, None);
    }
}
