use serde_json::{Value, json};

use super::*;
use crate::fake_runtime::runtime_container_status;
use crate::test_pods;

fn pod(spec: Value) -> Arc<Pod> {
    Arc::new(test_pods::pod("p").uid("u").spec(spec).build())
}

fn asking(memory: &str, policy: Value) -> Arc<Pod> {
    let resources =
        json!({"requests": {"cpu": "1", "memory": memory}, "limits": {"memory": memory}});
    pod(json!({"containers": [{"name": "c", "resources": resources, "resizePolicy": policy}]}))
}

/// The runtime with one container, which has these resources.
fn runtime(name: &str, state: RuntimeState, resources: Value) -> RuntimePodStatus {
    let mut container = runtime_container_status(name, "id", state, 0);
    container.resources = serde_json::from_value(resources).unwrap();
    RuntimePodStatus {
        containers: vec![container],
        ..RuntimePodStatus::default()
    }
}

fn running(memory: &str) -> RuntimePodStatus {
    let resources =
        json!({"requests": {"cpu": "1000m", "memory": memory}, "limits": {"memory": memory}});
    runtime("c", RuntimeState::Running, resources)
}

fn memory(pod: &Pod) -> &str {
    &pod.spec.containers[0].resources.limits["memory"].0
}

fn to_resize(name: &str) -> ToResize {
    ToResize {
        id: "id".into(),
        name: name.into(),
    }
}

fn no_room(_: &Arc<Pod>) -> Result<(), NoRoom> {
    Err(NoRoom::Deferred("full".into()))
}

/// Quantities are compared by their amounts, and the room is not looked at.
#[test]
fn what_is_in_effect_is_left_alone() {
    for now in ["64Mi", "65536Ki", "67108864"] {
        let pod = asking("64Mi", json!([]));
        let plan = plan(&pod, &running(now), None, |_| {
            panic!("nobody asks for room")
        });
        assert!(!plan.is_due() && plan.no_room.is_none());
        assert!(Arc::ptr_eq(&plan.pod, &pod) && Arc::ptr_eq(&plan.before, &pod));
    }
}

#[test]
fn other_resources_are_given_while_the_container_runs() {
    let pod = asking("80Mi", json!([]));
    let plan = plan(&pod, &running("64Mi"), None, |_| Ok(()));
    assert_eq!(plan.update, [to_resize("c")]);
    assert_eq!(plan.restart, []);
    assert_eq!((memory(&plan.pod), memory(&plan.before)), ("80Mi", "64Mi"));
}

/// A limit that was not there before, and one that is there no more.
#[test]
fn a_limit_that_comes_or_goes_is_a_change() {
    let without = json!({"requests": {"cpu": "1", "memory": "64Mi"}});
    let now = runtime("c", RuntimeState::Running, without.clone());
    assert!(plan(&asking("64Mi", json!([])), &now, None, |_| Ok(())).is_due());
    let pod = pod(json!({"containers": [{"name": "c", "resources": without}]}));
    let plan = plan(&pod, &running("64Mi"), None, |_| Ok(()));
    assert!(plan.is_due());
    assert_eq!(memory(&plan.before), "64Mi");
}

#[test]
fn a_container_restarts_for_a_resource_whose_policy_says_so() {
    let of =
        |resource: &str| json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}]);
    let restarted = |policy: Value| {
        let plan = plan(&asking("80Mi", policy), &running("64Mi"), None, |_| Ok(()));
        assert_eq!(plan.restart.len() + plan.update.len(), 1);
        !plan.restart.is_empty()
    };
    assert!(restarted(of("memory")));
    assert!(!restarted(of("cpu")), "that has not changed");
    let not_required = json!([{"resourceName": "memory", "restartPolicy": "NotRequired"}]);
    assert!(!restarted(not_required));
    let mut never = (*asking("80Mi", of("memory"))).clone();
    Arc::make_mut(&mut never.spec).restart_policy = RestartPolicy::Never;
    let plan = plan(&Arc::new(never), &running("64Mi"), None, |_| Ok(()));
    assert_eq!(plan.restart, [], "it would not start again");
}

#[test]
fn without_room_everything_stays_as_it_is() {
    let pod = asking("80Mi", json!([]));
    let plan = plan(&pod, &running("64Mi"), None, no_room);
    assert!(!plan.is_due());
    assert_eq!(plan.no_room, no_room(&pod).err());
    assert_eq!((memory(&plan.pod), memory(&plan.before)), ("64Mi", "64Mi"));
}

/// The next instance starts with what the last one had, until there is room.
#[test]
fn a_container_that_does_not_run_gets_nothing_now() {
    let exited = runtime(
        "c",
        RuntimeState::Exited,
        json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}),
    );
    let pod = asking("80Mi", json!([]));
    let with_room = plan(&pod, &exited, None, |_| Ok(()));
    assert!(!with_room.is_due());
    assert_eq!(memory(&with_room.pod), "80Mi");
    assert_eq!(memory(&plan(&pod, &exited, None, no_room).pod), "64Mi");
}

#[test]
fn sidecars_are_resized_and_other_init_containers_are_not() {
    let spec = |policy: Value| {
        let mut init = json!({"name": "i", "resources": {"requests": {"cpu": "2"}}});
        init["restartPolicy"] = policy;
        pod(json!({"initContainers": [init], "containers": [{"name": "c"}]}))
    };
    let now = runtime(
        "i",
        RuntimeState::Running,
        json!({"requests": {"cpu": "1"}}),
    );
    let sidecar = plan(&spec("Always".into()), &now, None, |_| Ok(()));
    assert_eq!(sidecar.update, [to_resize("i")]);
    let init = plan(&spec(Value::Null), &now, None, |_| Ok(()));
    assert!(!init.is_due());
}

#[test]
fn the_resources_of_an_older_podprobe_are_not_known_and_stay() {
    let mut older = running("64Mi");
    older.containers[0].resources = None;
    let plan = plan(&asking("80Mi", json!([])), &older, None, |_| Ok(()));
    assert!(!plan.is_due());
}

/// Records go with a reboot, and the status stays. A wish without room does not keep the pod from starting.
#[test]
fn after_a_reboot_the_status_knows_what_a_pod_had() {
    let resources =
        json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "64Mi"}});
    let status = |id: &str| -> PodStatus {
        let container = json!({"name": "c", "containerID": id, "resources": resources});
        serde_json::from_value(json!({"containerStatuses": [container]})).unwrap()
    };
    let pod = asking("80Mi", json!([]));
    let nothing = RuntimePodStatus::default();
    let old = status("podprobe://id");
    let refused = plan(&pod, &nothing, Some(&old), no_room);
    assert_eq!(memory(&refused.pod), "64Mi");
    let granted = plan(&pod, &nothing, Some(&old), |_| Ok(()));
    assert_eq!(memory(&granted.pod), "80Mi");
    assert!(!granted.is_due());
    let never_ran = plan(&pod, &nothing, Some(&status("")), no_room);
    assert_eq!(memory(&never_ran.pod), "80Mi");
    // A container of an older podprobe has its resources in its status alone.
    let mut older = running("64Mi");
    older.containers[0].resources = None;
    assert!(plan(&pod, &older, Some(&old), |_| Ok(())).is_due());
    let of_another = plan(&pod, &older, Some(&status("podprobe://x")), |_| Ok(()));
    assert!(!of_another.is_due());
}
