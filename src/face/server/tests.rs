use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use super::connection::{FREE_HEAD, HEAD_TIME, MAX_HEAD};
use super::containers::ContainerName;
use super::credentials::tests::{Place, TOKEN, tls_client};
use super::health::Check;
use super::protocol::{
    ConditionSet, DeleteTarget, Deleted, DrainRequest, NodeOrders, PauseTarget, ProbeTarget,
    RestartTarget, UncordonRequest,
};
use super::*;
use crate::api::PodUid;
use crate::api::conditions::ConditionChange;
use crate::api::objects::ObjectKind;
use crate::api::review::{NoReview, User};
use crate::base::cancel::Cancel;
use crate::base::wire::socket::Socket as PortSocket;
use crate::engine::runtime::{AttachRequest, ExecOutcome, ExecRequest, Session, Started};
use crate::face::views::{PodView, ProbeReport, Snapshot, SnapshotUpdate};
use crate::net::services::view::ServiceView;
use crate::pods::events::EventList;
use crate::pods::history::PodHistory;
use crate::pods::prober::now::ProbeNowError;
use crate::workloads::view::{ChangeError, ChangeRequest, Changed, WorkloadList};

/// A backend whose snapshot the test changes.
pub(super) struct Fake {
    now: Mutex<Arc<Snapshot>>,
    metrics: Mutex<String>,
    changed: Condvar,
    /// The reason why the check `disk` fails; None if the check passes.
    full: Mutex<Option<String>>,
    log_dir: Mutex<PathBuf>,
    /// While true, the next request for the running pods or for health panics.
    panics: AtomicBool,
    panicked: AtomicUsize,
}

impl Fake {
    pub(super) fn new(version: u64) -> Arc<Self> {
        let snapshot = Snapshot {
            version,
            node_name: "edge".into(),
            ..Snapshot::default()
        };
        Arc::new(Self {
            now: Mutex::new(Arc::new(snapshot)),
            metrics: Mutex::new("m 1\n".into()),
            changed: Condvar::new(),
            full: Mutex::default(),
            log_dir: Mutex::new(PathBuf::from("/nowhere")),
            panics: AtomicBool::new(false),
            panicked: AtomicUsize::new(0),
        })
    }

    pub(super) fn set_full(&self, why: Option<String>) {
        *self.full.lock().unwrap() = why;
    }

    fn set_metrics(&self, text: String) {
        *self.metrics.lock().unwrap() = text;
    }

    fn set_version(&self, version: u64) {
        let mut now = self.now.lock().unwrap();
        *now = Arc::new(Snapshot {
            version,
            ..(**now).clone()
        });
        self.changed.notify_all();
    }
}

impl Fake {
    fn wait_newer(&self, version: u64, ceiling: Duration) -> Arc<Snapshot> {
        let now = self.now.lock().unwrap();
        let (now, _) = self
            .changed
            .wait_timeout_while(now, ceiling, |s| s.version <= version)
            .unwrap();
        Arc::clone(&now)
    }
}

impl Shown for Fake {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.lock().unwrap())
    }

    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate {
        SnapshotUpdate::from(&*self.wait_newer(version, ceiling))
    }

    fn events(&self, after: Option<u64>, ceiling: Duration) -> EventList {
        let snapshot = self.wait_newer(
            after.unwrap_or(0),
            if after.is_some() {
                ceiling
            } else {
                Duration::ZERO
            },
        );
        let events = snapshot
            .pods
            .iter()
            .flat_map(|p| p.events.clone())
            .collect();
        EventList {
            version: snapshot.version,
            node_name: snapshot.node_name.clone(),
            events,
        }
    }

    fn history(&self, _: &PodUid) -> PodHistory {
        PodHistory::default()
    }

    fn pod(&self, name: &ContainerName) -> Option<Arc<PodView>> {
        let snapshot = self.snapshot();
        let metadata = |pod: &PodView, key: &str| pod.object["metadata"][key].clone();
        let is_it = |pod: &&Arc<PodView>| {
            metadata(pod, "namespace") == name.namespace && metadata(pod, "name") == name.pod
        };
        snapshot.pods.iter().find(is_it).cloned()
    }

    fn running_pods(&self) -> Vec<Value> {
        assert!(!self.panics.load(Ordering::SeqCst), "made up");
        Vec::new()
    }

    fn services(&self) -> Option<Vec<ServiceView>> {
        (self.snapshot().version > 0).then(Vec::new)
    }

    fn workloads(&self, _: Option<u64>, _: Duration) -> WorkloadList {
        WorkloadList {
            version: self.snapshot().version,
            ..WorkloadList::default()
        }
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Value> {
        vec![kind.as_str().into()]
    }

    fn config(&self) -> Value {
        json!({"nodeName": "edge"})
    }

    fn version(&self) -> String {
        "0.0.1-test".into()
    }
}

/// Orders whose node has the name of the call.
fn orders(call: &str) -> NodeOrders {
    NodeOrders {
        node_name: call.to_owned(),
        changed: false,
        closed: None,
        is_under_way: false,
        left: Vec::new(),
        shutdown_seconds: 0,
    }
}

impl Requests for Fake {
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, RequestError> {
        let error = ProbeNowError::NoProbe {
            container: target.container.clone(),
            probe_type: target.probe_type,
        };
        Err(error.into())
    }

    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, RequestError> {
        Ok(vec![format!("{:?} {length:?}", target.container)])
    }

