//! Knowledge about the last daemon, taken from the checkpoint.

use std::collections::{HashMap, HashSet};

use crate::api::{ContainerStatus, PodStatus, PodUid};
use crate::engine::runtime::ContainerId;
use crate::pods::checkpoint::Restored;
use crate::pods::prober::manager::RestoredReady;

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
    pub(super) fn new(restored: &Restored) -> Self {
        let statuses = &restored.statuses;
        Self {
            pods: statuses.keys().cloned().collect(),
            readiness: readiness(statuses),
            ended_with_the_node: match restored.rebooted {
                true => instances(statuses),
                false => Vec::new(),
            },
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

/// Returns pod and name of every container that had an instance.
fn instances(statuses: &HashMap<PodUid, PodStatus>) -> Vec<(PodUid, String)> {
    let all = statuses
        .iter()
        .flat_map(|(uid, status)| containers(status).map(move |c| (uid, c)));
    all.filter(|(_, c)| !c.container_id.is_empty())
        .map(|(uid, c)| (uid.clone(), c.name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let last = LastDaemon::new(&restored);
        let of_running = &last.readiness[&ContainerId::from("x://1")];
        assert!(of_running.ready && of_running.started);
        assert_eq!(last.readiness.len(), 1);
        assert_eq!(last.pods, HashSet::from(["u".into()]));
        assert_eq!(last.ended_with_the_node, []);
        restored.rebooted = true;
        let names = LastDaemon::new(&restored).ended_with_the_node;
        assert_eq!(
            names,
            [("u".into(), "runs".into()), ("u".into(), "ended".into())]
        );
    }
}
