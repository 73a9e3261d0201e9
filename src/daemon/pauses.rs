//! Finds the probes that a pause applies to, and writes pauses to the disk.

use std::sync::Arc;

use super::adapters::Prober;
use crate::api::{Container, Pod, ProbeType};
use crate::face::server::RequestError;
use crate::face::server::protocol::PauseTarget;
use crate::pods::prober::pauses::ProbeKey;

/// Returns the keys of the pod's probes that `target` names.
pub(super) fn probe_keys(pod: &Pod, target: &PauseTarget) -> Result<Vec<ProbeKey>, RequestError> {
    let wanted = |name: &str| {
        target
            .container
            .as_deref()
            .is_none_or(|wanted| wanted == name)
    };
    let containers = pod.spec.all_containers().filter(|c| wanted(&c.name));
    let types = |c| {
        ProbeType::ALL.into_iter().filter(move |t| {
            target.probe_type.is_none_or(|w| w == *t) && Container::probe(c, *t).is_some()
        })
    };
    let key = |c: &Container, probe_type| ProbeKey {
        uid: pod.uid().clone(),
        container: c.name.clone(),
        probe_type,
    };
    let keys: Vec<_> = containers
        .flat_map(|c| types(c).map(|t| key(c, t)))
        .collect();
    if keys.is_empty() {
        Err(RequestError::NoProbe(pod.metadata.name.clone()))
    } else {
        Ok(keys)
    }
}

/// Returns a function that writes the pauses to their file if the pauses have changed. A failed write is logged,
/// unless the write before it failed too.
pub(super) fn saver(prober: Arc<Prober>) -> impl FnMut() + Send + 'static {
    let mut failed = false;
    move || match prober.manager.pauses().save() {
        Ok(()) => failed = false,
        Err(e) if !failed => {
            log::warn!(
                "cannot write the pauses of probes: {e}; they are kept in memory, trying again"
            );
            failed = true;
        }
        Err(_) => {}
    }
}
