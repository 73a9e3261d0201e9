//! Tests turns of the thread with a data path that does nothing or fails.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crossbeam_channel::{Sender, bounded};

use super::*;
use crate::api::decode::objects;
use crate::api::objects::ObjectContent;
use crate::api::{PodOrigin, PodPhase, PodStatus};
use crate::base::change_feed::Aspect;
use crate::base::locks::Locked;
use crate::base::sys::task::Process;
use crate::base::threads::Pulse;
use crate::net::proxy::{Applied, ProxyError, RoleError};
use crate::test_pods;

struct Nowhere;

impl DataPath for Nowhere {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn apply(&mut self, _: &ServiceTable) -> Result<Applied, ProxyError> {
        Ok(Applied::default())
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        Ok(false)
    }
}

/// A data path that fails as often as it is told, works once, and fails again.
struct Failing(u32);

impl DataPath for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn apply(&mut self, _: &ServiceTable) -> Result<Applied, ProxyError> {
        let left = self.0;
        self.0 = left.wrapping_sub(1);
        match left {
            0 => Ok(Applied::default()),
            _ => Err(RoleError::Refused("as the test wants it".into()).into()),
        }
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        Ok(false)
    }
}

/// A data path that sends each new table to the test and waits for the test's answer. The answer true lets it
/// apply the table, and the answer false makes it panic.
struct Halting {
    tables: Sender<ServiceTable>,
    go: Receiver<bool>,
}

impl DataPath for Halting {
    fn name(&self) -> &'static str {
        "halting"
    }

    fn apply(&mut self, table: &ServiceTable) -> Result<Applied, ProxyError> {
        self.tables.send(table.clone()).unwrap();
        assert!(self.go.recv().unwrap(), "a panic, as the test wants it");
        Ok(Applied::default())
    }

    fn remove(&mut self) -> Result<bool, ProxyError> {
        Ok(false)
    }
}

/// The pods, statuses and services of a daemon without containers.
struct Stores {
    pods: Mutex<HashMap<PodUid, Arc<Pod>>>,
    statuses: Mutex<HashMap<PodUid, Arc<PodStatus>>>,
    services: Mutex<ServiceObjects>,
    feed: Arc<ChangeFeed>,
}

impl Stores {
    /// Adds or replaces a pod, and tells so, as the daemon's own store does.
    fn set_pod(&self, pod: Arc<Pod>) {
        let uid = pod.uid().clone();
        self.pods.locked().insert(uid.clone(), pod);
        self.feed.tell(&uid, Aspect::Spec);
    }

    /// Stores the status of a pod, and tells so, as the daemon's own store does.
    fn set_status(&self, pod: &Pod, status: PodStatus) {
        let uid = pod.uid().clone();
        self.statuses.locked().insert(uid.clone(), Arc::new(status));
        self.feed.tell(&uid, Aspect::Status);
    }

    /// Adds a service to a store without services.
    fn put_service(&self) {
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";
        let source = PodOrigin::File {
            node_name: "node",
            path: Path::new("/pods/web.yaml"),
        };
        let read = objects(service.as_bytes(), &source).unwrap();
        let services = read.objects.into_iter().map(|object| {
            let ObjectContent::Service(service) = object.content else {
                panic!("{} is not a service", object.key);
            };
            (object.key, service)
        });
        self.services.locked().services = services.collect();
    }

    fn remove_services(&self) {
        self.services.locked().services.clear();
    }
}

impl NodeState for Arc<Stores> {
    fn wanted(&self) -> HashSet<PodUid> {
        self.pods.locked().keys().cloned().collect()
    }

    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.locked().get(uid).cloned()
    }

    fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.statuses.locked().get(uid).cloned()
    }

    fn services(&self) -> ServiceObjects {
        self.services.locked().clone()
    }

    fn has_all(&self) -> bool {
        true
    }

    fn has_statuses(&self) -> bool {
        true
    }

    fn network_namespace(&self, _: &PodUid) -> Option<PathBuf> {
        None
    }

    fn has_network(&self) -> bool {
        true
    }
}

