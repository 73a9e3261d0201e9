//! Admission: decides whether a pod may run on this node beside the pods that already run (kubelet-probes 10). All
//! functions are pure.
//!
//! A pod is rejected for the first reason in the order of kubelet-probes 10. No pod is evicted to make room for another.
//! Taints do not count, because static pods tolerate them. The sync loop decides which pod waits for room and in which
//! order (`pods/sync_loop/places.rs`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::pod::{ContainerPort, PodSpec, ResourceRequirements};
use crate::api::priority::is_critical;
use crate::api::quantity::Quantity;
use crate::api::sysctls::SysctlAllowlist;
use crate::api::{Pod, PodPhase, PodRef, PodStatus, app_armor, huge_pages, pod_resources};

/// The label for the operating system of a node or a pod.
const OS_LABEL: &str = "kubernetes.io/os";
/// The reason for which a pod is rejected if another pod has its host port.
const NODE_PORTS: &str = "NodePorts";
/// The reason for which a pod is rejected if it selects other nodes.
const NODE_AFFINITY: &str = "NodeAffinity";
/// The start of the reason for which a pod is rejected if the node lacks a resource. The name of the resource follows.
const OUT_OF: &str = "OutOf";

/// The resources and properties of the node against which pods are admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name of the node (`nodeName`).
    pub name: String,
    /// The labels of the node: see [`node_labels`]. In a cluster they are those of the Node object.
    pub labels: BTreeMap<String, String>,
    /// True in a cluster as long as it is not known which labels the Node object has.
    pub awaits_labels: bool,
    /// The number of processors in thousandths. 0 means that the number is unknown. No pod is then rejected for lack of
    /// processors.
    pub cpu_milli: i64,
    /// The size of the memory in bytes, including huge pages. 0 means that the size is unknown.
    pub memory: i64,
    /// The huge pages in bytes, by resource name such as `hugepages-2Mi`.
    pub huge_pages: BTreeMap<String, i64>,
    /// The largest number of pods on the node (`maxPods`).
    pub max_pods: usize,
    /// The kernel parameters that pods may set.
    pub sysctls: SysctlAllowlist,
    /// True if the kernel enforces AppArmor profiles.
    pub app_armor: bool,
}

/// Returns the labels of the node: the labels that every kubelet sets, and the configured ones, which may replace them.
pub fn node_labels(name: &str, configured: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    let own = [
        ("kubernetes.io/hostname", name),
        (OS_LABEL, "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.into_iter().chain(configured.clone()).collect()
}

/// The reason of a pod that does not start, because the node is cordoned.
pub const NODE_CORDONED: &str = "NodeCordoned";
/// The reason of a pod that has ended or does not start, because the node is drained.
pub const NODE_DRAINED: &str = "NodeDrained";
/// The reason of a pod that has ended or does not start, because the node shuts down. A kubelet rejects pods with it.
pub const NODE_SHUTDOWN: &str = "NodeShutdown";

/// The order under which no pod starts on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A person has cordoned the node: no pod starts that did not run before.
    Cordoned,
    /// A person has drained the node: the pods end, and none starts.
    Drained,
    /// The node shuts down: the pods end, and none starts until the next boot.
    ShuttingDown,
}

impl Closed {
    /// True if the pods of the node end.
    pub fn ends_pods(self) -> bool {
        self != Self::Cordoned
    }

    /// Returns the rejection of a pod that may not start.
    pub fn rejection(self) -> Rejection {
        match self {
            Self::Cordoned => Rejection::new(
                NODE_CORDONED,
                "the node is cordoned; podprobe uncordon lets it start",
            ),
            Self::Drained => Rejection::new(
                NODE_DRAINED,
                "the node is drained; podprobe uncordon lets it start",
            ),
            // The kubelet's words.
            Self::ShuttingDown => Rejection::new(
                NODE_SHUTDOWN,
                "Pod was rejected as the node is shutting down.",
            ),
        }
    }
}

/// The reason why a pod is rejected. `reason` becomes `status.reason`. In `status.message`, `message` follows `Pod was
/// rejected: `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason for the rejection, in one word.
    pub reason: Cow<'static, str>,
    /// The kubelet's sentence about the rejection. The sentence names the part of the pod that caused the rejection.
    pub message: String,
}

