//! The reflector against answers of our own. The recorded ones are in `replay`.

mod replay;

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

fn at(milliseconds: u64) -> Moment {
    Moment::from_boot(Duration::from_millis(milliseconds))
}

/// A caller of a reflector: its store, and what the reflector has asked for.
struct Caller {
    reflector: Reflector,
    store: BTreeMap<(String, String), Value>,
    asked: Option<Request>,
    is_closed: bool,
    full_lists: usize,
    troubles: Vec<String>,
    now: Moment,
    random: f64,
}

impl Caller {
    fn new(selection: Selection) -> Self {
        Self {
            reflector: Reflector::new(selection),
            store: BTreeMap::new(),
            asked: None,
            is_closed: false,
            full_lists: 0,
            troubles: Vec::new(),
            now: at(0),
            random: 0.0,
        }
    }

    fn step(&mut self, input: Input<'_>) {
        for action in self.reflector.step(self.now, self.random, input) {
            match action {
                Action::Get(request) => {
                    assert!(
                        self.asked.replace(request).is_none(),
                        "one request at a time"
                    );
                    self.is_closed = false;
                }
                Action::Close => self.is_closed = true,
                Action::Report(trouble) => self.troubles.push(trouble.to_string()),
                Action::Change(Change::Replaced(objects)) => {
                    self.full_lists += 1;
                    self.store = objects.into_iter().map(|o| (key_of(&o), o)).collect();
                }
                Action::Change(Change::Added(object) | Change::Modified(object)) => {
                    drop(self.store.insert(key_of(&object), object));
                }
                Action::Change(Change::Deleted(object)) => {
                    drop(self.store.remove(&key_of(&object)));
                }
            }
        }
    }

    fn line(&mut self, event: &Value) {
        self.step(Input::Line(event.to_string().as_bytes()));
    }

    fn refuse(&mut self, code: u16, retry_after: Option<u64>, body: &str) {
        self.step(Input::Refused {
            code,
            retry_after: retry_after.map(Duration::from_secs),
            body: body.as_bytes(),
        });
    }

    fn end(&mut self, cause: Option<&str>) {
        self.step(Input::Ended { cause });
    }

    /// Waits for the deadline of the reflector. Returns the milliseconds.
    fn wait(&mut self) -> u128 {
        let deadline = self.reflector.deadline();
        let waited = deadline.since(self.now);
        self.now = self.now.max(deadline);
        self.step(Input::Tick);
        waited.as_millis()
    }

    /// Returns the request that was asked for, after the back-off if there is one.
    #[track_caller]
    fn request(&mut self) -> String {
        if self.asked.is_none() {
            self.wait();
        }
        self.asked.take().expect("a request").path
    }

    /// Returns the request that was asked for without its times.
    #[track_caller]
    fn request_in_short(&mut self) -> String {
        let path = self.request();
        let kept = path.split_once('?').unwrap().1.split('&');
        let kept = kept.filter(|p| !p.starts_with("timeout") && !p.starts_with("fieldSelector"));
        kept.collect::<Vec<_>>().join("&")
    }

    /// Brings a watch to its changes, with no object, at version 5.
    fn watching() -> Self {
        let mut caller = Self::new(Selection::pods_of_node("node1"));
        caller.request();
        caller.step(Input::Opened);
        caller.line(&bookmark("5", true));
        caller
    }
}

fn bookmark(version: &str, is_end: bool) -> Value {
    let annotations = match is_end {
        true => json!({"k8s.io/initial-events-end": "true"}),
        false => json!({}),
    };
    json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version, "annotations": annotations}}})
}

fn event(kind: &str, name: &str, version: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "rec", "resourceVersion": version, "managedFields": [{"manager": "m"}]});
    json!({"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}})
}

fn expired() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "reason": "Expired", "code": 410, "message": "too old resource version: 5 (9)"}})
}

const WATCH_LIST: &str =
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true";
const WATCH_LIST_FROM_5: &str = "allowWatchBookmarks=true&resourceVersion=5&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true";
const WATCH_FROM_5: &str = "allowWatchBookmarks=true&resourceVersion=5&watch=true";

#[test]
fn a_watch_that_the_server_ends_is_resumed_at_once_from_its_last_bookmark() {
    let mut caller = Caller::watching();
    caller.line(&event("ADDED", "a", "7"));
    caller.line(&bookmark("9", false));
    caller.end(None);
    assert!(caller.asked.is_some(), "at once");
    assert_eq!(
        caller.request_in_short(),
        "allowWatchBookmarks=true&resourceVersion=9&watch=true"
    );
    assert_eq!(caller.full_lists, 1);
}

