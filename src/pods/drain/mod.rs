//! Cordon, drain and shutdown: no pod starts on the node, and all pods end in order (kubectl's verbs of these names, and the
//! kubelet's graceful node shutdown; deviations: drained-pods-come-back).
//!
//! Invariants: a cordon is on the disk before anything follows from it, and outlives reboots. A shutdown ends with the boot.
//! Only the thread `drain` ends pods, by marks of `eviction`, so a daemon that is started again goes on where the last one
//! was killed. What an order ends comes back when the order is over.

mod order;
mod record;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crossbeam_channel::Sender;

pub use order::ShutdownGrace;
use order::{Order, Subject, SubjectStage, is_of_last_group};
use record::{CORDON, Cordon, SHUTDOWN, Shutdown};

use crate::api::{Pod, PodRef};
use crate::base::change_feed::ChangeFeed;
use crate::base::clock::{Moment, Time, boot_id};
use crate::base::live::Live;
use crate::base::locks::Locked;
use crate::base::paths::Layout;
use crate::base::threads;
use crate::pods::admission::Closed;
use crate::pods::eviction::{Evictions, HeldFor};
use crate::pods::manager::PodManager;
use crate::pods::sources::PodConfig;
use crate::pods::workers::{PodWorkers, WorkerStage};

/// The longest time between two looks at pods that end.
const LOOK: Duration = Duration::from_millis(200);
/// The longest time between two looks when all pods have ended.
const GUARD: Duration = Duration::from_secs(10);
/// The stack size in bytes of the thread that ends the pods.
const STACK: usize = 256 * 1024;

/// The parts that a drain works with.
pub struct Deps {
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The workers of pods.
    pub workers: Arc<PodWorkers>,
    /// The marks that end pods.
    pub evictions: Arc<Evictions>,
    /// The sources of pods, with a record of which sources have sent a set.
    pub config: Arc<PodConfig>,
    /// The feed that tells clients, and wakes the thread.
    pub feed: Arc<ChangeFeed>,
    /// The order under which the sync loop starts no pod.
    pub closed: Live<Option<Closed>>,
    /// The channel that tells the sync loop that pods may start.
    pub room: Sender<()>,
    /// The times of a shutdown.
    pub times: Live<ShutdownGrace>,
}

/// The orders for all pods of the node.
pub struct Drain {
    /// The directory of the record of a cordon.
    lasting: PathBuf,
    /// The directory of the record of a shutdown.
    until_reboot: PathBuf,
    deps: Deps,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cordon: Option<Cordon>,
    shutdown: Option<Shutdown>,
    /// The order by which pods end. It stays when all have ended, for pods that come late.
    order: Option<(HeldFor, Order)>,
    /// True while the thread `drain` runs.
    is_served: bool,
    is_stopping: bool,
}

impl State {
    fn is_in_force(&self, why: HeldFor) -> bool {
        match why {
            HeldFor::Shutdown => self.shutdown.is_some(),
            HeldFor::Drain => self.cordon.as_ref().is_some_and(|c| c.is_drained),
        }
    }

    fn closed(&self) -> Option<Closed> {
        let of_cordon = |cordon: &Cordon| match cordon.is_drained {
            true => Closed::Drained,
            false => Closed::Cordoned,
        };
        let of_shutdown = self.shutdown.as_ref().map(|_| Closed::ShuttingDown);
        of_shutdown.or_else(|| self.cordon.as_ref().map(of_cordon))
    }
}

/// The node as a drain leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainState {
    /// The order under which no pod starts, and the time since when it is in force; None if pods start.
    pub closed: Option<(Closed, Time)>,
    /// True if the node is cordoned or drained, whatever else.
    pub is_cordoned: bool,
    /// True while pods are to end.
    pub is_under_way: bool,
    /// The pods that have not ended yet, in the order in which they end. Empty if no pod is to end.
    pub left: Vec<PodRef>,
}

