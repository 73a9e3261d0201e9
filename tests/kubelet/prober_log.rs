//! What a probe writes to the log and to the events.

use std::sync::{Arc, Mutex};

use podprobe::api::PodOrigin;
use podprobe::api::decode::objects;
use podprobe::api::{Pod, PodStatus, ProbeType};
use podprobe::engine::runtime::{ContainerId, ExecOutcome, RuntimeError};
use podprobe::pods::events::Recorder;
use podprobe::pods::prober::prober::{Memory, Prober, Subject};

use crate::support::own_process::is_own_process;
use crate::support::probed::{Probed, ProbedRuntime};

static LINES: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = (record.level(), record.args().to_string());
        LINES.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

/// Commands exit with this code.
struct Exits(Mutex<i32>);

impl Probed for Exits {
    fn exec(&self, _: &ContainerId) -> Result<ExecOutcome, RuntimeError> {
        Ok(ExecOutcome::Exited {
            code: *self.0.lock().unwrap(),
            output: b"words".to_vec(),
        })
    }
}

fn pod() -> Pod {
    let raw = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"hostNetwork": true, "containers": [{
            "name": "c", "image": "i",
            "livenessProbe": {"exec": {"command": ["true"]}},
            "readinessProbe": {"httpGet": {"port": 1, "path": "/", "host": "192.0.2.77"}},
        }]}
    });
    let source = PodOrigin::File {
        node_name: "n",
        path: "/p.json".as_ref(),
    };
    let pods = objects(raw.to_string().as_bytes(), &source).unwrap().pods;
    pods[0].pod.clone()
}

#[test]
fn a_day_of_failures_is_one_line_and_a_host_that_is_refused_an_event() {
    let test = "a_day_of_failures_is_one_line_and_a_host_that_is_refused_an_event";
    if !is_own_process(module_path!(), test) {
        return;
    }
    log::set_logger(&Log).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let exits = Arc::new(Exits(Mutex::new(1)));
    let recorder = Arc::new(Recorder::default());
    let runtime = Arc::new(ProbedRuntime(exits.clone()));
    let prober = Prober::new(runtime, recorder.clone(), Vec::new());
    let (pod, status, id) = (pod(), PodStatus::default(), ContainerId::from("id"));
    let subject = Subject {
        pod: &pod,
        status: &status,
        container: "c",
        id: &id,
    };
    let seen = |memory: &mut Memory, probe_type, times: u32| {
        for _ in 0..times {
            prober.probe(probe_type, subject, memory);
        }
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        let mut shown: Vec<_> = lines
            .into_iter()
            .filter(|(l, _)| *l <= log::Level::Info)
            .collect();
        (shown.len() < 2).then(|| shown.pop())
    };
    let line = |level, text: &str| Some(Some((level, text.to_owned())));

    let mut memory = Memory::default();
    let begins = "liveness probe of web-n/c failed: words";
    let liveness = ProbeType::Liveness;
    assert_eq!(
        seen(&mut memory, liveness, 1000),
        line(log::Level::Warn, begins)
    );
    assert_eq!(seen(&mut memory, liveness, 1000), Some(None));
    *exits.0.lock().unwrap() = 0;
    let ends = "liveness probe of web-n/c succeeded";
    assert_eq!(
        seen(&mut memory, liveness, 1000),
        line(log::Level::Info, ends)
    );

    // Parity A1: the event says how to allow the host.
    let mut memory = Memory::default();
    let why = "cannot probe host \"192.0.2.77\": it is neither the pod's address nor loopback, nor an address of this node; leave `host` out, or add it to allowProbeHosts in the configuration";
    let errs = format!("readiness probe of web-n/c cannot be run: {why}");
    let readiness = ProbeType::Readiness;
    assert_eq!(
        seen(&mut memory, readiness, 9),
        line(log::Level::Warn, &errs)
    );
    let events = recorder.list();
    let messages: Vec<_> = events
        .iter()
        .map(|e| (e.message.as_str(), e.count))
        .collect();
    let refused = format!("Readiness probe errored and resulted in unknown state: {why}");
    assert_eq!(
        messages,
        [
            ("Liveness probe failed: words", 2000),
            (refused.as_str(), 9)
        ]
    );
}
