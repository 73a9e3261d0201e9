//! A step of a DaemonSet.

use serde_json::{Map, Value};

use super::making::{Maker, Recipe};
use super::revisions::{take_up, waiting};
use super::shown::{self, Shown};
use super::{Step, Stepping};
use crate::api::workload::WorkloadSpec;
use crate::workloads::daemon_set::{
    self, DaemonSetInput, DaemonSetOutput, NodeFit, creation_event, deletion_event, pod,
};
use crate::workloads::ports::node_ports;
use crate::workloads::set_rollout_status::daemon_set_rollout;
use crate::workloads::state::{ControllerState, DaemonSetRecord, WorkloadState};

impl Stepping<'_> {
    pub(super) fn daemon_set(&self, state: &WorkloadState, of: &DaemonSetRecord) -> Step {
        let workload = self.effective(&of.overrides);
        let WorkloadSpec::DaemonSet(spec) = &workload.spec else {
            return Step::default();
        };
        let mut record = of.clone();
        take_up(
            &mut record.state.revisions,
            &self.key.name,
            &spec.template.written,
            &workload.metadata.annotations,
            self.world.now,
        );
        let pods = self.pods_of(&self.key.name);
        let mut step = Step::default();
        let images_ready = self.images_of_newest(&record.state.revisions, &pods, &mut step, |_| {});
        let blocked = self.held_port(&spec.template.written.value()["spec"]);
        let fit = match self.world.node.is_selected_by(&spec.template.spec) {
            Some(true) => NodeFit::Runs,
            Some(false) => NodeFit::Leaves {
                reason: "nodeName, nodeSelector or node affinity does not match",
            },
            None => NodeFit::Stays {
                reason: "the labels of the node in the cluster are not known yet",
            },
        };
        let output = daemon_set::step(&DaemonSetInput {
            namespace: &self.key.namespace,
            node: self.world.node.name(),
            spec,
            generation: state.generation,
            fit,
            state: &record.state,
            pods: &pods,
            surge_blocked: blocked.as_deref(),
            images_ready,
            now: self.world.now,
        });
        step.wake_at = super::deployment::earlier(step.wake_at, output.wake_at);
        self.act_for_daemon_set(&output, &mut step);
        let mut shown = Shown::new(self, state, &workload);
        shown.set_status(&output.status);
        shown.view.overrides = of.overrides.lines();
        shown.view.waiting = waiting(&output.wait);
        shown.view.warnings.extend(output.surge_note.clone());
        shown.view.revisions = shown::controller_revisions(&output.state.revisions);
        let rollout = daemon_set_rollout(&self.key.name, state.generation, spec, &output.status);
        shown.view.rollout = Some(shown::set_rollout(rollout));
        step.views = vec![shown.finish()];
        step.state = Some(state.with(ControllerState::DaemonSet(DaemonSetRecord {
            state: output.state,
            ..record
        })));
        step
    }

    fn act_for_daemon_set(&self, output: &DaemonSetOutput, step: &mut Step) {
        let owner = self.owner();
        let mut events = Vec::new();
        let newest = output.state.revisions.newest().filter(|_| output.creates);
        if let Some(newest) = newest
            && let Ok(template) = serde_json::from_slice::<Value>(newest.template.as_bytes())
        {
            let mut maker = Maker::new(self.world, self.key, self.pods);
            let recipe = Recipe {
                template: &crate::api::raw_object::RawObject::new(&template),
                owner: &owner,
                revision: &newest.hash,
                labels: Vec::new(),
                annotations: Vec::new(),
            };
            let node = self.world.node.name();
            maker.make(&self.key.name, recipe, |object: &mut Map<String, Value>| {
                pod::write_into(object, node, &newest.hash);
            });
            events.extend(maker.made.iter().map(|pod| creation_event(&pod.name, None)));
            step.create.extend(maker.made);
        }
        for deletion in &output.deletes {
            events.push(deletion_event(&deletion.pod, None));
        }
        events.extend(output.events.iter().cloned());
        step.events
            .extend(events.into_iter().map(|event| (owner.clone(), event)));
        step.delete
            .extend(self.uids(output.deletes.iter().map(|it| it.pod.as_str())));
    }

    /// Returns why no new pod of this spec can start beside a pod that is there: it holds a port of the node.
    fn held_port(&self, spec: &Value) -> Option<String> {
        let ports = node_ports(spec);
        let active = self.pods.iter().filter(|pod| pod.observed.is_active());
        let mut held = active.filter_map(|pod| {
            let held = node_ports(&pod.record.object["spec"]);
            held.into_iter().find(|port| ports.contains(port))
        });
        let (port, _) = held.next()?;
        Some(format!("hostPort {port} is held by the old pod"))
    }
}