/// The start of the message in the status of a rejected pod.
const REJECTED: &str = "Pod was rejected: ";
/// The start of the message in the status of a pod that gets room as soon as ending pods have ended.
const WAITING: &str = "Pod waits until other pods have ended: ";
/// The start of the message in the status of a pod that starts as soon as the node takes pods again.
const HELD_BACK: &str = "Pod waits for the node: ";

impl Rejection {
    fn new(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self { reason, message }
    }

    /// Reads the rejection from a status. Returns `None` if the status is not that of a rejected or waiting pod.
    pub fn of(status: &PodStatus) -> Option<Self> {
        let message = status.message.strip_prefix(REJECTED);
        let message = message.or_else(|| status.message.strip_prefix(WAITING));
        let message = message.or_else(|| status.message.strip_prefix(HELD_BACK))?;
        Some(Self::new(status.reason.clone(), message))
    }

    /// Returns the message in the status of a rejected pod.
    pub fn text(&self) -> String {
        format!("{REJECTED}{}", self.message)
    }

    /// Returns the message in the status of a pod that gets room as soon as ending pods have ended.
    pub fn waiting_text(&self) -> String {
        format!("{WAITING}{}", self.message)
    }

    /// Returns the message in the status of a pod that starts as soon as the node takes pods again.
    pub fn held_back_text(&self) -> String {
        format!("{HELD_BACK}{}", self.message)
    }

    /// True if the reason goes by itself: room comes when other pods go, and a node takes pods again. Any other reason lasts
    /// until somebody changes the pod's file, the configuration or a label of the node.
    pub fn is_temporary(&self) -> bool {
        self.reason == NODE_PORTS || self.reason.starts_with(OUT_OF) || self.is_of_closed_node()
    }

    /// Returns what the pod does: it was rejected if it is in an end phase, otherwise it waits.
    pub fn consequence(&self, phase: PodPhase) -> &'static str {
        match phase.is_terminal() {
            true => "was rejected",
            false if self.is_of_closed_node() => "waits for the node",
            false => "waits until other pods have ended",
        }
    }

    /// True if the pod was rejected because it selects other nodes.
    pub fn is_of_selector(&self) -> bool {
        self.reason == NODE_AFFINITY
    }

    /// True if the pod was rejected because the node takes no pods.
    pub fn is_of_closed_node(&self) -> bool {
        [NODE_CORDONED, NODE_DRAINED, NODE_SHUTDOWN].contains(&&*self.reason)
    }
}

/// The sum of the places, resources and ports that a set of pods uses on the node.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    pods: usize,
    /// The amount of each resource: thousandths of a processor for `cpu`, units for all others.
    resources: BTreeMap<String, i64>,
    ports: Vec<TakenPort>,
}

#[derive(Clone, Debug)]
struct TakenPort {
    port: ContainerPort,
    holder: PodRef,
}

impl Taken {
    /// Adds up the use of these pods.
    pub fn by<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut taken = Self::default();
        pods.into_iter().for_each(|pod| taken.add(pod));
        taken
    }

    /// Adds the use of one more pod.
    pub fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        for name in resource_names(pod) {
            let amount = needs(pod, name);
            if amount != 0 {
                let sum = self.resources.entry(name.to_owned()).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        self.ports.extend(host_ports(pod).map(|port| TakenPort {
            port: port.clone(),
            holder: pod.reference(),
        }));
    }

    fn of(&self, resource: &str) -> i64 {
        self.resources.get(resource).copied().unwrap_or(0)
    }
}

/// Returns the pod without its choice of nodes.
pub fn without_selector(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    let spec = Arc::make_mut(&mut pod.spec);
    spec.node_selector.clear();
    spec.affinity = None;
    pod
}

/// Checks `pod` against the node and against what the active pods in `taken` use.
///
/// # Errors
/// Returns [`Rejection`] with the first reason for which the node rejects the pod.
pub fn admit(pod: &Pod, node: &Node, taken: &Taken) -> Result<(), Rejection> {
    sysctls(pod, node)?;
    operating_system(pod, node)?;
    let resources = resources(pod, node, taken);
    if !is_critical(pod) {
        resources.clone()?;
    }
    affinity(&pod.spec, node)?;
    node_name(pod, node)?;
    free_ports(pod, taken)?;
    // If a critical pod lacks resources, all other reasons except AppArmor are reported first (10).
    resources?;
    app_armor(pod, node)
}

