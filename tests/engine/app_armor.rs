//! Pods with AppArmor profiles on a real daemon, where the kernel has none: what asks for one is rejected, as a kubelet
//! rejects it. What a kernel with AppArmor does is tested with files that stand in for its own, in src.

use std::fs;
use std::path::Path;

use podprobe::api::PodPhase;
use podprobe::engine::shims::RuntimeChoice;
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};

fn pod(day: &Day, name: &str, profile: Value) -> Value {
    let own = json!({"securityContext": {"appArmorProfile": profile}});
    day.pod(name, FOREVER, own)
}

#[track_caller]
fn is_rejected(day: &Day, name: &str) {
    let status = day.wait("the pod to be rejected", |s| {
        let pod = find(s, name)?;
        (pod.status.phase == PodPhase::Failed).then(|| pod.status.clone())
    });
    let text = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host";
    assert_eq!(
        (status.reason.as_str(), status.message.as_str()),
        ("AppArmor", text)
    );
}

/// The daemon starts, and says why it does not do what the configuration asks for.
#[test]
fn without_app_armor_no_profile_is_loaded_and_that_is_said() {
    if Path::new("/sys/kernel/security/apparmor").exists() {
        return support::skip::note("this kernel has AppArmor");
    }
    support::on(RuntimeChoice::Embedded, |node| {
        let mut day = Day::begin(node);
        let said = "loadAppArmorProfile: the kernel enforces no AppArmor profiles; none is loaded";
        assert!(!day.log().contains(said));
        day.kill9();
        let file = node.layout.config_file();
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config["loadAppArmorProfile"] = json!(true);
        fs::write(&file, config.to_string()).unwrap();
        day.start();
        day.log_with(&[said]);
        day.end();
    });
}

#[test]
fn without_app_armor_a_pod_that_asks_for_a_profile_is_rejected() {
    if Path::new("/sys/kernel/security/apparmor").exists() {
        return support::skip::note("this kernel has AppArmor");
    }
    support::on(RuntimeChoice::Embedded, |node| {
        let day = Day::begin(node);
        day.put(
            "default",
            pod(&day, "default", json!({"type": "RuntimeDefault"})),
        );
        let localhost = json!({"type": "Localhost", "localhostProfile": "mine"});
        day.put("localhost", pod(&day, "localhost", localhost));
        let mut old = day.pod("old", FOREVER, json!({}));
        let key = "container.apparmor.security.beta.kubernetes.io/c";
        old["metadata"]["annotations"] = json!({key: "runtime/default"});
        day.put("old", old);
        day.put(
            "unconfined",
            pod(&day, "unconfined", json!({"type": "Unconfined"})),
        );
        for name in ["default", "localhost", "old"] {
            is_rejected(&day, name);
        }
        day.wait_ready("unconfined");
        day.end();
    });
}
