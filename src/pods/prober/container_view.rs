//! A worker's view of its container: the part of the stored API status that a step needs.
//!
//! Invariants: a worker reads the status again only after some status has changed, because with a thousand workers each
//! read misses the processor's caches. [`ContainerView`] is pure.

use std::sync::Arc;

use crate::api::pod::PodSpec;
use crate::api::{ContainerStatus, PodStatus, PodUid};
use crate::base::clock::Moment;
use crate::engine::runtime::ContainerId;
use crate::pods::actions::{restart_all_going_on, should_restart_after};

/// The source of the statuses that workers read. Workers call these functions on their threads, so the functions must
/// not block.
pub trait StatusSource: Send + Sync {
    /// Returns a number that grows after every change of a status. While the number stays the same, no worker reads its
    /// status again.
    fn version(&self) -> u64;

    /// Returns the stored API status of a pod, or `None` if the pod has no status yet.
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>>;

    /// Returns the time at which a container of this boot started, according to the runtime, or `None` if the time is
    /// not known.
    fn started_moment(&self, uid: &PodUid, id: &ContainerId) -> Option<Moment>;
}

/// The part of a status that a step needs (kubelet-probes 2.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContainerView {
    /// There is no status yet, or the status has no instance of the container (rows 1 and 3).
    #[default]
    NoInstance,
    /// The pod has ended (row 2).
    PodEnded,
    /// The container's newest instance.
    Instance(Instance),
}

/// An instance of a container in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The id of the instance.
    pub id: ContainerId,
    /// True if the instance runs.
    pub running: bool,
    /// True if the container's startup probe has passed, or the container has no startup probe.
    pub started: bool,
    /// True if the instance has ended and no other instance will follow (kubelet-probes 2.5).
    pub over: bool,
    /// True if the instance belongs to an init container that always restarts.
    pub sidecar: bool,
}

impl ContainerView {
    /// Makes the view of a container in `status`.
    pub fn of(status: Option<&PodStatus>, spec: &PodSpec, container: &str) -> Self {
        let Some(status) = status else {
            return Self::NoInstance;
        };
        if status.phase.is_terminal() {
            return Self::PodEnded;
        }
        let Some(entry) = status
            .container(container)
            .filter(|c| !c.container_id.is_empty())
        else {
            return Self::NoInstance;
        };
        Self::Instance(Instance {
            id: entry.container_id.as_str().into(),
            running: entry.state.running.is_some(),
            started: entry.started.unwrap_or(false),
            over: is_over(entry, status, spec),
            sidecar: spec.is_sidecar(container),
        })
    }
}

fn is_over(entry: &ContainerStatus, status: &PodStatus, spec: &PodSpec) -> bool {
    let Some(end) = &entry.state.terminated else {
        return false;
    };
    let own = spec.find(&entry.name).map(|listed| listed.container);
    let restarts = own.is_some_and(|c| should_restart_after(spec.restart_policy, c, end.exit_code));
    !restarts && !restart_all_going_on(spec, status)
}

/// The status that was read last, with the view of the worker's container.
#[derive(Default)]
pub(super) struct StatusView {
    /// The version that was read last, or `None` before the first read.
    version: Option<u64>,
    pub(super) status: Option<Arc<PodStatus>>,
    pub(super) container: ContainerView,
}

impl StatusView {
    /// Reads the status again if some status has changed. Returns true if the status of this pod has changed.
    pub(super) fn refresh(
        &mut self,
        source: &dyn StatusSource,
        uid: &PodUid,
        spec: &PodSpec,
        container: &str,
    ) -> bool {
        // The version is read before the status, so that a change in between is seen at the next refresh.
        let version = Some(source.version());
        if version == self.version {
            return false;
        }
        let status = source.pod_status(uid);
        let same = status.as_ref().map(Arc::as_ptr) == self.status.as_ref().map(Arc::as_ptr);
        if !same {
            self.container = ContainerView::of(status.as_deref(), spec, container);
            self.status = status;
        }
        self.version = version;
        !same
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::api::PodPhase;

    #[derive(Default)]
    struct Statuses {
        version: AtomicU64,
        status: Mutex<Option<Arc<PodStatus>>>,
        looks: AtomicU64,
    }

    impl StatusSource for Statuses {
        fn version(&self) -> u64 {
            self.version.load(Ordering::Relaxed)
        }

        fn pod_status(&self, _: &PodUid) -> Option<Arc<PodStatus>> {
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.status.lock().unwrap().clone()
        }

        fn started_moment(&self, _: &PodUid, _: &ContainerId) -> Option<Moment> {
            None
        }
    }

    #[track_caller]
    fn check(
        view: &mut StatusView,
        source: &Statuses,
        changed: bool,
        looks: u64,
        container: &ContainerView,
    ) {
        assert_eq!(
            view.refresh(source, &"u".into(), &PodSpec::default(), "c"),
            changed
        );
        assert_eq!(source.looks.load(Ordering::Relaxed), looks);
        assert_eq!(view.container, *container);
    }

    #[test]
    fn a_status_is_looked_at_again_when_one_has_changed() {
        let source = Statuses::default();
        let ended = PodStatus {
            phase: PodPhase::Succeeded,
            ..Default::default()
        };
        let mut view = StatusView::default();
        check(&mut view, &source, false, 1, &ContainerView::NoInstance);
        check(&mut view, &source, false, 1, &ContainerView::NoInstance);
        *source.status.lock().unwrap() = Some(Arc::new(ended));
        source.version.store(1, Ordering::Relaxed);
        check(&mut view, &source, true, 2, &ContainerView::PodEnded);
        // the status of another pod has changed
        source.version.store(2, Ordering::Relaxed);
        check(&mut view, &source, false, 3, &ContainerView::PodEnded);
        *source.status.lock().unwrap() = None;
        source.version.store(3, Ordering::Relaxed);
        check(&mut view, &source, true, 4, &ContainerView::NoInstance);
    }
}
