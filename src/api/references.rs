//! The objects that a pod refers to.

use std::collections::BTreeSet;

use super::objects::{ObjectKey, ObjectKind};
use super::pod::{EnvFromSource, EnvVar, Pod, Volume, VolumeProjection};

/// Returns the key of every object that the containers and volumes of the pod refer to. The objects need not exist.
pub fn references(pod: &Pod) -> BTreeSet<ObjectKey> {
    let namespace = &pod.metadata.namespace;
    let containers = pod.spec.all_containers();
    let pull_secrets = pod.spec.image_pull_secrets.iter();
    let class = pod.spec.runtime_class_name.as_deref();
    let class = class.filter(|class| !class.is_empty());
    let class = class.map(|name| ObjectKey::new(ObjectKind::RuntimeClass, "", name));
    containers
        .flat_map(|c| {
            let env = c.env.iter().filter_map(of_variable);
            env.chain(c.env_from.iter().filter_map(of_source))
        })
        .chain(pod.spec.volumes.iter().flat_map(of_volume))
        .chain(pull_secrets.map(|r| (ObjectKind::Secret, r.name.as_str())))
        .map(|(kind, name)| ObjectKey::new(kind, namespace, name))
        .chain(class)
        .collect()
}

type Reference<'a> = (ObjectKind, &'a str);

fn of_variable(variable: &EnvVar) -> Option<Reference<'_>> {
    let from = variable.value_from.as_ref()?;
    let config_map = from.config_map_key_ref.as_ref().map(|r| r.name.as_str());
    let secret = from.secret_key_ref.as_ref().map(|r| r.name.as_str());
    either(config_map, secret)
}

fn of_source(source: &EnvFromSource) -> Option<Reference<'_>> {
    let config_map = source.config_map_ref.as_ref().map(|r| r.name.as_str());
    let secret = source.secret_ref.as_ref().map(|r| r.name.as_str());
    either(config_map, secret)
}

fn either<'a>(config_map: Option<&'a str>, secret: Option<&'a str>) -> Option<Reference<'a>> {
    let config_map = config_map.map(|name| (ObjectKind::ConfigMap, name));
    config_map.or_else(|| secret.map(|name| (ObjectKind::Secret, name)))
}

fn of_volume(volume: &Volume) -> Vec<Reference<'_>> {
    let config_map = volume.config_map.as_ref().map(|v| v.name.as_str());
    let secret = volume.secret.as_ref().map(|v| v.secret_name.as_str());
    let claim = volume.persistent_volume_claim.as_ref();
    let claim = claim.map(|v| v.claim_name.as_str());
    let projected = volume.projected.iter().flat_map(|v| &v.sources);
    let own = [
        config_map.map(|name| (ObjectKind::ConfigMap, name)),
        secret.map(|name| (ObjectKind::Secret, name)),
        claim.map(|name| (ObjectKind::PersistentVolumeClaim, name)),
    ];
    let own = own.into_iter().flatten();
    own.chain(projected.flat_map(of_projection)).collect()
}

fn of_projection(source: &VolumeProjection) -> impl Iterator<Item = (ObjectKind, &str)> {
    let config_map = source.config_map.as_ref();
    let config_map = config_map.map(|p| (ObjectKind::ConfigMap, p.name.as_str()));
    let secret = source.secret.as_ref();
    let secret = secret.map(|p| (ObjectKind::Secret, p.name.as_str()));
    config_map.into_iter().chain(secret)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    #[test]
    fn variables_logins_and_the_runtime_refer_to_objects() {
        let key = |kind: &str, name: &str| json!({"name": "V", "valueFrom": {kind: {"name": name, "key": "k"}}});
        let spec = json!({
            "imagePullSecrets": [{"name": "login"}],
            "runtimeClassName": "slow",
            "initContainers": [{"name": "i", "image": "i", "env": [key("secretKeyRef", "s"), key("configMapKeyRef", "a")]}],
            "containers": [{"name": "c", "image": "i", "env": [{"name": "P", "value": "v"}],
                "envFrom": [{"configMapRef": {"name": "b"}}, {"secretRef": {"name": "t"}}]}],
        });
        let pod = test_pods::pod("p").spec(spec).build();
        let found: Vec<String> = references(&pod).iter().map(ToString::to_string).collect();
        let expected = [
            "ConfigMap default/a",
            "ConfigMap default/b",
            "Secret default/login",
            "Secret default/s",
            "Secret default/t",
            "RuntimeClass slow",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn volumes_refer_to_objects() {
        let volumes = json!([
            {"name": "a", "configMap": {"name": "a"}},
            {"name": "b", "secret": {"secretName": "b"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "d", "downwardAPI": {}},
            {"name": "e", "projected": {"sources": [
                {"configMap": {"name": "p"}}, {"secret": {"name": "q"}}, {"downwardAPI": {}}]}},
        ]);
        let pod = test_pods::pod("p")
            .spec(json!({"volumes": volumes}))
            .build();
        let found: Vec<String> = references(&pod).iter().map(ToString::to_string).collect();
        let expected = [
            "ConfigMap default/a",
            "ConfigMap default/p",
            "Secret default/b",
            "Secret default/q",
            "PersistentVolumeClaim default/c",
        ];
        assert_eq!(found, expected);
    }
}
