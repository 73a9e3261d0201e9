use serde_json::{Value, json};

use super::*;

fn now() -> Time {
    serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap()
}

fn pod(name: &str, ready: &str) -> Value {
    let container = json!({"name": "main", "ready": ready == "True", "restartCount": 3,
        "state": {"running": {"startedAt": null}}});
    json!({"object": {"metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [{"name": "main"}]}},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [container],
            "conditions": [{"type": "Ready", "status": ready}]},
        "file": "/p/web.yaml", "warnings": [], "terminating": false, "logDir": "", "events": []})
}

/// Everything that the page of a test is made of.
#[derive(Default)]
struct World {
    pods: Vec<Value>,
    problems: Vec<Value>,
    history: Value,
    services: Vec<Value>,
    workloads: Vec<Value>,
    events: Vec<Value>,
    stalled: Option<String>,
    full: Option<String>,
}

impl World {
    fn page(&self) -> String {
        let snapshot = json!({"version": 1, "nodeName": "edge", "pods": self.pods, "problems": self.problems,
            "stalled": self.stalled});
        let snapshot: Snapshot = serde_json::from_value(snapshot).unwrap();
        let histories: Vec<PodHistory> = (self.pods.iter().take(MAX_PODS))
            .map(|_| serde_json::from_value(self.history.clone()).unwrap_or_default())
            .collect();
        let services: Vec<ServiceView> = serde_json::from_value(json!(self.services)).unwrap();
        let workloads: Vec<WorkloadView> = serde_json::from_value(json!(self.workloads)).unwrap();
        let events: Vec<Arc<Event>> = serde_json::from_value(json!(self.events)).unwrap();
        let check = Check {
            name: "disk",
            failure: self.full.clone(),
            is_liveness: false,
        };
        render(&Facts {
            snapshot: &snapshot,
            services: &services,
            workloads: &workloads,
            histories: &histories,
            events: &events,
            checks: &[check],
            version: "1.2.3",
            now: now(),
        })
    }

    fn well() -> Self {
        Self {
            pods: vec![pod("web", "True")],
            ..Self::default()
        }
    }
}

fn event(n: usize, message: &str) -> Value {
    json!({"namespace": "default", "pod": "web", "uid": "web", "fieldPath": "", "type": "Warning", "reason": "Unhealthy",
        "message": format!("{message} {n}"), "count": 3, "firstTimestamp": "2026-01-01T00:50:00Z",
        "lastTimestamp": "2026-01-01T00:59:30Z"})
}

fn run(micros: u64, outcome: &str, output: &str) -> Value {
    json!({"time": "2026-01-01T00:59:57Z", "micros": micros, "outcome": outcome, "output": output})
}

fn probed(runs: &[Value]) -> Value {
    json!({"probes": [{"container": "main", "probeType": "Readiness", "runs": runs}], "restarts": []})
}

/// Checks that the page contains the text.
#[track_caller]
fn has(page: &str, text: &str) {
    assert!(page.contains(text), "{text}\n\n{page}");
}

#[track_caller]
fn verdict(world: &World, expected: &str) {
    let page = world.page();
    let (_, rest) = page.split_once("<p class=\"verdict ").unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    assert_eq!(rest.split_once("</p>").unwrap().0, expected);
}

#[test]
fn the_first_sentence_says_whether_all_is_well() {
    verdict(&World::default(), "All is well: there are no pods.");
    verdict(&World::well(), "All is well: 1 pod.");
    let mut done = pod("job", "False");
    done["status"]["phase"] = "Succeeded".into();
    let mut ending = pod("old", "False");
    ending["terminating"] = true.into();
    let world = World {
        pods: vec![done, ending],
        ..World::default()
    };
    verdict(&world, "All is well: 2 pods.");
    let world = World {
        pods: vec![pod("a", "False"), pod("b", "False"), pod("c", "True")],
        problems: vec![json!({"file": "/p/x", "error": "no"})],
        services: vec![
            json!({"namespace": "default", "name": "s", "type": "ClusterIP", "ports": [{"port": 80}]}),
        ],
        stalled: Some("it stands".into()),
        full: Some("no room".into()),
        ..World::default()
    };
    verdict(&world, "Not all is well: 6 things are wrong.");
    let first = |what: &str, why: &str| format!("<li><span class=\"bad\">{what}</span>: {why}");
    let page = world.page();
    for (what, why) in [
        ("podprobe", "check disk: no room</li>"),
        ("podprobe", "it stands</li>"),
        (
            "/p/x",
            "not in use: no<br><code>podprobe validate /p/x</code></li>",
        ),
        (
            "pod/a",
            "not ready<br><code>podprobe describe pod a</code></li>",
        ),
        (
            "service/s",
            "its clients are sent nowhere: it has no endpoints<br><code>podprobe describe service s</code></li>",
        ),
    ] {
        has(&page, &first(what, why));
    }
    has(&world.page(), "<li class=\"bad\">/p/x: not in use: no</li>");
    has(&world.page(), "<title>edge: not all is well</title>");
}

