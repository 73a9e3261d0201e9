//! Chooses the instances that a restart on request replaces.

use crate::api::{Container, Pod};
use crate::engine::runtime::{ContainerId, RuntimePodStatus};
use crate::face::server::{NotRestarted, RequestError};
use crate::pods::actions::restart_on_request;

/// Returns the instances to replace: the instance of the named container, or the instances of all containers that can
/// start again.
pub(super) fn chosen(
    pod: &Pod,
    wanted: Option<&str>,
    runtime: &RuntimePodStatus,
) -> Result<Vec<(String, ContainerId)>, RequestError> {
    let policy = pod.spec.restart_policy;
    let one = |c: &Container| {
        let id = restart_on_request(policy, c, runtime.container(&c.name));
        let named = id.map(|id| (c.name.clone(), id));
        named.map_err(|why| NotRestarted {
            container: c.name.clone(),
            why,
        })
    };
    let all = || pod.spec.sidecars().chain(&pod.spec.containers);
    if let Some(name) = wanted {
        return match all().find(|c| c.name == name) {
            Some(container) => match one(container) {
                Ok(it) => Ok(vec![it]),
                Err(why) => Err(RequestError::NotRestarted(vec![why])),
            },
            None => Err(unknown(pod, name)),
        };
    }
    let (found, refused): (Vec<_>, Vec<_>) = all().map(one).partition(Result::is_ok);
    match found.is_empty() {
        false => Ok(found.into_iter().flatten().collect()),
        true => {
            let refused = refused.into_iter().filter_map(Result::err);
            Err(RequestError::NotRestarted(refused.collect()))
        }
    }
}

fn unknown(pod: &Pod, name: &str) -> RequestError {
    match pod.spec.is_init(name) {
        true => RequestError::InitContainer(name.to_owned()),
        false => RequestError::NoContainer {
            pod: pod.metadata.name.clone(),
            container: name.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::runtime::RuntimeState;
    use crate::fake_runtime::runtime_container_status;
    use crate::test_pods;

    /// Returns the status of a pod: container `a` runs, `b` waits for its back-off, `c` has ended well, and the
    /// sidecar `s` runs.
    fn status() -> RuntimePodStatus {
        let mut b = runtime_container_status("b", "idb", RuntimeState::Exited, 0);
        b.exit_code = 1;
        RuntimePodStatus {
            containers: vec![
                runtime_container_status("a", "ida", RuntimeState::Running, 0),
                b,
                runtime_container_status("c", "idc", RuntimeState::Exited, 0),
                runtime_container_status("s", "ids", RuntimeState::Running, 0),
                runtime_container_status("i", "idi", RuntimeState::Exited, 0),
            ],
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(policy: &str, wanted: Option<&str>, expected: Result<&[&str], &str>) {
        let named = |n: &&str| json!({"name": n});
        let containers: Vec<Value> = ["a", "b", "c", "new"].iter().map(named).collect();
        let inits = json!([{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]);
        let spec =
            json!({"restartPolicy": policy, "containers": containers, "initContainers": inits});
        let pod = test_pods::pod("web").uid("u").spec(spec).arc();
        let got = chosen(&pod, wanted, &status());
        let ids = got.map(|all| all.into_iter().map(|(_, id)| id.to_string()).collect());
        let expected = expected.map(|all| all.iter().map(|id| (*id).to_owned()).collect());
        let ids: Result<Vec<String>, RequestError> = ids;
        let ids = ids.map_err(|e| e.to_string());
        assert_eq!(ids, expected.map_err(str::to_owned), "{policy} {wanted:?}");
    }

    #[test]
    fn a_pod_restarts_what_starts_again() {
        check("Always", None, Ok(&["ids", "ida", "idb", "idc"]));
        check("OnFailure", None, Ok(&["ids", "ida", "idb"]));
        // A sidecar restarts under every restart policy of the pod.
        check("Never", None, Ok(&["ids"]));
    }

    #[test]
    fn a_container_that_would_not_start_again_is_left_alone() {
        check("Always", Some("b"), Ok(&["idb"]));
        for (policy, name, why) in [
            (
                "Never",
                "a",
                "its restartPolicy is Never: it would be killed and not start again",
            ),
            (
                "OnFailure",
                "c",
                "it has ended with exit code 0, and its restartPolicy leaves it so",
            ),
            ("Always", "new", "it has not started yet"),
        ] {
            let text = format!("cannot restart container {name}: {why}");
            check(policy, Some(name), Err(&text));
        }
        check("Always", Some("x"), Err("pod web has no container x"));
        let once = "cannot restart init container i: it runs once, before the others";
        check("Always", Some("i"), Err(once));
    }
}
