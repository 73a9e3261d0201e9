//! The reasons for which podprobe cannot use a kubeconfig.

use super::server::ServerError;
use crate::api::decode::DecodeError;

/// The error of a kubeconfig that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file is too big.
    #[error("{0} bytes are too many: a kubeconfig must be smaller than 1 MiB")]
    TooBig(usize),
    /// The text is neither YAML nor JSON.
    #[error(transparent)]
    Text(#[from] DecodeError),
    /// The file has no document.
    #[error("the file is empty: write a kubeconfig with a cluster, a user and a context into it")]
    Empty,
    /// The file has more than one document.
    #[error("the file has several documents: leave one kubeconfig in it")]
    Several,
    /// The document is no object.
    #[error("the file is no kubeconfig: it must be an object with clusters, users and contexts")]
    NoObject,
    /// The document is an object of another kind.
    #[error("kind: must be Config, not {0:?}: give the path of a kubeconfig")]
    OtherKind(String),
    /// No context is in use.
    #[error("current-context: Required value: run kubectl config use-context NAME with this file")]
    NoCurrentContext,
    /// A name has no entry in its list.
    #[error("{path}: {name:?} is not in {list}, {}", known(known_names))]
    NotListed {
        /// Path of the field with the name.
        path: String,
        /// Name that the field has.
        name: String,
        /// List in which the name should be.
        list: &'static str,
        /// Names in the list.
        known_names: Vec<String>,
    },
    /// A field that must have a value has none.
    #[error("{0}: Required value: add the field")]
    Lacks(String),
    /// The user has no credentials.
    #[error("{0}: has neither client-certificate nor token: add what the node signs in with")]
    NoCredentials(String),
    /// The value has another type.
    #[error("{path}: must be {expected}")]
    Type {
        /// Path of the field.
        path: String,
        /// Type that the field must have.
        expected: &'static str,
    },
    /// The value is not base64.
    #[error(
        "{0}: must be base64: encode the PEM file with base64 -w0, or name the file in the field without -data"
    )]
    NotBase64(String),
    /// The value is not the URL of an API server.
    #[error("{path}: {cause}")]
    Server {
        /// Path of the field.
        path: String,
        /// Reason.
        cause: ServerError,
    },
    /// podprobe does not support the field.
    #[error("{path}: {cause}")]
    Refused {
        /// Path of the field.
        path: String,
        /// Reason.
        cause: Refusal,
    },
}

/// The reasons for which podprobe refuses a field of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A program should make the credentials.
    #[error(
        "not supported: podprobe runs no credential plugin: write a token into tokenFile from outside, or use a client certificate"
    )]
    Exec,
    /// A provider should make the credentials.
    #[error(
        "not supported: authentication providers were removed from Kubernetes: use a client certificate or tokenFile"
    )]
    AuthProvider,
    /// The node should sign in with a password.
    #[error(
        "not supported: API servers take no passwords since Kubernetes 1.19: use a client certificate or tokenFile"
    )]
    Password,
    /// The node should act as another user.
    #[error(
        "not supported: a node acts as itself: remove the field, and use the credentials of system:node:NAME"
    )]
    Impersonation,
    /// The connection should go through a proxy.
    #[error(
        "not supported: podprobe connects to the API server itself: remove the field, and let a tunnel or a route lead to the server"
    )]
    Proxy,
    /// The token is for TLS bootstrapping only.
    #[error(
        "a bootstrap token is for asking for a certificate, which podprobe does not do: have a client certificate for system:node:NAME signed (kubeadm kubeconfig user --client-name system:node:NAME --org system:nodes), and use it"
    )]
    BootstrapToken,
    /// The certificate should be checked and not be checked.
    #[error("must not be true beside certificate-authority: remove one of the two, best this one")]
    InsecureWithAuthority,
}

fn known(names: &[String]) -> String {
    match names {
        [] => "which is empty: add it there".to_owned(),
        names => format!("which has {}: name one of them", names.join(", ")),
    }
}
