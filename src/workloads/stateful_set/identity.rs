//! What a pod of a StatefulSet has beside its template: name, host name, labels and volumes (workloads 5.1, 5.2).
//!
//! Invariants: pure. The identity follows from the set, the number and the revision alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::claims::claim_name;
use super::ordinals::pod_name;
use crate::api::workload::StatefulSetSpec;
use crate::workloads::controller_revisions::REVISION_LABEL;
use crate::workloads::edit_object::edit_object;

/// Label with the pod's own name.
pub const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label with the pod's number.
pub const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The parts of a pod of a StatefulSet that are not in its template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIdentity {
    /// Name of the pod, which is its host name as well.
    pub name: String,
    /// `spec.subdomain`: the name of the set's Service. It may be empty.
    pub subdomain: String,
    /// Labels that the pod gets beside those of the template.
    pub labels: BTreeMap<String, String>,
    /// Volumes that are claims, which replace volumes of the template with the same names.
    pub volumes: Vec<ClaimVolume>,
}

/// A volume of a pod that is the pod's own claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimVolume {
    /// Name of the volume, which is the name of the claim's template.
    pub volume: String,
    /// Name of the claim.
    pub claim: String,
}

impl PodIdentity {
    /// Makes the identity of the set's pod with this number. `revision` is the name of the pod's revision.
    pub fn new(set: &str, spec: &StatefulSetSpec, ordinal: i32, revision: &str) -> Self {
        let name = pod_name(set, ordinal);
        let labels = [
            (POD_NAME_LABEL, name.clone()),
            (POD_INDEX_LABEL, ordinal.to_string()),
            (REVISION_LABEL, revision.to_owned()),
        ];
        let volumes = spec.volume_claim_templates.iter().map(|it| ClaimVolume {
            volume: it.metadata.name.clone(),
            claim: claim_name(&it.metadata.name, set, ordinal),
        });
        Self {
            name,
            subdomain: spec.service_name.clone(),
            labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
            volumes: volumes.collect(),
        }
    }

    /// Writes the identity into a pod object that was made from the template. What the template says of it is
    /// overwritten.
    pub fn write_into(&self, pod: &mut Map<String, Value>) {
        edit_object(pod, "metadata", |metadata| {
            metadata.insert("name".to_owned(), self.name.as_str().into());
            edit_object(metadata, "labels", |labels| {
                let own = self.labels.iter();
                labels.extend(own.map(|(key, value)| (key.clone(), value.as_str().into())));
            });
        });
        edit_object(pod, "spec", |spec| self.write_into_spec(spec));
    }

    fn write_into_spec(&self, spec: &mut Map<String, Value>) {
        spec.insert("hostname".to_owned(), self.name.as_str().into());
        spec.insert("subdomain".to_owned(), self.subdomain.as_str().into());
        if self.subdomain.is_empty() {
            spec.remove("subdomain");
        }
        if !self.volumes.is_empty() {
            let volumes = self.merged_volumes(spec.remove("volumes"));
            spec.insert("volumes".to_owned(), volumes);
        }
    }

    fn merged_volumes(&self, written: Option<Value>) -> Value {
        let claims = self
            .volumes
            .iter()
            .map(|it| json!({"name": it.volume, "persistentVolumeClaim": {"claimName": it.claim}}));
        let is_replaced = |volume: &Value| {
            let name = volume.get("name").and_then(Value::as_str);
            self.volumes.iter().any(|it| Some(&*it.volume) == name)
        };
        let written = match written {
            Some(Value::Array(volumes)) => volumes,
            _ => Vec::new(),
        };
        let others = written.into_iter().filter(|it| !is_replaced(it));
        claims.chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::ClaimTemplate;

    fn spec(service: &str, claims: &[&str]) -> StatefulSetSpec {
        let template = |name: &&str| {
            let mut template = ClaimTemplate::default();
            template.metadata.name = (*name).to_owned();
            template
        };
        StatefulSetSpec {
            service_name: service.to_owned(),
            volume_claim_templates: claims.iter().map(template).collect(),
            ..StatefulSetSpec::default()
        }
    }

    #[track_caller]
    fn check(spec: &StatefulSetSpec, template: Value, expected: Value) {
        let mut pod = template.as_object().unwrap().clone();
        PodIdentity::new("db", spec, 2, "db-abc").write_into(&mut pod);
        assert_eq!(Value::Object(pod), expected);
    }

    #[test]
    fn the_identity_overwrites_what_the_template_says() {
        let labels = json!({
            "app": "db",
            "controller-revision-hash": "db-abc",
            "statefulset.kubernetes.io/pod-name": "db-2",
            "apps.kubernetes.io/pod-index": "2"
        });
        check(
            &spec("names", &[]),
            json!({
                "metadata": {"labels": {"app": "db", "apps.kubernetes.io/pod-index": "9"}},
                "spec": {"hostname": "mine", "subdomain": "too", "volumes": [{"name": "a"}]}
            }),
            json!({
                "metadata": {"name": "db-2", "labels": labels},
                "spec": {"hostname": "db-2", "subdomain": "names", "volumes": [{"name": "a"}]}
            }),
        );
    }

    #[test]
    fn a_set_without_a_service_gives_no_subdomain() {
        let mut pod = json!({"spec": {"subdomain": "mine"}});
        let pod = pod.as_object_mut().unwrap();
        PodIdentity::new("db", &spec("", &[]), 2, "db-abc").write_into(pod);
        assert_eq!(pod["spec"], json!({"hostname": "db-2"}));
    }

    #[test]
    fn claims_replace_volumes_with_their_names() {
        let claim = |name: &str| {
            let claim = format!("{name}-db-2");
            json!({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        };
        let mut pod =
            json!({"spec": {"volumes": [{"name": "log", "emptyDir": {}}, {"name": "a"}]}});
        let pod = pod.as_object_mut().unwrap();
        PodIdentity::new("db", &spec("", &["data", "log"]), 2, "db-abc").write_into(pod);
        let expected = json!([claim("data"), claim("log"), {"name": "a"}]);
        assert_eq!(pod["spec"]["volumes"], expected);
    }
}
