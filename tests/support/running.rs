//! A pod of one container that runs, for tests of what is executed in it.

use std::time::Duration;

use podprobe::api::Pod;
use podprobe::engine::nsexec::{self, ExecError};
use podprobe::engine::runtime::{ContainerId, ExecOutcome};
use podprobe::engine::shims::state::{ContainerState, Process, STATE};
use serde_json::Value;

use super::{Node, NodeRuntime, PROGRAM, pod};

/// A container that has said `up`. [`Self::end`] removes it; when a test fails, its [`Node`] does.
pub(crate) struct Running<'a> {
    pub(crate) node: &'a Node,
    pub(crate) rt: NodeRuntime,
    pub(crate) pod: Pod,
    pub(crate) id: ContainerId,
    pub(crate) process: Process,
    /// Its OCI configuration, as it was started.
    pub(crate) config: Value,
}

impl<'a> Running<'a> {
    pub(crate) fn start(node: &'a Node, name: &str, spec: &Value) -> Self {
        let rt = node.runtime();
        let pod = pod(name, spec.clone());
        let sandbox = rt.run_pod_sandbox(&pod, 0).unwrap();
        let id = rt
            .start_container(&pod, &sandbox, &pod.spec.containers[0], 0)
            .unwrap();
        node.wait_log(&rt, &pod, &id, "up");
        let process = node.record::<ContainerState>(&id, STATE).process.unwrap();
        let config = node
            .layout
            .containers()
            .join(id.as_str())
            .join("bundle/config.json");
        let config = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
        Self {
            node,
            rt,
            pod,
            id,
            process,
            config,
        }
    }

    pub(crate) fn exec(
        &self,
        command: &[String],
        timeout: Duration,
        limit: usize,
    ) -> Result<ExecOutcome, ExecError> {
        self.exec_with(&self.config, command, timeout, limit)
    }

    /// The same with another configuration than it was started with.
    pub(crate) fn exec_with(
        &self,
        config: &Value,
        command: &[String],
        timeout: Duration,
        limit: usize,
    ) -> Result<ExecOutcome, ExecError> {
        let config = serde_json::from_value(config.clone()).unwrap();
        let target = nsexec::Target {
            pid: self.process.pid,
            start_time: self.process.start_time,
            config: &config,
            cgroup: "",
        };
        let options = nsexec::Options {
            helper: PROGRAM.into(),
            ..Default::default()
        };
        nsexec::exec_with(&options, &target, command, timeout, limit)
    }

    /// Exit code and output of a shell script.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> (i32, String) {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        match self.exec(&command, super::CEILING, 1 << 20) {
            Ok(ExecOutcome::Exited { code, output }) => {
                (code, String::from_utf8_lossy(&output).into_owned())
            }
            other => panic!("{script}: {other:?}"),
        }
    }

    /// Pids of the node of all processes in its cgroups, its first among them.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let state: ContainerState = self.node.record(&self.id, STATE);
        let mut all: Vec<i32> = state
            .cgroups
            .iter()
            .flat_map(|d| podprobe::base::sys::cgroup_tree::processes(d))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn end(self) {
        self.node.remove_pod(&self.rt, &self.pod);
    }
}
