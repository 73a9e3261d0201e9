//! Creating and starting are two steps: what becomes of a container that is created and not started.

use std::time::Duration;

use podprobe::api::Pod;
use podprobe::base::cancel::Cancel;
use podprobe::engine::runtime::{ContainerId, RuntimeState};
use podprobe::engine::shims::RuntimeChoice;
use serde_json::json;

use crate::support::{Node, NodeRuntime, on, on_runc, pod, sh, wait_until};

/// A container that would say `up`, created in its sandbox.
fn created(rt: &NodeRuntime, name: &str) -> (Pod, ContainerId) {
    let pod = pod(
        name,
        json!({"containers": [sh("main", "echo up; exec sleep 1000")]}),
    );
    let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
    let k = &rt.kuberuntime;
    let volumes = k.set_up_volumes(&pod).unwrap();
    let container = &pod.spec.containers[0];
    let image = k
        .image(&pod, container, &Cancel::default(), &mut |_| ())
        .unwrap();
    let config = k
        .container_config(&pod, container, 0, &image, &volumes, &Default::default())
        .unwrap();
    let id = k
        .create_container(&pod, &sandbox, &config, &volumes)
        .unwrap();
    (pod, id)
}

fn state(rt: &NodeRuntime, pod: &Pod) -> RuntimeState {
    rt.pod_status(pod.uid()).unwrap().containers[0].state
}

/// Nothing of it runs before its start; stopping and removing it leaves nothing (`on` looks).
fn a_created_container_runs_when_it_is_started_and_goes_when_it_is_not(node: &Node) {
    let rt = node.runtime();
    let (pod, id) = created(&rt, "not-started");
    assert_eq!(state(&rt, &pod), RuntimeState::Created);
    let started = rt.pod_status(pod.uid()).unwrap().containers[0].started;
    assert_eq!(started, None);
    rt.stop_container(&id, Duration::from_secs(5), &Cancel::default())
        .unwrap();
    assert_eq!(state(&rt, &pod), RuntimeState::Exited);
    let error = (*rt).start_container(&id).unwrap_err();
    assert!(error.message.contains("was not created"), "{error}");
    node.remove_pod(&rt, &pod);

    let (pod, id) = created(&rt, "started");
    (*rt).start_container(&id).unwrap();
    node.wait_log(&rt, &pod, &id, "up");
    assert_eq!(state(&rt, &pod), RuntimeState::Running);
    assert!((*rt).start_container(&id).is_err(), "it runs already");
    node.remove_pod(&rt, &pod);
}

/// A daemon that ends between the two steps: its shim takes the container back, so that the next daemon does not count it as a
/// restart.
fn a_daemon_that_ends_before_the_start_leaves_no_container(node: &Node) {
    let rt = node.runtime();
    let (pod, _) = created(&rt, "orphan");
    drop(rt);
    let next = node.runtime();
    wait_until("the shim to take it back", || {
        next.pod_status(pod.uid()).unwrap().containers.is_empty()
    });
    node.remove_pod(&next, &pod);
}

mod embedded {
    use super::*;

    #[test]
    fn a_created_container_runs_when_it_is_started_and_goes_when_it_is_not() {
        let test = super::a_created_container_runs_when_it_is_started_and_goes_when_it_is_not;
        on(RuntimeChoice::Embedded, test);
    }

    #[test]
    fn a_daemon_that_ends_before_the_start_leaves_no_container() {
        let test = super::a_daemon_that_ends_before_the_start_leaves_no_container;
        on(RuntimeChoice::Embedded, test);
    }
}

mod runc {
    use super::*;

    #[test]
    fn a_created_container_runs_when_it_is_started_and_goes_when_it_is_not() {
        on_runc(super::a_created_container_runs_when_it_is_started_and_goes_when_it_is_not);
    }

    #[test]
    fn a_daemon_that_ends_before_the_start_leaves_no_container() {
        on_runc(super::a_daemon_that_ends_before_the_start_leaves_no_container);
    }
}
