//! The reflector against the exchanges of a real kubelet with a real API server.

use super::*;

/// All lists and watches of a kubelet 1.36.2 in a run of 17 minutes, in which the API server is restarted three times,
/// once without WatchList. Of the objects, only the identity is left.
const WATCHES: &str = include_str!("../../../../tests/data/cluster/watches.jsonl");

/// Returns the path and the field selector of a request.
fn collection(path: &str) -> (String, String) {
    let (path, query) = path.split_once('?').unwrap();
    let selector = query
        .split('&')
        .find_map(|p| p.strip_prefix("fieldSelector="));
    (path.to_owned(), selector.unwrap_or_default().to_owned())
}

/// Returns the recorded requests of one selection, divided at each start of the kubelet.
fn sessions(path: &str, selector: &str) -> Vec<Vec<Value>> {
    let mut sessions: Vec<Vec<Value>> = Vec::new();
    for line in WATCHES.lines() {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let request = exchange["path"].as_str().unwrap();
        if collection(request) != (path.to_owned(), selector.to_owned()) {
            continue;
        }
        // Only a new kubelet asks without a version.
        if request.contains("sendInitialEvents") && !request.contains("resourceVersion=") {
            sessions.push(Vec::new());
        }
        sessions.last_mut().unwrap().push(exchange);
    }
    sessions
}

/// Returns the random number with which the kubelet has chosen the time of a watch.
fn random_of(path: &str, selection: &Selection) -> f64 {
    let shortest = if selection.collection().contains("namespaces") {
        1800.0
    } else {
        300.0
    };
    let parameter = path
        .split('&')
        .find_map(|p| p.strip_prefix("timeoutSeconds="));
    parameter.map_or(0.0, |s| (s.parse::<f64>().unwrap() + 0.5) / shortest - 1.0)
}

/// Applies the recorded events to a store as a list of objects would be.
fn expect(store: &mut BTreeMap<(String, String), Value>, exchange: &Value) {
    let is_full = exchange["path"]
        .as_str()
        .unwrap()
        .contains("sendInitialEvents");
    if let Some(items) = exchange["body"]["items"].as_array() {
        *store = items
            .iter()
            .map(|o| (key_of(o), o["metadata"].clone()))
            .collect();
    } else if is_full && exchange["status"] == 200 {
        store.clear();
    }
    for event in exchange["events"].as_array().into_iter().flatten() {
        let object = &event[1]["object"];
        match event[1]["type"].as_str().unwrap() {
            "ADDED" | "MODIFIED" => drop(store.insert(key_of(object), object["metadata"].clone())),
            "DELETED" => drop(store.remove(&key_of(object))),
            _ => {}
        }
    }
}

/// Gives the recorded answers of a session, and compares each request with the recorded one.
#[track_caller]
fn replay(selection: &Selection, session: &[Value]) -> Caller {
    let mut caller = Caller::new(selection.clone());
    let mut expected = BTreeMap::new();
    let mut full_lists = 0;
    for (index, exchange) in session.iter().enumerate() {
        let path = exchange["path"].as_str().unwrap();
        caller.now = caller.now.max(at(exchange["t_ms"].as_u64().unwrap()));
        if index == 0 {
            caller.random = random_of(path, selection);
        }
        assert_eq!(caller.request(), path);
        // The next request may be made in the next step.
        let next = session.get(index + 1);
        caller.random = next.map_or(0.0, |e| random_of(e["path"].as_str().unwrap(), selection));
        match (
            exchange["status"].as_u64().unwrap(),
            exchange["body"].is_null(),
        ) {
            (0, _) => caller.end(exchange["error"].as_str()),
            (200, true) => {
                caller.step(Input::Opened);
                for event in exchange["events"].as_array().into_iter().flatten() {
                    let ends =
                        event[1].pointer("/object/metadata/annotations/k8s.io~1initial-events-end");
                    full_lists += usize::from(ends.is_some());
                    caller.now = caller.now.max(at(event[0].as_u64().unwrap()));
                    caller.line(&event[1]);
                }
                caller.now = caller
                    .now
                    .max(at(exchange["end"]["t_ms"].as_u64().unwrap_or_default()));
                let how = exchange["end"]["how"].as_str().unwrap();
                if !caller.is_closed && (how == "server" || how.contains("cut")) {
                    caller.end((how != "server").then_some(how));
                }
            }
            (200, false) => {
                full_lists += 1;
                caller.step(Input::Listed(exchange["body"].to_string().as_bytes()));
            }
            (code, _) => {
                let code = u16::try_from(code).unwrap();
                caller.refuse(code, None, &exchange["body"].to_string());
            }
        }
        expect(&mut expected, exchange);
    }
    let store = caller
        .store
        .iter()
        .map(|(k, o)| (k.clone(), o["metadata"].clone()));
    assert_eq!(store.collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(caller.full_lists, full_lists, "one for each full list");
    caller
}

/// Replays every session of a selection, and compares the numbers of their requests.
#[track_caller]
fn check(selection: &Selection, selector: &str, requests: &[usize]) -> Vec<Caller> {
    let sessions = sessions(selection.collection(), selector);
    let lengths: Vec<usize> = sessions.iter().map(Vec::len).collect();
    assert_eq!(lengths, requests);
    sessions
        .iter()
        .map(|session| replay(selection, session))
        .collect()
}

#[test]
fn the_pods_of_a_node_are_asked_for_as_a_kubelet_does() {
    let of_node = Selection::pods_of_node("node1");
    let callers = check(&of_node, "spec.nodeName%3Dnode1", &[9, 3, 4, 1]);
    let expired = "the API server has no changes of /api/v1/pods since the last known version: too old resource version: 845 (855)";
    assert_eq!(callers[0].troubles[0], expired);
    let names = callers[3].store.keys().map(|(_, name)| name.as_str());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "crash",
            "edit",
            "made-while-down",
            "made-while-down2",
            "nosecvol",
            "p429",
            "p429b",
            "srv"
        ]
    );
}

#[test]
fn services_and_nodes_are_asked_for_as_a_kubelet_does() {
    check(
        &Selection::services(),
        "spec.clusterIP%21%3DNone",
        &[9, 3, 3, 1],
    );
    check(
        &Selection::node("node1"),
        "metadata.name%3Dnode1",
        &[8, 3, 3, 1],
    );
}

#[test]
fn a_secret_and_a_config_map_have_watches_of_their_own() {
    let secret = |name: &str| Selection::secret("rec", name);
    check(&secret("sec1"), "metadata.name%3Dsec1", &[1]);
    let late = check(&secret("late"), "metadata.name%3Dlate", &[1, 3]);
    assert_eq!(late[0].store.len(), 1, "it came while it was watched");
    let callers = check(&secret("latevol"), "metadata.name%3Dlatevol", &[8, 3, 4, 1]);
    let forbidden = callers[0].troubles.last().unwrap();
    assert!(
        forbidden.contains("status 403: secrets \"latevol\" is forbidden"),
        "{forbidden}"
    );
    let config_map = |name: &str| Selection::config_map("rec", name);
    check(&config_map("cm1"), "metadata.name%3Dcm1", &[1]);
    check(
        &config_map("kube-root-ca.crt"),
        "metadata.name%3Dkube-root-ca.crt",
        &[1],
    );
}
