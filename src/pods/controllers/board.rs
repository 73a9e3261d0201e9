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
    /// Version of the list. 0 until the controllers have looked at their workloads once.
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

    /// Waits until the controllers have shown a list of another version, at most for `ceiling`, and returns the list. A
    /// version that is higher than the board's comes from an earlier daemon.
    pub fn read_newer(&self, version: u64, ceiling: Duration) -> WorkloadList {
        let is_old = |state: &mut State| state.version == 0 || state.version == version;
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

    /// Shows the workloads. An equal list changes no version, but the first list is new to everybody, even an empty one.
    pub(super) fn show(&self, views: Vec<WorkloadView>) {
        let mut state = self.lock();
        if state.version == 0 || *state.views != views {
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

    const LONG: Duration = Duration::from_secs(60);

    fn view(name: &str) -> WorkloadView {
        WorkloadView {
            object: serde_json::json!({"metadata": {"name": name}}).into(),
            ..WorkloadView::default()
        }
    }

    #[test]
    fn a_reader_waits_for_the_first_list_even_if_it_is_empty() {
        let board = Board::new(|| {});
        assert_eq!(board.read_newer(0, Duration::from_millis(1)).version, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| board.read_newer(0, LONG));
            board.show(Vec::new());
            assert_eq!(waits.join().unwrap().version, 1);
        });
    }

    #[test]
    fn an_equal_list_is_no_news_and_a_version_of_an_earlier_daemon_is() {
        let board = Board::new(|| {});
        board.show(vec![view("web")]);
        board.show(vec![view("web")]);
        assert_eq!(board.read().version, 1);
        let begun = std::time::Instant::now();
        assert_eq!(board.read_newer(7, LONG).version, 1);
        assert!(begun.elapsed() < LONG, "it did not wait");
        board.show(vec![view("db")]);
        let newer = board.read_newer(1, LONG);
        assert_eq!((newer.version, newer.items.len()), (2, 1));
    }

    #[test]
    fn a_request_wakes_the_controllers_and_gets_their_answer() {
        let (woken, wakes) = bounded(1);
        let board = Board::new(move || woken.send(()).unwrap());
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| board.delete_pod(&PodUid::from("u1"), Some(3)));
            wakes.recv_timeout(LONG).unwrap();
            let request = board.take_requests().pop().unwrap();
            assert!(matches!(
                &request.asked,
                Asked::DeletePod { uid, grace: Some(3) } if uid.as_str() == "u1"
            ));
            let done = Changed {
                done: "deleted".into(),
            };
            board.answer(request, Ok(done));
            board.show(Vec::new());
            assert_eq!(asked.join().unwrap().unwrap().done, "deleted");
        });
        assert!(board.take_requests().is_empty());
    }

    #[test]
    fn a_change_is_shown_before_its_answer() {
        let board = Board::new(|| {});
        board.show(Vec::new());
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