#[test]
fn a_watch_that_ends_as_soon_as_it_begins_is_not_resumed_at_once() {
    let mut caller = Caller::watching();
    caller.end(None);
    caller.request();
    caller.step(Input::Opened);
    caller.end(None);
    assert!(caller.asked.is_none());
    assert_eq!(caller.wait(), 800);
    assert_eq!(caller.request_in_short(), WATCH_FROM_5);
}

#[test]
fn the_initial_list_is_said_as_a_whole_at_its_end() {
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    caller.request();
    caller.step(Input::Opened);
    for (kind, name) in [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("DELETED", "a"),
    ] {
        caller.line(&event(kind, name, "4"));
    }
    caller.line(&bookmark("4", false));
    assert_eq!(
        (caller.full_lists, caller.reflector.is_synced()),
        (0, false)
    );
    caller.line(&bookmark("5", true));
    assert_eq!((caller.full_lists, caller.reflector.is_synced()), (1, true));
    let only = caller.store.values().next().unwrap();
    assert_eq!(caller.store.len(), 1);
    assert_eq!(
        only["metadata"],
        json!({"name": "b", "namespace": "rec", "resourceVersion": "4"})
    );
}

#[test]
fn an_initial_list_that_is_cut_off_changes_nothing() {
    let mut caller = Caller::watching();
    caller.line(&event("ADDED", "a", "5"));
    caller.line(&expired());
    assert!(caller.is_closed);
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
    caller.step(Input::Opened);
    caller.line(&event("ADDED", "b", "6"));
    caller.end(Some("reset"));
    assert_eq!(caller.store.len(), 1);
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
}

#[test]
fn a_version_that_is_lost_for_the_list_too_is_left_out_at_once() {
    let too_large = r#"{"kind":"Status","message":"Timeout: Too large resource version: 5, current: 3","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#;
    for (code, retry_after, body, waited) in
        [(410, None, "gone", 0), (504, Some(1), too_large, 1000)]
    {
        let mut caller = Caller::watching();
        caller.line(&expired());
        assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
        caller.refuse(code, retry_after, body);
        assert_eq!(caller.wait(), waited);
        assert_eq!(caller.request_in_short(), WATCH_LIST);
        caller.refuse(code, retry_after, body);
        assert!(
            caller.wait() >= 1600,
            "the second time in a row it has a back-off"
        );
        assert_eq!(caller.request_in_short(), WATCH_LIST);
        caller.step(Input::Opened);
        caller.line(&bookmark("3", true));
        caller.end(None);
        assert_eq!(caller.request_in_short(), WATCH_FROM_5.replace('5', "3"));
        caller.step(Input::Opened);
        caller.line(&expired());
        let from_3 = WATCH_LIST_FROM_5.replace('5', "3");
        assert_eq!(caller.request_in_short(), from_3, "lost once, not for ever");
    }
}

#[test]
fn an_initial_list_that_ends_with_410_is_asked_for_without_a_version() {
    let mut caller = Caller::watching();
    caller.line(&expired());
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
    caller.step(Input::Opened);
    caller.line(&expired());
    assert_eq!(caller.request_in_short(), WATCH_LIST);
}

#[test]
fn a_watch_that_is_refused_with_410_reads_the_list_again() {
    let mut caller = Caller::watching();
    caller.end(None);
    caller.request();
    caller.refuse(410, None, "");
    assert_eq!(caller.wait(), 800);
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
}

fn page(names: &[&str], token: &str) -> String {
    let item = |name: &&str| json!({"metadata": {"name": name, "namespace": "rec", "resourceVersion": "2"}});
    let items: Vec<Value> = names.iter().map(item).collect();
    let metadata = json!({"resourceVersion": "5", "continue": token});
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string()
}

/// Refuses the WatchList of the caller.
fn no_watch_list(caller: &mut Caller) {
    caller.request();
    caller.refuse(422, None, "sendInitialEvents is forbidden for watch");
    assert!(caller.asked.is_some(), "at once");
    assert_eq!(caller.troubles, [""; 0]);
}

#[test]
fn the_pages_of_a_list_are_one_list() {
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    no_watch_list(&mut caller);
    assert_eq!(caller.request_in_short(), "limit=500&resourceVersion=0");
    caller.step(Input::Listed(
        page(&["a", "b"], "eyJ2IjoibWV0YS5rOHMuaW8vdjEi+/=").as_bytes(),
    ));
    assert_eq!(caller.full_lists, 0);
    let next = "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEi%2B%2F%3D&limit=500";
    let selector = "fieldSelector=spec.nodeName%3Dnode1&";
    assert_eq!(
        caller.request(),
        format!(
            "/api/v1/pods?{}",
            next.replace("&limit", &format!("&{selector}limit"))
        )
    );
    caller.step(Input::Listed(page(&["c"], "").as_bytes()));
    assert_eq!((caller.full_lists, caller.store.len()), (1, 3));
    let first = caller.store.values().next().unwrap();
    assert_eq!(
        (&first["kind"], &first["apiVersion"]),
        (&json!("Pod"), &json!("v1"))
    );
    assert_eq!(caller.request_in_short(), WATCH_FROM_5);
}