impl Drain {
    /// Takes over the orders of the last daemon. The marks of orders that are not in force any more are released.
    pub fn open(layout: &Layout, deps: Deps) -> Self {
        let (lasting, until_reboot) = (layout.lib_dir(), layout.run_dir());
        let cordon: Option<Cordon> = record::read(&lasting, CORDON);
        let shutdown: Option<Shutdown> = record::read(&until_reboot, SHUTDOWN);
        let state = State {
            shutdown: shutdown.filter(|shutdown| shutdown.boot_id == boot_id()),
            cordon,
            ..State::default()
        };
        let now = Moment::now();
        for why in [HeldFor::Shutdown, HeldFor::Drain] {
            if !state.is_in_force(why) {
                deps.evictions.release_held(why, now);
            }
        }
        deps.closed.set(state.closed());
        Self {
            lasting,
            until_reboot,
            deps,
            state: Mutex::new(state),
        }
    }

    /// Goes on with the order of the last daemon, if there is one.
    ///
    /// # Errors
    /// Returns the system's error if no thread can be started.
    pub fn resume(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        state.order = self.order_of(&state);
        self.serve(&mut state)
    }

    /// Returns the order by which pods end, from its beginning. A shutdown comes before a drain.
    fn order_of(&self, state: &State) -> Option<(HeldFor, Order)> {
        match (&state.shutdown, &state.cordon) {
            (Some(_), _) => Some((HeldFor::Shutdown, Order::shutdown(self.deps.times.get()))),
            (None, Some(cordon)) if cordon.is_drained => {
                Some((HeldFor::Drain, Order::drain(cordon.grace)))
            }
            _ => None,
        }
    }

    /// Orders the thread `drain` to end. Pods that have the order to end go on with it.
    pub fn stop(&self) {
        self.lock().is_stopping = true;
        self.deps.feed.wake();
    }

    /// True if the thread `drain` does not run.
    pub fn is_finished(&self) -> bool {
        !self.lock().is_served
    }

    /// Lets no new pod start. Returns false if none could start before.
    ///
    /// # Errors
    /// Returns the disk's error if the order cannot be written. It is not in force then.
    pub fn cordon(&self) -> io::Result<bool> {
        let mut state = self.lock();
        if state.cordon.is_some() {
            return Ok(false);
        }
        self.set_cordon(&mut state, false, None)?;
        log::info!("the node is cordoned: no new pod starts");
        Ok(true)
    }

    /// Lets pods start again, also those that a drain has ended. Returns false if they could start before.
    ///
    /// # Errors
    /// Returns the disk's error if the record of the order stays. The order stays in force then.
    pub fn uncordon(self: &Arc<Self>) -> io::Result<bool> {
        let mut state = self.lock();
        if state.cordon.is_none() {
            return Ok(false);
        }
        record::write::<Cordon>(&self.lasting, CORDON, None)?;
        state.cordon = None;
        self.release(&mut state, HeldFor::Drain)?;
        log::info!("the node is uncordoned: pods start");
        Ok(true)
    }

    /// Ends all pods in order, and lets none start. `grace` is the grace period in seconds that all pods get instead of
    /// their own. Returns as soon as the order is on the disk.
    ///
    /// # Errors
    /// Returns the error of the disk or of the thread. If the order cannot be written, it is not in force.
    pub fn drain(self: &Arc<Self>, grace: Option<i64>) -> io::Result<()> {
        let mut state = self.lock();
        let is_same = |c: &Cordon| c.is_drained && c.grace == grace;
        if !state.cordon.as_ref().is_some_and(is_same) {
            self.set_cordon(&mut state, true, grace)?;
            log::info!("the node is drained: all pods end, and none starts");
        }
        if state.shutdown.is_none() {
            state.order = self.order_of(&state);
        }
        self.serve(&mut state)
    }

    /// Ends all pods in the order and the times of a shutdown, and lets none start until the next boot. Returns false if
    /// the configuration gives pods no time (`shutdownGracePeriod` 0): nothing happens then.
    ///
    /// # Errors
    /// Returns the system's error if no thread can be started.
    pub fn shut_down(self: &Arc<Self>) -> io::Result<bool> {
        let times = self.deps.times.get();
        if times.all.is_zero() {
            return Ok(false);
        }
        let mut state = self.lock();
        if state.shutdown.is_none() {
            let shutdown = Shutdown {
                since: Time::now(),
                boot_id: boot_id(),
            };
            // A node that shuts down does so with a full disk too.
            if let Err(e) = record::write(&self.until_reboot, SHUTDOWN, Some(&shutdown)) {
                log::warn!("cannot record that the node shuts down: {e}");
            }
            log::info!("the node shuts down: all pods end within {:?}", times.all);
            state.shutdown = Some(shutdown);
            state.order = self.order_of(&state);
            self.changed(&state);
        }
        self.serve(&mut state)?;
        Ok(true)
    }

