//! The kubeconfig with which the node reaches its API server.
//!
//! Invariants: pure. Files that a kubeconfig names are not read here, and a relative path is relative to the
//! kubeconfig. A field that podprobe does not act on is refused if it changes with which identity or by which way the
//! node speaks to the API server. No text and no debug output contains a token or a key.

mod error;
mod fields;
mod server;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::fields::Section;
use crate::api::decode;

pub use error::{KubeconfigError, Refusal};
pub use server::{Server, ServerError};

/// Size in bytes from which a kubeconfig is refused: 1 MiB.
pub const SIZE_LIMIT: usize = 1 << 20;

/// Content that stands in the kubeconfig itself, or in a file that it names.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// The content itself.
    Inline(Vec<u8>),
    /// Absolute path of the file, if the kubeconfig's own path is absolute.
    File(PathBuf),
}

/// Leaves the content out, because it may be a key or a token.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// A client certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Certificate chain in PEM.
    pub certificate: Content,
    /// Private key in PEM.
    pub key: Content,
}

/// The way in which the API server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerCheck {
    /// The certificate must come from one of the authorities of the system.
    SystemAuthorities,
    /// The certificate must come from one of these authorities, which are in PEM.
    Authorities(Content),
    /// The certificate is not checked.
    Nothing,
}

/// The API server and the credentials of the context in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// API server.
    pub server: Server,
    /// The check of the API server's certificate.
    pub check: ServerCheck,
    /// Host name that the API server's certificate must have.
    pub server_name: String,
    /// Client certificate; None if there is only a token.
    pub certificate: Option<ClientCertificate>,
    /// Bearer token; None if there is only a client certificate.
    pub token: Option<Content>,
    /// Warnings for the person who wrote the file. Each begins with the path of the field.
    pub warnings: Vec<String>,
}

impl Kubeconfig {
    /// Reads a kubeconfig in YAML or JSON. `file` is the path of the kubeconfig.
    ///
    /// # Errors
    /// Returns a [`KubeconfigError`] that names the field, why it cannot be used, and what to do about it.
    pub fn read(text: &[u8], file: &Path) -> Result<Self, KubeconfigError> {
        if text.len() >= SIZE_LIMIT {
            return Err(KubeconfigError::TooBig(text.len()));
        }
        let mut documents = decode::values(text, file)?;
        let config = match (documents.pop(), documents.is_empty()) {
            (Some(Value::Object(config)), true) => config,
            (Some(_), true) => return Err(KubeconfigError::NoObject),
            (Some(_), false) => return Err(KubeconfigError::Several),
            (None, _) => return Err(KubeconfigError::Empty),
        };
        let directory = file.parent().unwrap_or(Path::new(""));
        of_config(&config, directory)
    }
}

fn of_config(config: &Map<String, Value>, directory: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let top = Section::top(config);
    let kind = top.text("kind")?;
    if !kind.is_empty() && kind != "Config" {
        return Err(KubeconfigError::OtherKind(kind.to_owned()));
    }
    let name = top.text("current-context")?;
    if name.is_empty() {
        return Err(KubeconfigError::NoCurrentContext);
    }
    let context = top.named("contexts", "context", name, "current-context")?;
    let of_context = |list, object| {
        let name = context.text(object)?;
        match name {
            "" => Err(KubeconfigError::Lacks(context.path(object))),
            name => top.named(list, object, name, &context.path(object)),
        }
    };
    let cluster = of_context("clusters", "cluster")?;
    let user = of_context("users", "user")?;
    let mut warnings = cluster.unknown_fields(fields::CLUSTER);
    warnings.extend(user.unknown_fields(fields::USER));
    refuse(&cluster, fields::REFUSED_OF_CLUSTER)?;
    refuse(&user, fields::REFUSED_OF_USER)?;
    let server = server(&cluster)?;
    let check = check(&cluster, directory, &mut warnings)?;
    let server_name = match cluster.text("tls-server-name")? {
        "" => server.host.clone(),
        name => name.to_owned(),
    };
    let certificate = certificate(&user, directory, &mut warnings)?;
    let token = token(&user, directory, &mut warnings)?;
    if certificate.is_none() && token.is_none() {
        return Err(KubeconfigError::NoCredentials(user.place().to_owned()));
    }
    Ok(Kubeconfig {
        server,
        check,
        server_name,
        certificate,
        token,
        warnings,
    })
}

/// Refuses the first field of the list that has a value.
fn refuse(section: &Section, refused: &[(&str, Refusal)]) -> Result<(), KubeconfigError> {
    let found = refused.iter().find(|(field, _)| section.has(field));
    match found {
        None => Ok(()),
        Some((field, cause)) => Err(KubeconfigError::Refused {
            path: section.path(field),
            cause: *cause,
        }),
    }
}

fn server(cluster: &Section) -> Result<Server, KubeconfigError> {
    let path = cluster.path("server");
    match cluster.text("server")? {
        "" => Err(KubeconfigError::Lacks(path)),
        text => Server::parse(text).map_err(|cause| KubeconfigError::Server { path, cause }),
    }
}

fn check(
    cluster: &Section,
    directory: &Path,
    warnings: &mut Vec<String>,
) -> Result<ServerCheck, KubeconfigError> {
    let authorities = cluster.content("certificate-authority", directory, warnings)?;
    let field = "insecure-skip-tls-verify";
    match (authorities, cluster.flag(field)?) {
        (Some(_), true) => Err(KubeconfigError::Refused {
            path: cluster.path(field),
            cause: Refusal::InsecureWithAuthority,
        }),
        (Some(authorities), false) => Ok(ServerCheck::Authorities(authorities)),
        (None, true) => {
            warnings.push(format!(
                "{}: the API server's certificate is not checked, so whoever is on the way can take the credentials and give this node pods to run: set certificate-authority-data instead",
                cluster.path(field)
            ));
            Ok(ServerCheck::Nothing)
        }
        (None, false) => Ok(ServerCheck::SystemAuthorities),
    }
}

fn certificate(
    user: &Section,
    directory: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<ClientCertificate>, KubeconfigError> {
    let certificate = user.content("client-certificate", directory, warnings)?;
    let key = user.content("client-key", directory, warnings)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
        (Some(_), None) => Err(KubeconfigError::Lacks(user.path("client-key"))),
        (None, Some(_)) => Err(KubeconfigError::Lacks(user.path("client-certificate"))),
        (None, None) => Ok(None),
    }
}

fn token(
    user: &Section,
    directory: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<Content>, KubeconfigError> {
    let (text, file) = (user.text("token")?, user.text("tokenFile")?);
    if !file.is_empty() {
        if !text.is_empty() {
            let (text, file) = (user.path("token"), user.path("tokenFile"));
            warnings.push(format!(
                "{text}: not acted on: {file} is given too, and counts instead"
            ));
        }
        return Ok(Some(Content::File(directory.join(file))));
    }
    if is_bootstrap_token(text) {
        return Err(KubeconfigError::Refused {
            path: user.path("token"),
            cause: Refusal::BootstrapToken,
        });
    }
    let token = text.trim();
    Ok((!token.is_empty()).then(|| Content::Inline(token.as_bytes().to_vec())))
}

/// True for a token with which a node may only ask for a certificate: 6 characters, a point, 16 characters.
fn is_bootstrap_token(text: &str) -> bool {
    let is_part = |part: &str, length| {
        let mut bytes = part.bytes();
        part.len() == length && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.split_once('.')
        .is_some_and(|(id, secret)| is_part(id, 6) && is_part(secret, 16))
}
