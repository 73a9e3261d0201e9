//! The references of a static pod for which an API server takes no mirror pod (kubelet-probes 1.6).

use crate::api::Pod;
use crate::api::objects::ObjectKind;
use crate::api::references::references;

/// Returns what the pod refers to, in the API's word, in the order in which a kubelet looks. Returns None if the API
/// server takes a mirror pod of the pod. Other references refuse a static pod before it comes here.
pub(super) fn reference(pod: &Pod) -> Option<&'static str> {
    if has_service_account(pod) {
        return Some("serviceaccounts");
    }
    let found = references(pod);
    let has = |kind: ObjectKind| found.iter().any(|key| key.kind == kind);
    let kinds = [
        (ObjectKind::Secret, "secrets"),
        (ObjectKind::ConfigMap, "configmaps"),
        (ObjectKind::PersistentVolumeClaim, "persistentvolumeclaims"),
    ];
    let first = kinds.into_iter().find(|(kind, _)| has(*kind));
    first.map(|(_, word)| word)
}

fn has_service_account(pod: &Pod) -> bool {
    let names = ["/spec/serviceAccountName", "/spec/serviceAccount"];
    names.iter().any(|field| {
        let name = pod.raw.at(field);
        name.is_some_and(|name| name.as_str().is_some_and(|name| !name.is_empty()))
    })
}
