//! Images that are pulled before any old pod is ended (workloads 3.22).
//!
//! Invariants: one thread pulls, one template at a time, and ends when nothing is left to pull. Asking never waits. A
//! template that nobody asks for any more is not pulled on, and its result is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Builder;
use std::time::Duration;

use crate::api::Pod;
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::locks::Locked;

/// Stack of the thread in bytes, as that of a pod worker, whose steps it takes.
const STACK: usize = 512 * 1024;
/// Time before a failed template is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// How far the images of a template are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// All images are on the node.
    Ready,
    /// Images are being pulled, or wait for their turn.
    Pulling {
        /// Time at which the pull last made progress.
        progressed_at: Moment,
    },
    /// An image could not be pulled. The pull is tried again.
    Failed {
        /// Sentence that says why.
        message: String,
        /// Time of the next try.
        retry_at: Moment,
    },
}

/// The part of the daemon that pulls the images of a pod.
pub trait PullImages: Send + Sync {
    /// Has all images of the pod on the node. Blocks during a pull.
    ///
    /// # Errors
    /// Returns the sentence for the image that could not be pulled.
    fn pull(&self, pod: &Pod, cancel: &Cancel) -> Result<(), PullFailure>;

    /// Returns a number that grows while a pull of the pod makes progress.
    fn progress(&self, pod: &Pod) -> u64;
}

/// An image of a template could not be pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PullFailure(pub String);

/// The images of templates that are pulled ahead.
pub struct ImagesAhead {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    images: Box<dyn PullImages>,
    /// The hook that is called when the state of a template has changed.
    on_change: Box<dyn Fn() + Send + Sync>,
    runs: AtomicBool,
}

#[derive(Default)]
struct State {
    templates: BTreeMap<String, Template>,
    queue: VecDeque<String>,
    /// The template whose images are being pulled now, and the way to end the pull.
    current: Option<(String, Arc<Cancel>)>,
}

struct Template {
    pod: Arc<Pod>,
    pulled: Pulled,
    progress: u64,
}

