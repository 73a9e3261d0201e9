//! Warnings about fields of a StatefulSet that do not do what people expect (workloads 5.1, 5.8).
//!
//! Invariants: pure.

use crate::api::workload::StatefulSetSpec;

/// Returns the warning that `maxUnavailable` is ignored, if it is written.
pub fn ignored_max_unavailable(spec: &StatefulSetSpec) -> Option<String> {
    let settings = spec.update_strategy.rolling_update.as_ref()?;
    let written = settings.max_unavailable.as_ref()?;
    Some(format!(
        "spec.updateStrategy.rollingUpdate.maxUnavailable: {written} is ignored: a StatefulSet updates one pod at a time, as Kubernetes does without the feature gate MaxUnavailableStatefulSet"
    ))
}

/// Returns the warning that the pods get no names of their own. `has_service` says whether a headless Service with the
/// name in `serviceName` selects the pods.
pub fn missing_service(spec: &StatefulSetSpec, has_service: bool) -> Option<String> {
    let service = &spec.service_name;
    if has_service || service.is_empty() {
        return None;
    }
    Some(format!(
        "spec.serviceName: the pods have no names of their own, because no headless Service {service} (clusterIP: None) selects them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::workload::{IntOrPercent, RollingUpdateStatefulSet};

    #[test]
    fn a_max_unavailable_is_said_to_be_ignored() {
        let mut spec = StatefulSetSpec::default();
        spec.update_strategy.rolling_update = Some(RollingUpdateStatefulSet::default());
        assert_eq!(ignored_max_unavailable(&spec), None);
        spec.update_strategy.rolling_update = Some(RollingUpdateStatefulSet {
            partition: None,
            max_unavailable: Some(IntOrPercent::Text("50%".to_owned())),
        });
        let warning = ignored_max_unavailable(&spec).unwrap();
        assert!(
            warning
                .starts_with("spec.updateStrategy.rollingUpdate.maxUnavailable: 50% is ignored: ")
        );
    }

    #[test]
    fn a_named_service_that_is_not_there_is_said() {
        let mut spec = StatefulSetSpec::default();
        assert_eq!(missing_service(&spec, false), None);
        spec.service_name = "names".to_owned();
        assert_eq!(missing_service(&spec, true), None);
        let warning = missing_service(&spec, false).unwrap();
        assert!(warning.contains("no headless Service names "), "{warning}");
    }
}
