//! The kubeconfig and the files that it names, as the client uses them. Others rotate these files while the node runs.
//!
//! Invariants: a file that is missing or damaged in the middle of a rotation costs nothing: what was read last counts until
//! all files fit again. No error and no debug output contains a token or a key.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::base::clock::Moment;
use crate::base::http_client::{Sources, WaysOut};
use crate::base::wire::tls;
use crate::cluster::kubeconfig::{
    ClientCertificate, Content, Kubeconfig, KubeconfigError, SIZE_LIMIT, Server, ServerCheck,
};

/// Time between two looks at the files. Tokens of service accounts are replaced when 80 % of their life is over, so the old
/// one is good for minutes.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// The advice for a server that cannot be trusted or does not speak TLS.
pub(super) const WAYS_OUT: WaysOut = WaysOut {
    without_tls: |_| "check the port of the server in the kubeconfig".to_owned(),
    own_authority: |_| {
        "check certificate-authority-data of the cluster in the kubeconfig".to_owned()
    },
};

/// The reasons for which the node cannot sign in.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unread {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Reason.
        cause: Box<KubeconfigError>,
    },
    /// Content of the kubeconfig cannot be used.
    #[error("cannot use {what} of the kubeconfig: {cause}")]
    Content {
        /// Use of the content.
        what: &'static str,
        /// Reason.
        cause: Unusable,
    },
}

/// The reasons for which a certificate, a key or a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The text is not PEM.
    #[error("it is not PEM: {0}")]
    NoPem(pem::Error),
    /// The text has no certificate.
    #[error("it has no certificate in PEM")]
    NoCertificate,
    /// The system has no certificates of authorities.
    #[error("{0}")]
    NoAuthorities(String),
    /// Certificate and key cannot be used together, or not at all.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The token has characters that a header cannot carry.
    #[error("a token has printable characters only, in one line")]
    Token,
}

/// The server, the TLS configuration and the sign-in of a connection.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The API server.
    pub(super) server: Server,
    /// Name that the API server's certificate must have.
    pub(super) server_name: String,
    /// TLS with the certificate of the client, and the authorities of the server.
    pub(super) tls: Arc<ClientConfig>,
    /// Value of the header `Authorization`, which is not printed.
    pub(super) authorization: Option<HeaderValue>,
}

/// The content of the kubeconfig and of its files.
#[derive(PartialEq, Eq)]
struct Contents {
    kubeconfig: Kubeconfig,
    authorities: Option<Vec<u8>>,
    pair: Option<(Vec<u8>, Vec<u8>)>,
    token: Option<Vec<u8>>,
}

/// The consequence of a look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Nothing has changed.
    Same,
    /// The token has changed: the next request has the new one.
    Token,
    /// The connection is to be made anew.
    Connection,
}

/// The credentials of the node.
pub(super) struct Credentials {
    file: PathBuf,
    contents: Option<Contents>,
    identity: Option<Identity>,
    look_at: Moment,
}

impl Credentials {
    pub(super) fn new(file: PathBuf) -> Self {
        Self {
            file,
            contents: None,
            identity: None,
            look_at: Moment::default(),
        }
    }

    /// Returns the server, the TLS configuration and the sign-in of a connection; None if the files could never be used.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The moment of the next look at the files.
    pub(super) fn look_at(&self) -> Moment {
        self.look_at
    }

    /// Looks at the files, and takes what has changed.
    ///
    /// # Errors
    /// Returns a [`CredentialsError`] if the files cannot be used. What was read last stays in use.
    pub(super) fn look(&mut self, now: Moment) -> Result<Renewal, CredentialsError> {
        self.look_at = now + LOOK;
        let contents = Contents::read(&self.file)?;
        if self.contents.as_ref() == Some(&contents) {
            return Ok(Renewal::Same);
        }
        let identity = contents.identity()?;
        let renewal = match &self.contents {
            Some(old) if old.differs_in_token_only(&contents) => Renewal::Token,
            _ => Renewal::Connection,
        };
        if renewal == Renewal::Connection {
            for warning in &contents.kubeconfig.warnings {
                log::warn!("kubeconfig {}: {warning}", self.file.display());
            }
        }
        self.contents = Some(contents);
        self.identity = Some(identity);
        Ok(renewal)
    }
}

