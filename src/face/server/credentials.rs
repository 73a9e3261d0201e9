//! The credentials of the TLS port: the certificate that the server shows, and the client CA and the bearer token that
//! clients are checked against.
//!
//! Invariants: every file is read again when it has changed, even while another file is wrong: a withdrawn token or
//! client CA must not stay valid. A token or a client CA that cannot be used lets nobody in. While the certificate or
//! its key cannot be used, the last good pair stays in force. Tokens are compared in constant time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::hmac;
use ring::rand::SystemRandom;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;

use super::access::{Claim, Credentials};
use super::self_signed::{self, Host, SelfSignedError};
use super::transport::Transport;
use super::{Webhooks, client_certificate};

/// The configuration key for the file of the private key, for error texts.
const PRIVATE_KEY: &str = "tlsPrivateKeyFile";
/// Largest size in bytes of a file of certificates.
const MAX_PEM: u64 = 1 << 20;
/// The longest token in bytes. [`MIN_TOKEN`] is the shortest, because a shorter token could be guessed.
const MAX_TOKEN: u64 = 4096;
const MIN_TOKEN: usize = 16;

/// The files of credentials, each with its key in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The file of `tlsCertFile`.
    pub certificate: PathBuf,
    /// The file of `tlsPrivateKeyFile`.
    pub key: PathBuf,
    /// The file of `authentication.x509.clientCAFile`.
    pub client_ca: Option<PathBuf>,
    /// The file of `authentication.bearerTokenFile`.
    pub token: Option<PathBuf>,
    /// The host for which the server makes certificate and key if they cannot be used; None if both are the user's.
    pub made_for: Option<Host>,
}

/// A file of credentials cannot be used.
#[derive(Debug, Error)]
#[error("{key} {}: {cause}", path.display())]
pub struct CredentialError {
    key: &'static str,
    path: PathBuf,
    cause: Unusable,
}

impl CredentialError {
    fn new(key: &'static str, path: &Path, cause: Unusable) -> Self {
        Self {
            key,
            path: path.into(),
            cause,
        }
    }

    /// Returns true if the file exists but could not be read, for example for lack of descriptors. The content of such
    /// a file may be good, so the file is read again even if it does not change.
    fn is_unread(&self) -> bool {
        matches!(&self.cause, Unusable::Unread(e) if e.kind() != io::ErrorKind::NotFound)
    }
}

/// The reasons why a file of credentials cannot be used.
#[derive(Debug, Error)]
enum Unusable {
    #[error(transparent)]
    Unread(io::Error),
    #[error("longer than {0} bytes")]
    TooLong(u64),
    #[error("others than its owner can read or write it (mode {mode:04o}): chmod 600 {}", path.display())]
    Open { mode: u32, path: PathBuf },
    #[error("no certificate in PEM in it")]
    NoCertificate,
    #[error("not PEM: {0}")]
    NoPem(pem::Error),
    #[error("no private key in PEM: {0}")]
    NoKey(pem::Error),
    #[error("it does not fit tlsCertFile: {0}")]
    OtherKey(rustls::Error),
    #[error(transparent)]
    Refused(#[from] rustls::Error),
    #[error(transparent)]
    NoAuthority(#[from] VerifierBuilderError),
    #[error("a token needs {MIN_TOKEN} characters or more: head -c 32 /dev/urandom | base64 >{}", .0.display())]
    ShortToken(PathBuf),
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    #[error(transparent)]
    NotMade(#[from] SelfSignedError),
}

/// A sentence for the log about files that were read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The files cannot be used.
    Problem(String),
    /// The files could not be used before, and are in force again.
    Solved(String),
}

/// The server's certificate, and the client CA and token that are in force.
pub struct KnownCredentials {
    certificate: Watched<Arc<CertifiedKey>>,
    client_ca: Watched<Option<Arc<dyn ClientCertVerifier>>>,
    token: Watched<Option<Token>>,
    config: Arc<ServerConfig>,
}

/// The version of a file: device, inode, size and the time of its last change. A change of the file's mode changes this
/// version too.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let m = fs::metadata(path).ok()?;
    Some((m.dev(), m.ino(), m.size(), m.ctime(), m.ctime_nsec()))
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| stamp(path)).collect()
}

/// A value that is read from one file, or from two files that belong together.
struct Watched<T> {
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T, CredentialError>,
    value: T,
    /// The stamp of each file when it was last read.
    seen: Vec<Option<Stamp>>,
    problem: Option<CredentialError>,
}

