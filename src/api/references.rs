//! The objects that a pod refers to.

use std::collections::BTreeSet;

use super::objects::{ObjectKey, ObjectKind};
use super::pod::{EnvFromSource, EnvVar, Pod};

/// Every object that the containers and volumes of the pod refer to, there or not.
pub fn references(pod: &Pod) -> BTreeSet<ObjectKey> {
    let namespace = &pod.metadata.namespace;
    let containers = pod.spec.all_containers();
    containers
        .flat_map(|c| {
            let env = c.env.iter().filter_map(of_variable);
            env.chain(c.env_from.iter().filter_map(of_source))
        })
        .map(|(kind, name)| ObjectKey::new(kind, namespace, name))
        .collect()
}

fn of_variable(variable: &EnvVar) -> Option<(ObjectKind, &str)> {
    let from = variable.value_from.as_ref()?;
    let config_map = from.config_map_key_ref.as_ref();
    let secret = from.secret_key_ref.as_ref();
    config_map
        .map(|r| (ObjectKind::ConfigMap, r.name.as_str()))
        .or_else(|| secret.map(|r| (ObjectKind::Secret, r.name.as_str())))
}

fn of_source(source: &EnvFromSource) -> Option<(ObjectKind, &str)> {
    let config_map = source.config_map_ref.as_ref();
    let secret = source.secret_ref.as_ref();
    config_map
        .map(|r| (ObjectKind::ConfigMap, r.name.as_str()))
        .or_else(|| secret.map(|r| (ObjectKind::Secret, r.name.as_str())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_pods;

    #[test]
    fn variables_of_every_container_refer_to_objects() {
        let key = |kind: &str, name: &str| json!({"name": "V", "valueFrom": {kind: {"name": name, "key": "k"}}});
        let spec = json!({
            "initContainers": [{"name": "i", "image": "i", "env": [key("secretKeyRef", "s"), key("configMapKeyRef", "a")]}],
            "containers": [{"name": "c", "image": "i", "env": [{"name": "P", "value": "v"}],
                "envFrom": [{"configMapRef": {"name": "b"}}, {"secretRef": {"name": "t"}}]}],
        });
        let pod = test_pods::pod("p").spec(spec).build();
        let found: Vec<String> = references(&pod).iter().map(ToString::to_string).collect();
        let expected = [
            "ConfigMap default/a",
            "ConfigMap default/b",
            "Secret default/s",
            "Secret default/t",
        ];
        assert_eq!(found, expected);
    }
}