impl Contents {
    fn read(file: &Path) -> Result<Self, CredentialsError> {
        let text = read(file)?;
        let kubeconfig =
            Kubeconfig::read(&text, file).map_err(|e| CredentialsError::Kubeconfig {
                path: file.to_owned(),
                cause: Box::new(e),
            })?;
        let authorities = match &kubeconfig.check {
            ServerCheck::Authorities(content) => Some(content_of(content)?),
            ServerCheck::SystemAuthorities | ServerCheck::Nothing => None,
        };
        let pair = |of: &ClientCertificate| -> Result<_, CredentialsError> {
            Ok((content_of(&of.certificate)?, content_of(&of.key)?))
        };
        Ok(Self {
            authorities,
            pair: kubeconfig.certificate.as_ref().map(pair).transpose()?,
            token: kubeconfig.token.as_ref().map(content_of).transpose()?,
            kubeconfig,
        })
    }

    fn differs_in_token_only(&self, new: &Self) -> bool {
        let is_one = self.token.is_some() && new.token.is_some();
        is_one
            && self.authorities == new.authorities
            && self.pair == new.pair
            && self.kubeconfig.server == new.kubeconfig.server
            && self.kubeconfig.check == new.kubeconfig.check
            && self.kubeconfig.server_name == new.kubeconfig.server_name
    }

    fn identity(&self) -> Result<Identity, CredentialsError> {
        Ok(Identity {
            server: self.kubeconfig.server.clone(),
            server_name: self.kubeconfig.server_name.clone(),
            tls: Arc::new(self.tls()?),
            authorization: self.authorization()?,
        })
    }

    fn tls(&self) -> Result<ClientConfig, CredentialsError> {
        let of_certificate = |cause| CredentialsError::Content {
            what: "the client certificate",
            cause,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| of_certificate(e.into()))?;
        let builder = match self.verifier()? {
            Verifier::Roots(roots) => builder.with_root_certificates(roots),
            Verifier::Anything(verifier) => builder
                .dangerous()
                .with_custom_certificate_verifier(verifier),
        };
        let mut config = match &self.pair {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate).map_err(of_certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key);
                let key = key.map_err(|e| of_certificate(Unusable::NoPem(e)))?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|e| of_certificate(e.into()))?
            }
        };
        config.alpn_protocols = vec![tls::HTTP2.into()];
        Ok(config)
    }

    fn verifier(&self) -> Result<Verifier, CredentialsError> {
        let failed = |cause| CredentialsError::Content {
            what: "the authorities of the cluster",
            cause,
        };
        let mut roots = RootCertStore::empty();
        match (&self.kubeconfig.check, &self.authorities) {
            (ServerCheck::Nothing, _) => return Ok(Verifier::Anything(tls::any_certificate())),
            (_, Some(pem)) => {
                for certificate in certificates(pem).map_err(failed)? {
                    roots.add(certificate).map_err(|e| failed(e.into()))?;
                }
            }
            (_, None) => {
                let server = self.kubeconfig.server.authority();
                let system = Sources::of_environment().roots(&server, None, WAYS_OUT);
                roots = system.map_err(|e| failed(Unusable::NoAuthorities(e.to_string())))?;
            }
        }
        Ok(Verifier::Roots(roots))
    }

    fn authorization(&self) -> Result<Option<HeaderValue>, CredentialsError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let value = [b"Bearer ", token.trim_ascii()].concat();
        let value = HeaderValue::from_bytes(&value);
        let mut value = value.map_err(|_| CredentialsError::Content {
            what: "the token",
            cause: Unusable::Token,
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The way in which the server's certificate is checked.
enum Verifier {
    Roots(RootCertStore),
    Anything(Arc<dyn ServerCertVerifier>),
}

fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: ring::ALL_CIPHER_SUITES.to_vec(),
        kx_groups: ring::ALL_KX_GROUPS.to_vec(),
        ..ring::default_provider()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all.map_err(Unusable::NoPem)? {
        all if all.is_empty() => Err(Unusable::NoCertificate),
        all => Ok(all),
    }
}

fn content_of(content: &Content) -> Result<Vec<u8>, CredentialsError> {
    match content {
        Content::Inline(bytes) => Ok(bytes.clone()),
        Content::File(path) => read(path),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialsError> {
    let mut bytes = Vec::new();
    let limit = SIZE_LIMIT as u64;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    let cause = match read {
        Ok(_) if (bytes.len() as u64) < limit => return Ok(bytes),
        Ok(_) => io::Error::other("it has 1 MiB or more"),
        Err(cause) => cause,
    };
    Err(CredentialsError::Unread {
        path: path.to_owned(),
        cause,
    })
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
