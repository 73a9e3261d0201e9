//! The thread `controllers`: steps each workload whose files, pods or times have changed, and carries the step out.
//!
//! Invariants: the order of a step is state, records of pods, outlet, board; each is on the disk before the next. The
//! statuses of pods are on the disk before a pod is deleted. What cannot be written is not done, and tried again. No
//! workload is stepped before the pods directory has been read and the sync loop knows the pods of an earlier daemon
//! (workloads 9.6). No workload counts as removed before every source has delivered. The pods of an earlier daemon are
//! handed on at once, so that they run on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use jiff::Timestamp;

use super::board::{Asked, Board};
use super::events;
use super::node::NodeView;
use super::observe::{Look, Readiness};
use super::outlet::PodOutlet;
use super::steady_clock::{SteadyClock, wall_clock};
use super::wakes::{LONGEST, Wakes};
use crate::api::PodUid;
use crate::api::identity::workload_uid;
use crate::api::workload::{WorkloadKey, WorkloadKind};
use crate::base::change_feed::{Aspect, ChangeFeed};
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::record_directory::RecordDirectory;
use crate::base::threads::{Pulse, Roster};
use crate::pods::checkpoint::Checkpoint;
use crate::pods::events::Recorder;
use crate::pods::manager::PodManager;
use crate::pods::status::StatusManager;
use crate::pods::workers::PodWorkers;
use crate::workloads::change::change;
use crate::workloads::state::WorkloadState;
use crate::workloads::step::{Step, step};
use crate::workloads::view::{ChangeError, ChangeRequest, Changed, WorkloadView};
use crate::workloads::world::{KnownPod, LastState, Wanted, World};
use crate::workloads::{PodRecord, Settings};

const STACK: usize = 512 << 10;
/// Largest number of steps of one workload in a round. Each step that did something is followed by another.
const MOST_STEPS: usize = 64;
/// Time after which a step that could not be carried out is tried again, and between two looks at sources that have not
/// delivered yet.
const RETRY: Duration = Duration::from_secs(5);
/// Time between two looks while the sources have not delivered.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Longest wait for the table of services, between two looks at a pod that is ready and not in the table.
const TABLE_WAIT: Duration = Duration::from_millis(100);
/// Time between two looks at pods that are being deleted. Their end is told by the change feed; this look mends what
/// was missed.
const DELETION_LOOK: Duration = Duration::from_secs(1);
/// Aspects of pods that concern controllers: the status, and whether the sync loop knows the pod.
const ASPECTS: [Aspect; 2] = [Aspect::Status, Aspect::Spec];

/// The workloads of the files, as the thread reads them.
pub trait WantedWorkloads: Send {
    /// Returns the workloads that were added, changed or removed since the last call, each as it is now.
    fn take_changed(&self) -> Vec<(WorkloadKey, Option<Wanted>)>;
    /// True if the pods directory has been read, and the sync loop knows the pods of an earlier daemon.
    fn may_step(&self) -> bool;
    /// True if every source has delivered. Before that, a workload that no file has may still come.
    fn knows_all(&self) -> bool;
}

/// The table of services, as the thread sees it.
pub trait ServiceTable: Send {
    /// True if the table is current up to this version of the change feed, or if no client depends on it.
    fn is_current(&self, version: u64) -> bool;
    /// Waits until the table is current up to this version, at most for `limit`.
    fn wait(&self, version: u64, limit: Duration);
}

/// The runtime, as the thread sees it.
pub trait RunningPods: Send {
    /// True if a container or sandbox of the pod is alive.
    fn is_running(&self, uid: &PodUid) -> bool;
}

/// The parts that the thread `controllers` works with.
pub struct Deps {
    /// The workloads of the files.
    pub wanted: Box<dyn WantedWorkloads>,
    /// The table of services.
    pub table: Box<dyn ServiceTable>,
    /// The runtime.
    pub running: Box<dyn RunningPods>,
    /// The pods that should run.
    pub pods: Arc<PodManager>,
    /// The statuses of pods.
    pub statuses: Arc<StatusManager>,
    /// The writer of the statuses to the disk.
    pub checkpoint: Arc<Checkpoint>,
    /// The workers of pods.
    pub workers: Arc<PodWorkers>,
    /// The feed of changes. It is also woken when files or the wall clock change, and when somebody asks for a change.
    pub feed: Arc<ChangeFeed>,
    /// The way to the sync loop, and to the store of objects.
    pub outlet: PodOutlet,
    /// The node.
    pub node: NodeView,
    /// The board with the workloads that are shown, and with requests.
    pub board: Arc<Board>,
    /// The recorder of events.
    pub recorder: Arc<Recorder>,
    /// Directory of the states of workloads.
    pub states: PathBuf,
    /// Directory of the records of pods.
    pub records: PathBuf,
    /// The settings of controllers.
    pub settings: Live<Settings>,
}

