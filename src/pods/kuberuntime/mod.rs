//! The layer between pods and the runtime (the kubelet's `kuberuntime`): the steps by which a pod becomes a sandbox and
//! containers.
//!
//! Invariants: each step is a separate function that does one thing: pod directory, volumes, sandbox, and then for each
//! container image, configuration, create, start. The caller decides about order, events and back-off
//! ([`crate::pods::workers`]). The content of a configuration is decided by [`crate::pods::container_config`].

mod error;
mod etc;
mod log_links;
mod port_forward;
mod pull_secrets;
mod services;

use std::fs::{self, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use error::{StartError, StartErrorReason};
pub use etc::NodeDns;
pub use port_forward::port_forward;
pub use services::{NoServices, ServiceVariables};

use log_links::Linked;
use pull_secrets::PullSecrets;

use crate::api::pod::ImageVolume;
use crate::api::{Container, Pod, PodSource, PodUid};
use crate::base::cancel::Cancel;
use crate::base::clock::Moment;
use crate::base::live::Live;
use crate::base::paths::Layout;
use crate::base::remove_tree::remove_tree;
use crate::engine::images::Image;
use crate::engine::images::manager::{
    ImageEvent, ImageManager, ImageRequest, ImageWaitReason, PullPolicy,
};
use crate::engine::runtime::{
    ContainerConfig, ContainerId, ImageSpec, Runtime, RuntimeError, RuntimePodStatus, SandboxConfig,
};
use crate::net::network::etc_files::EtcFiles;
use crate::pods::admission;
use crate::pods::container_config::{self, DnsWarning, ImageVolumes, NodeFacts, ResourcePolicy};
use crate::pods::objects::Objects;
use crate::pods::volumes::{
    Context, LimitedVolume, MountedVolumes, Outdated, VolumeError, Volumes,
};

/// Longest wait for the first answers about the objects of a pod of an API server. After it an event says what is missing.
const OBJECTS: Duration = Duration::from_secs(10);
/// Longest wait for the services of an API server. Without the link, they stay unknown.
const SERVICES: Duration = Duration::from_secs(1);

/// Turns pods into sandboxes and containers. Every method blocks for as long as the disk or the runtime does.
pub struct KubeRuntime {
    runtime: Arc<dyn Runtime>,
    images: ImageManager,
    volumes: Volumes,
    objects: Arc<Objects>,
    node: NodeFacts,
    /// The node with its labels, by which volumes choose it.
    labelled: Live<admission::Node>,
    resource_policy: Live<ResourcePolicy>,
    dns: NodeDns,
    services: Box<dyn ServiceVariables>,
    layout: Layout,
}

impl KubeRuntime {
    /// Makes the layer for the pods of this node. `runtime` runs the pods, and the files of the pods are below
    /// `layout`.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        images: ImageManager,
        volumes: Volumes,
        objects: Arc<Objects>,
        node: NodeFacts,
        layout: Layout,
    ) -> Self {
        Self {
            runtime,
            images,
            volumes,
            objects,
            node,
            labelled: Live::default(),
            resource_policy: Live::default(),
            dns: NodeDns::default(),
            services: Box::new(NoServices),
            layout,
        }
    }

    /// Sets the node with its labels.
    #[must_use]
    pub fn with_labels(mut self, node: Live<admission::Node>) -> Self {
        self.labelled = node;
        self
    }

    /// Sets the configured resolver and names of the cluster.
    #[must_use]
    pub fn with_dns(mut self, dns: NodeDns) -> Self {
        self.dns = dns;
        self
    }

    /// Sets the configured rules for the resources of pods.
    #[must_use]
    pub fn with_resource_policy(mut self, policy: Live<ResourcePolicy>) -> Self {
        self.resource_policy = policy;
        self
    }

    /// Sets the source of the variables of services.
    #[must_use]
    pub fn with_services(mut self, services: Box<dyn ServiceVariables>) -> Self {
        self.services = services;
        self
    }

    /// Returns the source of the variables of services that containers get.
    pub fn services(&self) -> &dyn ServiceVariables {
        &*self.services
    }

    /// Returns the runtime itself, for stopping, removing, listing and exec.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Returns the image manager, which knows the progress of pulls.
    pub fn images(&self) -> &ImageManager {
        &self.images
    }

    /// Makes the directory for the pod's data.
    ///
    /// # Errors
    /// Returns the disk's error if the directory cannot be made.
    pub fn make_pod_dir(&self, pod: &Pod) -> io::Result<()> {
        self.layout.make(&self.layout.pod_data(pod.uid()))
    }

    /// Returns the types of volumes.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Waits until it is known which of the pod's objects exist, and for a shorter time until its services are known, without
    /// which it can start. Returns at once when `cancel` is cancelled.
    pub fn wait_for_objects(&self, pod: &Pod, cancel: &Cancel) {
        self.objects.wait_until_known(pod, cancel, OBJECTS);
        self.objects.wait_for_services(pod, cancel, SERVICES);
    }

    /// Makes the pod's volumes ready. Does nothing for volumes that are already ready.
    ///
    /// # Errors
    /// Returns the error of the first volume that is not ready.
    pub fn set_up_volumes(&self, pod: &Pod) -> Result<MountedVolumes, VolumeError> {
        self.with_context(pod, |of, dir| self.volumes.set_up(of, dir))
    }

    /// Makes the volumes of a sandbox ready for its containers. Volumes of objects get their content. If `is_new` is
    /// true, no container has used the volumes yet, and all other volumes get the pod's group.
    ///
    /// # Errors
    /// Returns an error if the sandbox is not running.
    pub fn fill_volumes(
        &self,
        sandbox: &ContainerId,
        volumes: &MountedVolumes,
        is_new: bool,
    ) -> Result<Vec<Outdated>, RuntimeError> {
        if !volumes.need_root() {
            return Ok(Vec::new());
        }
        let root = self.runtime.volumes_root(sandbox)?;
        if is_new {
            // If a file does not get the group, the start continues, as in the kubelet.
            let left = volumes.give_to_group(&root);
            left.iter().for_each(|e| log::warn!("{e}"));
        }
        Ok(volumes.fill(&root))
    }

    /// Brings the content of a running pod's volumes up to date with the objects that they show. Returns the volumes
    /// that keep their old content.
    ///
    /// # Errors
    /// Returns an error if the sandbox is not running.
    pub fn update_volumes(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
    ) -> Result<Vec<Outdated>, RuntimeError> {
        let volumes = self.with_context(pod, |of, dir| self.volumes.update(of, dir));
        self.fill_volumes(sandbox, &volumes, false)
    }

    fn with_context<T>(&self, pod: &Pod, f: impl FnOnce(&Context<'_>, &Path) -> T) -> T {
        let node = self.labelled.get();
        let context = Context {
            pod,
            objects: &self.objects.of_pod(pod),
            allocatable: self.node.allocatable,
            node_name: &node.name,
            node_labels: &node.labels,
            claims: &self.layout.claims(),
        };
        f(&context, &self.layout.pod_data(pod.uid()))
    }

    /// Runs a new sandbox, and writes /etc/hosts and similar files for its containers. Warnings about the pod's
    /// resolver are passed to `warn`.
    ///
    /// # Errors
    /// Returns the error of the disk or of the runtime, or an error if the pod's host name is too long.
    pub fn run_sandbox(
        &self,
        pod: &Pod,
        attempt: u32,
        volumes: &MountedVolumes,
        warn: &mut dyn FnMut(DnsWarning),
    ) -> Result<ContainerId, RuntimeError> {
        let handler = self.runtime_handler(pod)?;
        let config = self.sandbox_config(pod, attempt, handler, volumes)?;
        let files = EtcFiles::below(&self.layout.pod_data(pod.uid()));
        files.forget().map_err(|e| {
            RuntimeError::failed(format!("cannot remove {}: {e}", files.hosts.display()))
        })?;
        let id = self.runtime.run_sandbox(&config)?;
        match self.write_etc_files(pod, &files) {
            Ok(warnings) => warnings.into_iter().for_each(warn),
            Err(e) => {
                let _ = self.runtime.remove_sandbox(&id);
                return Err(e);
            }
        }
        Ok(id)
    }

    /// Writes the files of /etc, which have the addresses of the sandbox. The files are written once for each sandbox,
    /// because running containers have mounted the files and may have changed them.
    fn write_etc_files(
        &self,
        pod: &Pod,
        files: &EtcFiles,
    ) -> Result<Vec<DnsWarning>, RuntimeError> {
        let status = self.runtime.pod_status(pod.uid())?;
        self.dns.write(pod, status.ips(), files)
    }

    /// Returns the image of a container, and pulls it if needed. A cancelled pull ends soon. Events are passed to
    /// `record` as they happen.
    ///
    /// # Errors
    /// Returns an error if there is no image to start the container with.
    pub fn image(
        &self,
        pod: &Pod,
        container: &Container,
        cancel: &Cancel,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<Image, StartError> {
        let policy = PullPolicy::named(&container.image_pull_policy);
        self.ensure_image(pod, &container.image, policy, cancel, record)
    }

    /// Returns the image of a volume, like [`Self::image`].
    ///
    /// # Errors
    /// Returns an error if there is no image to mount.
    pub fn volume_image(
        &self,
        pod: &Pod,
        volume: &ImageVolume,
        cancel: &Cancel,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<ImageSpec, StartError> {
        let policy = PullPolicy::named(&volume.pull_policy);
        let image = self.ensure_image(pod, &volume.reference, policy, cancel, record)?;
        Ok(ImageSpec {
            id: image.id,
            name: volume.reference.clone(),
        })
    }

    fn ensure_image(
        &self,
        pod: &Pod,
        image: &str,
        policy: PullPolicy,
        cancel: &Cancel,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<Image, StartError> {
        let secrets = PullSecrets::of(pod, &self.objects.of_pod(pod));
        let request = ImageRequest {
            pod_uid: pod.uid().as_str(),
            image,
            policy,
            credentials: &secrets.configs,
            cancelled: &|| cancel.is_cancelled(),
        };
        let ensured = self.images.ensure(request, &Moment::now, record);
        let failed = ensured
            .as_ref()
            .is_err_and(|e| e.reason == ImageWaitReason::ErrImagePull);
        if let Some(message) = secrets.warning().filter(|_| failed) {
            record(ImageEvent {
                warning: true,
                reason: "FailedToRetrieveImagePullSecret",
                message,
            });
        }
        Ok(ensured?)
    }

    /// Makes the configuration of one instance, and the file for its termination message.
    ///
    /// # Errors
    /// Returns an error if the pod's spec cannot become a container.
    pub fn container_config(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
        image: &Image,
        volumes: &MountedVolumes,
        image_volumes: &ImageVolumes,
    ) -> Result<ContainerConfig, StartError> {
        let termination_log = self.termination_log(pod, container, attempt).map_err(|e| {
            StartError::new(
                StartErrorReason::CreateContainerError,
                format!("cannot make the termination log: {e}"),
            )
        })?;
        let etc_files = EtcFiles::below(&self.layout.pod_data(pod.uid()));
        if !etc_files.are_written() {
            // The daemon that made the sandbox was killed before it could write the files, or somebody has removed one.
            self.write_etc_files(pod, &etc_files)
                .map_err(StartError::create)?;
        }
        let mut config = container_config::container(&container_config::Inputs {
            pod,
            container,
            attempt,
            image_id: &image.id,
            image_user: &image.config.user,
            volumes,
            image_volumes,
            etc_files: &etc_files,
            termination_log,
            seccomp_profiles: &self.layout.seccomp(),
            node: &self.node,
            resource_policy: self.resource_policy.get(),
            objects: &self.objects.of_pod(pod),
            services: &self.services.of(pod),
            pod_ips: &self.pod_ips(pod, container),
        })?;
        config.processes_of = self.target_of(pod, container)?;
        Ok(config)
    }

    /// Returns the container whose processes an ephemeral container is to see.
    fn target_of(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<Option<ContainerId>, StartError> {
        let mut ephemeral = pod.spec.ephemeral_containers.iter();
        let found = ephemeral.find(|c| c.container.name == container.name);
        let target = found.map(|c| c.target_container_name.as_str());
        let Some(target) = target.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let status = self.runtime.pod_status(pod.uid());
        let found = status
            .ok()
            .and_then(|s| s.container(target).map(|c| c.id.clone()));
        found.map(Some).ok_or_else(|| {
            let text = format!("unable to find target container {target:?}");
            StartError::new(StartErrorReason::CreateContainerConfigError, text)
        })
    }

    /// Returns the pod's addresses, or an empty list if no variable of the container needs them.
    fn pod_ips(&self, pod: &Pod, container: &Container) -> Vec<IpAddr> {
        if !container_config::needs_pod_ips(container) {
            return Vec::new();
        }
        let status = self.runtime.pod_status(pod.uid());
        status.map_or_else(|_| Vec::new(), |status| status.ips().to_vec())
    }

    /// Gives the cgroup of a pod the weights and limits of `to`. A limit that is lower there than in `from` stays: containers
    /// still have theirs.
    ///
    /// # Errors
    /// Returns the runtime's error.
    pub fn resize_pod(&self, from: &Pod, to: &Pod) -> Result<(), RuntimeError> {
        let of = |pod| container_config::pod_resources(pod, self.resource_policy.get());
        let resources = container_config::larger(&of(from), &of(to));
        let cgroup = self.layout.pod_cgroup(to.uid());
        self.runtime.update_pod(&cgroup, &resources)
    }

    /// Gives a running container the resources of the pod's spec.
    ///
    /// # Errors
    /// Returns the runtime's error.
    pub fn resize_container(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
    ) -> Result<(), RuntimeError> {
        let resources =
            container_config::resources(pod, container, &self.node, self.resource_policy.get());
        let resources = resources.map_err(|e| RuntimeError::failed(e.to_string()))?;
        self.runtime
            .update_container(id, &resources, &container.resources)
    }

    /// Creates a container.
    ///
    /// # Errors
    /// Returns the runtime's error. No part of the container is then left.
    pub fn create_container(
        &self,
        pod: &Pod,
        sandbox: &ContainerId,
        config: &ContainerConfig,
        volumes: &MountedVolumes,
    ) -> Result<ContainerId, StartError> {
        // The attempt number of the sandbox has no effect on a container. Its runtime is the sandbox's, unless the record of the
        // sandbox does not say which.
        let handler = self.runtime_handler(pod);
        let handler = handler.unwrap_or_else(|_| class_of(pod).to_owned());
        self.sandbox_config(pod, 0, handler, volumes)
            .and_then(|of| self.runtime.create_container(sandbox, config, &of))
            .map_err(StartError::create)
    }

    /// Starts a created container, and links its log in the directory of log collectors.
    ///
    /// # Errors
    /// Returns the runtime's error. The container then stays as a failed container.
    pub fn start_container(
        &self,
        pod: &Pod,
        config: &ContainerConfig,
        id: &ContainerId,
    ) -> Result<(), StartError> {
        self.runtime.start_container(id).map_err(StartError::run)?;
        let log = self.log_directory(pod).join(&config.log_path);
        let m = &pod.metadata;
        let of = Linked {
            uid: pod.uid(),
            pod: &m.name,
            namespace: &m.namespace,
            container: &config.metadata.name,
            id,
        };
        log_links::link(&self.layout, &of, &log);
        Ok(())
    }

    /// Removes a stopped container of a pod and the link of its log.
    ///
    /// # Errors
    /// Returns the runtime's error.
    pub fn remove_container(
        &self,
        pod: &RuntimePodStatus,
        name: &str,
        id: &ContainerId,
    ) -> Result<(), RuntimeError> {
        self.runtime.remove_container(id)?;
        let of = Linked {
            uid: &pod.uid,
            pod: &pod.name,
            namespace: &pod.namespace,
            container: name,
            id,
        };
        log_links::unlink(&self.layout, &of);
        Ok(())
    }

    /// Removes the volumes that only a running pod needs: its emptyDirs.
    ///
    /// # Errors
    /// Returns an error if a part of a volume cannot be removed.
    pub fn tear_down_volumes(&self, pod: &Pod) -> io::Result<()> {
        self.volumes
            .tear_down(pod, &self.layout.pod_data(pod.uid()))
    }

    /// Returns the pod's volumes on the disk that have a size limit.
    pub fn limited_volumes(&self, pod: &Pod) -> Vec<LimitedVolume> {
        let dir = self.layout.pod_data(pod.uid());
        self.volumes.limited(pod, &dir)
    }

    /// Returns the pods that have data on the disk. If such a pod no longer exists, an earlier daemon was killed while
    /// it removed the pod. Housekeeping then removes the data.
    pub fn pods_with_data(layout: &Layout) -> Vec<PodUid> {
        let entries = fs::read_dir(layout.lib_dir().join("pods"));
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str().map(PodUid::from))
            .collect()
    }

    /// Removes the links to logs that no longer exist. Such links belong to pods whose data was damaged, or removed by
    /// another program.
    pub fn sweep_log_links(layout: &Layout) {
        log_links::sweep(layout);
    }

    /// Removes the volumes and logs of a pod whose containers and sandboxes are removed. The function may be called
    /// again. If only the UID of a pod from an earlier daemon is known, the logs are found by a listing of the logs of
    /// all pods.
    ///
    /// # Errors
    /// Returns an error if a container or sandbox of the pod still exists, or if the disk cannot remove the data.
    pub fn remove_pod_data(&self, pod: &Pod) -> Result<(), RuntimeError> {
        let uid = pod.uid();
        let fail = |cause: String| {
            RuntimeError::failed(format!("cannot remove what is left of pod {uid}: {cause}"))
        };
        let name = uid.as_str();
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            return Err(fail("not a pod's UID".into()));
        }
        let RuntimePodStatus {
            containers,
            sandboxes,
            ..
        } = self.runtime.pod_status(uid)?;
        let left = containers.len() + sandboxes.len();
        if left > 0 {
            return Err(fail(format!(
                "{left} of its containers and sandboxes are still there"
            )));
        }
        let logs = match pod.metadata.name.is_empty() {
            false => vec![self.log_directory(pod)],
            true => self.log_directories_of(uid),
        };
        for logs in logs {
            remove_tree(&logs).map_err(|e| fail(e.to_string()))?;
        }
        log_links::unlink_all(&self.layout, uid);
        // The data is removed last, because it shows the next daemon that there is still something to remove.
        remove_tree(&self.layout.pod_data(uid)).map_err(|e| fail(e.to_string()))
    }

    /// Returns the log directories of all pods that had this UID.
    fn log_directories_of(&self, uid: &PodUid) -> Vec<PathBuf> {
        let suffix = format!("_{uid}");
        let entries = fs::read_dir(self.layout.logs_dir());
        let entries = entries.into_iter().flatten().flatten();
        entries
            .filter(|e| e.file_name().to_string_lossy().ends_with(&suffix))
            .map(|e| e.path())
            .collect()
    }

    /// Returns the name of the runtime for a new sandbox: the handler of the class in the cluster, or for other pods the
    /// class itself.
    ///
    /// # Errors
    /// Returns the kubelet's sentence for a class that the cluster does not have.
    fn runtime_handler(&self, pod: &Pod) -> Result<String, RuntimeError> {
        let class = class_of(pod);
        if class.is_empty() || pod.source() != PodSource::Api {
            return Ok(class.to_owned());
        }
        let objects = self.objects.of_pod(pod);
        let found = objects.runtime_class(class);
        let found = found.map_err(|e| RuntimeError::failed(e.to_string()))?;
        Ok(found.handler.clone())
    }

    fn sandbox_config(
        &self,
        pod: &Pod,
        attempt: u32,
        runtime_handler: String,
        volumes: &MountedVolumes,
    ) -> Result<SandboxConfig, RuntimeError> {
        let names = self.dns.host_names(pod)?;
        Ok(container_config::sandbox(
            &container_config::SandboxInputs {
                pod,
                attempt,
                hostname: &names.kernel,
                runtime_handler,
                log_directory: self.log_directory(pod),
                cgroup_parent: self.layout.pod_cgroup(pod.uid()),
                resource_policy: self.resource_policy.get(),
                volumes,
            },
        ))
    }

    /// Returns the attempt number of the container's newest instance that has left a log.
    pub fn newest_log(&self, pod: &Pod, container: &str) -> Option<u32> {
        let entries = fs::read_dir(self.log_directory(pod).join(container)).ok()?;
        let number = |name: &str| {
            let (number, rest) = name.split_once(".log")?;
            let rotated = rest.is_empty() || rest.starts_with('.');
            rotated.then(|| number.parse().ok()).flatten()
        };
        entries
            .filter_map(|e| number(e.ok()?.file_name().to_str()?))
            .max()
    }

    fn log_directory(&self, pod: &Pod) -> PathBuf {
        let m = &pod.metadata;
        self.layout.pod_logs(&m.namespace, &m.name, pod.uid())
    }

    /// Makes the file for the termination message of this instance. Every user may write the file.
    fn termination_log(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
    ) -> io::Result<Option<PathBuf>> {
        if container.termination_message_path.is_empty() {
            return Ok(None);
        }
        let dir = self
            .layout
            .pod_data(pod.uid())
            .join("containers")
            .join(&container.name);
        self.layout.make(&dir)?;
        let file = dir.join(attempt.to_string());
        fs::write(&file, "")?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(Some(file))
    }
}

/// Returns the pod's runtime class; empty for none.
fn class_of(pod: &Pod) -> &str {
    pod.spec.runtime_class_name.as_deref().unwrap_or_default()
}
