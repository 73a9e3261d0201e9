//! The board: what the controllers show of workloads, and the changes that they are asked for.
//!
//! Invariants: only the thread `controllers` writes what is shown and answers requests. Readers get an `Arc` and never
//! wait for a step. A request waits at most as long as its client.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use crate::api::PodUid;
use crate::base::locks::Locked;
use crate::workloads::view::{ChangeError, ChangeRequest, Changed, WorkloadList, WorkloadView};

/// Longest wait for the answer to a request.
const ANSWER: Duration = Duration::from_secs(10);

/// The board of the controllers.
pub struct Board {
    state: Mutex<State>,
    changed: Condvar,
    /// The hook that wakes the thread `controllers`.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    version: u64,
    views: Arc<Vec<WorkloadView>>,
    requests: Vec<Request>,
    /// The answers that are sent when the workloads are shown next.
    answers: Vec<(Sender<Answer>, Answer)>,
}

type Answer = Result<Changed, ChangeError>;

/// A request of a client.
pub(super) enum Asked {
    /// A change of a workload.
    Change(ChangeRequest),
    /// The deletion of a pod that a controller has made.
    DeletePod {
        uid: PodUid,
        /// Grace period in seconds. None means the pod's own.
        grace: Option<i64>,
    },
}

/// A request that waits for the thread `controllers`.
pub(super) struct Request {
    pub(super) asked: Asked,
    answer: Sender<Answer>,
}

impl Board {
    /// Makes an empty board. `wake` is called after each request, and must not block.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: Box::new(wake),
        }
    }

    /// Returns all workloads, sorted by kind, namespace and name, with the version of the list.
    pub fn read(&self) -> WorkloadList {
        let state = self.lock();
        WorkloadList {
            version: state.version,
            items: state.views.clone(),
        }
    }

    /// Waits until the board is newer than `version`, at most for `ceiling`, and returns it.
    pub fn read_newer(&self, version: u64, ceiling: Duration) -> WorkloadList {
        let is_old = |state: &mut State| state.version <= version;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), ceiling, is_old);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.read()
    }

    /// Asks for a change, and waits for the answer.
    ///
    /// # Errors
    /// Returns [`ChangeError`] if the change is refused or cannot be written, or if nobody answers.
    pub fn ask(&self, asked: ChangeRequest) -> Result<Changed, ChangeError> {
        self.wait_for(Asked::Change(asked))
    }

    /// Asks for the deletion of a pod that a controller has made, and waits until it is on the disk. The controller
    /// replaces the pod.
    ///
    /// # Errors
    /// Returns [`ChangeError`] if the deletion cannot be written, or if nobody answers.
    pub fn delete_pod(&self, uid: &PodUid, grace: Option<i64>) -> Result<Changed, ChangeError> {
        let uid = uid.clone();
        self.wait_for(Asked::DeletePod { uid, grace })
    }

    fn wait_for(&self, asked: Asked) -> Result<Changed, ChangeError> {
        let (answer, answered) = bounded(1);
        self.lock().requests.push(Request { asked, answer });
        (self.wake)();
        answered
            .recv_timeout(ANSWER)
            .unwrap_or(Err(ChangeError::NoAnswer))
    }

    /// Takes the requests that wait.
    pub(super) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Answers a request when the workloads are shown next. So a verb that follows sees what this one has changed.
    pub(super) fn answer(&self, request: Request, answer: Answer) {
        self.lock().answers.push((request.answer, answer));
    }

    /// Shows the workloads. An equal list changes no version.
    pub(super) fn show(&self, views: Vec<WorkloadView>) {
        let mut state = self.lock();
        if *state.views != views {
            state.views = Arc::new(views);
            state.version += 1;
            self.changed.notify_all();
        }
        let answers = std::mem::take(&mut state.answers);
        drop(state);
        for (to, answer) in answers {
            // A client that has gone needs no answer.
            let _ = to.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_before_its_answer() {
        let board = Board::new(|| {});
        let (answer, answered) = bounded(1);
        let asked = Asked::DeletePod {
            uid: "1".into(),
            grace: None,
        };
        board.answer(Request { asked, answer }, Ok(Changed::default()));
        assert!(answered.try_recv().is_err());
        let version = board.read().version;
        // An answer comes also when nothing else is shown than before.
        board.show(Vec::new());
        assert!(answered.try_recv().is_ok());
        assert_eq!(board.read().version, version);
    }
}
