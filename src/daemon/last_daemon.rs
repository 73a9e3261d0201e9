//! Knowledge about the last daemon, taken from the checkpoint and from the statuses that were kept since the boot.

use std::collections::{HashMap, HashSet};

use crate::api::{ContainerStatus, PodStatus, PodUid};
use crate::engine::runtime::ContainerId;
use crate::pods::checkpoint::Restored;
use crate::pods::prober::manager::RestoredReady;
use crate::pods::status::KeptStatuses;

/// Knowledge of the last daemon that the parts of this daemon use, besides the statuses themselves.
pub(super) struct LastDaemon {
    /// UIDs of the pods that the last daemon ran.
    pub(super) pods: HashSet<PodUid>,
    /// The last values of `ready` and `started` for each container that ran.
    pub(super) readiness: HashMap<ContainerId, RestoredReady>,
    /// Containers that a reboot of the node ended, by pod and name. Empty if the node has not been rebooted since the
    /// last daemon.
    pub(super) ended_with_the_node: Vec<(PodUid, String)>,
}

impl LastDaemon {
    /// Puts the kept statuses in place of the older ones of the checkpoint, and says what follows from all of them.
    pub(super) fn new(restored: &mut Restored, kept: &KeptStatuses) -> Self {
        let newest = match restored.is_newest {
            true => {
                kept.clear();
                HashMap::new()
            }
            false => kept.read(),
        };
        let ended_with_the_node = match restored.rebooted {
            true => instances(&restored.statuses, &newest),
            false => Vec::new(),
        };
        restored.statuses.extend(newest);
        Self {
            pods: restored.statuses.keys().cloned().collect(),
            readiness: readiness(&restored.statuses),
            ended_with_the_node,
        }
    }
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let all = status.container_statuses.iter();
    all.chain(&status.init_container_statuses)
}

fn readiness(statuses: &HashMap<PodUid, PodStatus>) -> HashMap<ContainerId, RestoredReady> {
    let running = statuses
        .values()
        .flat_map(containers)
        .filter(|c| c.state.running.is_some());
    let of = |c: &ContainerStatus| RestoredReady {
        ready: c.ready,
        started: c.started == Some(true),
    };
    running
        .map(|c| (c.container_id.as_str().into(), of(c)))
        .collect()
}

/// Returns pod and name of every container that had an instance, without the pods of `later`.
fn instances(
    statuses: &HashMap<PodUid, PodStatus>,
    later: &HashMap<PodUid, PodStatus>,
) -> Vec<(PodUid, String)> {
    let all = statuses
        .iter()
        .filter(|(uid, _)| !later.contains_key(uid))
        .flat_map(|(uid, status)| containers(status).map(move |c| (uid, c)));
    all.filter(|(_, c)| !c.container_id.is_empty())
        .map(|(uid, c)| (uid.clone(), c.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::Pod;
    use crate::base::paths::Layout;
    use crate::pods::status::StatusManager;

    #[test]
    fn containers_that_ran_are_taken_over_and_after_a_reboot_they_have_ended() {
        let statuses = serde_json::from_value(json!({"u": {
            "containerStatuses": [
                {"name": "runs", "containerID": "x://1", "ready": true, "started": true, "state": {"running": {}}},
                {"name": "never ran", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
            "initContainerStatuses": [
                {"name": "ended", "containerID": "x://2", "state": {"terminated": {"exitCode": 0}}}],
        }}));
        let mut restored = Restored {
            statuses: statuses.unwrap(),
            ..Restored::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let kept = || KeptStatuses::new(&Layout::new(dir.path()));
        let last = LastDaemon::new(&mut restored, &kept());
        let of_running = &last.readiness[&ContainerId::from("x://1")];
        assert!(of_running.ready && of_running.started);
        assert_eq!(last.readiness.len(), 1);
        assert_eq!(last.pods, HashSet::from(["u".into()]));
        assert_eq!(last.ended_with_the_node, []);
        restored.rebooted = true;
        let names = LastDaemon::new(&mut restored, &kept()).ended_with_the_node;
        assert_eq!(
            names,
            [("u".into(), "runs".into()), ("u".into(), "ended".into())]
        );
    }

    #[test]
    fn a_status_that_was_kept_since_the_boot_is_newer_than_that_of_the_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let kept = || KeptStatuses::new(&Layout::new(dir.path()));
        let of = |ready: bool| -> PodStatus {
            let one = json!({"name": "c", "containerID": "x://1", "ready": ready, "state": {"running": {}}});
            serde_json::from_value(json!({"containerStatuses": [one]})).unwrap()
        };
        let manager = StatusManager::new(HashMap::new(), Arc::default()).with_kept(kept());
        let pod = Pod {
            metadata: serde_json::from_value(json!({"uid": "u"})).unwrap(),
            spec: Default::default(),
            raw: Default::default(),
        };
        manager.set(&pod, of(false));
        manager.set_container_readiness(&pod, &"x://1".into(), true);
        let other: PodStatus = serde_json::from_value(
            json!({"containerStatuses": [{"name": "c", "containerID": "x://2", "state": {"running": {}}}]}),
        )
        .unwrap();
        let checkpoint = |rebooted, is_newest| Restored {
            statuses: HashMap::from([("u".into(), of(false)), ("v".into(), other.clone())]),
            rebooted,
            is_newest,
            ..Restored::default()
        };
        // The daemon was killed before it wrote the checkpoint again, also if the checkpoint is of the boot before.
        for rebooted in [false, true] {
            let mut restored = checkpoint(rebooted, false);
            let last = LastDaemon::new(&mut restored, &kept());
            assert!(last.readiness[&ContainerId::from("x://1")].ready);
            assert!(restored.statuses[&"u".into()].container_statuses[0].ready);
            assert_eq!(last.pods.len(), 2);
            let ended: Vec<_> = last
                .ended_with_the_node
                .into_iter()
                .map(|(uid, _)| uid)
                .collect();
            let wanted: Vec<PodUid> = rebooted.then(|| "v".into()).into_iter().collect();
            assert_eq!(ended, wanted);
        }
        // One that was only in the checkpoint is kept from the start of the next daemon on.
        let next = StatusManager::new(checkpoint(false, false).statuses, Arc::default());
        let next = next.with_kept(kept());
        let statuses = kept().read();
        assert!(statuses[&"u".into()].container_statuses[0].ready && statuses.len() == 2);
        drop(next);
        // It is kept until the pod is gone.
        let mut restored = Restored::default();
        manager.remove_orphans(&HashSet::from(["u".into()]));
        assert_eq!(LastDaemon::new(&mut restored, &kept()).pods.len(), 2);
        // A daemon that kept nothing wrote the checkpoint later.
        let last = LastDaemon::new(&mut checkpoint(false, true), &kept());
        assert!(!last.readiness[&ContainerId::from("x://1")].ready);
        assert_eq!(
            LastDaemon::new(&mut Restored::default(), &kept())
                .pods
                .len(),
            0
        );
        manager.set_container_readiness(&pod, &"x://1".into(), false);
        assert_eq!(
            LastDaemon::new(&mut Restored::default(), &kept())
                .pods
                .len(),
            1
        );
        manager.remove_orphans(&HashSet::new());
        assert_eq!(
            LastDaemon::new(&mut Restored::default(), &kept())
                .pods
                .len(),
            0
        );
    }
}