impl ImagesAhead {
    /// Makes a list without templates. `on_change` is called from the pulling thread, and must not block.
    pub fn new(images: Box<dyn PullImages>, on_change: impl Fn() + Send + Sync + 'static) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            images,
            on_change: Box::new(on_change),
            runs: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns how far the images of a template are, and begins to pull them with the first call. `key` names the
    /// template, and `pod` is a pod of it.
    pub fn ask(&self, key: &str, pod: &Arc<Pod>, now: Moment) -> Pulled {
        let mut state = self.shared.lock();
        let State {
            templates, queue, ..
        } = &mut *state;
        let template = templates.entry(key.to_owned()).or_insert_with(|| {
            queue.push_back(key.to_owned());
            Template {
                pod: pod.clone(),
                pulled: Pulled::Pulling { progressed_at: now },
                progress: 0,
            }
        });
        match &template.pulled {
            Pulled::Failed { retry_at, .. }
                if *retry_at <= now && !queue.contains(&key.to_owned()) =>
            {
                queue.push_back(key.to_owned());
            }
            Pulled::Pulling { .. } => {
                let progress = self.shared.images.progress(&template.pod);
                if progress != template.progress {
                    template.progress = progress;
                    template.pulled = Pulled::Pulling { progressed_at: now };
                }
            }
            _ => {}
        }
        let pulled = template.pulled.clone();
        let has_work = !queue.is_empty();
        drop(state);
        if has_work {
            self.start();
        }
        pulled
    }

    /// Forgets the templates that nobody needs. A pull of such a template ends soon.
    pub fn retain(&self, is_needed: impl Fn(&str) -> bool) {
        let mut state = self.shared.lock();
        state.templates.retain(|key, _| is_needed(key));
        state.queue.retain(|key| is_needed(key));
        if let Some((_, cancel)) = state.current.as_ref().filter(|(key, _)| !is_needed(key)) {
            cancel.cancel();
        }
    }

    /// Ends the pull that runs. The thread ends soon after it.
    pub fn stop(&self) {
        self.retain(|_| false);
    }

    fn start(&self) {
        if self.shared.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(e) = self.spawn() {
            self.shared.runs.store(false, Ordering::SeqCst);
            log::error!("cannot start the thread image-ahead: {e}; it is tried again");
        }
    }

    fn spawn(&self) -> io::Result<()> {
        let shared = self.shared.clone();
        let builder = Builder::new().name("image-ahead".into()).stack_size(STACK);
        builder.spawn(move || shared.work()).map(drop)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Pulls until nothing is left to pull.
    fn work(&self) {
        while let Some((key, pod, cancel)) = self.next() {
            let pulled = self.images.pull(&pod, &cancel);
            self.finish(&key, pulled);
            (self.on_change)();
        }
    }

    fn next(&self) -> Option<(String, Arc<Pod>, Arc<Cancel>)> {
        let mut state = self.lock();
        let next = loop {
            let Some(key) = state.queue.pop_front() else {
                break None;
            };
            if let Some(template) = state.templates.get(&key) {
                break Some((key, template.pod.clone()));
            }
        };
        let Some((key, pod)) = next else {
            // The flag is cleared under the lock, so that a template that is added now starts a new thread.
            self.runs.store(false, Ordering::SeqCst);
            return None;
        };
        let cancel = Arc::new(Cancel::default());
        state.current = Some((key.clone(), cancel.clone()));
        Some((key, pod, cancel))
    }

    fn finish(&self, key: &str, pulled: Result<(), PullFailure>) {
        let mut state = self.lock();
        state.current = None;
        if let Some(template) = state.templates.get_mut(key) {
            template.pulled = match pulled {
                Ok(()) => Pulled::Ready,
                Err(PullFailure(message)) => Pulled::Failed {
                    message,
                    retry_at: Moment::now() + RETRY,
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::*;
    use crate::test_pods;

    /// A registry whose pulls end when the test says how.
    struct Registry {
        began: Sender<String>,
        results: Receiver<Result<(), PullFailure>>,
    }

    impl PullImages for Registry {
        fn pull(&self, pod: &Pod, _: &Cancel) -> Result<(), PullFailure> {
            let _ = self.began.send(pod.metadata.name.clone());
            self.results.recv().unwrap_or(Ok(()))
        }
        fn progress(&self, _: &Pod) -> u64 {
            0
        }
    }

    #[test]
    fn images_are_pulled_once_and_a_failure_is_tried_again() {
        let (began, begins) = bounded(9);
        let (results, ends) = bounded(9);
        let (changed, changes) = bounded(9);
        let registry = Registry {
            began,
            results: ends,
        };
        let ahead = ImagesAhead::new(Box::new(registry), move || changed.send(()).unwrap());
        let pod = test_pods::pod("new").arc();
        let now = Moment::now();
        let pulling = Pulled::Pulling { progressed_at: now };
        assert_eq!(ahead.ask("a", &pod, now), pulling);
        assert_eq!(ahead.ask("a", &pod, now), pulling);
        assert_eq!(begins.recv().unwrap(), "new");
        results
            .send(Err(PullFailure("no such image".into())))
            .unwrap();
        changes.recv().unwrap();
        let Pulled::Failed { message, retry_at } = ahead.ask("a", &pod, now) else {
            panic!("it has failed");
        };
        assert_eq!(message, "no such image");
        assert!(begins.is_empty(), "not before its time");
        ahead.ask("a", &pod, retry_at);
        begins.recv().unwrap();
        results.send(Ok(())).unwrap();
        changes.recv().unwrap();
        assert_eq!(ahead.ask("a", &pod, retry_at), Pulled::Ready);
        assert!(begins.is_empty());
    }

    #[test]
    fn a_template_that_nobody_needs_is_not_pulled_on() {
        let (began, begins) = bounded(9);
        let (results, ends) = bounded(9);
        let registry = Registry {
            began,
            results: ends,
        };
        let ahead = ImagesAhead::new(Box::new(registry), || {});
        let pod = test_pods::pod("new").arc();
        ahead.ask("a", &pod, Moment::now());
        begins.recv().unwrap();
        ahead.ask("b", &pod, Moment::now());
        let current = ahead.shared.lock().current.clone().unwrap();
        ahead.retain(|key| key == "c");
        assert!(current.1.is_cancelled());
        results.send(Ok(())).unwrap();
        drop(results);
        ahead.ask("c", &pod, Moment::now());
        begins.recv().unwrap();
        assert!(ahead.shared.lock().templates.keys().eq(["c"]));
    }
}
