//! The labels and annotations that identify the sandboxes and containers of a pod (the kubelet's
//! `pkg/kubelet/types/labels.go`). Tools that read a container runtime know them too.

/// Label: name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: UID of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label: name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation: hash of the spec that the container was made from, in hexadecimal.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
