//! Resources that a pod of the API server gets while it runs, in the cgroups of a real container (kubelet-probes 8.13).

use std::fs;

use podprobe::base::sys::cgroup::{Cgroups, of_container};
use serde_json::{Value, json};

use crate::cluster::{end, in_a_cluster, is_ready, wait_ready};
use crate::support::api_server::ApiServer;
use crate::support::daemon::Day;
use crate::support::skip::skip;

/// A script that has about 30 MB of memory.
const HOLDS: &str = "head -c 30000000 /dev/zero | tail | sleep 100000";

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"cpu": cpu, "memory": memory}})
}

fn create(server: &ApiServer, day: &Day<'_>, name: &str, script: &str, more: Value) {
    server.create_pod(name, day.pod(name, script, more)["spec"].clone());
    wait_ready(server, name);
}

fn resize(server: &ApiServer, name: &str, resources: Value) {
    server.edit_pod(name, |pod| {
        pod["spec"]["containers"][0]["resources"] = resources
    });
}

fn condition<'p>(pod: &'p Value, type_: &str) -> &'p Value {
    let all = pod["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|c| c["type"] == type_);
    found.unwrap_or(&Value::Null)
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// Waits until the pod says that it has these resources, and nothing more to do.
#[track_caller]
fn wait_resized(server: &ApiServer, name: &str, resources: &Value) -> Value {
    server.wait_for_pod(name, |pod| {
        container(pod)["resources"] == *resources
            && condition(pod, "PodResizeInProgress").is_null()
            && condition(pod, "PodResizePending").is_null()
            && is_ready(pod)
    })
}

/// The limits of a cgroup: of memory in bytes, and of a tenth of a second of a processor in microseconds. None where the
/// node has no such controllers.
fn limits(cgroup: &str) -> Option<(u64, u64)> {
    let cgroups = Cgroups::detect().unwrap();
    let value = |controller, files: [&str; 2]| {
        let (dir, v2) = cgroups.of_controller(controller, cgroup)?;
        let text = fs::read_to_string(dir.join(files[usize::from(v2)])).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let memory = value("memory", ["memory.limit_in_bytes", "memory.max"])?;
    Some((memory, value("cpu", ["cpu.cfs_quota_us", "cpu.max"])?))
}

fn of_pod(day: &Day<'_>, pod: &Value) -> String {
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    day.node.layout.pod_cgroup(&uid.into())
}

const MI: u64 = 1 << 20;

#[test]
fn a_pod_gets_other_resources_while_it_runs() {
    in_a_cluster(|server, mut day| {
        let first = resources("200m", "64Mi");
        create(server, &day, "web", HOLDS, json!({"resources": first}));
        let pod = wait_resized(server, "web", &first);
        let cgroup = of_pod(&day, &pod);
        let own = of_container(&cgroup, "c", 0);
        let Some(before) = limits(&own) else {
            skip("needs the cgroup controllers cpu and memory");
            return end(server, day);
        };
        assert_eq!(before, (64 * MI, 20_000));

        let more = resources("400m", "96Mi");
        resize(server, "web", more.clone());
        let grown = wait_resized(server, "web", &more);
        assert_eq!(limits(&own), Some((96 * MI, 40_000)));
        assert_eq!(limits(&cgroup), Some((96 * MI, 40_000)));
        assert_eq!(
            container(&grown)["containerID"],
            container(&pod)["containerID"]
        );
        let generation = &grown["metadata"]["generation"];
        assert_eq!(&grown["status"]["observedGeneration"], generation);

        // The next daemon knows what is in effect.
        day.kill9();
        day.start();
        let less = resources("300m", "80Mi");
        resize(server, "web", less.clone());
        wait_resized(server, "web", &less);
        assert_eq!(limits(&own), Some((80 * MI, 30_000)));
        assert_eq!(limits(&cgroup), Some((80 * MI, 30_000)));

        // Less than it uses is not set, and a limit that fits ends the trouble.
        resize(server, "web", resources("300m", "2Mi"));
        let refused = server.wait_for_pod("web", |pod| {
            condition(pod, "PodResizeInProgress")["reason"] == "Error"
        });
        let message = condition(&refused, "PodResizeInProgress")["message"]
            .as_str()
            .unwrap();
        let words =
            "cannot resize container c: its memory limit would be 2097152 bytes, and it uses ";
        assert!(message.starts_with(words), "{message}");
        assert_eq!(container(&refused)["resources"], less);
        assert_eq!(limits(&own), Some((80 * MI, 30_000)));

        let never = json!({"requests": {"cpu": "10m", "memory": "1Pi"}, "limits": {"cpu": "300m", "memory": "1Pi"}});
        resize(server, "web", never);
        let pending = server.wait_for_pod("web", |pod| {
            condition(pod, "PodResizePending")["reason"] == "Infeasible"
        });
        assert_eq!(container(&pending)["resources"], less);
        assert_eq!(container(&pending)["allocatedResources"], less["requests"]);
        resize(server, "web", less.clone());
        wait_resized(server, "web", &less);
        day.check_starts("web", 1);
        end(server, day);
    });
}

#[test]
fn a_container_whose_policy_asks_for_it_restarts_with_its_resources() {
    in_a_cluster(|server, day| {
        let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let of = |memory: &str| resources("200m", memory);
        let more = json!({"resources": of("64Mi"), "resizePolicy": policy});
        create(server, &day, "web", HOLDS, more);
        resize(server, "web", of("96Mi"));
        let pod = wait_resized(server, "web", &of("96Mi"));
        assert_eq!(container(&pod)["restartCount"], 1);
        day.check_starts("web", 2);
        let own = of_container(&of_pod(&day, &pod), "c", 1);
        assert!(limits(&own).is_none_or(|(memory, _)| memory == 96 * MI));
        // Another resource needs no restart.
        let cpu = resources("300m", "96Mi");
        resize(server, "web", cpu.clone());
        wait_resized(server, "web", &cpu);
        day.check_starts("web", 2);
        end(server, day);
    });
}
