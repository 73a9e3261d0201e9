//! Tests of the runner on the fake runtime. The exchange of an httpGet hook is tested beside its code. Whole hooks with
//! real containers are tested in tests/kubelet/hooks.rs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::engine::runtime::{ExecOutcome, Labels, RuntimeError, RuntimeState};
use crate::fake_runtime::{FakeRuntime, container_status};
use crate::pods::events::Recorder;

/// A pod with one container.
pub(super) struct Example {
    pod: Pod,
    id: ContainerId,
}

impl Example {
    pub(super) fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(lifecycle: Value) -> Self {
        let container = json!({"name": "c", "lifecycle": lifecycle});
        let pod = Pod {
            metadata: serde_json::from_value(json!({"name": "p", "namespace": "d", "uid": "u"}))
                .unwrap(),
            spec: serde_json::from_value(json!({"containers": [container]})).unwrap(),
            raw: Default::default(),
        };
        let id = "1".into();
        Self { pod, id }
    }

    pub(super) fn subject(&self) -> HookSubject<'_> {
        HookSubject {
            pod: &self.pod,
            container: &self.pod.spec.containers[0],
            id: &self.id,
        }
    }
}

fn runner(runtime: FakeRuntime) -> HandlerRunner {
    HandlerRunner {
        runtime: Arc::new(runtime),
        recorder: Arc::<Recorder>::default(),
        node_ip: "192.0.2.1".parse().unwrap(),
        allow_probe_hosts: Vec::new(),
    }
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_container_without_a_hook_of_that_kind_has_nothing_to_run() {
    let r = runner(FakeRuntime::default());
    let example = Example::with(json!({"preStop": {"tcpSocket": {"port": 1}}}));
    assert_eq!(r.post_start(example.subject(), &Cancel::default()), Ok(()));
    let invalid = "Cannot run handler: invalid handler: tcpSocket";
    assert_eq!(
        r.pre_stop(example.subject(), LONG, Duration::ZERO, &Cancel::default()),
        Err(HookError::Failed(invalid.to_owned().into()))
    );
}

#[test]
fn a_sleep_takes_its_time_and_ends_with_the_grace_period_or_the_cancellation() {
    let r = runner(FakeRuntime::default());
    let ran_before = |seconds: i64, grace, ran, cancel: &Cancel| {
        let example = Example::with(json!({"preStop": {"sleep": {"seconds": seconds}}}));
        let begun = std::time::Instant::now();
        (
            r.pre_stop(example.subject(), grace, ran, cancel),
            begun.elapsed(),
        )
    };
    let pre_stop =
        |seconds, grace, cancel: &Cancel| ran_before(seconds, grace, Duration::ZERO, cancel);
    let cancel = Cancel::default();
    assert_eq!(pre_stop(0, LONG, &cancel).0, Ok(()));
    let (ended, took) = pre_stop(3600, Duration::from_millis(20), &cancel);
    assert!(took >= Duration::from_millis(20));
    assert_eq!(ended, Ok(()), "the end of the grace period is no failure");
    let (ran, left) = (Duration::from_millis(3_599_980), Duration::from_millis(20));
    let (ended, took) = ran_before(3600, LONG, ran, &cancel);
    assert!(took >= left && ended == Ok(()), "{took:?} {ended:?}");
    assert_eq!(ran_before(3600, LONG, LONG * 2, &cancel).0, Ok(()));
    std::thread::scope(|scope| {
        let sleeps = scope.spawn(|| pre_stop(3600, LONG, &cancel).0);
        cancel.cancel();
        assert_eq!(sleeps.join().unwrap(), Err(HookError::Cancelled));
    });
}

#[test]
fn a_command_is_run_as_it_is_written() {
    let fake = FakeRuntime::with_exec(|_, command| match command {
        [word] if word == "$(HOME)" => Ok(ExecOutcome::Exited {
            code: 0,
            output: Vec::new(),
        }),
        other => Err(RuntimeError::failed(other.join(" "))),
    });
    let running = container_status("1", Labels::new(), RuntimeState::Running);
    fake.state().containers.push(running);
    let r = runner(fake);
    let example = Example::with(json!({"postStart": {"exec": {"command": ["$(HOME)"]}}}));
    let post_start = |cancel: &Cancel| r.post_start(example.subject(), cancel);
    assert_eq!(post_start(&Cancel::default()), Ok(()));
    let cancel = Cancel::default();
    cancel.cancel();
    assert_eq!(post_start(&cancel), Err(HookError::Cancelled));
}

#[test]
fn a_failure_is_an_event_without_what_was_written_and_a_cancellation_is_none() {
    let failed = HookError::Failed(Failure {
        text: "secret".into(),
        cause: "why".into(),
    });
    assert_eq!(
        failed.event(HookKind::PostStart),
        Some(("FailedPostStartHook", "PostStartHook failed: why".into()))
    );
    assert_eq!(
        failed.event(HookKind::PreStop),
        Some(("FailedPreStopHook", "PreStopHook failed: why".into()))
    );
    for kind in HookKind::ALL {
        assert_eq!(HookError::Cancelled.event(kind), None);
    }
}

#[test]
fn a_host_that_is_not_the_pods_is_refused() {
    let r = runner(FakeRuntime::default());
    let example = Example::with(
        json!({"preStop": {"httpGet": {"path": "/x", "port": 80, "host": "192.0.2.77"}}}),
    );
    let Err(HookError::Failed(Failure { text, .. })) =
        r.pre_stop(example.subject(), LONG, Duration::ZERO, &Cancel::default())
    else {
        panic!("it was sent");
    };
    let beginning =
        "HTTP lifecycle hook (/x) for Container \"c\" in Pod \"p_d(u)\" failed - error: ";
    assert!(
        text.starts_with(beginning) && text.contains("allowProbeHosts"),
        "{text}"
    );
}
