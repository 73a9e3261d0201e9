//! Gives containers other resources while they run (kubelet-probes 8.13). What they get is decided in
//! [`crate::pods::actions`].

use std::sync::Arc;

use super::syncer::{Problems, Syncer};
use crate::api::Pod;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::engine::runtime::{RuntimeError, RuntimePodStatus};
use crate::pods::actions::{self, NoRoom, Resize, ResizeState, ToKill, ToResize};
use crate::pods::admission::{self, Taken};
use crate::pods::events::EventType;

impl Syncer {
    /// Plans the resources of the pod's containers, and tells of what has changed since the last plan.
    pub(super) fn plan_resize(&self, pod: &Arc<Pod>, runtime: &RuntimePodStatus) -> Resize {
        let uid = pod.uid();
        let old = self.deps.statuses.get(uid);
        let pods = &self.deps.pods;
        let plan = actions::plan_resize(pod, runtime, old.as_deref(), |before| {
            pods.grant(uid, before, |others| self.room_for(pod, others))
        });
        if Arc::ptr_eq(&plan.before, pod) {
            // All that the pod asks for is in effect.
            pods.set_granted(uid, None);
        }
        let mut resizes = self.resizes.locked();
        let before = resizes.remove(uid).unwrap_or_default();
        // A pod whose own cgroup could not be set is tried again, although its containers have theirs.
        let is_in_progress = plan.is_due() || (before.error.is_some() && plan.no_room.is_none());
        let now = ResizeState {
            no_room: plan.no_room.clone(),
            is_in_progress,
            error: before.error.clone().filter(|_| is_in_progress),
        };
        if now != ResizeState::default() {
            resizes.insert(uid.clone(), now.clone());
        }
        drop(resizes);
        self.say_what_became_of(pod, &before, &now);
        plan
    }

    fn say_what_became_of(&self, pod: &Pod, before: &ResizeState, now: &ResizeState) {
        if let Some(why) = now
            .no_room
            .as_ref()
            .filter(|_| before.no_room != now.no_room)
        {
            let reason = format!("Resize{}", why.reason());
            self.event(pod, "", EventType::Warning, &reason, why.message());
        }
        if before.is_in_progress && *now == ResizeState::default() {
            let text = "Pod resize completed";
            self.event(pod, "", EventType::Normal, "ResizeCompleted", text);
        }
    }

    /// Checks whether the node has room for what the pod asks for, beside all other pods.
    fn room_for(&self, pod: &Pod, mut others: Vec<Arc<Pod>>) -> Result<(), NoRoom> {
        let node = (self.deps.node)();
        if let Some(message) = admission::beyond_capacity(pod, &node) {
            return Err(NoRoom::Infeasible(message));
        }
        others.retain(|other| {
            let status = self.deps.statuses.get(other.uid());
            !status.is_some_and(|s| s.phase.is_terminal())
        });
        let taken = Taken::by(others.iter().map(AsRef::as_ref));
        let room = admission::resources(pod, &node, &taken);
        room.map_err(|lacks| NoRoom::Deferred(lacks.message))
    }

    /// Gives the containers of the plan their resources, but those that are about to be killed.
    pub(super) fn resize(&self, plan: &Resize, kill: &[ToKill], problems: &mut Problems<'_>) {
        let pod = &plan.pod;
        let is_kept = |due: &&ToResize| !kill.iter().any(|kill| kill.id == due.id);
        let due: Vec<_> = plan.update.iter().filter(is_kept).collect();
        let is_tried_again = {
            let resizes = self.resizes.locked();
            let state = resizes.get(pod.uid());
            state.is_some_and(|state| state.is_in_progress && state.error.is_some())
        };
        if due.is_empty() && plan.restart.is_empty() && !is_tried_again {
            return;
        }
        let runtime = &self.deps.kuberuntime;
        // While both the old and the new limits of containers are in effect, the pod has the larger of its own.
        let mut failed: Vec<RuntimeError> = runtime
            .resize_pod(&plan.before, pod)
            .err()
            .into_iter()
            .collect();
        if failed.is_empty() {
            let containers = due
                .iter()
                .filter_map(|due| Some((due, pod.spec.find(&due.name)?)));
            let resized = containers
                .map(|(due, listed)| runtime.resize_container(pod, listed.container, &due.id));
            failed.extend(resized.filter_map(Result::err));
        }
        // Containers that start again, or that could not be resized, have their old limits still.
        if failed.is_empty() && plan.restart.is_empty() {
            failed.extend(runtime.resize_pod(pod, pod).err());
        }
        self.deps.cache.request_relist(pod.uid());
        let errors: Vec<String> = failed.into_iter().map(|e| e.message).collect();
        self.has_resized(plan, errors.join("; "), problems);
    }

    fn has_resized(&self, plan: &Resize, error: String, problems: &mut Problems<'_>) {
        let pod = &plan.pod;
        let mut resizes = self.resizes.locked();
        if error.is_empty() {
            // The next sync sees what is in effect now, and says that it is done. A wish that was taken back is not done.
            match plan.is_due() {
                true => resizes.entry(pod.uid().clone()).or_default().error = None,
                false => drop(resizes.remove(pod.uid())),
            }
            if plan.restart.is_empty() {
                problems.held_until(Moment::now());
            }
            return;
        }
        let state = resizes.entry(pod.uid().clone()).or_default();
        let before = state.error.replace(error.clone());
        drop(resizes);
        if before.as_ref() != Some(&error) {
            self.event(pod, "", EventType::Warning, "ResizeError", &error);
        }
        problems.add(error);
    }
}