    /// Takes a shutdown back: its pods start again. Returns false if the node does not shut down.
    ///
    /// # Errors
    /// Returns the disk's error if the record of the shutdown stays. The shutdown stays in force then.
    pub fn cancel_shutdown(self: &Arc<Self>) -> io::Result<bool> {
        let mut state = self.lock();
        if state.shutdown.is_none() {
            return Ok(false);
        }
        record::write::<Shutdown>(&self.until_reboot, SHUTDOWN, None)?;
        state.shutdown = None;
        self.release(&mut state, HeldFor::Shutdown)?;
        log::info!("the node does not shut down: pods start again");
        Ok(true)
    }

    /// Returns the order under which no pod starts.
    pub fn closed(&self) -> Option<Closed> {
        self.lock().closed()
    }

    /// Returns the order in force, and the pods that have not ended yet.
    pub fn state(&self) -> DrainState {
        let state = self.lock();
        let closed = state.closed().map(|closed| {
            let of_cordon = || state.cordon.as_ref().map(|cordon| cordon.since);
            let since = state.shutdown.as_ref().map(|s| s.since).or_else(of_cordon);
            (closed, since.unwrap_or_else(Time::now))
        });
        let is_under_way = state
            .order
            .as_ref()
            .is_some_and(|(_, order)| !order.is_done());
        let is_cordoned = state.cordon.is_some();
        drop(state);
        let ends = closed.is_some_and(|(closed, _)| closed.ends_pods());
        DrainState {
            closed,
            is_cordoned,
            is_under_way,
            left: if ends { self.left() } else { Vec::new() },
        }
    }

    /// Returns the pods that have not ended yet, in the order in which a drain ends them.
    pub fn left(&self) -> Vec<PodRef> {
        let mut left = self.pods();
        left.retain(|(_, subject)| subject.stage != SubjectStage::Ended);
        left.sort_by_key(|(pod, subject)| (is_of_last_group(subject.priority), pod.reference()));
        left.iter().map(|(pod, _)| pod.reference()).collect()
    }

    /// Returns a sentence about the order under which no pod starts; None if pods start.
    pub fn told(&self) -> Option<String> {
        let state = self.state();
        let (closed, since) = state.closed?;
        let pods = match closed {
            Closed::Cordoned => "no new pod starts",
            _ if state.left.is_empty() => "no pod runs",
            _ => "its pods end",
        };
        let is = match closed {
            Closed::Cordoned => "is cordoned",
            Closed::Drained => "is drained",
            Closed::ShuttingDown => "shuts down",
        };
        let way_out = match closed {
            Closed::ShuttingDown if state.is_cordoned => {
                "'podprobe uncordon --for-shutdown' and 'podprobe uncordon' let"
            }
            Closed::ShuttingDown => "'podprobe uncordon --for-shutdown' lets",
            _ => "'podprobe uncordon' lets",
        };
        Some(format!(
            "the node {is} since {since}, and {pods}; {way_out} pods start"
        ))
    }

    fn set_cordon(
        &self,
        state: &mut State,
        is_drained: bool,
        grace: Option<i64>,
    ) -> io::Result<()> {
        let since = state.cordon.as_ref().map(|cordon| cordon.since);
        let cordon = Cordon {
            since: since.unwrap_or_else(Time::now),
            is_drained,
            grace,
        };
        record::write(&self.lasting, CORDON, Some(&cordon))?;
        state.cordon = Some(cordon);
        self.changed(state);
        Ok(())
    }

    /// Releases what an order has ended. Another order that is in force goes on.
    fn release(self: &Arc<Self>, state: &mut State, why: HeldFor) -> io::Result<()> {
        if state.order.as_ref().is_some_and(|(of, _)| *of == why) {
            state.order = self.order_of(state);
        }
        self.deps.evictions.release_held(why, Moment::now());
        self.changed(state);
        self.serve(state)
    }

