//! What clients of the TLS port are known by: the client CA and the bearer token, and the certificate that the server shows.
//!
//! Invariants: every file is read again when it has changed, so that a certificate can be renewed while the daemon runs. A
//! file that cannot be used lets nobody in, and the last good one stays in force. A token is compared in constant time.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::hmac;
use ring::rand::SystemRandom;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::access::Credentials;
use super::transport::Transport;

/// Largest file of certificates.
const MAX_PEM: u64 = 1 << 20;
/// Longest token in bytes, and shortest: a shorter one can be guessed.
const MAX_TOKEN: u64 = 4096;
const MIN_TOKEN: usize = 16;

/// The files, by their keys in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// `tlsCertFile`.
    pub certificate: PathBuf,
    /// `tlsPrivateKeyFile`.
    pub key: PathBuf,
    /// `authentication.x509.clientCAFile`.
    pub client_ca: Option<PathBuf>,
    /// `authentication.bearerTokenFile`.
    pub token: Option<PathBuf>,
}

/// A file that cannot be used.
#[derive(Debug)]
pub struct CredentialError {
    key: &'static str,
    path: PathBuf,
    cause: String,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.key, self.path.display(), self.cause)
    }
}

impl std::error::Error for CredentialError {}

/// What is in force.
pub struct KnownCredentials {
    files: CredentialFiles,
    /// Of each file when it was last read.
    seen: Vec<Option<Stamp>>,
    config: Arc<ServerConfig>,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
    token: Option<Token>,
}

/// Which version of a file: device, inode, size and the time of its last change, which includes one of its mode.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?;
    Some((m.dev(), m.ino(), m.size(), m.ctime(), m.ctime_nsec()))
}

impl CredentialFiles {
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let all = [&self.certificate, &self.key];
        let all = all.into_iter().chain(&self.client_ca).chain(&self.token);
        all.map(|path| stamp(path)).collect()
    }
}

impl KnownCredentials {
    /// Reads every file.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn read(files: CredentialFiles) -> Result<Self, CredentialError> {
        // Looked at first, so that a change meanwhile is seen.
        let seen = files.stamps();
        let provider = provider();
        let client_ca = files.client_ca.as_deref();
        let client_ca = client_ca.map(|path| verifier(path, provider.clone()));
        let client_ca = client_ca.transpose()?;
        Ok(Self {
            seen,
            token: files.token.as_deref().map(Token::read).transpose()?,
            config: server_config(&files, client_ca.clone(), provider)?,
            client_ca,
            files,
        })
    }

    /// Reads the files again that have changed.
    ///
    /// # Errors
    /// One cannot be used now; it is said once for each change, and what was read before stays.
    pub fn renew(&mut self) -> Result<(), CredentialError> {
        let now = self.files.stamps();
        if now != self.seen {
            self.seen = now;
            *self = Self::read(self.files.clone())?;
        }
        Ok(())
    }

    /// For the handshake of the next client.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// What a client has shown by its certificate or by a token. The handshake has verified the certificate; since then it may
    /// have expired, or the client CA may be another.
    pub fn of(&self, transport: &Transport, token: Option<&str>) -> Credentials {
        let fits = |given: &str| self.token.as_ref().is_some_and(|t| t.fits(given));
        match self.is_signed(transport.certificates()) || token.is_some_and(fits) {
            true => Credentials::Valid,
            false => Credentials::None,
        }
    }

    fn is_signed(&self, shown: &[CertificateDer<'_>]) -> bool {
        let (Some(ca), [own, others @ ..]) = (&self.client_ca, shown) else {
            return false;
        };
        ca.verify_client_cert(own, others, UnixTime::now()).is_ok()
    }
}

/// Reads a file of at most `limit` bytes.
fn read(key: &'static str, path: &Path, limit: u64) -> Result<(Vec<u8>, u32), CredentialError> {
    let failed = |cause: String| CredentialError {
        key,
        path: path.into(),
        cause,
    };
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok((bytes, mode))
    };
    let (bytes, mode) = read().map_err(|e| failed(e.to_string()))?;
    match bytes.len() as u64 > limit {
        true => Err(failed(format!("longer than {limit} bytes"))),
        false => Ok((bytes, mode)),
    }
}

/// A secret that others of the node can read is none.
fn read_secret(key: &'static str, path: &Path, limit: u64) -> Result<Vec<u8>, CredentialError> {
    let (bytes, mode) = read(key, path, limit)?;
    if mode & 0o077 != 0 {
        return Err(CredentialError {
            key,
            path: path.into(),
            cause: format!(
                "others than its owner can read or write it (mode {:04o}): chmod 600 {}",
                mode & 0o7777,
                path.display()
            ),
        });
    }
    Ok(bytes)
}

fn server_config(
    files: &CredentialFiles,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, CredentialError> {
    let chain = certificates("tlsCertFile", &files.certificate)?;
    let failed = |key, path: &Path, cause: String| CredentialError {
        key,
        path: path.into(),
        cause,
    };
    let of_key = |cause: String| failed("tlsPrivateKeyFile", &files.key, cause);
    let key = read_secret("tlsPrivateKeyFile", &files.key, MAX_PEM)?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|e| of_key(format!("no private key in PEM: {e}")))?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| of_key(e.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(ca),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| of_key(format!("it does not fit tlsCertFile: {e}")))?;
    config.alpn_protocols = vec![b"http/1.1".into()];
    // A session that is resumed has no new look at the client's certificate, and few clients come back often.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: provider::ALL_CIPHER_SUITES.to_vec(),
        kx_groups: provider::ALL_KX_GROUPS.to_vec(),
        ..provider::default_provider()
    })
}

/// A client may show a certificate or not; one that it shows must be good.
fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CredentialError> {
    const KEY: &str = "authentication.x509.clientCAFile";
    let failed = |cause: String| CredentialError {
        key: KEY,
        path: path.into(),
        cause,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(KEY, path)? {
        roots.add(certificate).map_err(|e| failed(e.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|e| failed(e.to_string()))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let (bytes, _) = read(key, path, MAX_PEM)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let failed = |cause: String| CredentialError {
        key,
        path: path.into(),
        cause,
    };
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(failed("no certificate in PEM in it".into())),
        Err(e) => Err(failed(format!("not PEM: {e}"))),
    }
}

/// A bearer token. Only its tag under a key of this process is kept and compared.
struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    fn read(path: &Path) -> Result<Self, CredentialError> {
        const KEY: &str = "authentication.bearerTokenFile";
        let failed = |cause: String| CredentialError {
            key: KEY,
            path: path.into(),
            cause,
        };
        let bytes = read_secret(KEY, path, MAX_TOKEN)?;
        let token = bytes.trim_ascii();
        if token.len() < MIN_TOKEN {
            return Err(failed(format!(
                "a token needs {MIN_TOKEN} characters or more: head -c 32 /dev/urandom | base64 >{}",
                path.display()
            )));
        }
        Self::new(token).map_err(failed)
    }

    fn new(token: &[u8]) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no random bytes".to_owned())?;
        let tag = hmac::sign(&key, token);
        Ok(Self { key, tag })
    }

    /// In the same time wherever the two differ, and however long they are.
    fn fits(&self, given: &str) -> bool {
        hmac::verify(&self.key, given.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

#[cfg(test)]
pub(super) mod tests;
