//! The probe manager with its real threads, on statuses and a runtime defined here (kubelet-probes
//! 2, 4; lessons A, B).

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use podprobe::api::pod::{
    ExecAction, GrpcAction, IntOrString, ObjectMeta, PodSpec, RestartPolicy, TcpSocketAction,
};
use podprobe::api::status::{ContainerState, ContainerStateRunning};
use podprobe::api::{
    Container, ContainerStatus, Pod, PodPhase, PodStatus, PodUid, Probe, ProbeType,
};
use podprobe::base::clock::Moment;
use podprobe::engine::runtime::{
    ContainerId, ExecOutcome, NetworkNamespace, RuntimeError, RuntimeErrorKind,
};
use podprobe::face::views::lateness::BOUNDS;
use podprobe::face::views::{ProbeReport, Records};
use podprobe::pods::events::Recorder;
use podprobe::pods::history::RunOutcome;
use podprobe::pods::prober::manager::{Deps, ProberManager, RestoredReady, Results, StatusSource};
use podprobe::pods::prober::pauses::ProbeKey;
use podprobe::pods::prober::results::{Manager, ProbeResult, Update};

use crate::support::own_process::is_own_process;
use crate::support::probed::{Probed, ProbedRuntime};
use crate::support::raw_h2;

const CEILING: Duration = Duration::from_secs(20);

/// What an exec probe does.
#[derive(Clone)]
enum Answer {
    Code(i32),
    Error,
    Panic,
    /// Waits until the channel is closed.
    Hang(Receiver<()>),
}

/// Statuses, start times and the runtime, all made up.
struct World {
    statuses: Mutex<HashMap<PodUid, Arc<PodStatus>>>,
    /// Of the statuses: as the status manager counts, or at each look another, so that every step looks and is counted.
    version: AtomicU64,
    counts_changes: AtomicBool,
    started: Mutex<HashMap<ContainerId, Moment>>,
    answer: Mutex<Answer>,
    runs: Mutex<Vec<(ContainerId, Moment)>>,
    execs: AtomicUsize,
    lookups: AtomicUsize,
    panic_at_lookup: AtomicUsize,
    no_namespaces: AtomicBool,
}

impl World {
    fn set(&self, uid: &PodUid, status: PodStatus) {
        self.statuses
            .lock()
            .unwrap()
            .insert(uid.clone(), Arc::new(status));
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

impl StatusSource for World {
    fn version(&self) -> u64 {
        let step = if self.counts_changes.load(Ordering::SeqCst) {
            0
        } else {
            1
        };
        self.version.fetch_add(step, Ordering::SeqCst)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        let count = self.lookups.fetch_add(1, Ordering::SeqCst) + 1;
        assert_ne!(
            count,
            self.panic_at_lookup.load(Ordering::SeqCst),
            "made up"
        );
        self.statuses.lock().unwrap().get(uid).cloned()
    }

    fn started_moment(&self, _uid: &PodUid, id: &ContainerId) -> Option<Moment> {
        self.started.lock().unwrap().get(id).copied()
    }
}

impl Probed for World {
    fn exec(&self, id: &ContainerId) -> Result<ExecOutcome, RuntimeError> {
        self.execs.fetch_add(1, Ordering::SeqCst);
        self.runs.lock().unwrap().push((id.clone(), Moment::now()));
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Answer::Code(code) => Ok(ExecOutcome::Exited {
                code,
                output: b"said".to_vec(),
            }),
            Answer::Error => Err(RuntimeError::new(
                RuntimeErrorKind::Failed,
                "no descriptors",
            )),
            Answer::Panic => panic!("made up"),
            Answer::Hang(closed) => {
                let _ = closed.recv();
                Ok(ExecOutcome::Exited {
                    code: 0,
                    output: Vec::new(),
                })
            }
        }
    }

    fn network_namespace(&self) -> Result<Option<NetworkNamespace>, RuntimeError> {
        if self.no_namespaces.load(Ordering::SeqCst) {
            return Err(RuntimeError::new(RuntimeErrorKind::Failed, "no namespace"));
        }
        Ok(None)
    }
}

struct Daemon {
    world: Arc<World>,
    manager: ProberManager,
    results: Results,
    recorder: Arc<Recorder>,
    records: Arc<Records>,
    updates: Receiver<Update>,
}

fn daemon_with(restored: HashMap<ContainerId, RestoredReady>) -> Daemon {
    let world = Arc::new(World {
        statuses: Mutex::default(),
        version: AtomicU64::new(0),
        counts_changes: AtomicBool::new(false),
        started: Mutex::default(),
        answer: Mutex::new(Answer::Code(0)),
        runs: Mutex::default(),
        execs: AtomicUsize::new(0),
        lookups: AtomicUsize::new(0),
        panic_at_lookup: AtomicUsize::new(0),
        no_namespaces: AtomicBool::new(false),
    });
    let (tx, updates) = bounded(10_000);
    let cache = || Arc::new(Manager::new(tx.clone()));
    let results = Results {
        startup: cache(),
        readiness: cache(),
        liveness: cache(),
    };
    let recorder = Arc::new(Recorder::default());
    let records = Arc::<Records>::default();
    let manager = ProberManager::new(Deps {
        statuses: world.clone(),
        runtime: Arc::new(ProbedRuntime(world.clone())),
        results: results.clone(),
        recorder: recorder.clone(),
        started: Moment::now(),
        allow_probe_hosts: Vec::new(),
        restored,
        records: records.clone(),
        streaks: Default::default(),
    });
    Daemon {
        world,
        manager,
        results,
        recorder,
        records,
        updates,
    }
}

fn daemon() -> Daemon {
    daemon_with(HashMap::new())
}

/// One whose workers look only when a status has changed, as the daemon's do.
fn counting_daemon() -> Daemon {
    let d = daemon();
    d.world.counts_changes.store(true, Ordering::SeqCst);
    d
}

impl Daemon {
    /// Stores the status of a pod whose containers run as `<container>-<instance>`, as a pod sync does.
    fn store(&self, pod: &Pod, instance: u32) -> PodStatus {
        let fresh = self.fill(pod, instance);
        self.world.set(pod.uid(), fresh.clone());
        self.manager.trigger_workers(pod, &fresh);
        fresh
    }

