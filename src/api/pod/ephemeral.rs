//! An ephemeral container: one that people add to a running pod to look at it (`kubectl debug`).

use serde::{Deserialize, Serialize};

use super::container::Container;
use super::environment::{EnvFromSource, EnvVar};
use super::security::SecurityContext;
use super::volumes::VolumeMount;

/// An ephemeral container. It has no ports, probes, hooks and resources; it is started once, and the pod's phase and
/// readiness do not depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub struct EphemeralContainer {
    /// The container.
    pub container: Container,
    /// Name of the container whose processes this one sees. Empty: it sees its own, or those of all where the pod shares
    /// them.
    pub target_container_name: String,
}

/// The fields of an ephemeral container in the API.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    name: String,
    image: String,
    image_pull_policy: String,
    command: Vec<String>,
    args: Vec<String>,
    working_dir: String,
    env: Vec<EnvVar>,
    env_from: Vec<EnvFromSource>,
    volume_mounts: Vec<VolumeMount>,
    termination_message_path: String,
    termination_message_policy: String,
    security_context: SecurityContext,
    stdin: bool,
    stdin_once: bool,
    tty: bool,
    target_container_name: String,
}

impl From<Fields> for EphemeralContainer {
    fn from(fields: Fields) -> Self {
        Self {
            container: Container {
                name: fields.name,
                image: fields.image,
                image_pull_policy: fields.image_pull_policy,
                command: fields.command,
                args: fields.args,
                working_dir: fields.working_dir,
                env: fields.env,
                env_from: fields.env_from,
                volume_mounts: fields.volume_mounts,
                termination_message_path: fields.termination_message_path,
                termination_message_policy: fields.termination_message_policy,
                security_context: fields.security_context,
                stdin: fields.stdin,
                stdin_once: fields.stdin_once,
                tty: fields.tty,
                ..Container::default()
            },
            target_container_name: fields.target_container_name,
        }
    }
}

impl From<EphemeralContainer> for Fields {
    fn from(ephemeral: EphemeralContainer) -> Self {
        let container = ephemeral.container;
        Self {
            name: container.name,
            image: container.image,
            image_pull_policy: container.image_pull_policy,
            command: container.command,
            args: container.args,
            working_dir: container.working_dir,
            env: container.env,
            env_from: container.env_from,
            volume_mounts: container.volume_mounts,
            termination_message_path: container.termination_message_path,
            termination_message_policy: container.termination_message_policy,
            security_context: container.security_context,
            stdin: container.stdin,
            stdin_once: container.stdin_once,
            tty: container.tty,
            target_container_name: ephemeral.target_container_name,
        }
    }
}