fn app_armor(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    if node.app_armor || app_armor::required(pod).next().is_none() {
        return Ok(());
    }
    Err(Rejection::new(
        "AppArmor",
        "Cannot enforce AppArmor: AppArmor is not enabled on the host",
    ))
}

fn sysctls(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let s = &pod.spec;
    let mut all = s.security_context.sysctls.iter();
    all.try_for_each(|sysctl| {
        node.sysctls
            .check(&sysctl.name, s.host_network, s.host_ipc)
            .map_err(|why| Rejection::new("SysctlForbidden", format!("forbidden sysctl: {why}")))
    })
}

fn operating_system(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let wanted = pod.metadata.labels.get(OS_LABEL);
    if wanted.is_some() && wanted != node.labels.get(OS_LABEL) {
        return Err(Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if pod.spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return Err(Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    Ok(())
}

/// Returns the highest amount of a resource that a pod needs at any one time: thousandths of a processor for `cpu`,
/// units for all others.
fn needs(pod: &Pod, name: &str) -> i64 {
    let containers = pod_resources::needed(pod, |c| request(&c.resources, name));
    containers.saturating_add(amount(pod.spec.overhead.get(name), name))
}

/// Returns the request of a resource, or its limit if there is no request (kubelet-probes 1.1).
fn request(resources: &ResourceRequirements, name: &str) -> i64 {
    amount(
        resources.requests.get(name).or(resources.limits.get(name)),
        name,
    )
}

fn amount(given: Option<&Quantity>, name: &str) -> i64 {
    let amount = given.and_then(|q| {
        if name == "cpu" {
            q.milli_value()
        } else {
            q.value()
        }
    });
    amount.unwrap_or(0)
}

/// Returns the names of the resources that the pod requests.
fn resource_names(pod: &Pod) -> BTreeSet<&str> {
    let names = pod.spec.all_containers().flat_map(|c| {
        let r = &c.resources;
        r.requests.keys().chain(r.limits.keys())
    });
    let names = names.chain(pod.spec.overhead.keys());
    names.map(String::as_str).collect()
}

/// Returns the sentence about a resource of which a pod asks for more than the whole node has; None if there is none.
pub fn beyond_capacity(pod: &Pod, node: &Node) -> Option<String> {
    let all = capacities(pod, node).into_iter();
    let mut all = all.map(|(name, capacity)| (name, needs(pod, name), capacity));
    let (name, requested, capacity) = all.find(|(_, requested, capacity)| requested > capacity)?;
    Some(format!(
        "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
    ))
}

/// Checks whether the node has room for what a pod requests beside other pods.
///
/// # Errors
/// Returns the [`Rejection`] for the first resource that the node lacks.
pub fn resources(pod: &Pod, node: &Node, taken: &Taken) -> Result<(), Rejection> {
    let [count, most] = [taken.pods, node.max_pods].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    fits("pods", 1, count, most)?;
    for (name, capacity) in capacities(pod, node) {
        fits(name, needs(pod, name), taken.of(name), capacity)?;
    }
    Ok(())
}

/// Returns the amount that the node has of each resource for which the pod is checked. An unknown amount of processors
/// or memory is left out. Memory in huge pages does not count as memory.
fn capacities<'a>(pod: &'a Pod, node: &Node) -> Vec<(&'a str, i64)> {
    let huge = node.huge_pages.values();
    let memory = huge.fold(node.memory, |left, huge| left.saturating_sub(*huge).max(0));
    let mut all = Vec::new();
    all.extend((node.cpu_milli > 0).then_some(("cpu", node.cpu_milli)));
    all.extend((node.memory > 0).then_some(("memory", memory)));
    let of_node = |name: &str| node.huge_pages.get(name).copied().unwrap_or(0);
    let huge = resource_names(pod)
        .into_iter()
        .filter(|name| huge_pages::is_resource(name));
    all.extend(huge.map(|name| (name, of_node(name))));
    all
}

fn fits(name: &str, requested: i64, used: i64, capacity: i64) -> Result<(), Rejection> {
    if requested == 0 || requested <= capacity.saturating_sub(used) {
        return Ok(());
    }
    let more = match huge_pages::is_resource(name) {
        true => "; /sys/kernel/mm/hugepages is where the node reserves them",
        false => "",
    };
    Err(Rejection::new(
        format!("{OUT_OF}{name}"),
        format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}{more}"
        ),
    ))
}