/// Starts the thread `controllers`. It ends when `stop` closes and the feed is woken.
///
/// # Errors
/// Returns an error if the records of an earlier daemon cannot be read, or the thread cannot be started. What runs is
/// unknown then, so nothing may be started or ended.
pub fn spawn(deps: Deps, stop: Receiver<()>, roster: &Roster) -> io::Result<JoinHandle<()>> {
    let mut manager = Manager::open(deps)?;
    roster.spawn("controllers", STACK, move |pulse, panicked| {
        if panicked {
            manager.doubt();
        }
        let is_stopped = || matches!(stop.try_recv(), Err(TryRecvError::Disconnected));
        if is_stopped() {
            return manager.end();
        }
        manager.round();
        // The end closes the channel before it wakes the feed. A round that has read the wake-up already would wait for
        // another one, so the channel is looked at again after it.
        if is_stopped() {
            return manager.end();
        }
        manager.wait(pulse);
        ControlFlow::Continue(())
    })
}

/// The state of the thread.
struct Manager {
    deps: Deps,
    clock: SteadyClock,
    states: RecordDirectory<WorkloadState>,
    records: RecordDirectory<PodRecord>,
    readiness: Readiness,
    /// The workloads of the files at the last look.
    wanted: BTreeMap<WorkloadKey, Wanted>,
    /// The workloads that were removed and came back as others. The new one begins when the pods of the old one are gone.
    replaced: BTreeSet<WorkloadKey>,
    /// The workloads to step in this round.
    dirty: BTreeSet<WorkloadKey>,
    /// The views of each workload.
    views: BTreeMap<WorkloadKey, Vec<WorkloadView>>,
    /// The moments at which workloads are stepped even if nothing changes.
    wakes: Wakes,
    /// The workloads that wait for a name or for room which pods of others have.
    wait_for_others: BTreeSet<WorkloadKey>,
    /// The images that each workload needs ahead.
    image_keys: HashMap<WorkloadKey, Vec<String>>,
    /// The labels of the node at the last look; None if they were not known.
    labels: Option<BTreeMap<String, String>>,
    /// Version of the change feed up to which changes have been read.
    seen: u64,
    /// The newest version at which a ready pod waits for the table of services.
    table_version: Option<u64>,
    /// True once workloads may be stepped.
    is_complete: bool,
    /// True if the sync loop has been given the pods as they are in the records.
    is_handed_on: bool,
}