    fn changed(&self, state: &State) {
        self.deps.closed.set(state.closed());
        // a full channel means that the sync loop already has a message
        let _ = self.deps.room.try_send(());
        self.deps.feed.tell_files();
    }

    /// Starts the thread, unless it has nothing to do. Wakes it if it runs.
    fn serve(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.is_served {
            self.deps.feed.tell_files();
        }
        if state.is_served || state.order.is_none() || state.is_stopping {
            return Ok(());
        }
        let drain = self.clone();
        threads::spawn("drain", STACK, move |_, _| drain.round())?;
        state.is_served = true;
        Ok(())
    }

    /// Looks once at all pods, and ends those whose turn it is. Then waits for a change.
    fn round(&self) -> ControlFlow<()> {
        let version = self.deps.feed.version();
        let knows_all = self.deps.config.all_seen();
        let pods = self.pods();
        let subjects: Vec<Subject> = pods.iter().map(|(_, subject)| subject.clone()).collect();
        let mut state = self.lock();
        let stops = state.is_stopping;
        let Some((why, order)) = state.order.as_mut().filter(|_| !stops) else {
            state.is_served = false;
            return ControlFlow::Break(());
        };
        let was_done = order.is_done();
        let (why, step) = (*why, order.step(Moment::now(), &subjects, knows_all));
        if step.is_done && !was_done {
            self.told_done(why, &subjects);
            self.deps.feed.tell_files();
        }
        // The lock is not held while marks are written.
        drop(state);
        for (uid, grace) in &step.end {
            let pod = pods.iter().find(|(_, subject)| subject.uid == *uid);
            if let Some((pod, _)) = pod
                && self.deps.evictions.hold(pod, why, *grace)
            {
                self.deps.workers.hasten(uid);
            }
        }
        // The order may have been taken back while its last marks were written.
        if !self.lock().is_in_force(why) {
            self.deps.evictions.release_held(why, Moment::now());
        }
        // When all have ended, the thread stays for a pod that the sync loop has let in a moment before the order.
        let ceiling = if step.is_done { GUARD } else { LOOK };
        self.deps.feed.wait_newer(version, ceiling);
        ControlFlow::Continue(())
    }

    fn told_done(&self, why: HeldFor, subjects: &[Subject]) {
        let left = subjects.iter().filter(|s| s.stage != SubjectStage::Ended);
        let left = left.count();
        match why {
            HeldFor::Drain => log::info!("the node is drained: all pods have ended"),
            HeldFor::Shutdown if left == 0 => log::info!("all pods have ended for the shutdown"),
            HeldFor::Shutdown => {
                log::warn!("the time for the shutdown is over, and {left} pods still end");
            }
        }
    }

    /// Returns every pod that runs, should run or ends, with the stage of its end.
    fn pods(&self) -> Vec<(Arc<Pod>, Subject)> {
        let mut pods = self.deps.pods.all();
        for (pod, _) in self.deps.workers.working() {
            if pods.iter().all(|known| known.uid() != pod.uid()) {
                pods.push(pod);
            }
        }
        let subject = |pod: Arc<Pod>| {
            let subject = Subject {
                uid: pod.uid().clone(),
                priority: pod.spec.priority.unwrap_or(0),
                grace: pod.spec.termination_grace_period_seconds.unwrap_or(0),
                stage: self.stage(&pod),
            };
            (pod, subject)
        };
        pods.into_iter().map(subject).collect()
    }