impl<T> Watched<T> {
    fn new(
        paths: Vec<PathBuf>,
        read: fn(&[PathBuf]) -> Result<T, CredentialError>,
    ) -> Result<Self, CredentialError> {
        Ok(Self {
            // The stamps are taken before the files are read, so that a change during the read is noticed.
            seen: stamps(&paths),
            value: read(&paths)?,
            paths,
            read,
            problem: None,
        })
    }

    /// Reads the files again if one of them has changed. While the files cannot be used, the value `otherwise` is in
    /// force. If `otherwise` is None, the last good value stays in force. Returns true if the value was set.
    fn renew(&mut self, otherwise: Option<T>, news: &mut Vec<News>) -> bool {
        let now = stamps(&self.paths);
        if now == self.seen {
            return false;
        }
        self.seen = now;
        let read = (self.read)(&self.paths);
        news.extend(self.tell(read.as_ref().err(), otherwise.is_some()));
        let value = match read {
            Ok(value) => Some(value),
            Err(e) => {
                if e.is_unread() {
                    self.seen.clear();
                }
                self.problem = Some(e);
                otherwise
            }
        };
        value.map(|value| self.value = value).is_some()
    }

    /// Returns the news, if there is any. The same problem is reported once until it is solved. `is_closed` is true if
    /// the problem lets nobody in.
    fn tell(&mut self, problem: Option<&CredentialError>, is_closed: bool) -> Option<News> {
        let before = self.problem.take();
        let Some(problem) = problem else {
            let e = before?;
            let text = format!("{} {}: in force again", e.key, e.path.display());
            return Some(News::Solved(text));
        };
        let text = problem.to_string();
        let stands = match is_closed {
            true => "it lets nobody in",
            false => "what was read before stays in force",
        };
        let is_new = before.is_none_or(|e| e.to_string() != text);
        is_new.then(|| News::Problem(format!("{text}; {stands}")))
    }
}

impl KnownCredentials {
    /// Reads every file.
    ///
    /// # Errors
    /// Returns [`CredentialError`] for the first file that cannot be used.
    pub fn read(files: CredentialFiles) -> Result<Self, CredentialError> {
        if let Some(host) = &files.made_for {
            keep_made(host, &files.certificate, &files.key)?;
        }
        let certificate = Watched::new(vec![files.certificate, files.key], certified_key)?;
        let client_ca = Watched::new(files.client_ca.into_iter().collect(), |paths| {
            paths.first().map(|path| verifier(path)).transpose()
        })?;
        let token = Watched::new(files.token.into_iter().collect(), |paths| {
            paths.first().map(|path| Token::read(path)).transpose()
        })?;
        let config = server_config(certificate.value.clone(), client_ca.value.clone());
        let failed =
            |e: rustls::Error| CredentialError::new(PRIVATE_KEY, &certificate.paths[1], e.into());
        Ok(Self {
            config: config.map_err(failed)?,
            certificate,
            client_ca,
            token,
        })
    }

    /// Reads the changed files again, and returns the news about them.
    pub fn renew(&mut self) -> Vec<News> {
        let mut news = Vec::new();
        self.token.renew(Some(None), &mut news);
        let is_other_ca = self.client_ca.renew(Some(None), &mut news);
        if self.certificate.renew(None, &mut news) || is_other_ca {
            let (certificate, ca) = (&self.certificate.value, &self.client_ca.value);
            match server_config(certificate.clone(), ca.clone()) {
                Ok(config) => self.config = config,
                Err(e) => news.push(News::Problem(format!("{PRIVATE_KEY}: {e}"))),
            }
        }
        news
    }

    /// Returns the TLS configuration for the handshake of the next client.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Returns the credentials that a client has shown by its certificate or by a token. The certificate is verified
    /// again here, although the handshake has verified it. The certificate may have expired since the handshake, or the
    /// client CA may have changed.
    pub fn of(
        &self,
        transport: &Transport,
        token: Option<&str>,
        webhooks: Webhooks,
    ) -> Credentials {
        let fits = |given: &str| self.token.value.as_ref().is_some_and(|t| t.fits(given));
        if token.is_some_and(fits) {
            return Credentials::Valid;
        }
        let shown = transport.certificates();
        if self.is_signed(shown) {
            if !webhooks.authorization {
                return Credentials::Valid;
            }
            let user = shown.first().and_then(|own| client_certificate::user(own));
            if let Some(user) = user {
                return Credentials::Claimed(Claim::User(user));
            }
        }
        match token {
            Some(token) if webhooks.authentication => {
                Credentials::Claimed(Claim::Token(token.to_owned()))
            }
            _ => Credentials::None,
        }
    }

