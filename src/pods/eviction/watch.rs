//! The thread that measures the volumes with a size limit, and evicts pods with volumes over the limit.
//!
//! Invariants: the thread reads what containers write, so it holds no lock and no other thread waits for it. The cost
//! of a volume is bounded by [`STEP`] and [`WALKS`], and in time by [`Pace`]. While no pod has a volume with a size
//! limit, the thread sleeps.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};

use super::Evictions;
use super::pace::{Found, Pace};
use crate::api::{Pod, PodUid};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::Moment;
use crate::base::threads::{Pulse, Roster};
use crate::pods::events::{EventType, Recorder};
use crate::pods::manager::PodManager;
use crate::pods::status::{EVICTED, StatusManager};
use crate::pods::volumes::{LimitedVolume, Walk};

/// The number of files that are looked at before the next volume has its turn. A step takes a few milliseconds.
const STEP: usize = 10_000;
/// The largest number of walks at a time. If a volume needs more than one step and there are already this many walks,
/// the walk through the volume begins anew later.
const WALKS: usize = 2;
/// The longest sleep of the measuring thread.
const SLEEP: Duration = Duration::from_secs(3600);
/// The stack size in bytes of the measuring thread. Directories lie on the heap.
const STACK: usize = 128 * 1024;

/// The key of a volume: the pod's UID and the volume's name.
type Key = (PodUid, String);

/// Returns the volumes of a pod that have a size limit.
pub type Limited = Box<dyn Fn(&Pod) -> Vec<LimitedVolume> + Send>;

/// The parts that the watching thread works with.
pub struct Watch {
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The statuses of pods. A pod that has ended is not evicted.
    pub statuses: Arc<StatusManager>,
    /// The evictions to which the thread adds.
    pub evictions: Arc<Evictions>,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// The feed that wakes the thread when there is a new pod.
    pub feed: Arc<ChangeFeed>,
    /// Returns the volumes of a pod that have a size limit.
    pub limited: Limited,
    /// The time between two looks at a small volume.
    pub interval: Duration,
}

/// Starts the thread, which measures until `stop` closes. The caller that closes `stop` must also wake the thread by
/// the feed.
///
/// # Errors
/// Returns an error if the thread cannot be started.
pub fn spawn(watch: Watch, stop: Receiver<()>, roster: &Roster) -> io::Result<JoinHandle<()>> {
    let mut measuring = Measuring::new(watch);
    roster.spawn("eviction", STACK, move |pulse, panicked| {
        measuring.turn(panicked, &stop, pulse)
    })
}

#[derive(Default)]
struct Volume {
    pace: Pace,
    walk: Option<Walk>,
    /// True if the log already says that the volume cannot be counted as a whole. The log says this once.
    said: bool,
}

struct Measuring {
    watch: Watch,
    volumes: BTreeMap<Key, Volume>,
}

impl Measuring {
    fn new(watch: Watch) -> Self {
        let volumes = BTreeMap::new();
        Self { watch, volumes }
    }

