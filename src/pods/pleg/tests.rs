use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use super::diff::{EventKind, events};
use super::*;
use crate::engine::runtime::{
    ContainerStatus, RuntimeContainerStatus, RuntimeError, RuntimeSandboxStatus, RuntimeState,
    labels,
};
use crate::fake_runtime::{FakeRuntime, FakeState, container_status, runtime_container_status};

const CEILING: Duration = Duration::from_secs(10);

fn container(id: &str, state: RuntimeState) -> RuntimeContainerStatus {
    runtime_container_status(id, id, state, 0)
}

fn sandbox(id: &str, ready: bool, ips: &[IpAddr]) -> RuntimeSandboxStatus {
    let created_at = SystemTime::UNIX_EPOCH;
    RuntimeSandboxStatus {
        id: id.into(),
        attempt: 0,
        ready,
        host_network: false,
        created_at,
        ips: ips.to_vec(),
    }
}

fn pod(uid: &str, containers: &[(&str, RuntimeState)]) -> RuntimePodStatus {
    let containers = containers
        .iter()
        .map(|(id, state)| container(id, *state))
        .collect();
    RuntimePodStatus {
        uid: uid.into(),
        containers,
        ..RuntimePodStatus::default()
    }
}

#[test]
fn sandboxes_take_part() {
    let with = |ready| RuntimePodStatus {
        sandboxes: vec![sandbox("s", ready, &[])],
        ..pod("1", &[])
    };
    let kinds = |old: &RuntimePodStatus, new: &RuntimePodStatus| {
        events(old, new)
            .into_iter()
            .map(|e| e.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&pod("1", &[]), &with(true)),
        [EventKind::ContainerStarted]
    );
    assert_eq!(kinds(&with(true), &with(false)), [EventKind::ContainerDied]);
    assert_eq!(
        kinds(&with(true), &pod("", &[])),
        [EventKind::ContainerDied, EventKind::ContainerRemoved]
    );
    assert_eq!(
        events(&with(false), &pod("", &[]))[0].uid,
        "1".into(),
        "an absent pod has the old one's UID"
    );
}

#[test]
fn a_change_without_an_event_is_a_pod_sync() {
    let mut records = Records::default();
    step(
        &mut records,
        vec![pod("1", &[("c", RuntimeState::Running)])],
    );
    let mut changed = pod("1", &[("c", RuntimeState::Running)]);
    changed.containers[0].message = "late".into();
    let changes = step(&mut records, vec![changed.clone()]);
    assert_eq!(
        changes[0].events,
        [PodLifecycleEvent {
            uid: "1".into(),
            kind: EventKind::PodSync,
            id: "c".into()
        }]
    );
    assert_eq!(changes[0].status, Some(changed));
}

#[test]
fn addresses_stay_until_a_sandbox_is_ready_again() {
    let ip: IpAddr = "10.0.0.1".parse().unwrap();
    let with = |ready, ips: &[IpAddr]| RuntimePodStatus {
        sandboxes: vec![sandbox("s", ready, ips)],
        ..pod("1", &[])
    };
    let mut records = Records::default();
    step(&mut records, vec![with(true, &[ip])]);
    let ended = step(&mut records, vec![with(false, &[])]);
    assert_eq!(ended[0].status.as_ref().unwrap().ips(), [ip]);
    let again = step(&mut records, vec![with(true, &[])]);
    assert!(again[0].status.as_ref().unwrap().ips().is_empty());
}

#[test]
fn health_has_the_kubelets_texts() {
    let at = |s| Moment::from_boot(Duration::from_secs(s));
    let health = |relisted, now| health(relisted, now).map_err(|e| e.to_string());
    assert_eq!(
        health(None, at(0)),
        Err("pleg has yet to be successful".into())
    );
    assert_eq!(health(Some(at(1)), at(181)), Ok(()));
    assert_eq!(
        health(Some(at(1)), at(182)),
        Err("pleg was last seen active 3m1s ago; threshold is 3m0s".into())
    );
}

/// The UID of a pod, and the id and state of each of its containers.
type ListedPod = (&'static str, Vec<(&'static str, RuntimeState)>);
/// The answer to a full listing.
type Reply = Result<Vec<ListedPod>, RuntimeError>;