#[test]
fn a_pod_has_a_row_and_its_last_restart_a_sentence() {
    let restart = |attempt, cause: &str| json!({"time": "2026-01-01T00:58:00Z", "container": "main", "attempt": attempt, "cause": cause});
    let world = World {
        history: json!({"probes": [], "restarts": [restart(2, "an old one"), restart(3, "failed liveness probe: <no>")]}),
        ..World::well()
    };
    let page = world.page();
    has(
        &page,
        "<tr><td>web</td><td>1/1</td><td class=\"good\">Running</td><td>3</td><td>60m</td></tr>",
    );
    has(
        &page,
        ">2m ago</time> web/main: failed liveness probe: &lt;no&gt;</li>",
    );
    assert!(!page.contains("an old one"));
    assert!(!World::well().page().contains("Last restarts"));
}

#[test]
fn results_are_a_line_and_failures_are_marked_and_said_in_words() {
    let runs = [
        run(100, "success", ""),
        run(1000, "warning", ""),
        run(7, "failure", "HTTP probe failed with statuscode: 500"),
    ];
    let world = World {
        history: probed(&runs),
        ..World::well()
    };
    let page = world.page();
    has(&page, "aria-label=\"3 results, 1 failed, 100µs to 1ms\"");
    has(
        &page,
        ">▂▇<span class=\"bad\">×</span></span></td><td class=\"bad\">failure</td></tr>",
    );
    has(
        &page,
        ">3s ago</time> web/main: the readiness probe <span class=\"bad\">fails</span>: HTTP probe failed with statuscode: 500</li>",
    );
    let many: Vec<Value> = (0..32).map(|_| run(5, "success", "")).collect();
    let world = World {
        history: probed(&many),
        ..World::well()
    };
    has(
        &world.page(),
        &format!(">{}</span></td><td class=\"\">5µs</td>", "▇".repeat(20)),
    );
    let none = [run(1, "errored", "no port")];
    let world = World {
        history: probed(&none),
        ..World::well()
    };
    has(&world.page(), "aria-label=\"1 result, all failed\"");
    has(&world.page(), "cannot be run</span>: no port");
}

#[test]
fn a_paused_probe_says_until_when() {
    let mut paused = pod("web", "True");
    paused["paused"] =
        json!([{"container": "main", "probeType": "Liveness", "until": "2026-01-01T01:29:00Z"}]);
    let world = World {
        pods: vec![paused],
        ..World::default()
    };
    has(
        &world.page(),
        "web/main liveness is paused and goes on in 29m",
    );
}

#[test]
fn a_service_says_who_gets_its_traffic() {
    let pods = json!([{"namespace": "shop", "name": "web-edge", "gets_traffic": true, "why": []},
        {"namespace": "shop", "name": "b-edge", "gets_traffic": false, "why": ["not ready", "it ends"]}]);
    let service = json!({"namespace": "shop", "name": "web", "type": "NodePort", "clusterIps": ["10.96.0.1"],
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080, "endpoints": ["10.0.0.1:8080"]}, {"port": 81, "protocol": "UDP"}],
        "pods": pods, "problems": ["port 81 is taken"]});
    let world = World {
        services: vec![service],
        ..World::well()
    };
    let page = world.page();
    has(
        &page,
        "<dt>shop/web <span class=\"soft\">NodePort 10.96.0.1</span></dt>",
    );
    has(
        &page,
        "<dd class=\"\">80/TCP on the node&#39;s port 30080, sent to 10.0.0.1:8080</dd>",
    );
    has(&page, "<dd class=\"bad\">81/UDP, sent nowhere</dd>");
    has(&page, "<dd class=\"good\">web-edge gets traffic</dd>");
    has(
        &page,
        "<dd class=\"warn\">b-edge gets none: not ready; it ends</dd>",
    );
    has(&page, "<dd class=\"bad\">port 81 is taken</dd>");
    let external = json!({"name": "x", "type": "ExternalName", "external": ["example.org"], "ports": [{"port": 1}]});
    let world = World {
        services: vec![external],
        ..World::well()
    };
    verdict(&world, "All is well: 1 pod.");
}