    fn resume(&self, _: &PauseTarget) -> Result<Vec<String>, RequestError> {
        Ok(Vec::new())
    }

    fn restart(&self, target: &RestartTarget) -> Result<Vec<String>, RequestError> {
        Ok(vec![format!("{}/{:?}", target.uid, target.container)])
    }

    fn delete(&self, target: &DeleteTarget) -> Result<Deleted, RequestError> {
        let file = format!("{} {:?}", target.uid, target.grace_period_seconds);
        Ok(Deleted { file })
    }

    fn reload(&self) -> Result<Vec<String>, RequestError> {
        Ok(vec!["c.json: nothing has changed".to_owned()])
    }

    fn node_orders(&self) -> NodeOrders {
        orders("asked")
    }

    fn cordon(&self) -> Result<NodeOrders, RequestError> {
        Ok(orders("cordon"))
    }

    fn uncordon(&self, request: &UncordonRequest) -> Result<NodeOrders, RequestError> {
        Ok(orders(&format!("{request:?}")))
    }

    fn drain(&self, request: &DrainRequest) -> Result<NodeOrders, RequestError> {
        Ok(orders(&format!("{request:?}")))
    }

    fn change_workload(&self, request: &ChangeRequest) -> Result<Changed, RequestError> {
        Err(RequestError::Workload(ChangeError::Refused(format!(
            "{} is not changed",
            request.workload
        ))))
    }

    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, RequestError> {
        change.check()?;
        let changed = uid.as_str() != "same";
        Ok(ConditionSet {
            changed,
            not_stored: None,
        })
    }
}

impl Containers for Fake {
    fn exec(&self, _: &ContainerName, _: &ExecRequest) -> Result<Started, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn run(
        &self,
        _: &ContainerName,
        _: &[String],
        _: (Duration, usize),
        _: &Cancel,
    ) -> Result<ExecOutcome, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn attach(&self, _: &ContainerName, _: AttachRequest) -> Result<Box<dyn Session>, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn files(&self, _: &ContainerName) -> Result<ContainerFiles, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn dial(&self, _: &ContainerName, _: u16) -> Result<PortSocket, Unreachable> {
        Err(Unreachable::NoPod)
    }

    fn log_dir(&self) -> PathBuf {
        self.log_dir.lock().unwrap().clone()
    }
}

/// A cluster that knows the token of a reader of metrics.
impl Reviews for Fake {
    fn user_of(&self, token: &str) -> Result<Option<User>, NoReview> {
        let reader = || User {
            name: "reader".into(),
            ..User::default()
        };
        Ok((token == "token-of-the-reader").then(reader))
    }

    fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, NoReview> {
        let access = [user.name.as_str(), verb, subresource];
        Ok(access == ["reader", "get", "metrics"])
    }
}

impl Metrics for Fake {
    fn metrics(&self) -> String {
        self.metrics.lock().unwrap().clone()
    }
}

impl Resources for Fake {
    fn metrics_of(&self, registry: Registry) -> String {
        format!("# {registry:?}\n")
    }

    fn stats_summary(&self, only_cpu_and_memory: bool) -> Result<String, SummaryError> {
        Ok(format!("{{\"only\": {only_cpu_and_memory}}}"))
    }
}

impl Health for Fake {
    fn checks(&self) -> Vec<Check> {
        assert!(!self.panics.load(Ordering::SeqCst), "made up");
        let check = |name, failure, is_liveness| Check {
            name,
            failure,
            is_liveness,
        };
        let full = self.full.lock().unwrap().clone();
        vec![check("ping", None, true), check("disk", full, false)]
    }

    fn panicked(&self) {
        self.panics.store(false, Ordering::SeqCst);
        self.panicked.fetch_add(1, Ordering::SeqCst);
    }
}

const CEILING: Duration = Duration::from_secs(20);

/// A client's connection to one of the server's addresses.
trait Socket: Read + Write {
    fn limit(&self, limit: Duration);
}

