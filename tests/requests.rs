//! What people ask of the real daemon's pods: `restart`, `delete` and `apply`.

mod support;

use podprobe::views::{PodView, Snapshot};
use serde_json::json;
use support::Node;
use support::daemon::{Day, FOREVER, find};
use support::on_both;

on_both![a_restart_on_request_starts_a_new_instance];

fn restarts(pod: &PodView) -> u32 {
    pod.status.container_statuses[0].restart_count
}

fn restarted(snapshot: &Snapshot, name: &str, times: u32) -> Option<()> {
    let pod = find(snapshot, name).filter(|pod| pod.status.is_ready())?;
    (restarts(pod) == times).then_some(())
}

fn a_restart_on_request_starts_a_new_instance(node: &Node) {
    let day = Day::begin(node);
    day.put("web", day.pod("web", FOREVER, json!({})));
    let mut once = day.pod("once", FOREVER, json!({}));
    once["spec"]["restartPolicy"] = "Never".into();
    day.put("once", once);
    day.wait_ready("web");
    day.wait_ready("once");
    let before = day.process("web");
    assert_eq!(day.says(&["restart", "web"]), "web-edge/c restarts\n");
    day.wait("the new instance", |s| restarted(s, "web", 1));
    assert!(!before.alive());
    assert_eq!(day.starts("web").len(), 2);
    // At once again, though it ended a moment ago.
    assert_eq!(day.says(&["restart", "pod/web/c"]), "web-edge/c restarts\n");
    day.wait("the third instance", |s| restarted(s, "web", 2));
    let uid = day.wait("the pod", |s| find(s, "web").map(|p| p.uid().to_owned()));
    let causes = day.history(&uid).restarts;
    assert!(
        causes
            .iter()
            .all(|r| r.cause.starts_with("restart requested (")),
        "{causes:?}"
    );
    assert!(
        day.log()
            .contains(&format!("audit: restart {uid} [c] by uid 0"))
    );

    let refused = day.client(&["restart", "once"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(
        why.contains("cannot restart container c: its restartPolicy is Never: it would be killed and not start again"),
        "{why}"
    );
    assert_eq!(day.starts("once").len(), 1);
    assert!(
        day.says(&["restart", "web/x"])
            .contains("pod web-edge has no container x")
    );
    day.end();
}