#[test]
fn the_newest_events_come_first_and_old_ones_are_left_out() {
    let world = World {
        events: (0..60).map(|n| event(n, "no")).collect(),
        ..World::well()
    };
    let page = world.page();
    let shown: Vec<usize> = page
        .split("</span> web: no ")
        .skip(1)
        .map(|rest| rest.split_once(' ').unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(shown, (10..60).rev().collect::<Vec<_>>());
    has(
        &page,
        "30s ago</time> <span class=\"warn\">Unhealthy</span> web: no 59 <span class=\"soft\">(x3 over 10m)</span>",
    );
    has(&page, "<p class=\"soft\">10 older events left out</p>");
}

#[test]
fn pods_beyond_the_limit_are_counted() {
    let world = World {
        pods: (0..MAX_PODS + 3)
            .map(|n| pod(&format!("p{n:03}"), "True"))
            .collect(),
        ..World::default()
    };
    let page = world.page();
    assert_eq!(page.matches("<td>1/1</td>").count(), MAX_PODS);
    has(&page, "<p class=\"soft\">3 pods left out</p>");
    verdict(&world, "All is well: 203 pods.");
}

/// Every text of a pod, a file or a container in this test is markup or a control sequence.
#[test]
fn no_text_becomes_markup_or_reaches_a_terminal() {
    let evil = "<script>\"'&\u{1b}[2J\u{202e}";
    let mut of_evil = pod(evil, "False");
    of_evil["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": evil}});
    of_evil["object"]["metadata"]["namespace"] = evil.into();
    of_evil["paused"] =
        json!([{"container": evil, "probeType": "Liveness", "until": "2026-01-01T01:29:00Z"}]);
    let history = json!({"probes": [{"container": evil, "probeType": "Startup", "runs": [run(1, "failure", evil)]}],
        "restarts": [{"time": "2026-01-01T00:58:00Z", "container": evil, "attempt": 1, "cause": evil}]});
    let mut happened = event(1, evil);
    (happened["reason"], happened["pod"], happened["namespace"]) =
        (evil.into(), evil.into(), evil.into());
    let of_pod = json!([{"namespace": evil, "name": evil, "gets_traffic": false, "why": [evil]}]);
    let service = json!({"namespace": evil, "name": evil, "type": evil, "clusterIps": [evil], "external": [evil], "note": evil,
        "problems": [evil], "pods": of_pod, "ports": [{"port": 1, "protocol": evil, "endpoints": [evil]}]});
    let workload = json!({"object": {"kind": "Deployment", "metadata": {"name": evil, "namespace": evil}},
        "fileError": evil, "waiting": evil, "overrides": [evil], "rollout": {"text": evil, "error": evil}});
    let world = World {
        pods: vec![of_evil],
        problems: vec![json!({"file": evil, "error": evil})],
        history,
        services: vec![service],
        workloads: vec![workload],
        events: vec![happened],
        stalled: Some(evil.into()),
        full: Some(evil.into()),
    };
    let page = world.page();
    assert!(!page.contains("<script"), "{page}");
    assert!(!page.contains(['\u{1b}', '\u{202e}']), "{page}");
    assert!(
        page.matches("&lt;script&gt;&quot;&#39;&amp;^[[2J").count() > 15,
        "{page}"
    );
    assert!(page.len() < 16 << 10, "{}", page.len());
}

#[test]
fn long_texts_are_cut_and_long_names_show_both_ends() {
    assert_eq!(text(&"é".repeat(401)), "é".repeat(400) + "…");
    assert_eq!(text("a\r\nb\tc"), "a b c");
    assert_eq!(html::cell("short", 5), "short");
    assert_eq!(
        html::cell("a<bcdefgh", 5),
        "<span title=\"a&lt;bcdefgh\">a&lt;…gh</span>"
    );
}