fn put(state: &mut FakeState, pods: &[ListedPod]) {
    state.containers = pods
        .iter()
        .flat_map(|(uid, containers)| containers.iter().map(move |(id, s)| listed(uid, id, *s)))
        .collect();
}

fn listed(uid: &str, id: &str, state: RuntimeState) -> ContainerStatus {
    let labels = [
        (labels::POD_UID, uid),
        (labels::POD_NAME, "p"),
        (labels::POD_NAMESPACE, "default"),
    ];
    let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned()));
    container_status(id, labels.into(), state)
}

/// Makes a runtime with a script. Each full listing takes the next reply. If there is no next reply, or for a single
/// pod, the last listing is repeated. A container `panic` makes the listing panic once.
fn scripted(replies: Receiver<Reply>) -> FakeRuntime {
    FakeRuntime::with_list(move |pod, state| {
        if pod.is_none()
            && let Ok(reply) = replies.try_recv()
        {
            put(state, &reply?);
        }
        if state.containers.iter().any(|c| c.id == "panic".into()) {
            state.containers.clear();
            panic!("on purpose");
        }
        Ok(())
    })
}

struct Fixture {
    pleg: Pleg,
    runtime: Arc<FakeRuntime>,
    replies: Sender<Reply>,
    events: Receiver<PodLifecycleEvent>,
    stop: Option<Sender<()>>,
}