    /// That status, with Ready and Started filled in.
    fn fill(&self, pod: &Pod, instance: u32) -> PodStatus {
        let mut fresh = PodStatus {
            phase: PodPhase::Running,
            ..Default::default()
        };
        for c in pod.spec.containers.iter().chain(pod.spec.sidecars()) {
            let id = ContainerId::from(format!("{}-{instance}", c.name).as_str());
            let state = ContainerState {
                running: Some(ContainerStateRunning { started_at: None }),
                ..Default::default()
            };
            self.world
                .started
                .lock()
                .unwrap()
                .entry(id.clone())
                .or_insert_with(Moment::now);
            let entry = ContainerStatus {
                name: c.name.clone(),
                container_id: id.uri(),
                state,
                ..Default::default()
            };
            let sidecar = pod.spec.is_sidecar(&c.name);
            if sidecar {
                &mut fresh.init_container_statuses
            } else {
                &mut fresh.container_statuses
            }
            .push(entry);
        }
        self.manager.update_pod_status(pod, &mut fresh);
        fresh
    }

    fn execs(&self) -> usize {
        self.world.execs.load(Ordering::SeqCst)
    }
}

fn probe(period: i32) -> Probe {
    Probe {
        period_seconds: period,
        failure_threshold: 1,
        exec: Some(ExecAction {
            command: vec!["true".into()],
        }),
        ..Default::default()
    }
}

/// `probes`: letters s, r, l for each container c0, c1, …
fn pod(uid: &str, period: i32, probes: &[&str]) -> Arc<Pod> {
    let container = |(i, letters): (usize, &&str)| Container {
        name: format!("c{i}"),
        startup_probe: letters.contains('s').then(|| probe(period)),
        readiness_probe: letters.contains('r').then(|| probe(period)),
        liveness_probe: letters.contains('l').then(|| probe(period)),
        ..Default::default()
    };
    let spec = PodSpec {
        containers: probes.iter().enumerate().map(container).collect(),
        ..Default::default()
    };
    let metadata = ObjectMeta {
        name: format!("pod-{uid}"),
        namespace: "default".into(),
        uid: uid.into(),
        ..Default::default()
    };
    Arc::new(Pod {
        metadata,
        spec: spec.into(),
        raw: Default::default(),
    })
}

#[track_caller]
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < CEILING, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a person reads in the log about the pod `pod-lines`.
struct Log;

static LINES: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if self.enabled(record.metadata()) && line.contains("pod-lines/") {
            LINES.lock().unwrap().push((record.level(), line));
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_probe_that_begins_to_fail_or_recovers_is_one_line() {
    let test = "a_probe_that_begins_to_fail_or_recovers_is_one_line";
    if !is_own_process(module_path!(), test) {
        return;
    }
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let d = counting_daemon();
    let p = pod("lines", 1, &["r"]);
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("a failure", || !d.recorder.list().is_empty());
    *d.world.answer.lock().unwrap() = Answer::Code(0);
    let id = ContainerId::from("c0-0");
    until("the success", || {
        d.results.readiness.get(&id) == Some(ProbeResult::Success)
    });
    assert_eq!(d.manager.shutdown(CEILING), 0);
    let line = |level, text: &str| (level, format!("readiness probe of pod-lines/c0 {text}"));
    assert_eq!(
        *LINES.lock().unwrap(),
        [
            line(log::Level::Warn, "failed: said"),
            line(log::Level::Info, "succeeded"),
        ]
    );
}

#[test]
fn a9_workers_come_once_and_go_with_their_pod() {
    let d = daemon();
    let (a, b, none) = (
        pod("a", 10, &["srl", "r"]),
        pod("b", 10, &["l"]),
        pod("n", 10, &[""]),
    );
    for _ in 0..3 {
        [&a, &b, &none]
            .into_iter()
            .for_each(|p| d.manager.add_pod(p));
    }
    assert_eq!(d.manager.worker_count(), 5);
    d.manager.remove_pod(&none);
    d.manager.stop_liveness_and_startup(&a);
    until("the end of two workers", || d.manager.worker_count() == 3);
    d.manager.add_pod(&a);
    assert_eq!(
        d.manager.worker_count(),
        5,
        "only the missing workers are made"
    );
    for _ in 0..10 {
        d.manager.clean_up(&HashSet::from([b.uid().clone()]));
    }
    until("the clean-up", || d.manager.worker_count() == 1);
    d.manager.remove_pod(&b);
    d.manager.remove_pod(&b);
    until("the last end", || d.manager.worker_count() == 0);
    d.manager.reap();
    assert_eq!(d.manager.shutdown(CEILING), 0);
    d.manager.add_pod(&a);
    assert_eq!(
        d.manager.worker_count(),
        0,
        "nothing starts after a shutdown"
    );
}

/// A pod with a plain init container and one with all three probes, a sidecar or not.
fn pod_with_init(sidecar: bool) -> Arc<Pod> {
    let probed = pod("i", 3600, &["srl"]).spec.containers[0].clone();
    let policy = sidecar.then_some(RestartPolicy::Always);
    let init = vec![
        Container {
            name: "init".into(),
            ..Default::default()
        },
        Container {
            name: "restartable-init".into(),
            restart_policy: policy,
            ..probed
        },
    ];
    let spec = PodSpec {
        init_containers: init,
        ..PodSpec::clone(&pod("i", 3600, &["l"]).spec)
    };
    Arc::new(Pod {
        spec: spec.into(),
        ..Pod::clone(&pod("i", 3600, &["l"]))
    })
}

/// manager.json m-3, m-4; kubelet-probes 15 O8: the sidecar's workers go on when the pod begins to end.
#[test]
fn m_3_m_4_sidecars_have_workers_and_plain_init_containers_none() {
    let d = daemon();
    let plain = pod_with_init(false);
    d.manager.add_pod(&plain);
    assert_eq!(d.manager.worker_count(), 1, "the regular container's");
    d.manager.remove_pod(&plain);
    until("the end of the worker", || d.manager.worker_count() == 0);
    let sidecar = pod_with_init(true);
    d.manager.add_pod(&sidecar);
    assert_eq!(d.manager.worker_count(), 4);
    let id = ContainerId::from("restartable-init-0");
    d.store(&sidecar, 0);
    until("the sidecar's startup", || {
        d.results.startup.get(&id) == Some(ProbeResult::Success)
    });
    let fresh = d.store(&sidecar, 0);
    assert_eq!(fresh.init_container_statuses[0].started, Some(true));
    until("the sidecar's readiness", || {
        d.results.readiness.get(&id) == Some(ProbeResult::Success)
    });
    assert!(d.store(&sidecar, 0).init_container_statuses[0].ready);
    d.manager.stop_liveness_and_startup(&sidecar);
    until("the end of the regular container's worker", || {
        d.manager.worker_count() == 3
    });
    d.manager.remove_pod(&sidecar);
    d.manager.remove_pod(&sidecar);
    until("the end of the sidecar's workers", || {
        d.manager.worker_count() == 0
    });
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    d.manager.add_pod(&sidecar);
    d.store(&sidecar, 1);
    until("an event", || {
        d.recorder
            .list()
            .iter()
            .any(|e| e.field_path == "spec.initContainers{restartable-init}")
    });
}

#[test]
fn b2_a_new_container_is_probed_at_once_although_the_period_is_long() {
    let d = counting_daemon();
    let p = pod("a", 3600, &["srl"]);
    d.manager.add_pod(&p);
    let fresh = d.store(&p, 0);
    assert_eq!(
        (
            fresh.container_statuses[0].started,
            fresh.container_statuses[0].ready
        ),
        (Some(false), false)
    );
    let id = ContainerId::from("c0-0");
    until("startup's success", || {
        d.results.startup.get(&id) == Some(ProbeResult::Success)
    });
    let fresh = d.store(&p, 0);
    assert_eq!(
        (
            fresh.container_statuses[0].started,
            fresh.container_statuses[0].ready
        ),
        (Some(true), false)
    );
    until("readiness's success", || {
        d.results.readiness.get(&id) == Some(ProbeResult::Success)
    });
    assert!(d.store(&p, 0).container_statuses[0].ready);
    until("liveness's success", || {
        d.results.liveness.get(&id) == Some(ProbeResult::Success)
    });
    // A restarted instance starts over (lessons A1): its id is another one.
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    let fresh = d.store(&p, 1);
    assert_eq!(
        (
            fresh.container_statuses[0].started,
            fresh.container_statuses[0].ready
        ),
        (Some(false), false)
    );
    until("startup's failure", || {
        d.results.startup.get(&ContainerId::from("c0-1")) == Some(ProbeResult::Failure)
    });
    until("the old result's end", || {
        d.results.startup.get(&id).is_none()
    });
    assert_eq!(d.manager.shutdown(CEILING), 0);
    assert_eq!(
        d.results.startup.get(&ContainerId::from("c0-1")),
        None,
        "a worker takes its result with it"
    );
    assert!(
        d.updates
            .try_iter()
            .any(|u| u.result == ProbeResult::Failure && u.pod == *p.uid())
    );
    assert!(d.recorder.list().iter().any(
        |e| e.message == "Startup probe failed: said" && e.field_path == "spec.containers{c0}"
    ));
}

#[test]
fn the_first_probe_comes_at_the_initial_delay() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    p.spec_mut().containers[0]
        .liveness_probe
        .as_mut()
        .unwrap()
        .initial_delay_seconds = 1;
    let p = Arc::new(p);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("the probe", || d.execs() == 1);
    let (id, at) = d.world.runs.lock().unwrap()[0].clone();
    let delay = at.since(d.world.started_moment(p.uid(), &id).unwrap());
    assert!(delay >= Duration::from_secs(1), "{delay:?}");
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// A pod whose liveness probe, every 10 ms, connects to that port.
fn pod_with_tcp(port: u16) -> Arc<Pod> {
    let mut p = (*pod("a", 3600, &["l"])).clone();
    let tcp = TcpSocketAction {
        port: IntOrString::Int(port.into()),
        ..Default::default()
    };
    p.spec_mut().containers[0].liveness_probe = Some(Probe {
        period_milliseconds: Some(10),
        exec: None,
        tcp_socket: Some(tcp),
        ..probe(1)
    });
    Arc::new(p)
}

/// What a worker has prepared is of the status it saw: a pod with another address is probed there.
#[test]
fn a_new_address_is_probed_at_once() {
    let d = counting_daemon();
    let listen = |ip: &str, port| {
        let listener = TcpListener::bind((ip, port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    let first = listen("127.0.0.1", 0);
    let port = first.local_addr().unwrap().port();
    let second = listen("127.0.0.2", port);
    let p = pod_with_tcp(port);
    d.manager.add_pod(&p);
    let fresh = d.store(&p, 0);
    for (ip, listener) in [("127.0.0.1", &first), ("127.0.0.2", &second)] {
        let status = PodStatus {
            pod_ip: ip.into(),
            ..fresh.clone()
        };
        d.world.set(p.uid(), status);
        until("a connection", || listener.accept().is_ok());
    }
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// What could not be prepared is tried anew the next time, although the status says the same.
#[test]
fn an_error_is_not_kept() {
    let d = counting_daemon();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let p = pod_with_tcp(listener.local_addr().unwrap().port());
    d.world.no_namespaces.store(true, Ordering::SeqCst);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    let has_run = |outcome| {
        d.records
            .history
            .get(p.uid())
            .probes
            .iter()
            .any(|h| h.runs.iter().any(|r| r.outcome == outcome))
    };
    until("an error", || has_run(RunOutcome::Errored));
    d.world.no_namespaces.store(false, Ordering::SeqCst);
    until("a success", || has_run(RunOutcome::Success));
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn periods_in_milliseconds_are_kept() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    let probe = p.spec_mut().containers[0].liveness_probe.as_mut().unwrap();
    (probe.period_milliseconds, probe.initial_delay_milliseconds) = (Some(50), Some(150));
    let p = Arc::new(p);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("eleven probes", || d.execs() >= 11);
    let runs: Vec<Moment> = d
        .world
        .runs
        .lock()
        .unwrap()
        .iter()
        .map(|(_, at)| *at)
        .collect();
    let delay = runs[0].since(
        d.world
            .started_moment(p.uid(), &ContainerId::from("c0-0"))
            .unwrap(),
    );
    assert!(delay >= Duration::from_millis(150), "{delay:?}");
    let ten = runs[10].since(runs[0]);
    // the cadence is fixed: a late tick is not made up for, an early one does not exist
    assert!(ten >= Duration::from_millis(450), "{ten:?}");
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_paused_probe_keeps_its_state_and_its_counts() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["r"])).clone();
    let probe = p.spec_mut().containers[0].readiness_probe.as_mut().unwrap();
    (probe.period_milliseconds, probe.success_threshold) = (Some(10), 2);
    let p = Arc::new(p);
    let (id, key) = (
        ContainerId::from("c0-0"),
        ProbeKey {
            uid: p.uid().clone(),
            container: "c0".into(),
            probe_type: ProbeType::Readiness,
        },
    );
    // the first success is still under way when the probe is paused
    let (open, closed) = bounded(1);
    *d.world.answer.lock().unwrap() = Answer::Hang(closed);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("a probe that hangs", || d.execs() == 1);
    d.manager
        .pauses()
        .pause([key.clone()], Duration::from_secs(3600), Moment::now());
    *d.world.answer.lock().unwrap() = Answer::Code(0);
    drop(open);
    until("its end", || {
        !d.records.history.get(p.uid()).probes.is_empty()
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(d.execs(), 1, "nothing runs, twenty periods long");
    assert_eq!(d.results.readiness.get(&id), Some(ProbeResult::Failure));
    assert_eq!(
        d.manager
            .pauses()
            .resume(std::slice::from_ref(&key), Moment::now()),
        [key]
    );
    until("readiness", || {
        d.results.readiness.get(&id) == Some(ProbeResult::Success)
    });
    assert!(
        d.execs() >= 3,
        "two successes in a row were needed, the one during the pause not counted: {}",
        d.execs()
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_pause_ends_by_itself() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["r"])).clone();
    p.spec_mut().containers[0]
        .readiness_probe
        .as_mut()
        .unwrap()
        .period_milliseconds = Some(20);
    let p = Arc::new(p);
    let key = ProbeKey {
        uid: p.uid().clone(),
        container: "c0".into(),
        probe_type: ProbeType::Readiness,
    };
    let begun = Moment::now();
    d.manager
        .pauses()
        .pause([key], Duration::from_secs(1), begun);
    d.manager.add_pod(&p);
    for _ in 0..3 {
        // each sync of the pod triggers a readiness worker without Success: not even that runs it
        assert!(!d.store(&p, 0).container_statuses[0].ready);
    }
    until("the first probe", || d.execs() > 0);
    let at = d.world.runs.lock().unwrap()[0].1;
    assert!(
        at.since(begun) >= Duration::from_secs(1),
        "{:?}",
        at.since(begun)
    );
    until("readiness", || d.store(&p, 0).container_statuses[0].ready);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_probe_run_now_touches_no_state() {
    let d = daemon();
    let p = pod("a", 3600, &["l"]);
    let now = |container: &str, t| {
        let run = d.manager.probe_now(&p, container, t);
        run.map(|(outcome, steps)| ProbeReport::new(&outcome, steps))
            .map_err(|e| e.to_string())
    };
    assert_eq!(
        now("c0", ProbeType::Liveness),
        Err("container \"c0\" does not run".into())
    );
    d.store(&p, 0);
    *d.world.answer.lock().unwrap() = Answer::Code(3);
    let report = now("c0", ProbeType::Liveness).unwrap();
    let steps: Vec<_> = report.steps.iter().map(|s| s.text.as_str()).collect();
    assert_eq!(
        steps,
        [
            "exec in container c0-0: true",
            "exit code 3, 4 bytes of output"
        ]
    );
    assert_eq!(
        (
            report.outcome,
            report.phase.as_str(),
            report.output.as_str()
        ),
        (RunOutcome::Failure, "run", "said")
    );
    *d.world.answer.lock().unwrap() = Answer::Error;
    let report = now("c0", ProbeType::Liveness).unwrap();
    assert_eq!(
        (report.outcome, report.output.as_str(), report.steps.len()),
        (RunOutcome::Errored, "no descriptors", 8)
    );
    *d.world.answer.lock().unwrap() = Answer::Panic;
    assert_eq!(
        now("c0", ProbeType::Liveness),
        Err("the probe panicked: made up".into())
    );
    assert_eq!(
        now("c9", ProbeType::Liveness),
        Err("pod pod-a has no container \"c9\"".into())
    );
    assert_eq!(
        now("c0", ProbeType::Startup),
        Err("container \"c0\" has no startup probe".into())
    );
    assert!(d.recorder.list().is_empty() && d.updates.is_empty());
    assert_eq!(d.results.liveness.get(&ContainerId::from("c0-0")), None);
    assert_eq!(d.records.history.get(p.uid()), Default::default());
}

#[test]
fn runs_are_counted_and_kept_and_the_series_go_with_the_worker() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    let probe = p.spec_mut().containers[0].liveness_probe.as_mut().unwrap();
    (probe.period_milliseconds, probe.failure_threshold) = (Some(10), 1000);
    let p = Arc::new(p);
    *d.world.answer.lock().unwrap() = Answer::Error;
    d.manager.add_pod(&p);
    d.store(&p, 0);
    let metrics = || {
        let mut out = String::new();
        d.records.write_metrics(&mut out);
        out
    };
    until("an error", || {
        metrics().contains("podprobe_prober_probe_errors_total{")
    });
    assert!(
        !metrics().contains("prober_probe_total{"),
        "an error is no result"
    );
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    until("a failure", || metrics().contains("result=\"failed\"} "));
    *d.world.answer.lock().unwrap() = Answer::Code(0);
    until("forty more", || d.execs() > 60);
    let runs = d.records.history.get(p.uid()).probes.remove(0).runs;
    assert_eq!(
        (runs.len(), runs[31].outcome, &*runs[31].output),
        (32, RunOutcome::Success, "said")
    );
    d.manager.remove_pod(&p);
    until("the worker's end", || d.manager.worker_count() == 0);
    let left: Vec<_> = metrics()
        .lines()
        .filter(|l| !l.contains("podprobe_prober_probe_lateness_seconds"))
        .map(String::from)
        .collect();
    assert_eq!(left, [""; 0], "what is left is of all probes together");
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

impl Daemon {
    /// How many probes began, and how many of them more than a quarter of a second after their instant.
    fn begun_and_late(&self) -> (u64, u64) {
        let counts = self.records.lateness.counts();
        (
            counts.iter().sum(),
            counts[BOUNDS.iter().position(|b| *b > 0.25).unwrap()..]
                .iter()
                .sum(),
        )
    }
}

#[test]
fn a_probe_that_begins_after_its_instant_is_counted_as_late_and_then_the_cadence_goes_on() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    p.spec_mut().containers[0]
        .liveness_probe
        .as_mut()
        .unwrap()
        .period_milliseconds = Some(100);
    let p = Arc::new(p);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("a few runs", || d.begun_and_late().0 > 3);
    let (_, late) = d.begun_and_late();
    // The worker wakes at its instant, and what it has to know first is not to be had.
    let held = d.world.statuses.lock().unwrap();
    let before = d.world.lookups.load(Ordering::SeqCst);
    until("the worker's look", || {
        d.world.lookups.load(Ordering::SeqCst) > before
    });
    std::thread::sleep(Duration::from_millis(600));
    let (begun, execs) = (d.begun_and_late().0, d.execs());
    drop(held);
    until("the late run", || d.begun_and_late().0 > begun);
    assert_eq!(d.begun_and_late().1, late + 1);
    until("the next runs", || d.begun_and_late().0 > begun + 3);
    let runs = d.world.runs.lock().unwrap();
    // Of the six instants and more that passed in the stall one is made up for, the others are not.
    let made_up = runs[execs..]
        .iter()
        .filter(|(_, at)| at.since(runs[execs].1) < Duration::from_millis(90))
        .count();
    assert!(
        made_up <= 4,
        "{made_up} runs at once; the late one, one at its own instant, and what a busy machine delays"
    );
    drop(runs);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_run_that_outlasts_its_period_makes_nothing_late() {
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    p.spec_mut().containers[0]
        .liveness_probe
        .as_mut()
        .unwrap()
        .period_milliseconds = Some(2000);
    let (release, hang) = bounded(0);
    *d.world.answer.lock().unwrap() = Answer::Hang(hang);
    let p = Arc::new(p);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("the run", || d.execs() == 1);
    let (_, late) = d.begun_and_late();
    // Beyond the next instant, by more than what counts as late.
    std::thread::sleep(Duration::from_millis(3000));
    *d.world.answer.lock().unwrap() = Answer::Code(0);
    drop(release);
    until("the next run", || d.begun_and_late().0 == 2);
    assert_eq!(d.begun_and_late().1, late);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a7_ready_and_started_survive_the_daemon() {
    let was = |ready| RestoredReady {
        ready,
        started: true,
    };
    let restored =
        [("c0-0", was(true)), ("c1-0", was(false))].map(|(id, r)| (ContainerId::from(id), r));
    let d = daemon_with(HashMap::from(restored));
    let (_open, closed) = bounded(1);
    *d.world.answer.lock().unwrap() = Answer::Hang(closed);
    let p = pod("a", 1, &["sr", "sr", "sr", "s", "r"]);
    for round in 0..3 {
        let fresh = d.store(&p, 0);
        let got: Vec<_> = fresh
            .container_statuses
            .iter()
            .map(|c| (c.started.unwrap(), c.ready))
            .collect();
        assert_eq!(
            got,
            [
                (true, true),
                (true, false),
                (false, false),
                (false, false),
                (true, false)
            ],
            "round {round}"
        );
        if round == 0 {
            d.manager.add_pod(&p);
        }
        if round == 1 {
            until("the workers at work", || d.execs() >= 4);
        }
    }
    drop(_open);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_panic_costs_one_step() {
    let d = daemon();
    *d.world.answer.lock().unwrap() = Answer::Panic;
    let p = pod("a", 1, &["l"]);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("the panic", || d.manager.panics() == 1);
    assert_eq!(d.manager.worker_count(), 1);
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    until("the next step", || {
        d.results.liveness.get(&ContainerId::from("c0-0")) == Some(ProbeResult::Failure)
    });
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_panic_outside_a_step_costs_the_thread_and_not_the_worker() {
    let d = daemon();
    d.world.panic_at_lookup.store(1, Ordering::SeqCst);
    let p = pod("a", 1, &["l"]);
    d.manager.add_pod(&p);
    until("the panic", || d.manager.panics() == 1);
    assert_eq!(d.manager.worker_count(), 1);
    d.store(&p, 0);
    until("a probe on the fresh thread", || d.execs() > 0);
    d.manager.reap();
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// A worker that was woken before the status is there would have to look again and again.
#[test]
fn a_worker_is_woken_once_and_finds_the_status_that_woke_it() {
    for (letter, instances) in [("s", 1), ("s", 2), ("r", 1)] {
        let d = daemon();
        let p = pod("a", 3600, &[letter]);
        d.manager.add_pod(&p);
        for instance in 0..instances {
            let execs = d.execs();
            let lookups = || d.world.lookups.load(Ordering::SeqCst);
            until("the first step", || lookups() >= 2);
            let before = lookups();
            d.fill(&p, instance);
            d.store(&p, instance);
            until("the probe", || d.execs() == execs + 1);
            assert_eq!(
                lookups(),
                before + 3,
                "two by the manager, which fills two statuses, and one by the worker"
            );
        }
        assert_eq!(d.manager.shutdown(CEILING), 0);
    }
}

/// Kubelet-probes 13.1.
#[test]
fn ticks_count_from_the_run_that_a_trigger_led_to() {
    let d = daemon();
    let p = pod("a", 1, &["r"]);
    let begun = Instant::now();
    d.manager.add_pod(&p);
    until("more than half a period", || {
        begun.elapsed() > Duration::from_millis(600)
    });
    d.store(&p, 0);
    until("two probes", || d.execs() >= 2);
    let runs: Vec<Moment> = d
        .world
        .runs
        .lock()
        .unwrap()
        .iter()
        .map(|(_, at)| *at)
        .collect();
    assert!(
        runs[1].since(runs[0]) > Duration::from_millis(700),
        "{runs:?}"
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// Kubelet-probes 13.1: once Success is cached, syncs no longer trigger, also those whose trigger came before.
#[test]
fn a_sync_during_the_probe_that_succeeds_triggers_no_other() {
    let d = counting_daemon();
    let p = pod("a", 3600, &["r"]);
    let (answer, hang) = bounded::<()>(0);
    *d.world.answer.lock().unwrap() = Answer::Hang(hang);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("the probe", || d.execs() == 1);
    d.store(&p, 0);
    drop(answer);
    until("Success", || {
        d.results.readiness.get(&ContainerId::from("c0-0")) == Some(ProbeResult::Success)
    });
    // the next instance is known before its trigger comes, which the first one's may still be ahead of
    let mut next = (*d.world.statuses.lock().unwrap()[p.uid()]).clone();
    next.container_statuses[0].container_id = ContainerId::from("c0-1").uri();
    d.world.set(p.uid(), next);
    let ids = || {
        d.world
            .runs
            .lock()
            .unwrap()
            .iter()
            .map(|(id, _)| id.to_string())
            .collect::<Vec<_>>()
    };
    until("the probe of the next instance", || {
        d.store(&p, 1);
        ids().last().is_some_and(|id| id == "c0-1")
    });
    assert_eq!(
        ids().iter().filter(|id| *id == "c0-0").count(),
        1,
        "{:?}",
        ids()
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn c5_an_error_is_tried_three_times_and_changes_nothing() {
    let d = daemon();
    *d.world.answer.lock().unwrap() = Answer::Error;
    let p = pod("a", 3600, &["l"]);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    let errored = "Liveness probe errored and resulted in unknown state: no descriptors";
    until("the event", || {
        d.recorder.list().iter().any(|e| e.message == errored)
    });
    assert_eq!(d.execs(), 3);
    assert_eq!(
        d.results.liveness.get(&ContainerId::from("c0-0")),
        Some(ProbeResult::Success)
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

#[test]
fn a_grpc_probe_fails_after_a_single_try() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = bounded(2);
    // The second connection is the test's own and brings no request.
    let server = std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten().take(2) {
            let request = raw_h2::read_request(&mut stream);
            let _ = stream.write_all(&raw_h2::answer(2));
            while raw_h2::read_frame(&mut stream).is_some() {}
            tell.send(request).unwrap();
        }
    });
    let d = daemon();
    let mut p = (*pod("a", 3600, &["l"])).clone();
    let grpc = Probe {
        exec: None,
        grpc: Some(GrpcAction {
            port: port.into(),
            service: Some("db".into()),
        }),
        ..probe(3600)
    };
    p.spec_mut().containers[0].liveness_probe = Some(grpc);
    let p = Arc::new(p);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    let failed = "Liveness probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    until("the event", || {
        d.recorder.list().iter().any(|e| e.message == failed)
    });
    assert_eq!(d.manager.shutdown(CEILING), 0);
    drop(std::net::TcpStream::connect(("127.0.0.1", port)));
    server.join().unwrap();
    assert_eq!(
        told.iter().collect::<Vec<_>>(),
        [Some(b"\0\0\0\0\x04\x0a\x02db".to_vec()), None],
        "only errors are tried again"
    );
}

#[test]
fn a_shutdown_waits_as_long_as_it_is_told_and_counts_the_late() {
    let d = daemon();
    let (open, closed) = bounded(1);
    *d.world.answer.lock().unwrap() = Answer::Hang(closed);
    let p = pod("a", 1, &["l", ""]);
    d.manager.add_pod(&p);
    d.store(&p, 0);
    until("the probe", || d.execs() == 1);
    assert_eq!(d.manager.shutdown(Duration::from_millis(50)), 1);
    drop(open);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// Threads of this process whose name begins so.
fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|t| {
            std::fs::read_to_string(t.path().join("comm"))
                .is_ok_and(|name| name.starts_with(prefix))
        })
        .count()
}

#[test]
fn three_hundred_workers_start_and_stop_quickly_and_leave_no_thread() {
    let d = daemon();
    let pods: Vec<_> = (0..100)
        .map(|i| {
            let mut p = (*pod(&format!("p{i}"), 3600, &["srl"])).clone();
            p.spec_mut().containers[0].name = "many".into();
            Arc::new(p)
        })
        .collect();
    let start = Instant::now();
    pods.iter().for_each(|p| d.manager.add_pod(p));
    assert_eq!(d.manager.worker_count(), 300);
    until("the threads' names", || threads("liveness:many") == 100);
    assert_eq!(d.manager.shutdown(CEILING), 0);
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        (
            threads("liveness:many"),
            threads("readiness:many"),
            threads("startup:many")
        ),
        (0, 0, 0)
    );
}

/// Lessons A11: a container that an earlier daemon has started has its events like any other.
#[test]
fn a11_a_container_older_than_the_daemon_has_its_events() {
    let id = ContainerId::from("c0-0");
    let d = daemon_with(HashMap::from([(
        id.clone(),
        RestoredReady {
            ready: true,
            started: true,
        },
    )]));
    d.world
        .started
        .lock()
        .unwrap()
        .insert(id.clone(), Moment::default());
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    let p = short("a", "l", 50);
    d.store(&p, 0);
    d.manager.add_pod(&p);
    let named = |e: &podprobe::pods::events::Event| {
        e.field_path == "spec.containers{c0}" && e.pod == "pod-a"
    };
    until("the event", || {
        d.recorder
            .list()
            .iter()
            .any(|e| e.message == "Liveness probe failed: said" && named(e))
    });
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// A pod of one container whose probes have that period in milliseconds.
fn short(uid: &str, probes: &str, period: i32) -> Arc<Pod> {
    let mut p = (*pod(uid, 3600, &[probes])).clone();
    let c = &mut p.spec_mut().containers[0];
    for probe in [
        &mut c.startup_probe,
        &mut c.readiness_probe,
        &mut c.liveness_probe,
    ]
    .into_iter()
    .flatten()
    {
        probe.period_milliseconds = Some(period);
    }
    Arc::new(p)
}

/// Lessons B1: a daemon that comes back does not probe everything in the same moment. New containers, which are probed at
/// once, measure how long a moment is on this machine.
#[test]
fn b1_a_new_daemon_spreads_the_first_probes_over_the_period() {
    const OLD: usize = 100;
    let d = daemon();
    let make = |uid: String, container: &str| {
        let mut p = (*pod(&uid, 3600, &["l"])).clone();
        p.spec_mut().containers[0].name = container.into();
        Arc::new(p)
    };
    let pods: Vec<_> = (0..OLD)
        .flat_map(|i| {
            [
                make(format!("old{i}"), "old"),
                make(format!("new{i}"), "new"),
            ]
        })
        .collect();
    d.world
        .started
        .lock()
        .unwrap()
        .insert(ContainerId::from("old-0"), Moment::default());
    pods.iter().for_each(|p| drop(d.store(p, 0)));
    let began = Moment::now();
    pods.iter().for_each(|p| d.manager.add_pod(p));
    let runs = |name| {
        d.world
            .runs
            .lock()
            .unwrap()
            .iter()
            .filter(|(id, _)| id.as_str() == name)
            .count()
    };
    until("the new containers' probes", || runs("new-0") == OLD);
    let (old, took) = (runs("old-0"), Moment::now().since(began));
    // evenly over ten seconds: 40 more than are due is eight standard deviations
    let due = OLD as f64 * took.as_secs_f64() / 10.0;
    assert!(
        (old as f64) < due + 40.0,
        "a storm: {old} of {OLD} within {took:?}"
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// Lessons B3: what runs out of schedule is a readiness probe that has no success, once for each sync of its pod.
#[test]
fn b3_a_sync_triggers_readiness_until_it_succeeds() {
    let d = daemon();
    let p = pod("a", 3600, &["rl"]);
    *d.world.answer.lock().unwrap() = Answer::Code(1);
    d.store(&p, 0);
    d.manager.add_pod(&p);
    let count = |t| {
        d.records
            .history
            .get(p.uid())
            .probes
            .into_iter()
            .find(|h| h.probe_type == t)
            .map_or(0, |h| h.runs.len())
    };
    let counts = || (count(ProbeType::Liveness), count(ProbeType::Readiness));
    until("the first of each", || counts() == (1, 1));
    for triggered in 2..=4 {
        d.store(&p, 0);
        until("a triggered run", || counts().1 == triggered);
    }
    *d.world.answer.lock().unwrap() = Answer::Code(0);
    d.store(&p, 0);
    until("readiness", || {
        d.results.readiness.get(&ContainerId::from("c0-0")) == Some(ProbeResult::Success)
    });
    for _ in 0..20 {
        assert!(d.store(&p, 0).container_statuses[0].ready);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        counts(),
        (1, 5),
        "liveness keeps to its schedule, and a success ends the triggers"
    );
    assert_eq!(d.manager.shutdown(CEILING), 0);
}

/// Lessons B3: after a run out of schedule a whole period passes.
#[test]
fn b3_the_schedule_starts_anew_with_a_triggered_run() {
    const PERIOD: Duration = Duration::from_millis(400);
    let start = Instant::now();
    loop {
        assert!(
            start.elapsed() < CEILING,
            "no attempt without a run of the schedule between the two"
        );
        let d = daemon();
        let p = short("a", "r", 400);
        *d.world.answer.lock().unwrap() = Answer::Code(1);
        d.store(&p, 0);
        let began = Moment::now();
        d.manager.add_pod(&p);
        until("the first run", || {
            d.records
                .history
                .get(p.uid())
                .probes
                .iter()
                .any(|h| h.runs.len() == 1)
        });
        *d.world.answer.lock().unwrap() = Answer::Code(0);
        until("the middle of the period", || {
            Moment::now().since(began) >= PERIOD / 2
        });
        let triggered = Moment::now();
        d.store(&p, 0);
        until("the next two runs", || d.execs() >= 3);
        assert_eq!(d.manager.shutdown(CEILING), 0);
        let runs: Vec<Moment> = d
            .world
            .runs
            .lock()
            .unwrap()
            .iter()
            .map(|(_, at)| *at)
            .collect();
        // on a machine too busy for the middle of a period the schedule may have come first
        if runs[1].since(began) < PERIOD {
            assert!(
                runs[2] >= triggered + PERIOD,
                "{:?} after the trigger",
                runs[2].since(triggered)
            );
            return;
        }
    }
}

/// Lessons F1: nothing is said of a container that does not run (yet, or any more).
#[test]
fn f1_a_container_that_does_not_run_has_no_events() {
    for kind in ["s", "r", "l"] {
        let d = daemon();
        *d.world.answer.lock().unwrap() = Answer::Code(1);
        let mut p = (*short("a", kind, 20)).clone();
        let c = &mut p.spec_mut().containers[0];
        // so that no decision holds the worker
        [
            &mut c.startup_probe,
            &mut c.readiness_probe,
            &mut c.liveness_probe,
        ]
        .into_iter()
        .flatten()
        .for_each(|p| p.failure_threshold = 1000);
        let p = Arc::new(p);
        d.manager.add_pod(&p);
        // one worker looks: what a look has led to is over at the next
        let looks = |n| {
            let before = d.world.lookups.load(Ordering::SeqCst);
            until("some looks", || {
                d.world.lookups.load(Ordering::SeqCst) >= before + n
            });
        };
        looks(5);
        assert_eq!(
            (d.execs(), d.recorder.list().len()),
            (0, 0),
            "{kind}: there is no container"
        );
        let mut status = d.store(&p, 0);
        until("events", || d.recorder.list().iter().any(|e| e.count >= 3));
        status.container_statuses[0].state = ContainerState {
            waiting: Some(Default::default()),
            ..Default::default()
        };
        d.world.set(p.uid(), status);
        looks(2);
        let counts = || {
            (
                d.execs(),
                d.recorder.list().iter().map(|e| e.count).sum::<u32>(),
            )
        };
        let before = counts();
        looks(10);
        assert_eq!(counts(), before, "{kind}: it does not run any more");
        assert_eq!(d.manager.shutdown(CEILING), 0);
    }
}

/// Kubelet-probes 2.1 and 13.5: an edit of a pod that keeps its UID does not reach a worker, and that is told.
#[test]
fn a_worker_keeps_the_probe_it_began_with_and_says_so() {
    let d = daemon();
    let p = short("a", "rl", 20);
    d.store(&p, 0);
    d.manager.add_pod(&p);
    assert_eq!(d.manager.outdated(&p), []);
    let mut edited = (*p).clone();
    let c = &mut edited.spec_mut().containers[0];
    (c.readiness_probe, c.startup_probe) = (None, c.liveness_probe.clone());
    c.liveness_probe.as_mut().unwrap().failure_threshold = 7;
    let edited = Arc::new(edited);
    d.manager.add_pod(&edited);
    let name = p.spec.containers[0].name.clone();
    assert_eq!(
        d.manager.outdated(&edited),
        [
            (name.clone(), ProbeType::Readiness),
            (name, ProbeType::Liveness)
        ]
    );
    assert_eq!(d.manager.worker_count(), 3, "what is new has a worker");
    d.manager.remove_pod(&p);
    until("the workers' end", || d.manager.worker_count() == 0);
    assert_eq!(d.manager.outdated(&edited), []);
    assert_eq!(d.manager.shutdown(CEILING), 0);
}
