//! Names of the labels and annotations that identify the sandboxes and containers of a pod (the kubelet's
//! `pkg/kubelet/types/labels.go`). Tools that read a container runtime know these names too.

/// Name of the label that holds the pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Name of the label that holds the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Name of the label that holds the pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Name of the label that holds the container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Name of the annotation that holds the hash of the spec from which the container was made, in hexadecimal.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