    fn is_signed(&self, shown: &[CertificateDer<'_>]) -> bool {
        let (Some(ca), [own, others @ ..]) = (&self.client_ca.value, shown) else {
            return false;
        };
        ca.verify_client_cert(own, others, UnixTime::now()).is_ok()
    }
}

/// Reads a file of at most `limit` bytes, and returns its content and its mode.
fn read(key: &'static str, path: &Path, limit: u64) -> Result<(Vec<u8>, u32), CredentialError> {
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let file = File::open(path)?;
        let mode = file.metadata()?.mode();
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok((bytes, mode))
    };
    let failed = |cause| CredentialError::new(key, path, cause);
    let (bytes, mode) = read().map_err(|e| failed(Unusable::Unread(e)))?;
    match bytes.len() as u64 > limit {
        true => Err(failed(Unusable::TooLong(limit))),
        false => Ok((bytes, mode)),
    }
}

/// Reads a file that only its owner may read or write. A secret that other users of the node can read is refused.
fn read_secret(key: &'static str, path: &Path, limit: u64) -> Result<Vec<u8>, CredentialError> {
    let (bytes, mode) = read(key, path, limit)?;
    if mode & 0o077 != 0 {
        let cause = Unusable::Open {
            mode: mode & 0o7777,
            path: path.to_owned(),
        };
        return Err(CredentialError::new(key, path, cause));
    }
    Ok(bytes)
}

/// Reads the certificate that the server shows, and its key, from `tlsCertFile` and `tlsPrivateKeyFile`.
fn certified_key(paths: &[PathBuf]) -> Result<Arc<CertifiedKey>, CredentialError> {
    let (of_chain, of_key) = (&paths[0], &paths[1]);
    let chain = certificates("tlsCertFile", of_chain)?;
    let failed = |cause| CredentialError::new(PRIVATE_KEY, of_key, cause);
    let key = read_secret(PRIVATE_KEY, of_key, MAX_PEM)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| failed(Unusable::NoKey(e)))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map(Arc::new)
        .map_err(|e| failed(Unusable::OtherKey(e)))
}

/// Makes the server's own certificate and key, unless they are there.
fn keep_made(host: &Host, certificate: &Path, key: &Path) -> Result<(), CredentialError> {
    let there = match certified_key(&[certificate.into(), key.into()]) {
        // It may be good.
        Err(e) if e.is_unread() => return Err(e),
        Err(_) => false,
        Ok(pair) => self_signed::is_of(host, pair.end_entity_cert().map_or(&[], |own| own)),
    };
    if !there {
        let failed = |e: SelfSignedError| CredentialError::new("port", certificate, e.into());
        self_signed::make(host, certificate, key).map_err(failed)?;
    }
    log::warn!(
        "port: no tlsCertFile is configured, so {} is shown to clients, which podprobe has signed itself: nothing but this \
         file tells a client that it talks to this node",
        certificate.display()
    );
    Ok(())
}

fn server_config(
    certificate: Arc<CertifiedKey>,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(ca),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)));
    config.alpn_protocols = vec![b"http/1.1".into()];
    // A resumed session would not verify the client's certificate again, and few clients come back often.
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

/// Makes the verifier of client certificates from the file of the client CA. A client may come without a certificate,
/// but a certificate that it shows must be good.
fn verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, CredentialError> {
    const KEY: &str = "authentication.x509.clientCAFile";
    let failed = |cause| CredentialError::new(KEY, path, cause);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(KEY, path)? {
        roots.add(certificate).map_err(|e| failed(e.into()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| failed(e.into()))
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let (bytes, _) = read(key, path, MAX_PEM)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let failed = |cause| CredentialError::new(key, path, cause);
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(failed(Unusable::NoCertificate)),
        Err(e) => Err(failed(Unusable::NoPem(e))),
    }
}

/// A bearer token. Only its HMAC under a random key of this process is kept and compared.
struct Token {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    fn read(path: &Path) -> Result<Self, CredentialError> {
        const KEY: &str = "authentication.bearerTokenFile";
        let failed = |cause| CredentialError::new(KEY, path, cause);
        let bytes = read_secret(KEY, path, MAX_TOKEN)?;
        let token = bytes.trim_ascii();
        if token.len() < MIN_TOKEN {
            return Err(failed(Unusable::ShortToken(path.to_owned())));
        }
        Self::new(token).map_err(failed)
    }

    fn new(token: &[u8]) -> Result<Self, Unusable> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| Unusable::NoRandomBytes)?;
        let tag = hmac::sign(&key, token);
        Ok(Self { key, tag })
    }

    /// Returns true if `given` is this token. The check always takes the same time, wherever the two tokens differ and
    /// however long they are.
    fn fits(&self, given: &str) -> bool {
        hmac::verify(&self.key, given.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

#[cfg(test)]
pub(super) mod tests;