/// All cells of tables are short, so that a text browser keeps the columns. Tables have no other rows than those that
/// are checked here.
#[test]
fn nothing_in_a_table_is_wider_than_80_columns_allow() {
    let mut wide = pod(&"n".repeat(200), "True");
    wide["status"]["containerStatuses"][0]["restartCount"] = 4_000_000_000_u32.into();
    let runs: Vec<Value> = (0..32).map(|_| run(99_000, "failure", "x")).collect();
    let world = World {
        pods: vec![wide],
        history: probed(&runs),
        ..World::default()
    };
    let page = world.page();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("<tr><td>"))
        .collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let mut width = 0;
        let mut is_tag = false;
        for c in row.chars() {
            match c {
                '<' => is_tag = true,
                '>' => is_tag = false,
                _ if !is_tag => width += 1,
                _ => {}
            }
        }
        assert!(width <= 72, "{width}: {row}");
    }
}

/// Returns the section of the workloads of a page.
fn workloads(workloads: Vec<Value>) -> String {
    let world = World {
        workloads,
        ..World::well()
    };
    let page = world.page();
    let (_, rest) = page.split_once("<h2>Workloads</h2>\n").unwrap();
    rest.split_once("<h2>").unwrap().0.to_owned()
}

#[test]
fn a_workload_says_how_far_it_is_and_what_it_waits_for() {
    let object = json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 3}, "status": {"readyReplicas": 2}});
    let rollout =
        json!({"text": "Waiting for deployment \"web\" rollout to finish", "isDone": false});
    let section = workloads(vec![
        json!({"object": object, "rollout": rollout, "waiting": "1 of 3 new pods is ready since <5m>",
            "overrides": ["spec.replicas is 3 in place of the file's 1"], "fileError": "no spec"}),
    ]);
    assert_eq!(
        section,
        "<dl>\n<dt>deployment/shop/web <span class=\"bad\">2/3 ready</span></dt>\n\
         <dd class=\"bad\">last good version runs: no spec</dd>\n\
         <dd class=\"warn\">Waiting for deployment &quot;web&quot; rollout to finish</dd>\n\
         <dd class=\"\">1 of 3 new pods is ready since &lt;5m&gt;</dd>\n\
         <dd class=\"soft\">spec.replicas is 3 in place of the file&#39;s 1</dd>\n</dl>\n"
    );
}

#[test]
fn a_rollout_that_is_done_has_no_sentence_and_a_stuck_one_is_among_what_is_wrong() {
    let object = json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1}, "status": {"readyReplicas": 1}});
    let done = json!({"text": "successfully rolled out", "isDone": true});
    let section = workloads(vec![json!({"object": object, "rollout": done})]);
    assert_eq!(
        section,
        "<dl>\n<dt>deployment/web <span class=\"good\">1/1 ready</span></dt>\n</dl>\n"
    );
    let set = json!({"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}});
    let on_delete =
        json!({"error": "rollout status is only available for RollingUpdate strategy type"});
    let section = workloads(vec![json!({"object": set, "rollout": on_delete})]);
    assert!(!section.contains("<dd"), "{section}");
    let stuck = json!({"error": "deployment \"web\" exceeded its progress deadline"});
    let world = World {
        workloads: vec![json!({"object": object, "rollout": stuck})],
        ..World::well()
    };
    verdict(&world, "Not all is well: 1 thing is wrong.");
    has(
        &world.page(),
        "<code>podprobe describe deployment web</code>",
    );
    has(
        &world.page(),
        "<dd class=\"bad\">deployment &quot;web&quot; exceeded its progress deadline</dd>",
    );
}

#[test]
fn sets_of_a_deployment_are_left_out_and_a_page_without_workloads_has_no_such_section() {
    let object = |kind: &str, owners: Value| json!({"object": {"kind": kind, "metadata": {"name": "x", "namespace": "default", "ownerReferences": owners}}});
    let owner = json!([{"kind": "Deployment", "name": "web", "controller": true}]);
    let all = vec![
        object("ReplicaSet", owner.clone()),
        object("ReplicaSet", json!([])),
        object("Job", owner),
    ];
    let section = workloads(all);
    assert_eq!(section.matches("<dt>replicaset/x").count(), 1, "{section}");
    assert!(section.contains("job/x"), "{section}");
    assert!(!World::well().page().contains("Workloads"));
    let failed = json!({"kind": "Job", "metadata": {"name": "x", "namespace": "default"},
        "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let section = workloads(vec![json!({"object": failed})]);
    assert!(
        section.contains("<span class=\"bad\">0/1 Failed</span>"),
        "{section}"
    );
}