/// With an etcd that is too old for it a WatchList ends with 500, as was seen of etcd 3.4.
#[test]
fn a_watch_list_that_fails_is_a_list_unless_a_list_would_fail_too() {
    for (code, is_listed) in [
        (400, true),
        (500, true),
        (403, false),
        (401, false),
        (429, false),
    ] {
        let mut caller = Caller::new(Selection::pods_of_node("node1"));
        caller.request();
        caller.refuse(code, None, "a watch stream was requested");
        let is_at_once = caller.asked.is_some();
        assert_eq!(is_at_once, is_listed, "{code}");
        if is_listed {
            assert_eq!(caller.request_in_short(), "limit=500&resourceVersion=0");
            caller.refuse(500, None, "etcd is away");
            assert_eq!(caller.troubles.len(), 1);
            assert_eq!(caller.wait(), 800);
        }
    }
    // The error may come as the first event, as it does from a real API server with etcd 3.4.
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    caller.request();
    caller.step(Input::Opened);
    caller.line(
        &json!({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "RequestWatchProgress"}}),
    );
    assert_eq!(caller.request_in_short(), "limit=500&resourceVersion=0");
}

#[test]
fn a_token_that_has_expired_begins_the_list_anew() {
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    no_watch_list(&mut caller);
    caller.request();
    caller.step(Input::Listed(page(&["gone"], "t").as_bytes()));
    caller.request();
    caller.refuse(410, None, r#"{"kind":"Status","reason":"Expired","message":"The provided continue parameter is too old"}"#);
    assert_eq!(caller.wait(), 0);
    assert_eq!(caller.request_in_short(), "limit=500");
    caller.step(Input::Listed(page(&["a"], "").as_bytes()));
    assert_eq!(caller.store.len(), 1);
}

#[test]
fn a_second_list_is_not_older_than_the_first_one() {
    let mut caller = Caller::watching();
    caller.line(&expired());
    no_watch_list_again(&mut caller);
    assert_eq!(caller.request_in_short(), "resourceVersion=5");
}

fn no_watch_list_again(caller: &mut Caller) {
    caller.request();
    caller.refuse(422, None, "");
}

#[test]
fn too_many_requests_are_answered_by_the_same_request_after_the_time_that_was_asked_for() {
    let mut caller = Caller::watching();
    caller.end(None);
    caller.request();
    caller.refuse(429, Some(1), "Too many requests, please try again later.");
    assert_eq!(caller.wait(), 1000);
    assert_eq!(caller.request_in_short(), WATCH_FROM_5);
    caller.refuse(429, None, "");
    assert_eq!(caller.wait(), 800);
    assert_eq!(caller.request_in_short(), WATCH_FROM_5);
    caller.refuse(429, Some(3600), "");
    assert_eq!(
        caller.wait(),
        60_000,
        "no API server makes the node blind for an hour"
    );
}

#[test]
fn an_authorizer_that_is_behind_is_asked_again_soon_and_another_refusal_is_not() {
    let late =
        "secrets \"x\" is forbidden: no relationship found between node 'node1' and this object";
    let body = json!({"kind": "Status", "message": late, "code": 403}).to_string();
    let mut caller = Caller::new(Selection::secret("rec", "x"));
    let mut delays = Vec::new();
    for _ in 0..6 {
        caller.request();
        caller.refuse(403, None, &body);
        delays.push(caller.wait());
    }
    assert_eq!(delays, [50, 100, 200, 400, 800, 1600]);
    caller.request();
    caller.refuse(403, None, "no RBAC policy matched");
    assert_eq!(caller.wait(), 3200);
}

#[test]
fn other_refusals_have_a_back_off_and_read_the_list_again() {
    let mut caller = Caller::watching();
    caller.end(None);
    for (code, waited) in [(401, 800), (500, 1600), (503, 3200)] {
        caller.request();
        caller.refuse(code, None, "a proxy's page");
        // A list may be answered, and is refused here too.
        if caller.asked.is_some() {
            caller.request();
            caller.refuse(code, None, "a proxy's page");
        }
        assert_eq!(caller.wait(), waited);
    }
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
    assert_eq!(
        caller.troubles[..2],
        [
            "the API server refuses /api/v1/pods with status 401: a proxy's page; renew the client certificate or the token that the kubeconfig names",
            "the API server refuses /api/v1/pods with status 500: a proxy's page",
        ]
    );
    caller.refuse(503, Some(20), "");
    assert_eq!(caller.wait(), 20_000);
}

#[test]
fn a_connection_that_says_nothing_is_made_anew() {
    let mut caller = Caller::watching();
    caller.line(&bookmark("6", false));
    caller.now = at(100_000);
    caller.line(&bookmark("7", false));
    caller.now = at(249_999);
    caller.step(Input::Tick);
    assert!(!caller.is_closed);
    caller.now = at(250_000);
    caller.step(Input::Tick);
    assert!(caller.is_closed);
    assert_eq!(caller.request_in_short(), WATCH_FROM_5.replace('5', "7"));
    caller.step(Input::Opened);
    assert_eq!(caller.wait(), 150_000);
    assert_eq!(
        caller.request_in_short(),
        WATCH_LIST_FROM_5.replace('5', "7"),
        "a second watch that says nothing at all may wait for a version that never comes"
    );
    assert_eq!(caller.wait(), 60_000, "no head of an answer");
    assert!(caller.is_closed);
    assert_eq!(
        caller.request_in_short(),
        WATCH_LIST_FROM_5.replace('5', "7")
    );
}

#[test]
fn an_api_server_that_does_not_know_initial_lists_is_asked_for_a_list() {
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    caller.request();
    caller.step(Input::Opened);
    caller.line(&event("ADDED", "a", "4"));
    for second in [60, 119] {
        caller.now = at(second * 1000);
        caller.line(&bookmark("4", false));
    }
    caller.wait();
    assert_eq!((caller.now, caller.is_closed), (at(120_000), true));
    assert_eq!(caller.request_in_short(), "limit=500&resourceVersion=0");
}

#[test]
fn lines_that_cannot_be_read_end_the_watch() {
    for (line, cause) in [
        (
            "<html>",
            "it is not JSON: expected value at line 1 column 1",
        ),
        ("{}", "its object has no metadata.resourceVersion"),
        (
            r#"{"type":"PATCHED","object":{"metadata":{"name":"a","resourceVersion":"6"}}}"#,
            "it has the event type \"PATCHED\"",
        ),
        (
            r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"6"}}}"#,
            "its object has no metadata.name",
        ),
    ] {
        let mut caller = Caller::watching();
        caller.step(Input::Line(line.as_bytes()));
        assert!(caller.is_closed);
        let text = format!("cannot read an answer of the API server for /api/v1/pods: {cause}");
        assert_eq!(caller.troubles, [text]);
        caller.line(&event("ADDED", "late", "7"));
        assert_eq!(caller.store.len(), 0, "a line of the watch that was closed");
        caller.step(Input::Line(b"<late>"));
        assert_eq!(caller.troubles.len(), 1);
        assert_eq!(caller.wait(), 800);
        assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
    }
    let mut caller = Caller::watching();
    caller.step(Input::LineTooLong(LineTooLong));
    assert!(caller.is_closed);
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
}