impl Socket for UnixStream {
    fn limit(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

impl Socket for TcpStream {
    fn limit(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

impl Socket for StreamOwned<ClientConnection, TcpStream> {
    fn limit(&self, limit: Duration) {
        self.sock.set_read_timeout(Some(limit)).unwrap();
    }
}

/// An answer of the server, split into its parts.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

struct Client<S: Socket>(S, Vec<u8>);

impl Client<UnixStream> {
    fn connect(path: &Path) -> Self {
        Self::of(UnixStream::connect(path).unwrap())
    }
}

impl Client<TcpStream> {
    fn dial(port: u16) -> Self {
        Self::of(TcpStream::connect(("127.0.0.1", port)).unwrap())
    }
}

impl<S: Socket> Client<S> {
    fn of(socket: S) -> Self {
        socket.limit(CEILING);
        Self(socket, Vec::new())
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, target: &str) -> Reply {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        self.read()
    }

    fn post(&mut self, target: &str, body: &str) -> Reply {
        let length = body.len();
        self.send(&format!(
            "POST {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        self.read()
    }

    /// Reads until `enough` returns a number of bytes, and returns that many bytes. Returns fewer bytes at the end of
    /// the connection.
    fn until(&mut self, enough: impl Fn(&[u8]) -> Option<usize>) -> Vec<u8> {
        loop {
            if let Some(n) = enough(&self.1) {
                return self.1.drain(..n).collect();
            }
            let mut bytes = [0; 4096];
            match self.0.read(&mut bytes) {
                Ok(0) => return std::mem::take(&mut self.1),
                Ok(n) => self.1.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::ConnectionReset => {
                    return std::mem::take(&mut self.1);
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn line(&mut self) -> String {
        let end = |b: &[u8]| Some(b.iter().position(|b| *b == b'\n')? + 1);
        String::from_utf8(self.until(end)).unwrap()
    }

    fn read(&mut self) -> Reply {
        let mut head = String::new();
        loop {
            let line = self.line();
            if line.trim_end().is_empty() {
                break;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {head:?}"));
        let body = match head.split_once("Content-Length: ") {
            Some((_, after)) => {
                let length = after.lines().next().unwrap().parse().unwrap();
                self.until(|b| (b.len() >= length).then_some(length))
            }
            None if head.contains("Transfer-Encoding: chunked") => self.chunks(),
            None => self.until(|_| None),
        };
        let body = String::from_utf8(body).unwrap();
        Reply { status, head, body }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let chunk = self.until(|b| (b.len() >= size + 2).then_some(size + 2));
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                return body;
            }
        }
    }

    /// Returns true if the server has ended the connection.
    fn is_over(&mut self) -> bool {
        self.until(|_| None).is_empty()
    }
}

struct World {
    dir: tempfile::TempDir,
    path: PathBuf,
    fake: Arc<Fake>,
    server: Server,
}

fn start_with(version: u64, config: ServerConfig) -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/podprobe.sock");
    let fake = Fake::new(version);
    let server = spawn(&path, config, fake.clone()).unwrap();
    World {
        dir,
        path,
        fake,
        server,
    }
}

fn start(version: u64) -> World {
    start_with(version, ServerConfig::default())
}

/// Returns a TCP port that is not in use now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl World {
    fn client(&self) -> Client<UnixStream> {
        Client::connect(&self.path)
    }

    fn busy(&self) -> usize {
        self.server.shared.busy[0].load(Ordering::SeqCst)
    }

    fn is_served(&self) -> bool {
        self.client().get("/version").status == 200
    }
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + CEILING;
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        thread::yield_now();
    }
}

#[test]
fn one_connection_carries_many_requests() {
    let world = start(3);
    let mut client = world.client();
    assert_eq!(client.get("/podprobe/v1/snapshot").json()["version"], 3);
    assert_eq!(client.get("/version").json()["version"], "0.0.1-test");
    assert_eq!(client.get("/healthz").body, "ok");
    let update = client.get("/podprobe/v1/watch?after=2").json();
    assert_eq!(update["nodeName"], "edge");
    // Two requests that are sent at once are answered in their order.
    client.send("GET /version HTTP/1.1\r\n\r\nGET /healthz/ping HTTP/1.1\r\n\r\n");
    assert_eq!(client.read().json()["version"], "0.0.1-test");
    assert_eq!(client.read().body, "ok");
}

/// A daemon that has just started.
#[test]
fn what_is_not_known_yet_is_not_said_to_be_missing() {
    let world = start(0);
    for kind in ["services", "workloads"] {
        let answer = world.client().get(&format!("/podprobe/v1/{kind}"));
        assert_eq!(answer.status, 503);
        let why = format!(
            "the daemon has just started and does not know its {kind} yet; try again in a moment\n"
        );
        assert_eq!(answer.body, why);
    }
}

#[test]
fn every_path_has_its_answer() {
    let world = start(3);
    let mut client = world.client();
    assert_eq!(
        client.get("/events").json(),
        json!({"version": 3, "nodeName": "edge", "events": []})
    );
    assert_eq!(
        client.get("/podprobe/v1/history/u").json()["probes"],
        json!([])
    );
    assert_eq!(client.get("/podprobe/v1/services").json(), json!([]));
    let objects = client.get("/podprobe/v1/objects/ConfigMap").json();
    assert_eq!(objects, json!(["ConfigMap"]));
    let unknown = client.get("/podprobe/v1/objects/configmap");
    assert_eq!(
        (unknown.status, unknown.body.as_str()),
        (
            404,
            "the kinds are ConfigMap, Secret, PersistentVolumeClaim\n"
        )
    );
    assert_eq!(client.get("/metrics").body, "m 1\n");
    let pods = client.get("/pods").json();
    assert_eq!(pods["kind"], "PodList");
    assert_eq!(pods["items"], json!([]));
    let probe = client.post(
        "/podprobe/v1/probe",
        r#"{"uid":"u","container":"c","probeType":"Startup"}"#,
    );
    assert_eq!(
        (probe.status, probe.body.as_str()),
        (422, "container \"c\" has no startup probe\n")
    );
    let pause = r#"{"uid":"u","container":"c","seconds":90}"#;
    assert_eq!(
        client.post("/podprobe/v1/pause", pause).json()[0],
        "Some(\"c\") 90s"
    );
    assert_eq!(
        client.post("/podprobe/v1/resume", r#"{"uid":"u"}"#).json(),
        json!([])
    );
    let condition = r#"{"uid":"u","type":"a/b","status":"True"}"#;
    assert_eq!(
        client.post("/podprobe/v1/condition", condition).json(),
        json!({"changed": true})
    );
    let perhaps = client.post(
        "/podprobe/v1/condition",
        &condition.replace("True", "Perhaps"),
    );
    assert_eq!(perhaps.status, 400);
    assert!(perhaps.body.contains("unknown variant"), "{perhaps:?}");
    for (path, body) in [
        ("/metrics/probes", "# Probes\n"),
        ("/metrics/resource", "# Resource\n"),
        ("/metrics/cadvisor", "# Cadvisor\n"),
        ("/stats/summary", "{\"only\": false}"),
        (
            "/stats/summary?only_cpu_and_memory=true",
            "{\"only\": true}",
        ),
    ] {
        assert_eq!(client.get(path).body, body, "{path}");
    }
    assert_eq!(client.get("/runningpods/").json()["items"], json!([]));
    let config = client.get("/configz").json();
    assert_eq!(config["kubeletconfig"]["nodeName"], "edge");
    assert!(client.get("/debug/threads").body.contains("\nserver "));
    assert_eq!(client.get("/metrics/none").status, 404);
    let log = client.get("/containerLogs/a/b/c");
    assert_eq!(
        (log.status, log.body.as_str()),
        (404, "pod \"b\" does not exist\n")
    );
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.post("/pods", "").status, 405);
    assert_eq!(client.get("/podprobe/v1/pause").status, 405);
    assert_eq!(
        client.get("/podprobe/v1/watch?after=x").body,
        "after must be the version of an earlier answer, a number\n"
    );
}

#[test]
fn orders_for_the_node_come_as_they_were_sent() {
    let world = start(1);
    let mut client = world.client();
    let asked = client.get("/podprobe/v1/node").json();
    assert_eq!(asked["nodeName"], "asked");
    let sent = [
        ("cordon", "null", "cordon"),
        (
            "uncordon",
            r#"{"forShutdown":true}"#,
            "UncordonRequest { for_shutdown: true }",
        ),
        (
            "drain",
            r#"{"gracePeriodSeconds":7}"#,
            "DrainRequest { grace_period_seconds: Some(7), for_shutdown: false }",
        ),
    ];
    for (path, body, seen) in sent {
        let path = format!("/podprobe/v1/{path}");
        assert_eq!(client.post(&path, body).json()["nodeName"], seen);
        assert_eq!(client.get(&path).status, 405, "{path}");
    }
}

#[test]
fn a_head_has_no_body_and_an_old_client_no_chunks() {
    let world = start(1);
    let mut client = world.client();
    for path in ["/pods", "/version", "/metrics", "/healthz"] {
        client.send(&format!("HEAD {path} HTTP/1.1\r\n\r\n"));
        let head = client.until(|b| Some(b.windows(4).position(|w| w == b"\r\n\r\n")? + 4));
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{path}");
    }
    // No part of a body is left in front of the next answer.
    assert_eq!(client.get("/version").status, 200);
    client.send("GET /pods HTTP/1.0\r\n\r\n");
    let old = client.read();
    assert!(!old.head.contains("chunked"), "{old:?}");
    assert_eq!(old.json()["kind"], "PodList");
    assert!(client.is_over());
}

#[test]
fn bodies_come_whole_or_in_chunks_and_after_a_word() {
    let world = start(1);
    let body = r#"{"uid":"u","container":"c","seconds":90}"#;
    let mut chunked =
        String::from("POST /podprobe/v1/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in body.as_bytes().chunks(7) {
        let piece = std::str::from_utf8(piece).unwrap();
        write!(chunked, "{:x}\r\n{piece}\r\n", piece.len()).unwrap();
    }
    chunked += "0\r\n\r\n";
    let mut client = world.client();
    client.send(&chunked);
    assert_eq!(client.read().json()[0], "Some(\"c\") 90s");
    let mut client = world.client();
    let length = body.len();
    client.send(&format!(
        "POST /podprobe/v1/pause HTTP/1.1\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(client.line(), "HTTP/1.1 100 Continue\r\n");
    assert_eq!(client.line(), "\r\n");
    client.send(body);
    assert_eq!(client.read().json()[0], "Some(\"c\") 90s");
    assert_eq!(client.get("/version").status, 200);
    let mut client = world.client();
    let large = client.post("/podprobe/v1/pause", &"x".repeat((64 << 10) + 1));
    assert_eq!(
        (large.status, large.body.as_str()),
        (413, "the body of the request is longer than 65536 bytes\n")
    );
    let mut client = world.client();
    client.send(&format!(
        "POST /podprobe/v1/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n{}\r\n0\r\n\r\n",
        "x".repeat((64 << 10) + 1)
    ));
    assert_eq!(client.read().status, 413);
}

#[test]
fn waiting_ends_with_the_next_change() {
    let world = start(3);
    for (path, version) in [("/events?after=3", 4), ("/podprobe/v1/watch?after=4", 5)] {
        let mut client = world.client();
        client.send(&format!("GET {path} HTTP/1.1\r\n\r\n"));
        wait_until("it waits", || world.busy() == 1);
        assert!(world.is_served(), "others are answered meanwhile");
        world.fake.set_version(version);
        assert_eq!(client.read().json()["version"], version);
    }
}

#[test]
fn what_is_no_request_is_refused_with_a_sentence() {
    let world = start(1);
    let refused = |text: &str, status: u16, sentence: &str| {
        let mut client = world.client();
        client.send(text);
        let reply = client.read();
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (status, format!("{sentence}\n").as_str()),
            "{text:?}"
        );
        assert!(client.is_over());
    };
    refused(
        "nonsense\r\n\r\n",
        400,
        "cannot read the request: invalid token",
    );
    refused(
        "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        400,
        "Content-Length \"x\" is not a number",
    );
    refused(
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        505,
        "this server speaks HTTP/1.1 and HTTP/1.0",
    );
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MAX_HEAD));
    refused(
        &long,
        431,
        "the head of the request is longer than 1048576 bytes",
    );
    let mut old = world.client();
    old.send("{\"verb\":\"snapshot\"}\n");
    let told: Value = serde_json::from_str(&old.line()).unwrap();
    assert!(
        told["error"]
            .as_str()
            .unwrap()
            .starts_with("this daemon speaks HTTP"),
        "{told}"
    );
}

#[test]
fn a_head_of_a_mebibyte_is_read() {
    let world = start(1);
    let padding = "x".repeat(MAX_HEAD - 100);
    let mut client = world.client();
    assert_eq!(client.get(&format!("/version?{padding}")).status, 200);
}

#[test]
fn the_heads_of_all_clients_share_a_pool() {
    let world = start(1);
    let large = "x".repeat(MAX_HEAD - FREE_HEAD);
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send("GET /version?");
        // One of the clients is refused before it has sent everything.
        let _ = client.0.write_all(large.as_bytes());
    }
    let is_refused = |client: &mut Client<UnixStream>| {
        client.0.limit(Duration::from_millis(20));
        matches!(client.0.read(&mut [0]), Ok(1))
    };
    let mut refused = 0;
    wait_until("one is refused", || {
        refused += clients
            .iter_mut()
            .filter_map(|c| is_refused(c).then_some(()))
            .count();
        refused > 0
    });
    // The pool has room for two of the clients. These two are not refused.
    let waiting = clients.len() - refused;
    assert!(waiting >= 2, "{refused} refused");
    assert!(world.is_served());
}

/// The first clients have sent no request, and give way. The clients that are being answered stay.
#[test]
fn the_oldest_idle_client_gives_way_and_the_busy_ones_stay() {
    let world = start(1);
    let mut first = world.client();
    first.send("GET /ver");
    let silent: Vec<_> = (1..MAX_CLIENTS).map(|_| world.client()).collect();
    assert!(world.is_served(), "one more than there is room for");
    assert!(first.is_over(), "it was the oldest");
    drop(silent);
    let mut busy: Vec<_> = (0..MAX_CLIENTS).map(|_| world.client()).collect();
    for client in &mut busy {
        client.send("GET /podprobe/v1/watch?after=1 HTTP/1.1\r\n\r\n");
    }
    wait_until("all wait", || world.busy() == MAX_CLIENTS);
    let mut refused = world.client();
    let reply = refused.read();
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (503, "64 clients are connected already; try again later\n")
    );
    world.fake.set_version(2);
    for client in &mut busy {
        assert_eq!(client.read().json()["version"], 2);
    }
    assert!(world.is_served());
}

#[test]
fn a_watcher_that_hangs_up_gives_its_place_back() {
    let world = start(1);
    let mut client = world.client();
    client.send("GET /podprobe/v1/watch?after=1 HTTP/1.1\r\n\r\n");
    wait_until("served", || world.busy() == 1);
    drop(client);
    wait_until("gone", || world.busy() == 0);
}

#[test]
fn a_silent_client_is_dropped() {
    let world = start(1);
    // The server counts from the moment of the connection, and that may come before the client gets it.
    let begun = Instant::now();
    let mut client = world.client();
    assert!(client.is_over());
    assert!(begun.elapsed() >= HEAD_TIME, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < HEAD_TIME * 3, "{:?}", begun.elapsed());
}

/// A client whose head is never complete is dropped, although each byte of the head comes in time.
#[test]
fn a_client_that_sends_its_head_byte_by_byte_is_dropped() {
    let world = start(1);
    let begun = Instant::now();
    let mut client = world.client();
    client.0.limit(HEAD_TIME / 20);
    client.send("GET / HTTP/1.1\r\nA: ");
    let cut = loop {
        let sent = client.0.write_all(b"x");
        match client.0.read(&mut [0]) {
            Ok(0) => break true,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break true,
            _ if sent.is_err() => break true,
            _ if begun.elapsed() > HEAD_TIME * 3 => break false,
            _ => {}
        }
    };
    assert!(cut, "still served after {:?}", begun.elapsed());
    assert!(begun.elapsed() >= HEAD_TIME, "{:?}", begun.elapsed());
}

#[test]
fn stop_ends_every_thread_and_removes_the_socket() {
    let world = start(1);
    let mut client = world.client();
    client.send("GET /podprobe/v1/watch?after=1 HTTP/1.1\r\n\r\n");
    wait_until("served", || world.busy() == 1);
    world.server.stop();
    wait_until("all threads ended", || world.server.is_finished());
    assert!(!world.path.exists());
}

/// The stop does not wait for an idle client, which may send its next request later. The stop does not wait for a
/// client that never reads its answer either.
#[test]
fn stop_waits_for_no_client() {
    let world = start(1);
    world.fake.set_metrics("m 1\n".repeat(1 << 20));
    let mut deaf = world.client();
    deaf.send("GET /metrics HTTP/1.1\r\n\r\n");
    let mut idle = world.client();
    idle.get("/version");
    wait_until("served", || world.busy() == 1);
    let begun = Instant::now();
    world.server.stop();
    wait_until("all threads ended", || world.server.is_finished());
    assert!(begun.elapsed() < HEAD_TIME / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_stale_socket_is_replaced_and_the_new_one_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("podprobe.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _server = spawn(&path, ServerConfig::default(), Fake::new(9)).unwrap();
    let snapshot = Client::connect(&path).get("/podprobe/v1/snapshot").json();
    assert_eq!(snapshot["version"], 9);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let group = nix::unistd::Group::from_name("podprobe").unwrap();
    assert_eq!(mode, if group.is_some() { 0o660 } else { 0o600 });
}

#[test]
fn a_path_that_cannot_be_is_named() {
    let path = Path::new("/proc/nowhere/podprobe.sock");
    let e = spawn(path, ServerConfig::default(), Fake::new(1))
        .err()
        .unwrap();
    assert!(
        e.to_string()
            .starts_with("cannot listen on /proc/nowhere/podprobe.sock: "),
        "{e}"
    );
}

#[test]
fn health_has_an_address_of_its_own_and_nothing_else() {
    let port = free_port();
    let config = ServerConfig {
        health: Some(port),
        ..ServerConfig::default()
    };
    let world = start_with(1, config);
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let mut client = Client::dial(port);
    assert_eq!(client.get("/healthz").body, "ok");
    world.fake.set_full(Some("it is full".into()));
    let fails = || Client::dial(port).get("/healthz").status == 500;
    wait_until("the check is asked again", fails);
    assert_eq!(
        client.get("/readyz/disk").body,
        "internal server error: it is full\n"
    );
    assert_eq!(client.get("/livez").body, "ok");
    assert_eq!(client.get("/metrics").status, 404);
    assert!(client.is_over());
    assert_eq!(Client::dial(port).post("/healthz", "").status, 405);
    for (path, status) in [("/healthz", 500), ("/metrics", 404)] {
        let mut client = Client::dial(port);
        let request = format!("HEAD {path} HTTP/1.1\r\nConnection: close\r\n\r\n");
        client.send(&request);
        let head = String::from_utf8(client.until(|_| None)).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "no body: {head}");
    }
}

/// Health is answered although 200 clients hold their connections with half a head, and connect again when they are
/// dropped.
#[test]
fn slow_clients_keep_nobody_from_health() {
    let port = free_port();
    let config = ServerConfig {
        health: Some(port),
        ..ServerConfig::default()
    };
    let _world = start_with(1, config);
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut client = Client::dial(port);
        let _ = client.0.write_all(b"GET /healthz HTTP/1.1\r\nA: ");
        slow.push(client);
        assert_eq!(Client::dial(port).get("/healthz").body, "ok");
    }
}

#[test]
fn an_address_in_use_is_tried_again_and_the_others_are_served() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = ServerConfig {
        health: Some(taken.local_addr().unwrap().port()),
        ..ServerConfig::default()
    };
    let world = start_with(1, config);
    assert!(world.is_served());
}

#[test]
fn the_read_only_port_shows_and_changes_nothing() {
    let port = free_port();
    let config = ServerConfig {
        read_only: Some(port),
        ..ServerConfig::default()
    };
    let _world = start_with(1, config);
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    assert_eq!(Client::dial(port).get("/metrics").body, "m 1\n");
    assert_eq!(Client::dial(port).get("/pods").json()["kind"], "PodList");
    assert_eq!(Client::dial(port).get("/healthz").body, "ok");
    for path in ["/podprobe/v1/snapshot", "/events", "/version", "/configz"] {
        assert_eq!(Client::dial(port).get(path).status, 404, "{path}");
    }
    assert_eq!(Client::dial(port).post("/pods", "").status, 405);
    let exec = Client::dial(port).get("/exec/a/b/c");
    assert_eq!(
        (exec.status, exec.body.as_str()),
        (405, "Debug endpoints are disabled.\n")
    );
}

/// The server makes its socket again after the file was removed, for example by a program that cleans /run.
#[test]
fn a_socket_that_is_removed_comes_back() {
    let world = start(1);
    std::fs::remove_dir_all(world.dir.path().join("run")).unwrap();
    wait_until("it is back", || UnixStream::connect(&world.path).is_ok());
    assert!(world.is_served());
}

/// An unread body must not be read as part of the next request, or as a request.
#[test]
fn a_body_that_is_not_read_ends_the_connection() {
    let world = start(1);
    let inner = "GET /version HTTP/1.1\r\n\r\n";
    for path in ["/healthz", "/events", "/nothing"] {
        for body in [
            format!("Content-Length: {}\r\n\r\n{inner}", inner.len()),
            format!("Transfer-Encoding: chunked\r\n\r\n{inner}"),
        ] {
            let mut client = world.client();
            client.send(&format!("GET {path} HTTP/1.1\r\n{body}"));
            let reply = client.read();
            assert!(reply.head.contains("Connection: close"), "{reply:?}");
            assert!(client.is_over(), "{path}");
        }
    }
}

#[test]
fn what_comes_after_a_body_is_the_next_request() {
    let world = start(1);
    let body = r#"{"uid":"u","container":"c","seconds":90}"#;
    let length = body.len();
    let mut client = world.client();
    client.send(&format!(
        "POST /podprobe/v1/pause HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}GET /healthz HTTP/1.1\r\n\r\nGET /ver"
    ));
    assert_eq!(client.read().json()[0], "Some(\"c\") 90s");
    assert_eq!(client.read().body, "ok");
    client.send("sion HTTP/1.1\r\n\r\n");
    assert_eq!(client.read().json()["version"], "0.0.1-test");
    // The server does not know where in the bytes the chunked body has ended, so it ends the connection.
    client.send(&format!(
        "POST /podprobe/v1/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\nGET /version HTTP/1.1\r\n\r\n"
    ));
    assert_eq!(client.read().json()[0], "Some(\"c\") 90s");
    assert!(client.is_over());
}

#[test]
fn errors_too_have_no_body_for_a_head() {
    let world = start(1);
    let mut client = world.client();
    for (path, status) in [("/nothing", 404), ("/healthz/nothing", 404), ("/pods", 200)] {
        client.send(&format!("HEAD {path} HTTP/1.1\r\n\r\n"));
        let head = client.until(|b| Some(b.windows(4).position(|w| w == b"\r\n\r\n")? + 4));
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    assert_eq!(client.get("/version").json()["version"], "0.0.1-test");
}

#[test]
fn nobody_is_asked_for_a_body_that_is_refused() {
    let world = start(1);
    for path in ["/podprobe/v1/pause", "/nothing"] {
        let mut client = world.client();
        client.send(&format!(
            "POST {path} HTTP/1.1\r\nContent-Length: 65537\r\nExpect: 100-continue\r\n\r\n"
        ));
        let reply = client.read();
        assert!(matches!(reply.status, 404 | 413), "{reply:?}");
        assert!(client.is_over());
    }
}

#[test]
fn a_body_that_breaks_off_is_no_request_and_leaves_no_thread() {
    let world = start(1);
    for end in [
        "Content-Length: 9\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ] {
        let mut client = world.client();
        client.send(&format!("POST /podprobe/v1/pause HTTP/1.1\r\n{end}"));
        wait_until("it is read", || world.busy() == 1);
        client.0.shutdown(Shutdown::Write).unwrap();
        assert!(client.is_over());
        wait_until("its place is free", || world.busy() == 0);
    }
    let mut client = world.client();
    client.send("POST /podprobe/v1/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert!(client.is_over());
}

#[test]
fn a_panic_ends_its_own_connection_and_is_counted() {
    let world = start(1);
    world.fake.panics.store(true, Ordering::SeqCst);
    let mut client = world.client();
    client.send("GET /runningpods/ HTTP/1.1\r\n\r\n");
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it is no whole answer");
    wait_until("it is counted", || {
        world.fake.panicked.load(Ordering::SeqCst) == 1
    });
    wait_until("its place is free", || world.busy() == 0);
    assert!(world.is_served());
}

#[test]
fn a_panic_of_the_reading_thread_ends_its_clients_and_nothing_else() {
    let world = start(1);
    let mut other = world.client();
    other.send("GET /version HTTP/1.1\r\n");
    world.fake.panics.store(true, Ordering::SeqCst);
    let mut client = world.client();
    client.send("GET /healthz HTTP/1.1\r\n\r\n");
    assert!(client.is_over() && other.is_over());
    wait_until("it is counted", || {
        world.fake.panicked.load(Ordering::SeqCst) == 1
    });
    assert!(world.is_served());
    let mut client = world.client();
    assert_eq!(client.get("/healthz").status, 200);
}

fn with_tls(place: &Place) -> (World, u16) {
    with_webhooks(place, Webhooks::default())
}

fn with_webhooks(place: &Place, webhooks: Webhooks) -> (World, u16) {
    let port = free_port();
    let config = ServerConfig {
        main: Some((SocketAddr::from((Ipv4Addr::LOCALHOST, port)), place.files())),
        webhooks,
        ..ServerConfig::default()
    };
    let world = start_with(1, config);
    wait_until("it listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (world, port)
}

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

impl TlsClient {
    fn secure(port: u16, with_certificate: bool) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Self::of(tls_client(socket, with_certificate))
    }

    fn status_with(&mut self, path: &str, token: &str) -> u16 {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        ));
        self.read().status
    }
}

#[test]
fn over_tls_credentials_count_for_each_request() {
    let place = Place::new();
    let (_world, port) = with_tls(&place);
    let mut nobody = TlsClient::secure(port, false);
    assert_eq!(nobody.get("/healthz").body, "ok");
    assert_eq!(nobody.get("/version").status, 401);
    assert!(nobody.is_over(), "and said to be");
    let mut client = TlsClient::secure(port, false);
    assert_eq!(client.status_with("/version", TOKEN), 200);
    assert_eq!(client.get("/version").status, 401, "not of the connection");

    // Withdrawn credentials are refused on connections that stay open too, even if no other client connects.
    let mut by_token = TlsClient::secure(port, false);
    assert_eq!(by_token.status_with("/version", TOKEN), 200);
    place.write("token", "another-token-0123456789", 0o600);
    assert_eq!(by_token.status_with("/version", TOKEN), 401);
    let mut by_certificate = TlsClient::secure(port, true);
    assert_eq!(by_certificate.get("/version").status, 200);
    place.change_ca();
    assert_eq!(by_certificate.get("/version").status, 401);
}

/// A client whose rights the cluster knows gets what it may, each time anew, and a refused one has to come back.
#[test]
fn a_cluster_says_what_its_clients_may() {
    let place = Place::new();
    let webhooks = Webhooks {
        authentication: true,
        authorization: true,
    };
    let (_world, port) = with_webhooks(&place, webhooks);
    let reader = "token-of-the-reader";
    let mut client = TlsClient::secure(port, false);
    assert_eq!(client.status_with("/metrics", reader), 200);
    assert_eq!(client.status_with("/metrics", reader), 200);
    client.send(&format!(
        "GET /configz HTTP/1.1\r\nAuthorization: Bearer {reader}\r\n\r\n"
    ));
    let refused = client.read();
    let text =
        "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[configz proxy])\n";
    assert_eq!((refused.status, refused.body.as_str()), (403, text));
    assert!(client.is_over());
    let mut stranger = TlsClient::secure(port, false);
    assert_eq!(stranger.status_with("/metrics", "token-of-a-stranger"), 401);
    assert!(stranger.is_over());
    let mut by_certificate = TlsClient::secure(port, true);
    assert_eq!(by_certificate.get("/metrics").status, 403);
    // The node's own token and health need no cluster.
    let mut own = TlsClient::secure(port, true);
    assert_eq!(own.status_with("/configz", TOKEN), 200);
    assert_eq!(own.get("/healthz").status, 200);
}

/// Strangers with tokens, who keep their connections open, take no place from a client that needs no review.
#[test]
fn refused_tokens_keep_nobody_out() {
    let place = Place::new();
    let webhooks = Webhooks {
        authentication: true,
        authorization: true,
    };
    let (_world, port) = with_webhooks(&place, webhooks);
    let stranger = || {
        let mut client = TlsClient::secure(port, false);
        let status = client.status_with("/metrics", "token-of-a-stranger");
        assert!([401, 503].contains(&status), "{status}");
        client
    };
    let strangers: Vec<_> = (0..MAX_CLIENTS).map(|_| stranger()).collect();
    for _ in 0..5 {
        let mut own = TlsClient::secure(port, false);
        assert_eq!(own.status_with("/configz", TOKEN), 200);
    }
    drop(strangers);
}

/// While the API server does not answer, one client has few tokens reviewed.
#[test]
fn one_client_has_few_tokens_reviewed_at_a_time() {
    let fake = Fake::new(1);
    let (_stop, stopped) = UnixStream::pair().unwrap();
    let shared = worker::Shared::new(fake, &ServerConfig::default(), stopped.into()).unwrap();
    let shared = Arc::new(shared);
    let of = |last: u8| Some(connection::Origin::of([192, 0, 2, last].into()));
    let mut held: Vec<_> = (0..4)
        .map(|_| shared.begin_review(of(1)).unwrap())
        .collect();
    assert!(shared.begin_review(of(1)).is_none());
    held.pop();
    held.push(shared.begin_review(of(1)).unwrap());
    let others = (2..50).filter_map(|n| shared.begin_review(of(n)));
    held.extend(others);
    assert_eq!(held.len(), 24);
}

/// Only clients with a certificate may send a long head. With long heads, other clients could keep everybody waiting.
#[test]
fn long_heads_are_for_certificates() {
    let place = Place::new();
    let (_world, port) = with_tls(&place);
    let long = format!("/version?{}", "x".repeat(MAX_HEAD - 100));
    let mut known = TlsClient::secure(port, true);
    assert_eq!(known.get(&long).status, 200);
    let mut unknown = TlsClient::secure(port, false);
    let path = format!("/healthz?{}", "x".repeat(FREE_HEAD));
    assert_eq!(unknown.status_with(&path, TOKEN), 431);
}

/// An answer that is longer than the buffer of a TLS session arrives whole, although the client reads slowly.
#[test]
fn a_large_answer_goes_over_tls() {
    let place = Place::new();
    let (world, port) = with_tls(&place);
    let metrics = "m 1\n".repeat(1 << 20);
    world.fake.set_metrics(metrics.clone());
    let mut client = TlsClient::secure(port, true);
    assert!(client.get("/metrics").body == metrics);
    assert_eq!(client.get("/version").status, 200);
}

#[test]
fn the_log_directory_is_shown_and_nothing_else() {
    let world = start(1);
    let dir = world.dir.path().join("log");
    std::fs::create_dir_all(dir.join("pods/a b")).unwrap();
    std::fs::write(dir.join("pods/a b/0.log"), "line\n").unwrap();
    std::fs::write(dir.join("<b>"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
    nix::unistd::mkfifo(&dir.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    *world.fake.log_dir.lock().unwrap() = dir;
    let mut client = world.client();
    let listing = client.get("/logs/").body;
    assert!(
        listing.contains("<a href=\"/logs/pods/\">pods/</a>"),
        "{listing}"
    );
    assert!(
        listing.contains("<a href=\"/logs/%3Cb%3E\">&lt;b&gt;</a>"),
        "{listing}"
    );
    let below = client.get("/logs/pods/").body;
    assert!(below.contains("href=\"/logs/pods/a%20b/\""), "{below}");
    assert_eq!(client.get("/logs/pods/a%20b/0.log").body, "line\n");
    for path in [
        "link",
        "fifo",
        "none",
        "../secret",
        "pods/../../x",
        "%2Fetc/passwd",
    ] {
        let reply = client.get(&format!("/logs/{path}"));
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (404, "404 page not found\n"),
            "{path}"
        );
    }
}