/// Makes a watch of one service. `record` is the path of the record of allocations.
fn watch(record: PathBuf) -> (Watch, Arc<Stores>) {
    let (deps, stores) = deps(record, Box::new(Nowhere));
    (Watch::new(deps), stores)
}

fn deps(record: PathBuf, path: Box<dyn DataPath + Send>) -> (Deps, Arc<Stores>) {
    let feed = Arc::new(ChangeFeed::default());
    let stores = Arc::new(Stores {
        pods: Mutex::default(),
        statuses: Mutex::default(),
        services: Mutex::default(),
        feed: feed.clone(),
    });
    stores.put_service();
    let deps = Deps {
        node: Box::new(stores.clone()),
        path,
        process_end: ProcessEnd::new(|| ()),
        published: Published::new().unwrap(),
        removal: Arc::default(),
        record,
        settings: ServiceSettings {
            node_name: "node".into(),
            pod_cidrs: PodCidrs::configured(vec!["10.244.0.0/24".parse().unwrap()]),
            service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
            ..ServiceSettings::default()
        },
        feed,
    };
    (deps, stores)
}

#[test]
fn a_record_that_cannot_be_written_is_tried_again_each_turn() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("later");
    let record = below.join("services.json");
    let (mut watch, _) = watch(record.clone());
    watch.services();
    assert!(!record.exists());
    fs::create_dir(&below).unwrap();
    // The second try writes the record, although nothing has changed in between.
    watch.services();
    assert!(fs::read_to_string(&record).unwrap().contains("web"));
}

/// A changed label can take a pod out of its services. Such a change must not wait for the next look.
#[test]
fn a_changed_label_reaches_services_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut watch, stores) = watch(dir.path().join("services.json"));
    let ready = PodStatus {
        phase: PodPhase::Running,
        pod_ip: "10.244.0.2".into(),
        conditions: serde_json::from_value(
            serde_json::json!([{"type": "Ready", "status": "True"}]),
        )
        .unwrap(),
        ..PodStatus::default()
    };
    let labelled = |app| test_pods::pod("a").label("app", app).arc();
    let pod = labelled("web");
    stores.set_status(&pod, ready);
    stores.set_pod(pod);
    let pulse = Pulse::new("proxy");
    watch.wait(&pulse);
    watch.turn(false);
    let endpoints = |watch: &Watch| {
        let table = watch.applied.clone().unwrap();
        table.services[0].internal.clone()
    };
    assert!(matches!(endpoints(&watch), Backends::Some(_)));
    // The next look is an hour away, so only the changed label can wake the thread.
    watch.next_look = Moment::now() + Duration::from_secs(3600);
    stores.set_pod(labelled("taken-out"));
    watch.wait(&pulse);
    watch.turn(false);
    assert_eq!(endpoints(&watch), Backends::Reject);
}

/// The status of an earlier daemon says Ready of a pod whose end that daemon had begun. The pod may be gone already, so it
/// gets no new connections while another pod serves.
#[test]
fn a_pod_that_is_being_deleted_gets_no_connections_although_its_status_says_ready() {
    let dir = tempfile::tempdir().unwrap();
    let (mut watch, stores) = watch(dir.path().join("services.json"));
    let put = |name: &str, ip: &str, deleted: Option<&str>| {
        let status = PodStatus {
            phase: PodPhase::Running,
            pod_ip: ip.into(),
            conditions: serde_json::from_value(
                serde_json::json!([{"type": "Ready", "status": "True"}]),
            )
            .unwrap(),
            ..PodStatus::default()
        };
        let mut pod = Arc::unwrap_or_clone(test_pods::pod(name).label("app", "web").arc());
        pod.metadata.deletion_timestamp = deleted.map(str::to_owned);
        let pod = Arc::new(pod);
        stores.set_status(&pod, status);
        stores.set_pod(pod);
    };
    put("stays", "10.244.0.2", None);
    put("goes", "10.244.0.3", Some("2026-01-02T03:04:05Z"));
    watch.turn(false);
    let table = watch.applied.clone().unwrap();
    let Backends::Some(backends) = &table.services[0].internal else {
        panic!("{table:?}");
    };
    let backends = format!("{backends:?}");
    assert!(backends.contains("10.244.0.2"), "{backends}");
    assert!(!backends.contains("10.244.0.3"), "{backends}");
}

