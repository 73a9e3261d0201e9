//! The requests of clients that change pods and probes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::backend::DaemonBackend;
use super::pauses::probe_keys;
use super::restarts::chosen;
use crate::api::conditions::{ConditionChange, ConditionStatus};
use crate::api::{Pod, PodPhase, PodRef, PodSource, PodUid};
use crate::base::change_feed::Aspect;
use crate::base::clock::{Moment, Time, go_duration};
use crate::face::server::protocol::{
    ClosedBy, ConditionSet, DeleteTarget, Deleted, DrainRequest, MAX_GRACE, NodeOrders,
    PauseTarget, ProbeTarget, RestartTarget, UncordonRequest,
};
use crate::face::server::{RequestError, Requests};
use crate::face::views::ProbeReport;
use crate::pods::admission::{Closed, Rejection};
use crate::pods::prober::pauses::{MAX_PAUSE, MIN_PAUSE, ProbeKey};
use crate::pods::status::{DELETED, EVICTED, is_of_ended};
use crate::pods::workers::WorkerStage;
use crate::workloads::view::{ChangeRequest, Changed};

impl Requests for DaemonBackend {
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, RequestError> {
        let pod = self.pod_or_ending(&target.uid)?;
        let manager = &self.prober.manager;
        let (outcome, steps) = manager.probe_now(&pod, &target.container, target.probe_type)?;
        Ok(ProbeReport::new(&outcome, steps))
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, RequestError> {
        if !(MIN_PAUSE..=MAX_PAUSE).contains(&length) {
            return Err(RequestError::PauseLength(length));
        }
        let keys = probe_keys(&*self.pod_or_ending(&target.uid)?, target)?;
        self.prober
            .manager
            .pauses()
            .pause(keys.clone(), length, Moment::now());
        let what = format!("paused for {}", go_duration(length));
        Ok(self.after_pausing(&target.uid, &keys, &what))
    }

    fn resume(&self, target: &PauseTarget) -> Result<Vec<String>, RequestError> {
        let keys = probe_keys(&*self.pod_or_ending(&target.uid)?, target)?;
        let resumed = self.prober.manager.pauses().resume(&keys, Moment::now());
        Ok(self.after_pausing(&target.uid, &resumed, "resumed"))
    }

    /// Asks the pod's worker to restart containers. The worker restarts them in the order of a sync.
    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, RequestError> {
        let uid = &target.uid;
        let pod = self
            .pods
            .manager
            .get(uid)
            .ok_or(RequestError::PodGoneOrEnding)?;
        // The runtime is asked, because PLEG's cache is up to a second old.
        let runtime = self.kuberuntime.runtime().pod_status(uid)?;
        let chosen = chosen(&pod, target.container.as_deref(), &runtime)?;
        for (name, id) in &chosen {
            self.restarts.ask(uid, name, id.clone());
        }
        self.look_again(uid)?;
        Ok(chosen.into_iter().map(|(name, _)| name).collect())
    }

    /// Asks the pod's worker to end the pod, as it ends an evicted pod.
    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, RequestError> {
        let uid = &target.uid;
        let grace = target.grace_period_seconds;
        if let Some(seconds) = grace.filter(|s| !(0..=MAX_GRACE).contains(s)) {
            return Err(RequestError::GracePeriod(seconds));
        }
        let pod = self
            .pods
            .manager
            .get(uid)
            .ok_or(RequestError::PodGoneOrEnding)?;
        let file = self.sources.files.get(uid).unwrap_or_default().file;
        if pod.source() == PodSource::Controller {
            self.sources.board.delete_pod(uid, grace)?;
            return Ok(Deleted { file });
        }
        if pod.source() == PodSource::Api {
            return Err(RequestError::OfTheApiServer {
                namespace: pod.metadata.namespace.clone(),
                name: pod.metadata.name.clone(),
            });
        }
        let status = self.pods.statuses.get(uid).unwrap_or_default();
        if let Some(why) = Rejection::of(&status) {
            let reason = why.reason.to_string();
            return Err(RequestError::NotAdmitted { reason, file });
        }
        if status.phase.is_terminal() && status.reason != EVICTED {
            let how = match status.reason.as_str() {
                "" => status.phase.as_str(),
                reason => reason,
            };
            let how = how.to_owned();
            return Err(RequestError::EndedAlready { how, file });
        }
        let message = format!("The pod was deleted until its file changes: {file}");
        match self.evictions.delete(&pod, &message, grace) {
            Ok(()) => {
                // The worker of a pod that a drain holds has finished, and tells nobody.
                let has_finished = self.workers.stage(uid) == Some(WorkerStage::Finished);
                if is_of_ended(&status) && has_finished {
                    let mut status = (*status).clone();
                    status.phase = PodPhase::Failed;
                    status.reason = DELETED.to_owned();
                    status.message = message;
                    self.pods.statuses.set(&pod, status);
                }
                Ok(Deleted { file })
            }
            Err(cause) => Err(RequestError::DeletionNotWritten {
                path: self.layout.eviction(uid),
                cause,
                file,
            }),
        }
    }

    fn reload(&self) -> Result<Vec<String>, RequestError> {
        self.reload_configuration()
    }

    fn node_orders(&self) -> NodeOrders {
        self.orders(false)
    }

    fn cordon(&self) -> Result<NodeOrders, RequestError> {
        self.stands_alone("cordon")?;
        self.ordered("cordon the node", self.drain.cordon())
    }

    fn uncordon(&self, request: &UncordonRequest) -> Result<NodeOrders, RequestError> {
        let (changed, what) = match request.for_shutdown {
            true => (self.drain.cancel_shutdown(), "take the shutdown back"),
            false => {
                self.stands_alone("uncordon")?;
                (self.drain.uncordon(), "uncordon the node")
            }
        };
        self.ordered(what, changed)
    }

    fn drain(&self, request: &DrainRequest) -> Result<NodeOrders, RequestError> {
        let grace = request.grace_period_seconds;
        if let Some(seconds) = grace.filter(|s| !(0..=MAX_GRACE).contains(s)) {
            return Err(RequestError::GracePeriod(seconds));
        }
        // The pods of a daemon that has just started are known first.
        self.wait_for_sources(|| false);
        // A pod may end before the answer is made.
        let left = self.drain.left();
        let (changed, what) = match request.for_shutdown {
            true => (self.drain.shut_down(), "end the pods for the shutdown"),
            false => {
                self.stands_alone("drain")?;
                (self.drain.drain(grace).map(|()| true), "drain the node")
            }
        };
        let mut orders = self.ordered(what, changed)?;
        if orders.changed {
            // The client looks once more, and sees which of them have ended meanwhile.
            orders.is_under_way |= !left.is_empty();
            orders.left = names(&left);
        }
        Ok(orders)
    }

    fn change_workload(&self, request: &ChangeRequest) -> Result<Changed, RequestError> {
        Ok(self.sources.board.ask(request.clone())?)
    }

    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, RequestError> {
        change.check()?;
        let pod = self.pod_or_ending(uid)?;
        let changed = self
            .pods
            .statuses
            .set_condition(&pod, change, Time::now())?;
        if changed {
            let status = change.status.map_or("removed", ConditionStatus::as_str);
            log::info!("condition {} of pod {uid}: {status}", change.type_);
        }
        Ok(ConditionSet {
            changed,
            not_stored: self.store_conditions(),
        })
    }
}

impl DaemonBackend {
    /// Returns the answer to an order, whose outcome says whether it has changed something. `what` names the order in an error.
    fn ordered(
        &self,
        what: &'static str,
        outcome: io::Result<bool>,
    ) -> Result<NodeOrders, RequestError> {
        let changed = outcome.map_err(|cause| RequestError::NodeOrder { what, cause })?;
        Ok(self.orders(changed))
    }