/// True if the spec selects the node by its name, its labels and required affinity. A spec without a name of a node
/// selects every name.
pub fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let is_named = spec.node_name.is_empty() || spec.node_name == node.name;
    is_named && affinity(spec, node).is_ok()
}

fn affinity(spec: &PodSpec, node: &Node) -> Result<(), Rejection> {
    let selected = spec.node_selector.iter();
    let mut missing = selected.filter(|(key, value)| node.labels.get(*key) != Some(value));
    let why = match missing.next() {
        Some((key, value)) => format!("nodeSelector wants the label {key}={value}"),
        None => {
            let affinity = spec.affinity.as_ref();
            let required = affinity.and_then(|a| a.node_affinity.as_ref()?.required.as_ref());
            let Some(required) = required else {
                return Ok(());
            };
            if required.selects(&node.name, &node.labels) {
                return Ok(());
            }
            "no term of nodeAffinity matches the node's labels".to_owned()
        }
    };
    Err(Rejection::new(
        NODE_AFFINITY,
        format!(
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: {why}; labels are set by nodeLabels in the configuration, and in a cluster also by 'kubectl label node'"
        ),
    ))
}

fn node_name(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let wanted = &pod.spec.node_name;
    if wanted.is_empty() || *wanted == node.name {
        return Ok(());
    }
    Err(Rejection::new(
        "NodeName",
        "Predicate NodeName failed: node(s) didn't match the requested node name",
    ))
}

fn free_ports(pod: &Pod, taken: &Taken) -> Result<(), Rejection> {
    let wanted: Vec<&ContainerPort> = host_ports(pod).collect();
    let mut held = taken.ports.iter();
    let held = held.find_map(|held| {
        let port = wanted.iter().find(|port| conflict(port, &held.port))?;
        Some((port, &held.holder))
    });
    let Some((port, holder)) = held else {
        return Ok(());
    };
    Err(Rejection::new(
        NODE_PORTS,
        format!(
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: {}/{} is held by pod {}_{}",
            port.protocol, port.host_port, holder.name, holder.namespace
        ),
    ))
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let lasting = pod.spec.containers.iter().chain(pod.spec.sidecars());
    lasting.flat_map(|c| &c.ports).filter(|p| p.host_port > 0)
}

