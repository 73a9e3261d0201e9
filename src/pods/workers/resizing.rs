//! Gives containers other resources while they run (kubelet-probes 8.13). What they get is decided in
//! [`crate::pods::actions`].

use std::sync::Arc;

use super::syncer::{Problems, Syncer};
use crate::api::Pod;
use crate::base::locks::Locked;
use crate::engine::runtime::{RuntimeError, RuntimePodStatus};
use crate::pods::actions::{self, NoRoom, Resize, ResizeState, ToKill};
use crate::pods::admission::{self, Taken};
use crate::pods::events::EventType;

impl Syncer {
    /// Plans the resources of the pod's containers, and tells of what has changed since the last plan.
    pub(super) fn plan_resize(&self, pod: &Arc<Pod>, runtime: &RuntimePodStatus) -> Resize {
        let plan = actions::plan_resize(pod, runtime, || self.room_for(pod));
        let mut resizes = self.resizes.locked();
        let before = resizes.remove(pod.uid()).unwrap_or_default();
        let now = ResizeState {
            no_room: plan.no_room.clone(),
            is_in_progress: plan.is_due(),
            error: before.error.clone().filter(|_| plan.is_due()),
        };
        if now != ResizeState::default() {
            resizes.insert(pod.uid().clone(), now.clone());
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
    fn room_for(&self, pod: &Pod) -> Result<(), NoRoom> {
        let node = &self.deps.node;
        if let Some(message) = admission::beyond_capacity(pod, node) {
            return Err(NoRoom::Infeasible(message));
        }
        let mut others = self.deps.pods.all();
        others.retain(|other| {
            let status = self.deps.statuses.get(other.uid());
            other.uid() != pod.uid() && !status.is_some_and(|s| s.phase.is_terminal())
        });
        let taken = Taken::by(others.iter().map(AsRef::as_ref));
        let room = admission::resources(pod, node, &taken);
        room.map_err(|lacks| NoRoom::Deferred(lacks.message))
    }

    /// Gives the containers of the plan their resources, but those that are about to be killed.
    pub(super) fn resize(&self, plan: &Resize, kill: &[ToKill], problems: &mut Problems<'_>) {
        let is_kept = |id| !kill.iter().any(|kill| kill.id == id);
        let due = plan.update.iter().filter(|due| is_kept(due.id.clone()));
        let due: Vec<_> = due.collect();
        if due.is_empty() && plan.restart.is_empty() {
            return;
        }
        let pod = &plan.pod;
        let runtime = &self.deps.kuberuntime;
        // While both the old and the new limits of containers are in effect, the pod has the larger of its own.
        let mut done = runtime.resize_pod(&plan.before, pod);
        for due in &due {
            done = done.and_then(|()| match pod.spec.find(&due.name) {
                Some(listed) => runtime.resize_container(pod, listed.container, &due.id),
                None => Ok(()),
            });
        }
        // Containers that start again have their old limits until then.
        if plan.restart.is_empty() {
            done = done.and_then(|()| runtime.resize_pod(pod, pod));
        }
        self.deps.cache.request_relist(pod.uid());
        self.has_resized(plan, done, problems);
    }

    fn has_resized(
        &self,
        plan: &Resize,
        done: Result<(), RuntimeError>,
        problems: &mut Problems<'_>,
    ) {
        let pod = &plan.pod;
        let error = done.err().map(|e| e.message);
        let mut resizes = self.resizes.locked();
        let state = resizes.entry(pod.uid().clone()).or_default();
        let is_new = error.is_some() && state.error != error;
        state.error.clone_from(&error);
        drop(resizes);
        match error {
            Some(error) => {
                if is_new {
                    self.event(pod, "", EventType::Warning, "ResizeError", &error);
                }
                problems.add(error);
            }
            // The next sync sees what is in effect now, and says that it is done.
            None if plan.restart.is_empty() => {
                problems.held_until(crate::base::clock::Moment::now())
            }
            None => {}
        }
    }
}