    /// Returns the orders that hold for all pods of the node.
    fn orders(&self, changed: bool) -> NodeOrders {
        let settings = self.settings.get();
        let state = self.drain.state();
        let closed = state.closed.map(|(closed, _)| match closed {
            Closed::Cordoned => ClosedBy::Cordon,
            Closed::Drained => ClosedBy::Drain,
            Closed::ShuttingDown => ClosedBy::Shutdown,
        });
        NodeOrders {
            node_name: settings.node_name.clone(),
            changed,
            closed,
            is_under_way: state.is_under_way,
            left: names(&state.left),
            shutdown_seconds: settings.shutdown_grace_period.as_secs(),
        }
    }

    /// Checks that no cluster decides which pods the node gets.
    fn stands_alone(&self, verb: &'static str) -> Result<(), RequestError> {
        let settings = self.settings.get();
        match settings.kubeconfig {
            None => Ok(()),
            Some(_) => Err(RequestError::InCluster {
                verb,
                node: settings.node_name.clone(),
            }),
        }
    }

    /// Returns the pod of this UID if the pod runs or is ending.
    fn pod_or_ending(&self, uid: &PodUid) -> Result<Arc<Pod>, RequestError> {
        let ending = || {
            self.workers
                .working()
                .into_iter()
                .map(|(pod, _)| pod)
                .find(|pod| pod.uid() == uid)
        };
        self.pods
            .manager
            .get(uid)
            .or_else(ending)
            .ok_or(RequestError::PodGone)
    }

    /// Stores the pauses on the disk before the client gets its answer, so the pauses stay in force even if the daemon
    /// is killed right after the answer. `what` is the word for the change in the log. Returns the names of the
    /// probes.
    fn after_pausing(&self, uid: &PodUid, keys: &[ProbeKey], what: &str) -> Vec<String> {
        if let Err(e) = self.prober.manager.pauses().save() {
            log::warn!(
                "cannot write {}: {e}; the pauses hold until the daemon ends",
                self.layout.pauses().display()
            );
        }
        self.pods.feed.tell(uid, Aspect::Probes);
        let name = |key: &ProbeKey| format!("{}/{}", key.container, key.probe_type.word());
        keys.iter()
            .for_each(|key| log::info!("probe {} of pod {}: {what}", name(key), key.uid));
        keys.iter().map(name).collect()
    }

    fn look_again(&self, uid: &PodUid) -> Result<(), RequestError> {
        if self.workers.sync_again(uid) {
            return Ok(());
        }
        self.restarts.forget(uid);
        Err(RequestError::PodEnded)
    }

    /// Stores the conditions on the disk before the client gets its answer, so the conditions stay even if the daemon
    /// is killed right after the answer. The conditions are stored even if nothing has changed, because another
    /// client's change may not be on the disk yet. Returns the text of an error.
    fn store_conditions(&self) -> Option<String> {
        let e = self.pods.checkpoint.save().err()?;
        Some(format!(
            "cannot write {}: {e}",
            self.pods.checkpoint.path().display()
        ))
    }
}

/// Returns pods as the orders of the node name them.
fn names(pods: &[PodRef]) -> Vec<String> {
    let name = |pod: &PodRef| format!("{} in {}", pod.name, pod.namespace);
    pods.iter().map(name).collect()
}