impl Manager {
    fn open(deps: Deps) -> io::Result<Self> {
        let named = |path: &PathBuf, e: io::Error| {
            io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display()))
        };
        let states = RecordDirectory::<WorkloadState>::open(deps.states.clone())
            .map_err(|e| named(&deps.states, e))?;
        let records = RecordDirectory::<PodRecord>::open(deps.records.clone())
            .map_err(|e| named(&deps.records, e))?;
        let newest = states.all().values().map(|state| state.written);
        let newest = newest.max().unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Self {
            clock: SteadyClock::start(wall_clock(), newest, Moment::now()),
            dirty: states.all().values().map(|s| s.workload.clone()).collect(),
            deps,
            states,
            records,
            readiness: Readiness::default(),
            wanted: BTreeMap::new(),
            replaced: BTreeSet::new(),
            views: BTreeMap::new(),
            wakes: Wakes::default(),
            wait_for_others: BTreeSet::new(),
            image_keys: HashMap::new(),
            labels: None,
            seen: 0,
            table_version: None,
            is_complete: false,
            is_handed_on: false,
        })
    }

    /// Ends the pull of images that runs.
    fn end(&self) -> ControlFlow<()> {
        self.deps.node.images.stop();
        ControlFlow::Break(())
    }

    /// Forgets what was read, so that the next round looks at everything anew. Called after a panic.
    fn doubt(&mut self) {
        self.seen = 0;
        self.is_handed_on = false;
        self.wakes.clear();
        self.mark_all();
    }

    fn mark_all(&mut self) {
        let of_states = self.states.all().values().map(|s| &s.workload);
        let of_pods = self.records.all().values().map(|r| &r.workload);
        let all = of_states.chain(of_pods).chain(self.wanted.keys());
        self.dirty.extend(all.cloned().collect::<Vec<_>>());
    }

    /// Looks at what has changed, and steps what it concerns.
    fn round(&mut self) {
        self.hand_on();
        if !self.is_complete {
            // The look at the sources comes first, because one may deliver in between.
            self.is_complete = self.deps.wanted.may_step();
            if !self.is_complete {
                return;
            }
            self.mark_all();
        }
        self.read_changes();
        self.answer();
        self.forget_gone();
        let now = Moment::now();
        self.dirty.extend(self.wakes.due(now).cloned());
        for key in std::mem::take(&mut self.dirty) {
            self.step_workload(&key);
        }
        self.show();
    }

    /// Reads the files and the changes of pods.
    fn read_changes(&mut self) {
        let (changes, version) = self.deps.feed.since(self.seen);
        self.seen = version;
        self.read_files();
        let records = self.records.all();
        match changes {
            Some(changes) => {
                let of = |uid: &PodUid| records.get(uid.as_str()).map(|r| r.workload.clone());
                self.dirty.extend(changes.pods.keys().filter_map(of));
                // The sync loop forgets a pod after its record is gone, so a change of a pod without a record counts.
                if !changes.pods.is_empty() {
                    self.dirty.extend(self.wait_for_others.iter().cloned());
                }
            }
            None => self.mark_all(),
        }
        if self.clock.has_jumped(wall_clock(), Moment::now()) {
            let is_scheduled = |key: &&WorkloadKey| key.kind == WorkloadKind::CronJob;
            let scheduled = self.wanted.keys().filter(is_scheduled);
            self.dirty.extend(scheduled.cloned());
        }
        let labels = self.deps.node.labels();
        if self.labels != labels {
            self.labels = labels;
            self.mark_all();
        }
        // The thread may have been woken because images have come.
        self.dirty.extend(self.image_keys.keys().cloned());
        if let Some(version) = self.table_version {
            // The table may have followed, so the pods that waited for it are looked at again.
            if self.deps.table.is_current(version) {
                self.table_version = None;
                self.mark_all();
            }
        }
    }

    /// Takes the changes of files.
    fn read_files(&mut self) {
        for (key, new) in self.deps.wanted.take_changed() {
            // The file of each pod is handed on with the pod.
            self.is_handed_on = false;
            let old = self.wanted.remove(&key);
            if let Some(new) = new {
                if old.is_some_and(|old| old.life != new.life) {
                    self.replaced.insert(key.clone());
                }
                self.wanted.insert(key.clone(), new);
            }
            self.dirty.insert(key);
        }
    }

    /// Carries out the requests of verbs. A change is on the disk and shown before its answer.
    fn answer(&mut self) {
        for request in self.deps.board.take_requests() {
            let answer = match &request.asked {
                Asked::Change(asked) => self.change(asked),
                Asked::DeletePod { uid, grace } => self.delete_made(uid, *grace),
            };
            self.deps.board.answer(request, answer);
        }
    }

    fn delete_made(&mut self, uid: &PodUid, grace: Option<i64>) -> Result<Changed, ChangeError> {
        let now = self.world().now;
        let deleted = self.delete(uid, now, grace);
        deleted.map_err(|e| ChangeError::NotWritten(e.to_string()))?;
        self.hand_on();
        Ok(Changed {
            done: "deleted".into(),
        })
    }

    fn change(&mut self, asked: &ChangeRequest) -> Result<Changed, ChangeError> {
        let key = &asked.workload;
        let id = id_of(key);
        let (state, wanted) = (self.states.get(&id), self.wanted.get(key));
        let made = change(&self.world(), wanted, state, asked)?;
        let written = self.write_state(&id, made.state);
        written.map_err(|e| ChangeError::NotWritten(e.to_string()))?;
        self.dirty.insert(key.clone());
        Ok(Changed { done: made.done })
    }

    fn world(&self) -> World<'_> {
        let now = Moment::now();
        World {
            now: self.clock.at(now),
            wall: self.clock.wall(now),
            node: &self.deps.node,
            settings: self.deps.settings.get(),
        }
    }

    /// Returns the pods of a workload, and the newest version at which one of them waits for the table of services.
    fn pods_of(&mut self, key: &WorkloadKey) -> (Vec<KnownPod>, Option<u64>) {
        let now = Moment::now();
        let table = &self.deps.table;
        let look = Look {
            now: self.clock.at(now),
            wall: wall_clock(),
            version: self.deps.feed.version_of(Aspect::Status),
            in_force: &|version| table.is_current(version),
        };
        let mut waits = None;
        let records = self.records.all().values();
        let mut pods = Vec::new();
        for record in records.filter(|record| record.workload == *key) {
            let pod = self.deps.outlet.pod(&record.uid);
            let status = self.deps.statuses.get(&record.uid);
            let observed = self
                .readiness
                .look(record, pod.as_deref(), status.as_deref(), &look);
            if observed.is_ready && !observed.is_in_table {
                waits = waits.max(self.readiness.seen_at(&record.uid));
            }
            pods.push(KnownPod {
                record: record.clone(),
                observed,
            });
        }
        (pods, waits)
    }

    /// Steps a workload until nothing more is to be done now.
    fn step_workload(&mut self, key: &WorkloadKey) {
        if !self.wanted.contains_key(key) && !self.deps.wanted.knows_all() {
            self.wakes.set(key, Moment::now() + RETRY);
            return;
        }
        self.wakes.forget(key);
        for _ in 0..MOST_STEPS {
            let (pods, waits) = self.pods_of(key);
            self.table_version = self.table_version.max(waits);
            let world = self.world();
            let id = id_of(key);
            let wanted = self.wanted.get(key);
            let wanted = wanted.filter(|_| !self.replaced.contains(key));
            let made = step(&world, key, wanted, self.last_state(&id), &pods);
            let now = world.now;
            if pods.is_empty() && self.replaced.remove(key) {
                self.dirty.insert(key.clone());
            }
            self.plan_wake(key, &made);
            match self.carry_out(key, &id, made, now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return self.hold(key, &e),
            }
        }
        // Something asks for one step after another. The next round goes on with it.
        self.wakes.set(key, Moment::now() + RETRY);
    }

    /// Leaves a workload as it is until its next step can be written down. People are told.
    fn hold(&mut self, key: &WorkloadKey, e: &io::Error) {
        let why = format!(
            "it stays as it is, because what it needs next cannot be written below {}: {e}; tried again every {} s",
            self.deps.states.display(),
            RETRY.as_secs()
        );
        log::error!("{key}: {why}");
        self.wakes.set(key, Moment::now() + RETRY);
        let made = || self.wanted.get(key).map(WorkloadView::of_file);
        let views = self.views.remove(key);
        let mut views = views.unwrap_or_else(|| made().into_iter().collect());
        if let Some(view) = views.first_mut() {
            (view.waiting, view.is_held) = (Some(why), true);
        }
        self.views.insert(key.clone(), views);
    }

    /// Carries a step out. Returns true if it changed something, so that another step may follow.
    fn carry_out(
        &mut self,
        key: &WorkloadKey,
        id: &str,
        made: Step,
        now: Timestamp,
    ) -> io::Result<bool> {
        let is_new_state = match made.state {
            Some(state) => self.write_state(id, state)?,
            None => {
                self.states.remove(id)?;
                false
            }
        };
        let is_changed = is_new_state || !made.create.is_empty() || !made.delete.is_empty();
        if !made.delete.is_empty() {
            // An old pod goes because new ones are ready. A daemon that did not know of that would send them nothing
            // until their next probe.
            self.deps.checkpoint.save()?;
        }
        for uid in &made.delete {
            self.delete(uid, now, None)?;
        }
        for record in made.create {
            let uid = record.uid.clone();
            self.records.put(uid.as_str(), record)?;
            self.is_handed_on = false;
        }
        self.deps.outlet.set_claims(key, made.claims);
        events::record(&made.events, &self.deps.recorder);
        match made.views.is_empty() {
            true => drop(self.views.remove(key)),
            false => drop(self.views.insert(key.clone(), made.views)),
        }
        self.hand_on();
        Ok(is_changed)
    }

    /// Writes a state, unless it differs from the one on the disk only in numbers that may be stale there. Returns true
    /// if it was written.
    fn write_state(&mut self, id: &str, mut state: WorkloadState) -> io::Result<bool> {
        let written = self.states.get(id);
        if written.is_some_and(|written| !state.must_be_written(written)) {
            self.states.keep(id, state);
            return Ok(false);
        }
        state.written = state.written.max(wall_clock());
        self.states.put(id, state)?;
        Ok(true)
    }

    /// Returns what is known of the last state of a workload.
    fn last_state(&self, id: &str) -> LastState<'_> {
        match self.states.get(id) {
            Some(state) => LastState::Known(state),
            None if self.states.is_lost(id) => LastState::Lost,
            None => LastState::New,
        }
    }

    /// Marks a pod as being deleted since `at`, before it begins to end.
    fn delete(&mut self, uid: &PodUid, at: Timestamp, grace: Option<i64>) -> io::Result<()> {
        let record = self.records.get(uid.as_str());
        let Some(record) = record.filter(|record| record.may_be_deleted(grace)) else {
            return Ok(());
        };
        let marked = PodRecord {
            deleted_at: record.deleted_at.or(Some(at)),
            grace_seconds: grace,
            ..record.clone()
        };
        self.records.put(uid.as_str(), marked)?;
        self.is_handed_on = false;
        Ok(())
    }

    fn plan_wake(&mut self, key: &WorkloadKey, made: &Step) {
        self.wakes.plan(key, made, &self.clock, Moment::now());
        match made.waits_for_others {
            true => drop(self.wait_for_others.insert(key.clone())),
            false => drop(self.wait_for_others.remove(key)),
        }
        match made.image_keys.is_empty() {
            true => drop(self.image_keys.remove(key)),
            false => drop(self.image_keys.insert(key.clone(), made.image_keys.clone())),
        }
        let needed: BTreeSet<&String> = self.image_keys.values().flatten().collect();
        self.deps
            .node
            .retain_images(|key| needed.contains(&key.to_owned()));
    }

    /// Drops the records of deleted pods that are gone.
    fn forget_gone(&mut self) {
        let deleted = self
            .records
            .all()
            .values()
            .filter(|r| r.deleted_at.is_some());
        let gone = deleted.filter(|record| self.is_gone(&record.uid));
        let gone: Vec<_> = gone.map(|r| (r.uid.clone(), r.workload.clone())).collect();
        for (uid, workload) in gone {
            match self.records.remove(uid.as_str()) {
                Ok(()) => {
                    self.dirty.insert(workload);
                    self.is_handed_on = false;
                }
                Err(e) => log::error!("cannot remove the record of pod {uid}: {e}"),
            }
        }
        self.hand_on();
    }

    /// True if a deleted pod has ended: the sync loop knows of the deletion, its worker has finished, and nothing of it
    /// runs.
    fn is_gone(&self, uid: &PodUid) -> bool {
        let known = self.deps.pods.get(uid);
        let is_told = known.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        is_told && self.deps.workers.pod(uid).is_none() && !self.deps.running.is_running(uid)
    }

    /// Hands all pods to the sync loop, if a record or a file has changed.
    fn hand_on(&mut self) {
        if std::mem::replace(&mut self.is_handed_on, true) {
            return;
        }
        let records = self.records.all();
        let wanted = &self.wanted;
        let file = |key: &WorkloadKey| wanted.get(key).map_or_else(String::new, |w| w.file.clone());
        self.deps.outlet.hand_on(records.values(), file);
        self.readiness
            .retain(|uid| records.contains_key(uid.as_str()));
    }

    fn show(&self) {
        let views = self.views.values().flatten().cloned();
        self.deps.board.show(views.collect());
    }

    /// Waits for a change, or for the next time.
    fn wait(&mut self, pulse: &Pulse) {
        if let Some(version) = self.table_version {
            return pulse.rest(|| self.deps.table.wait(version, TABLE_WAIT));
        }
        let now = Moment::now();
        let next = match self.is_complete {
            true => self.next_wake(now),
            false => now + FIRST_LOOK,
        };
        let left = next.since(now);
        pulse.rest(|| {
            self.deps.feed.wait_newer_of_any(&ASPECTS, self.seen, left);
        });
    }

    fn next_wake(&self, now: Moment) -> Moment {
        let planned = self.wakes.next();
        let mut records = self.records.all().values();
        let deletes = records.any(|record| record.deleted_at.is_some());
        let deletes = deletes.then_some(now + DELETION_LOOK);
        let next = planned.into_iter().chain(deletes).min();
        next.unwrap_or(now + LONGEST)
    }
}

/// Returns the name of the record of a workload's state: its UID, which follows from the key.
fn id_of(key: &WorkloadKey) -> String {
    workload_uid(key).to_string()
}
