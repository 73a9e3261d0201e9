use std::sync::{Condvar, Mutex};

use super::*;

/// A backend whose snapshot the test changes.
struct Fake {
    now: Mutex<Arc<Snapshot>>,
    metrics: Mutex<String>,
    changed: Condvar,
}

impl Fake {
    fn new(version: u64) -> Arc<Self> {
        let snapshot = Snapshot {
            version,
            node_name: "edge".into(),
            ..Snapshot::default()
        };
        Arc::new(Self {
            now: Mutex::new(Arc::new(snapshot)),
            metrics: Mutex::new("m 1\n".into()),
            changed: Condvar::new(),
        })
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

impl Backend for Fake {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.lock().unwrap())
    }
    fn watch(&self, version: u64, ceiling: Duration) -> SnapshotUpdate {
        SnapshotUpdate::from(&*self.wait_newer(version, ceiling))
    }
    fn version(&self) -> String {
        "0.0.1-test".into()
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
    fn probe(&self, target: &ProbeTarget) -> Result<ProbeReport, String> {
        Err(format!(
            "{} of {} is made up",
            target.probe_type, target.container
        ))
    }
    fn pause(&self, target: &PauseTarget, length: Duration) -> Result<Vec<String>, String> {
        Ok(vec![format!("{:?} {length:?}", target.container)])
    }
    fn resume(&self, _: &PauseTarget) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
    fn set_condition(
        &self,
        uid: &PodUid,
        change: &ConditionChange,
    ) -> Result<ConditionSet, String> {
        change.check()?;
        let changed = uid.as_str() != "same";
        Ok(ConditionSet {
            changed,
            not_stored: None,
        })
    }
    fn services(&self) -> Vec<ServiceView> {
        Vec::new()
    }

    fn objects(&self, kind: ObjectKind) -> Vec<Value> {
        vec![kind.as_str().into()]
    }

    fn metrics(&self) -> String {
        self.metrics.lock().unwrap().clone()
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self(BufReader::new(stream))
    }
    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }
    fn read(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
    fn ask(&mut self, line: &str) -> serde_json::Value {
        self.send(line);
        serde_json::from_str(&self.read()).unwrap()
    }
}

fn start(version: u64) -> (tempfile::TempDir, PathBuf, Arc<Fake>, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/podprobe.sock");
    let fake = Fake::new(version);
    let server = spawn(&path, fake.clone()).unwrap();
    (dir, path, fake, server)
}

fn served(server: &Server) -> usize {
    server.connections.clients().len()
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        thread::yield_now();
    }
}

#[test]
fn one_connection_carries_many_requests() {
    let (_dir, path, _fake, _server) = start(3);
    let mut client = Client::connect(&path);
    assert_eq!(
        client.ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        3
    );
    assert_eq!(
        client.ask("{\"verb\":\"version\"}\n")["version"],
        "0.0.1-test"
    );
    assert_eq!(
        client.ask("{\"verb\":\"watch\",\"after\":2}\n")["update"]["nodeName"],
        "edge"
    );
}

#[test]
fn every_verb_has_its_answer() {
    let (_dir, path, _fake, _server) = start(3);
    let mut client = Client::connect(&path);
    assert_eq!(
        client.ask("{\"verb\":\"events\"}\n")["events"],
        serde_json::json!({"version": 3, "nodeName": "edge", "events": []})
    );
    assert_eq!(
        client.ask("{\"verb\":\"history\",\"uid\":\"u\"}\n")["history"]["probes"],
        serde_json::json!([])
    );
    assert_eq!(
        client.ask("{\"verb\":\"objects\",\"kind\":\"Secret\"}\n")["objects"][0],
        "Secret"
    );
    let probe = r#"{"verb":"probe","uid":"u","container":"c","probeType":"Startup"}"#;
    assert_eq!(
        client.ask(&format!("{probe}\n"))["error"],
        "Startup of c is made up"
    );
    let pause = r#"{"verb":"pause","uid":"u","container":"c","seconds":90}"#;
    assert_eq!(
        client.ask(&format!("{pause}\n"))["changed"][0],
        "Some(\"c\") 90s"
    );
    assert_eq!(
        client.ask("{\"verb\":\"resume\",\"uid\":\"u\"}\n")["changed"],
        serde_json::json!([])
    );
    let condition = r#"{"verb":"condition","uid":"u","type":"a/b","status":"True"}"#;
    assert_eq!(
        client.ask(&format!("{condition}\n"))["condition"],
        serde_json::json!({"changed": true})
    );
    let perhaps = condition.replace("True", "Perhaps");
    assert!(
        client.ask(&format!("{perhaps}\n"))["error"]
            .to_string()
            .contains("unknown variant")
    );
    assert_eq!(client.ask("{\"verb\":\"metrics\"}\n")["metrics"], "m 1\n");
}

#[test]
fn waiting_for_events_ends_with_the_next_change() {
    let (_dir, path, fake, _server) = start(3);
    let mut client = Client::connect(&path);
    client.send("{\"verb\":\"events\",\"after\":3}\n");
    assert_eq!(
        Client::connect(&path).ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        3
    );
    fake.set_version(4);
    let answer: serde_json::Value = serde_json::from_str(&client.read()).unwrap();
    assert_eq!(answer["events"]["version"], 4);
}

