//! The registry credentials from a pod's `imagePullSecrets`.

use crate::api::Pod;
use crate::api::objects::{DOCKER_CONFIG_JSON, DOCKERCFG, ObjectSet, Secret};
use crate::engine::images::registry::{DockerConfig, DockerConfigError};

/// The registry credentials from the Secrets that a pod names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PullSecrets {
    /// The credentials, in the pod's order.
    pub(super) configs: Vec<DockerConfig>,
    /// The names of the Secrets without credentials, some with the reason.
    unusable: Vec<String>,
}

impl PullSecrets {
    /// Reads the credentials of a pod. `objects` has the existing objects that the pod refers to.
    pub(super) fn of(pod: &Pod, objects: &ObjectSet) -> Self {
        let mut all = Self::default();
        let names = pod.spec.image_pull_secrets.iter().map(|r| r.name.as_str());
        // The API accepts an empty name, which refers to no Secret.
        for name in names.filter(|name| !name.is_empty()) {
            match objects.secret(&pod.metadata.namespace, name) {
                Err(_) => all.unusable.push(name.to_owned()),
                Ok(secret) => match config(secret, name) {
                    Ok(config) => all.configs.push(config),
                    Err(why) => all.unusable.push(format!("{name}: {why}")),
                },
            }
        }
        all
    }

    /// Returns the text of the kubelet's event about Secrets without usable credentials, or `None` if every named
    /// Secret has credentials.
    pub(super) fn warning(&self) -> Option<String> {
        (!self.unusable.is_empty()).then(|| {
            format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                self.unusable.join(", ")
            )
        })
    }
}

/// The reason why a Secret has no credentials.
#[derive(Debug, thiserror::Error)]
enum PullSecretError {
    /// The credentials in the Secret cannot be used.
    #[error(transparent)]
    Login(#[from] DockerConfigError),
    /// The type of the Secret is not a type for credentials.
    #[error("its type is {type_}, and a login has {} or {}", DOCKER_CONFIG_JSON.0, DOCKERCFG.0)]
    Type { type_: String },
}

fn config(secret: &Secret, name: &str) -> Result<DockerConfig, PullSecretError> {
    let source = format!("Secret {name}");
    let of = |key: &str| secret.data.get(key).map(Vec::as_slice).unwrap_or_default();
    let parsed = match secret.type_.as_str() {
        t if t == DOCKER_CONFIG_JSON.0 => DockerConfig::parse(of(DOCKER_CONFIG_JSON.1), &source),
        t if t == DOCKERCFG.0 => DockerConfig::parse_dockercfg(of(DOCKERCFG.1), &source),
        other => {
            let type_ = other.to_owned();
            return Err(PullSecretError::Type { type_ });
        }
    };
    Ok(parsed?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind};
    use crate::test_pods;

    fn secret(name: &str, type_: &str, key: &str, text: &str) -> LocalObject {
        LocalObject {
            key: ObjectKey::new(ObjectKind::Secret, "default", name),
            content: ObjectContent::Secret(Arc::new(Secret {
                type_: type_.into(),
                data: [(key.to_owned(), text.as_bytes().to_vec())].into(),
                ..Secret::default()
            })),
        }
    }

    fn of(names: &[&str]) -> PullSecrets {
        let auths = r#"{"r.example": {"username": "u", "password": "p"}}"#;
        let whole = format!("{{\"auths\": {auths}}}");
        let objects = [
            secret("new", DOCKER_CONFIG_JSON.0, DOCKER_CONFIG_JSON.1, &whole),
            secret("old", DOCKERCFG.0, DOCKERCFG.1, auths),
            secret("other", "Opaque", DOCKER_CONFIG_JSON.1, &whole),
            secret(
                "bad",
                DOCKER_CONFIG_JSON.0,
                DOCKER_CONFIG_JSON.1,
                "{\"auths\": 5}",
            ),
        ];
        let names: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let spec = json!({"imagePullSecrets": names, "containers": [{"name": "c", "image": "i"}]});
        let pod = test_pods::pod("p").spec(spec).build();
        PullSecrets::of(&pod, &objects.into_iter().collect())
    }

    #[test]
    fn both_forms_of_a_login_are_read_in_the_pods_order() {
        let both = of(&["old", "", "new"]);
        assert_eq!(both.configs.len(), 2);
        assert_eq!(both.warning(), None);
        assert_eq!(of(&["new", "old"]).configs[0], both.configs[1]);
    }

    #[test]
    fn what_gives_no_login_is_named_and_the_others_count() {
        let all = of(&["none", "new", "other", "bad"]);
        assert_eq!(all.configs.len(), 1);
        let text = all.warning().unwrap();
        let start = "Unable to retrieve some image pull secrets (none, other: its type is Opaque, and a login has kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg, bad: cannot use Secret bad: ";
        assert!(
            text.starts_with(start)
                && text.ends_with("); attempting to pull the image may not succeed."),
            "{text}"
        );
    }
}