/// Tells whether two ports conflict. Ports conflict if protocol and port are the same, and the addresses are equal or
/// one of them means all addresses.
fn conflict(a: &ContainerPort, b: &ContainerPort) -> bool {
    let every = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.protocol == b.protocol
        && a.host_port == b.host_port
        && (every(&a.host_ip) || every(&b.host_ip) || a.host_ip == b.host_ip)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods::{self, PodBuilder};

    fn node() -> Node {
        let configured = [
            ("disk".to_owned(), "ssd".to_owned()),
            ("slots".to_owned(), "4".to_owned()),
        ];
        Node {
            name: "n".into(),
            labels: node_labels("n", &configured.into()),
            awaits_labels: false,
            cpu_milli: 2000,
            memory: 1 << 30,
            huge_pages: BTreeMap::new(),
            max_pods: 3,
            sysctls: SysctlAllowlist::new((6, 1), &["net.core.*".to_owned()]).unwrap(),
            app_armor: false,
        }
    }

    fn with(name: &str, spec: Value) -> PodBuilder {
        test_pods::pod(name).spec(spec)
    }

    fn asking(cpu: &str, memory: &str) -> Value {
        json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
    }

    fn admit_beside<'a>(
        pod: &Pod,
        node: &Node,
        others: impl IntoIterator<Item = &'a Pod>,
    ) -> Result<(), Rejection> {
        let others = others.into_iter().filter(|o| o.uid() != pod.uid());
        admit(pod, node, &Taken::by(others))
    }

    /// Returns the reason for which `pod` is rejected beside `others`.
    fn reason(pod: PodBuilder, others: &[Pod]) -> Option<&'static str> {
        let rejected = admit_beside(&pod.build(), &node(), others).err()?;
        Some(rejected.reason.into_owned().leak())
    }

    fn pod(uid: &str, port: Value) -> Pod {
        with(uid, json!({"containers": [{"name": "a", "ports": [port]}]})).build()
    }

    #[test]
    fn a_status_tells_of_its_rejection_and_whether_it_is_tried_again() {
        let status = |reason: &str, message: String| PodStatus {
            reason: reason.to_owned(),
            message,
            ..PodStatus::default()
        };
        for (reason, is_temporary) in [
            ("OutOfcpu", true),
            ("OutOfhugepages-2Mi", true),
            ("NodePorts", true),
            (NODE_CORDONED, true),
            (NODE_DRAINED, true),
            (NODE_SHUTDOWN, true),
            ("NodeAffinity", false),
            ("AppArmor", false),
        ] {
            let rejection = Rejection::new(reason, "why");
            assert_eq!(rejection.is_temporary(), is_temporary, "{reason}");
            let texts = [
                rejection.text(),
                rejection.waiting_text(),
                rejection.held_back_text(),
            ];
            for text in texts {
                let found = Rejection::of(&status(reason, text));
                assert_eq!(found.as_ref(), Some(&rejection));
            }
        }
        assert_eq!(Rejection::of(&status("Evicted", "full".into())), None);
    }

    #[test]
    fn capacity_is_shared_by_the_active_pods() {
        let half = || with("h", asking("1", "512Mi")).build();
        assert_eq!(reason(with("a", asking("2", "1Gi")), &[]), None);
        assert_eq!(reason(with("a", asking("1", "512Mi")), &[half()]), None);
        assert_eq!(
            reason(with("a", asking("1001m", "1")), &[half()]),
            Some("OutOfcpu")
        );
        assert_eq!(
            reason(with("a", asking("0", "513Mi")), &[half()]),
            Some("OutOfmemory")
        );
        let limits = json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "3"}}}]});
        let error = admit_beside(&with("a", limits).build(), &node(), [&half()]).unwrap_err();
        assert_eq!(
            error.message,
            "Node didn't have enough resource: cpu, requested: 3000, used: 1000, capacity: 2000"
        );
        let three = ["b", "c", "d"].map(|name| test_pods::pod(name).build());
        assert_eq!(reason(test_pods::pod("a"), &three[..2]), None);
        assert_eq!(reason(test_pods::pod("a"), &three), Some("OutOfpods"));
        assert_eq!(
            reason(test_pods::pod("b"), &three),
            None,
            "it is one of the three"
        );
    }

    #[test]
    fn without_app_armor_only_a_pod_that_asks_for_it_is_rejected() {
        let of_pod = |profile: Value| {
            let context = json!({"appArmorProfile": profile});
            with(
                "a",
                json!({"securityContext": context, "containers": [{"name": "c"}]}),
            )
        };
        for (profile, expected) in [
            (json!({"type": "RuntimeDefault"}), Some("AppArmor")),
            (
                json!({"type": "Localhost", "localhostProfile": "x"}),
                Some("AppArmor"),
            ),
            (json!({"type": "Unconfined"}), None),
            (Value::Null, None),
        ] {
            assert_eq!(reason(of_pod(profile.clone()), &[]), expected);
            let enabled = Node {
                app_armor: true,
                ..node()
            };
            assert_eq!(admit_beside(&of_pod(profile).build(), &enabled, []), Ok(()));
        }
        let key = "container.apparmor.security.beta.kubernetes.io/c";
        let annotated = of_pod(Value::Null).annotation(key, "runtime/default");
        let rejected = admit_beside(&annotated.build(), &node(), []).unwrap_err();
        assert_eq!(
            rejected.message,
            "Cannot enforce AppArmor: AppArmor is not enabled on the host"
        );
    }

    #[test]
    fn huge_pages_are_what_the_node_has_of_them_and_no_memory() {
        let asking = |name: &str, pages: &str| {
            let resources = json!({"limits": {"memory": "1Mi", name: pages}});
            with(
                "a",
                json!({"containers": [{"name": "c", "resources": resources}]}),
            )
            .build()
        };
        let node = Node {
            huge_pages: [("hugepages-2Mi".to_owned(), 8 << 20)].into(),
            ..node()
        };
        let other = with("b", asking_pages("4Mi")).build();
        let reason = |pod: &Pod| {
            let rejected = admit_beside(pod, &node, [&other]).err();
            rejected.map(|r| (r.reason.into_owned(), r.message))
        };
        assert_eq!(reason(&asking("hugepages-2Mi", "4Mi")), None);
        let (why, text) = reason(&asking("hugepages-2Mi", "6Mi")).unwrap();
        assert_eq!(why, "OutOfhugepages-2Mi");
        assert_eq!(
            text,
            "Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 4194304, capacity: 8388608; \
             /sys/kernel/mm/hugepages is where the node reserves them"
        );
        let (why, _) = reason(&asking("hugepages-1Gi", "1Gi")).unwrap();
        assert_eq!(why, "OutOfhugepages-1Gi");
        assert_eq!(reason(&asking("hugepages-1Gi", "0")), None);
        // The node has 1 GiB of memory less 8 MiB of huge pages, and the pod that already runs has 1 MiB.
        let memory = |amount: &str| with("a", self::asking("0", amount)).build();
        assert_eq!(reason(&memory("1015Mi")), None);
        assert_eq!(reason(&memory("1016Mi")).unwrap().0, "OutOfmemory");
    }

    fn asking_pages(pages: &str) -> Value {
        let resources = json!({"limits": {"memory": "1Mi", "hugepages-2Mi": pages}});
        json!({"containers": [{"name": "c", "resources": resources}]})
    }

    #[test]
    fn init_containers_count_one_at_a_time_and_sidecars_with_what_follows() {
        let c =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = c("s", "300m");
        sidecar["restartPolicy"] = "Always".into();
        let needs = |init: Value| {
            let spec = json!({"initContainers": init, "containers": [c("a", "500m")]});
            super::needs(&with("p", spec).build(), "cpu")
        };
        assert_eq!(needs(json!([c("i", "400m"), c("j", "700m")])), 700);
        assert_eq!(needs(json!([c("i", "600m"), sidecar, c("j", "600m")])), 900);
        assert_eq!(needs(json!([sidecar])), 800);
    }

    #[test]
    fn overhead_counts_beside_the_containers() {
        let overhead = |cpu: &str, memory: &str| {
            let mut spec = asking("500m", "1Mi");
            spec["overhead"] = json!({"cpu": cpu, "memory": memory});
            with("a", spec)
        };
        assert_eq!(super::needs(&overhead("250m", "0").build(), "cpu"), 750);
        assert_eq!(reason(overhead("1500m", "1Mi"), &[]), None);
        assert_eq!(reason(overhead("1501m", "1Mi"), &[]), Some("OutOfcpu"));
        assert_eq!(reason(overhead("0", "1Gi"), &[]), Some("OutOfmemory"));
        let other = overhead("1", "0").build();
        let one = with("b", asking("501m", "0"));
        assert_eq!(reason(one, &[other]), Some("OutOfcpu"));
        let pages = with(
            "a",
            json!({"overhead": {"hugepages-2Mi": "2Mi"}, "containers": [{"name": "c"}]}),
        );
        assert_eq!(reason(pages, &[]), Some("OutOfhugepages-2Mi"));
    }

    #[test]
    fn the_selector_and_the_required_affinity_are_matched_with_the_nodes_labels() {
        let selector = |key: &str, value: &str| with("a", json!({"nodeSelector": {key: value}}));
        assert_eq!(reason(selector("disk", "ssd"), &[]), None);
        assert_eq!(reason(selector("kubernetes.io/os", "linux"), &[]), None);
        assert_eq!(reason(selector("disk", "hdd"), &[]), Some("NodeAffinity"));
        let check = |terms: Value, matches: bool| {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let pod = with("a", json!({"affinity": {"nodeAffinity": required}}));
            let expected = (!matches).then_some("NodeAffinity");
            assert_eq!(reason(pod, &[]), expected, "{terms}");
        };
        let label = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!([label("disk", "In", json!(["hdd", "ssd"]))]), true);
        check(json!([label("disk", "NotIn", json!(["ssd"]))]), false);
        check(json!([label("none", "NotIn", json!(["ssd"]))]), true);
        check(json!([label("disk", "Exists", json!([]))]), true);
        check(json!([label("disk", "DoesNotExist", json!([]))]), false);
        check(json!([label("slots", "Gt", json!(["3"]))]), true);
        check(json!([label("slots", "Lt", json!(["4"]))]), false);
        check(json!([label("disk", "Gt", json!(["3"]))]), false);
        check(json!([{}, label("disk", "Exists", json!([]))]), true);
        check(json!([{}]), false);
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        check(json!([named("n")]), true);
        check(json!([named("m")]), false);
    }

    #[test]
    fn another_system_or_node_is_refused() {
        let labelled = |os: &str| test_pods::pod("a").label("kubernetes.io/os", os);
        assert_eq!(reason(labelled("linux"), &[]), None);
        assert_eq!(
            reason(labelled("windows"), &[]),
            Some("PodOSSelectorNodeLabelDoesNotMatch")
        );
        let os = with("a", json!({"os": {"name": "windows"}}));
        assert_eq!(reason(os, &[]), Some("PodOSNotSupported"));
        assert_eq!(
            reason(with("a", json!({"nodeName": "m"})), &[]),
            Some("NodeName")
        );
        assert_eq!(reason(with("a", json!({"nodeName": "n"})), &[]), None);
    }

    #[test]
    fn a_sysctl_that_is_not_allowed_is_refused_before_anything_else() {
        let setting = |name: &str| {
            let sysctls = json!([{"name": name, "value": "1"}]);
            let labelled = test_pods::pod("a").label("kubernetes.io/os", "windows");
            let spec = json!({"securityContext": {"sysctls": sysctls}, "containers": []});
            admit_beside(&labelled.spec(spec).build(), &node(), []).unwrap_err()
        };
        let refused = setting("kernel.msgmax");
        assert_eq!(refused.reason, "SysctlForbidden");
        let message = "forbidden sysctl: \"kernel.msgmax\" not allowlisted";
        assert_eq!(refused.message, message);
        for allowed in ["net.core.somaxconn", "net.ipv4.tcp_rmem"] {
            assert_ne!(setting(allowed).reason, "SysctlForbidden");
        }
    }

    #[test]
    fn of_a_critical_pod_a_lack_of_resources_is_told_last() {
        let mut spec = asking("9", "1");
        spec["nodeSelector"] = json!({"disk": "hdd"});
        let api = with("a", spec.clone()).annotation("kubernetes.io/config.source", "api");
        assert_eq!(reason(api, &[]), Some("OutOfcpu"));
        assert_eq!(reason(with("a", spec), &[]), Some("NodeAffinity"));
    }

    #[track_caller]
    fn check(a: Value, b: Value, admitted: bool) {
        let (a, b) = (pod("a", a), pod("b", b));
        let got = admit_beside(&a, &node(), [&a, &b]);
        assert_eq!(got.is_ok(), admitted, "{got:?}");
    }

    #[test]
    fn host_ports_conflict_by_protocol_port_and_address() {
        let port = |protocol: &str, n: i32, ip: &str| json!({"protocol": protocol, "hostPort": n, "hostIP": ip});
        check(port("TCP", 80, ""), port("TCP", 80, ""), false);
        check(port("TCP", 80, ""), port("TCP", 80, "10.0.0.1"), false);
        check(
            port("TCP", 80, "0.0.0.0"),
            port("TCP", 80, "10.0.0.1"),
            false,
        );
        check(
            port("TCP", 80, "10.0.0.1"),
            port("TCP", 80, "10.0.0.1"),
            false,
        );
        check(
            port("TCP", 80, "10.0.0.2"),
            port("TCP", 80, "10.0.0.1"),
            true,
        );
        check(port("TCP", 80, ""), port("UDP", 80, ""), true);
        check(port("TCP", 80, ""), port("TCP", 81, ""), true);
        check(port("TCP", 0, ""), port("TCP", 0, ""), true);
    }

    #[test]
    fn the_refusal_names_the_holder() {
        let port = || json!({"protocol": "TCP", "hostPort": 80});
        let error = admit_beside(&pod("a", port()), &node(), [&pod("b", port())]).unwrap_err();
        assert_eq!(error.reason, "NodePorts");
        assert!(
            error.message.ends_with("TCP/80 is held by pod b_default"),
            "{}",
            error.message
        );
    }
}