#[test]
fn a_list_has_a_size_that_the_node_can_hold() {
    let line = event("ADDED", "a", "4");
    let mut caller = Caller::new(Selection::pods_of_node("node1"));
    caller.request();
    caller.step(Input::Opened);
    let State::Initial { listing, .. } = &mut caller.reflector.state else {
        panic!("an initial list");
    };
    listing.bytes = LARGEST_LIST - line.to_string().len();
    caller.line(&line);
    assert!(!caller.is_closed);
    caller.line(&line);
    assert!(caller.is_closed);
    assert!(caller.troubles[0].contains("more than 33554432 bytes"));
    no_watch_list_again(&mut caller);
    caller.request();
    let State::Asked {
        ask: Ask::List(_, listing),
        ..
    } = &mut caller.reflector.state
    else {
        panic!("a list");
    };
    listing.bytes = LARGEST_LIST;
    caller.step(Input::Listed(page(&["a"], "").as_bytes()));
    assert_eq!(caller.full_lists, 0);
    assert!(caller.troubles[1].contains("more than 33554432 bytes"));
    assert_eq!(caller.request_in_short(), WATCH_LIST);
}

#[test]
fn an_error_of_a_watch_that_is_too_busy_resumes_it() {
    let mut caller = Caller::watching();
    caller.line(
        &json!({"type": "ERROR", "object": {"kind": "Status", "code": 429, "message": "slow"}}),
    );
    assert_eq!(caller.request_in_short(), WATCH_FROM_5);
    caller.step(Input::Opened);
    caller.line(
        &json!({"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}}),
    );
    assert_eq!(caller.request_in_short(), WATCH_LIST_FROM_5);
}