fn start(first: Reply, capacity: usize) -> Fixture {
    let (replies, queue) = bounded(10);
    replies.send(first).unwrap();
    let runtime = Arc::new(scripted(queue));
    let (send, events) = bounded(capacity);
    let (stop, stopped) = bounded(0);
    let pleg = Pleg::spawn(runtime.clone(), send, stopped).unwrap();
    Fixture {
        pleg,
        runtime,
        replies,
        events,
        stop: Some(stop),
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.take();
        let end = Instant::now() + CEILING;
        while !self.pleg.is_finished() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_relist_fills_the_cache_before_it_tells() {
    let f = start(Ok(vec![("1", vec![("c", RuntimeState::Running)])]), 10);
    let event = f.events.recv_timeout(CEILING).unwrap();
    assert_eq!(
        (event.kind, event.id),
        (EventKind::ContainerStarted, "c".into())
    );
    assert_eq!(f.pleg.cache().get(&"1".into()).containers.len(), 1);
    f.replies.send(Ok(vec![])).unwrap();
    assert_eq!(
        f.events.recv_timeout(CEILING).unwrap().kind,
        EventKind::ContainerDied
    );
    assert_eq!(f.pleg.cache().all(), []);
    assert_eq!(f.pleg.health(Moment::now()), Ok(()));
}

#[test]
fn a_request_relists_that_pod_at_once() {
    let f = start(Ok(vec![]), 10);
    f.pleg
        .cache()
        .get_newer_than(&"1".into(), Moment::default(), CEILING)
        .unwrap();
    // All later full relists fail, so only the request can have found the change.
    let fail = || Err(RuntimeError::failed("no"));
    (0..10).for_each(|_| f.replies.send(fail()).unwrap());
    put(
        &mut f.runtime.state(),
        &[("1", vec![("c", RuntimeState::Running)])],
    );
    f.pleg.request(&"1".into());
    assert_eq!(
        f.events.recv_timeout(CEILING).unwrap().kind,
        EventKind::ContainerStarted
    );
    assert_eq!(f.pleg.cache().get(&"1".into()).containers[0].id, "c".into());
}

/// No request is dropped if many come at once: when all pods are removed at once, every pod worker sends a request.
#[test]
fn no_request_is_dropped_however_many_come_at_once() {
    const PODS: usize = 300;
    let f = start(Ok(vec![]), PODS);
    f.pleg
        .cache()
        .get_newer_than(&"1".into(), Moment::default(), CEILING)
        .unwrap();
    let fail = || Err(RuntimeError::failed("no"));
    (0..10).for_each(|_| f.replies.send(fail()).unwrap());
    let uids: Vec<String> = (0..PODS).map(|n| n.to_string()).collect();
    let pods = uids
        .iter()
        .map(|uid| listed(uid, uid, RuntimeState::Running));
    {
        // The relist thread waits for this lock.
        let mut state = f.runtime.state();
        state.containers = pods.collect();
        for uid in &uids {
            f.pleg.request(&uid.as_str().into());
            f.pleg.request(&uid.as_str().into());
        }
    }
    for _ in 0..PODS {
        f.events.recv_timeout(CEILING).unwrap();
    }
}

#[test]
fn a_wait_ends_with_a_newer_listing_the_ceiling_or_the_close() {
    let f = start(Ok(vec![]), 10);
    let now = Moment::now();
    assert_eq!(
        f.pleg
            .cache()
            .get_newer_than(&"1".into(), now, CEILING)
            .unwrap()
            .uid,
        "1".into()
    );
    let far = now + Duration::from_secs(3600);
    let e = f
        .pleg
        .cache()
        .get_newer_than(&"1".into(), far, Duration::from_millis(1))
        .unwrap_err();
    assert_eq!(
        e.to_string(),
        "cannot get a fresh status of pod 1: the runtime was not relisted within 1ms"
    );
    f.pleg.cache().close();
    f.pleg
        .cache()
        .get_newer_than(&"1".into(), far, CEILING)
        .unwrap();
}

#[test]
fn an_error_or_a_panic_costs_one_round_and_a_full_channel_drops() {
    let f = start(Err(RuntimeError::failed("no")), 1);
    let panics = ("1", vec![("panic", RuntimeState::Running)]);
    f.replies.send(Ok(vec![panics])).unwrap();
    let both = vec![("a", RuntimeState::Running), ("b", RuntimeState::Exited)];
    f.replies.send(Ok(vec![("1", both)])).unwrap();
    // An unknown pod is only as new as the last full listing. By then the events of that listing have been sent.
    f.pleg
        .cache()
        .get_newer_than(&"unknown".into(), Moment::default(), CEILING)
        .unwrap();
    assert_eq!(
        (f.pleg.panics(), f.pleg.discarded(), f.events.len()),
        (1, 1, 1)
    );
}

#[test]
fn relists_are_counted_by_the_kubelet_s_names() {
    let (events, _received) = bounded(10);
    let mut worker = Worker {
        runtime: Arc::new(FakeRuntime::default()),
        events,
        stop: crossbeam_channel::never(),
        woken: crossbeam_channel::never(),
        requests: Arc::default(),
        cache: Arc::default(),
        counters: Arc::default(),
        records: Records::default(),
        closed: false,
    };
    let check = |worker: &Worker, lines: &[&str]| {
        let now = worker.counters.relisted().unwrap_or_default() + Duration::from_secs(2);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let mut out = String::new();
        worker.counters.write(now, wall, &mut out);
        for line in lines {
            let line = format!("kubelet_pleg_{line}");
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
        out
    };
    let before = check(
        &worker,
        &["relist_duration_seconds_count 0", "discard_events 0"],
    );
    assert!(!before.contains("last_seen"), "never yet");
    worker.relist();
    worker.relist();
    worker.relist_pod(&"1".into(), Moment::now());
    check(
        &worker,
        &[
            "last_seen_seconds 98",
            "relist_duration_seconds_count 2",
            "relist_interval_seconds_count 1",
            "pod_relist_duration_seconds_count 1",
        ],
    );
}

#[test]
fn a_request_older_than_the_last_full_relist_is_skipped() {
    let runtime = FakeRuntime::default();
    put(
        &mut runtime.state(),
        &[("1", vec![("c", RuntimeState::Running)])],
    );
    let (events, received) = bounded(10);
    let mut worker = Worker {
        runtime: Arc::new(runtime),
        events,
        stop: crossbeam_channel::never(),
        woken: crossbeam_channel::never(),
        requests: Arc::default(),
        cache: Arc::default(),
        counters: Arc::default(),
        records: Records::default(),
        closed: false,
    };
    let at = |s| Moment::from_boot(Duration::from_secs(s));
    *worker.counters.relisted.lock().unwrap() = Some(at(5));
    worker.relist_pod(&"1".into(), at(4));
    assert_eq!(received.len(), 0);
    worker.relist_pod(&"1".into(), at(5));
    assert_eq!(received.len(), 1);
}