    fn stage(&self, pod: &Pod) -> SubjectStage {
        let Deps {
            workers, evictions, ..
        } = &self.deps;
        let uid = pod.uid();
        match workers.stage(uid) {
            None | Some(WorkerStage::Finished) => SubjectStage::Ended,
            Some(WorkerStage::Stopped) => SubjectStage::Ends,
            Some(WorkerStage::Running) => {
                let is_ordered = evictions.is_evicted(uid, Moment::now());
                match is_ordered || workers.is_terminating(uid) {
                    true => SubjectStage::Ends,
                    false => SubjectStage::Runs,
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crossbeam_channel::{Receiver, bounded};
    use serde_json::json;

    use super::*;
    use crate::api::{PodSource, PodUid};
    use crate::base::cancel::Cancel;
    use crate::pods::workers::{Outcome, PodSyncer, Update, UpdateKind, Work};
    use crate::test_pods;

    /// A syncer for which every pod ends at once.
    struct AtOnce;

    impl PodSyncer for AtOnce {
        fn run(&self, _: &Work, _: &Cancel) -> Outcome {
            Outcome::Ok
        }
    }

    struct Node {
        layout: Layout,
        _dir: tempfile::TempDir,
        drain: Arc<Drain>,
        woken: Receiver<()>,
    }

    const TIMES: ShutdownGrace = ShutdownGrace {
        all: Duration::from_secs(30),
        critical: Duration::from_secs(10),
    };

    impl Node {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path());
            fs::create_dir_all(layout.lib_dir()).unwrap();
            fs::create_dir_all(layout.run_dir()).unwrap();
            let (drain, woken) = open(&layout);
            Self {
                layout,
                _dir: dir,
                drain,
                woken,
            }
        }

        /// Kills the daemon and starts the next one.
        fn crash(&mut self) {
            self.drain.stop();
            (self.drain, self.woken) = open(&self.layout);
        }

        /// Runs the pod of the tests.
        fn run(&self) -> Arc<Pod> {
            self.run_pod(self.pod())
        }

        fn run_pod(&self, pod: Arc<Pod>) -> Arc<Pod> {
            let Deps { pods, workers, .. } = &self.drain.deps;
            pods.set(pod.clone());
            workers.update(Update {
                kind: UpdateKind::Create,
                pod: pod.clone(),
                runtime_only: false,
                phase_is_terminal: false,
                is_running: false,
            });
            pod
        }

        /// Returns the pod of the tests, which has a directory for its mark.
        fn pod(&self) -> Arc<Pod> {
            let pod = test_pods::pod("p").uid("u").spec(json!({})).arc();
            fs::create_dir_all(self.layout.pod_data(pod.uid())).unwrap();
            pod
        }

        fn closed(&self) -> Option<Closed> {
            let closed = self.drain.deps.closed.get();
            assert_eq!(closed, self.drain.closed());
            closed
        }
    }

    #[track_caller]
    fn wait(what: &str, is: impl Fn() -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !is() {
            assert!(std::time::Instant::now() < deadline, "waited for {what}");
            std::thread::yield_now();
        }
    }

    fn open(layout: &Layout) -> (Arc<Drain>, Receiver<()>) {
        let (room, woken) = bounded(1);
        let workers = PodWorkers::new(Arc::new(AtOnce), Duration::from_secs(60), bounded(1).0);
        let pods = ["u".into()];
        let evictions = Evictions::open(layout, &pods, Duration::from_secs(300), bounded(1).0);
        let deps = Deps {
            pods: Arc::default(),
            workers: Arc::new(workers),
            evictions: Arc::new(evictions),
            config: Arc::new(PodConfig::new(&[PodSource::File])),
            feed: Arc::default(),
            closed: Live::default(),
            room,
            times: Live::new(TIMES),
        };
        (Arc::new(Drain::open(layout, deps)), woken)
    }

    #[test]
    fn a_cordon_outlives_the_daemon_and_the_boot_and_a_shutdown_the_daemon_alone() {
        let mut node = Node::new();
        assert_eq!(node.closed(), None);
        assert!(node.drain.cordon().unwrap() && !node.drain.cordon().unwrap());
        assert!(node.woken.try_recv().is_ok());
        for _ in 0..2 {
            assert_eq!(node.closed(), Some(Closed::Cordoned));
            node.crash();
        }
        assert!(node.drain.shut_down().unwrap());
        for _ in 0..2 {
            assert_eq!(node.closed(), Some(Closed::ShuttingDown));
            node.crash();
        }
        let record = node.layout.run_dir().join(SHUTDOWN);
        let text = fs::read_to_string(&record).unwrap();
        fs::write(&record, text.replace(&boot_id(), "another-boot")).unwrap();
        node.crash();
        assert_eq!(node.closed(), Some(Closed::Cordoned));
        assert!(node.drain.uncordon().unwrap() && !node.drain.uncordon().unwrap());
        node.crash();
        assert_eq!(node.closed(), None);
    }

    #[test]
    fn an_order_that_cannot_be_written_is_not_in_force_and_a_shutdown_is_all_the_same() {
        let node = Node::new();
        fs::remove_dir_all(node.layout.root().join("var")).unwrap();
        fs::remove_dir_all(node.layout.root().join("run")).unwrap();
        assert!(node.drain.cordon().is_err() && node.drain.drain(None).is_err());
        assert_eq!(node.closed(), None);
        assert!(node.drain.shut_down().unwrap());
        assert_eq!(node.closed(), Some(Closed::ShuttingDown));
        node.drain.stop();
    }

    #[test]
    fn a_damaged_order_keeps_no_pod_away() {
        let mut node = Node::new();
        for damage in ["", "{", "[]", "{\"version\": 1}"] {
            node.drain.cordon().unwrap();
            fs::write(node.layout.lib_dir().join(CORDON), damage).unwrap();
            node.crash();
            assert_eq!(node.closed(), None, "{damage}");
        }
    }

    #[test]
    fn without_a_time_a_shutdown_does_nothing() {
        let node = Node::new();
        node.drain.deps.times.set(ShutdownGrace::default());
        assert!(!node.drain.shut_down().unwrap());
        assert_eq!(node.closed(), None);
    }

    /// The marks of an order that is not in force any more hold no pod.
    #[test]
    fn what_an_order_has_ended_is_released_when_its_record_is_gone() {
        let mut node = Node::new();
        let pod = node.pod();
        node.drain.drain(None).unwrap();
        let evictions = &node.drain.deps.evictions;
        evictions.hold(&pod, HeldFor::Drain, None);
        evictions.ended(&pod, Moment::now());
        let is_held = |node: &Node| {
            let evictions = &node.drain.deps.evictions;
            evictions.is_evicted(&PodUid::from("u"), Moment::now())
        };
        node.crash();
        assert!(is_held(&node));
        fs::remove_file(node.layout.lib_dir().join(CORDON)).unwrap();
        node.crash();
        assert!(!is_held(&node));
        assert_eq!(node.drain.deps.evictions.due(Moment::now()), ["u".into()]);
    }

    #[test]
    fn a_drain_goes_on_until_all_sources_are_known_and_is_taken_back() {
        let node = Node::new();
        node.drain.drain(None).unwrap();
        let pod = node.run();
        let evictions = &node.drain.deps.evictions;
        wait("the pod is not held", || evictions.ending() == ["u".into()]);
        let state = node.drain.state();
        assert!(state.is_under_way);
        assert_eq!(state.left, [pod.reference()]);
        let told = node.drain.told().unwrap();
        assert!(told.starts_with("the node is drained since "), "{told}");
        assert!(
            told.ends_with(", and its pods end; 'podprobe uncordon' lets pods start"),
            "{told}"
        );
        node.drain.uncordon().unwrap();
        wait("the thread to end", || node.drain.is_finished());
        evictions.ended(&pod, Moment::now());
        assert_eq!(evictions.due(Moment::now()), ["u".into()]);
    }

    /// A client that sees two pods gone at one look reports them in this order.
    #[test]
    fn critical_pods_are_the_last_of_those_that_are_left() {
        let node = Node::new();
        for (name, priority) in [("a", 2_000_000_000), ("c", 0), ("b", 1)] {
            let spec = json!({"priority": priority});
            node.run_pod(test_pods::pod(name).uid(name).spec(spec).arc());
        }
        let left = node.drain.left();
        let names: Vec<_> = left.iter().map(|pod| &*pod.name).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(node.drain.state().left, [], "nothing is to end");
    }

    /// The order is taken back while the mark of a pod is being written.
    #[test]
    fn a_mark_that_is_written_too_late_holds_no_pod() {
        let node = Node::new();
        let pod = node.run();
        let deps = &node.drain.deps;
        let drain = node.drain.clone();
        let (written, waits) = bounded(1);
        deps.evictions.during_the_next_write(move || {
            drain.uncordon().unwrap();
            written.send(()).unwrap();
        });
        node.drain.drain(None).unwrap();
        waits.recv_timeout(Duration::from_secs(20)).unwrap();
        wait("the thread to end", || node.drain.is_finished());
        deps.evictions.ended(&pod, Moment::now());
        assert_eq!(deps.evictions.due(Moment::now()), ["u".into()]);
    }
}
