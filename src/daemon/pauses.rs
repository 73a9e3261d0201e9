//! Pausing probes on request.

use std::sync::Arc;
use std::time::Duration;

use super::adapters::Prober;
use super::backend::DaemonBackend;
use crate::api::{Container, Pod, PodUid, ProbeType};
use crate::base::change_feed::Aspect;
use crate::base::clock::{Moment, go_duration};
use crate::face::server::protocol::PauseTarget;
use crate::pods::prober::pauses::{MAX_PAUSE, MIN_PAUSE, ProbeKey};

impl DaemonBackend {
    /// A pod that runs or is ending.
    pub(super) fn pod(&self, uid: &PodUid) -> Result<Arc<Pod>, String> {
        let ending = || {
            self.workers
                .working()
                .into_iter()
                .map(|(pod, _)| pod)
                .find(|pod| pod.uid() == uid)
        };
        self.pods
            .get(uid)
            .or_else(ending)
            .ok_or_else(|| "the pod is gone".into())
    }

    /// On disk before the answer, so that a daemon killed the moment after keeps its word.
    fn after_pausing(
        &self,
        uid: &PodUid,
        keys: &[ProbeKey],
        what: &str,
    ) -> Result<Vec<String>, String> {
        if let Err(e) = self.prober.manager.pauses().save() {
            log::warn!(
                "cannot write {}: {e}; the pauses hold until the daemon ends",
                self.layout.pauses().display()
            );
        }
        self.feed.tell(uid, Aspect::Probes);
        let name = |key: &ProbeKey| format!("{}/{}", key.container, key.probe_type.word());
        keys.iter()
            .for_each(|key| log::info!("probe {} of pod {}: {what}", name(key), key.uid));
        Ok(keys.iter().map(name).collect())
    }

    /// Backend's `pause`.
    pub(super) fn pause_probes(
        &self,
        target: &PauseTarget,
        length: Duration,
    ) -> Result<Vec<String>, String> {
        if !(MIN_PAUSE..=MAX_PAUSE).contains(&length) {
            return Err(format!(
                "a pause lasts from 1s to 168h, not {}",
                go_duration(length)
            ));
        }
        let keys = probe_keys(&*self.pod(&target.uid)?, target)?;
        self.prober
            .manager
            .pauses()
            .pause(keys.clone(), length, Moment::now());
        self.after_pausing(
            &target.uid,
            &keys,
            &format!("paused for {}", go_duration(length)),
        )
    }

    /// Backend's `resume`.
    pub(super) fn resume_probes(&self, target: &PauseTarget) -> Result<Vec<String>, String> {
        let keys = probe_keys(&*self.pod(&target.uid)?, target)?;
        let resumed = self.prober.manager.pauses().resume(&keys, Moment::now());
        self.after_pausing(&target.uid, &resumed, "resumed")
    }
}

/// The probes of a pod that are meant.
fn probe_keys(pod: &Pod, target: &PauseTarget) -> Result<Vec<ProbeKey>, String> {
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
        Err(format!("pod {} has no such probe", pod.metadata.name))
    } else {
        Ok(keys)
    }
}

/// Writes the file of pauses when they have changed. A failure is logged once, until a write succeeds.
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