/// The last turn applies changes that are still gathered. Otherwise the data path's process and addresses would
/// stay if the daemon ends right after the last service is removed.
#[test]
fn what_goes_before_the_end_of_the_daemon_goes() {
    let dir = tempfile::tempdir().unwrap();
    let ceiling = Duration::from_secs(10);
    let (tables, applied) = bounded(1);
    let (go, gone) = bounded(1);
    let path = Halting { tables, go: gone };
    let (deps, stores) = deps(dir.path().join("services.json"), Box::new(path));
    let feed = deps.feed.clone();
    let (stop, stopped) = bounded(0);
    let thread = spawn(deps, stopped, &Roster::default()).unwrap();
    let services = || applied.recv_timeout(ceiling).unwrap().services.len();
    assert_eq!(services(), 1);
    // While the thread applies the service, the test removes the service and tells the daemon to end.
    stores.remove_services();
    drop(stop);
    feed.wake();
    go.send(true).unwrap();
    assert_eq!(services(), 0);
    go.send(true).unwrap();
    thread.join().unwrap();
}

/// After a panic the thread programs the table again, because nobody knows which parts the failed turn left half
/// done.
#[test]
fn after_a_panic_the_table_comes_into_force_again() {
    let dir = tempfile::tempdir().unwrap();
    // The limit is shorter than the 10 s between two looks, because a look would also program the table.
    let ceiling = Duration::from_secs(5);
    let (tables, applied) = bounded(1);
    let (go, gone) = bounded(1);
    let path = Halting { tables, go: gone };
    let (deps, stores) = deps(dir.path().join("services.json"), Box::new(path));
    let feed = deps.feed.clone();
    let (stop, stopped) = bounded(0);
    let thread = spawn(deps, stopped, &Roster::default()).unwrap();
    let services = || applied.recv_timeout(ceiling).unwrap().services.len();
    assert_eq!(services(), 1);
    stores.remove_services();
    feed.wake();
    go.send(true).unwrap();
    assert_eq!(services(), 0);
    stores.put_service();
    go.send(false).unwrap();
    assert_eq!(services(), 1);
    go.send(true).unwrap();
    drop(stop);
    feed.wake();
    thread.join().unwrap();
}

/// A proxy that was killed while it started must not leave clients without services for the ten seconds between two
/// looks. A node that never can program services is not busy with it.
#[test]
fn a_table_that_failed_is_tried_again_at_once_and_then_more_and_more_seldom() {
    let dir = tempfile::tempdir().unwrap();
    let (mut deps, _) = deps(dir.path().join("services.json"), Box::new(Failing(9)));
    let (tell, told) = bounded(1);
    deps.process_end = ProcessEnd::new(move || tell.send(()).unwrap());
    let process_end = deps.process_end.clone();
    let mut watch = Watch::new(deps);
    let mut check = |millis: u64, is_failed: bool| {
        watch.next_look = Moment::now();
        watch.turn(false);
        let delay = watch.next_look.since(Moment::now());
        let expected = Duration::from_millis(millis);
        assert!(
            expected / 2 < delay && delay <= expected,
            "{delay:?}, not {expected:?}"
        );
        assert_eq!((watch.due, watch.failed.is_empty()), (None, !is_failed));
    };
    for millis in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
        check(millis, true);
    }
    check(10_000, false);
    check(100, true);
    check(200, true);
    // The process of a data path may end with each table. That is no reason to be faster.
    let before = watch.next_look;
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    process_end.await_end(Process::of(child.id() as i32).unwrap());
    child.kill().unwrap();
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    child.wait().unwrap();
    watch.turn(false);
    assert_eq!(watch.next_look, before);
}