    fn turn(&mut self, panicked: bool, stop: &Receiver<()>, pulse: &Pulse) -> ControlFlow<()> {
        if panicked {
            // All walks begin again, because the panic may have interrupted a walk.
            self.volumes.clear();
        }
        let stopped = || stop.try_recv() == Err(TryRecvError::Disconnected);
        let feed = self.watch.feed.clone();
        // The version is read before the volumes, so a pod that comes during the round ends the sleep after the round.
        let version = feed.version_of(Aspect::Spec);
        if stopped() {
            return ControlFlow::Break(());
        }
        match self.round(&stopped) {
            None => drop(pulse.rest(|| feed.wait_newer_of(Aspect::Spec, version, SLEEP))),
            Some(rest) => {
                if pulse.rest(|| stop.recv_timeout(rest)) == Err(RecvTimeoutError::Disconnected) {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Looks at each volume that is due. Returns the time until the next round, or `None` if no pod has a volume with a
    /// size limit. A pod that has ended counts here, because it may start anew, but its volumes are not looked at.
    fn round(&mut self, stopped: &dyn Fn() -> bool) -> Option<Duration> {
        let mut all = self.limited();
        if all.is_empty() {
            self.volumes.clear();
            return None;
        }
        all.retain(|(pod, _)| !self.has_ended(pod));
        let present: HashSet<Key> = all.iter().map(|(pod, v)| key(pod, v)).collect();
        self.volumes.retain(|key, _| present.contains(key));
        for (pod, volume) in &all {
            if stopped() {
                break;
            }
            self.look(pod, volume);
        }
        let due = self.volumes.values().map(|v| v.pace.due).min();
        let rest = due.map(|due| due.since(Moment::now()));
        Some(rest.map_or(self.watch.interval, |rest| rest.min(self.watch.interval)))
    }

    /// Returns the volumes with a size limit of all pods.
    fn limited(&self) -> Vec<(Arc<Pod>, LimitedVolume)> {
        let pods = self.watch.pods.all().into_iter();
        let of = |pod: Arc<Pod>| {
            let volumes = (self.watch.limited)(&pod).into_iter();
            volumes.map(move |v| (pod.clone(), v))
        };
        pods.flat_map(of).collect()
    }

    fn has_ended(&self, pod: &Pod) -> bool {
        let uid = pod.uid();
        let status = self.watch.statuses.get(uid);
        status.is_some_and(|s| s.phase.is_terminal())
            || self.watch.evictions.is_evicted(uid, Moment::now())
    }

    fn look(&mut self, pod: &Pod, volume: &LimitedVolume) {
        let began = Moment::now();
        let walks = self.volumes.values().filter(|v| v.walk.is_some()).count();
        let known = self.volumes.entry(key(pod, volume)).or_default();
        if known.pace.due > began {
            return;
        }
        let found = known.step(pod, volume);
        if walks >= WALKS && found == Found::More {
            known.walk = None;
        }
        let now = Moment::now();
        if known.pace.stepped(found, began, now, self.watch.interval) && !self.has_ended(pod) {
            self.evict(pod, volume);
        }
    }

    fn evict(&self, pod: &Pod, volume: &LimitedVolume) {
        let LimitedVolume { name, written, .. } = volume;
        let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit {written:?}. ");
        let (of, warning) = (pod.reference(), EventType::Warning);
        self.watch
            .recorder
            .record(&of, "", warning, EVICTED, &message);
        self.watch.evictions.evict(pod.uid(), &message);
    }
}

impl Volume {
    /// Walks one step through the volume. A volume that does not exist is under its limit.
    fn step(&mut self, pod: &Pod, volume: &LimitedVolume) -> Found {
        let Some(mut walk) = self.walk.take().or_else(|| Walk::begin(&volume.dir).ok()) else {
            return Found::Under;
        };
        if !walk.go_on(STEP, volume.limit) {
            self.walk = Some(walk);
            return Found::More;
        }
        let usage = walk.usage();
        if !usage.whole && !std::mem::replace(&mut self.said, true) {
            log::warn!(
                "pod {}: volume {:?} has too many files or directories, or some that cannot be read, to be counted as a whole: its limit holds for what was counted",
                pod.reference(),
                volume.name
            );
        }
        match usage.bytes > volume.limit {
            true => Found::Over,
            false => Found::Under,
        }
    }
}

fn key(pod: &Pod, volume: &LimitedVolume) -> Key {
    (pod.uid().clone(), volume.name.clone())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crossbeam_channel::bounded;

    use super::*;
    use crate::api::{PodPhase, PodStatus};
    use crate::base::paths::Layout;
    use crate::test_pods;

    const CEILING: Duration = Duration::from_secs(30);

    struct Harness {
        measuring: Measuring,
        dir: tempfile::TempDir,
        woken: Receiver<()>,
    }

    impl Harness {
        /// Makes a pod `u` with one volume.
        fn new(limit: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path());
            let (wake, woken) = bounded(1);
            fs::create_dir_all(layout.pod_data(&"u".into())).unwrap();
            let at = dir.path().join("volume");
            let volume = LimitedVolume {
                name: "v".into(),
                dir: at,
                limit,
                written: "1Mi".into(),
            };
            let feed = Arc::<ChangeFeed>::default();
            let watch = Watch {
                pods: Arc::new(PodManager::new(feed.clone())),
                statuses: Arc::new(StatusManager::new(Default::default(), Arc::default())),
                evictions: Arc::new(Evictions::open(&layout, &[], CEILING, wake)),
                recorder: Arc::default(),
                feed,
                limited: Box::new(move |pod| match pod.uid().as_str() {
                    "u" => vec![volume.clone()],
                    _ => Vec::new(),
                }),
                interval: Duration::from_millis(1),
            };
            watch.pods.set(test_pods::pod("p").uid("u").arc());
            Self {
                measuring: Measuring::new(watch),
                dir,
                woken,
            }
        }

        fn write(&self, name: &str, bytes: usize) {
            fs::create_dir_all(self.volume()).unwrap();
            fs::write(self.volume().join(name), vec![1; bytes]).unwrap();
        }

        fn volume(&self) -> std::path::PathBuf {
            self.dir.path().join("volume")
        }

        fn round(&mut self) -> Option<Duration> {
            self.make_due();
            self.measuring.round(&|| false)
        }

        fn make_due(&mut self) {
            let volumes = self.measuring.volumes.values_mut();
            volumes.for_each(|v| v.pace.due = Moment::default());
        }

        fn is_evicted(&self) -> bool {
            let evictions = &self.measuring.watch.evictions;
            evictions.is_evicted(&"u".into(), Moment::now())
        }
    }

    #[test]
    fn a_volume_that_stays_over_its_limit_evicts_its_pod_once() {
        let mut h = Harness::new(1 << 20);
        assert!(h.round().is_some(), "a volume that is not there yet");
        h.write("a", 1 << 19);
        h.round();
        h.write("b", 1 << 20);
        h.round();
        assert!(!h.is_evicted(), "one walk alone does not evict");
        h.round();
        assert!(h.is_evicted() && h.woken.try_recv().is_ok());
        let events = h.measuring.watch.recorder.list();
        let told: Vec<_> = events
            .iter()
            .map(|e| (e.reason.as_str(), e.message.as_str()))
            .collect();
        let text = r#"Usage of EmptyDir volume "v" exceeds the limit "1Mi". "#;
        assert_eq!(told, [("Evicted", text)]);
        let uid = "u".into();
        for life in 0..2 {
            let rest = h.round();
            assert_eq!(rest, Some(h.measuring.watch.interval), "it may start anew");
            assert!(h.measuring.volumes.is_empty(), "it is not measured");
            h.measuring.watch.evictions.forget(&uid);
            h.round();
            h.round();
            assert!(h.is_evicted(), "{life}");
        }
        h.measuring.watch.pods.remove(&uid);
        assert_eq!(h.round(), None);
    }

    #[test]
    fn what_shrinks_between_two_walks_stays() {
        let mut h = Harness::new(1 << 20);
        for _ in 0..3 {
            h.write("a", 2 << 20);
            h.round();
            h.write("a", 1);
            h.round();
        }
        assert!(!h.is_evicted());
    }

    #[test]
    fn a_pod_that_has_ended_is_not_evicted() {
        let mut h = Harness::new(1);
        h.write("a", 1 << 20);
        let pod = test_pods::pod("p").uid("u").build();
        let status = PodStatus {
            phase: PodPhase::Succeeded,
            ..PodStatus::default()
        };
        h.measuring.watch.statuses.set(&pod, status);
        h.round();
        h.round();
        assert!(h.measuring.volumes.is_empty() && !h.is_evicted());
    }

    #[test]
    fn a_large_volume_is_counted_in_steps_and_keeps_its_place() {
        let mut h = Harness::new(u64::MAX);
        for n in 0..STEP + 10 {
            h.write(&n.to_string(), 0);
        }
        let walks = |h: &Harness| {
            let volumes = h.measuring.volumes.values();
            volumes.filter(|v| v.walk.is_some()).count()
        };
        h.round();
        assert_eq!(walks(&h), 1);
        h.round();
        assert_eq!(walks(&h), 0);
    }

    #[test]
    fn after_a_panic_a_walk_begins_anew() {
        let mut h = Harness::new(u64::MAX);
        for n in 0..STEP + 10 {
            h.write(&n.to_string(), 0);
        }
        h.round();
        let (stop, stopped) = bounded(0);
        drop(stop);
        let mut turn = |panicked| {
            let ends = h
                .measuring
                .turn(panicked, &stopped, &Pulse::new("eviction"));
            assert!(ends.is_break());
            h.measuring.volumes.values().any(|v| v.walk.is_some())
        };
        assert!(turn(false), "it is half way");
        assert!(!turn(true));
    }

    #[test]
    fn a_panic_costs_a_round_and_the_volume_is_measured_all_the_same() {
        let h = Harness::new(1);
        h.write("a", 1 << 20);
        let Harness {
            measuring: Measuring { mut watch, .. },
            dir: _dir,
            woken,
        } = h;
        let feed = watch.feed.clone();
        let limited = std::mem::replace(&mut watch.limited, Box::new(|_| Vec::new()));
        let panics = std::sync::atomic::AtomicBool::new(true);
        watch.limited = Box::new(move |pod| {
            let panics = panics.swap(false, std::sync::atomic::Ordering::SeqCst);
            assert!(!panics, "made up");
            limited(pod)
        });
        let (stop, stopped) = bounded(0);
        let roster = Roster::default();
        let thread = spawn(watch, stopped, &roster).unwrap();
        woken.recv_timeout(CEILING).unwrap();
        assert_eq!(roster.panics(), [("eviction", 1)]);
        drop(stop);
        feed.wake();
        thread.join().unwrap();
    }

    /// The thread sleeps while there is no volume, notices a new pod, and ends when it is stopped.
    #[test]
    fn the_thread_measures_pods_that_come_and_ends() {
        let h = Harness::new(1);
        h.write("a", 1 << 20);
        let Harness {
            measuring: Measuring { watch, .. },
            dir: _dir,
            woken,
        } = h;
        let (pods, feed) = (watch.pods.clone(), watch.feed.clone());
        let pod = pods.get(&"u".into()).unwrap();
        pods.remove(pod.uid());
        let (stop, stopped) = bounded(0);
        let thread = spawn(watch, stopped, &Roster::default()).unwrap();
        pods.set(pod);
        woken.recv_timeout(CEILING).unwrap();
        drop(stop);
        feed.wake();
        thread.join().unwrap();
    }
}