#[test]
fn a_watch_is_answered_by_the_change_it_waits_for() {
    let (_dir, path, fake, _server) = start(3);
    let mut client = Client::connect(&path);
    client.send("{\"verb\":\"watch\",\"after\":3}\n");
    // Another client is served meanwhile; once it is, the first request has been read or will see the change anyway.
    assert_eq!(
        Client::connect(&path).ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        3
    );
    fake.set_version(4);
    let answer: serde_json::Value = serde_json::from_str(&client.read()).unwrap();
    assert_eq!(answer["update"]["version"], 4);
}

#[track_caller]
fn check_refused(request: &str, expected: &str) {
    let (_dir, path, _fake, _server) = start(1);
    let answer = Client::connect(&path).ask(request);
    let text = answer["error"]
        .as_str()
        .unwrap_or_else(|| panic!("no error in {answer}"));
    assert!(text.contains(expected), "{text}");
}

#[test]
fn malformed_requests_are_told_so() {
    check_refused(
        "nonsense\n",
        "cannot read the request: expected ident at line 1 column 2",
    );
    check_refused("{\"verb\":\"delete\"}\n", "unknown variant `delete`");
    check_refused("{\"verb\":\"watch\"}\n", "missing field `after`");
    check_refused(
        &format!("{}\n", "x".repeat(MAX_REQUEST)),
        "longer than 4096 bytes",
    );
}

#[test]
fn a_malformed_request_does_not_end_the_connection() {
    let (_dir, path, _fake, _server) = start(1);
    let mut client = Client::connect(&path);
    assert!(client.ask("{}\n")["error"].is_string());
    assert_eq!(
        client.ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        1
    );
}

#[test]
fn the_client_above_the_limit_is_told_and_the_others_are_served() {
    let (_dir, path, _fake, server) = start(1);
    let mut clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| Client::connect(&path)).collect();
    wait_until("all seats taken", || served(&server) == MAX_CLIENTS);
    let refused = Client::connect(&path).read();
    assert_eq!(
        refused,
        "{\"error\":\"32 clients are connected already; try again later\"}\n"
    );
    assert_eq!(
        clients[MAX_CLIENTS - 1].ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        1
    );
    clients.pop();
    wait_until("the seat is free again", || {
        served(&server) == MAX_CLIENTS - 1
    });
    assert_eq!(
        Client::connect(&path).ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        1
    );
}

#[test]
fn a_watcher_that_hangs_up_gives_its_seat_back() {
    let (_dir, path, _fake, server) = start(1);
    let mut client = Client::connect(&path);
    client.send("{\"verb\":\"watch\",\"after\":1}\n");
    wait_until("served", || served(&server) == 1);
    drop(client);
    wait_until("gone", || served(&server) == 0);
}

#[test]
fn a_silent_client_is_dropped() {
    let (_dir, path, _fake, server) = start(1);
    let mut client = Client::connect(&path);
    wait_until("served", || served(&server) == 1);
    let begun = Instant::now();
    assert_eq!(client.read(), "");
    assert!(begun.elapsed() < IDLE * 3, "{:?}", begun.elapsed());
}

/// Each byte comes in time, and the request never does.
#[test]
fn a_client_that_sends_its_request_byte_by_byte_is_dropped() {
    let (_dir, path, _fake, server) = start(1);
    let mut client = Client::connect(&path);
    let begun = Instant::now();
    let step = IDLE / 20;
    client.0.get_ref().set_read_timeout(Some(step)).unwrap();
    let cut = loop {
        let sent = client.0.get_mut().write_all(b" ");
        let mut line = String::new();
        match client.0.read_line(&mut line) {
            Ok(0) => break true,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break true,
            _ if sent.is_err() => break true,
            _ if begun.elapsed() > IDLE * 3 => break false,
            _ => {}
        }
    };
    assert!(cut, "still served after {:?}", begun.elapsed());
    assert!(begun.elapsed() >= IDLE, "{:?}", begun.elapsed());
    wait_until("gone", || served(&server) == 0);
}

#[test]
fn stop_ends_every_thread_and_removes_the_socket() {
    let (_dir, path, _fake, server) = start(1);
    let mut client = Client::connect(&path);
    client.send("{\"verb\":\"watch\",\"after\":1}\n");
    wait_until("served", || served(&server) == 1);
    server.stop();
    wait_until("all threads ended", || server.is_finished());
    assert!(!path.exists());
}

/// Its next request may come [`IDLE`] later: nobody waits for it. The other one never reads its answer.
#[test]
fn stop_waits_for_no_client() {
    let (_dir, path, fake, server) = start(1);
    fake.set_metrics("m 1\n".repeat(1 << 20));
    let mut deaf = Client::connect(&path);
    deaf.send("{\"verb\":\"metrics\"}\n");
    let mut idle = Client::connect(&path);
    idle.ask("{\"verb\":\"version\"}\n");
    wait_until("served", || served(&server) == 2);
    let begun = Instant::now();
    server.stop();
    wait_until("all threads ended", || server.is_finished());
    assert!(begun.elapsed() < IDLE / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_stale_socket_is_replaced_and_the_new_one_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("podprobe.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _server = spawn(&path, Fake::new(9)).unwrap();
    assert_eq!(
        Client::connect(&path).ask("{\"verb\":\"snapshot\"}\n")["snapshot"]["version"],
        9
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_path_that_cannot_be_is_named() {
    let e = spawn(Path::new("/proc/nowhere/podprobe.sock"), Fake::new(1))
        .err()
        .unwrap();
    assert!(
        e.to_string()
            .starts_with("cannot listen on /proc/nowhere/podprobe.sock: "),
        "{e}"
    );
}
